"""A file system in memory whose files have large pages, for large chunks in shared memory.

The kernel sees to shared memory page by page: to allocate, to map and to free them costs more than to copy their
content. The usual file system for it has small pages, which only the administrator can change. Another one of this user
may have large ones. It is mounted nowhere, so that nothing has to be cleaned up: it exists as long as a descriptor of
it or a mapping of one of its files, and other processes of this user reach it by `/proc/PID/fd/NUMBER`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
from typing import Final, NoReturn

from weft.worker.mounting import separate_mounts

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""Numbers of system calls, the same on all machines."""
_SET_STRING, _CREATE = 1, 6
_CLOEXEC: Final = 1
_NOSUID_NODEV_NOEXEC: Final = 2 | 4 | 8


def file_system(nbytes: int) -> int:
    """Make a file system for at most `nbytes` and return a descriptor of its root. For a process with one thread.

    OSError: this system has none, or forbids it.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            pid = os.fork()
            if not pid:
                _make_and_send(theirs, nbytes)
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    os.waitpid(pid, 0)
    if not fds:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    os.set_inheritable(fds[0], False)
    return fds[0]


def _make_and_send(sock: socket.socket, nbytes: int) -> NoReturn:
    """Make it in a mount namespace of this process, where an ordinary user may, and send its descriptor."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        separate_mounts(libc)
        system = _call(libc, _FSOPEN, b"tmpfs", _CLOEXEC)
        # Not `always`, with which kernels before 6.14 give a large page to each small file.
        for key, value in ((b"huge", b"within_size"), (b"size", b"%d" % nbytes), (b"mode", b"700")):
            _call(libc, _FSCONFIG, system, _SET_STRING, key, value, 0)
        _call(libc, _FSCONFIG, system, _CREATE, None, None, 0)
        socket.send_fds(sock, [b"."], [_call(libc, _FSMOUNT, system, _CLOEXEC, _NOSUID_NODEV_NOEXEC)])
    finally:
        os._exit(0)


def _call(libc: ctypes.CDLL, *words: object) -> int:
    found = int(libc.syscall(*words))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found
