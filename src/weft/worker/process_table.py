"""Processes of this machine: the process table, the family of a process, and the owner of this one.

This module is part of the guardian, so it imports no more than that does (see `weft.worker.guardian`).
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the C module, without its enums

LINUX = sys.platform == "linux"
CHUNK_BYTES = 1 << 20
OWNER_S = 1.0
"""Seconds between two checks of the owner, on systems that do not report its end."""


class ProcessRow:
    """One row of the process table. `start` is the start time; pid and start time identify one process for ever."""

    __slots__ = ("alive", "group", "parent", "pid", "session", "start")

    def __init__(self, pid: int, parent: int, group: int, session: int, start: str, *, alive: bool) -> None:
        self.pid, self.parent, self.group, self.session = pid, parent, group, session
        self.start, self.alive = start, alive


_boot: list[str] = []


def boot_id() -> str:
    """Return the id of this boot ("" if unknown); start times count from the boot."""
    if not _boot:
        try:
            _boot.append(_read_file("/proc/sys/kernel/random/boot_id").strip().decode())
        except OSError:
            _boot.append("")
    return _boot[0]


def look_up(pid: int) -> ProcessRow | None:
    """Return the process with this pid, zombies included, or None."""
    if not LINUX:
        return _ps(["-p", str(pid)]).get(pid)
    try:
        line = _read_file(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The program name, in brackets, may contain blanks and brackets; field 3 (state) follows the last bracket.
    fields = line[line.rindex(b")") + 2 :].split()
    # A process whose first thread has ended looks like a zombie but continues in its other threads.
    alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    start = f"{int(fields[19])}@{boot_id()}"
    return ProcessRow(pid, int(fields[1]), int(fields[2]), int(fields[3]), start, alive=alive)


def _read_file(path: str) -> bytes:
    """Return the content of a small kernel file, with fewer calls than `open` makes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def read_whole_file(path: str | bytes) -> bytes:
    """Return the content of a kernel file of any size."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while more := os.read(fd, CHUNK_BYTES):
            data += more
        return data
    finally:
        os.close(fd)


def process_table() -> dict[int, ProcessRow]:
    """Return all processes by pid."""
    if not LINUX:
        return _ps(["-ax"])
    found = (look_up(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def _ps(selection: list[str]) -> dict[int, ProcessRow]:
    """Return the table of `ps`, for systems without /proc. Start times are whole seconds; the group replaces the
    session.
    """
    import subprocess

    command = ["ps", *selection, "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    env = {"PATH": "/bin:/usr/bin", "LC_ALL": "C", "TZ": "UTC"}
    answer = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    table = {}
    for line in answer.stdout.splitlines():
        pid, parent, group, state, *start = line.split()
        alive = not state.startswith("Z")
        table[int(pid)] = ProcessRow(int(pid), int(parent), int(group), int(group), " ".join(start), alive=alive)
    return table


def descendants(table: dict[int, ProcessRow], root: int) -> list[ProcessRow]:
    """Return all descendants of `root`, parents first."""
    children: dict[int, list[ProcessRow]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(root, ()))
    for process in found:
        found.extend(children.get(process.pid, ()))
    return found


def family(root: int) -> list[ProcessRow]:
    """Return all descendants of a process, parents first.

    Where the kernel lists the children of each process, the others are not looked at: a machine may run hundreds.
    """
    if not LINUX or not os.path.exists("/proc/thread-self/children"):
        return descendants(process_table(), root)
    found = children(root)
    for process in found:
        found.extend(children(process.pid))
    return found


def children(parent: int) -> list[ProcessRow]:
    """Return the children of all threads of a process, for systems that list them; none if it has ended."""
    try:
        threads = os.listdir(f"/proc/{parent}/task")
    except OSError:
        return []
    found: list[ProcessRow] = []
    for thread in threads:
        try:
            pids = read_whole_file(f"/proc/{parent}/task/{thread}/children").split()
        except OSError:
            continue  # it has just ended, and another has adopted its children
        found.extend(row for pid in pids if (row := look_up(int(pid))) is not None)
    return found


def send_signal(process: ProcessRow, number: int) -> None:
    """Send a signal to this process; nothing happens if it has ended, even if its pid is in use again."""
    try:
        handle = os.pidfd_open(process.pid) if LINUX else -1
    except OSError as error:
        if error.errno == errno.ESRCH:
            return
        handle = -1  # an old kernel, or a sandbox that forbids it
    try:
        now = look_up(process.pid)
        if now is None or now.start != process.start:
            return
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has just ended, or runs as another user: the wait for its end decides
    finally:
        if handle >= 0:
            os.close(handle)


class OwnerProcess:
    """The owner of the guardian; `handle` becomes readable at its end, -1 on systems without such handles.

    It is made while the owner is the parent of this process, and stays valid in forked processes.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self.handle = os.pidfd_open(pid) if LINUX else -1
        except OSError:
            self.handle = -1  # an old kernel, or a sandbox that forbids it
        row = look_up(pid) if self.handle < 0 else None
        self._start = row.start if row is not None else ""
        self._look_at = 0.0
        if os.getppid() != pid:  # the owner had ended before, and the pid may belong to another process
            raise EOFError

    def is_gone(self) -> bool:
        """Whether the owner has ended; without a handle the answer is at most `OWNER_S` old."""
        now = time.monotonic()
        if self.handle >= 0 or now < self._look_at:
            return False
        self._look_at = now + OWNER_S
        row = look_up(self.pid)
        return row is None or not row.alive or row.start != self._start

    def has_left(self, control: int) -> bool:
        """Whether the owner has ended or has closed its end of `control`."""
        poll = select.poll()
        for fd in (control, self.handle):
            if fd >= 0:
                poll.register(fd, select.POLLIN if fd == self.handle else 0)
        # The owner half-closes its socket to stop a command; some systems report that as a hang-up.
        ended = [fd for fd, what in poll.poll(0) if fd == self.handle or (LINUX and what & select.POLLHUP)]
        return bool(ended) or self.is_gone()
