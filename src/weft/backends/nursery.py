"""The near end of the nursery, the process that forks the workers and reports their ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from weft.worker.channel import END, KILL, LARGE_PAGES, START, Channel, FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.worker.messages import WorkerConfig

CLOSING_S: Final = 10.0
_READ: Final = 1 << 16
_BOOT: Final = (
    "import sys; control, owner, n = map(int, sys.argv[1:4]); shm, modules = sys.argv[4:6]; "
    "sys.path[:] = sys.argv[6 : 6 + n]; sys.argv[:] = sys.argv[6 + n :]; "
    "from weft.worker.nursery import nursery; nursery(control, owner, shm, modules.split())"
)
"""The program of the nursery: with the owner's `sys.path` and `sys.argv`, which tasks may read."""


class Nursery:
    """The process that forks the workers (`weft.worker.nursery`), which inherit the module paths `paths`.

    It removes the folder `shm` if this process is killed. It loads the modules `preload` before it forks.
    """

    def __init__(self, shm: str, preload: Sequence[str] = ()) -> None:
        self.paths = sys.path[:]
        self.control, theirs = socket.socketpair()
        with theirs:
            numbers = map(str, (theirs.fileno(), os.getpid(), len(self.paths)))
            argv = [sys.executable, "-c", _BOOT, *numbers, shm, " ".join(preload), *self.paths, *sys.argv]
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
            )
        self._channel = Channel(self.control)
        self._notes = FrameDecoder()

    def start(self, config: WorkerConfig, sock: int, page: int) -> None:
        """Fork a worker with the file descriptors of its socket and its page; `BORN` follows."""
        self._send((START, tuple(config)), (sock, page))

    def kill(self, number: int) -> None:
        """End a worker. The nursery is its parent, so that a reused process id is never hit."""
        self._send((KILL, number))

    def ask_for_large_pages(self, nbytes: int) -> None:
        """Have it make a file system with large pages for `nbytes`; `LARGE_PAGES` follows if that is possible."""
        self._send((LARGE_PAGES, nbytes))

    def _send(self, message: tuple[Any, ...], fds: tuple[int, ...] = ()) -> None:
        with suppress(OSError):  # it is dead, which the other direction reports
            self._channel.send(message, fds)

    def notes(self) -> list[Any] | None:
        """Return the reports of births and exits: (BORN, number, process id), (ENDED, number, status) or
        (LARGE_PAGES, 0, its descriptor of the file system). None: the nursery is dead.
        """
        try:
            data = self.control.recv(_READ)
        except OSError:
            data = b""
        return list(self._notes.feed(data)) if data else None

    def end(self) -> None:
        """End the nursery and with it all workers, and wait for their exits."""
        self._send((END,))
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)  # not only closed: a forked process may have a copy
        self.control.close()
        self.process.send_signal(signal.SIGCONT)  # a stopped one would not see the end of the socket
        try:
            self.process.wait(timeout=CLOSING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def take_peak(pid: int) -> int:
    """Return the peak memory of a process since the last call, in bytes; 0 if the system does not report it."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            found = next((line.split()[1] for line in file if line.startswith("VmHWM:")), "0")
        with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return 0
    return int(found) * 1024


def exit_text(status: int) -> str:
    """Describe the exit of a process in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"its process ended with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its process was killed by {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")
