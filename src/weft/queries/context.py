"""Tables by name, and the workers that run queries over them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import duckdb
import pyarrow as pa

from weft.admin.settings import Settings
from weft.frontends.sql.expressions import identifier
from weft.frontends.sql.mistakes import mistake
from weft.frontends.sql.tables import ViewTable
from weft.model.errors import SqlError, UsageError
from weft.model.wording import type_of
from weft.queries.catalogue import Catalogue, view_query
from weft.queries.changes import copy_rows, define_view, drop_table, insert_rows, make_empty_table, make_table
from weft.queries.connections import plain
from weft.queries.planned import PlannedTables
from weft.queries.query import Query
from weft.queries.sources import (
    Grants,
    arrow_table,
    file_table,
    listed,
    plain_parameters,
    reader_of,
    table_of,
)
from weft.queries.statements import read_statement, referenced
from weft.runs.sessions import checked_cluster, size_of, state_folder
from weft.runtime import arguments
from weft.store.scratch import ScratchFolder
from weft.wiring.bubbles import BUBBLES
from weft.wiring.concrete import check_backend
from weft.wiring.session import Session, check_cluster

if TYPE_CHECKING:
    import os
    from types import FrameType, TracebackType

    from weft.model.clusters import ClusterOptions
    from weft.queries.sources import SqlTable
    from weft.queries.statements import Statement

MODES: Final = ("auto", "whole", "stages")
LEAST_BYTES: Final = 256 << 20
"""The memory that DuckDB may take in a process in any case; with less it cannot spill."""
ANSWER: Final = "weft_answer"
"""The name of the rows that a statement gives."""


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
        self._grants = Grants(allow)
        # A durable query that is resumed after a kill reads what the killed process has written.
        self._folder = tempfile.TemporaryDirectory(prefix="weft-sql-") if durable else ScratchFolder("sql")
        self.catalogue = Catalogue(self._folder.name, self._grants.folders, self._share(1))
        self.planned = PlannedTables(self.catalogue)
        self._session: Session | None = None
        self._own: Session | None = None

    # ----------------------------------------------------------------------------------------------------------- tables

    def register(self, name: str, source: Any) -> None:
        """Add a table, or replace that of the same name.

        `source` is a path, a pattern or a folder of Parquet, CSV or JSON files, a URL of fsspec, a list of these, an
        Arrow table, a data frame of pandas or Polars, or a query. NotFoundError: there are no such files. UsageError:
        another kind of source.
        """
        if not isinstance(name, str) or not name:
            raise UsageError(f"the name of the table is {name!r}", hint="Give it a name: register('people', ...).")
        self.catalogue.check_open()
        table = source.as_table(name, self) if isinstance(source, Query) else table_of(name, source)
        self.catalogue.register(name, table, partial(listed, source))

    def forget(self, name: str) -> None:
        """Remove a table; its files stay. NotFoundError: there is no such table."""
        self.catalogue.forget(name)

    @property
    def tables(self) -> list[str]:
        """The names of all tables."""
        return self.catalogue.names

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
            return self._of_rows(insert_rows(self.catalogue, statement, text, parameters, tables)[1])
        if statement.action == "view":
            query = partial(Query, self, statement.query, None, "whole", tables, variable=known)
            count = define_view(self.catalogue, statement, tables, query)
        elif statement.action == "drop":
            count = drop_table(self.catalogue, statement)
        elif statement.action == "insert":
            count, _ = insert_rows(self.catalogue, statement, text, parameters, tables)
        elif statement.query:
            rows = Query(self, statement.query, parameters, mode, tables, bubbles, known)
            if statement.action == "copy":
                count = copy_rows(self.catalogue, self._grants, statement, rows)
            else:
                count = make_table(self.catalogue, statement, rows)
        else:
            count = make_empty_table(self.catalogue, statement, text)
        return Query(self, "SELECT CAST($1 AS BIGINT) AS count", [count], "whole")

    def _of_rows(self, rows: pa.Table) -> Query:
        """Return rows as a query; several columns may have one name."""
        names = [f"c{at}" for at in range(rows.num_columns)]
        columns = (f"{name} AS {identifier(own)}" for name, own in zip(names, rows.column_names, strict=True))
        text = f"SELECT {', '.join(columns)} FROM {ANSWER}"
        return Query(self, text, None, "whole", {ANSWER: rows.rename_columns(names)})

    def _read(self, text: str) -> Statement:
        with self.catalogue.open_cursor() as connection:
            try:
                found = connection.extract_statements(text)
                if len(found) != 1 and text.lstrip()[:5].lower() == "pivot":  # DuckDB makes several of it
                    hint = "Write it as FROM t PIVOT (count(*) FOR column IN (value, ...) GROUP BY key)."
                    raise SqlError("PIVOT without its values is several statements, and one is needed", hint=hint)
                if len(found) != 1:
                    hint = "Call sql for each of them." if found else "Write a query, such as SELECT * FROM t."
                    raise SqlError(f"one statement is needed, and there are {len(found)}", hint=hint)
            except duckdb.Error as error:
                raise mistake(error, text) from None
        return read_statement(text, found[0].type)

    def _found(self, query: str, caller: FrameType | None) -> tuple[Mapping[str, SqlTable], Mapping[str, SqlTable]]:
        """Return the tables that a query names: files behind FROM and variables, and those of the context."""
        with self.catalogue.lock, plain() as connection:
            asked = sorted(referenced(connection, query))
            names = [name for name in asked if not self.catalogue.known(name)]
        read = self.catalogue.read_now([name for name in asked if name not in names])
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
                found[name] = self.catalogue.inspected(files)
        views = [table for table in found.values() if isinstance(table, ViewTable)]
        with plain() as connection:
            asked_by_views = [name for view in views for name in referenced(connection, view_query(view))]
        return found, read | self.catalogue.read_now(asked_by_views)

    # ---------------------------------------------------------------------------------------- what a query asks for

    @property
    def session(self) -> Session:
        """The session with the workers; it starts with the first query."""
        with self.catalogue.lock:
            self.catalogue.check_open()
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
        with self.catalogue.lock:
            self.catalogue.check_open()
            if self._options["backend"] == "threads" and not self._options["durable"]:
                return self.session
            if self._own is None:
                self._own = Session("threads", workers=1)
                self._own.stand_aside()
            return self._own

    # -------------------------------------------------------------------------------------------------------------- end

    def close(self) -> None:
        """Stop the workers and forget all tables; a second call does nothing."""
        with self.catalogue.lock:
            for session in (self._session, self._own):
                if session is not None:
                    session.close()
            self.planned.close()
            self.catalogue.close()
            self._folder.cleanup()
            self._session = self._own = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def check_bubbles(bubbles: str) -> None:
    """UsageError: no such setting of bubbles."""
    if bubbles not in BUBBLES:
        raise UsageError(f"bubbles is {bubbles!r}", hint=f"There are: {', '.join(BUBBLES)}.")


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
