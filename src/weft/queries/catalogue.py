"""The tables of a context by name, in a database that reaches their files alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import duckdb
import pyarrow as pa

from weft.frontends.sql.databases import open_database
from weft.frontends.sql.expressions import identifier
from weft.frontends.sql.mistakes import unreadable
from weft.frontends.sql.tables import FileTable, ViewTable
from weft.model.errors import ConflictError, DefinitionError, NotFoundError, SqlError
from weft.model.suggestions import did_you_mean
from weft.queries.connections import ROWS, plain
from weft.queries.inspecting import inspected
from weft.queries.sources import compared_alike, listed_again
from weft.queries.statements import read_statement, referenced
from weft.queries.storing import store_rows

if TYPE_CHECKING:
    from weft.queries.executing import Interruptible
    from weft.queries.sources import SqlTable

IDLE_CONNECTIONS: Final = 4
"""The connections that wait for the next query, at most."""
NONE: Final[Mapping[str, SqlTable]] = MappingProxyType({})
IN_MEMORY: Final = "weft_memory_"
"""The beginning of the name of rows in memory whose table is a view of them."""


class Catalogue:
    """The tables by name, and the connections that have them.

    `folder` is for the rows of tables that statements make, and for what DuckDB spills beyond `memory` bytes (0: its
    own bound). Queries reach this folder and those `granted`, beside the files of tables. `lock` guards all of it;
    `forgetting` is told the name of each table that goes.
    """

    def __init__(self, folder: str, granted: Sequence[str], memory: int) -> None:
        self.folder = folder
        self.folders = [f"{folder}/", *granted]
        self.lock = threading.RLock()
        self.forgetting: list[Callable[[str], object]] = []
        self._memory = memory
        self._opened = 0
        self._written = 0
        self.reached: frozenset[str] = frozenset()
        """The files of tables outside of `folders`."""
        self._tables: dict[str, SqlTable] = {}
        self._listed: dict[str, _Listed] = {}
        self._idle: list[duckdb.DuckDBPyConnection] = []  # with the tables of now
        self._checking: list[tuple[duckdb.DuckDBPyConnection, dict[str, _Shape]]] = []  # idle; one at most
        self._shapes: dict[str, _Shape] = {}
        self._changes = 0
        self._closed = False
        self._connection = self._open()

    def check_open(self) -> None:
        """ConflictError: it is closed."""
        if self._closed:
            raise ConflictError("the context of the query is closed", hint="Open another one: weft.SqlContext().")

    def _open(self) -> duckdb.DuckDBPyConnection:
        self._opened += 1
        spill = f"{self.folder}/spill-{self._opened}"
        made = open_database(files=sorted(self.reached), folders=self.folders, memory=self._memory, spill=spill)
        for name, table in self._tables.items():
            if isinstance(table, FileTable):
                made.execute(f"CREATE VIEW {identifier(name)} AS {table.rows}")
        return made

    def close(self) -> None:
        """Forget all tables; a second call does nothing."""
        with self.lock:
            self._closed = True
            self._close_idle()
            self._connection.close()

    # ----------------------------------------------------------------------------------------------------------- tables

    def register(self, name: str, table: SqlTable, places: Callable[[FileTable], Sequence[str] | None]) -> None:
        """Add a table of the user, or replace that of the same name; `places` are those of files, as of `listed`.

        DefinitionError: its files do not fit together.
        """
        if not isinstance(table, FileTable):
            self.add(name, table)
            return
        stamp = table.stamp()  # before its files are looked at: what changes meanwhile is looked at again
        with self.lock:
            self.add(name, self.inspected(table))
            self._listed[name] = _Listed(places(table), table, stamp)

    def _list_again(self, name: str) -> bool:
        """Take the files that a table has now, if others have come or gone, or some have changed; return whether."""
        with self.lock:
            known = self._listed.get(name)
        if known is None:
            return False
        table, stamp = listed_again(known.table, known.source)
        if table == known.table and stamp in (known.stamp, None):  # None: at URLs, or gone, which the query tells
            if stamp != known.stamp:
                with self.lock:
                    if self._listed.get(name) is known:
                        self._listed[name] = known._replace(stamp=None)
            return False
        made = self.inspected(table)
        with self.lock:
            if self._listed.get(name) is not known:  # another query did it, or the table was replaced
                return True
            if made != self._tables[name]:
                self.add(name, made)
            self._listed[name] = known._replace(table=table, stamp=stamp)
        return True

    def inspected(self, table: FileTable) -> FileTable:
        """Return a table of files of the user as it is to be read. DefinitionError: its files do not fit together."""
        with self.lock:
            self.check_open()
            self._reach(table)
            connection = self._connection.cursor()
        with connection:
            return inspected(table, connection)

    def add(self, name: str, table: SqlTable) -> None:
        """Add a table, or replace that of the same name. DefinitionError: it cannot be read."""
        with self.lock:
            self.check_open()
            self.remove(name)
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
        with self.lock:
            self.check_open()
            if not self.remove(name):
                raise NotFoundError(f"there is no table {name!r}", hint=did_you_mean(name, self._tables))

    def remove(self, name: str) -> bool:
        """Forget a table; return whether there was one."""
        known = self.known(name)
        if known:
            self._close_idle()
            self._connection.execute(f"DROP VIEW IF EXISTS {identifier(known)}")
            del self._tables[known]
            self._listed.pop(known, None)
            self._shapes.pop(known, None)
            for forget in self.forgetting:
                forget(known)
        return bool(known)

    def known(self, name: str) -> str:
        """Return the name of a table in its own letters, "" if there is none."""
        return next((one for one in self._tables if one.lower() == name.lower()), "")

    def _reach(self, table: FileTable) -> None:
        """Open the database again if it cannot read the files of a table."""
        inside = tuple(self.folders)
        missing = [file for file in table.files if file not in self.reached and not file.startswith(inside)]
        if missing:
            self.reached |= frozenset(missing)
            self._close_idle()
            self._connection, old = self._open(), self._connection
            old.close()

    @property
    def names(self) -> list[str]:
        """The names of all tables."""
        return sorted(self._tables)

    def table(self, name: str) -> SqlTable | None:
        """Return the table of a name in its own letters; None if there is none."""
        return self._tables.get(name)

    def with_others(self, tables: Mapping[str, SqlTable]) -> dict[str, SqlTable]:
        """Return the tables of the context and further ones, which hide those of their names in any case."""
        own = set(map(str.lower, tables))
        return {**{name: table for name, table in self._tables.items() if name.lower() not in own}, **tables}

    def read_now(self, names: Sequence[str]) -> dict[str, SqlTable]:
        """Return the tables of the context that a query of now reads, with the files of now."""
        with self.lock, plain() as connection:
            read = self._read_through(connection, names)
        changed = list(map(self._list_again, read))
        if any(changed):
            with self.lock, plain() as connection:
                read = self._read_through(connection, names)
        return read

    def _read_through(self, connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> dict[str, SqlTable]:
        """Return the tables of the context of some names, and those that views among them read."""
        read: dict[str, SqlTable] = {}
        asked = list(names)
        while asked:
            name = self.known(asked.pop())
            if name and name not in read:
                table = read[name] = self._tables[name]
                if isinstance(table, ViewTable):
                    asked += referenced(connection, view_query(table))
        return read

    def replaced(self, tables: Mapping[str, SqlTable]) -> bool:
        """Whether one of these tables of the context has another table of its name in its place."""
        with self.lock:
            return any((now := self.known(name)) and self._tables[now] is not was for name, was in tables.items())

    def stamped(self, names: Iterable[str]) -> list[tuple[FileTable, object]]:
        """Return the tables in files of this machine, with their stamps at the last look at them."""
        with self.lock:
            listed = [self._listed[name] for name in names if name in self._listed]
        return [(one.table, one.stamp) for one in listed if one.stamp is not None]

    def read_in(self, query: str) -> set[str]:
        """Return the tables of the context that a query reads, itself or through views.

        SqlError: one of these views reads a table that is gone.
        """
        with self.lock, plain() as connection:
            asked, seen = [query], set[str]()
            while asked:
                for name in {*map(self.known, referenced(connection, asked.pop()))} - seen:
                    seen.add(name)
                    if isinstance(view := self._tables.get(name), ViewTable):
                        asked.append(self._read_by(connection, view))
        return seen

    def _read_by(self, connection: duckdb.DuckDBPyConnection, view: ViewTable) -> str:
        """Return the query of a view. SqlError: a table that it reads is gone."""
        name, query = identifier(view.name), view_query(view)
        for read in sorted(referenced(connection, query)):
            if not self.known(read):
                raise SqlError(
                    f"the view {view.name} reads the table {read}, which is gone",
                    hint=f"Make {read} again, or drop the view: DROP VIEW {name}.",
                )
        return query

    def stored(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        types: Mapping[str, str],
        read: Interruptible | None = None,
    ) -> tuple[FileTable, int]:
        """Write the table `ROWS` of a connection to a file of the context; return it as a table, and its rows."""
        path, select, count = store_rows(connection, ROWS, types, self._new_file, read)
        return FileTable(name, "read_parquet", (path,), select=select).with_columns(types), count

    def _new_file(self) -> str:
        with self.lock:
            self._written += 1
            return f"{self.folder}/{self._written}.parquet"

    # ------------------------------------------------------------------------------------------------------ connections

    def open_cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection of its own that has tables in files alone."""
        with self.lock:
            self.check_open()
            return self._connection.cursor()

    def cursor(self, tables: Mapping[str, SqlTable] = NONE) -> duckdb.DuckDBPyConnection:
        """Return a connection of its own for one query, with further `tables` by name.

        Tables in memory belong to one connection.
        """
        with self.lock:
            self.check_open()
            made = self._connection.cursor()
            for name, table in tables.items():
                if isinstance(table, FileTable):
                    made.execute(f"CREATE TEMP VIEW {identifier(name)} AS {table.rows}")
            known = self.with_others(tables)
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

    @contextmanager
    def connected(self, tables: Mapping[str, SqlTable] = NONE) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a connection for a query that leaves nothing in it, with further `tables` by name.

        Without such tables it is used again: to make a table in memory known costs more than to bind a query.
        """
        with self.lock:
            changes = self._changes
            made = self._idle.pop() if self._idle and not tables else self.cursor(tables)
        try:
            yield made
        except BaseException:
            made.close()
            raise
        with self.lock:
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
        with self.lock:
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
        with self.lock:
            if changes == self._changes and not self._checking:
                self._checking.append((made, there))
                return
        made.close()

    def _shape(self, name: str, table: SqlTable) -> _Shape | None:
        """Return the shape of a table of the context.

        None at its first check, and if nothing tells whether its files have changed.
        """
        with self.lock:
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
        with self.lock:
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


def view_query(view: ViewTable) -> str:
    """Return the query of a view."""
    statement = f"CREATE VIEW {identifier(view.name)} {view.definition}"
    return read_statement(statement, duckdb.StatementType.CREATE).query


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
