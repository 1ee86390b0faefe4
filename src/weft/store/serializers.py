"""How values of registered types are written for other processes, and read there.

A program registers a type with a function that turns a value into plain data and one that makes the value of it. The
codec writes the data with the name of the type. The processes of a session get what its program has registered; a
process that lacks a type imports the module that registered it.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from weft.model.errors import ProgramError, UsageError


class Serializer(Struct, frozen=True):
    """A registered type: `dump` turns a value into data, `load` data into a value. `home` is the registering module.

    `tag` names the type in all processes: a class that travels by value has another name there.
    """

    tag: str
    kind: type[Any]
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]
    home: str


_BUILT_IN: Final = frozenset(
    {bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple, type, type(None)}
)
"""The types whose exact instances pickle writes without asking anybody."""
_LOCK: Final = threading.Lock()
_known: dict[str, Serializer] = {}
registered: dict[type[Any], Callable[[Any], Any]] = {}
"""The reductions of registered types, as in the dispatch table of a pickler."""
version: int = 0
"""The number of registrations in this process so far."""


def register_serializer(kind: type[Any], dump: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
    """Register how values of exactly this type, not of classes derived from it, go to other processes and to files.

    `dump(value)` returns data that can be pickled, `load(data)` the value. Arrays and bytes in the data are not copied.
    Worker processes get what the program registers before they run a task. A second registration replaces the first.
    UsageError: an argument is no class or no function, or pickle writes the class itself.
    """
    if not isinstance(kind, type):
        raise UsageError(f"a serializer is registered for a class, not for {kind!r}")
    if kind in _BUILT_IN:
        raise UsageError(
            f"values of {kind.__name__} are written as they are, and a serializer would never be asked",
            hint="Register a class of your own.",
        )
    for name, function in (("dump", dump), ("load", load)):
        if not callable(function):
            raise UsageError(f"{name} of the serializer of {_tag(kind)} is {function!r}", hint="Give a function.")
    home = sys._getframe(1).f_globals.get("__name__", "")
    _add(Serializer(_tag(kind), kind, dump, load, home))


def _add(serializer: Serializer) -> None:
    global version
    kind = serializer.kind
    with _LOCK:
        _known[serializer.tag] = serializer
        registered[kind] = lambda value: reduction(value, serializer)
        version += 1


def reduction(value: Any, serializer: Serializer) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the reduction of a value of a registered type. ProgramError: its `dump` fails."""
    tag = serializer.tag
    try:
        data = serializer.dump(value)
    except Exception as error:
        raise ProgramError(f"dump of the serializer of {tag} raised {type(error).__name__}: {error}") from error
    if type(data) is serializer.kind:
        raise ProgramError(f"dump of the serializer of {tag} returns a {serializer.kind.__name__} again")
    return restored, (tag, serializer.home, data)


def restored(tag: str, home: str, data: Any) -> Any:
    """Return the value of a registered type. ProgramError: it is not registered here, or its `load` fails."""
    if tag not in _known and home not in ("", "__main__"):
        with suppress(Exception):  # told below
            importlib.import_module(home)
    serializer = _known.get(tag)
    if serializer is None:
        where = f"the module {home}, which does not register it here" if home not in ("", "__main__") else "a script"
        raise ProgramError(
            f"a value of type {tag} was written by a serializer of {where}, and this process has none for it",
            hint="Call weft.register_serializer in a module that can be imported where the value is read.",
        )
    try:
        return serializer.load(data)
    except Exception as error:
        raise ProgramError(f"load of the serializer of {tag} raised {type(error).__name__}: {error}") from error


def all_serializers() -> list[Serializer]:
    """Return what this process has registered, for the processes of a session."""
    with _LOCK:
        return list(_known.values())


def learn(found: list[Serializer]) -> None:
    """Register what the program of a session has registered."""
    for serializer in found:
        _add(serializer)


def _tag(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
