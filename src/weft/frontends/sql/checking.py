"""Checks, before a query runs in stages, that DuckDB gives the SQL of each stage the types that its plan has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb

from weft.frontends.sql.expressions import NotCoveredError
from weft.frontends.sql.text import name_of, no_rows, received, sql_of

if TYPE_CHECKING:
    from weft.frontends.sql.relations import Scan
    from weft.frontends.sql.stages import QueryPlan


def check_plan(plan: QueryPlan, types: Sequence[str], connection: duckdb.DuckDBPyConnection) -> None:
    """Bind the SQL of all stages over inputs without rows; `types` are those of the result.

    NotCoveredError: a stage does not bind, or its types are others than those planned.
    """
    planned = [of for stage in plan.stages for of in (types if stage.number in plan.results else stage.relation.types)]
    views = {"planned": no_rows((name_of(at), of) for at, of in enumerate(planned))}
    for stage in plan.stages:
        for exchange in stage.exchanges:
            columns = ((name_of(at), of) for at, of in enumerate(exchange.types))
            views[received(exchange.number)] = no_rows(columns)
        views[f"stage_{stage.number}"] = sql_of(stage.relation, _no_rows_of)
    given_by = ", ".join(f"{name} AS ({text})" for name, text in views.items())
    stages = ", ".join(f"stage_{stage.number}" for stage in plan.stages)
    try:
        rows = connection.execute(f"DESCRIBE WITH {given_by} SELECT * FROM planned, {stages}").fetchall()
    except duckdb.Error as error:
        raise NotCoveredError(f"the plan ({str(error).split(chr(10), 1)[0]})") from None
    found = [row[1] for row in rows]
    wanted, given = found[: len(planned)], found[len(planned) :]
    if given != wanted:
        other = next((f"{is_} and not {was}" for is_, was in zip(given, wanted, strict=False) if is_ != was), "")
        raise NotCoveredError(f"the plan (a column of a stage has another type: {other})")


def _no_rows_of(scan: Scan) -> str:
    """Return the SQL of the columns that a scan reads, once each, without rows."""
    read = dict.fromkeys((name, of) for name, of in scan.columns if name)
    return f"({no_rows(read or [('rows', 'BOOLEAN')])})"
