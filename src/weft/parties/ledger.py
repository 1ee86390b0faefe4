"""The records of a party: its jobs, their coordination, its parts, and the documents for other parties.

A step of a job writes its state and its outgoing documents in one transaction. A document waits until the other party
has acknowledged its version, so the table of documents is the outbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.model.errors import ConflictError
from weft.store.database import Connection, Database

if TYPE_CHECKING:
    from pathlib import Path

WHAT_PARTIES_DROP: Final = (
    "What ended jobs have left goes with `weft party clean JOB`, tables go with `weft party drop`."
)
"""The advice for a full disk."""
WISH: Final = "wish"
REPORT: Final = "report"
_VERSION: Final = 1
_SCHEMA: Final = (
    """CREATE TABLE jobs (
        job VARCHAR(128) PRIMARY KEY, digest VARCHAR(64) NOT NULL, initiator_role TEXT NOT NULL,
        initiator TEXT NOT NULL, mine INTEGER NOT NULL, status TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
        started DOUBLE PRECISION, ended DOUBLE PRECISION,
        dsl TEXT NOT NULL, conf TEXT NOT NULL, about TEXT NOT NULL)""",
    "CREATE INDEX ix_jobs_status ON jobs (status)",
    "CREATE INDEX ix_jobs_created ON jobs (created)",
    "CREATE TABLE coordinations (job VARCHAR(128) PRIMARY KEY, live INTEGER NOT NULL, state TEXT NOT NULL)",
    "CREATE INDEX ix_coordinations_live ON coordinations (live)",
    """CREATE TABLE participations (
        job VARCHAR(128) NOT NULL, role VARCHAR(64) NOT NULL, party VARCHAR(128) NOT NULL, live INTEGER NOT NULL,
        state TEXT NOT NULL, PRIMARY KEY (job, role, party))""",
    "CREATE INDEX ix_participations_live ON participations (live)",
    """CREATE TABLE documents (
        job VARCHAR(128) NOT NULL, role VARCHAR(64) NOT NULL, party VARCHAR(128) NOT NULL, kind VARCHAR(16) NOT NULL,
        receiver VARCHAR(128) NOT NULL, epoch INTEGER NOT NULL, version INTEGER NOT NULL,
        acknowledged INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (job, role, party, kind))""",
)
_JOB: Final = (
    "job", "digest", "initiator_role", "initiator", "mine", "status", "created", "started", "ended", "dsl", "conf",
    "about",
)  # fmt: skip
_ACKNOWLEDGE: Final = """UPDATE documents SET acknowledged = :version WHERE job = :job AND role = :role
    AND party = :party AND kind = :kind AND acknowledged < :version"""

_CLAIM: Final = "INSERT INTO weft_about (key, value) VALUES ('party', :party) ON CONFLICT (key) DO NOTHING"
_OWNER: Final = "SELECT value FROM weft_about WHERE key = 'party'"


class JobEntry(Struct, frozen=True, kw_only=True):
    """A job that this party has submitted (`mine`) or takes part in. Times are in seconds since 1970.

    `dsl` and `conf` are its files as JSON, `digest` that of both, `about` further fields as JSON.
    """

    job: str
    digest: str
    initiator_role: str
    initiator: str
    mine: int
    status: str
    created: float
    started: float | None = None
    ended: float | None = None
    dsl: str
    conf: str
    about: str = "{}"


class DocumentEntry(Struct, frozen=True):
    """A document for another party about a part: the present one, and the version that the party has acknowledged."""

    job: str
    role: str
    party: str
    kind: str
    receiver: str
    epoch: int
    version: int
    acknowledged: int
    body: str


class PartyLedger:
    """The database of a party: an SQLite file, or another database by URL."""

    def __init__(self, place: Path | str) -> None:
        self.database = Database(
            place,
            what="the database of jobs",
            schema=_SCHEMA,
            version=_VERSION,
            again="the jobs that it knows are lost then, unless a backup takes its place",
            lock_name="party.lock",
            lasting=True,
            can_go=WHAT_PARTIES_DROP,
        )

    def claim(self, party: str) -> None:
        """Take the database for the records of a party. ConflictError: it has those of another one."""
        with self.write() as write:
            owner = write.owner(party)
        if owner != party:
            raise ConflictError(
                f"the database of jobs in {self.database.where} has the records of party {owner}, not of party {party}",
                hint="Each party needs a database of its own: change `database` in policy.json, or put the file of "
                "this party back.",
            )

    def close(self) -> None:
        """Close the open connections."""
        self.database.close()

    @contextmanager
    def write(self) -> Iterator[LedgerWrite]:
        """Open a transaction."""
        with self.database.write() as connection:
            yield LedgerWrite(connection)

    def _rows(self, sql: str, **values: Any) -> list[Sequence[Any]]:
        with self.database.read() as connection:
            return [] if connection is None else connection.rows(sql, values)

    def job(self, job: str) -> JobEntry | None:
        """Return a job; None: it is not known here."""
        rows = self._rows(f"SELECT {', '.join(_JOB)} FROM jobs WHERE job = :job", job=job)
        return JobEntry(**dict(zip(_JOB, rows[0], strict=True))) if rows else None

    def jobs(self, *, limit: int = 0, skip: int = 0, status: str = "") -> list[JobEntry]:
        """Return the jobs, newest first: all (`limit` 0), or so many after the first `skip`."""
        where = " WHERE status = :status" if status else ""
        most = f" LIMIT {limit:d} OFFSET {skip:d}" if limit else ""
        rows = self._rows(
            f"SELECT {', '.join(_JOB)} FROM jobs{where} ORDER BY created DESC, job DESC{most}", status=status
        )
        return [JobEntry(**dict(zip(_JOB, row, strict=True))) for row in rows]

    def coordinations(self, job: str = "") -> Iterator[tuple[str, str]]:
        """Yield the states of coordination of one job, or of all that are live, by job."""
        where = "job = :job" if job else "live = 1"
        for row in self._rows(f"SELECT job, state FROM coordinations WHERE {where}", job=job):
            yield row[0], row[1]

    def participations(self, job: str = "") -> Iterator[tuple[str, str, str, str]]:
        """Yield the states of the parts of one job, or of all that are live, as (job, role, party, state)."""
        where = "job = :job" if job else "live = 1"
        for row in self._rows(f"SELECT job, role, party, state FROM participations WHERE {where}", job=job):
            yield row[0], row[1], row[2], row[3]

    def documents(self, job: str = "") -> list[DocumentEntry]:
        """Return the documents of a job, or all that wait for an acknowledgement."""
        where = "job = :job" if job else "acknowledged < version"
        names = ", ".join(DocumentEntry.__struct_fields__)
        return [DocumentEntry(*row) for row in self._rows(f"SELECT {names} FROM documents WHERE {where}", job=job)]


class LedgerWrite:
    """A transaction of a `PartyLedger`."""

    def __init__(self, connection: Connection) -> None:
        self._run, self._rows = connection.run, connection.rows

    def owner(self, party: str) -> str:
        """Return the party whose records these are; `party`, if they were nobody's until now."""
        self._run(_CLAIM, {"party": party})
        return str(self._rows(_OWNER)[0][0])

    def add_job(self, entry: JobEntry) -> None:
        """Add a job."""
        self._run(
            f"INSERT INTO jobs ({', '.join(_JOB)}) VALUES ({', '.join(f':{name}' for name in _JOB)})",
            {name: getattr(entry, name) for name in _JOB},
        )

    def set_job(self, job: str, **values: Any) -> None:
        """Set fields of a job."""
        wanted = ", ".join(f"{name} = :{name}" for name in values)
        self._run(f"UPDATE jobs SET {wanted} WHERE job = :job", values | {"job": job})

    def set_coordination(self, job: str, state: str, *, live: bool) -> None:
        """Set the state of coordination of a job; a `live` one is loaded at the next start."""
        self._put("coordinations", ("job",), job=job, live=int(live), state=state)

    def set_participation(self, job: str, role: str, party: str, state: str, *, live: bool) -> None:
        """Set the state of a part; a `live` one is loaded at the next start."""
        self._put(
            "participations", ("job", "role", "party"), job=job, role=role, party=party, live=int(live), state=state
        )

    def set_document(self, entry: DocumentEntry) -> None:
        """Set the present document about a part; what was acknowledged stays."""
        values = {name: getattr(entry, name) for name in DocumentEntry.__struct_fields__}
        self._put("documents", ("job", "role", "party", "kind"), keep=("acknowledged",), **values)

    def acknowledge(self, job: str, role: str, party: str, kind: str, version: int) -> None:
        """Record that the receiver has a version of a document."""
        self._run(_ACKNOWLEDGE, {"job": job, "role": role, "party": party, "kind": kind, "version": version})

    def forget(self, job: str) -> None:
        """Remove a job with all its states."""
        for table in ("jobs", "coordinations", "participations", "documents"):
            self._run(f"DELETE FROM {table} WHERE job = :job", {"job": job})

    def _put(self, table: str, key: Iterable[str], *, keep: Sequence[str] = (), **values: Any) -> None:
        names = list(values)
        changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in {*key, *keep})
        self._run(
            f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)}) "
            f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}",
            values,
        )
