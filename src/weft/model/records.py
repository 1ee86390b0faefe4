"""Functions for records.

All records are `msgspec.Struct`: the definition of a class of five fields takes 0.02 ms, that of a dataclass 0.65, and
a command that takes a fifth of a second defines a hundred of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def as_dict(record: Struct) -> dict[str, Any]:
    """Return the fields of a record by name; nested records, also in lists, tuples and dicts, become dicts too."""
    return {name: _plain(getattr(record, name)) for name in record.__struct_fields__}


def field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a class of records or of named tuples, in order."""
    names: tuple[str, ...] = kind._fields if hasattr(kind, "_fields") else kind.__struct_fields__
    return names


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return as_dict(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        inner = [_plain(one) for one in value]
        return inner if isinstance(value, list) else tuple(inner)
    return value


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, each under its names with dots between them."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def converter(kind: Any) -> Callable[[Any], Any]:
    """Return a function that makes records of a type from plain values. Call it while a module is imported.

    msgspec collects the fields of a type at their first use; two threads that do so at once crash the process.
    """
    msgspec.json.Decoder(kind)
    return lambda value: msgspec.convert(value, kind)
