"""The nursery: a small process that forks worker processes.

It has one thread, the imports of a worker and the modules that the session names for all its workers, but none of the
user's, so that a fork is quick and safe, and `__main__` is never imported again. It is the only parent of workers: it
reports the exit of each, kills them together with their child processes, and ends with its owner, whose death the
kernel reports. If the owner was killed, the nursery removes the shared memory that it has left. Its own death ends the
workers too.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import select
import signal
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from weft.worker.channel import (
    BORN,
    END,
    ENDED,
    KILL,
    LARGE_PAGES,
    Channel,
)
from weft.worker.large_pages import file_system
from weft.worker.main import WorkerProcess, flush_output
from weft.worker.messages import WorkerConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PR_SET_PDEATHSIG: Final = 1
_SWEEPS: Final = 100
_SWEEP_PAUSE_S: Final = 0.05


def nursery(control_fd: int, owner: int, shm: str, preload: Sequence[str]) -> None:
    """Fork workers for process `owner` on requests from the socket `control_fd`, until one of the two ends.

    The folder `shm` of the owner goes with it if it is killed. The modules `preload` are loaded first, so that all
    workers have them; they may start no thread that a fork would lack.
    """
    control = socket.socket(fileno=control_fd)
    channel = Channel(control)
    for module in preload:
        with contextlib.suppress(Exception):  # a task that needs it reports the error
            import_module(module)
    gc.collect()
    gc.freeze()
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal sends both to all its processes: the owner decides
    workers: dict[int, int] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    watch = -1
    orderly = False
    with contextlib.suppress(OSError, AttributeError):  # an old kernel: the end of the socket has to do
        watch = os.pidfd_open(owner)
        poll.register(watch, select.POLLIN)
    try:
        while os.getppid() == owner:
            ready = {fd for fd, _ in poll.poll()}
            if watch in ready:
                break
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                for number, status in _reap(workers):
                    channel.send((ENDED, number, status))
            if control.fileno() in ready:
                message, fds = channel.receive_with_fds(2)
                if message is None or message[0] == END:
                    orderly = message is not None
                    break
                if message[0] == KILL:
                    _kill(workers.get(message[1]))
                    continue
                if message[0] == LARGE_PAGES:
                    with contextlib.suppress(OSError):  # large chunks lie in small pages then
                        channel.send((LARGE_PAGES, 0, file_system(message[1])))
                    continue
                config = WorkerConfig(*message[1])
                workers[config.number] = _fork_worker(config, fds, control, (wake_read, wake_write, watch))
                channel.send((BORN, config.number, workers[config.number]))
    except OSError:  # the owner has closed its end, and may have said before that this is the end
        orderly = said_end(channel)
    for worker in workers.values():
        _kill(worker)
    for worker in workers.values():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(worker, 0)
    if not orderly:
        _sweep(Path(shm))
    os._exit(0)


def said_end(channel: Channel) -> bool:
    """Read what the owner had still sent; return whether it was the end."""
    while (message := channel.receive_with_fds(2)[0]) is not None:
        if message[0] == END:
            return True
    return False


def _fork_worker(config: WorkerConfig, fds: list[int], control: socket.socket, own: tuple[int, ...]) -> int:
    """Fork a worker with the descriptors `fds`, without those of the nursery; return its pid."""
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        for fd in own:
            if fd >= 0:
                os.close(fd)
        control.close()
        _become_worker(config, *fds)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    for fd in fds:
        os.close(fd)
    return pid


def _sweep(shm: Path) -> None:
    """Remove the shared memory of the owner once it is dead; its socket may close before its locks do."""
    from weft.store.folders import remove_unowned

    for _ in range(_SWEEPS):
        if remove_unowned(shm):
            return
        time.sleep(_SWEEP_PAUSE_S)


def _reap(workers: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Yield (number, status) of the ended workers, after killing their child processes."""
    for number, pid in list(workers.items()):
        # Until the wait, its pid, which is also the number of its group, is not reused.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            _kill(pid)
            _, status = os.waitpid(pid, 0)
            del workers[number]
            yield number, status


def _kill(pid: int | None) -> None:
    """Kill a worker and its process group."""
    if pid is not None:
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)


def _become_worker(config: WorkerConfig, sock_fd: int, page_fd: int) -> NoReturn:
    nursery_pid = os.getppid()
    status = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == nursery_pid:
            random.seed()
            WorkerProcess(socket.socket(fileno=sock_fd), page_fd, config).run()
            status = 0
    finally:
        # Not through sys.exit: threads left behind by a task must not hold the process.
        with contextlib.suppress(Exception):
            flush_output()
        os._exit(status)
