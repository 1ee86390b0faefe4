"""The ledger of one user's machine: a file that the processes of the user change in turn.

Each change is made under a lock, drops the claims of ended processes, settles the queue, and wakes the processes with
claims through datagrams. Other users have ledgers of their own.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from weft.model.errors import InternalError
from weft.runtime.claims import Ledger, charge, settle
from weft.runtime.clock import RealClock
from weft.store.folders import temporary_folder, user_root
from weft.worker.group import ProcessId, is_alive, process_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEDGER: Final = "slots.ledger"
POLL_S: Final = 0.2
"""The seconds between two looks of a process that waits: the end of a killed one wakes nobody."""
_LOCK: Final = "slots.lock"
_RUNTIME: Final = "XDG_RUNTIME_DIR"
_MOST_BYTES: Final = 16 << 20
_MOST_PATH: Final = 100
_here: Final = threading.Lock()
"""Excludes threads of this process, among which locks of the kernel do not distinguish."""


def ledger_folder() -> Path:
    """Make and return the folder of this user's ledger: in XDG_RUNTIME_DIR, else in the folder for temporary files.

    ForbiddenError: the name is taken by something of another user.
    """
    runtime = os.environ.get(_RUNTIME, "")
    root = Path(runtime) if os.path.isabs(runtime) and os.access(runtime, os.W_OK | os.X_OK) else temporary_folder()
    return user_root(root)


def this_session() -> str:
    """Return the identity of this process in claims."""
    found = process_id(os.getpid())
    if found is None:
        raise InternalError("this process is not in the table of processes")
    return f"{found.pid} {found.start_time}"


class MachineLedger:
    """One reader and writer of the ledger in a folder. `edit` and `close` are safe for threads, `wait` has one caller.

    `socket` is the name under which it is woken, "" if there is none.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._others: set[str] = set()
        self.socket = ""
        path = folder / f"{name}.wake"
        if len(os.fsencode(path)) <= _MOST_PATH:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            with suppress(FileNotFoundError):
                path.unlink()
            self._socket.bind(str(path))
            self.socket = path.name

    def edit(self, change: Callable[[Ledger], Ledger] = lambda ledger: ledger) -> Ledger:
        """Change the ledger and return it; another one is settled and written, and wakes the others."""
        with self._locked():
            before, now = self._read(), RealClock().now()
            ledger = change(self._without_ended(charge(before, now)))
            if changed := ledger.claims != before.claims:
                ledger = settle(ledger, now)
                self._write(ledger)
        if changed:
            self._wake({one.socket for one in (*before.claims, *ledger.claims)} - {self.socket})
        self._others = {one.session for one in ledger.claims}
        return ledger

    def wait(self, *, waiting: bool) -> None:
        """Wait until the ledger has changed or `wake` was called; with `waiting` also for the end of other processes,
        where the system reports it, else at most `POLL_S` seconds.
        """
        if self._socket is None:
            sleep(POLL_S)
            return
        with ExitStack() as opened:
            timeout_s = None
            events = [self._socket.fileno()]
            if waiting:
                ends = [_open_process(session) for session in self._others - {this_session()}]
                timeout_s = POLL_S if None in ends else None
                for end in ends:
                    if end is not None:
                        opened.callback(os.close, end)
                        events.append(end)
            ready = select.poll()
            for event in events:
                ready.register(event, select.POLLIN)
            ready.poll(None if timeout_s is None else timeout_s * 1000)
        with suppress(BlockingIOError):
            while self._socket.recv(1):
                pass

    def wake(self) -> None:
        """End the wait of this ledger."""
        self._wake({self.socket})

    def close(self) -> None:
        """Remove the socket; a second call does nothing."""
        if self._socket is not None:
            with suppress(FileNotFoundError):
                (self._folder / self.socket).unlink()
            self._socket.close()
            self._socket = None

    def _wake(self, names: set[str]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            for name in sorted(names - {""}):
                with suppress(OSError):  # it has ended, or is to be woken already
                    sender.sendto(b"\0", str(self._folder / name))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with _here:
            lock = os.open(self._folder / _LOCK, flags, 0o600)
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX)  # a forked child does not share it, unlike one of flock
                yield
            finally:
                os.close(lock)

    def _read(self) -> Ledger:
        try:
            file = os.open(self._folder / LEDGER, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return Ledger()
        with os.fdopen(file, "rb") as source:
            data = source.read(_MOST_BYTES)
        try:
            return msgspec.msgpack.decode(data, type=Ledger)
        except msgspec.MsgspecError:
            return Ledger()  # of another version: its processes run on, without a claim

    def _write(self, ledger: Ledger) -> None:
        fresh = self._folder / f"{LEDGER}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as target:
            target.write(msgspec.msgpack.encode(ledger))
        os.replace(fresh, self._folder / LEDGER)

    def _without_ended(self, ledger: Ledger) -> Ledger:
        """Return a ledger without the claims of ended processes, and remove their sockets."""
        ended = {session for session in {one.session for one in ledger.claims} if not _lives(session)}
        if not ended:
            return ledger
        for name in {one.socket for one in ledger.claims if one.session in ended} - {""}:
            with suppress(OSError):
                (self._folder / name).unlink()
        return replace(ledger, claims=tuple(one for one in ledger.claims if one.session not in ended))


def _open_process(session: str) -> int | None:
    """Return a descriptor that can be read when a process has ended; None if it has, or the system has no such."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        found = os.pidfd_open(int(session.partition(" ")[0]))
    except (OSError, ValueError):
        return None
    if _lives(session):
        return found
    os.close(found)
    return None


def _lives(session: str) -> bool:
    pid, _, start = session.partition(" ")
    return pid.isdecimal() and is_alive(ProcessId(int(pid), start))
