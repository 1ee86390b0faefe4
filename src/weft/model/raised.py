"""Errors of tasks that are also of the class that the user's code raised, with the traceback of the task as the cause.

The calling thread computes a small expression, tasks compute a large one: `except numpy.linalg.LinAlgError` has to work
for both.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any

from weft.model.errors import TaskError, WeftError


class RemoteTraceback(Exception):  # noqa: N818 - as in `multiprocessing`: the cause of an error, not an error
    """The traceback of a task, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0].rstrip()}\n"""'


def as_raised(error: TaskError) -> TaskError:
    """Return an error with the same message that is also of the class that the code of the task raised.

    Its cause is a `RemoteTraceback`. The error itself is returned if this process does not know the class, or cannot
    make an error of both classes.
    """
    module, _, name = error.raised.partition(":")
    found: Any = sys.modules.get(module)
    own: Any = type(error)
    for part in name.split("."):
        found = getattr(found, part, None)
    if _can_be_caught(found):
        with suppress(TypeError):  # two classes with fields in C, or one whose instances need arguments
            error = _told_by(_both(own, found), error)
    if error.traceback_text:
        error.__cause__ = RemoteTraceback(error.traceback_text)
    return error


def _can_be_caught(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, WeftError)


@lru_cache(256)
def _both(own: type[TaskError], kind: type[Exception]) -> type[TaskError]:
    return type(own.__name__, (own, kind), {"__module__": own.__module__, "__reduce__": _reduced})


def _reduced(error: TaskError) -> tuple[Any, ...]:
    own: type[TaskError] = type(error).__bases__[0]
    return as_raised, (_told_by(own, error),)


def _told_by(kind: type[TaskError], error: TaskError) -> TaskError:
    made = kind.__new__(kind)
    made.__dict__.update(error.__dict__)
    made.args = error.args
    return made
