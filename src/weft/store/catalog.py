"""The index of runs: their folders and their last recorded states.

The folders of runs are the truth; `Catalog.rebuild` makes the index from them. It is an SQLite file on one machine, or
a database by URL (`weft.store.database`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct, field

from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.store.database import DAMAGED, Connection, Database, obstacle
from weft.store.places import StatePaths

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION: Final = 2
_SHOWN: Final = 5
HISTORY_RUNS: Final = 10
HISTORY_ROWS: Final = 20_000
HISTORY_VERTICES: Final = 1_000


class RunRow(Struct, frozen=True, kw_only=True):
    """One run of the index. Times are seconds since 1970-01-01 UTC; `file` is the absolute path of its file, or "".

    `paused_s` is the time between its start and its end in which no process ran it.
    """

    id: str
    number: int
    name: str = ""
    frontend: str = ""
    file: str = ""
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


_URL: Final = "file:"
"""The beginning of a path whose bytes are not UTF-8: a URL holds them."""
_COLUMNS: Final = tuple(name for name in RunRow.__struct_fields__ if name != "paused_s")
_ALL: Final = ", ".join(f'"{name}"' for name in _COLUMNS)
_INSERT: Final = f"INSERT INTO runs ({_ALL}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
_SCHEMA: Final = (
    "CREATE TABLE weft_counters (name VARCHAR(64) PRIMARY KEY, value INTEGER)",
    """CREATE TABLE runs (
        id VARCHAR(128) PRIMARY KEY, number INTEGER NOT NULL, name TEXT NOT NULL, frontend TEXT NOT NULL,
        file TEXT NOT NULL, state TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
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


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _restored(method: Callable[Concatenate[Catalog, _P], _R]) -> Callable[Concatenate[Catalog, _P], _R]:
    """Call a method of an index again after a restore, if its file is damaged."""

    @wraps(method)
    def call(self: Catalog, /, *args: _P.args, **options: _P.kwargs) -> _R:
        try:
            return method(self, *args, **options)
        except ConflictError as error:
            if self.restore is None or obstacle(error) != DAMAGED:
                raise
        self.database.set_aside()
        self.restore()
        return method(self, *args, **options)

    return call


class Catalog:
    """The index of runs of one state folder or one server. Safe to use from several threads and processes.

    `restore` makes a damaged index again, which is renamed before; without it the damage is an error.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.restore: Callable[[], object] | None = None
        self.where, self.file = database.where, database.file
        self._paths = None if self.file is None else StatePaths(self.file.parent)

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

    @_restored
    def next_run_id(self, after: int = 0) -> tuple[str, int]:
        """Return a fresh run id, such as `run-000001`, and its number, above `after`; each is returned once unless it
        is given back.
        """
        with self.database.write() as db:
            used = db.rows("SELECT value FROM weft_counters WHERE name = 'run'")
            number = 1 + max(int(used[0][0]) if used else _highest(db), after)
            db.run("DELETE FROM weft_counters WHERE name = 'run'")
            db.run("INSERT INTO weft_counters (name, value) VALUES ('run', :value)", {"value": number})
        return run_id(number), number

    def give_back(self, number: int) -> None:
        """Let the next run have the number of a run that does not begin, unless a later one is in use."""
        with self.database.write() as db:
            about = {"number": number, "before": number - 1}
            db.run("UPDATE weft_counters SET value = :before WHERE name = 'run' AND value = :number", about)

    @_restored
    def last_number(self) -> int:
        """Return the highest number of a run so far, deleted ones included; 0 if there was none."""
        with self.database.read() as db:
            used = [] if db is None else db.rows("SELECT value FROM weft_counters WHERE name = 'run'")
        return int(used[0][0]) if used else 0

    @_restored
    def add_run(self, run: RunRow) -> None:
        """Add a run, or replace its row: a restore by another process may have added it from its folder."""
        with self.database.write() as db:
            db.run("DELETE FROM runs WHERE id = :id", {"id": run.id})
            db.run(_INSERT, self._values(run))
            _pause(db, {run.id: run.paused_s})

    @_restored
    def update_run(self, id: str, /, **changes: Any) -> None:
        """Change fields of a run, durably. NotFoundError: no such run. UsageError: no such field."""
        if unknown := sorted(changes.keys() - {*_COLUMNS[1:], "paused_s"}):
            raise UsageError(f"a run has no field {', '.join(unknown)}")
        if "parameters" in changes:
            changes["parameters"] = json.dumps(changes["parameters"])
        if "file" in changes:
            changes["file"] = self._kept(changes["file"])
        paused_s = changes.pop("paused_s", None)
        assignments = ", ".join(f'"{name}" = :{name}' for name in changes) or "id = id"
        with self.database.write() as db:
            if not db.run(f"UPDATE runs SET {assignments} WHERE id = :id", {**changes, "id": id}):
                raise NotFoundError(f"there is no run {id} in {self.where}")
            if paused_s is not None:
                _pause(db, {id: paused_s})

    @_restored
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
        folders = sorted(path for path in runs_root.glob("[!.]*") if path.is_dir())
        rows = [row for folder in folders if (row := describe(folder)) is not None]
        with self.database.write() as db:
            db.run("DELETE FROM runs")
            db.many(_INSERT, [self._values(row) for row in rows])
            _pause(db, {row.id: row.paused_s for row in rows})
            before = db.rows("SELECT value FROM weft_counters WHERE name = 'run'")
            highest = max((before[0][0] if before else 0, *(run_number(folder.name) for folder in folders)))
            db.run("DELETE FROM weft_counters WHERE name = 'run'")
            db.run("INSERT INTO weft_counters (name, value) VALUES ('run', :value)", {"value": highest})
        return len(rows)

    @_restored
    def add_history(self, rows: Sequence[HistoryRow]) -> None:
        """Add the durations of one run's vertices, and remove the oldest beyond the limits.

        The limits are 10 runs for each graph, and 20,000 rows in all; runs with more than 1,000 vertices keep only
        those given.
        """
        if not rows:
            return
        mine = {"mine": rows[0].fingerprint}
        with self.database.write() as db:
            db.add("history", _HISTORY)
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

    @_restored
    def history(self, fingerprint: str) -> Sequence[HistoryRow]:
        """Return the durations of vertices in earlier runs of the graph with a fingerprint, newest first."""
        query = f"SELECT {_PAST_ALL} FROM history WHERE fingerprint = :mine ORDER BY number DESC"
        with self.database.read() as db:
            found = db.rows(query, {"mine": fingerprint}) if db is not None and "history" in db.tables() else []
        rows = [dict(zip(_PAST, row, strict=True)) for row in found]
        return [
            HistoryRow(**{**row, **{name: json.loads(row[name]) for name in ("resources", "usage")}}) for row in rows
        ]

    @_restored
    def has_tables(self) -> bool:
        """Whether there is a database with tables; a file may be missing or empty."""
        with self.database.read() as db:
            return db is not None

    def exists(self) -> bool:
        """Whether there is a database (for a URL: always)."""
        return self.database.exists()

    @_restored
    def ids(self) -> set[str]:
        """Return the ids of all runs."""
        with self.database.read() as db:
            return set() if db is None else {row[0] for row in db.rows("SELECT id FROM runs")}

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

    @_restored
    def count(self, *, state: str | Collection[str] | None = None, name: str | None = None) -> int:
        """Return the number of runs that `list` would return without a limit."""
        where, values = _only(state, name)
        with self.database.read() as db:
            return 0 if db is None else int(db.rows(f"SELECT count(*) FROM runs {where}", values)[0][0])

    # ---------------------------------------------------------------------------------------------------- inside

    @_restored
    def _rows(self, where: str, values: Mapping[str, Any], limit: int | None) -> Sequence[RunRow]:
        most = "" if limit is None else f" LIMIT {limit:d}"
        with self.database.read() as db:
            if db is None:
                return []
            found = db.rows(f"SELECT {_ALL} FROM runs {where} ORDER BY number DESC, id{most}", values)
            pauses = db.rows("SELECT run, seconds FROM pauses") if "pauses" in db.tables() else []
        paused_s = {row[0]: float(row[1]) for row in pauses}
        rows = [dict(zip(_COLUMNS, row, strict=True)) for row in found]
        for row in rows:
            row["parameters"] = json.loads(row["parameters"])
            file = row["file"]
            if file.startswith(_URL):
                file = os.fsdecode(unquote_to_bytes(file.removeprefix(_URL)))
            row["file"] = file if self._paths is None else self._paths.resolve(file)
        return [RunRow(**row, paused_s=paused_s.get(row["id"], 0.0)) for row in rows]

    def _values(self, run: RunRow) -> dict[str, Any]:
        row = {name: getattr(run, name) for name in _COLUMNS}
        return {**row, "file": self._kept(run.file), "parameters": json.dumps(dict(run.parameters))}

    def _kept(self, path: str) -> str:
        path = path if self._paths is None else self._paths.keep(path)
        try:
            path.encode()
        except UnicodeEncodeError:  # the database takes UTF-8 only
            return _URL + quote(os.fsencode(path))
        return path


def _pause(db: Connection, seconds: Mapping[str, float]) -> None:
    """Add the time in which no process ran some runs."""
    db.add("pauses", [_PAUSES])
    for run, paused_s in seconds.items():
        db.run("DELETE FROM pauses WHERE run = :run", {"run": run})
        if paused_s:
            db.run("INSERT INTO pauses (run, seconds) VALUES (:run, :seconds)", {"run": run, "seconds": paused_s})


def run_id(number: int) -> str:
    """Return the id of the run of a number."""
    return f"run-{number:06d}"


def run_number(id: str) -> int:
    """Return the number in the id of a run; 0 if it has none."""
    digits = id.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def _highest(db: Connection) -> int:
    return int(db.rows("SELECT max(number) FROM runs")[0][0] or 0)


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
