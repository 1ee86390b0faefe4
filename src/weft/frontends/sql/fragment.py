"""The body of a stage: one task runs the SQL of the stage on its split and on the rows that it received."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.frontends.sql.databases import open_database
from weft.frontends.sql.text import COUNTED, no_rows, rows_in
from weft.model.errors import RunCancelledError
from weft.store.scratch import ScratchFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.graph.task import TaskContext, TaskInput

PIECE_ROWS: Final = 32_768
"""The rows for each partition that a task computes before it sends them on, if its rows are streamed."""
MOST_ROWS: Final = 8 * PIECE_ROWS
"""The rows that it computes before it sends them on, at most."""
LONGEST: Final = 64
"""The characters of a key in an event, at most."""
AGAIN_S: Final = 0.02
KEPT_DATABASES: Final = 8
"""The databases that a process keeps, each with what it may read; opening one takes 10 ms."""
_lock = threading.Lock()
Answer = TypeVar("Answer")
_databases: dict[tuple[bool, tuple[str, ...], int, str], duckdb.DuckDBPyConnection] = {}
_spill: list[ScratchFolder] = []
_numbers = count()


def database(
    folders: Sequence[str] = (), *, join_filters: bool = True, memory: int = 0, stamp: str = ""
) -> duckdb.DuckDBPyConnection:
    """Return a connection of the task to a database of this process, which has no rows and reads only `folders`.

    Without `join_filters` a side of a join does not filter the scan of the other. What needs more than `memory` bytes
    (0: no bound of its own) is spilled to disk. `stamp` changes with the files: tasks of the same one share what is
    read of footers, each of which tells of all parts of a file.
    """
    key = (join_filters, tuple(folders), memory, stamp)
    with _lock:
        made = _databases.pop(key, None)
        if made is None:
            off = "window_self_join"  # received rows can be read once
            off = off if join_filters else f"{off},join_filter_pushdown"
            if not _spill:
                _spill.append(ScratchFolder("sql-spill"))
            made = open_database(
                folders=folders,
                threads=1,
                disabled_optimizers=off,
                memory=memory,
                spill=f"{_spill[0].name}/{next(_numbers)}",
                footers=True,
            )
        _databases[key] = made  # the newest is the last
        while len(_databases) > KEPT_DATABASES:
            del _databases[next(iter(_databases))]
        return made.cursor()


def run_fragment(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> Any:
    """Return the rows of one task: an Arrow table, or with `partitions` a table for each partition that has rows.

    Parameters: `sql`; `received`, for each exchange the name of its table, the ids of its edges, and its columns with
    their types; `sampled`, the number of these rows that are read, at most; `filters`, the tables with one Bloom filter
    each, which is a variable of that name; `split`, the name for the rows of the split, which is the item, and
    `folders`, where its files are, and `stamp`, as for `database`; `partitions`; `undivided`, the bytes up to which all
    rows are partition 0; `keys`, an event, the position of the column whose values it has, by which other scans are
    pruned, and the number of its ranges; `join_filters` and `memory` are as for `database`; `arriving`, the edges that
    are read while their sources run; `sending`, the edges that rows are written to while the query runs: then nothing
    is returned.
    RunCancelledError: the task was stopped, also in the middle of its query.
    """
    params = ctx.params
    arriving = frozenset(params.get("arriving", ()))
    lost: list[BaseException] = []
    connection = database(
        params.get("folders", ()),
        join_filters=params.get("join_filters", True),
        memory=params.get("memory", 0),
        stamp=params.get("stamp", ""),
    )
    try:
        for name, edges, columns in params["received"]:
            # a branch that was not taken has no edge, and a task that was not needed has no value
            values = chain.from_iterable(inputs[edge] for edge in edges if edge in inputs)
            rows: pa.Table | pa.RecordBatchReader
            if arriving.isdisjoint(edges):
                tables = [table for value in values for table in tables_in(value)]
                rows = pa.concat_tables(tables) if tables else nothing(connection, columns)
                connection.execute(f"SET VARIABLE {rows_in(name)} = {rows.num_rows}")
            else:
                rows = _arriving(values, nothing(connection, columns).schema, lost)
            if "sampled" in params:
                rows = sampled(connection, rows, params["sampled"])
            # A stream, read once: DuckDB has Arrow filter a table, and for Arrow NaN is not the greatest.
            connection.register(name, rows.__arrow_c_stream__())
            if name in params.get("filters", ()):
                connection.execute(f"SET VARIABLE {name} = (FROM {name})")
        return interruptible(ctx, connection, lambda: _answer(ctx, connection))
    except duckdb.Error as error:
        if lost:  # DuckDB tells only the text of what ended its input
            raise lost[0] from None
        raise type(error)(told(str(error))) from None
    finally:
        connection.close()


def _answer(ctx: TaskContext, connection: duckdb.DuckDBPyConnection) -> Any:
    """Run the SQL of a task; return its rows, or send them on piece by piece and return None."""
    params = ctx.params
    partitions = params.get("partitions", 0)
    event, at, ranges = params.get("keys") or ("", 0, 0)
    text = params["sql"]
    if params.get("split"):
        split = ctx.item["rows"] if isinstance(ctx.item, Mapping) else ctx.item
        # Not a view, for which DuckDB would open the files once more.
        text = f"WITH {params['split']} AS NOT MATERIALIZED (FROM {split}) FROM ({text})"
    found = connection.execute(text)
    if "sending" not in params:
        table = found.to_arrow_table()
        if event:
            ctx.emit(event, key_ranges(table.column(at), ranges))
        if partitions and table.num_rows and table.nbytes <= params.get("undivided", 0):
            return {0: table.select(range(table.num_columns - 1))}
        return divided(table, partitions) if partitions else table
    writers = [ctx.out(edge) for edge in params["sending"]]
    reader = found.to_arrow_reader(min(MOST_ROWS, PIECE_ROWS * max(2, partitions)))
    keys: list[pa.Array] = []
    for batch in reader:
        if event:
            keys.append(batch.column(at))
        rows = pa.Table.from_batches([batch])
        for partition, piece in (divided(rows, partitions) if partitions else {0: rows}).items():
            for writer in writers:
                writer.write(partition, piece)
    if event:
        ctx.emit(event, key_ranges(pa.chunked_array(keys, type=reader.schema.field(at).type), ranges))
    return None


def sampled(connection: duckdb.DuckDBPyConnection, rows: pa.Table | pa.RecordBatchReader, most: int) -> pa.Table:
    """Return at most so many rows, at equal distances; the variable `COUNTED` has the number of all."""
    table = rows if isinstance(rows, pa.Table) else rows.read_all()
    connection.execute(f"SET VARIABLE {COUNTED} = {table.num_rows}")
    every = max(1, -(-table.num_rows // most))
    return table.take(arrow_of(np.arange(every // 2, table.num_rows, every)))


def _arriving(values: Iterable[Any], schema: pa.Schema, lost: list[BaseException]) -> pa.RecordBatchReader:
    """Return a reader of rows that come while it is read; what ends it early is added to `lost`."""

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for value in values:
                for table in tables_in(value):
                    yield from table.to_batches()
        except BaseException as error:
            lost.append(error)
            raise

    return pa.RecordBatchReader.from_batches(schema, batches())


def interruptible(ctx: TaskContext, connection: duckdb.DuckDBPyConnection, run: Callable[[], Answer]) -> Answer:
    """Return what `run` reads from a connection; the end of the task interrupts its query."""
    with interrupted_at_cancel(ctx, connection.interrupt):
        try:
            if ctx.cancelled():
                raise RunCancelledError("the query was cancelled before it started")
            return run()
        except duckdb.InterruptException:
            if not ctx.cancelled():
                raise
            raise RunCancelledError("the query was cancelled") from None


@contextmanager
def interrupted_at_cancel(ctx: TaskContext, interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `interrupt` every `AGAIN_S` seconds from the cancellation of the task on, and never after the block."""
    lock, ended = threading.Lock(), threading.Event()

    def again() -> None:
        while not ended.is_set():
            with lock:  # DuckDB may not interrupt a connection while it is closed
                if not ended.is_set():
                    interrupt()
            ended.wait(AGAIN_S)  # a query that was about to begin has not noticed the first call

    ctx.on_cancel(lambda: threading.Thread(target=again, daemon=True).start())
    try:
        yield
    finally:
        with lock:
            ended.set()


def told(message: str) -> str:
    """Return a message of DuckDB without the text and the columns of the fragment, which are not those of the query."""
    return _SOURCE.sub("", _LINE.sub("", message))


_LINE: Final = re.compile(r"\s*\n+LINE \d+: .*\Z", re.DOTALL)
_SOURCE: Final = re.compile(r" when casting from source column \w+")


def unknown_size(otherwise: str) -> str:
    """Answer which plan to take if bytes are not known: the one for many, which is never very wrong."""
    return otherwise


def nothing(connection: duckdb.DuckDBPyConnection, columns: Sequence[tuple[str, str]]) -> pa.Table:
    """Return a table without rows."""
    return connection.execute(no_rows(columns)).to_arrow_table()


def tables_in(value: Any) -> Iterator[pa.Table]:
    """Yield the tables of a value of an input, of all its partitions."""
    if isinstance(value, pa.Table):
        yield value
    elif isinstance(value, Mapping):  # all partitions of a source
        yield from value.values()
    elif value is not None:
        for one in value:
            yield from tables_in(one)


def key_ranges(values: pa.ChunkedArray, most: int) -> list[list[Any]]:
    """Return at most `most` ranges that hold all values but NULL; each has its lowest and its highest value."""
    bounds: Iterable[Iterable[pa.Scalar]]
    if most == 1:
        extremes = pc.min_max(values)
        bounds = ([key] if key.is_valid else [] for key in (extremes["min"], extremes["max"]))
    else:
        ordered = _ordered(values.drop_null().combine_chunks())
        begins = np.arange(0, len(ordered), max(1, -(-len(ordered) // most)))
        ends = np.append(begins[1:], len(ordered))[: len(begins)] - 1
        bounds = (ordered.take(arrow_of(places)) for places in (begins, ends))
    try:
        lows, highs = ([key.as_py() for key in keys] for keys in bounds)
    except (ValueError, OverflowError):  # a date that Python has not
        return [[None, None]]
    if any(isinstance(key, str) and len(key) > LONGEST for key in (*lows, *highs)):
        return [[None, None]]
    return [[plain(low), plain(high)] for low, high in zip(lows, highs, strict=True)]


def _ordered(known: pa.Array) -> pa.Array:
    """Return the distinct values in ascending order."""
    kind = pa.int32() if pa.types.is_date32(known.type) else known.type
    if not pa.types.is_integer(kind):
        distinct = pc.unique(known)
        return distinct.take(pc.array_sort_indices(distinct))
    numbers = np.sort(numbers_of(known.view(kind)))
    first = np.ones(len(numbers), bool)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return arrow_of(numbers[first]).view(known.type)


def plain(key: Any) -> Any:
    """Return a key as JSON has it; dates are text in the order of time."""
    return key.isoformat() if isinstance(key, date) else key


def divided(table: pa.Table, partitions: int) -> Mapping[int, pa.Table]:
    """Return the rows of each partition; the last column of `table` has the partition of each row."""
    width = table.num_columns - 1
    numbers = numbers_of(table.column(width).combine_chunks()).astype(np.uint16, copy=False)
    rows = table.select(range(width))
    if not len(numbers):
        return {}
    order = np.argsort(numbers, kind="stable")
    ordered = rows.take(arrow_of(order))
    bounds = np.searchsorted(numbers[order], np.arange(partitions + 1))
    return {
        at: ordered.slice(lo, hi - lo)
        for at, (lo, hi) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        if hi > lo
    }


def arrow_of(numbers: NDArray[Any]) -> pa.Array:
    """Return whole numbers as an Arrow array. Arrow's own conversion first loads pandas, which takes half a second."""
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def numbers_of(values: pa.Array) -> NDArray[Any]:
    """Return whole numbers without NULL as an array of NumPy, also without pandas."""
    kind = np.dtype(str(values.type))
    return np.frombuffer(values.buffers()[1] or b"", kind)[values.offset : values.offset + len(values)]
