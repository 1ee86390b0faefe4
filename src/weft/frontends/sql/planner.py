"""Plans a query with DuckDB's own binder and optimiser, so that all ways to run it share one semantics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.frontends.sql.databases import open_database
from weft.frontends.sql.expressions import Json, NotCoveredError, identifier
from weft.frontends.sql.reading import DISABLED_OPTIMIZERS, read_plan
from weft.frontends.sql.tables import FileTable, TableSplits, ViewTable

if TYPE_CHECKING:
    from weft.frontends.sql.relations import Relation


class Planner:
    """Plans queries over tables in files; its database holds views and no rows, and reaches `files` and `folders`."""

    def __init__(self, files: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
        self._connection = open_database(
            files=files, folders=folders, threads=1, disabled_optimizers=DISABLED_OPTIMIZERS
        )
        self._tables: dict[tuple[str, ...], FileTable] = {}
        self._named: dict[str, FileTable] = {}
        self._seen: dict[
            str, tuple[FileTable, object]
        ] = {}  # the tables that were added, with the stamps of their files
        self._splits: dict[tuple[str, int], tuple[FileTable, object, TableSplits]] = {}

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def add(self, table: FileTable | ViewTable) -> None:
        """Add a table, or replace that of the same name, unless it is the same and its files have not changed."""
        name = identifier(table.name)
        if isinstance(table, ViewTable):
            self._seen.pop(table.name.lower(), None)
            self._connection.execute(f"CREATE OR REPLACE VIEW {name} {table.definition}")
            return
        stamp = table.stamp()
        if stamp is not None and self._seen.get(table.name.lower()) == (table, stamp):
            return
        self._seen[table.name.lower()] = table, stamp
        self._connection.execute(f"CREATE OR REPLACE VIEW {name} AS {table.rows}")
        if table.hive or table.merged:
            described = self._connection.execute(f"DESCRIBE {name}").fetchall()
            table = replace(table, columns=tuple((row[0], row[1]) for row in described))
        part = f"{table.name} (part "
        self._tables = {files: other for files, other in self._tables.items() if not other.name.startswith(part)}
        self._tables[table.files] = self._named[table.name] = table

    def drop(self, name: str) -> None:
        """Forget a table that cannot be read any more."""
        self._seen.pop(name.lower(), None)
        self._connection.execute(f"DROP VIEW IF EXISTS {identifier(name)}")

    def table(self, name: str) -> FileTable:
        """Return the table of a name."""
        return self._named[name]

    def splits(self, name: str, target: int) -> TableSplits:
        """Return the splits of the table of a name, of about `target` bytes each."""
        table = self._named[name]
        stamp = table.stamp()
        known = self._splits.get((name, target))
        if known is not None and stamp is not None and known[:2] == (table, stamp):
            return known[2]
        made = table.splits(self._connection, target)
        self._splits[name, target] = table, stamp, made
        return made

    def plan(self, text: str, variables: Mapping[str, object]) -> Relation:
        """Return the optimised plan of one SELECT; NotCoveredError: it cannot run in stages."""
        for name, value in variables.items():
            self._connection.execute(f"SET VARIABLE {identifier(name)} = $1", [value])
        row = self._connection.execute("SELECT json_serialize_plan($1, optimize := true)", [text]).fetchone()
        assert row is not None
        try:
            answer = json.loads(row[0])
        except ValueError:  # DuckDB writes the bytes of some constants as they are
            raise NotCoveredError("a constant that the plan does not hold as text") from None
        if answer["error"]:
            raise NotCoveredError(f"the plan ({answer['error_message']})")
        if len(answer["plans"]) != 1:
            raise NotCoveredError("several statements")
        return read_plan(answer["plans"][0], self._table)

    def _table(self, node: Json) -> str:
        files = tuple((node.get("function_data") or {}).get("files") or ())
        table = self._tables.get(files)
        if table is None:
            table = self._pruned(files)
        if table is None:
            raise NotCoveredError(f"a scan by {node['name']}")
        return table.name

    def _pruned(self, files: tuple[str, ...]) -> FileTable | None:
        """Return the part of a table that is left once DuckDB has taken out files by the values in their paths."""
        for table in list(self._tables.values()):
            if table.hive and files and set(files) <= set(table.files):
                number = sum(name.startswith(f"{table.name} (part ") for name in self._named)
                sizes = dict(zip(table.files, table.sizes, strict=False))
                left = tuple(sizes[file] for file in files) if sizes else ()
                part = replace(table, name=f"{table.name} (part {number})", files=files, sizes=left)
                self._tables[files] = self._named[part.name] = part
                return part
        return None
