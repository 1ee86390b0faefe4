"""Databases: an SQLite file on this machine, or any database of SQLAlchemy, by URL.

Statements are plain SQL with `:names`, valid in both. SQLAlchemy is loaded for URLs alone: its import would take most
of the time of a command.

An SQLite file is opened, written, folded (its log of writes moved into it) and closed only while its lock file is held
by flock: two connections that write or fold at the same moment can destroy the file in releases of SQLite before
3.51.3. Readers open the file read-only; they never wait and cannot fold. In a folder that is not writable they read the
file without its log of writes. If the disk has no room for the memory shared
by readers and writers, a reader does without it, alone and under the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol
from urllib.parse import quote

from weft.model.errors import (
    CapacityError,
    ConflictError,
    DiskFullError,
    ForbiddenError,
    InternalError,
    MissingExtraError,
    NotFoundError,
    UsageError,
    WeftError,
)
from weft.model.masking import without_passwords
from weft.store.limits import limit_advice
from weft.store.places import STATE_NAME

if TYPE_CHECKING:
    from sqlalchemy import Connection as AlchemyConnection
    from sqlalchemy import Engine

_TRIES: Final = 5_000
_TRY_PAUSE_S: Final = 0.002
_held_long: Final[set[Path]] = set()
"""The locks that another process, perhaps a suspended one, held for all tries: each is tried once until it is free."""
_BUSY_MS: Final = 5_000
_FULL_BYTES: Final = 64 << 10
_SHARED_BYTES: Final = 64 << 10
"""The size of the file that readers and writers of a database share."""
_NO_WRITES: Final = (
    sqlite3.SQLITE_READONLY_DIRECTORY,
    sqlite3.SQLITE_READONLY_CANTINIT,
    sqlite3.SQLITE_READONLY_RECOVERY,
    sqlite3.SQLITE_CANTOPEN,
)
_NO_SHARED: Final = (sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP)
WHAT_CAN_GO: Final = "Old runs go with `weft delete RUN`, kept results with `weft cache gc --max-size 0`."
"""The advice for a full disk."""
_MOVE_BACK: Final = "Move it back, or give the command where it is now: a run is resumed there with `weft resume`."
_VERSION: Final = "SELECT value FROM weft_about WHERE key = 'version'"
_OF_SQLITE: Final = " WITHOUT ROWID"
_NO_DATABASE: Final = "3D000"
_NO_USER: Final = "28"
"""The class of states of SQL for a user who is not known, or has another password."""
_NOT_ALLOWED: Final = "42501"
_ONE_MAKES: Final = "SELECT pg_advisory_xact_lock(5734)"
DAMAGED_END: Final = ".damaged"
_ABOUT: Final = "CREATE TABLE weft_about (key VARCHAR(64) PRIMARY KEY, value TEXT)"

_ABOUT_NAME: Final = b"weft_about"
_FIRST_BYTES: Final = 1 << 16
"""The bytes at the beginning of a file of which the first page has the names of tables."""

DAMAGED, BUSY = "damaged", "busy"
"""Obstacles to the use of a database: its file is damaged, or another process holds its lock."""
Row = Sequence[Any]


def obstacle(error: BaseException) -> str:
    """Return the obstacle that an error of a database reports: DAMAGED, BUSY, or "" for any other error."""
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DAMAGED
    return BUSY if isinstance(cause, BlockingIOError) or code == sqlite3.SQLITE_BUSY else ""


class Connection(Protocol):
    """One transaction of a database, or one read."""

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        """Execute a statement and return its rows."""
        ...

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> int:
        """Execute a statement and return the number of changed rows."""
        ...

    def many(self, sql: str, values: Iterable[Mapping[str, Any]]) -> None:
        """Execute a statement once for each of `values`."""
        ...

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        ...

    def add(self, table: str, statements: Sequence[str]) -> None:
        """Make a table that a database of an older version lacks; several processes may do so at once.

        The statements do nothing to what is there already.
        """
        ...


class _Sqlite:
    """A `Connection` of the standard library."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self.inner = inner

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        return self.inner.execute(sql, values or {}).fetchall()

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> int:
        return self.inner.execute(sql, values or {}).rowcount

    def many(self, sql: str, values: Iterable[Mapping[str, Any]]) -> None:
        self.inner.executemany(sql, values)

    def tables(self) -> list[str]:
        return [row[0] for row in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]

    def add(self, table: str, statements: Sequence[str]) -> None:
        for statement in statements:
            self.run(statement)


class _Alchemy:
    """A `Connection` of SQLAlchemy."""

    def __init__(self, inner: AlchemyConnection) -> None:
        self.inner = inner

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        from sqlalchemy import text

        return [tuple(row) for row in self.inner.execute(text(sql), dict(values or {}))]

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> int:
        from sqlalchemy import text

        return self.inner.execute(text(sql), dict(values or {})).rowcount

    def many(self, sql: str, values: Iterable[Mapping[str, Any]]) -> None:
        from sqlalchemy import text

        if rows := [dict(value) for value in values]:
            self.inner.execute(text(sql), rows)

    def tables(self) -> list[str]:
        from sqlalchemy import inspect

        return inspect(self.inner).get_table_names()

    def add(self, table: str, statements: Sequence[str]) -> None:
        if table not in self.tables():
            self.one_makes()
            for statement in statements:
                self.run(statement)

    def one_makes(self) -> None:
        """Wait until no other transaction makes tables: of two that make one at once, PostgreSQL lets one fail."""
        if self.inner.dialect.name == "postgresql":
            self.run(_ONE_MAKES)


class Database:
    """A database with the tables of one module, made at the first write. For several threads and processes.

    `what` is its name in messages ("the index of runs"), `schema` has the statements that make its tables, `version`
    their format, and `again` the way to restore it after it is moved away. With `safe_from_power_loss` a write is on
    the disk when it returns; else it survives a kill, but not always a power failure. With `lasting` a file that was
    in use is never made anew: while it is gone, each use is a CapacityError. `can_go` is the advice for a full disk.
    """

    def __init__(
        self,
        path_or_url: Path | str,
        *,
        what: str,
        schema: Sequence[str],
        version: int,
        again: str,
        lock_name: str = "db.lock",
        safe_from_power_loss: bool = True,
        lasting: bool = False,
        can_go: str = WHAT_CAN_GO,
    ) -> None:
        self.what, self.again = what, again
        self._lasting, self._make_room = lasting, f"Free space on this disk. {can_go}"
        self._schema, self._version = schema, str(version)
        self._synchronous = "FULL" if safe_from_power_loss else "NORMAL"
        self._mutex = threading.RLock()
        self._reader: sqlite3.Connection | None = None
        self._known: tuple[int, int] | None = None
        self._checked = False
        self._writers: list[sqlite3.Connection] = []
        self._writes_to: tuple[int, int] | None = None
        self._engine: Engine | None = None
        self.file: Path | None = None
        if isinstance(path_or_url, Path) or "://" not in path_or_url:
            self.file = Path(path_or_url).absolute()
            self.where = str(self.file)
            self._had_folder = self.file.parent.is_dir()
            self._lock_path = self.file.with_name(lock_name)
            weakref.finalize(self, _close_unused, self._writers, self._lock_path)
        else:
            self._engine, self.where = _engine(path_or_url)

    def exists(self) -> bool:
        """Whether there is a database (for a URL: always)."""
        return self.file is None or self.file.exists()

    def close(self) -> None:
        """Close the open connections; a later use opens new ones."""
        with self._mutex:
            if self._engine is not None:
                self._engine.dispose()
            elif self._writers:
                _close_unused(self._writers, self._lock_path)
            self._close_reader()

    @contextmanager
    def read(self) -> Iterator[Connection | None]:
        """Open a read; yields None if there is no database, or another process is making it."""
        with self._mutex:
            try:
                if self._engine is not None:
                    with self._engine.connect() as inner:
                        alchemy = _Alchemy(inner)
                        self._checked = self._checked or ("weft_about" in alchemy.tables() and self._check(alchemy))
                        yield alchemy if self._checked else None
                    return
                reader = self._open_reader()
                if reader is not None and self._checked:
                    yield _Sqlite(reader)
                    return
                with self._checking(reader) as checked:
                    yield checked
            except Exception as error:
                self._raise_known(error)
                raise

    @contextmanager
    def _checking(self, reader: sqlite3.Connection | None) -> Iterator[_Sqlite | None]:
        """Check a file that was just opened."""
        if reader is not None:
            try:
                half = _half_written(reader)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode in _NO_WRITES and not os.access(Path(self.where).parent, os.W_OK):
                    yield self._as_it_lies()
                    return
                if error.sqlite_errorcode not in _NO_SHARED:
                    raise
                self._close_reader()
                with self._alone() as only:
                    yield only if self._check(only) else None
                return
            if half:
                with self._locked(self._half_written):
                    self._roll_back()
            self._checked = self._check(_Sqlite(reader))
        yield _Sqlite(reader) if reader is not None and self._checked else None

    def _as_it_lies(self) -> _Sqlite | None:
        """Open the file in a folder that is not writable, without its log of writes, which needs files beside it."""
        self._close_reader()
        self._reader = self._connect("ro&immutable=1")
        self._checked = self._check(_Sqlite(self._reader))
        return _Sqlite(self._reader) if self._checked else None

    @contextmanager
    def _alone(self) -> Iterator[_Sqlite]:
        """Open a private connection under the lock: its reads need no room on the disk."""
        with self._locked(), closing(self._connect("rw")) as inner:
            inner.execute("PRAGMA locking_mode=EXCLUSIVE")
            yield _Sqlite(inner)

    @contextmanager
    def write(self, *, alone_in: str = "") -> Iterator[Connection]:
        """Open a transaction. The connection stays open for the next one, but is idle without the lock.

        `alone_in` names a table that no other transaction writes meanwhile; in a file none writes any table.
        """
        with self._mutex, self._locked():
            try:
                if self._engine is not None:
                    with self._engine.begin() as inner:
                        alchemy = _Alchemy(inner)
                        if not self._checked:
                            alchemy.one_makes()
                            self._make(alchemy, there="weft_about" in alchemy.tables())
                        if alone_in and inner.dialect.name == "postgresql":
                            alchemy.run(f"LOCK TABLE {alone_in} IN SHARE ROW EXCLUSIVE MODE")
                        yield alchemy
                    self._checked = True
                    return
                with self._transaction() as writer:
                    self._make(writer)
                    yield writer
            except Exception as error:
                self._raise_known(error)
                raise

    @contextmanager
    def _transaction(self) -> Iterator[_Sqlite]:
        writer = self._open_writer()
        writer.execute("BEGIN IMMEDIATE")
        try:
            yield _Sqlite(writer)
            writer.execute("COMMIT")
        except BaseException as error:
            if writer.in_transaction:
                with suppress(sqlite3.Error):
                    writer.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                self._close_writer()
            raise

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """Open a connection to the database at a URL, for locks of its lifetime; each statement commits."""
        assert self._engine is not None
        try:
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as inner:
                try:
                    yield _Alchemy(inner)
                finally:
                    inner.invalidate()  # its locks end with it: it does not go back to the pool
        except Exception as error:
            self._raise_known(error)
            raise

    def set_aside(self) -> None:
        """Rename the damaged file of the last use to `NAME.damaged`, unless another process has replaced it.

        ConflictError: nothing tells that the file is one of Weft.
        """
        assert self.file is not None
        if not self._is_own(self.file):
            raise ConflictError(
                f"{self.where} is no file of Weft, which keeps {self.what} in a file of that name",
                hint=f"Use another state folder. If the file is a damaged one of Weft, move it away: {self.again}.",
            )
        with self._mutex, self._locked():
            found = self._identity()
            self._close_reader()
            self._close_writer()
            if found is not None and found in (self._known, self._writes_to):
                for end in ("", "-wal", "-shm"):
                    with suppress(FileNotFoundError):
                        os.replace(f"{self.file}{end}", f"{self.file}{DAMAGED_END}{end}")

    @staticmethod
    def _is_own(file: Path) -> bool:
        """Whether a damaged file was made here: its folder or its first bytes tell."""
        if file.parent.name == STATE_NAME or next(file.parent.glob("runs/*/run.json"), None) is not None:
            return True
        try:
            with file.open("rb") as content:
                return _ABOUT_NAME in content.read(_FIRST_BYTES)
        except OSError:
            return False

    def damage(self) -> str:
        """Return the damage of the file, "" if there is none, after reading all of it."""
        if self.file is None or not self.exists():
            return ""
        try:
            with self.read() as connection:
                found = [] if connection is None else connection.rows("PRAGMA quick_check(1)")
        except WeftError as error:
            return str(error)
        return "" if not found or found[0][0] == "ok" else f"{self.what} in {self.where} is damaged: {found[0][0]}"

    # ---------------------------------------------------------------------------------------------------- inside

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"file:{quote(os.fsencode(self.where))}?mode={mode}"
        return sqlite3.connect(
            uri, uri=True, isolation_level=None, timeout=_BUSY_MS / 1000, check_same_thread=False, cached_statements=64
        )

    def _open_reader(self) -> sqlite3.Connection | None:
        """Return the reader, reopened if the file was replaced; None while there is none."""
        found = self._identity()
        if self._reader is not None and found == self._known:
            return self._reader
        self._check_there(found)
        self._close_reader()
        if found is not None:
            self._reader, self._known, self._checked = self._connect("ro"), found, False
        return self._reader

    def _open_writer(self) -> sqlite3.Connection:
        """Return the writer, reopened if the file was replaced; the lock is held.

        The log is folded by the commit that brings it to 1,000 pages, and by the last connection that is closed.
        """
        found = self._identity()
        if self._writers and found == self._writes_to:
            return self._writers[0]
        self._check_there(found)
        self._close_writer()
        if (reader := self._open_reader()) is not None and _half_written(reader):
            self._roll_back()
        writer = self._connect("rwc")
        try:
            writer.execute("PRAGMA journal_mode=WAL")
            writer.execute(f"PRAGMA synchronous={self._synchronous}")
        except BaseException:
            writer.close()
            raise
        self._writers.append(writer)
        self._writes_to = self._identity()
        return writer

    def _check_there(self, found: tuple[int, int] | None) -> None:
        if found is None and self._lasting and (self._known or self._writes_to):
            raise CapacityError(
                f"{self.what} in {self.where} is gone: it was moved or deleted while it was in use",
                hint="Move it back: what it has is not known without it.",
            )

    def _close_writer(self) -> None:
        """Close the writer; the lock is held."""
        while self._writers:
            self._writers.pop().close()

    def _identity(self) -> tuple[int, int] | None:
        """Return the identity of the file, which a replacement changes; None while there is none."""
        assert self.file is not None
        try:
            found = os.stat(self.where)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _roll_back(self) -> None:
        """Undo the incomplete write of a killed process; the lock is held."""
        writer = self._connect("rw")
        try:
            if _half_written(writer):
                raise self._half_written
        finally:
            writer.close()

    @property
    def _half_written(self) -> ForbiddenError:
        return ForbiddenError(
            f"{self.what} in {self.where} is half written, because its process was killed, and cannot be "
            "repaired without write permission",
            hint="Ask a user with write permission to run `weft ls` there, which repairs it.",
        )

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _make(self, connection: Connection, *, there: bool = True) -> None:
        if not there or not self._check(connection):
            for statement in (_ABOUT, *self._schema):
                connection.run(statement if self._engine is None else statement.removesuffix(_OF_SQLITE))
            values = {"key": "version", "value": self._version}
            connection.run("INSERT INTO weft_about (key, value) VALUES (:key, :value)", values)

    def _check(self, connection: Connection) -> bool:
        """Return whether the tables exist. ConflictError: they belong to another program or version."""
        try:
            found = connection.rows(_VERSION)
        except sqlite3.OperationalError:
            names = connection.tables()
            if "weft_about" in names:  # another process has just made it; if not, the error is raised again
                return self._check_version(connection.rows(_VERSION))
            if names:
                raise ConflictError(
                    f"{self.where} is a database of another program", hint="Move it away, or use another state folder."
                ) from None
            return False
        return self._check_version(found)

    def _check_version(self, found: list[Row]) -> bool:
        value = found[0][0] if found else ""
        if value != self._version:
            raise ConflictError(
                f"{self.where} was written by another version of Weft: its format is {value or 'unknown'}, "
                f"this one reads {self._version}",
                hint=f"Use that version, or move the file away: {self.again}.",
            )
        return True

    @contextmanager
    def _locked(self, forbidden: WeftError | None = None) -> Iterator[None]:
        """Hold the lock; `forbidden` is raised if this process has no permission."""
        if self.file is None:
            yield
            return
        path = self._lock_path
        try:
            if not self._had_folder:  # one that is gone later was moved, with the file
                self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._had_folder = True
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            found = f"{self.what} in {self.where} cannot be opened: {error.strerror}"
            if error.errno == errno.ENOENT:
                raise ConflictError(
                    f"the folder {self.file.parent} was moved or deleted while it was in use", hint=_MOVE_BACK
                ) from None
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFullError(found, hint=self._make_room) from None
            if advice := limit_advice(error):
                raise CapacityError(found, hint=advice) from None
            raise forbidden or ForbiddenError(
                found, hint="Check that you have write permission for this folder."
            ) from None
        try:
            for tries in range(1 if path in _held_long else _TRIES, 0, -1):
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _held_long.discard(path)
                    break
                except BlockingIOError as error:
                    busy = error
                if tries > 1:
                    time.sleep(_TRY_PAUSE_S)
            else:
                _held_long.add(path)
                raise ConflictError(
                    f"another process has held {path} for {_TRIES * _TRY_PAUSE_S:g} s",
                    hint="Find it with `fuser`; it may be suspended: end it, or let it continue.",
                ) from busy
            try:
                yield
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)  # a forked child may hold a copy: closing would not be enough
        finally:
            os.close(fd)

    def _raise_known(self, error: Exception) -> None:
        """Raise the WeftError for an exception of the driver; return for others."""
        if isinstance(error, sqlite3.Error):
            self._fail(error)
        if self._engine is None or isinstance(error, WeftError):
            return
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        if isinstance(error, ConnectionError):  # the driver passes on what it meets in a handshake
            self._fail(error)
        if isinstance(error, DBAPIError):
            self._fail_at_server(error.orig or error)
        if isinstance(error, SQLAlchemyError):
            raise InternalError(f"{self.what} in {self.where}: {error}") from error

    def _fail_at_server(self, error: BaseException) -> NoReturn:
        """Raise the WeftError for an error of a server of databases: what is missing is no trouble of the network."""
        state, words = _refusal(error)
        found = f"{self.what} in {self.where}: {words or error}"
        if state == _NO_DATABASE:
            raise NotFoundError(found, hint="Make it with `createdb`, or correct the name in the URL.") from error
        if state.startswith(_NO_USER):
            raise ForbiddenError(found, hint="Correct the user and the password in the URL.") from error
        if state == _NOT_ALLOWED:
            raise ForbiddenError(found, hint="Let the user make tables there: GRANT CREATE ON SCHEMA.") from error
        self._fail(error, words)

    def _fail(self, error: BaseException, words: str = "") -> NoReturn:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        found = f"{self.what} in {self.where}: {words or error}"
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise ConflictError(
                f"{self.what} in {self.where} is damaged: {error}", hint=f"Move the file away: {self.again}."
            ) from error
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and self._no_room()):
            raise DiskFullError(found, hint=self._make_room) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM) and (advice := self._limit()):
            raise CapacityError(found, hint=advice) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise ForbiddenError(found, hint="Check the permissions of this folder.") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR) or self.file is None:
            raise ConflictError(found, hint="Try again; check that the database and its disk are reachable.") from error
        raise InternalError(found) from error

    def _limit(self) -> str:
        """Return the limit of the system that stops a write of a page after the end of the file, if one does."""
        import tempfile  # most processes never need it

        if self.file is None:
            return ""
        try:
            with tempfile.TemporaryFile(dir=self.file.parent) as draft:
                draft.truncate(2 * max(self.file.stat().st_size, _SHARED_BYTES))
        except OSError as error:
            return limit_advice(error)
        return ""

    def _no_room(self) -> bool:
        """Whether the disk of the file has no room: SQLite does not report why it could not read or write."""
        if self.file is None:
            return False
        try:
            found = os.statvfs(self.file.parent)
        except OSError:
            return False
        return found.f_bavail * found.f_frsize < _FULL_BYTES


def _refusal(error: BaseException) -> tuple[str, str]:
    """Return the state of SQL by which a server refuses, and its words; "" and "" if it does not.

    If the server has closed the connection after its refusal, pg8000 raises an error of the network over it.
    """
    seen: BaseException | None = error
    while seen is not None:
        about = seen.args[0] if seen.args else None
        if isinstance(about, dict):  # of pg8000
            return str(about.get("C") or ""), str(about.get("M") or "")
        seen = seen.__context__
    return str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""), ""


def _close_unused(writers: list[sqlite3.Connection], lock: Path) -> None:
    """Close an unused writer, which may fold the log: under the lock.

    Without the lock the end of the process closes it.
    """
    if not writers:
        return
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        for _ in range(_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                while writers:
                    writers.pop().close()
                return
            time.sleep(_TRY_PAUSE_S)
    finally:
        os.close(fd)


def _half_written(connection: sqlite3.Connection) -> bool:
    """Return whether a killed process left an incomplete write that this connection may not undo."""
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        return True
    return False


def _engine(url: str) -> tuple[Engine, str]:
    """Return the engine for the database at a URL, and the URL without its password."""
    from sqlalchemy import create_engine
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
        engine = create_engine(parsed, pool_pre_ping=True)
    except ArgumentError:
        raise UsageError(
            f"{url.partition('://')[0]}://... is not the URL of a database that can be used",
            hint="Write the path of a file, or postgresql+pg8000://user@host/database",
        ) from None
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"the driver for this database is not installed: {error.name}", hint=f"Install it: pip install {error.name}"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        raise UsageError("give an SQLite database as a path, not as a URL", hint=f"Write: {parsed.database}")
    return engine, without_passwords(parsed.render_as_string(hide_password=True))
