"""One lock of the kernel for each of any number of keys, on ranges of one file.

They are locks of the open file, not of the process (OFD locks): the kernel lets go of them when the last descriptor of
it is closed, so at once when its process dies, however it dies. No key costs a descriptor or a file of its own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

LOCKS: Final = "cache.keys"
_FLOCK: Final = "hhqqi4x"
_SLOTS: Final = 1 << 62
_all: weakref.WeakSet[KeyLocks] = weakref.WeakSet()


class KeyLocks:
    """The locks of one owner in one file; two objects exclude each other, in one process too. Safe for threads."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _all.add(self)

    def try_lock(self, key: str) -> bool:
        """Lock a key (hexadecimal digits) if no other owner has; tell whether that was so."""
        try:
            self._do(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, key)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def wait(self, key: str) -> None:
        """Wait until a key can be locked, and lock it; only the end of its owner's lock ends the wait."""
        self._do(fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, key)

    def unlock(self, key: str) -> None:
        """Let go of a key."""
        self._do(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, key)

    def close(self) -> None:
        """Let go of all keys; a second time does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _do(self, command: int, kind: int, key: str) -> None:
        at = int(key[:16], 16) % _SLOTS
        fd = self._fd
        if fd < 0:
            raise OSError(errno.EBADF, "the locks have been given up")
        fcntl.fcntl(fd, command, struct.pack(_FLOCK, kind, os.SEEK_SET, at, 1, 0))


def _close_in_child() -> None:
    # A lock belongs to all copies of its descriptor: a forked child would keep it beyond its parent's death.
    for locks in list(_all):
        locks.close()


os.register_at_fork(after_in_child=_close_in_child)
