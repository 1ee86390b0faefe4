"""What statements do: they make, fill and drop tables and views, and write files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import duckdb

from weft.frontends.sql.expressions import identifier, literal
from weft.frontends.sql.mistakes import mistake, mistake_in_place
from weft.frontends.sql.tables import FileTable, ViewTable
from weft.model.errors import SqlError
from weft.queries.advice import advised
from weft.queries.catalogue import described
from weft.queries.connections import ROWS, rows_named
from weft.queries.executing import executed
from weft.queries.query import INTERRUPTED
from weft.queries.sources import outside
from weft.queries.writing import replaced, replaced_folder
from weft.store.filesystems import is_url

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.queries.catalogue import Catalogue
    from weft.queries.query import Parameters, Query
    from weft.queries.sources import Grants, SqlTable
    from weft.queries.statements import Statement

_SEVERAL: Final = re.compile(r"(?i)\b(?:PARTITION_BY|PER_THREAD_OUTPUT|FILE_SIZE_BYTES|ROW_GROUPS_PER_FILE)\b")
"""Options of COPY that make a folder of files."""
_OVERWRITE: Final = re.compile(r"(?i)\bOVERWRITE\b(?!\s+'?(?:false|0|off|no)\b)")
_FORMAT: Final = re.compile(r"(?i)\bFORMAT\s+['\"]?(\w+)")


def _is_there(catalogue: Catalogue, statement: Statement) -> bool:
    """Whether a statement has nothing to do. SqlError: what it makes exists."""
    if not catalogue.known(statement.name) or statement.replace:
        return False
    if statement.lenient:
        return True
    raise SqlError(
        f"the table {statement.name} exists",
        hint=f"Write CREATE OR REPLACE, or drop it first: DROP TABLE {statement.name}.",
    )


def define_view(
    catalogue: Catalogue, statement: Statement, tables: Mapping[str, SqlTable], check: Callable[[], object]
) -> int:
    """Make a view, and tables of the further ones that it reads; `check` raises what is wrong with its query."""
    if _is_there(catalogue, statement):
        return 0
    check()
    if (there := catalogue.known(statement.name)) and there in catalogue.read_in(statement.query):
        raise SqlError(
            f"the view {statement.name} would read itself, and the table {there} would be gone",
            hint="Give the view another name.",
        )
    for name, table in tables.items():  # a view outlives the variables of its caller
        catalogue.add(name, table)
    catalogue.add(statement.name, ViewTable(statement.name, statement.body))
    return 0


def drop_table(catalogue: Catalogue, statement: Statement) -> int:
    """Drop a table or a view. SqlError: there is none."""
    with catalogue.lock:
        if not catalogue.remove(statement.name) and not statement.lenient:
            known = f"There are: {', '.join(catalogue.names)}." if catalogue.names else "There is none."
            raise SqlError(f"there is no table {statement.name}", hint=known)
    return 0


def make_table(catalogue: Catalogue, statement: Statement, rows: Query) -> int:
    """Make a table of the rows of a query; return their number. SqlError: two columns have one name."""
    if _is_there(catalogue, statement):
        return 0
    for name, own in zip(rows.columns, rows.own_columns, strict=True):
        if name != own:
            first = next(one for one in rows.columns if one.lower() == name.lower())
            both = name if first == name else f"{first} and {name}, which is one name in SQL"
            message = f"two columns of the table {statement.name} are called {both}"
            raise SqlError(message, hint="Rename one with AS.")
    types = dict(zip(rows.columns, rows.types, strict=True))
    with rows.reader() as reader, catalogue.cursor() as connection:
        connection.register(ROWS, reader)
        table, count = catalogue.stored(connection, statement.name, types, rows)
    catalogue.add(statement.name, table)
    return count


def make_empty_table(catalogue: Catalogue, statement: Statement, text: str) -> int:
    """Make a table from the definitions of its columns."""
    if _is_there(catalogue, statement):
        return 0
    with catalogue.cursor() as connection:
        made = f"CREATE TEMP TABLE {ROWS} {statement.body}"
        _executed(connection, made, None, text)
        _check_columns(connection, statement.name)
        table, count = catalogue.stored(connection, statement.name, described(connection))
    catalogue.add(statement.name, table)
    return count


def insert_rows(
    catalogue: Catalogue, statement: Statement, text: str, parameters: Parameters, tables: Mapping[str, SqlTable]
) -> tuple[int, pa.Table]:
    """Add rows to a table; return their number, and what DuckDB answers. SqlError: it is no table of a statement."""
    known = catalogue.known(statement.name)
    table = catalogue.table(known)
    if not isinstance(table, FileTable) or not table.files[0].startswith(f"{catalogue.folder}/"):
        raise SqlError(
            f"{statement.name} is no table that takes rows",
            hint=f"Make it first: CREATE TABLE {statement.name} AS SELECT ...",
        )
    with catalogue.cursor(tables) as connection:
        connection.execute(f"CREATE TEMP TABLE {ROWS} AS SELECT * FROM {identifier(known)} LIMIT 0")
        changed = f"{text[: statement.at]}{ROWS}{text[statement.end :]}"
        try:
            answer = executed(connection, changed, parameters).to_arrow_table()
        except duckdb.Error as error:
            raise advised(mistake_in_place(error, text, statement.at, statement.end, ROWS)) from None
        more, count = catalogue.stored(connection, known, described(connection))
    catalogue.add(known, replace(table, files=table.files + more.files))
    return count, answer


def copy_rows(catalogue: Catalogue, grants: Grants, statement: Statement, rows: Query) -> int:
    """Write the rows of a query to a file or a folder; return their number. ForbiddenError: it was not granted."""
    path = statement.name if is_url(statement.name) else os.path.abspath(statement.name)
    if not grants.may_write(path):
        raise outside("COPY ... TO", path)
    renamed = rows_named(rows.file_columns())
    whole = _SEVERAL.search(statement.options) is None
    with ExitStack() as undo:
        if whole:
            place = undo.enter_context(replaced(path, catalogue.folder))
        elif _OVERWRITE.search(statement.options):
            of = _FORMAT.search(statement.options)
            place = undo.enter_context(replaced_folder(path, f".{of[1].lower()}" if of else ".csv"))
        else:
            place = path
        reader, connection = undo.enter_context(rows.reader()), undo.enter_context(catalogue.cursor())
        connection.register(ROWS, reader.__arrow_c_stream__())  # a reader with equal names is refused
        copy = f"COPY (FROM {renamed}) TO {literal(place)} {statement.options}"
        row = _executed(connection, copy, None, statement.query, rows).fetchone()
    return int(row[0]) if row else 0


def _executed(
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
