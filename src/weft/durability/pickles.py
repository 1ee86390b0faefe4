"""Pickles of Weft's own records by class and field names, so that a later version with other fields reads them.

A record without a reducer of its own would be pickled as the positions of its values. Values of users are pickled by
the default reducers. `weft.store.codec.from_pickle` reads the bytes; only bytes from this user alone may be read.
"""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import Any, Final

from msgspec import Struct

from weft.graph.logical import LogicalGraph
from weft.store import codec

MOVED: Final[dict[str, str]] = {}
"""The current names of renamed classes, by the written `module:name`."""

_Fields = dict[str, Any]
_NAMES_OF_GRAPHS: Final = frozenset(vars(LogicalGraph()))


def to_pickle(value: Any) -> bytes:
    """Return any value as bytes for `from_pickle`, with Weft's records in it by name. ProgramError: it cannot be
    pickled.
    """
    return codec.to_pickle(value, by_name)


def by_name(value: Any) -> tuple[Any, ...] | None:
    """Return the reduction of a record of Weft's: its class and its fields by name; None for anything else."""
    kind = type(value)
    if not kind.__module__.startswith("weft."):
        return None
    name = f"{kind.__module__}:{kind.__qualname__}"
    if isinstance(value, Enum):
        return _member, (name, value.value)
    if isinstance(value, Struct):
        return _record, (name, {name: getattr(value, name) for name in value.__struct_fields__})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _record, (name, dict(zip(kind._fields, value, strict=True)))
    if isinstance(value, LogicalGraph):
        return _record, (f"{LogicalGraph.__module__}:{LogicalGraph.__qualname__}", dict(vars(value)))
    if "__slots__" in vars(kind) and kind.__bases__ == (object,) and "__reduce__" not in vars(kind):
        # The fields come after the object: they may lead back to it.
        return _blank, (name,), {name: getattr(value, name) for name in kind.__slots__}, None, None, _fill
    return None


def _class_of(name: str) -> Any:
    module, _, path = MOVED.get(name, name).partition(":")
    return getattr(import_module(module), path)


def _member(name: str, value: Any) -> Any:
    return _class_of(name)(value)


def _record(name: str, fields: _Fields) -> Any:
    return known_fields(_class_of(name), fields)


def known_fields(kind: Any, fields: _Fields) -> Any:
    """Return a record of the given fields without those unknown to its class. TypeError: one is missing."""
    names = _NAMES_OF_GRAPHS if kind is LogicalGraph else getattr(kind, "_fields", None) or kind.__struct_fields__
    return kind(**{name: value for name, value in fields.items() if name in names})


def _blank(name: str) -> Any:
    return object.__new__(_class_of(name))


def _fill(value: Any, fields: _Fields) -> None:
    """Set the fields of a row. TypeError: a field is unknown; rows have no defaults."""
    missing = set(type(value).__slots__) - fields.keys()
    if missing:
        raise TypeError(f"a {type(value).__name__} lacks {', '.join(sorted(missing))}")
    for name in type(value).__slots__:
        setattr(value, name, fields[name])
