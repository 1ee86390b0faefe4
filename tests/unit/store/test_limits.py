"""Errors that mean a limit of the system, and others."""

import errno

import pytest

from weft.model.errors import CapacityError, ForbiddenError
from weft.store.limits import limit_advice, limit_error, limits_named
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
