"""Errors that mean a limit of the system, and others."""

import errno
from pathlib import Path

import pytest

from weft.model.errors import CapacityError, DiskFullError, ForbiddenError
from weft.store.limits import disk_error, disk_named, limit_advice, limit_error, limits_named
from weft.store.state import os_error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.ENFILE, "Too many open files in system"), "fs.file-max"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "processes and threads"),
        (RuntimeError("can't start new thread"), "processes and threads"),
        (OSError(errno.EFBIG, "File too large"), "ulimit -f"),
        (MemoryError(), "memory"),
    ],
)
def test_the_limit_is_named(error, words):
    found = limit_error(error)
    assert found is not None
    assert words in found.hint or "addresses" in found.hint
    with pytest.raises(CapacityError), limits_named():
        raise error


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "no"), RuntimeError("other"), ForbiddenError("no")])
def test_other_errors_stay(error):
    assert limit_error(error) is None
    with pytest.raises(type(error)), limits_named():
        raise error


def test_the_advice_replaces_the_one_about_permissions():
    error = OSError(errno.EMFILE, "Too many open files")
    found = os_error("it cannot be written", error)
    assert (type(found), found.hint) == (CapacityError, limit_advice(error))


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (OSError(errno.ENOSPC, "full"), DiskFullError, "the disk of /site is full"),
        (OSError(errno.EDQUOT, "full", "/site/draft"), DiskFullError, "the disk of /site is full"),
        (OSError(errno.EROFS, "no", "/site/draft"), ForbiddenError, "the disk of /site is read-only"),
        (OSError(errno.EACCES, "not allowed", "/site/key"), ForbiddenError, "/site/key cannot be opened: not allowed"),
    ],
)
def test_a_disk_that_cannot_be_written_is_named(error, kind, told):
    with pytest.raises(kind) as caught, disk_named(Path("/site")):
        raise error
    assert caught.value.message == told
    assert caught.value.hint


def test_a_disk_without_a_folder_is_that_of_the_file():
    assert "/site/draft" in disk_error(OSError(errno.ENOSPC, "full", "/site/draft")).message
    assert disk_error(OSError(errno.ENOSPC, "full")).message == "a disk is full"
    assert disk_error(OSError(errno.ENOENT, "none", "/x")) is None
    assert disk_error(ValueError("x")) is None
