"""The plans of queries that run in stages, over the Parquet files of their tables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import duckdb

from weft.frontends.sql.expressions import NotCoveredError, identifier
from weft.frontends.sql.mistakes import unreadable
from weft.frontends.sql.planner import Planner
from weft.frontends.sql.tables import FileTable, ViewTable
from weft.model.errors import WeftError
from weft.queries.catalogue import described
from weft.queries.connections import ROWS
from weft.queries.sources import stamps

if TYPE_CHECKING:
    from weft.frontends.sql.relations import Relation
    from weft.frontends.sql.tables import TableSplits
    from weft.queries.catalogue import Catalogue
    from weft.queries.sources import SqlTable, Stamps

SPLIT_BYTES: Final = 32 << 20
"""The compressed bytes of a table that one task scans, at least."""
LARGER: Final = 64
"""One task scans at most this many times as much; all slots have equally many tasks then, two at least.

A task looks at the bounds of all row groups of its file, and makes a hash table of each table that it is given whole.
"""


class PlannedTables:
    """The tables of a catalogue as a planner has them: those in memory and in other formats as Parquet files."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._planner: Planner | None = None
        self._reached = catalogue.reached
        self._made: dict[str, tuple[SqlTable, FileTable | ViewTable, Stamps]] = {}
        catalogue.forgetting.append(lambda name: self._made.pop(name, None))

    def relation(self, text: str, variables: Mapping[str, object], tables: Mapping[str, SqlTable]) -> Relation:
        """Return the plan of a query, with further `tables` by name; NotCoveredError: it cannot run in stages."""
        with self._catalogue.lock:
            planner = self._opened()
            known = self._catalogue.with_others(tables)
            for name, table in sorted(known.items(), key=lambda one: isinstance(one[1], ViewTable)):
                made, now = self._made.get(name), stamps(table)
                if made is None or made[0] is not table or made[2] != now:
                    try:
                        made = table, self._on_disk(name, table, tables), now
                    except WeftError:  # a query that reads the table cannot be planned, and says why when it runs whole
                        planner.drop(name)
                        self._made.pop(name, None)
                        continue
                with suppress(duckdb.Error):  # what a view reads was dropped
                    planner.add(made[1])
                self._made[name] = made
            try:
                return planner.plan(text, variables)
            except duckdb.Error as error:
                raise NotCoveredError(str(error).split("\n", 1)[0]) from None

    def _opened(self) -> Planner:
        """Return the planner, another one if it does not reach the files of all tables."""
        self._catalogue.check_open()
        if self._planner is None or self._reached is not self._catalogue.reached:
            self.close()
            self._reached = self._catalogue.reached
            self._planner = Planner(sorted(self._reached), self._catalogue.folders)
        return self._planner

    def files(self, name: str) -> FileTable:
        """Return the Parquet files of a table that was planned."""
        with self._catalogue.lock:
            return self._known().table(name)

    def splits(self, name: str, slots: int) -> TableSplits:
        """Return the splits of a table that was planned, for so many tasks at a time."""
        with self._catalogue.lock:
            planner = self._known()
            nbytes = planner.table(name).nbytes()
            each = max(2, -(-nbytes // (slots * LARGER * SPLIT_BYTES)))  # the tasks of each slot
            return planner.splits(name, max(SPLIT_BYTES, -(-nbytes // (slots * each))))

    def _known(self) -> Planner:
        self._catalogue.check_open()
        assert self._planner is not None
        return self._planner

    def _on_disk(self, name: str, table: SqlTable, tables: Mapping[str, SqlTable]) -> FileTable | ViewTable:
        """Return a table as Parquet files; those of tables in memory and in other formats live with the catalogue."""
        if isinstance(table, ViewTable) or (isinstance(table, FileTable) and table.reader == "read_parquet"):
            return table
        with self._catalogue.cursor(tables) as connection:
            try:
                connection.execute(f"CREATE TEMP VIEW {ROWS} AS FROM {identifier(name)}")
                return self._catalogue.stored(connection, name, described(connection))[0]
            except duckdb.Error as error:
                raise unreadable(error, name) from None

    def close(self) -> None:
        """Close the planner; a second call does nothing."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None
