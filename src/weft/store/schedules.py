"""Schedules and their due times, in a database of their own in the state folder (`schedules.db`).

Unlike the index of runs it cannot be rebuilt, so it is kept apart from disposable data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.model.errors import ConflictError, NotFoundError
from weft.store.database import Connection, Database
from weft.store.places import StatePaths

if TYPE_CHECKING:
    from pathlib import Path

SCHEDULES_NAME: Final = "schedules.db"
RUNNING, SUCCEEDED, TERMINATED = "running", "success", "terminated"
"""States of a schedule: due times are to come, it has reached its end, it was stopped."""
WAITING, STARTING, STARTED, STOPPING, ENDED, SKIPPED, FAILED = (
    "waiting",
    "starting",
    "started",
    "stopping",
    "ended",
    "skipped",
    "failed",
)
"""States of a due time: waiting for room, starting a run, running, stopping, ended, skipped, failed to start."""
OPEN: Final = frozenset({WAITING, STARTING, STARTED, STOPPING})
KEPT: Final = 1_000
"""The due times kept for each schedule, besides the open ones."""
_VERSION: Final = 1
_SCHEMA: Final = (
    """CREATE TABLE schedules (
        name VARCHAR(64) PRIMARY KEY, file TEXT NOT NULL, cron TEXT NOT NULL, zone TEXT NOT NULL,
        created_at DOUBLE PRECISION NOT NULL, start_at DOUBLE PRECISION, end_at DOUBLE PRECISION,
        concurrency INTEGER NOT NULL, policy TEXT NOT NULL, catchup INTEGER NOT NULL,
        expire_s DOUBLE PRECISION NOT NULL, words TEXT NOT NULL, state TEXT NOT NULL,
        seen DOUBLE PRECISION NOT NULL)""",
    """CREATE TABLE firings (
        schedule VARCHAR(64) NOT NULL, due DOUBLE PRECISION NOT NULL, state TEXT NOT NULL, epoch INTEGER NOT NULL,
        run TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, message TEXT NOT NULL, PRIMARY KEY (schedule, due))""",
    "CREATE INDEX ix_firings_state ON firings (schedule, state)",
)


class PipelineSchedule(Struct, frozen=True, kw_only=True):
    """A pipeline that runs repeatedly. Times are in seconds since 1970.

    `words` are further words for `weft run`. At most `concurrency` runs go on at a time (0: any number); `policy`
    decides about due times without room. Without `catchup`, times missed while no scheduler ran are skipped; with
    `expire_s` above 0, so are times that could not begin within so many seconds. Due times are recorded up to `seen`.
    """

    name: str
    file: str
    cron: str
    zone: str = ""
    created_at: float = 0.0
    start_at: float | None = None
    end_at: float | None = None
    concurrency: int = 0
    policy: str = "suspend"
    catchup: bool = True
    expire_s: float = 0.0
    words: Sequence[str] = ()
    state: str = RUNNING
    seen: float = 0.0


class Firing(Struct, frozen=True, kw_only=True):
    """One due time of a schedule and its state; `at` is the time of the last change.

    `epoch` counts the attempts to start a run: a process started for an earlier one may not begin.
    """

    schedule: str
    due: float
    state: str = WAITING
    epoch: int = 0
    run: str = ""
    at: float = 0.0
    message: str = ""


_SCHEDULE: Final = PipelineSchedule.__struct_fields__
_FIRING: Final = Firing.__struct_fields__
_PUT: Final = (
    f"INSERT INTO firings ({', '.join(_FIRING)}) VALUES ({', '.join(f':{name}' for name in _FIRING)}) "
    "ON CONFLICT (schedule, due) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _FIRING if name not in ("schedule", "due"))
)


class Schedules:
    """The schedules of one state folder, or one server. Safe to use from several threads and processes."""

    def __init__(self, path_or_url: Path | str) -> None:
        self.database = Database(
            path_or_url,
            what="the list of schedules",
            schema=_SCHEMA,
            version=_VERSION,
            again="schedules have to be created again then; their runs are not touched",
            lock_name="schedules.lock",
        )

    def close(self) -> None:
        """Close the connections."""
        self.database.close()

    def add(self, schedule: PipelineSchedule) -> None:
        """Add a schedule. ConflictError: there is one of that name."""
        with self.database.write() as db:
            if db.rows("SELECT name FROM schedules WHERE name = :name", {"name": schedule.name}):
                raise ConflictError(
                    f"schedule {schedule.name} exists already",
                    hint=f"Choose another name, or delete it: weft schedule delete {schedule.name}",
                )
            names = ", ".join(f":{name}" for name in _SCHEDULE)
            values = {name: getattr(schedule, name) for name in _SCHEDULE}
            words = json.dumps(self._mapped(schedule.words, StatePaths.keep))
            values |= {"file": self._mapped([schedule.file], StatePaths.keep)[0], "words": words}
            values["catchup"] = int(schedule.catchup)
            db.run(f"INSERT INTO schedules ({', '.join(_SCHEDULE)}) VALUES ({names})", values)

    def find(self, name: str) -> PipelineSchedule:
        """Return a schedule. NotFoundError: there is none of that name."""
        found = self._schedules("WHERE name = :name", {"name": name})
        if not found:
            raise NotFoundError(f"there is no schedule {name!r}", hint="List them: weft schedule ls")
        return found[0]

    def all(self, *, state: str = "") -> list[PipelineSchedule]:
        """Return all schedules by name, or those in one state."""
        return self._schedules("WHERE state = :state" if state else "", {"state": state} if state else {})

    def remove(self, name: str) -> None:
        """Remove a schedule and its due times; its runs stay."""
        with self.database.write() as db:
            db.run("DELETE FROM firings WHERE schedule = :name", {"name": name})
            db.run("DELETE FROM schedules WHERE name = :name", {"name": name})

    def put(
        self,
        name: str,
        firings: Collection[Firing],
        gone: Collection[float] = (),
        *,
        seen: float | None = None,
        state: str = "",
    ) -> None:
        """Write the states of due times of a schedule, their horizon, and its state, in one transaction.

        Due times in `gone` are removed.
        """
        with self.database.write() as db:
            due = "DELETE FROM firings WHERE schedule = :name AND due = :due"
            db.many(due, ({"name": name, "due": one} for one in gone))
            if seen is not None:
                db.run("UPDATE schedules SET seen = :seen WHERE name = :name", {"seen": seen, "name": name})
            if state:
                db.run("UPDATE schedules SET state = :state WHERE name = :name", {"state": state, "name": name})
            db.many(_PUT, ({name: getattr(one, name) for name in _FIRING} for one in firings))
            self._forget(db, name)

    def claim(self, schedule: str, due: float, epoch: int, run: str, now: float) -> None:
        """Record that a run has taken its due time. ConflictError: another has, or the start was abandoned."""
        values = {"schedule": schedule, "due": due, "epoch": epoch, "run": run, "now": now}
        with self.database.write() as db:
            taken = db.run(
                f"UPDATE firings SET run = :run, state = '{STARTED}', at = :now "
                f"WHERE schedule = :schedule AND due = :due AND epoch = :epoch AND state = '{STARTING}'",
                values,
            )
        if not taken:
            raise ConflictError(f"schedule {schedule} no longer wants this run")

    def fail(self, firing: Firing, message: str, now: float) -> None:
        """Record that no run could be started for a due time, unless one has taken it meanwhile."""
        values = {
            "schedule": firing.schedule,
            "due": firing.due,
            "epoch": firing.epoch,
            "message_text": message,
            "now": now,
        }
        with self.database.write() as db:
            db.run(
                f"UPDATE firings SET state = '{FAILED}', message = :message_text, at = :now "
                f"WHERE schedule = :schedule AND due = :due AND epoch = :epoch AND state = '{STARTING}'",
                values,
            )

    def wait_again(self, firing: Firing) -> None:
        """Record that an abandoned start is to be repeated, unless a run has taken its due time meanwhile."""
        values = {"schedule": firing.schedule, "due": firing.due, "epoch": firing.epoch}
        with self.database.write() as db:
            db.run(
                f"UPDATE firings SET state = '{WAITING}' "
                f"WHERE schedule = :schedule AND due = :due AND epoch = :epoch AND state = '{STARTING}'",
                values,
            )

    def firings(self, schedule: str, *, states: Collection[str] = (), limit: int | None = None) -> list[Firing]:
        """Return due times of a schedule, the latest first, at most `limit`, or those in some states."""
        known = ", ".join(f"'{state}'" for state in sorted(states))
        where = f" AND state IN ({known})" if states else ""
        most = "" if limit is None else f" LIMIT {limit:d}"
        query = f"SELECT {', '.join(_FIRING)} FROM firings WHERE schedule = :schedule{where} ORDER BY due DESC{most}"
        with self.database.read() as db:
            rows = [] if db is None else db.rows(query, {"schedule": schedule})
        return [Firing(**dict(zip(_FIRING, row, strict=True))) for row in rows]

    def _schedules(self, where: str, values: Mapping[str, Any]) -> list[PipelineSchedule]:
        with self.database.read() as db:
            query = f"SELECT {', '.join(_SCHEDULE)} FROM schedules {where} ORDER BY name"
            rows = [dict(zip(_SCHEDULE, row, strict=True)) for row in db.rows(query, values)] if db is not None else []
        for row in rows:
            row["file"] = self._mapped([row["file"]], StatePaths.resolve)[0]
            row["words"] = self._mapped(json.loads(row["words"]), StatePaths.resolve)
            row["catchup"] = bool(row["catchup"])
        return [PipelineSchedule(**row) for row in rows]

    def _mapped(self, words: Sequence[str], change: Callable[[StatePaths, str], str]) -> list[str]:
        """Return words with another form of the paths among them: whole words, and folders of file systems."""
        if self.database.file is None:
            return list(words)
        paths, found = StatePaths(self.database.file.parent), list(words)
        for at, word in enumerate(found):
            name, equals, path = word.partition("=") if at and found[at - 1] == "-f" else ("", "", word)
            found[at] = f"{name}{equals}{change(paths, path)}"
        return found

    @staticmethod
    def _forget(db: Connection, name: str) -> None:
        over = ", ".join(f"'{state}'" for state in (ENDED, FAILED, SKIPPED))
        db.run(
            f"DELETE FROM firings WHERE schedule = :name AND state IN ({over}) AND due < "
            "(SELECT min(due) FROM "
            f"(SELECT due FROM firings WHERE schedule = :name ORDER BY due DESC LIMIT {KEPT}) newest)",
            {"name": name},
        )
