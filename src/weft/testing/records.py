"""Changed copies of records of either form."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace


def changed(record: Any, **fields: Any) -> Any:
    """Return a record, Struct or named tuple, with other values of the given fields."""
    return replace(record, **fields) if isinstance(record, Struct) else record._replace(**fields)
