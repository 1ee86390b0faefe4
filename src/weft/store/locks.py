"""Locks on any number of keys: of the kernel, on ranges of one file, or of a PostgreSQL server.

Kernel locks belong to the open file, not to the process (OFD locks): the kernel frees them when its last descriptor is
closed, so at once when its process dies, however it dies. A key costs neither a descriptor nor a file. Server locks are
advisory locks of one connection, freed at its end: they reach other machines.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import weakref
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.database import Connection, Database

LOCKS: Final = "cache.keys"
_FLOCK: Final = "hhqqi4x"
_SLOTS: Final = 1 << 62
_ASK_S: Final = 0.1
_all: weakref.WeakSet[KeyLocks] = weakref.WeakSet()


class Locks(Protocol):
    """The locks of one owner; two owners exclude each other, in one process too. Safe for threads."""

    @property
    def everywhere(self) -> bool:
        """Whether they exclude owners on other machines."""
        ...

    def try_lock(self, key: str) -> bool:
        """Lock a key (hexadecimal digits). Return False if another owner holds it."""
        ...

    def wait(self, key: str) -> None:
        """Wait until a key is free, and lock it. Only the end of its owner's lock ends the wait.

        OSError: these locks were closed meanwhile.
        """
        ...

    def unlock(self, key: str) -> None:
        """Release a key."""
        ...

    def close(self) -> None:
        """Release all keys. A second call does nothing."""
        ...


class KeyLocks:
    """The locks of one owner in one file; two objects exclude each other, in one process too. Safe for threads."""

    everywhere = False

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _all.add(self)

    def try_lock(self, key: str) -> bool:
        """Lock a key (hexadecimal digits). Return False if another owner holds it."""
        try:
            self._do(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, key)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def wait(self, key: str) -> None:
        """Wait until a key is free, and lock it. Only the end of its owner's lock ends the wait."""
        self._do(fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, key)

    def unlock(self, key: str) -> None:
        """Release a key."""
        self._do(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, key)

    def close(self) -> None:
        """Release all keys. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _do(self, command: int, kind: int, key: str) -> None:
        at = int(key[:16], 16) % _SLOTS
        fd = self._fd
        if fd < 0:
            raise OSError(errno.EBADF, "the locks have been released")
        fcntl.fcntl(fd, command, struct.pack(_FLOCK, kind, os.SEEK_SET, at, 1, 0))


class AdvisoryLocks:
    """The locks of one owner at a PostgreSQL server, by one connection. Safe for threads.

    A connection that breaks loses its locks. A later commit of a result is then refused by the epoch of its claim, if
    another owner has begun meanwhile.
    """

    everywhere = True

    def __init__(self, database: Database) -> None:
        self._mutex = threading.Lock()
        self._held: set[str] = set()
        self._closed = threading.Event()
        self._apart = database.apart()
        self._connection: Connection | None = self._apart.__enter__()

    def try_lock(self, key: str) -> bool:
        """See `Locks.try_lock`."""
        with self._mutex:
            if key not in self._held and self._ask("SELECT pg_try_advisory_lock(:key)", key):
                self._held.add(key)
            return key in self._held

    def wait(self, key: str) -> None:
        """See `Locks.wait`: polls, as one connection waits for one lock only."""
        while not self.try_lock(key):
            self._closed.wait(_ASK_S)

    def unlock(self, key: str) -> None:
        """See `Locks.unlock`."""
        with self._mutex:
            if key in self._held:
                self._held.remove(key)
                self._ask("SELECT pg_advisory_unlock(:key)", key)

    def close(self) -> None:
        """See `Locks.close`."""
        with self._mutex:
            self._closed.set()
            self._held.clear()
            if self._connection is not None:
                self._connection = None
                self._apart.__exit__(None, None, None)

    def _ask(self, sql: str, key: str) -> bool:
        if self._connection is None:
            raise OSError(errno.EBADF, "the locks have been released")
        number = int(key[:16], 16)
        return bool(self._connection.rows(sql, {"key": number - (1 << 64) if number >= 1 << 63 else number})[0][0])


def locks_of(database: Database, file: Path) -> Locks:
    """Return the locks of one owner of an index: at its server, or in `file` if the index is a file."""
    return KeyLocks(file) if database.file is not None else AdvisoryLocks(database)


def _close_in_child() -> None:
    # A lock belongs to all copies of its descriptor: a forked child would keep it beyond its parent's death.
    for locks in list(_all):
        locks.close()


os.register_at_fork(after_in_child=_close_in_child)
