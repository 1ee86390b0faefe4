"""Texts in the place of values that others have no types for, as DuckDB writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.sql.expressions import identifier

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb.sqltypes import DuckDBPyType

NO_ARROW: Final = frozenset({"bignum", "bit", "time with time zone"})
"""Types that DuckDB gives to Arrow as its own bytes, or without their offset."""
NO_JSON: Final = NO_ARROW | {"blob", "interval"}
"""Types that a JSON document has not, and that Python has in a notation of its own or without months."""
NO_CSV: Final = NO_JSON | {"array", "list", "map", "struct", "union", "variant"}
"""Types that a CSV file has not."""
_TEXTS_AND_NOT_FINITE: Final = re.compile(r'("(?:[^"\\]|\\.)*")|-?(?:NaN|Infinity)')


def with_texts(of: DuckDBPyType, texts: Collection[str]) -> str:
    """Return a type with VARCHAR in place of the types whose names are in `texts`, at any depth."""
    if of.id in texts:
        return "VARCHAR"
    parts: dict[str, Any] = dict(of.children) if of.id in ("array", "list", "map", "struct") else {}
    inner = {name: with_texts(part, texts) for name, part in parts.items() if name != "size" or of.id != "array"}
    match of.id:
        case "array":
            return f"{inner['child']}[{parts['size']}]"
        case "list":
            return f"{inner['child']}[]"
        case "map":
            return f"MAP({inner['key']}, {inner['value']})"
        case "struct":
            return f"STRUCT({', '.join(f'{identifier(name)} {part}' for name, part in inner.items())})"
        case _:
            return str(of)


def selected(table: str, columns: Sequence[tuple[str, DuckDBPyType]], texts: Collection[str]) -> str:
    """Return a query for the rows of a table whose columns are these, with texts in place of values of some types."""
    casts = [None if (cast := with_texts(of, texts)) == with_texts(of, ()) else cast for _, of in columns]
    if not any(casts):
        return f"FROM {table}"
    places = [f"weft_{at}" for at in range(len(columns))]
    values = ", ".join(
        f"{place if cast is None else f'CAST({place} AS {cast})'} AS {identifier(name)}"
        for place, cast, (name, _) in zip(places, casts, columns, strict=True)
    )
    return f"SELECT {values} FROM {table} AS {table}({', '.join(places)})"


def finite_json(text: str) -> str:
    """Return a JSON text of DuckDB with null in place of `NaN` and of infinities, which JSON has not."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    return _TEXTS_AND_NOT_FINITE.sub(lambda found: found[1] or "null", text)


def any_within(of: pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    """Whether `is_one` is true of a type of Arrow, or of one in it at any depth."""
    return is_one(of) or any(any_within(of.field(at).type, is_one) for at in range(of.num_fields))
