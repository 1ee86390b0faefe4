"""The index of the cache: kept results, claims on results in progress, and recorded digests of files.

It is a database file of its own in the state folder (`cache.db`), so that the index of runs stays small. It may be
deleted: results are then made again. A URL names a PostgreSQL database in its place, for runs on several machines;
statements are valid in both. Runs of several projects have equal ids there, so a claim or use also names its owner, the
project. A write survives a kill of the process, not always a power failure; entries are verified
before use.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.store.database import DAMAGED, DAMAGED_END, Connection, Database, obstacle
from weft.store.places import StatePaths, owner_of

if TYPE_CHECKING:
    from pathlib import Path

CACHE_VERSION: Final = 3
CACHE_NAME: Final = "cache.db"
CACHE_INDEX: Final = "WEFT_CACHE_INDEX"
"""The environment variable with the URL of the database for the index."""
_PENDING: Final = 4_096
_MOST_PASSING: Final = 200_000
_MOST_DIGESTS: Final = 2_000_000
ITEM_LEAF: Final = "loop argument"
"""The leaf with the item of a loop."""
_NEAR: Final = 50
_MOST_ITEMS: Final = 10_000
_TICK_S: Final = 0.001
_STORES: Final = "CREATE TABLE IF NOT EXISTS stores (store TEXT PRIMARY KEY)"
"""The table of stores with content of removed results, which indexes of older versions lack."""
_SCHEMA: Final = (
    """CREATE TABLE digests (
        device BIGINT NOT NULL, inode BIGINT NOT NULL, seen TEXT NOT NULL, digest TEXT NOT NULL,
        PRIMARY KEY (device, inode)) WITHOUT ROWID""",
    "CREATE TABLE trees (digest TEXT PRIMARY KEY, listing BYTEA NOT NULL) WITHOUT ROWID",
    """CREATE TABLE entries (
        key TEXT PRIMARY KEY, store TEXT NOT NULL, pipeline TEXT NOT NULL, step TEXT NOT NULL, run TEXT NOT NULL,
        started DOUBLE PRECISION NOT NULL,
        completed DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION, used DOUBLE PRECISION NOT NULL,
        size BIGINT NOT NULL,
        pinned BIGINT NOT NULL, leaves TEXT NOT NULL, outputs TEXT NOT NULL)""",
    "CREATE INDEX ix_entries_step ON entries (pipeline, step, completed)",
    "CREATE INDEX ix_entries_used ON entries (used)",
    """CREATE TABLE uses (key TEXT NOT NULL, owner TEXT NOT NULL, run TEXT NOT NULL,
        PRIMARY KEY (key, owner, run)) WITHOUT ROWID""",
    "CREATE INDEX ix_uses_run ON uses (owner, run)",
    """CREATE TABLE claims (
        key TEXT PRIMARY KEY, epoch BIGINT NOT NULL, owner TEXT NOT NULL, run TEXT NOT NULL, step TEXT NOT NULL,
        task BIGINT NOT NULL, host TEXT NOT NULL, pid BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL,
        lease_until DOUBLE PRECISION NOT NULL, leaves TEXT NOT NULL)""",
    "CREATE INDEX ix_claims_task ON claims (owner, run, step, task)",
    "CREATE TABLE epochs (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
    "INSERT INTO epochs (name, value) VALUES ('claim', 0)",
)
_ENTRY: Final = "key, store, pipeline, step, run, started, completed, expires, used, size, pinned, leaves, outputs"
_ENTRY_COLUMNS: Final = tuple(_ENTRY.split(", "))
_CLAIM: Final = "key, epoch, owner, run, step, task, host, pid, since, lease_until, leaves"
_CLAIM_COLUMNS: Final = tuple(_CLAIM.split(", "))


def _put(table: str, columns: Sequence[str]) -> str:
    """Return the statement that puts a row into a table, in place of the row with the same key."""
    others = ", ".join(f"{name} = excluded.{name}" for name in columns if name != "key")
    values = ", ".join(f":{name}" for name in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}) ON CONFLICT (key) DO UPDATE SET {others}"


_PUT_ENTRY: Final = _put("entries", _ENTRY_COLUMNS)
_PUT_CLAIM: Final = _put("claims", _CLAIM_COLUMNS)


class CachedOutput(Struct, frozen=True):
    """One artifact of a result: its digest, whose first letter is its kind, its bytes, and its newest time of change.

    `files` counts the files in it; `modified_ns` is in ns since 1970. `hidden` has the permissions of the group and of
    others that the step took away from the artifact or from something in it.
    """

    digest: str
    size: int
    files: int
    modified_ns: int
    hidden: int = 0


class Entry(Struct, frozen=True, kw_only=True):
    """A kept result. Times are in seconds since 1970. `size` is in bytes.

    A collection removes the result after `expires` (None: never); each reader of it has a limit of its own.
    `leaves` are the parts of its key, `store` is the folder with the content of its outputs.
    """

    key: str
    store: str
    pipeline: str
    step: str
    run: str
    started: float
    completed: float
    expires: float | None
    used: float = 0.0
    size: int = 0
    pinned: bool = False
    leaves: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, CachedOutput] = field(default_factory=dict)


class Claim(Struct, frozen=True, kw_only=True):
    """The maker of a result in progress: a task of a run of the owner, which is the project (`CacheIndex.owner`).

    `epoch` grows with every claim: a commit of an earlier one is refused.
    """

    key: str
    epoch: int
    owner: str = ""
    run: str
    step: str
    task: int
    host: str
    pid: int
    since: float
    lease_until: float
    leaves: Mapping[str, str]


def index_of(state: Path) -> CacheIndex:
    """Return the index for a state folder: a file in it, or the database at the URL in WEFT_CACHE_INDEX.

    A file has one owner: a copied or moved project has its claims and uses in it.
    """
    url = os.environ.get(CACHE_INDEX)
    return CacheIndex(url, partial(owner_of, state)) if url else CacheIndex(state / CACHE_NAME)


class CacheIndex:
    """The index in one file, or in the database at a URL. Safe to use from several threads and processes.

    Also a `weft.store.digests.Known`. `state` is the state folder of an index in a file: its paths are kept as
    `weft.store.places` has them. At a URL they stay absolute, since projects of several machines share them. `owner_of`
    returns the owner of the claims and uses of the runs here; it is called when the first one is read or written.
    """

    def __init__(self, place: Path | str, owner_of: Callable[[], str] = str) -> None:
        self.database = Database(
            place,
            what="the index of the cache",
            schema=_SCHEMA,
            version=CACHE_VERSION,
            again="steps then run again, and nothing else is lost",
            lock_name="cache.lock",
            safe_from_power_loss=False,
        )
        self.place = place
        self._owner_of = owner_of
        self._owner = ""
        self.state = None if self.database.file is None else self.database.file.parent
        self._paths = None if self.state is None else StatePaths(self.state)
        self._mutex = threading.Lock()
        self._digests: dict[tuple[int, int], tuple[str, str]] = {}
        self._passing: dict[tuple[int, int], tuple[str, str]] = {}
        self._recalled: dict[tuple[int, int], tuple[str, str]] = {}
        self._trees: dict[str, bytes] = {}
        self._uses: dict[tuple[str, str], float] = {}

    @property
    def owner(self) -> str:
        """The owner of the claims and uses of the runs here."""
        self._owner = self._owner or self._owner_of()
        return self._owner

    def shown(self, owner: str, run: str) -> str:
        """Return the name of a run for people; an equally named run of another project is no run of this one."""
        return run if owner == self.owner else f"{run} of another project"

    def close(self) -> None:
        """Write the buffered records, and close."""
        try:
            self.flush()
        finally:
            self.database.close()

    def set_aside_damage(self) -> str:
        """Rename a damaged file and return a note about it; "" if it can be read. Results are made again then."""
        try:
            self.claims_of("")
            self.count()
        except ConflictError as error:
            if obstacle(error) != DAMAGED:
                raise
            self.database.set_aside()
            return f"{error.message}; it is kept as {self.database.file}{DAMAGED_END}, and steps run again"
        return ""

    # --------------------------------------------------------------------------------------------------- digests

    def digest(self, device: int, inode: int, seen: str) -> str | None:
        """Return the recorded digest of the file with this stat, if any. Many steps read the same files, so what the
        database answers is remembered.
        """
        noted = self._noted(device, inode)
        if noted is None or noted[0] != seen:
            noted = self._recorded(device, inode)
            if noted is None or noted[0] != seen:
                return None
            self.note_for_now(device, inode, *noted)
        return noted[1]

    def known(self, device: int, inode: int) -> tuple[str, str] | None:
        """Return the last recorded stat and digest of a file, if any."""
        return self._noted(device, inode) or self._recorded(device, inode)

    def _noted(self, device: int, inode: int) -> tuple[str, str] | None:
        file = device, inode
        return self._digests.get(file) or self._passing.get(file) or self._recalled.get(file)

    def _recorded(self, device: int, inode: int) -> tuple[str, str] | None:
        with self.database.read() as db:
            found = (
                db.rows(
                    "SELECT seen, digest FROM digests WHERE device = :device AND inode = :inode",
                    {"device": _signed(device), "inode": _signed(inode)},
                )
                if db is not None
                else []
            )
        return (found[0][0], found[0][1]) if found else None

    def recall(self, files: Iterable[tuple[int, int]]) -> None:
        """Read the records of files (device, inode) in advance of their `known`."""
        devices: dict[int, list[int]] = {}
        for device, inode in files:
            devices.setdefault(device, []).append(inode)
        found = {}
        for device, inodes in devices.items():
            values = {f"i{at}": _signed(inode) for at, inode in enumerate(inodes)}
            where = f"device = :device AND inode IN ({_names(values)})"
            values["device"] = _signed(device)
            with self.database.read() as db:
                sql = f"SELECT inode, seen, digest FROM digests WHERE {where}"
                rows = db.rows(sql, values) if db is not None else []
            found.update({(device, inode % (1 << 64)): (seen, digest) for inode, seen, digest in rows})
        self._recalled = found

    def note(self, device: int, inode: int, seen: str, digest: str) -> None:
        """Record the digest of a stat; written by the next `flush`."""
        self._digests[device, inode] = (seen, digest)
        self._passing.pop((device, inode), None)

    def note_for_now(self, device: int, inode: int, seen: str, digest: str) -> None:
        """Record a digest for the life of this process: for files that only one run reads."""
        if len(self._passing) > _MOST_PASSING:
            self._passing.clear()
        self._passing[device, inode] = (seen, digest)

    def note_tree(self, digest: str, listing: bytes) -> None:
        """Record the content of a folder with this digest; written by the next `flush`."""
        self._trees[digest] = listing

    def tree(self, digest: str) -> bytes:
        """Return the content of a folder with this digest. NotFoundError: it is unknown."""
        noted = self._trees.get(digest)
        if noted is not None:
            return noted
        with self.database.read() as db:
            found = [] if db is None else db.rows("SELECT listing FROM trees WHERE digest = :it", {"it": digest})
        if not found:
            raise NotFoundError(f"the content of the folder {digest[:13]} is no longer known")
        return bytes(found[0][0])

    def flush(self, now: float | None = None) -> None:
        """Write the buffered records: digests, folders and uses. Recorded uses later than `now` are put before it."""
        if self._digests or self._trees or self._uses:
            with self.database.write() as db:
                self._write_noted(db, now)

    @property
    def full(self) -> bool:
        """Whether enough records are buffered to write them."""
        return len(self._digests) + len(self._trees) + len(self._uses) > _PENDING

    def put_back(self, now: float) -> None:
        """Put uses at a later time than `now` before it: the clock was set back since."""
        with self.database.write() as db:
            self._put_back(db, now)

    @staticmethod
    def _put_back(db: Connection, now: float) -> None:
        later = db.rows("SELECT key FROM entries WHERE used > :now ORDER BY used DESC", {"now": now})
        db.many(
            "UPDATE entries SET used = :used WHERE key = :key",
            ({"key": row[0], "used": now - _TICK_S * place} for place, row in enumerate(later, 1)),
        )

    def _write_noted(self, db: Connection, now: float | None) -> None:
        owner = self.owner
        if now is not None:  # before the uses since then are written
            self._put_back(db, now)
        with self._mutex:
            digests, self._digests = self._digests, {}
            trees, self._trees = self._trees, {}
            uses, self._uses = self._uses, {}
            self._recalled = {}
        db.many(
            "INSERT INTO digests (device, inode, seen, digest) VALUES (:device, :inode, :seen, :digest) "
            "ON CONFLICT (device, inode) DO UPDATE SET seen = excluded.seen, digest = excluded.digest",
            (
                {"device": _signed(device), "inode": _signed(inode), "seen": seen, "digest": digest}
                for (device, inode), (seen, digest) in sorted(digests.items())
            ),
        )
        db.many(
            "INSERT INTO trees (digest, listing) VALUES (:digest, :listing) ON CONFLICT (digest) DO NOTHING",
            ({"digest": digest, "listing": listing} for digest, listing in sorted(trees.items())),
        )
        rows = [{"key": key, "owner": owner, "run": run, "now": now} for (key, run), now in sorted(uses.items())]
        db.many("INSERT INTO uses (key, owner, run) VALUES (:key, :owner, :run) ON CONFLICT DO NOTHING", rows)
        db.many("UPDATE entries SET used = :now WHERE key = :key AND used < :now", rows)

    # --------------------------------------------------------------------------------------------------- entries

    def entry(self, key: str) -> Entry | None:
        """Return the result of this key, if one is kept."""
        found = self._entries("WHERE key = :key", {"key": key})
        return found[0] if found else None

    def entries_of(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return the kept results of these keys, by key."""
        values = {f"k{at}": key for at, key in enumerate(dict.fromkeys(keys))}
        if not values:
            return {}
        return {entry.key: entry for entry in self._entries(f"WHERE key IN ({_names(values)})", values)}

    def find(self, beginning: str) -> Entry:
        """Return the result whose key begins with `text`. NotFoundError: none. UsageError: more than one."""
        values = {"low": beginning, "high": beginning + "g"}
        found = self._entries("WHERE key >= :low AND key < :high LIMIT 2", values) if beginning else []
        if not found:
            raise NotFoundError(f"the cache has no entry {beginning!r}", hint="List them: weft cache ls")
        if len(found) > 1:
            raise UsageError(f"{beginning!r} matches more than one entry", hint="Give more characters.")
        return found[0]

    def near(self, pipeline: str, step: str) -> list[Entry]:
        """Return the newest results of a step, newest first."""
        return self._entries(
            f"WHERE pipeline = :pipeline AND step = :step ORDER BY completed DESC LIMIT {_NEAR}",
            {"pipeline": pipeline, "step": step},
        )

    def near_elsewhere(self, step: str) -> list[Entry]:
        """Return the newest results of the steps of this name in all pipelines, newest first."""
        return self._entries(f"WHERE step = :step ORDER BY completed DESC LIMIT {_NEAR}", {"step": step})

    def of_run(self, pipeline: str, run: str) -> list[Entry]:
        """Return the results that a run of the pipeline has used, and those that runs of its name have made."""
        return self._entries(
            "WHERE (pipeline = :pipeline AND run = :run) "
            "OR key IN (SELECT key FROM uses WHERE owner = :owner AND run = :run)",
            {"pipeline": pipeline, "run": run, "owner": self.owner},
        )

    def items_before(self, pipeline: str, step: str, run: str) -> dict[str, str]:
        """Return the keys of the newest results of a looping step that other runs than `run` made, by the item."""
        with self.database.read() as db:
            rows = (
                []
                if db is None
                else db.rows(
                    "SELECT key, leaves FROM entries WHERE pipeline = :pipeline AND step = :step AND run != :run "
                    f"ORDER BY completed DESC LIMIT {_MOST_ITEMS}",
                    {"pipeline": pipeline, "step": step, "run": run},
                )
            )
        found: dict[str, str] = {}
        for key, leaves in rows:
            item = json.loads(leaves).get(ITEM_LEAF)
            if item is not None:
                found.setdefault(item, key)
        return found

    def entries(self, *, limit: int | None = None, pipeline: str | None = None) -> list[Entry]:
        """Return the most recently used results, the latest first."""
        where = "" if pipeline is None else "WHERE pipeline = :pipeline "
        most = "" if limit is None else f" LIMIT {limit:d}"
        return self._entries(f"{where}ORDER BY used DESC, key{most}", {"pipeline": pipeline} if pipeline else {})

    def count(self) -> tuple[int, int]:
        """Return the number of kept results, and the sum of their bytes (shared bytes count for each)."""
        with self.database.read() as db:
            found = db.rows("SELECT count(*), sum(size) FROM entries") if db is not None else [(0, 0)]
        return int(found[0][0]), int(found[0][1] or 0)

    def users(self, key: str) -> list[str]:
        """Return the names, as `shown`, of the runs that used this result."""
        sql = "SELECT owner, run FROM uses WHERE key = :key ORDER BY run, owner"
        with self.database.read() as db:
            rows = [] if db is None else db.rows(sql, {"key": key})
        return list(dict.fromkeys(self.shown(owner, run) for owner, run in rows))

    def used(self, key: str, run: str, now: float) -> None:
        """Record the use of a result by a run; written by the next `flush`."""
        self._uses[key, run] = now

    def pin(self, key: str, pinned: bool) -> None:
        """Keep a result whatever its age, or end that."""
        with self.database.write() as db:
            db.run("UPDATE entries SET pinned = :pinned WHERE key = :key", {"pinned": int(pinned), "key": key})

    def remove(self, keys: Iterable[str]) -> None:
        """Remove results; `weft cache gc` removes their unreferenced content."""
        rows = [{"key": key} for key in sorted(keys)]  # in one order: two that remove rows do not wait for each other
        with self.database.write() as db:
            _note_stores(db, rows)
            db.many("DELETE FROM entries WHERE key = :key", rows)
            db.many("DELETE FROM uses WHERE key = :key", rows)

    def remove_unchanged(self, completed: Mapping[str, float]) -> None:
        """Remove results by key and time of completion: a result that was made again since stays."""
        rows = [{"key": key, "completed": at} for key, at in sorted(completed.items())]
        with self.database.write() as db:
            _note_stores(db, [{"key": row["key"]} for row in rows])
            db.many("DELETE FROM entries WHERE key = :key AND completed = :completed", rows)
            db.many("DELETE FROM uses WHERE key = :key AND key NOT IN (SELECT key FROM entries)", rows)

    def left_stores(self) -> set[str]:
        """Return the stores of removed results whose content may still be there."""
        with self.database.read() as db:
            there = db is not None and "stores" in db.tables()
            found = {row[0] for row in db.rows("SELECT store FROM stores")} if db is not None and there else set()
        return found if self._paths is None else set(map(self._paths.resolve, found))

    def forget_stores(self, swept: Iterable[str]) -> None:
        """Drop the records of stores whose unreferenced content was removed."""
        rows = [{"store": one if self._paths is None else self._paths.keep(one)} for one in sorted(swept)]
        with self.database.write() as db:
            db.add("stores", [_STORES])
            db.many("DELETE FROM stores WHERE store = :store", rows)

    def forget_run(self, run: str) -> None:
        """Remove the uses and claims of a run that does not go on; its kept results stay."""
        if not self.database.exists():
            return
        with self.database.write() as db:
            own = {"owner": self.owner, "run": run}
            db.run("DELETE FROM uses WHERE owner = :owner AND run = :run", own)
            db.run("DELETE FROM claims WHERE owner = :owner AND run = :run", own)

    def forget_digests(self) -> None:
        """Drop all digests of files if there are too many of them: they are computed again."""
        with self.database.write() as db:
            if int(db.rows("SELECT count(*) FROM digests")[0][0]) > _MOST_DIGESTS:
                db.run("DELETE FROM digests")

    def forget_trees(self, kept: Callable[[Iterable[Entry], Iterable[Claim]], Iterable[str]]) -> None:
        """Drop all folders but those that `kept` returns for the present results and claims.

        Other processes keep no result meanwhile: its folders would be dropped, as nothing refers to them yet.
        """
        with self.database.write(alone_in="trees") as db:
            entries = map(self._entry, db.rows(f"SELECT {_ENTRY} FROM entries"))
            claims = map(_claim, db.rows(f"SELECT {_CLAIM} FROM claims"))
            rows = [{"digest": digest} for digest in dict.fromkeys(kept(entries, claims))]
            db.run("CREATE TEMP TABLE kept (digest TEXT PRIMARY KEY)")
            db.many("INSERT INTO kept (digest) VALUES (:digest)", rows)
            db.run("DELETE FROM trees WHERE digest NOT IN (SELECT digest FROM kept)")
            db.run("DROP TABLE kept")

    def _entries(self, where: str, values: Mapping[str, Any]) -> list[Entry]:
        with self.database.read() as db:
            rows = [] if db is None else db.rows(f"SELECT {_ENTRY} FROM entries {where}", values)
        return [self._entry(row) for row in rows]

    def _entry(self, row: Sequence[Any]) -> Entry:
        found = dict(zip(_ENTRY_COLUMNS, row, strict=True))
        if self._paths is not None:
            found["store"] = self._paths.resolve(found["store"])
        found["pinned"] = bool(found["pinned"])
        found["leaves"] = json.loads(found["leaves"])
        found["outputs"] = {name: CachedOutput(*fields) for name, fields in json.loads(found["outputs"]).items()}
        return Entry(**found)

    # ---------------------------------------------------------------------------------------------------- claims

    def claim(self, claim: Claim) -> Claim:
        """Record the holder of a key's lock as the maker of its result; return the claim with its epoch."""
        with self.database.write() as db:
            self._write_noted(db, claim.since)
            epoch = int(db.rows("UPDATE epochs SET value = value + 1 WHERE name = 'claim' RETURNING value")[0][0])
            claim = replace(claim, epoch=epoch, owner=self.owner)
            values = {name: getattr(claim, name) for name in _CLAIM_COLUMNS}
            db.run(_PUT_CLAIM, values | {"leaves": json.dumps(dict(claim.leaves))})
        return claim

    def claimed(self, key: str) -> Claim | None:
        """Return the last recorded claim on the result of this key."""
        return self._one_claim("key = :key", {"key": key})

    def claim_of(self, run: str, step: str, task: int) -> Claim | None:
        """Return the claim of a task of a run, if it has one."""
        values = {"owner": self.owner, "run": run, "step": step, "task": task}
        return self._one_claim("owner = :owner AND run = :run AND step = :step AND task = :task", values)

    def claims_of(self, run: str) -> list[Claim]:
        """Return the claims of a run: its results in progress when it was killed."""
        with self.database.read() as db:
            sql = f"SELECT {_CLAIM} FROM claims WHERE owner = :owner AND run = :run"
            rows = [] if db is None else db.rows(sql, {"owner": self.owner, "run": run})
        return [_claim(row) for row in rows]

    def prolong(self, claims: Iterable[Claim], until: float) -> None:
        """Prolong these claims for other hosts."""
        rows = [{"key": claim.key, "epoch": claim.epoch, "until": until} for claim in claims]
        with self.database.write() as db:
            db.many("UPDATE claims SET lease_until = :until WHERE key = :key AND epoch = :epoch", rows)

    def release(self, claims: Iterable[Claim]) -> None:
        """Remove claims without a result."""
        with self.database.write() as db:
            rows = [{"key": claim.key, "epoch": claim.epoch} for claim in claims]
            db.many("DELETE FROM claims WHERE key = :key AND epoch = :epoch", rows)

    def commit(self, entry: Entry, claim: Claim) -> bool:
        """Keep a result, and end its claim. Return False if another owner has claimed it since."""
        with self.database.write() as db:
            self._write_noted(db, entry.used)
            mine = {"key": claim.key, "epoch": claim.epoch}
            if not db.run("DELETE FROM claims WHERE key = :key AND epoch = :epoch", mine):
                return False
            values = {name: getattr(entry, name) for name in _ENTRY_COLUMNS}
            values |= {
                "store": entry.store if self._paths is None else self._paths.keep(entry.store),
                "pinned": int(entry.pinned),
                "leaves": json.dumps(dict(entry.leaves)),
                "outputs": json.dumps(
                    {
                        name: [output.digest, output.size, output.files, output.modified_ns, output.hidden]
                        for name, output in entry.outputs.items()
                    }
                ),
            }
            db.run(_PUT_ENTRY, values)
            db.run("DELETE FROM uses WHERE key = :key", {"key": entry.key})
        return True

    def _one_claim(self, where: str, values: Mapping[str, Any]) -> Claim | None:
        with self.database.read() as db:
            rows = [] if db is None else db.rows(f"SELECT {_CLAIM} FROM claims WHERE {where}", values)
        return _claim(rows[0]) if rows else None


def _claim(row: Sequence[Any]) -> Claim:
    found = dict(zip(_CLAIM_COLUMNS, row, strict=True))
    return Claim(**{**found, "leaves": json.loads(found["leaves"])})


def _note_stores(db: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Record the stores of results that are removed: their content goes later, when no row may name them any more."""
    db.add("stores", [_STORES])
    db.many(
        "INSERT INTO stores (store) SELECT store FROM entries WHERE key = :key ON CONFLICT (store) DO NOTHING", rows
    )


def _names(values: Iterable[str]) -> str:
    return ", ".join(f":{name}" for name in values)


def _signed(number: int) -> int:
    """Return a number of 64 bits as SQLite takes it."""
    return number - (1 << 64) if number >= 1 << 63 else number
