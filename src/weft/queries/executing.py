"""Statements that Ctrl-C can interrupt."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from weft.frontends.sql.fragment import AGAIN_S
from weft.runtime.interruptible import interruptible_wait

if TYPE_CHECKING:
    import duckdb

    from weft.queries.query import Parameters, Query


def executed(
    connection: duckdb.DuckDBPyConnection, text: str, parameters: Parameters = None, *, read: Query | None = None
) -> duckdb.DuckDBPyConnection:
    """Execute a statement on a thread of its own; Ctrl-C interrupts it, and is raised when it has ended.

    `read` is the query whose rows the statement reads, which is interrupted too: it may give none for long.

    On the main thread DuckDB looks for signals itself, and loses one that comes while it reads rows of another query.
    """
    with ThreadPoolExecutor(1) as pool:
        executing = pool.submit(connection.execute, text, parameters)
        try:
            interruptible_wait(lambda limit_s: executing in wait([executing], limit_s).done)
        except KeyboardInterrupt:
            while not executing.done():
                connection.interrupt()
                if read is not None:
                    read.interrupt()
                wait([executing], AGAIN_S)
            raise
        return executing.result()
