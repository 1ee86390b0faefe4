"""Tables by name, and the workers that run queries over them."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import duckdb
import pyarrow as pa

from weft.admin.settings import Settings
from weft.frontends.sql.databases import open_database
from weft.frontends.sql.expressions import NotCoveredError, identifier, literal
from weft.frontends.sql.mistakes import mistake, mistake_in_place, unreadable
from weft.frontends.sql.planner import Planner
from weft.frontends.sql.tables import FileTable, ViewTable
from weft.model.errors import ConflictError, DefinitionError, NotFoundError, SqlError, UsageError, WeftError
from weft.model.suggestions import did_you_mean
from weft.model.wording import type_of
from weft.queries.advice import advised
from weft.queries.executing import executed
from weft.queries.inspecting import inspected
from weft.queries.query import INTERRUPTED, ROWS, Query, plain, rows_named
from weft.queries.sources import (
    Grants,
    arrow_table,
    compared_alike,
    file_table,
    listed,
    listed_again,
    outside,
    plain_parameters,
    reader_of,
    stamps,
    table_of,
)
from weft.queries.statements import read_statement, referenced
from weft.queries.storing import store_rows
from weft.queries.writing import replaced, replaced_folder
from weft.runs.sessions import checked_cluster, size_of, state_folder
from weft.runtime import arguments
from weft.store.filesystems import is_url
from weft.store.scratch import ScratchFolder
from weft.wiring.bubbles import BUBBLES
from weft.wiring.concrete import check_backend
from weft.wiring.session import Session, check_cluster

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from weft.frontends.sql.relations import Relation
    from weft.frontends.sql.tables import TableSplits
    from weft.model.clusters import ClusterOptions
    from weft.queries.advice import Variables
    from weft.queries.query import Parameters
    from weft.queries.sources import SqlTable, Stamps
    from weft.queries.statements import Statement

MODES: Final = ("auto", "whole", "stages")
SPLIT_BYTES: Final = 32 << 20
"""The compressed bytes of a table that one task scans, at least."""
LARGER: Final = 4
"""One task scans at most this many times as much; all slots have equally many tasks then, two at least."""
LEAST_BYTES: Final = 256 << 20
"""The memory that DuckDB may take in a process in any case; with less it cannot spill."""
IDLE_CONNECTIONS: Final = 4
"""The connections that wait for the next query, at most."""
NONE: Final[Mapping[str, SqlTable]] = MappingProxyType({})
ANSWER: Final = "weft_answer"
"""The name of the rows that a statement gives."""
IN_MEMORY: Final = "weft_memory_"
"""The beginning of the name of rows in memory whose table is a view of them."""
_SEVERAL: Final = re.compile(r"(?i)\b(?:PARTITION_BY|PER_THREAD_OUTPUT|FILE_SIZE_BYTES|ROW_GROUPS_PER_FILE)\b")
"""Options of COPY that make a folder of files."""
_OVERWRITE: Final = re.compile(r"(?i)\bOVERWRITE\b(?!\s+'?(?:false|0|off|no)\b)")
_FORMAT: Final = re.compile(r"(?i)\bFORMAT\s+['\"]?(\w+)")


class QuerySession(Session):
    """The session of a context, whose worker processes share what stages need."""

    preload = ("weft.frontends.sql.preloaded",)


class SqlContext:
    """Named tables and the workers that run queries over them. A context manager, or call `close`.

    `backend`, `workers` and `cluster` are those of `weft.Session`. `memory`, in bytes or as "4GiB", bounds the rows
    that stages exchange, as it does there, and what DuckDB computes with in all processes together, but 256 MiB in
    each in any case; the rest is spilled to disk (default: half of the machine's memory, and DuckDB's own). `mode`
    says how queries run: "whole" in one task with all cores, "stages" in many tasks with exchanges of rows between
    them, "auto" (the default) whole, since the tables of one machine are best read by one task, and in stages on
    Ray. `bubbles` says which stages run together and stream to one another: "batch" (the default) none, "gang" all,
    "greedy", "efficient" and "cost" as the cuts of graphs of these names; what `workers` tasks cannot hold at once
    is stored. With `durable`, as of `weft.Session`, each query in stages is a run with a folder, and `weft explain
    RUN` tells of it. `allow` lists the folders and URLs whose files the texts of queries may name and write;
    registered tables and variables of the caller need no grant. Without `allow`, data files below the current
    folder may stand behind FROM.

    UsageError: an invalid argument.
    """

    def __init__(
        self,
        *,
        backend: str = "threads",
        workers: int | None = None,
        memory: int | str | None = None,
        mode: str = "auto",
        durable: bool | str | os.PathLike[str] = False,
        allow: Iterable[str | os.PathLike[str]] | None = None,
        bubbles: str = "batch",
        cluster: ClusterOptions | None = None,
    ) -> None:
        check_backend(backend)
        check_bubbles(bubbles)
        self.bubbles = bubbles
        if mode not in MODES:
            raise UsageError(f"mode is {mode!r}", hint=f"There are: {', '.join(MODES)}.")
        self.mode = mode
        self._options: dict[str, Any] = {
            "backend": backend,
            "workers": None if workers is None else arguments.whole("workers", workers, lo=1),
            "memory": memory,
            "durable": durable if isinstance(durable, bool) else state_folder("durable", durable),
            "cluster": None if cluster is None else checked_cluster(cluster),
        }
        check_cluster(cluster, backend)
        self._memory = size_of("memory", memory) or 0  # 0: not bounded here
        self._opened = 0
        self._lock = threading.RLock()
        self._grants = Grants(allow)
        # A durable query that is resumed after a kill reads what the killed process has written.
        self._folder = tempfile.TemporaryDirectory(prefix="weft-sql-") if durable else ScratchFolder("sql")
        self._written = 0
        self._reached: set[str] = set()
        self._tables: dict[str, SqlTable] = {}
        self._listed: dict[str, _Listed] = {}
        self._idle: list[duckdb.DuckDBPyConnection] = []  # with the tables of now
        self._checking: list[tuple[duckdb.DuckDBPyConnection, dict[str, _Shape]]] = []  # idle; one at most
        self._shapes: dict[str, _Shape] = {}
        self._changes = 0
        self._connection = self._open()
        self._planner: Planner | None = None
        self._planned: dict[str, tuple[SqlTable, FileTable | ViewTable, Stamps]] = {}
        self._session: Session | None = None
        self._own: Session | None = None
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise ConflictError("the context of the query is closed", hint="Open another one: weft.SqlContext().")

    def _open(self) -> duckdb.DuckDBPyConnection:
        self._opened += 1
        spill = f"{self._folder.name}/spill-{self._opened}"
        made = open_database(files=sorted(self._reached), folders=self._folders, memory=self._share(1), spill=spill)
        for name, table in self._tables.items():
            if isinstance(table, FileTable):
                made.execute(f"CREATE VIEW {identifier(name)} AS {table.rows}")
        return made

    @property
    def _folders(self) -> list[str]:
        return [f"{self._folder.name}/", *self._grants.folders]

    # ----------------------------------------------------------------------------------------------------------- tables

    def register(self, name: str, source: Any) -> None:
        """Add a table, or replace that of the same name.

        `source` is a path, a pattern or a folder of Parquet, CSV or JSON files, a URL of fsspec, a list of these, an
        Arrow table, a data frame of pandas or Polars, or a query. NotFoundError: there are no such files. UsageError:
        another kind of source.
        """
        if not isinstance(name, str) or not name:
            raise UsageError(f"the name of the table is {name!r}", hint="Give it a name: register('people', ...).")
        self._check_open()
        table = source.as_table(name, self) if isinstance(source, Query) else table_of(name, source)
        if not isinstance(table, FileTable):
            self._add(name, table)
            return
        stamp = table.stamp()  # before its files are looked at: what changes meanwhile is looked at again
        with self._lock:
            self._add(name, self._inspected(table))
            self._listed[name] = _Listed(listed(source, table), table, stamp)

    def _list_again(self, name: str) -> bool:
        """Take the files that a table has now, if others have come or gone, or some have changed; return whether."""
        with self._lock:
            known = self._listed.get(name)
        if known is None:
            return False
        table, stamp = listed_again(known.table, known.source)
        if table == known.table and stamp in (known.stamp, None):  # None: at URLs, or gone, which the query tells
            if stamp != known.stamp:
                with self._lock:
                    if self._listed.get(name) is known:
                        self._listed[name] = known._replace(stamp=None)
            return False
        made = self._inspected(table)
        with self._lock:
            if self._listed.get(name) is not known:  # another query did it, or the table was replaced
                return True
            if made != self._tables[name]:
                self._add(name, made)
            self._listed[name] = known._replace(table=table, stamp=stamp)
        return True

    def _inspected(self, table: FileTable) -> FileTable:
        """Return a table of files of the user as it is to be read. DefinitionError: its files do not fit together."""
        with self._lock:
            self._check_open()
            self._reach(table)
            connection = self._connection.cursor()
        with connection:
            return inspected(table, connection)

    def _add(self, name: str, table: SqlTable) -> None:
        with self._lock:
            self._check_open()
            self._remove(name)
            self._close_idle()
            if isinstance(table, FileTable):
                self._reach(table)
                try:
                    self._connection.execute(f"CREATE VIEW {identifier(name)} AS {table.rows}")
                except duckdb.Error as error:
                    raise unreadable(error, name) from None
            elif isinstance(table, pa.Table):
                with self._connection.cursor() as trial:  # a later refusal would hit each query of the context
                    _register(trial, name, table)
            self._tables[name] = table

    def forget(self, name: str) -> None:
        """Remove a table; its files stay. NotFoundError: there is no such table."""
        with self._lock:
            self._check_open()
            if not self._remove(name):
                raise NotFoundError(f"there is no table {name!r}", hint=did_you_mean(name, self._tables))

    def _remove(self, name: str) -> bool:
        """Forget a table; return whether there was one."""
        known = self._known(name)
        if known:
            self._close_idle()
            self._connection.execute(f"DROP VIEW IF EXISTS {identifier(known)}")
            del self._tables[known]
            self._listed.pop(known, None)
            self._shapes.pop(known, None)
            self._planned.pop(known, None)
        return bool(known)

    def _known(self, name: str) -> str:
        """Return the name of a table in its own letters, "" if there is none."""
        return next((one for one in self._tables if one.lower() == name.lower()), "")

    def _reach(self, table: FileTable) -> None:
        """Open the database again if it cannot read the files of a table."""
        inside = tuple(self._folders)
        missing = [file for file in table.files if file not in self._reached and not file.startswith(inside)]
        if missing:
            self._reached.update(missing)
            self._close_idle()
            self._connection, old = self._open(), self._connection
            old.close()
            if self._planner is not None:
                self._planner.close()
                self._planner = None
                self._planned = {name: made for name, made in self._planned.items() if made[0] is not made[1]}

    @property
    def tables(self) -> list[str]:
        """The names of all tables."""
        return sorted(self._tables)

    # ---------------------------------------------------------------------------------------------------------- queries

    def sql(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        mode: str | None = None,
        bubbles: str | None = None,
    ) -> Query:
        """Return the query `text`; it runs when its rows are asked for.

        `parameters` are the values of `?` (a sequence) or of `$name` (a mapping). `mode` and `bubbles` override those
        of the context. Names that are no tables are looked up among the variables of the caller. A statement that
        makes, fills or drops a table or view, or writes a file, runs at once; its one row is the number of rows
        written.

        SqlError: the text is no query, or names something that does not exist. ForbiddenError: it reaches for files
        that were not granted.
        """
        return self.run_text(text, parameters, mode, sys._getframe(1), bubbles)

    def run_text(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None,
        mode: str | None,
        caller: FrameType | None,
        bubbles: str | None = None,
    ) -> Query:
        """Return the query `text` as `sql`, with the variables of `caller`."""
        mode, bubbles = mode or self.mode, bubbles or self.bubbles
        if mode == "auto" and self._options["backend"] == "ray":
            mode = "stages"  # one task would run at one machine
        check_bubbles(bubbles)
        if mode not in MODES:
            raise UsageError(f"mode is {mode!r}", hint=f"There are: {', '.join(MODES)}.")
        if not isinstance(text, str):
            raise UsageError(f"the query is {type_of(text)}", hint="Pass the text of a query.")
        if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence | Mapping | None):
            raise UsageError(
                f"the parameters are {type_of(parameters)}",
                hint="Pass a list of values for each ?, or a mapping from names to values for each $name.",
            )
        statement, parameters = self._read(text), plain_parameters(parameters)
        tables, read = self._found(statement.query, caller)
        known = partial(variable, caller)
        if statement.action == "select":
            return Query(self, text, parameters, mode, tables, bubbles, known, read)
        if statement.action == "about":
            return Query(self, text, parameters, "whole", tables, variable=known, known=read)
        if statement.action == "tables":
            return self._of_rows(pa.table({"name": pa.array(self.tables, pa.string())}))
        if statement.returning:
            return self._of_rows(self._insert(statement, text, parameters, tables)[1])
        if statement.action == "view":
            count = self._define(statement, tables, known)
        elif statement.action == "drop":
            count = self._drop(statement)
        elif statement.action == "insert":
            count, _ = self._insert(statement, text, parameters, tables)
        elif statement.query:
            rows = Query(self, statement.query, parameters, mode, tables, bubbles, known)
            count = self._copy(statement, rows) if statement.action == "copy" else self._make(statement, rows)
        else:
            count = self._make_empty(statement, text)
        return Query(self, "SELECT CAST($1 AS BIGINT) AS count", [count], "whole")

    def _of_rows(self, rows: pa.Table) -> Query:
        """Return rows as a query; several columns may have one name."""
        names = [f"c{at}" for at in range(rows.num_columns)]
        columns = (f"{name} AS {identifier(own)}" for name, own in zip(names, rows.column_names, strict=True))
        text = f"SELECT {', '.join(columns)} FROM {ANSWER}"
        return Query(self, text, None, "whole", {ANSWER: rows.rename_columns(names)})

    def _read(self, text: str) -> Statement:
        with self._lock:
            self._check_open()
            connection = self._connection.cursor()
        with connection:
            try:
                found = connection.extract_statements(text)
                if len(found) != 1 and text.lstrip()[:5].lower() == "pivot":  # DuckDB makes several of it
                    hint = "Write it as FROM t PIVOT (count(*) FOR column IN (value, ...) GROUP BY key)."
                    raise SqlError("PIVOT without its values is several statements, and one is needed", hint=hint)
                if len(found) != 1:
                    raise duckdb.ParserException(f"one statement is needed, and there are {len(found)}")
            except duckdb.Error as error:
                raise mistake(error, text) from None
        return read_statement(text, found[0].type)

    def _found(self, query: str, caller: FrameType | None) -> tuple[Mapping[str, SqlTable], Mapping[str, SqlTable]]:
        """Return the tables that a query names: files behind FROM and variables, and those of the context."""
        with self._lock, plain() as connection:
            asked = sorted(referenced(connection, query))
            names = [name for name in asked if not self._known(name)]
        read = self._read_now([name for name in asked if name not in names])
        found: dict[str, SqlTable] = {}
        for name in names:
            value = variable(caller, name)
            if isinstance(value, Query):
                found[name] = value.as_table(name, self)
            elif (table := arrow_table(value)) is not None:
                found[name] = table
            elif reader_of(name):
                self._grants.check_read(name)  # before a look that tells whether there is such a file
                files = file_table(name, name)
                self._grants.check_read(*files.files)
                found[name] = self._inspected(files)
        views = [table for table in found.values() if isinstance(table, ViewTable)]
        with plain() as connection:
            asked_by_views = [name for view in views for name in referenced(connection, _query_of(view))]
        return found, read | self._read_now(asked_by_views)

    def _read_now(self, names: Sequence[str]) -> dict[str, SqlTable]:
        """Return the tables of the context that a query of now reads, with the files of now."""
        with self._lock, plain() as connection:
            read = self._read_through(connection, names)
        changed = list(map(self._list_again, read))
        if any(changed):
            with self._lock, plain() as connection:
                read = self._read_through(connection, names)
        return read

    def _read_through(self, connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> dict[str, SqlTable]:
        """Return the tables of the context of some names, and those that views among them read."""
        read: dict[str, SqlTable] = {}
        asked = list(names)
        while asked:
            name = self._known(asked.pop())
            if name and name not in read:
                table = read[name] = self._tables[name]
                if isinstance(table, ViewTable):
                    asked += referenced(connection, _query_of(table))
        return read

    def replaced(self, tables: Mapping[str, SqlTable]) -> bool:
        """Whether one of these tables of the context has another table of its name in its place."""
        with self._lock:
            return any((now := self._known(name)) and self._tables[now] is not was for name, was in tables.items())

    def stamped(self, names: Iterable[str]) -> list[tuple[FileTable, object]]:
        """Return the tables in files of this machine, with their stamps at the last look at them."""
        with self._lock:
            listed = [self._listed[name] for name in names if name in self._listed]
        return [(one.table, one.stamp) for one in listed if one.stamp is not None]

    # ------------------------------------------------------------------------------------------------------- statements

    def _is_there(self, statement: Statement) -> bool:
        """Whether a statement has nothing to do. SqlError: what it makes exists."""
        if not self._known(statement.name) or statement.replace:
            return False
        if statement.lenient:
            return True
        raise SqlError(
            f"the table {statement.name} exists",
            hint=f"Write CREATE OR REPLACE, or drop it first: DROP TABLE {statement.name}.",
        )

    def _define(self, statement: Statement, tables: Mapping[str, SqlTable], known: Variables) -> int:
        if self._is_there(statement):
            return 0
        Query(self, statement.query, None, "whole", tables, variable=known)
        if (there := self._known(statement.name)) and there in self._read_in(statement.query):
            raise SqlError(
                f"the view {statement.name} would read itself, and the table {there} would be gone",
                hint="Give the view another name.",
            )
        for name, table in tables.items():  # a view outlives the variables of its caller
            self._add(name, table)
        self._add(statement.name, ViewTable(statement.name, statement.body))
        return 0

    def _drop(self, statement: Statement) -> int:
        with self._lock:
            if not self._remove(statement.name) and not statement.lenient:
                known = f"There are: {', '.join(self.tables)}." if self.tables else "There is none."
                raise SqlError(f"there is no table {statement.name}", hint=known)
        return 0

    def _make(self, statement: Statement, rows: Query) -> int:
        if self._is_there(statement):
            return 0
        for name, own in zip(rows.columns, rows.own_columns, strict=True):
            if name != own:
                first = next(one for one in rows.columns if one.lower() == name.lower())
                both = name if first == name else f"{first} and {name}, which is one name in SQL"
                message = f"two columns of the table {statement.name} are called {both}"
                raise SqlError(message, hint="Rename one with AS.")
        types = dict(zip(rows.columns, rows.types, strict=True))
        with rows.reader() as reader, self.cursor() as connection:
            connection.register(ROWS, reader)
            table, count = self._stored(connection, statement.name, types, rows)
        self._add(statement.name, table)
        return count

    def _make_empty(self, statement: Statement, text: str) -> int:
        """Make a table from the definitions of its columns."""
        if self._is_there(statement):
            return 0
        with self.cursor() as connection:
            made = f"CREATE TEMP TABLE {ROWS} {statement.body}"
            self._executed(connection, made, None, text)
            _check_columns(connection, statement.name)
            table, count = self._stored(connection, statement.name, described(connection))
        self._add(statement.name, table)
        return count

    def _insert(
        self, statement: Statement, text: str, parameters: Parameters, tables: Mapping[str, SqlTable]
    ) -> tuple[int, pa.Table]:
        """Add rows to a table; return their number, and what DuckDB answers."""
        known = self._known(statement.name)
        table = self._tables.get(known)
        if not isinstance(table, FileTable) or not table.files[0].startswith(f"{self._folder.name}/"):
            raise SqlError(
                f"{statement.name} is no table that takes rows",
                hint=f"Make it first: CREATE TABLE {statement.name} AS SELECT ...",
            )
        with self.cursor(tables) as connection:
            connection.execute(f"CREATE TEMP TABLE {ROWS} AS SELECT * FROM {identifier(known)} LIMIT 0")
            changed = f"{text[: statement.at]}{ROWS}{text[statement.end :]}"
            try:
                answer = executed(connection, changed, parameters).to_arrow_table()
            except duckdb.Error as error:
                raise advised(mistake_in_place(error, text, statement.at, statement.end, ROWS)) from None
            more, count = self._stored(connection, known, described(connection))
        self._add(known, replace(table, files=table.files + more.files))
        return count, answer

    def _copy(self, statement: Statement, rows: Query) -> int:
        path = statement.name if is_url(statement.name) else os.path.abspath(statement.name)
        if not self._grants.may_write(path):
            raise outside("COPY ... TO", path)
        renamed = rows_named(rows.file_columns())
        whole = _SEVERAL.search(statement.options) is None
        with ExitStack() as undo:
            if whole:
                place = undo.enter_context(replaced(path, self._folder.name))
            elif _OVERWRITE.search(statement.options):
                of = _FORMAT.search(statement.options)
                place = undo.enter_context(replaced_folder(path, f".{of[1].lower()}" if of else ".csv"))
            else:
                place = path
            reader, connection = undo.enter_context(rows.reader()), undo.enter_context(self.cursor())
            connection.register(ROWS, reader.__arrow_c_stream__())  # a reader with equal names is refused
            copy = f"COPY (FROM {renamed}) TO {literal(place)} {statement.options}"
            row = self._executed(connection, copy, None, statement.query, rows).fetchone()
        return int(row[0]) if row else 0

    def _executed(
        self,
        connection: duckdb.DuckDBPyConnection,
        text: str,
        parameters: Parameters,
        shown: str,
        read: Query | None = None,
    ) -> duckdb.DuckDBPyConnection:
        try:
            return executed(connection, text, parameters, read=read)
        except duckdb.Error as error:
            if read is not None and INTERRUPTED.search(str(error)):
                raise  # the reader of the query finds what failed
            raise mistake(error, shown) from None

    def _stored(
        self, connection: duckdb.DuckDBPyConnection, name: str, types: Mapping[str, str], read: Query | None = None
    ) -> tuple[FileTable, int]:
        """Write the table `ROWS` of a connection to a file of the context; return it as a table, and its rows."""
        path, select, count = store_rows(connection, ROWS, types, self._new_file, read)
        return FileTable(name, "read_parquet", (path,), select=select).with_columns(types), count

    def _new_file(self) -> str:
        with self._lock:
            self._written += 1
            return f"{self._folder.name}/{self._written}.parquet"

    # ---------------------------------------------------------------------------------------- what a query asks for

    def cursor(self, tables: Mapping[str, SqlTable] = NONE) -> duckdb.DuckDBPyConnection:
        """Return a connection of its own for one query, with further `tables` by name.

        Tables in memory belong to one connection.
        """
        with self._lock:
            self._check_open()
            made = self._connection.cursor()
            for name, table in tables.items():
                if isinstance(table, FileTable):
                    made.execute(f"CREATE TEMP VIEW {identifier(name)} AS {table.rows}")
            known = self._with(tables)
        for name, table in known.items():
            if isinstance(table, pa.Table):
                _register(made, name, table)
        views = {name: table for name, table in known.items() if isinstance(table, ViewTable)}
        while views:
            left = {name: view for name, view in views.items() if not _make_view(made, name, view)}
            if len(left) == len(views):  # what they read was dropped: then they are no tables
                break
            views = left  # what they read may have been made after them
        return made

    def check_views(self, query: str) -> None:
        """SqlError: a view that a query reads, itself or through others, reads a table that is gone."""
        self._read_in(query)

    def _read_in(self, query: str) -> set[str]:
        """Return the tables of the context that a query reads, itself or through views. Errors as of `check_views`."""
        with self._lock, plain() as connection:
            asked, seen = [query], set[str]()
            while asked:
                for name in {*map(self._known, referenced(connection, asked.pop()))} - seen:
                    seen.add(name)
                    if isinstance(view := self._tables.get(name), ViewTable):
                        asked.append(self._read_by(connection, view))
        return seen

    def _read_by(self, connection: duckdb.DuckDBPyConnection, view: ViewTable) -> str:
        """Return the query of a view. SqlError: a table that it reads is gone."""
        name, query = identifier(view.name), _query_of(view)
        for read in sorted(referenced(connection, query)):
            if not self._known(read):
                raise SqlError(
                    f"the view {view.name} reads the table {read}, which is gone",
                    hint=f"Make {read} again, or drop the view: DROP VIEW {name}.",
                )
        return query

    @contextmanager
    def connected(self, tables: Mapping[str, SqlTable] = NONE) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a connection for a query that leaves nothing in it, with further `tables` by name.

        Without such tables it is used again: to make a table in memory known costs more than to bind a query.
        """
        with self._lock:
            changes = self._changes
            made = self._idle.pop() if self._idle and not tables else self.cursor(tables)
        try:
            yield made
        except BaseException:
            made.close()
            raise
        with self._lock:
            if not tables and changes == self._changes and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(made)
                return
        made.close()

    @contextmanager
    def checking(
        self, text: str, tables: Mapping[str, SqlTable], read: Mapping[str, SqlTable]
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a connection that checks a text over further `tables`, or over the tables `read` of the context.

        No file of the latter is opened if two checks have opened it before, and it has not changed since.
        """
        before = {name: shape for name, table in read.items() if (shape := self._shape(name, table)) is not None}
        if tables or not before:
            with self.connected(tables) as made:
                yield made
            return
        with self._lock:
            changes = self._changes
            made, there = self._checking.pop() if self._checking else (self.cursor(), {})
        try:
            found = {name: self._with_rows(made, name, shape) for name, shape in before.items()}
            wanted = {name: shape for name, shape in found.items() if shape.rows}
            views = [table.definition for table in read.values() if isinstance(table, ViewTable)]
            named = "\n".join([text, *views]).lower()
            for name in [name for name, shape in there.items() if wanted.get(name) is not shape]:
                if name not in read and name.lower() not in named and '"' not in name:
                    continue  # no function such as query_table reads it either
                made.execute(f"DROP VIEW temp.{identifier(name)}")
                del there[name]
            for name in wanted.keys() - there.keys():
                made.execute(f"CREATE TEMP VIEW {identifier(name)} AS {wanted[name].rows}")
                there[name] = wanted[name]
            yield made
        except BaseException:
            made.close()
            raise
        with self._lock:
            if changes == self._changes and not self._checking:
                self._checking.append((made, there))
                return
        made.close()

    def _shape(self, name: str, table: SqlTable) -> _Shape | None:
        """Return the shape of a table of the context.

        None at its first check, and if nothing tells whether its files have changed.
        """
        with self._lock:
            listed, known = self._listed.get(name), self._shapes.get(name)
            if not isinstance(table, FileTable) or (listed is not None and listed.stamp is None):
                return None
            if known is not None and known.table is table and known.listed is listed:
                return known
            self._shapes[name] = _Shape(table, listed)
        return None

    def _with_rows(self, connection: duckdb.DuckDBPyConnection, name: str, shape: _Shape) -> _Shape:
        """Return the shape of a table with its columns."""
        if shape.rows is not None:
            return shape
        try:
            found = connection.sql(shape.table.rows)
            columns = zip(found.columns, found.types, strict=True)
            nothing = ", ".join(f"CAST(NULL AS {of}) AS {identifier(column)}" for column, of in columns)
            rows = f"SELECT {nothing} WHERE false"
            same = connection.sql(rows)
            made = shape._replace(rows=rows if (same.columns, same.types) == (found.columns, found.types) else "")
        except duckdb.Error:
            made = shape._replace(rows="")
        with self._lock:
            if self._shapes.get(name) is shape:
                self._shapes[name] = made
        return made

    def _close_idle(self) -> None:
        """Forget the connections that have the tables of before."""
        self._changes += 1
        while self._checking:
            self._checking.pop()[0].close()
        while self._idle:
            self._idle.pop().close()

    @property
    def session(self) -> Session:
        """The session with the workers; it starts with the first query."""
        with self._lock:
            self._check_open()
            if self._session is None:
                self._session = QuerySession(**self._options)
                self._session.stand_aside()
            return self._session

    @property
    def slots(self) -> int:
        """The number of tasks of stages that run at a time."""
        if self._options["workers"] or self._options["backend"] in ("threads", "processes"):
            return self._options["workers"] or Settings().worker_count
        return sum(len(node.workers) for node in self.session.executor.provider.nodes())

    @property
    def task_memory(self) -> int:
        """The bytes that tasks of stages compute with in each of their processes; 0 if there is no bound."""
        return self._share(1 if self._options["backend"] == "threads" else self.slots) if self._memory else 0

    def _share(self, processes: int) -> int:
        return max(self._memory // max(1, processes), LEAST_BYTES) if self._memory else 0

    @property
    def own(self) -> Session:
        """The session whose tasks run in this process, where tables in memory are."""
        with self._lock:
            self._check_open()
            if self._options["backend"] == "threads" and not self._options["durable"]:
                return self.session
            if self._own is None:
                self._own = Session("threads", workers=1)
                self._own.stand_aside()
            return self._own

    def _with(self, tables: Mapping[str, SqlTable]) -> dict[str, SqlTable]:
        """Return the tables of the context and further ones, which hide those of their names in any case."""
        own = set(map(str.lower, tables))
        return {**{name: table for name, table in self._tables.items() if name.lower() not in own}, **tables}

    def relation(self, text: str, variables: Mapping[str, object], tables: Mapping[str, SqlTable]) -> Relation:
        """Return the plan of a query, with further `tables` by name; NotCoveredError: it cannot run in stages."""
        with self._lock:
            self._check_open()
            if self._planner is None:
                self._planner = Planner(sorted(self._reached), self._folders)
            known = self._with(tables)
            for name, table in sorted(known.items(), key=lambda one: isinstance(one[1], ViewTable)):
                made, now = self._planned.get(name), stamps(table)
                if made is None or made[0] is not table or made[2] != now:
                    try:
                        made = table, self._on_disk(name, table, tables), now
                    except WeftError:  # a query that reads the table cannot be planned, and says why when it runs whole
                        self._planner.drop(name)
                        self._planned.pop(name, None)
                        continue
                with suppress(duckdb.Error):  # what a view reads was dropped
                    self._planner.add(made[1])
                self._planned[name] = made
            try:
                return self._planner.plan(text, variables)
            except duckdb.Error as error:
                raise NotCoveredError(str(error).split("\n", 1)[0]) from None

    def files(self, name: str) -> FileTable:
        """Return the Parquet files of a table that was planned."""
        with self._lock:
            return self._planned_tables().table(name)

    def splits(self, name: str) -> TableSplits:
        """Return the splits of a table that was planned."""
        with self._lock:
            planner = self._planned_tables()
            nbytes = planner.table(name).nbytes()
            each = max(2, -(-nbytes // (self.slots * LARGER * SPLIT_BYTES)))  # the tasks of each slot
            return planner.splits(name, max(SPLIT_BYTES, -(-nbytes // (self.slots * each))))

    def _planned_tables(self) -> Planner:
        self._check_open()
        assert self._planner is not None
        return self._planner

    def _on_disk(self, name: str, table: SqlTable, tables: Mapping[str, SqlTable]) -> FileTable | ViewTable:
        """Return a table as Parquet files; those of tables in memory and in other formats live with the context."""
        if isinstance(table, ViewTable) or (isinstance(table, FileTable) and table.reader == "read_parquet"):
            return table
        with self.cursor(tables) as connection:
            try:
                connection.execute(f"CREATE TEMP VIEW {ROWS} AS FROM {identifier(name)}")
                return self._stored(connection, name, described(connection))[0]
            except duckdb.Error as error:
                raise unreadable(error, name) from None

    # -------------------------------------------------------------------------------------------------------------- end

    def close(self) -> None:
        """Stop the workers and forget all tables; a second call does nothing."""
        with self._lock:
            self._closed = True
            for session in (self._session, self._own):
                if session is not None:
                    session.close()
            if self._planner is not None:
                self._planner.close()
            self._close_idle()
            self._connection.close()
            self._folder.cleanup()
            self._session = self._own = self._planner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class _Listed(NamedTuple):
    """Where the files of a table come from, the table before it was inspected, and the stamp of its files then."""

    source: Sequence[str] | None
    """Folders and patterns, with other places; None if only files were named."""
    table: FileTable
    stamp: object
    """None if nothing tells whether they have changed."""


class _Shape(NamedTuple):
    """The columns of a table, and the files that they were found in."""

    table: FileTable
    listed: _Listed | None
    rows: str | None = None
    """A query of these columns without rows; None before they are asked for, "" if no text names their types."""


def _make_view(connection: duckdb.DuckDBPyConnection, name: str, view: ViewTable) -> bool:
    """Make a view known to a connection; return whether what it reads is there."""
    try:
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {identifier(name)} {view.definition}")
    except duckdb.Error:
        return False
    return True


def _query_of(view: ViewTable) -> str:
    statement = f"CREATE VIEW {identifier(view.name)} {view.definition}"
    return read_statement(statement, duckdb.StatementType.CREATE).query


def check_bubbles(bubbles: str) -> None:
    """UsageError: no such setting of bubbles."""
    if bubbles not in BUBBLES:
        raise UsageError(f"bubbles is {bubbles!r}", hint=f"There are: {', '.join(BUBBLES)}.")


def described(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the columns of the table `ROWS` of a connection with their types."""
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {ROWS}").fetchall()}


def _register(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Make a table in memory known to a connection. DefinitionError: it has a type that DuckDB does not know."""
    apart = [at for at, field in enumerate(table.schema) if not compared_alike(field.type)]
    rows = f"{IN_MEMORY}{name}" if apart else name
    try:
        connection.register(rows, table)
    except duckdb.Error as error:
        columns = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        raise DefinitionError(
            f"the table {name} ({columns}) cannot be read: {str(error).split(': ', 1)[-1]}",
            hint="Cast the column to a type of DuckDB, or leave it out.",
        ) from None
    if apart:  # DuckDB has Arrow compare plain columns, and compares expressions itself
        found = [identifier(row[0]) for row in connection.execute(f"DESCRIBE {identifier(rows)}").fetchall()]
        same = ", ".join(f"CASE WHEN {found[at]} IS NULL THEN NULL ELSE {found[at]} END AS {found[at]}" for at in apart)
        view = f"SELECT * REPLACE ({same}) FROM {identifier(rows)}"
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {identifier(name)} AS {view}")


def _check_columns(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """SqlError: the table `ROWS` of a connection has what files of rows do not keep."""
    found = connection.execute(
        "SELECT 'DEFAULT' FROM duckdb_columns() WHERE table_name = $1 AND column_default IS NOT NULL "
        "UNION ALL SELECT constraint_type FROM duckdb_constraints() WHERE table_name = $1",
        [ROWS],
    ).fetchone()
    if found:
        raise SqlError(
            f"the table {name} has {found[0]}, which tables of queries do not keep",
            hint="Give its columns names and types only, and check the rows in queries.",
        )


def variable(caller: FrameType | None, name: str) -> Any:
    """Return a variable of the caller; None if there is none."""
    return None if caller is None else caller.f_locals.get(name, caller.f_globals.get(name))


_default: list[SqlContext] = []


def sql(text: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None, **tables: Any) -> Query:
    """Return the query `text` over the tables given by name, in the context of the process.

    Each table is what `SqlContext.register` takes; variables of the caller need not be given. The query runs when its
    rows are asked for.

    ::

        weft.sql("select city, avg(age) from people group by city", people="people.parquet").show()
    """
    if not _default:
        _default.append(SqlContext())
    for name, source in tables.items():
        _default[0].register(name, source)
    return _default[0].run_text(text, parameters, None, sys._getframe(1))
