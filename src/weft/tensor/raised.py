"""Errors of tasks that are also of the class that the user's code raised.

The calling thread computes a small expression, tasks compute a large one: `except numpy.linalg.LinAlgError` has to work
for both.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from typing import Any

from weft.model.errors import TaskError, WeftError


def as_raised(error: TaskError) -> TaskError:
    """Return an error with the same message that is also of the class that the code of the task raised.

    The error itself is returned if this process does not know the class, or cannot make an error of both classes.
    """
    module, _, name = error.raised.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if _can_be_caught(found):
        with suppress(TypeError):  # two classes with fields in C, or one whose instances need arguments
            return _told_by(_both(found), error)
    return error


def _can_be_caught(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, WeftError)


@cache
def _both(kind: type[Exception]) -> type[TaskError]:
    return type(TaskError.__name__, (TaskError, kind), {"__module__": TaskError.__module__, "__reduce__": _reduced})


def _reduced(error: TaskError) -> tuple[Any, ...]:
    return as_raised, (_told_by(TaskError, error),)


def _told_by(kind: type[TaskError], error: TaskError) -> TaskError:
    made = kind.__new__(kind)
    made.__dict__.update(error.__dict__)
    made.args = error.args
    return made
