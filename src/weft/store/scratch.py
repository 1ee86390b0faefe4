"""Folders for temporary files of a process, which do not outlive it for long."""

from __future__ import annotations

import os
import weakref

from weft.store.folders import OwnerLock, remove_folder, sweep, temporary_root, user_root


class ScratchFolder:
    """A folder for temporary files, until `cleanup` or the end of the process; a fork has no part in it.

    Each new one first removes those of killed processes. ForbiddenError: the name of this user's folder is taken.
    """

    def __init__(self, kind: str) -> None:
        root = temporary_root("scratch")
        sweep(root)
        lock = OwnerLock(user_root(root) / f"{kind}-{os.getpid()}-{os.urandom(4).hex()}")
        self.name = str(lock.folder)
        self._end = weakref.finalize(self, _remove, lock, os.getpid())

    def cleanup(self) -> None:
        """Remove the folder. A second call does nothing."""
        self._end()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _remove(lock: OwnerLock, process: int) -> None:
    if os.getpid() == process:
        remove_folder(lock.folder)
        lock.release()
