"""Checks of a document before a schema reads it: size, depth, duplicate keys, and numbers that JSON does not have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

from msgspec import Struct

from weft.model.errors import GraphError, InputLimitError

MAX_BYTES = 1 << 20
MAX_DEPTH = 50

Json = dict[str, Any]


def parse(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """Read strict JSON: no duplicate keys, no NaN, no number over 64 bits, at most `max_bytes` bytes and 50 levels."""
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise InputLimitError(f"the graph is {size:,} bytes of JSON; the limit is {max_bytes:,}")
    try:
        found = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_int=_short_int,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise GraphError(f"the graph is not JSON: {error}", rule="json") from None
    check_values(found)
    return found


def _unique_keys(pairs: list[tuple[str, Any]]) -> Json:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice[:100]!r} occurs twice")
    return made


def _short_int(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 64:
        raise ValueError(f"number {text[:40]} has more than 64 bits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"number {text[:40]} is not finite")
    return number


def _too_deep() -> InputLimitError:
    return InputLimitError(f"the graph is nested more than {MAX_DEPTH} levels deep")


class _Place(Struct, frozen=True):
    """A list or mapping inside a document, and the key that leads to it from its parent."""

    value: Any
    key: str | int = ""
    parent: _Place | None = None

    def path(self) -> str:
        """Return the path of this value in the form of msgspec: `$.vertices[0]`."""
        if self.parent is None:
            return "$"
        return self.parent.path() + (f"[{self.key}]" if isinstance(self.key, int) else f".{self.key}")


def check_values(obj: Any, root: str = "graph") -> None:
    """Refuse nesting over 50 levels, infinite numbers and NaN, and keys that are not strings; without recursion."""
    level = [_Place(obj)]
    for _ in range(MAX_DEPTH):
        level = [child for place in level for child in _children(place, root)]
        if not level:
            return
    raise _too_deep()


def _children(place: _Place, root: str) -> Iterator[_Place]:
    value = place.value
    keyed = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in keyed:
        if isinstance(value, dict) and not isinstance(key, str):
            path = shown(place.path(), root)
            raise GraphError(f"{path} has the key {key!r:.100}; keys must be strings", subject=path, rule="wire-type")
        if isinstance(each, dict | list):
            yield _Place(each, key, place)
        elif isinstance(each, float) and not isfinite(each):
            path = shown(_Place(each, key, place).path(), root)
            raise GraphError(f"{path} is {each}, not a finite number", subject=path, rule="wire-type")


def shown(path: str, root: str) -> str:
    """Return a path of msgspec in the form for users: fields of the document itself begin with its name."""
    return root + path[1:] if path.count(".") + path.count("[") < 2 else path.removeprefix("$.")
