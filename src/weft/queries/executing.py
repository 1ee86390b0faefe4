"""Statements that Ctrl-C can interrupt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from weft.frontends.sql.fragment import AGAIN_S
from weft.runtime.interruptible import interruptible_wait

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")


class Interruptible(Protocol):
    """What another thread may interrupt."""

    def interrupt(self) -> object:
        """Interrupt what runs now, if anything does."""
        ...


def executed(
    connection: duckdb.DuckDBPyConnection,
    text: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    read: Interruptible | None = None,
) -> duckdb.DuckDBPyConnection:
    """Execute a statement as `interruptible_call` does.

    `read` is the query whose rows the statement reads, which is interrupted too: it may give none for long.
    """
    return interruptible_call(connection, lambda: connection.execute(text, parameters), read=read)


def interruptible_call(connection: Interruptible, call: Callable[[], T], *, read: Interruptible | None = None) -> T:
    """Return what a call that a connection may take long for returns, on a thread of its own.

    Ctrl-C interrupts the connection, and is raised when the call has ended. On the main thread DuckDB looks for signals
    itself, and loses one that comes while it reads rows of another query, or before it gives the first row.
    """
    with ThreadPoolExecutor(1) as pool:
        executing = pool.submit(call)
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
