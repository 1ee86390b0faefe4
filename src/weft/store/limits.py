"""Limits of the system on this process, and disks that cannot be written: which one an error means, and what to do."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from weft.model.errors import CapacityError, DiskFullError, ForbiddenError, WeftError

if TYPE_CHECKING:
    from pathlib import Path

_NO_THREAD: Final = "can't start new thread"
_ENOUGH_FILES: Final = 4096
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_NOT_ALLOWED: Final = (errno.EACCES, errno.EPERM)


def limit_advice(error: BaseException) -> str:
    """Return the limit that an error of the system means, with what to do; "" if it means none."""
    number = getattr(error, "errno", None)
    if number == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"This process may have {most} open files: raise the limit with `ulimit -n {_ENOUGH_FILES}`."
    if number == errno.ENFILE:
        return "The system has no open files left: end other processes, or raise fs.file-max."
    if number == errno.EAGAIN or (isinstance(error, RuntimeError) and str(error) == _NO_THREAD):
        most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        space = resource.getrlimit(resource.RLIMIT_AS)[0]
        if space != resource.RLIM_INFINITY and number is None:
            return (
                f"This process may have {space:,} bytes of addresses, of which each thread takes some: raise the limit "
                "with `ulimit -v unlimited`, or that of processes and threads with `ulimit -u`."
            )
        if most == resource.RLIM_INFINITY:
            return "The system, or this container, has no processes and threads left: end some, or raise its limit."
        return f"This user may have {most} processes and threads: end some, or raise the limit with `ulimit -u`."
    if number == errno.EFBIG:
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return f"Files of this process may have {most:,} bytes: raise the limit with `ulimit -f unlimited`."
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return "The machine, or this container, has no memory left: end other processes."
        return f"This process may have {most:,} bytes of addresses: raise the limit with `ulimit -v unlimited`."
    return ""


def limit_error(error: BaseException) -> WeftError | None:
    """Return the CapacityError for an error that means a limit of the system; None for others."""
    if isinstance(error, WeftError) or not (advice := limit_advice(error)):
        return None
    what = getattr(error, "strerror", None) or str(error) or "no memory is left"
    return CapacityError(f"a limit of the system is reached: {what}", hint=advice)


@contextmanager
def limits_named() -> Iterator[None]:
    """Raise a CapacityError that names the limit, instead of an error of the system that means one."""
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        if (found := limit_error(error)) is None:
            raise
        raise found from error


def disk_error(error: BaseException, folder: Path | str = "") -> WeftError | None:
    """Return the error for a disk that is full or cannot be written; None for others.

    `folder` is where it has failed; without it the file that the error names.
    """
    if not isinstance(error, OSError):
        return None
    named = error.filename if isinstance(error.filename, str) else ""
    place = str(folder or named)
    if error.errno in _FULL:
        message = f"the disk of {place} is full" if place else "a disk is full"
        return DiskFullError(message, hint="Free space on this disk, and try again.")
    if error.errno == errno.EROFS:
        return ForbiddenError(
            f"the disk of {place} is read-only" if place else "a disk is read-only",
            hint="Mount it for writing (mount -o remount,rw), or use a folder on another disk.",
        )
    if error.errno in _NOT_ALLOWED and (named or place):
        return ForbiddenError(
            f"{named or place} cannot be opened: {error.strerror}",
            hint="Check the permissions of the file and its folders.",
        )
    return None


@contextmanager
def disk_named(folder: Path) -> Iterator[None]:
    """Raise an error that names the folder, instead of one of the system for a disk that cannot be written."""
    try:
        yield
    except OSError as error:
        if (found := disk_error(error, folder)) is None:
            raise
        raise found from error
