"""A query: lazy rows, and the ways to get them."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from weft.engine.explain import planned_width
from weft.frontends.sql.checking import check_plan
from weft.frontends.sql.compiler import compile_plan
from weft.frontends.sql.explaining import describe_stages
from weft.frontends.sql.expressions import NotCoveredError, identifier, literal
from weft.frontends.sql.fragment import database, interruptible, nothing
from weft.frontends.sql.mistakes import keyboard_interrupts, mistake
from weft.frontends.sql.narrowing import narrowed
from weft.frontends.sql.relations import Scan, children, scans
from weft.frontends.sql.stages import cut
from weft.frontends.sql.tables import FileTable, ViewTable
from weft.frontends.sql.text import name_of
from weft.graph.builder import Graph
from weft.graph.logical import Retry
from weft.model.errors import MissingExtraError, SqlError, TaskError, UsageError
from weft.model.wording import counted, no_attribute
from weft.queries.advice import advised, no_variable
from weft.queries.connections import ROWS, plain, rows_named
from weft.queries.executing import interruptible_call
from weft.queries.explained import ExplainedQuery, PlannedStage, executed
from weft.queries.frames import for_arrays, for_frames, to_pandas, with_own_names
from weft.queries.hugeints import as_decimals
from weft.queries.remarks import warn_user
from weft.queries.statements import tokens, within
from weft.queries.streaming import in_bubbles, widths
from weft.queries.texts import NO_ARROW, NO_CSV, NO_JSON, any_within, finite_json, selected, with_texts
from weft.queries.writing import replaced
from weft.runtime import arguments

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType
    from numpy.typing import NDArray

    from weft.frontends.sql.relations import Relation
    from weft.frontends.sql.stages import QueryPlan, Ranged
    from weft.graph.builder import VertexHandle
    from weft.graph.logical import LogicalGraph
    from weft.graph.task import TaskContext, TaskInput
    from weft.model.errors import WeftError
    from weft.queries.advice import Variables
    from weft.queries.catalogue import Catalogue
    from weft.queries.planned import PlannedTables
    from weft.queries.sources import SqlTable
    from weft.runtime.run import Results
    from weft.wiring.session import Session

PARTITIONS: Final = 32
TARGET_BYTES: Final = 32 << 20
SMALL_BYTES: Final = 8 << 20
TINY_BYTES: Final = 16 << 10
"""Each task reads a side of a join in files of at most this size itself: that is less work than a task for all."""
SHOWN_ROWS: Final = 20
BATCH_ROWS: Final = 65_536
MOST_BATCH_ROWS: Final = (1 << 31) - 1
"""The rows of one batch, at most: places in Arrow's texts have 31 bits."""
_LINES: Final = re.compile(r"\.(?:jsonl|ndjson)(?:\.(?:gz|zst))?$", re.IGNORECASE)
"""The end of a file with a JSON object in each line."""
_INTERVAL: Final = pa.month_day_nano_interval()
_OF_DUCKDB: Final = re.compile(r"[A-Z][A-Za-z -]* Error: ")
"""The beginning of an error of DuckDB, with its class."""
INTERRUPTED: Final = re.compile(r"\bINTERRUPT Error: ")
"""What DuckDB tells of a query that was interrupted, by itself or from outside."""

Parameters: TypeAlias = "Sequence[Any] | Mapping[str, Any] | None"

Answer = TypeVar("Answer")


_OTHERS: Final = (
    dict.fromkeys(("df", "fetchdf", "toPandas", "to_df", "to_pandas"), "pandas()")
    | dict.fromkeys(("pl", "to_polars"), "polars()")
    | dict.fromkeys(("fetch_arrow_table", "table", "to_arrow", "to_arrow_table", "to_table"), "arrow()")
    | dict.fromkeys(("collect", "fetchall"), "rows()")
    | dict.fromkeys(("compute", "execute", "fetch", "result", "to_list"), "pandas(), arrow() or rows()")
    | {"head": "show(), or a query with LIMIT", "limit": "a query with LIMIT", "to_parquet": "write_parquet(path)"}
    | {"to_csv": "a statement: COPY (...) TO 'x.csv'", "persist": "pandas() or arrow(), which keep the rows"}
)
"""Names of queries and data frames in other libraries, with what is there instead."""


class QueryHome(Protocol):
    """What a query needs of the context that it belongs to."""

    @property
    def session(self) -> Session:
        """The session with the workers."""
        ...

    @property
    def own(self) -> Session:
        """The session whose tasks run in this process."""
        ...

    @property
    def slots(self) -> int:
        """The number of tasks of stages that run at a time."""
        ...

    @property
    def task_memory(self) -> int:
        """The bytes that tasks of stages compute with in each of their processes; 0 if there is no bound."""
        ...

    @property
    def catalogue(self) -> Catalogue:
        """The tables by name."""
        ...

    @property
    def planned(self) -> PlannedTables:
        """The tables as queries in stages read them."""
        ...


class Query:
    """The rows of a query of `SqlContext.sql`. It runs once, when its rows are first asked for."""

    def __init__(
        self,
        home: QueryHome,
        text: str,
        parameters: Parameters,
        mode: str,
        tables: Mapping[str, SqlTable] = MappingProxyType({}),
        bubbles: str = "batch",
        variable: Variables = no_variable,
        known: Mapping[str, SqlTable] = MappingProxyType({}),
    ) -> None:
        self.text = text
        self._bubbles = bubbles
        self._told: Mapping[str, str] = MappingProxyType({})
        self.whole_because = ""
        self._home = home
        self._parameters = parameters
        self._mode = mode
        self._own = tables
        self._known = known  # the tables of the context that it reads, which others may replace
        self._planned_over: Mapping[str, SqlTable] = tables
        self._rows: pa.Table | None = None  # with all types as they are, also those that Arrow has not
        self._arrow: pa.Table | None = None
        self._stages: QueryPlan | None = None
        self._reading: duckdb.DuckDBPyConnection | None = None
        self._interrupting = threading.Lock()
        self._interrupted = False
        self._mistaken: WeftError | None = None  # why the task that ran the whole query has failed
        self._stamped = [*_stamped(tables), *home.catalogue.stamped(known)]
        self._described = self._check(variable, known)

    @property
    def _tables(self) -> Mapping[str, SqlTable]:
        """The tables that the context has not, or no longer has under the name that the query was made with."""
        return {**self._known, **self._own} if self._home.catalogue.replaced(self._known) else self._own

    def _check(self, variable: Variables, known: Mapping[str, SqlTable]) -> list[tuple[str, str]]:
        """Return the columns with their types; SqlError: the query cannot run.

        Tables that are `known` have the columns that the context has found in their files last.
        """
        tables = self._tables
        if not self._parameters:
            with (
                self._home.catalogue.checking(self.text, tables, known) as connection,
                suppress(duckdb.Error),  # DESCRIBE tells the place
            ):
                found = connection.sql(self.text)  # binds the query, and does not optimise it
                return list(zip(found.columns, map(str, found.types), strict=True))
        with self._home.catalogue.connected(tables) as connection:

            def check(text: str) -> str:
                try:
                    connection.execute(f"DESCRIBE {within(text)}", self._parameters)
                except duckdb.Error as error:
                    return str(error)
                return ""

            try:
                described = connection.execute(f"DESCRIBE {within(self.text)}", self._parameters).fetchall()
            except duckdb.Error as error:
                raise self._mistake(error, variable, first_line=2, check=check) from None
        return [(row[0], row[1]) for row in described]

    def _mistake(self, error: Exception, variable: Variables = no_variable, **known: Any) -> WeftError:
        """Return the error of Weft for one of DuckDB about the text, with what else is `known`, as for `mistake`.

        A view whose table was dropped is no table for DuckDB.
        """
        if isinstance(error, duckdb.CatalogException):
            try:
                self._home.catalogue.read_in(self.text)
            except SqlError as told:
                return told
        return advised(mistake(error, self.text, **known), variable)

    def as_table(self, name: str, home: QueryHome) -> ViewTable | pa.Table:
        """Return the rows as a table of `home`: as a view if all that the query reads is there, else its rows."""
        if home is self._home and not self._parameters and not self._tables and self._rows is None:
            return ViewTable(name, f"AS {within(self.text.rstrip().rstrip(';'))}")
        return self._exact()

    @property
    def columns(self) -> list[str]:
        """The names of the columns; several can have the same.

        They are those of the rows, and before the query has run of its files as they are now; SqlError: it cannot run.
        """
        self._look()
        return self._names

    @property
    def types(self) -> list[str]:
        """The type of each column, in the order of `columns`; SqlError as there."""
        self._look()
        return [of for _, of in self._described]

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self._described]

    def _look(self) -> None:
        """Look at the columns again if the query has not run, and files that it reads have been written since."""
        if self._rows is not None:
            return
        if any(stamp != table.stamp() for table, stamp in self._stamped):
            self._described = self._check(no_variable, {})

    def _begin(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """Begin to run the whole query with a connection, and return this; the columns are those of its rows."""
        connection.execute(self.text, self._parameters)
        self._described = [(name, str(of)) for name, of, *_ in connection.description or ()]
        return connection

    @property
    def own_columns(self) -> list[str]:
        """The names of the columns as DuckDB makes them different: `id` and `id_1`; `a` and `A` are one name to it."""
        names = ", ".join(f"NULL AS {identifier(name)}" for name in self.columns)
        with plain() as connection:
            return list(connection.sql(f"FROM (SELECT {names})").columns)

    def file_columns(self) -> list[str]:
        """Return the names of the columns in a file, which are `own_columns`; a warning tells of the changed ones."""
        own = self.own_columns
        changed = [f"{was} as {name}" for was, name in zip(self._names, own, strict=True) if was != name]
        if changed:
            warn_user(
                f"the query has columns of one name, and the file has {', '.join(changed)}; to choose the names, "
                "rename the columns with AS",
                stacklevel=3,
            )
        return own

    # ------------------------------------------------------------------------------------------------------------- rows

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table.

        A HUGEINT is a decimal of 38 digits in it; a BIT, a BIGNUM and a time with a time zone are texts.
        """
        if self._arrow is None:
            rows = as_decimals(self._exact())
            foreign = special(rows.schema)
            self._arrow = (
                self._over(rows, lambda found: found.to_arrow_table(), NO_ARROW).rename_columns(self._names)
                if foreign
                else rows
            )
        return self._arrow

    def _exact(self) -> pa.Table:
        if self._rows is None:
            self._rows = self._run()
        return self._rows

    def _over(
        self,
        rows: pa.Table,
        read: Callable[[duckdb.DuckDBPyConnection], Answer],
        texts: Collection[str] = (),
        at: Sequence[int] | None = None,
    ) -> Answer:
        """Return what `read` makes of a query for all of `rows`, with texts in place of values of some types.

        `at` are the places of their columns, by default all.
        """
        with keyboard_interrupts(), plain() as connection:
            connection.register(ROWS, rows.__arrow_c_stream__())  # a table with equal names is refused
            return read(connection.execute(selected(ROWS, self._typed(at), texts) if texts else f"FROM {ROWS}"))

    def _typed(self, at: Sequence[int] | None = None) -> list[tuple[str, DuckDBPyType]]:
        """Return the columns with their types as DuckDB has them, or those at some places."""
        with plain() as connection:
            found = connection.sql(f"SELECT {', '.join(f'CAST(NULL AS {of})' for _, of in self._described)}")
            columns = list(zip(self._names, found.types, strict=True))
        return columns if at is None else [columns[place] for place in at]

    def pandas(self) -> Any:
        """Return the rows as a data frame of pandas; intervals are lengths of time, and a month has 30 days.

        A HUGEINT, such as a sum of integers, is an int64 like a BIGINT where all values of the column fit, else a
        decimal. Columns of integers and booleans with NULL have the types of pandas with NA, such as Int64.
        MissingExtraError: pandas is not installed.
        """
        imported("pandas")
        return to_pandas(for_frames(self.arrow(), self.types))

    def polars(self) -> Any:
        """Return the rows as a data frame of Polars, with intervals and HUGEINT as `pandas` gives them.

        Columns of equal names get numbers: `a`, `a_1`.
        MissingExtraError: Polars is not installed. SqlError: an interval is in a list, a struct or a map.
        """
        package = imported("polars")
        rows = for_frames(self.arrow(), self.types)
        self._refuse(rows.schema, lambda of: of == _INTERVAL, "Polars has")
        return package.from_arrow(with_own_names(rows))

    def _refuse(self, schema: pa.Schema, is_one: Callable[[pa.DataType], bool], who: str) -> None:
        """SqlError: a column has a type for which `is_one` is true, itself or at any depth."""
        for (name, of), made in zip(self._described, schema.types, strict=True):
            if any_within(made, is_one):
                raise SqlError(
                    f"column {name} is {of}: {who} no such type", hint=f"Cast it: {identifier(name)}::VARCHAR."
                )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the rows as an array of two axes, in the common type of the columns, as NumPy asks for.

        A HUGEINT is as `pandas` gives it. Decimals beside doubles are doubles, and others are objects.
        """
        found: NDArray[Any] = for_arrays(self.arrow(), self.types).__array__(dtype)
        return found

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of Python values."""
        return self._tuples()

    def json_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows as `rows`, with texts of DuckDB in place of values that JSON has not, such as a BLOB."""
        return self._tuples(NO_JSON)

    def _tuples(self, texts: Collection[str] = ()) -> list[tuple[Any, ...]]:
        found = self._exact()
        zoned = {at for at, field in enumerate(found.schema) if _has_zone(field.type)}
        if not zoned:
            return self._over(found, lambda rows: rows.fetchall(), texts)
        # DuckDB makes moments with zones by a package of its own choice, Arrow by the standard library.
        others = [at for at in range(found.num_columns) if at not in zoned]
        rest = self._over(found.select(others), lambda rows: rows.fetchall(), texts, others) if others else []
        values = dict(zip(others, zip(*rest, strict=True), strict=True)) if rest else {}
        columns = (
            found.column(at).to_pylist() if at in zoned else values.get(at, ()) for at in range(found.num_columns)
        )
        return list(zip(*columns, strict=True))

    @contextmanager
    def reader(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatchReader]:
        """Give a reader of batches of at most `rows` rows, with all types as they are.

        A query that runs whole is read while it runs, and its rows are not kept. UsageError: `rows` is no such number.
        """
        rows = batch_rows("rows", rows)
        if self._rows is not None or self._plan() is not None:
            yield self._exact().to_reader(max_chunksize=rows)
            return
        with keyboard_interrupts(), self._home.catalogue.cursor(self._tables) as connection:
            self._reading, self._interrupted = connection, False
            run = partial(interruptible_call, connection)
            try:
                yield run(lambda: self._begin(connection).to_arrow_reader(rows))
            except duckdb.Error as error:
                raise self._failure(error, connection, run) from None
            except OSError as error:  # so Arrow passes on what DuckDB meets between two batches
                if error.errno is not None or not _OF_DUCKDB.match(str(error)):
                    raise
                raise self._failure(error, connection, run) from None
            finally:
                with self._interrupting:  # DuckDB may not interrupt a connection while it is closed
                    self._reading = None

    def _failure(
        self, error: Exception, connection: duckdb.DuckDBPyConnection, run: Callable[[Callable[[], Any]], Any]
    ) -> WeftError:
        """Return the error of Weft for one that came while DuckDB ran the query, which `run` can do once more.

        A thread of DuckDB that fails interrupts the others, and the one that gives the rows may tell that alone. What
        failed is then found by another run, without the rows.
        """
        if self._interrupted or not INTERRUPTED.search(str(error)):
            return self._mistake(error)
        try:
            run(lambda: connection.execute(f"EXPLAIN ANALYZE {within(self.text)}", self._parameters))
        except duckdb.InterruptException:
            return self._mistake(error)
        except duckdb.Error as cause:
            return self._mistake(cause, first_line=2)
        return SqlError("DuckDB ended the query and did not tell why", hint="Run it again.")

    def interrupt(self) -> None:
        """Interrupt the query that `reader`, `batches` or `write_parquet` reads in another thread."""
        with self._interrupting:
            if self._reading is not None:
                self._interrupted = True
                self._reading.interrupt()

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most `rows`, while the query runs if it runs whole.

        UsageError: `rows` is no such number.
        """
        return self._batches(batch_rows("rows", rows))

    def csv_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as `batches`, with texts of DuckDB in place of values that CSV has not, such as a list."""
        return self._batches(BATCH_ROWS, NO_CSV)

    def _batches(self, rows: int, texts: Collection[str] = NO_ARROW) -> Iterator[pa.RecordBatch]:
        with self.reader(rows) as reader:
            if special(reader.schema) or texts != NO_ARROW:
                with plain() as connection:
                    connection.register(ROWS, reader.__arrow_c_stream__())  # a reader with equal names is refused
                    plainly = connection.execute(selected(ROWS, self._typed(), texts)).to_arrow_reader(rows)
                    yield from (batch.rename_columns(self._names) for batch in plainly)
            else:
                yield from reader

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the rows to a Parquet file, in batches; `path` may be a URL of fsspec.

        An earlier file stays until all rows are written, so the query may read it. For a URL they are written to a
        temporary file of this machine, which is sent at the end. Columns of one name get numbers, as `file_columns` has
        them. SqlError: a column is of a type that such a file has not, as an INTERVAL.
        """
        import pyarrow.parquet

        place = os.fspath(path)
        columns = self.file_columns()
        own = self._schema(NO_ARROW, self._names)
        self._refuse(own, lambda of: of == _INTERVAL or pa.types.is_union(of), "a Parquet file of Arrow has")
        with ExitStack() as undo:
            target = undo.enter_context(replaced(place))
            writer = undo.enter_context(pyarrow.parquet.ParquetWriter(target, self._schema(NO_ARROW, columns)))
            for batch in self.batches():
                writer.write_batch(batch.rename_columns(columns))

    def write_json(self, path: str | os.PathLike[str], compression: str = "auto") -> None:
        """Write the rows to a file as an array of JSON objects, in batches; `path` may be a URL of fsspec.

        A path that ends in `.jsonl` or `.ndjson`, also before the end of a compression, gets an object in each line.
        Columns of one name get numbers, as `file_columns` has them. NaN and infinities, which JSON has not, are null.

        `compression` is "none", "gzip", "zstd" or "auto", by the end of the path. UsageError: another one. An earlier
        file stays until all rows are written.
        """
        known = {"auto": "detect", "none": None, "gzip": "gzip", "zstd": "zstd"}
        if compression not in tuple(known):
            raise UsageError(f"compression is {compression!r}", hint=f"There are: {', '.join(known)}.")
        renamed = rows_named(self.file_columns())
        with ExitStack() as undo:
            place = undo.enter_context(replaced(os.fspath(path)))
            reader, connection = undo.enter_context(self.reader()), undo.enter_context(plain())
            file = undo.enter_context(pa.output_stream(place, compression=known[compression]))
            connection.register(ROWS, reader.__arrow_c_stream__())  # a reader with equal names is refused
            objects = connection.execute(f"SELECT CAST(to_json({ROWS}) AS VARCHAR) FROM {renamed}")
            lines = _LINES.search(os.fspath(path)) is not None
            before, between, end = (b"", b"", b"") if lines else (b"[\n\t", b",\n\t", b"\n]\n")
            for batch in objects.to_arrow_reader(BATCH_ROWS):
                for text in batch.column(0).to_pylist():
                    file.write(before + finite_json(text).encode() + (b"\n" if lines else b""))
                    before = between
            file.write(b"[\n]\n" if before == b"[\n\t" else end)

    def schema(self) -> pa.Schema:
        """Return the columns with their types of Arrow."""
        return self._schema(NO_ARROW, self.columns)

    def csv_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the columns under other names, with their types of Arrow as `csv_batches` has them."""
        return self._schema(NO_CSV, names)

    def _schema(self, texts: Collection[str], names: Sequence[str]) -> pa.Schema:
        columns = ", ".join(
            f"CAST(NULL AS {with_texts(of, texts)}) AS {identifier(name)}"
            for name, (_, of) in zip(names, self._typed(), strict=True)
        )
        with plain() as connection:
            return connection.execute(f"SELECT {columns}").to_arrow_table().schema

    def show(self, rows: int = SHOWN_ROWS) -> None:
        """Print the first rows as a table, and whether there are more. UsageError: `rows` is no number from 1 on."""
        rows = arguments.whole("rows", rows, lo=1, hi=None)
        found = self.first(rows + 1)
        with plain() as connection:
            connection.from_arrow(found.slice(0, min(rows, len(found)))).show(max_rows=min(rows, MOST_BATCH_ROWS))
        if len(found) > rows:
            sys.stdout.write(f"the first {counted(rows, 'row')}\n")

    def first(self, rows: int) -> pa.Table:
        """Return the first rows. UsageError: `rows` is no number from 0 on."""
        rows = arguments.whole("rows", rows, lo=0, hi=None)
        found: list[pa.RecordBatch] = []
        for batch in self.batches():
            found.append(batch.slice(0, min(rows, batch.num_rows)))
            rows -= found[-1].num_rows
            if rows <= 0:
                break
        return pa.Table.from_batches(found) if found else self._schema(NO_ARROW, self._names).empty_table()

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(self, name, _OTHERS)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {of}" for name, of in self._described)
        return f"<query: {columns}>"

    def _repr_html_(self) -> str:
        from html import escape

        table = self.arrow().slice(0, SHOWN_ROWS)
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        lines = zip(*(column.to_pylist() for column in table.columns), strict=True)
        body = "".join(f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in line)}</tr>" for line in lines)
        count = self.arrow().num_rows
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{count:,} rows</p>"

    # ------------------------------------------------------------------------------------------------------------ plans

    def explain(self, analyze: bool = False, format: str = "text") -> str:
        """Return how the query runs: its stages, what each computes, and how rows move between them.

        With `analyze` it runs now, and what its tasks have done stands beside the plan. `format` is "text", "json" or
        "html", a page of its own.
        """
        return self.explained(analyze).written(format)

    def explained(self, analyze: bool = False) -> ExplainedQuery:
        """Return `explain` as data, which notebooks show as a table."""
        compiled = self._compiled()
        plan, graph, _ = compiled
        planned: tuple[PlannedStage, ...] = ()
        if plan is not None:
            stages = describe_stages(plan, self._weigh)
            planned = tuple(
                PlannedStage(stage, planned_width(vertex), bubble=self._told.get(vertex.id, ""))
                for stage, vertex in zip(stages, (graph.vertices[f"stage_{one.number}"] for one in stages), strict=True)
            )
        found = ExplainedQuery(self.text, self.whole_because, planned)
        if not analyze:
            return found
        self._rows, results = self._executed(*compiled)
        self._arrow = None
        return executed(found, results.run.view(), results.run.explained())

    def _plan(self) -> QueryPlan | None:
        """Return the stages; None if the query runs whole, `whole_because` says why."""
        if self._mode != "stages":
            self.whole_because = "all its tables are on this machine"
            return None
        tables = self._tables
        if tables.keys() != self._planned_over.keys():  # a table was replaced since
            self._stages, self.whole_because = None, ""
        if self._stages is None and not self.whole_because:
            self._planned_over = tables
            try:
                text, variables = bound(self.text, self._parameters)
                relation = self._home.planned.relation(text, variables, tables)
                plan = narrowed(
                    cut(relation, self._weigh, small=SMALL_BYTES, tiny=TINY_BYTES, rangeable=self._rangeable)
                )
                with database() as connection:
                    check_plan(plan, [of for _, of in self._described], connection)
                self._stages = plan
            except NotCoveredError as error:
                self.whole_because = f"{error} cannot be divided"
        return self._stages

    def _weigh(self, relation: Relation) -> float:
        if isinstance(relation, Scan):
            return self._home.planned.files(relation.table).nbytes()
        return sum(map(self._weigh, children(relation)))

    def _rangeable(self, table: str, by: Ranged) -> bool:
        return self._home.planned.splits(table, self._home.slots).ranged(*by) is not None

    # ------------------------------------------------------------------------------------------------------------- runs

    def _run(self) -> pa.Table:
        return self._executed(*self._compiled())[0]

    def _compiled(self) -> tuple[QueryPlan | None, LogicalGraph, list[VertexHandle]]:
        """Return the stages (None for a whole query), their graph, and the vertices that deliver the rows."""
        plan = self._plan()
        if plan is None:
            graph = Graph("query")
            return None, graph, [graph.task(self._whole, name="query", retry=Retry(user=0), counted=True).keep()]
        read = {scan.table for stage in plan.stages for scan in scans(stage.relation)}
        slots = self._home.slots if read else 1  # a cluster has to be asked
        splits = {table: self._home.planned.splits(table, slots) for table in read}
        compiler = partial(
            compile_plan,
            plan,
            splits,
            name="query",
            partitions=PARTITIONS,
            target=TARGET_BYTES,
            slots=slots,
            memory=self._home.task_memory,
        )
        if self._bubbles == "batch":
            return plan, *compiler()
        settled = widths(plan, self._weigh, TARGET_BYTES, PARTITIONS)
        made = in_bubbles(lambda known: compiler(settled=known), settled, self._bubbles, self._home.slots)
        self._told = made.told
        return plan, made.graph, made.nodes

    def _executed(
        self, plan: QueryPlan | None, graph: LogicalGraph, nodes: Sequence[VertexHandle]
    ) -> tuple[pa.Table, Results]:
        """Run a compiled query; return its rows and the results of the run."""
        self._mistaken = None
        try:
            results = (self._home.own if plan is None else self._home.session).run(graph)
        except TaskError as error:
            if (told := self._mistaken or self._of_duckdb(error)) is None:
                raise
            raise told from None
        if plan is None:
            return results.value(nodes[0]), results
        ran = set(results)  # a plan that was not taken has no rows
        tables: list[pa.Table] = [one for node in nodes if node.id in ran for one in results[node] if one is not None]
        columns = [(name_of(at), of) for at, of in enumerate(plan.stages[plan.results[0]].relation.types)]
        if not tables:
            with database() as connection:
                tables = [nothing(connection, columns)]
        table = pa.concat_tables(tables)
        return table.rename_columns(self._names), results

    def _of_duckdb(self, error: TaskError) -> WeftError | None:
        """Return the error of Weft for what DuckDB raised in a task; None if something else has failed."""
        cause = error.origin
        if cause is None or not issubclass(cause.kind, duckdb.Error):
            return None
        return self._mistake(cause.kind(*cause.args))

    def _whole(self, ctx: TaskContext, _inputs: Mapping[str, TaskInput]) -> pa.Table:
        with self._home.catalogue.connected(self._tables) as connection:
            run = partial(interruptible, ctx, connection)
            try:
                return run(lambda: self._begin(connection).to_arrow_table())
            except duckdb.Error as error:
                self._mistaken = self._failure(error, connection, run)
                raise


def _has_zone(of: pa.DataType) -> bool:
    """Whether values of a type hold moments with a time zone."""
    return any_within(of, lambda one: pa.types.is_timestamp(one) and one.tz is not None)


def _stamped(tables: Mapping[str, SqlTable]) -> Iterator[tuple[FileTable, object]]:
    """Yield the tables in files of this machine with their stamps."""
    for table in tables.values():
        if isinstance(table, FileTable) and (stamp := table.stamp()) is not None:
            yield table, stamp


def batch_rows(name: str, value: object) -> int:
    """Return an argument as the number of rows of a batch. UsageError: it is none."""
    return arguments.whole(name, value, lo=1, hi=MOST_BATCH_ROWS)


def special(schema: pa.Schema) -> bool:
    """Whether a schema has types that Arrow has not."""
    return any(any_within(of, lambda one: isinstance(one, pa.BaseExtensionType)) for of in schema.types)


def imported(package: str) -> Any:
    """Return a package. MissingExtraError: it is not installed."""
    try:
        return import_module(package)
    except ImportError:
        raise MissingExtraError(f"{package}() needs {package}", hint=f"Install it: pip install {package}") from None


def bound(text: str, parameters: Parameters) -> tuple[str, dict[str, Any]]:
    """Return the text with a variable in place of each parameter, and the values of the variables.

    The plan of a query is made without its parameters, but with the values of variables.
    """
    if not parameters:
        return text, {}
    values = dict(parameters) if isinstance(parameters, Mapping) else {str(n): v for n, v in enumerate(parameters, 1)}
    places = [token.at for token in tokens(text)]
    pieces, done, asked = [], 0, 0
    for at, after in zip(places, [*places[1:], len(text)], strict=True):
        name, end = "", at + 1
        if text[at] == "?":
            asked += 1
            name = str(asked)
        elif text[at] == "$" and (found := _NAME.match(text, after)) is not None:
            name, end = found[0], found.end()
        if name in values:
            pieces += [text[done:at], f"getvariable({literal(PREFIX + name)})"]
            done = end
    return "".join([*pieces, text[done:]]), {PREFIX + name: value for name, value in values.items()}


PREFIX: Final = "weft_parameter_"
_NAME: Final = re.compile(r"\w+")
