"""Reader: the rows of a table of the party, as they were uploaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.model.errors import UsageError


def run(part: ComponentPart) -> PartOutput:
    """Read the table. UsageError: the part has none."""
    table: Any = part.parameters.get("table")
    table = table[0] if isinstance(table, list) and table else table
    if part.tables is None or not isinstance(table, Mapping):
        raise UsageError(f"{part.component} has no table at {part.here}", hint='Write "table": {"name": ..., ...}')
    frame = part.tables(str(table.get("namespace")), str(table.get("name")))
    part.tracker.summary({"rows": len(frame), "columns": list(frame.columns)})
    part.tracker.log(f"{len(frame)} rows, columns {', '.join(frame.columns)}")
    return PartOutput(data=(frame,))
