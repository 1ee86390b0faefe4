"""The index of the tables of a party: what each is called and made of, who may use it, and how it came and went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field

from weft.model.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from weft.store.database import Connection, Database

TABLES_VERSION: Final = 1
TABLES_SCHEMA: Final = (
    """CREATE TABLE party_tables (
        namespace VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL, file TEXT NOT NULL, bound TEXT NOT NULL,
        rows_known INTEGER, partitions INTEGER NOT NULL, id_name TEXT NOT NULL, header TEXT NOT NULL,
        head INTEGER NOT NULL, delimiter TEXT NOT NULL, meta TEXT NOT NULL, enabled INTEGER NOT NULL,
        nbytes BIGINT NOT NULL, created_at DOUBLE PRECISION NOT NULL, job_id TEXT NOT NULL,
        PRIMARY KEY (namespace, name))""",
    """CREATE TABLE party_table_grants (
        namespace VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL, party VARCHAR(64) NOT NULL,
        PRIMARY KEY (namespace, name, party))""",
    """CREATE TABLE party_table_jobs (
        job_id VARCHAR(64) PRIMARY KEY, kind VARCHAR(16) NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        rows_moved INTEGER NOT NULL, started_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION NOT NULL,
        conf TEXT NOT NULL, user_name TEXT NOT NULL)""",
)
UPLOAD, DOWNLOAD = "upload", "download"
"""Kinds of jobs of tables."""
EVERY: Final = "*"
"""Every namespace, or every name, in a grant."""


class StoredTable(Struct, frozen=True, kw_only=True):
    """A table of a party. `header` has the columns without the id, `id_name` the name of the id.

    `file` is the name of its Arrow file in the folder of tables; a bound table has the path of a file of the site in
    `bound` instead, which is read where it lies, and no `count`.
    """

    namespace: str
    name: str
    count: int | None = None
    id_name: str = ""
    header: Sequence[str] = ()
    partitions: int = 1
    file: str = ""
    bound: str = ""
    head: bool = True
    delimiter: str = ","
    meta: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True
    nbytes: int = 0
    created_at: float = 0.0
    job_id: str = ""


class TableJob(Struct, frozen=True, kw_only=True):
    """An upload or a download that has ended well. `conf` is what the client asked for."""

    job_id: str
    kind: str
    namespace: str
    name: str
    count: int
    started_at: float
    ended_at: float
    conf: Mapping[str, Any] = field(default_factory=dict)
    user: str = ""


_KEY: Final = "WHERE namespace = :namespace AND name = :name"
# In the order of the fields of the records.
_TABLE: Final = (
    *("namespace", "name", "rows_known", "id_name", "header", "partitions", "file", "bound", "head", "delimiter"),
    *("meta", "enabled", "nbytes", "created_at", "job_id"),
)
_JOB: Final = ("job_id", "kind", "namespace", "name", "rows_moved", "started_at", "ended_at", "conf", "user_name")
_INSERT: Final = f"INSERT INTO party_tables ({', '.join(_TABLE)}) VALUES ({', '.join(f':{one}' for one in _TABLE)})"
_INSERT_JOB: Final = f"INSERT INTO party_table_jobs ({', '.join(_JOB)}) VALUES ({', '.join(f':{one}' for one in _JOB)})"


class TableIndex:
    """The index in a database with the tables of TABLES_SCHEMA. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def find(self, namespace: str, name: str) -> StoredTable | None:
        """Return a table, None if there is none."""
        with self.database.read() as db:
            found = [] if db is None else _tables(db, _KEY, {"namespace": namespace, "name": name})
        return found[0] if found else None

    def all(self, namespace: str = "") -> list[StoredTable]:
        """Return all tables, or those of a namespace, by name."""
        where = "WHERE namespace = :namespace " if namespace else ""
        with self.database.read() as db:
            return [] if db is None else _tables(db, f"{where}ORDER BY namespace, name", {"namespace": namespace})

    def put(self, stored: StoredTable, *, drop: bool, job: TableJob | None = None) -> list[StoredTable]:
        """Add a table and the job that made it; return the table that it replaced. ConflictError: without `drop`."""
        key = {"namespace": stored.namespace, "name": stored.name}
        with self.database.write() as db:
            old = _tables(db, _KEY, key)
            if old and not drop:
                raise already_there(stored.namespace, stored.name)
            db.run(f"DELETE FROM party_tables {_KEY}", key)
            db.run(_INSERT, _flat(stored))
            if job is not None:
                db.run(_INSERT_JOB, _flat_job(job))
        return old

    def put_job(self, job: TableJob) -> None:
        """Add a job that made no table."""
        with self.database.write() as db:
            db.run(_INSERT_JOB, _flat_job(job))

    def delete(self, namespace: str, name: str) -> None:
        """Remove a table and its grants."""
        key = {"namespace": namespace, "name": name}
        with self.database.write() as db:
            db.run(f"DELETE FROM party_tables {_KEY}", key)
            db.run(f"DELETE FROM party_table_grants {_KEY}", key)

    def rename(self, namespace: str, name: str, new_namespace: str, new_name: str) -> None:
        """Give a table and its grants another name. ConflictError: there is one of that name."""
        new = {"namespace": new_namespace, "name": new_name}
        values = {"namespace": namespace, "name": name, "new_namespace": new_namespace, "new_name": new_name}
        with self.database.write() as db:
            if _tables(db, _KEY, new):
                raise already_there(new_namespace, new_name)
            db.run(f"DELETE FROM party_table_grants {_KEY}", new)
            for table in ("party_tables", "party_table_grants"):
                db.run(f"UPDATE {table} SET namespace = :new_namespace, name = :new_name {_KEY}", values)

    def enable(self, namespace: str, name: str, *, on: bool) -> None:
        """Record whether jobs may use a table."""
        self._set("enabled", int(on), namespace, name)

    def set_meta(self, namespace: str, name: str, meta: Mapping[str, Any]) -> None:
        """Replace what is known about a table."""
        self._set("meta", _json(meta), namespace, name)

    def _set(self, column: str, value: Any, namespace: str, name: str) -> None:
        values = {"namespace": namespace, "name": name, "new_value": value}
        with self.database.write() as db:
            db.run(f"UPDATE party_tables SET {column} = :new_value {_KEY}", values)

    # ------------------------------------------------------------------------------------------------------- grants

    def grant(self, namespace: str, name: str, party: str) -> None:
        """Record a grant; it may be there already."""
        values = {"namespace": namespace, "name": name, "party": party}
        with self.database.write() as db:
            db.run(f"DELETE FROM party_table_grants {_KEY} AND party = :party", values)
            db.run("INSERT INTO party_table_grants (namespace, name, party) VALUES (:namespace, :name, :party)", values)

    def revoke(self, namespace: str, name: str, party: str) -> None:
        """Remove a grant. NotFoundError: there is none."""
        values = {"namespace": namespace, "name": name, "party": party}
        with self.database.write() as db:
            gone = db.run(f"DELETE FROM party_table_grants {_KEY} AND party = :party", values)
        if not gone:
            raise NotFoundError(
                f"the table {namespace}/{name} is not granted to party {party}",
                hint=f"List the grants: flow privilege query -p {party}",
            )

    def grants(self, party: str = "") -> list[tuple[str, str, str]]:
        """Return namespace, name and party of each grant."""
        where = "WHERE party = :party " if party else ""
        query = f"SELECT namespace, name, party FROM party_table_grants {where}ORDER BY namespace, name, party"
        with self.database.read() as db:
            return [] if db is None else [(row[0], row[1], row[2]) for row in db.rows(query, {"party": party})]

    def granted(self, namespace: str, name: str, party: str) -> bool:
        """Whether a table is granted to a party, by itself or by EVERY."""
        return any(covers(one, two, namespace, name) for one, two, _ in self.grants(party))

    # --------------------------------------------------------------------------------------------------------- jobs

    def jobs(self, job_id: str = "", *, kind: str = "", limit: int = 0) -> list[TableJob]:
        """Return uploads and downloads, the latest first."""
        where = [f"{name} = :{name}" for name, value in (("job_id", job_id), ("kind", kind)) if value]
        query = (
            f"SELECT {', '.join(_JOB)} FROM party_table_jobs {'WHERE ' if where else ''}{' AND '.join(where)} "
            f"ORDER BY started_at DESC, job_id DESC{f' LIMIT {limit:d}' if limit > 0 else ''}"
        )
        with self.database.read() as db:
            rows = [] if db is None else db.rows(query, {"job_id": job_id, "kind": kind})
        found = [dict(zip(TableJob.__struct_fields__, row, strict=True)) for row in rows]
        return [TableJob(**{**one, "conf": msgspec.json.decode(one["conf"])}) for one in found]

    def count_jobs(self) -> int:
        """Return the number of uploads and downloads."""
        with self.database.read() as db:
            return 0 if db is None else int(db.rows("SELECT count(*) FROM party_table_jobs")[0][0])


def covers(granted_namespace: str, granted_name: str, namespace: str, name: str) -> bool:
    """Whether the grant of a table, or of EVERY one, is one of this table."""
    return granted_namespace in (namespace, EVERY) and granted_name in (name, EVERY)


def already_there(namespace: str, name: str) -> ConflictError:
    """Return the error for a table of a name that is taken."""
    return ConflictError(
        f"the table {namespace}/{name} exists already",
        hint="Give --drop (drop 1 for clients of FATE) to replace it, or choose another name.",
    )


def _tables(db: Connection, where: str, values: Mapping[str, Any]) -> list[StoredTable]:
    found = []
    for row in db.rows(f"SELECT {', '.join(_TABLE)} FROM party_tables {where}", values):
        one = dict(zip(StoredTable.__struct_fields__, row, strict=True))
        one |= {"header": tuple(msgspec.json.decode(one["header"])), "meta": msgspec.json.decode(one["meta"])}
        one |= {"head": bool(one["head"]), "enabled": bool(one["enabled"])}
        found.append(StoredTable(**one))
    return found


def _flat(stored: StoredTable) -> dict[str, Any]:
    values = dict(zip(_TABLE, (getattr(stored, name) for name in StoredTable.__struct_fields__), strict=True))
    values |= {"header": _json(stored.header), "meta": _json(stored.meta)}
    return values | {"head": int(stored.head), "enabled": int(stored.enabled)}


def _flat_job(job: TableJob) -> dict[str, Any]:
    values = dict(zip(_JOB, (getattr(job, name) for name in TableJob.__struct_fields__), strict=True))
    return values | {"conf": _json(job.conf)}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
