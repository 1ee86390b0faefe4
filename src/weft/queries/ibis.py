"""A backend of Ibis: its expressions become SQL by Ibis's compiler for DuckDB, and run in a `SqlContext`.

Ibis finds this module by the entry point `weft`: `ibis.weft.connect(context)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft._version import __version__
from weft.model.errors import MissingExtraError, SqlError, UsageError
from weft.queries.context import SqlContext
from weft.queries.query import batch_rows

try:
    import ibis
    import ibis.common.exceptions as exc
    import ibis.expr.operations as ops
    import sqlglot as sg
    from ibis.backends import DirectExampleLoader, NoUrl
    from ibis.backends.duckdb.converter import DuckDBPandasData, DuckDBPyArrowData
    from ibis.backends.sql import SQLBackend
    from ibis.backends.sql.compilers import DuckDBCompiler
except ImportError as error:
    raise MissingExtraError(
        f"expressions of Ibis need {error.name}", hint="Install it: pip install 'weft[ibis]'"
    ) from None

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pyarrow as pa

    from weft.queries.query import Query


class _WeftCompiler(DuckDBCompiler):  # type: ignore[misc]
    """The compiler for DuckDB, without numbers of rows, which files have not: `ibis.row_number()` counts rows."""

    UNSUPPORTED_OPS = (*DuckDBCompiler.UNSUPPORTED_OPS, ops.RowID)


class Backend(SQLBackend, NoUrl, DirectExampleLoader):  # type: ignore[misc]
    """The tables of a `SqlContext` as tables of Ibis."""

    name = "weft"
    compiler = _WeftCompiler()
    supports_temporary_tables = True

    # ------------------------------------------------------------------------------------------------------ connections

    def do_connect(self, context: SqlContext | None = None, **options: Any) -> None:
        """Use the tables and workers of a `weft.SqlContext`; without one, those of a new one with these `options`.

        Parameters
        ----------
        context
            A context, which stays open when the backend is disconnected.
        options
            Arguments of `weft.SqlContext`.
        """
        if context is not None and options:
            raise UsageError("a context and options of a new context are given", hint="Give one of them.")
        if context is not None and not isinstance(context, SqlContext):
            raise UsageError(f"the context is {type(context).__name__}", hint="Give a weft.SqlContext.")
        self._owned = context is None
        self.con = SqlContext(**options) if context is None else context

    @classmethod
    def from_connection(cls, con: SqlContext, /) -> Backend:
        """Return a backend over a context."""
        made = cls()
        made._can_reconnect = False
        made.do_connect(con)
        return made

    def disconnect(self) -> None:
        """Close the context if the backend made it."""
        if self._owned:
            self.con.close()

    @property
    def version(self) -> str:
        """The version of Weft."""
        return __version__

    # ----------------------------------------------------------------------------------------------------------- tables

    def list_tables(self, *, like: str | None = None, database: Any = None) -> list[str]:
        """Return the names of the tables of the context."""
        _no_database(database)
        found: list[str] = self._filter_with_like(self.con.tables, like)
        return found

    def get_schema(self, table_name: str, *, catalog: str | None = None, database: str | None = None) -> Any:
        """Return the columns of a table with their types. TableNotFound: there is no such table."""
        _no_database(catalog or database)
        if table_name not in self.con.tables:
            raise exc.TableNotFound(table_name)
        return self._get_schema_using_query(f"SELECT * FROM {self._quoted(table_name)}")

    def _get_schema_using_query(self, query: str) -> Any:
        made = self._query(query)
        types = zip(made.columns, made.types, strict=True)
        return ibis.schema({name: self.compiler.type_mapper.from_string(of) for name, of in types})

    def _quoted(self, name: str) -> str:
        text: str = sg.to_identifier(name, quoted=True).sql(self.dialect)
        return text

    def create_table(
        self,
        name: str,
        /,
        obj: Any = None,
        *,
        schema: Any = None,
        database: Any = None,
        temp: bool = False,
        overwrite: bool = False,
    ) -> Any:
        """Make a table of the context from an expression or from data; of a schema alone, an empty one."""
        _no_database(database)
        if obj is None and schema is None:
            raise ValueError("Either `obj` or `schema` must be specified")
        if obj is not None and not isinstance(obj, ibis.expr.types.Expr):
            obj = ibis.memtable(obj)
        wanted = obj.schema() if schema is None else ibis.schema(schema)
        if nulls := wanted.null_fields:
            raise exc.IbisTypeError(f"A table cannot have columns of the type NULL: {nulls}")
        if name in self.con.tables and not overwrite:
            raise SqlError(f"the table {name} exists", hint="Give overwrite=True, or drop it first.")
        if obj is None:
            rows = wanted.to_pyarrow().empty_table()
        else:
            rows = self.to_pyarrow(obj if schema is None else obj.cast(dict(wanted.items())))
        self.con.register(name, rows)
        return self.table(name)

    def drop_table(self, name: str, /, *, database: Any = None, force: bool = False) -> None:
        """Forget a table of the context; its files stay. TableNotFound: there is no such table."""
        _no_database(database)
        if name in self.con.tables:
            self.con.forget(name)
        elif not force:
            raise exc.TableNotFound(name)

    def insert(self, name: str, /, obj: Any, *, database: Any = None, overwrite: bool = False) -> None:
        """Add rows to a table, or with `overwrite` replace its rows. A table in files becomes one in memory."""
        table = self.table(name, database=database)
        if not isinstance(obj, ibis.expr.types.Expr):
            obj = ibis.memtable(obj)
        if not set(obj.columns) <= set(table.columns):
            obj = obj.rename(dict(zip(table.columns, obj.columns, strict=True)))
        missing = {column: ibis.null(of) for column, of in table.schema().items() if column not in obj.columns}
        rows = obj.mutate(**missing).select(*table.columns).cast(dict(table.schema().items()))
        self.create_table(name, rows if overwrite else table.union(rows), overwrite=True)

    def truncate_table(self, name: str, /, *, database: Any = None) -> None:
        """Delete all rows of a table."""
        self.create_table(name, schema=self.table(name, database=database).schema(), overwrite=True)

    def upsert(self, name: str, /, obj: Any, on: str, *, database: Any = None) -> None:
        """Put rows in place of those with the same value of `on`, and add the others. It becomes a table in memory.

        Columns that `obj` lacks keep their values, and are NULL in rows that are added.
        """
        table = self.table(name, database=database)
        if not isinstance(obj, ibis.expr.types.Expr):
            obj = ibis.memtable(obj)
        for column in (on, *obj.columns):
            if column not in table.columns:
                raise exc.IbisInputError(f"The table {name} has no column {column}")
        if on not in obj.columns:
            raise exc.IbisInputError(f"The rows have no column {on}, by which they are found")
        kept = table.select(on, *[column for column in table.columns if column not in obj.columns])
        changed = obj.left_join(kept, on).select(*table.columns).cast(dict(table.schema().items()))
        self.create_table(name, table.anti_join(obj, on).union(changed), overwrite=True)

    def create_view(self, name: str, /, obj: Any, *, database: Any = None, overwrite: bool = False) -> Any:
        """Name an expression; its rows are computed anew wherever the name is read."""
        _no_database(database)
        if name in self.con.tables and not overwrite:
            raise SqlError(f"the table {name} exists", hint="Give overwrite=True, or drop it first.")
        self._run_pre_execute_hooks(obj)
        self._query(f"CREATE OR REPLACE VIEW {self._quoted(name)} AS {self.compile(obj)}")
        return self.table(name)

    def drop_view(self, name: str, /, *, database: Any = None, force: bool = False) -> None:
        """Remove a view. TableNotFound: there is no such view."""
        self.drop_table(name, database=database, force=force)

    def read_parquet(
        self, paths: str | os.PathLike[str] | Sequence[str], /, *, table_name: str | None = None, **kwargs: Any
    ) -> Any:
        """Register Parquet files as a table."""
        return self._registered("parquet", paths, table_name, kwargs)

    def read_csv(
        self, paths: str | os.PathLike[str] | Sequence[str], /, *, table_name: str | None = None, **kwargs: Any
    ) -> Any:
        """Register CSV files as a table."""
        return self._registered("csv", paths, table_name, kwargs)

    def read_json(
        self, paths: str | os.PathLike[str] | Sequence[str], /, *, table_name: str | None = None, **kwargs: Any
    ) -> Any:
        """Register files of JSON objects, one a line or in an array, as a table."""
        return self._registered("json", paths, table_name, kwargs)

    def _registered(self, of: str, source: Any, name: str | None, options: Mapping[str, Any]) -> Any:
        if options:
            raise exc.UnsupportedArgumentError(f"read_{of} takes no {', '.join(options)}")
        name = name or ibis.util.gen_name(f"read_{of}")
        self.con.register(name, source)
        return self.table(name)

    def _register_in_memory_table(self, op: Any) -> None:
        self.con.register(op.name, op.data.to_pyarrow(op.schema))

    def _make_memtable_finalizer(self, name: str) -> None:
        """Tables in memory end with the context."""

    # ---------------------------------------------------------------------------------------------------------- queries

    def raw_sql(self, query: Any, **kwargs: Any) -> Query:
        """Return the query of a text; it runs when its rows are asked for."""
        text = query if isinstance(query, str) else query.sql(dialect=self.dialect)
        return self._query(text)

    @contextmanager
    def _safe_raw_sql(self, query: Any, **kwargs: Any) -> Iterator[Query]:
        yield self.raw_sql(query, **kwargs)

    def _query(self, text: str, mode: str | None = None) -> Query:
        return self.con.sql(text, mode=mode)

    def _register_udfs(self, expr: Any) -> None:
        """Refuse functions in Python, which would have to travel to the workers."""
        for node in expr.op().find(ops.ScalarUDF):
            if node.__input_type__ is not ops.udf.InputType.BUILTIN:
                raise exc.UnsupportedOperationError(
                    f"{node.__func_name__} is a function in Python, which SQL cannot call"
                )

    def to_query(self, expr: Any, /, *, params: Any = None, limit: Any = None, mode: str | None = None) -> Query:
        """Return the query of an expression, which has `explain`. `mode` overrides that of the context."""
        self._run_pre_execute_hooks(expr)
        return self._query(self.compile(expr.as_table(), params=params, limit=limit), mode)

    def execute(
        self, expr: Any, /, *, params: Any = None, limit: Any = None, mode: str | None = None, **kwargs: Any
    ) -> Any:
        """Return the rows of an expression as a data frame, a series or a scalar."""
        table = self.to_query(expr, params=params, limit=limit, mode=mode).arrow()
        columns = {name: _values(column) for name, column in zip(table.column_names, table.columns, strict=True)}
        frame = DuckDBPandasData.convert_table(import_module("pandas").DataFrame(columns), expr.as_table().schema())
        return expr.__pandas_result__(frame)

    def to_pyarrow(
        self, expr: Any, /, *, params: Any = None, limit: Any = None, mode: str | None = None, **kwargs: Any
    ) -> Any:
        """Return the rows of an expression as an Arrow table, array or scalar."""
        table = self.to_query(expr, params=params, limit=limit, mode=mode).arrow()
        return expr.__pyarrow_result__(table, data_mapper=DuckDBPyArrowData)

    def to_pyarrow_batches(
        self,
        expr: Any,
        /,
        *,
        params: Any = None,
        limit: Any = None,
        chunk_size: int = 1_000_000,
        mode: str | None = None,
        **_: Any,
    ) -> pa.ipc.RecordBatchReader:
        """Return the rows of an expression as a stream of Arrow batches."""
        import pyarrow as pa

        rows_each = batch_rows("chunk_size", chunk_size)
        table = expr.as_table()
        schema = table.schema()
        found = self.to_query(table, params=params, limit=limit, mode=mode).arrow()
        rows = DuckDBPyArrowData.convert_table(found, schema)
        return pa.ipc.RecordBatchReader.from_batches(schema.to_pyarrow(), rows.to_batches(max_chunksize=rows_each))

    def to_json(
        self,
        expr: Any,
        /,
        path: str | os.PathLike[str],
        *,
        compression: str = "auto",
        dateformat: str | None = None,
        timestampformat: str | None = None,
    ) -> None:
        """Write the rows of an expression to a file: an array of JSON objects. `path` may be a URL of fsspec.

        `compression` is "none", "gzip", "zstd" or "auto", by the end of the path.
        """
        if dateformat or timestampformat:
            raise exc.UnsupportedArgumentError("to_json writes dates and moments as DuckDB does, in no other format")
        self.to_query(expr).write_json(path, compression)


def _no_database(database: Any) -> None:
    if database is not None:
        raise exc.UnsupportedOperationError("Tables of Weft are in one database, which has no name")


def _values(column: pa.ChunkedArray) -> Any:
    """Return the values of a column for pandas, as lists where its arrays cannot hold them."""
    import pyarrow.types as of

    plain = not (of.is_nested(column.type) or of.is_dictionary(column.type) or column.null_count)
    return column.to_pandas() if plain else column.to_pylist()
