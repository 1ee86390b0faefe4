"""The index of runs: their folders and their last recorded states.

The folders of runs are the truth; `Catalog.rebuild` makes the index from them. It is an SQLite file on one machine, or
a database by URL (`weft.store.database`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.store.database import Connection, Database

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION: Final = 1
_SHOWN: Final = 5
HISTORY_RUNS: Final = 10
HISTORY_ROWS: Final = 20_000
HISTORY_VERTICES: Final = 1_000


class RunRow(Struct, frozen=True, kw_only=True):
    """One run of the index. Times are seconds since 1970-01-01 UTC; `folder` is the run's folder.

    `paused_s` is the time between its start and its end in which no process ran it.
    """

    id: str
    number: int
    name: str = ""
    frontend: str = ""
    file: str = ""
    folder: str = ""
    state: str = "pending"
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    paused_s: float = 0.0
    user: str = ""
    host: str = ""
    pid: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    error_code: str = ""
    error_message: str = ""
    version: int = SCHEMA_VERSION


class HistoryRow(Struct, frozen=True, kw_only=True):
    """The durations of a vertex in one run of the graph with this fingerprint; see `weft.graph.task.VertexHistory`."""

    fingerprint: str
    vertex: str
    ended_at: float
    tasks: int
    seconds: float
    nbytes: float
    rows: int
    resources: Sequence[Mapping[str, Any]] = ()
    usage: Mapping[str, float] = field(default_factory=dict)


_COLUMNS: Final = tuple(name for name in RunRow.__struct_fields__ if name != "paused_s")
_ALL: Final = ", ".join(f'"{name}"' for name in _COLUMNS)
_INSERT: Final = f"INSERT INTO runs ({_ALL}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
_SCHEMA: Final = (
    "CREATE TABLE weft_counters (name VARCHAR(64) PRIMARY KEY, value INTEGER)",
    """CREATE TABLE runs (
        id VARCHAR(128) PRIMARY KEY, number INTEGER NOT NULL, name TEXT NOT NULL, frontend TEXT NOT NULL,
        file TEXT NOT NULL, folder TEXT NOT NULL, state TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
        started_at DOUBLE PRECISION, ended_at DOUBLE PRECISION, "user" TEXT NOT NULL, host TEXT NOT NULL,
        pid INTEGER NOT NULL, parameters TEXT NOT NULL, error_code TEXT NOT NULL, error_message TEXT NOT NULL,
        version INTEGER NOT NULL)""",
    "CREATE INDEX ix_runs_number ON runs (number)",
    "CREATE INDEX ix_runs_name ON runs (name)",
    "CREATE INDEX ix_runs_state ON runs (state)",
)
_PAST: Final = HistoryRow.__struct_fields__
_PAST_ALL: Final = ", ".join(f'"{name}"' for name in _PAST)
_PAST_INSERT: Final = (
    f"INSERT INTO history (number, {_PAST_ALL}) VALUES (:number, {', '.join(f':{name}' for name in _PAST)})"
)
_PAUSES: Final = "CREATE TABLE IF NOT EXISTS pauses (run VARCHAR(128) PRIMARY KEY, seconds DOUBLE PRECISION NOT NULL)"
_HISTORY: Final = (
    """CREATE TABLE IF NOT EXISTS history (
        number INTEGER PRIMARY KEY, fingerprint VARCHAR(64) NOT NULL, vertex TEXT NOT NULL,
        ended_at DOUBLE PRECISION NOT NULL, tasks INTEGER NOT NULL, seconds DOUBLE PRECISION NOT NULL,
        nbytes DOUBLE PRECISION NOT NULL, "rows" INTEGER NOT NULL, resources TEXT NOT NULL, "usage" TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS ix_history_fingerprint ON history (fingerprint)",
)


class Catalog:
    """The index of runs of one state folder or one server. Safe to use from several threads and processes."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.where, self.file = database.where, database.file

    @classmethod
    def open(cls, path_or_url: Path | str) -> Catalog:
        """Return the index in a file or at a database URL; it is not opened before the first use.

        UsageError: unknown kind of URL. MissingExtraError: its driver is not installed.
        """
        return cls(
            Database(
                path_or_url,
                what="the index of runs",
                schema=(*_SCHEMA, _PAUSES, *_HISTORY),
                version=SCHEMA_VERSION,
                again="the next command makes it again from the folders of the runs",
            )
        )

    def close(self) -> None:
        """Close the open connections; a later use opens new ones."""
        self.database.close()

    # --------------------------------------------------------------------------------------------------- writing

    def next_run_id(self) -> tuple[str, int]:
        """Return a fresh run id, such as `run-000001`, and its number; each is returned once."""
        with self.database.write() as db:
            taken = db.rows("UPDATE weft_counters SET value = value + 1 WHERE name = 'run' RETURNING value")
            number = int(taken[0][0]) if taken else 1 + _highest(db)
            if not taken:
                db.run("INSERT INTO weft_counters (name, value) VALUES ('run', :value)", {"value": number})
        return f"run-{number:06d}", number

    def add_run(self, run: RunRow) -> None:
        """Add a run. ConflictError: its id is taken."""
        with self.database.write() as db:
            if db.rows("SELECT id FROM runs WHERE id = :id", {"id": run.id}):
                raise ConflictError(f"run {run.id} exists already", hint="Take the id from next_run_id().")
            db.run(_INSERT, _values(run))

    def update_run(self, id: str, **changes: Any) -> None:
        """Change fields of a run, durably. NotFoundError: no such run. UsageError: no such field."""
        if unknown := sorted(changes.keys() - {*_COLUMNS[1:], "paused_s"}):
            raise UsageError(f"a run has no field {', '.join(unknown)}")
        if "parameters" in changes:
            changes["parameters"] = json.dumps(changes["parameters"])
        paused_s = changes.pop("paused_s", None)
        assignments = ", ".join(f'"{name}" = :{name}' for name in changes) or "id = id"
        with self.database.write() as db:
            if not db.run(f"UPDATE runs SET {assignments} WHERE id = :id", {**changes, "id": id}):
                raise NotFoundError(f"there is no run {id} in {self.where}")
            if paused_s is not None:
                _pause(db, {id: paused_s})

    def remove(self, id: str) -> None:
        """Remove a run from the index; its folder stays. NotFoundError: no such run."""
        with self.database.write() as db:
            if not db.run("DELETE FROM runs WHERE id = :id", {"id": id}):
                raise NotFoundError(f"there is no run {id} in {self.where}")
            _pause(db, {id: 0.0})

    def rebuild(self, runs_root: Path, describe: Callable[[Path], RunRow | None]) -> int:
        """Replace all rows by those that `describe` returns for each folder below `runs_root`; return their number.

        A folder with None from `describe` is left out. Used numbers stay used.
        """
        folders = (
            sorted(path for path in runs_root.iterdir() if path.is_dir() and path.name[0] != ".")
            if runs_root.is_dir()
            else []
        )
        rows = [row for folder in folders if (row := describe(folder)) is not None]
        with self.database.write() as db:
            db.run("DELETE FROM runs")
            db.many(_INSERT, [_values(row) for row in rows])
            _pause(db, {row.id: row.paused_s for row in rows})
            before = db.rows("SELECT value FROM weft_counters WHERE name = 'run'")
            highest = max((before[0][0] if before else 0, *(row.number for row in rows)))
            db.run("DELETE FROM weft_counters WHERE name = 'run'")
            db.run("INSERT INTO weft_counters (name, value) VALUES ('run', :value)", {"value": highest})
        return len(rows)

    def add_history(self, rows: Sequence[HistoryRow]) -> None:
        """Add the durations of one run's vertices, and remove the oldest beyond the limits.

        The limits are 10 runs for each graph, and 20,000 rows in all; runs with more than 1,000 vertices keep only
        those given.
        """
        if not rows:
            return
        mine = {"mine": rows[0].fingerprint}
        with self.database.write() as db:
            for statement in _HISTORY:  # the index may be older than this table
                db.run(statement)
            last = int(db.rows("SELECT max(number) FROM history")[0][0] or 0)
            kept = rows[:HISTORY_VERTICES]
            db.many(_PAST_INSERT, [{**_past_values(row), "number": last + at} for at, row in enumerate(kept, 1)])
            old = db.rows(
                "SELECT DISTINCT ended_at FROM history WHERE fingerprint = :mine "
                f"ORDER BY ended_at DESC LIMIT 1 OFFSET {HISTORY_RUNS}",
                mine,
            )
            if old:
                db.run("DELETE FROM history WHERE fingerprint = :mine AND ended_at <= :old", {**mine, "old": old[0][0]})
            db.run("DELETE FROM history WHERE number <= :last", {"last": last + len(kept) - HISTORY_ROWS})

    # --------------------------------------------------------------------------------------------------- reading

    def history(self, fingerprint: str) -> Sequence[HistoryRow]:
        """Return the durations of vertices in earlier runs of the graph with a fingerprint, newest first."""
        query = f"SELECT {_PAST_ALL} FROM history WHERE fingerprint = :mine ORDER BY number DESC"
        with self.database.read() as db:
            found = db.rows(query, {"mine": fingerprint}) if db is not None and "history" in db.tables() else []
        rows = [dict(zip(_PAST, row, strict=True)) for row in found]
        return [
            HistoryRow(**{**row, **{name: json.loads(row[name]) for name in ("resources", "usage")}}) for row in rows
        ]

    def exists(self) -> bool:
        """Whether there is a database (for a URL: always)."""
        return self.database.exists()

    def find(self, text: str) -> RunRow:
        """Return the run named by `text`: an id, its unique beginning, a number, `@last` or `@failed`.

        NotFoundError: none. UsageError: the beginning of more than one.
        """
        if text == "@last":
            found = self._rows("", {}, 1)
        elif text == "@failed":
            found = self._rows("WHERE state = 'failed'", {}, 1)
        elif text.startswith("@"):
            raise UsageError(f"{text} is not the name of a run", hint="Use @last or @failed.")
        elif text.isascii() and text.isdigit():
            found = self._rows("WHERE number = :number", {"number": int(text[:18])}, 1)
        else:
            found = self._rows("WHERE id = :id", {"id": text}, None)
            if not found and text:
                like = text.replace("/", "//").replace("%", "/%").replace("_", "/_") + "%"
                found = self._rows("WHERE id LIKE :beginning ESCAPE '/'", {"beginning": like}, _SHOWN + 1)
        if not found:
            raise NotFoundError(f"there is no run {text!r} in {self.where}", hint="List the runs: weft ls")
        if len(found) > 1:
            some = ", ".join(row.id for row in found[:_SHOWN])
            more = ", ..." if len(found) > _SHOWN else ""
            raise UsageError(f"{text!r} matches more than one run: {some}{more}", hint="Give more characters.")
        return found[0]

    def list(
        self, *, limit: int | None = 20, state: str | Collection[str] | None = None, name: str | None = None
    ) -> Sequence[RunRow]:
        """Return the newest runs, newest first, at most `limit`, of one state (or one of several) and one name."""
        where, values = _only(state, name)
        return self._rows(where, values, limit)

    def count(self, *, state: str | Collection[str] | None = None, name: str | None = None) -> int:
        """Return the number of runs that `list` would return without a limit."""
        where, values = _only(state, name)
        with self.database.read() as db:
            return 0 if db is None else int(db.rows(f"SELECT count(*) FROM runs {where}", values)[0][0])

    # ---------------------------------------------------------------------------------------------------- inside

    def _rows(self, where: str, values: Mapping[str, Any], limit: int | None) -> Sequence[RunRow]:
        most = "" if limit is None else f" LIMIT {limit:d}"
        with self.database.read() as db:
            if db is None:
                return []
            found = db.rows(f"SELECT {_ALL} FROM runs {where} ORDER BY number DESC, id{most}", values)
            pauses = db.rows("SELECT run, seconds FROM pauses") if "pauses" in db.tables() else []
        paused_s = {row[0]: float(row[1]) for row in pauses}
        rows = [dict(zip(_COLUMNS, row, strict=True)) for row in found]
        return [
            RunRow(**{**row, "parameters": json.loads(row["parameters"])}, paused_s=paused_s.get(row["id"], 0.0))
            for row in rows
        ]


def _pause(db: Connection, seconds: Mapping[str, float]) -> None:
    """Add the time in which no process ran some runs."""
    db.run(_PAUSES)  # the index may be older than this table
    for run, paused_s in seconds.items():
        db.run("DELETE FROM pauses WHERE run = :run", {"run": run})
        if paused_s:
            db.run("INSERT INTO pauses (run, seconds) VALUES (:run, :seconds)", {"run": run, "seconds": paused_s})


def _highest(db: Connection) -> int:
    return int(db.rows("SELECT max(number) FROM runs")[0][0] or 0)


def _values(run: RunRow) -> dict[str, Any]:
    row = {name: getattr(run, name) for name in _COLUMNS}
    return {**row, "parameters": json.dumps(dict(run.parameters))}


def _past_values(row: HistoryRow) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in _PAST}
    resources = [dict(one) for one in row.resources]
    return {**values, "resources": json.dumps(resources), "usage": json.dumps(dict(row.usage))}


def _only(state: str | Collection[str] | None, name: str | None) -> tuple[str, dict[str, Any]]:
    """Return the condition on a state (or one of several) and a name, and its values."""
    values: dict[str, Any] = {}
    conditions = []
    if state is not None:
        states = [state] if isinstance(state, str) else sorted(state)
        values |= {f"state{at}": one for at, one in enumerate(states)}
        conditions.append(f"state IN ({', '.join(f':state{at}' for at in range(len(states)))})")
    if name is not None:
        values["name"] = name
        conditions.append("name = :name")
    return (f"WHERE {' AND '.join(conditions)}" if conditions else ""), values
