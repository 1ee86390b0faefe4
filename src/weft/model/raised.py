"""Errors of tasks that are also of the class that the user's code raised, with the traceback of the task as the cause.

The calling thread computes a small expression, tasks compute a large one: `except numpy.linalg.LinAlgError` has to work
for both.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any

from msgspec import Struct

from weft.model.errors import TaskError, WeftError


class RemoteTraceback(Exception):  # noqa: N818 - as in `multiprocessing`: the cause of an error, not an error
    """The traceback of a task, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0].rstrip()}\n"""'


class Origin(Struct, frozen=True):
    """What an exception of the user's code was: its class, its arguments and its attributes."""

    kind: type[Exception]
    args: tuple[Any, ...]
    fields: dict[str, Any]


def origin_of(error: BaseException) -> Origin | None:
    """Return what an exception was; of an error of a task, what that was; None if it is unknown."""
    if isinstance(error, TaskError):
        found: Origin | None = error.origin
        return found
    kind = type(error)
    if not _can_be_caught(kind):
        return None
    _, args, *fields = _in_c(kind).__reduce__(error)  # its own `__reduce__` may ask for other arguments
    return Origin(kind, args, {**_slots(error), **((fields[0] or {}) if fields else {})})  # type: ignore[arg-type]


def _slots(error: BaseException) -> dict[str, Any]:
    """Return the attributes of an exception that do not lie in its dictionary."""
    named = [vars(one).get("__slots__", ()) for one in type(error).__mro__]
    names = [name for some in named for name in ((some,) if isinstance(some, str) else some)]
    return {name: getattr(error, name) for name in names if name[:1] != "_" and hasattr(error, name)}


def _in_c(kind: type[BaseException]) -> Any:
    return next(one for one in kind.__mro__ if one.__module__ == "builtins")


def as_raised(error: TaskError) -> TaskError:
    """Return an error with the same message that is also of the class that the code of the task raised.

    Its cause is a `RemoteTraceback`. If the origin of the error is known, it has the arguments and attributes of the
    exception, except those that a `TaskError` has itself. The error itself is returned if this process does not know
    the class, or cannot make an error of both classes.
    """
    found = error.origin.kind if error.origin is not None else _named(error.raised)
    if _can_be_caught(found):
        for kind in found.__mro__[: found.__mro__.index(Exception)]:
            if issubclass(kind, _ENDS_OF_ITERATION):
                continue
            # The class of the user may not be mixed: fields in C, instances that need arguments, code that runs for
            # each subclass. What catches one of its bases still works then.
            with suppress(Exception):
                error = _told_by(_both(_plain(type(error)), kind), error)
                break
    if error.traceback_text:
        error.__cause__ = RemoteTraceback(error.traceback_text)
    return error


def _named(raised: str) -> Any:
    module, _, name = raised.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _plain(kind: Any) -> Any:
    return kind.__bases__[0] if kind.__dict__.get("__reduce__") is _reduced else kind


def _can_be_caught(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, WeftError)


@lru_cache(256)
def _both(own: type[TaskError], kind: type[Exception]) -> type[TaskError]:
    fields = {name: _OwnField(name) for name in _OWN if any(name in vars(one) for one in kind.__mro__)}
    return type(own.__name__, (own, kind), {"__module__": own.__module__, "__reduce__": _reduced, **fields})


class _OwnField:
    """An attribute of an error of a task, where the user's class has a property of the same name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, error: TaskError | None, kind: type) -> Any:
        return self if error is None else error.__dict__[self._name]

    def __set__(self, error: TaskError, value: Any) -> None:
        error.__dict__[self._name] = value


def _reduced(error: TaskError) -> tuple[Any, ...]:
    plain = _told_by(_plain(type(error)), error)
    for name in error.origin.fields if error.origin is not None else ():
        if name not in _OWN:
            plain.__dict__.pop(name, None)
    return as_raised, (plain,)


_ENDS_OF_ITERATION = (StopIteration, StopAsyncIteration)
"""Classes that an error of a task is never of: a loop over results would end at it as if there were no more."""

_OWN = frozenset(TaskError("").__dict__)
"""The attributes of every error of a task, which those of the user's exception do not replace."""


def _told_by(kind: type[TaskError], error: TaskError) -> TaskError:
    made = kind.__new__(kind)
    made.__dict__.update(error.__dict__)
    made.args = error.args
    origin = error.origin
    if origin is not None and issubclass(kind, origin.kind):
        made.args = origin.args
        with suppress(TypeError, ValueError):  # arguments that the class in C does not take
            _in_c(origin.kind).__init__(made, *origin.args)
        for name, value in origin.fields.items():
            if name not in _OWN:
                setattr(made, name, value)
    return made
