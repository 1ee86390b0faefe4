"""The pool of guardians: one small process for each process that runs commands.

`open_guardian_pool` or the first command starts it within some milliseconds. It forks guardians
(`weft/worker/guardian.py`, a program without the rest of Weft), one for each concurrent command. It ends with this
process in every case.
"""

from __future__ import annotations

import array
import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from weft.model.errors import InternalError
from weft.store.limits import limit_advice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Imported, because Python caches the compiled form of imported modules only; compiling takes 4 ms.
GUARDIAN = (
    "import sys; weft = sys.modules['weft'] = type(sys)('weft'); weft.__path__ = [sys.argv[1]]; "
    "from weft.worker import guardian; guardian.main()"
)
LOADED_GUARDIAN = "from weft.worker import guardian; guardian.main()"
WEFT_FOLDER = Path(__file__).parents[1]
SILENCE_S = 2.5
"""Seconds of silence after which a guardian is continued, in case that something has stopped it.

A stopped guardian enforces no timeout and no cancel, and it does not notice the end of its owner. To continue one is
safe: its command is a process of its own, and the signal has no effect on a process that runs.
"""
PATIENCE_S = 5.0
"""Seconds that an ending process waits for its guardian pool."""
IDLE = 16
"""The largest number of idle guardians; each takes about 2 MB."""


Pool = TypeVar("Pool", bound="GuardianPool")


class GuardianPool:
    """The process that forks guardians; started on first use, and again after a kill."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pool_socket: socket.socket | None = None
        self._idle: list[socket.socket] = []
        self._modules: tuple[str, ...] = ()
        self._commands = 0

    def expect(self, *modules: str) -> None:
        """Let the next process load modules that most commands need: guardians inherit them."""
        self._modules = modules

    def expect_commands(self, number: int) -> None:
        """Let `open` order a guardian for each of so many commands, which will begin together."""
        self._commands = number

    def open(self) -> None:
        """Start the process and the guardians that are expected, without waiting for them."""
        with self._lock, suppress(OSError):  # the first command reports the error
            if self._pool_socket is None:
                self._pool_socket = self._open()
            while len(self._idle) < min(self._commands, IDLE):
                self._idle.append(self._order())
            self._commands = 0

    def start(self) -> socket.socket:
        """Return this end of the control socket of an idle guardian. InternalError: it cannot be started."""
        with self._lock:
            while self._idle:
                known = self._idle.pop()
                if _is_there(known):
                    return known
                known.close()
        try:
            with self._lock:
                try:
                    return self._order()
                except (BrokenPipeError, ConnectionResetError):
                    self._close()
                    return self._order()
        except OSError as error:
            raise InternalError(
                f"the guardian of a command cannot be started: {error.strerror or error}",
                hint=limit_advice(error) or "See that the system has processes and files left.",
            ) from error

    def take_back(self, control: socket.socket) -> None:
        """Keep the guardian of an ended command for the next one, if it has answered `again`."""
        with self._lock:
            if self._pool_socket is not None and len(self._idle) < IDLE:
                self._idle.append(control)
                return
        control.close()

    def go_on(self) -> None:
        """Continue the process and its guardians, which something may have stopped (SIGSTOP)."""
        with self._lock:
            self._continue()

    def close(self) -> None:
        """End the process and its idle guardians; busy guardians continue."""
        with self._lock:
            self._close()

    def forget(self) -> None:
        """Forget the process of the parent after a fork."""
        self._lock = threading.Lock()
        if self._process is not None:
            self._process.returncode = 0
        for one in (self._pool_socket, *self._idle):
            if one is not None:
                one.close()
        self._process = self._pool_socket = None
        self._idle = []

    def _order(self) -> socket.socket:
        """Return this end of the control socket of a guardian that is being forked."""
        if self._pool_socket is None:
            self._pool_socket = self._open()
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            handle = array.array("i", [theirs.fileno()])
            self._pool_socket.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handle)])
            undo.pop_all()
        return ours

    def _command(self) -> tuple[list[str], dict[str, str] | None]:
        """Return the first words of the process and its environment, None for that of this process."""
        return [sys.executable, "-I", "-S", "-c", GUARDIAN], None

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            self._process = self._start([str(WEFT_FOLDER), *self._modules, str(os.getpid())], theirs.fileno())
            undo.pop_all()
        return ours

    def _start(self, arguments: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
        """Start the process with the arguments of `guardian.main` and a descriptor as its standard input."""
        words, env = self._command()
        return subprocess.Popen(
            [*words, *arguments],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=env,
            start_new_session=True,  # a Ctrl-C at the terminal is handled by the owner
        )

    def _continue(self) -> None:
        if self._process is None:
            return
        pid = self._process.pid
        self._process.send_signal(signal.SIGCONT)
        with suppress(OSError):  # a system without this file
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split():
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGCONT)

    def _close(self) -> None:
        self._continue()  # a stopped process would not see the end of its socket
        for one in self._idle:
            with suppress(OSError):
                one.shutdown(socket.SHUT_WR)
        for one in self._idle:
            one.settimeout(PATIENCE_S)
            with one, suppress(OSError):
                one.recv(1)  # until the process has ended
        self._idle = []
        if self._pool_socket is not None:
            with self._pool_socket as pool, suppress(OSError):  # it was killed, or does not end
                pool.shutdown(socket.SHUT_WR)
                pool.settimeout(PATIENCE_S)
                pool.recv(1)  # until the process has ended: a wait with a limit looks from time to time alone
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        self._process = self._pool_socket = None


def _is_there(control: socket.socket) -> bool:
    """Whether the guardian at the other end is alive: an idle one sends nothing, an ended one closes the socket."""
    try:
        control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


class LoadedPool(GuardianPool):
    """A pool with modules of Weft loaded: its guardians call functions of these in forks (`CommandSpec.function`).

    `environment` is that of its process; the functions have that of their commands.
    """

    def __init__(self, modules: Sequence[str], environment: Callable[[], dict[str, str]]) -> None:
        super().__init__()
        self._environment = environment
        self.expect(*modules)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-P", "-c", LOADED_GUARDIAN], self._environment()


def lives_here(pool: Pool) -> Pool:
    """Let a pool end with this process, and forks of it start their own."""
    atexit.register(pool.close)
    os.register_at_fork(after_in_child=pool.forget)
    return pool


COMMON_POOL: Final = lives_here(GuardianPool())
open_guardian_pool = COMMON_POOL.open
expect_in_guardians = COMMON_POOL.expect
expect_commands = COMMON_POOL.expect_commands
start_guardian = COMMON_POOL.start
close_guardian_pool = COMMON_POOL.close
