"""Statements that Ctrl-C can interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
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

    Ctrl-C interrupts the connection, and is raised when the call has ended, whether it comes while the thread starts or
    later: a connection that is closed before would wait for the call. On the main thread DuckDB looks for signals
    itself, and loses one that comes while it reads rows of another query, or before it gives the first row.
    """
    executing: Future[T] = Future()

    def run() -> None:
        if executing.set_running_or_notify_cancel():
            try:
                executing.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                executing.set_exception(error)

    try:
        threading.Thread(target=run).start()
        interruptible_wait(lambda limit_s: executing in wait([executing], limit_s).done)
    except KeyboardInterrupt:
        while not (executing.cancel() or executing.done()):
            with suppress(KeyboardInterrupt):
                connection.interrupt()
                if read is not None:
                    read.interrupt()
                wait([executing], AGAIN_S)
        raise
    return executing.result()
