"""The index of runs: one database, and the only module that touches it.

The folders of runs are the truth; the database says where they are and what was last known of them, and can be made
again from them (`Catalog.rebuild`). It is an SQLite file on one machine, or a database that SQLAlchemy knows, by URL.

An SQLite file is opened, written, folded (its log of writes moved into it) and closed only while `db.lock` beside it is
held by flock: two connections that write or fold at the same moment can destroy the file in releases of SQLite before
3.51.3. Readers open the file read-only; they never wait and cannot fold.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn
from urllib.parse import quote

from weft.model.errors import (
    ConflictError,
    DiskFullError,
    ForbiddenError,
    InternalError,
    MissingExtraError,
    NotFoundError,
    UsageError,
    WeftError,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, MetaData, Select, Table

SCHEMA_VERSION: Final = 1
LOCK_NAME: Final = "db.lock"
_TRIES: Final = 5_000
_TRY_PAUSE_S: Final = 0.002
_BUSY_MS: Final = 5_000
_SHOWN: Final = 5
HISTORY_RUNS: Final = 10
HISTORY_ROWS: Final = 20_000
HISTORY_VERTICES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run, as the index knows it. Times are seconds since 1970-01-01 UTC; `folder` is the run's folder."""

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
    user: str = ""
    host: str = ""
    pid: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    error_code: str = ""
    error_message: str = ""
    version: int = SCHEMA_VERSION


_COLUMNS: Final = frozenset(field.name for field in fields(RunRow))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """What a vertex took in one run of the graph with this fingerprint; see `weft.graph.task.Past`."""

    fingerprint: str
    vertex: str
    ended_at: float
    tasks: int
    seconds: float
    nbytes: float
    rows: int
    resources: Sequence[Mapping[str, Any]] = ()
    usage: Mapping[str, float] = field(default_factory=dict)


class _Schema(NamedTuple):
    metadata: MetaData
    about: Table
    counters: Table
    runs: Table
    history: Table


@cache
def _schema() -> _Schema:
    from sqlalchemy import JSON, Column, Double, Integer, MetaData, String, Table, Text

    metadata = MetaData()
    about = Table("weft_about", metadata, Column("key", String(64), primary_key=True), Column("value", Text))
    counters = Table("weft_counters", metadata, Column("name", String(64), primary_key=True), Column("value", Integer))
    runs = Table(
        "runs",
        metadata,
        Column("id", String(128), primary_key=True),
        Column("number", Integer, nullable=False, index=True),
        Column("name", Text, nullable=False, index=True),
        Column("frontend", Text, nullable=False),
        Column("file", Text, nullable=False),
        Column("folder", Text, nullable=False),
        Column("state", Text, nullable=False, index=True),
        Column("created_at", Double, nullable=False),
        Column("started_at", Double),
        Column("ended_at", Double),
        Column("user", Text, nullable=False),
        Column("host", Text, nullable=False),
        Column("pid", Integer, nullable=False),
        Column("parameters", JSON, nullable=False),
        Column("error_code", Text, nullable=False),
        Column("error_message", Text, nullable=False),
        Column("version", Integer, nullable=False),
    )
    history = Table(
        "history",
        metadata,
        Column("number", Integer, primary_key=True),
        Column("fingerprint", String(64), nullable=False, index=True),
        Column("vertex", Text, nullable=False),
        Column("ended_at", Double, nullable=False),
        Column("tasks", Integer, nullable=False),
        Column("seconds", Double, nullable=False),
        Column("nbytes", Double, nullable=False),
        Column("rows", Integer, nullable=False),
        Column("resources", JSON, nullable=False),
        Column("usage", JSON, nullable=False),
    )
    return _Schema(metadata, about, counters, runs, history)


class Catalog:
    """The index of runs of one state folder or one server. Safe to use from several threads and processes."""

    def __init__(self, where: str, file: Path | None, reader: Engine, writer: Engine) -> None:
        self.where = where
        self.file = file
        self._reader = reader
        self._writer = writer

    @classmethod
    def open(cls, path_or_url: Path | str) -> Catalog:
        """Return the index in a file or at a database URL; nothing is read or made before the first use.

        UsageError: no such kind of URL. MissingExtraError: its driver is not installed.
        """
        from sqlalchemy import create_engine, event
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
        from sqlalchemy.pool import NullPool

        if isinstance(path_or_url, Path) or "://" not in path_or_url:
            file = Path(path_or_url).absolute()

            def connect(mode: str) -> Callable[[], sqlite3.Connection]:
                uri = _uri(file, mode)
                return lambda: sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_MS / 1000)

            reader = create_engine("sqlite://", creator=connect("ro"), poolclass=NullPool)
            writer = create_engine("sqlite://", creator=connect("rwc"), poolclass=NullPool)
            event.listen(writer, "connect", _set_up)
            event.listen(writer, "begin", _begin_at_once)
            return cls(str(file), file, reader, writer)
        try:
            url = make_url(path_or_url)
            engine = create_engine(url, pool_pre_ping=True)
        except ArgumentError:
            raise UsageError(
                f"{path_or_url.partition('://')[0]}://... is not the URL of a database that can be used",
                hint="Write the path of a file, or postgresql+psycopg://user@host/database",
            ) from None
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"the driver for this database is not installed: {error.name}",
                hint=f"Install it: pip install {error.name}",
            ) from None
        if url.get_backend_name() == "sqlite":
            raise UsageError("give an SQLite database as a path, not as a URL", hint=f"Write: {url.database}")
        return cls(url.render_as_string(hide_password=True), None, engine, engine)

    def close(self) -> None:
        """Close what connections there are; using it again opens new ones."""
        self._reader.dispose()
        self._writer.dispose()

    # --------------------------------------------------------------------------------------------------- writing

    def next_run_id(self) -> tuple[str, int]:
        """Return a fresh run id, such as `run-000001`, and its number; no other caller gets the same, ever."""
        from sqlalchemy import insert, update

        counters = _schema().counters
        mine = counters.c.name == "run"
        with self._write() as connection:
            taken = connection.execute(
                update(counters).where(mine).values(value=counters.c.value + 1).returning(counters.c.value)
            ).scalar()
            if taken is None:
                taken = 1 + self._highest(connection)
                connection.execute(insert(counters).values(name="run", value=taken))
        return f"run-{taken:06d}", int(taken)

    def add_run(self, run: RunRow) -> None:
        """Add a run. ConflictError: its id is taken."""
        from sqlalchemy import insert, select

        runs = _schema().runs
        with self._write() as connection:
            if connection.execute(select(runs.c.id).where(runs.c.id == run.id)).first() is not None:
                raise ConflictError(f"there is a run {run.id} already", hint="Take the id from next_run_id().")
            connection.execute(insert(runs).values(**_values(run)))

    def update_run(self, id: str, **changes: Any) -> None:
        """Change fields of a run, durably. NotFoundError: no such run. UsageError: no such field."""
        from sqlalchemy import update

        if unknown := sorted(changes.keys() - (_COLUMNS - {"id"})):
            raise UsageError(f"a run has no field {', '.join(unknown)}")
        runs = _schema().runs
        with self._write() as connection:
            if not connection.execute(update(runs).where(runs.c.id == id).values(**changes)).rowcount:
                raise NotFoundError(f"there is no run {id} in {self.where}")

    def remove(self, id: str) -> None:
        """Forget a run; its folder stays. NotFoundError: no such run."""
        from sqlalchemy import delete

        runs = _schema().runs
        with self._write() as connection:
            if not connection.execute(delete(runs).where(runs.c.id == id)).rowcount:
                raise NotFoundError(f"there is no run {id} in {self.where}")

    def rebuild(self, runs_root: Path, describe: Callable[[Path], RunRow | None]) -> int:
        """Replace all rows by what `describe` reads in each folder below `runs_root`; return how many there are.

        A folder of which `describe` returns None is left out. Numbers already given out stay used.
        """
        from sqlalchemy import delete, func, insert, select, update

        folders = sorted(path for path in runs_root.iterdir() if path.is_dir()) if runs_root.is_dir() else []
        rows = [row for folder in folders if (row := describe(folder)) is not None]
        schema = _schema()
        with self._write() as connection:
            connection.execute(delete(schema.runs))
            if rows:
                connection.execute(insert(schema.runs), [_values(row) for row in rows])
            mine = schema.counters.c.name == "run"
            before = connection.execute(select(func.max(schema.counters.c.value)).where(mine)).scalar()
            highest = max((before or 0, *(row.number for row in rows)))
            if before is None:
                connection.execute(insert(schema.counters).values(name="run", value=highest))
            else:
                connection.execute(update(schema.counters).where(mine).values(value=highest))
        return len(rows)

    def add_history(self, rows: Sequence[HistoryRow]) -> None:
        """Add what the vertices of one run took, and forget what is too much.

        For each graph its last 10 runs are kept, and 20,000 rows in all; of a run with more than 1,000 vertices, these.
        """
        from sqlalchemy import delete, func, insert, select

        if not rows:
            return
        history = _schema().history
        mine = history.c.fingerprint == rows[0].fingerprint
        with self._write() as connection:
            history.create(connection, checkfirst=True)  # the index may be older than this table
            connection.execute(
                insert(history), [{**asdict(row), "resources": list(row.resources)} for row in rows[:HISTORY_VERTICES]]
            )
            ends = select(history.c.ended_at).where(mine).distinct().order_by(history.c.ended_at.desc())
            old = connection.execute(ends.offset(HISTORY_RUNS).limit(1)).scalar()
            if old is not None:
                connection.execute(delete(history).where(mine, history.c.ended_at <= old))
            last = connection.execute(select(func.max(history.c.number))).scalar() or 0
            connection.execute(delete(history).where(history.c.number <= last - HISTORY_ROWS))

    # --------------------------------------------------------------------------------------------------- reading

    def history(self, fingerprint: str) -> Sequence[HistoryRow]:
        """Return what vertices took in earlier runs of the graph with a fingerprint, newest first."""
        from sqlalchemy import inspect, select

        history = _schema().history
        if not self.exists():
            return []
        with self._read() as connection:
            if not self._check(connection) or history.name not in inspect(connection).get_table_names():
                return []
            columns = [column for column in history.c if column.name != "number"]
            query = select(*columns).where(history.c.fingerprint == fingerprint).order_by(history.c.number.desc())
            return [HistoryRow(**row) for row in connection.execute(query).mappings()]

    def exists(self) -> bool:
        """Whether there is a database (for a URL: always)."""
        return self.file is None or self.file.exists()

    def find(self, text: str) -> RunRow:
        """Return the run that `text` names: an id, its unique beginning, a number, `@last` or `@failed`.

        NotFoundError: none. UsageError: the beginning of more than one.
        """
        from sqlalchemy import select

        runs = _schema().runs
        newest = select(runs).order_by(runs.c.number.desc(), runs.c.id)
        if text == "@last":
            found = self._rows(newest.limit(1))
        elif text == "@failed":
            found = self._rows(newest.where(runs.c.state == "failed").limit(1))
        elif text.startswith("@"):
            raise UsageError(f"{text} is no name of a run", hint="There are @last and @failed.")
        elif text.isascii() and text.isdigit():
            found = self._rows(newest.where(runs.c.number == int(text[:18])).limit(1))
        else:
            found = self._rows(newest.where(runs.c.id == text))
            if not found and text:
                found = self._rows(newest.where(runs.c.id.startswith(text, autoescape=True)).limit(_SHOWN + 1))
        if not found:
            raise NotFoundError(f"there is no run {text!r} in {self.where}", hint="List the runs: weft ls")
        if len(found) > 1:
            some = ", ".join(row.id for row in found[:_SHOWN])
            more = ", ..." if len(found) > _SHOWN else ""
            raise UsageError(f"{text!r} is the beginning of more than one run: {some}{more}", hint="Write more of it.")
        return found[0]

    def list(
        self, *, limit: int | None = 20, state: str | Collection[str] | None = None, name: str | None = None
    ) -> Sequence[RunRow]:
        """Return the newest runs, newest first, at most `limit`, of one state (or one of several) and one name."""
        from sqlalchemy import select

        runs = _schema().runs
        query = select(runs).order_by(runs.c.number.desc(), runs.c.id)
        return self._rows(_only(query, state, name).limit(limit))

    def count(self, *, state: str | Collection[str] | None = None, name: str | None = None) -> int:
        """Return how many runs `list` would give without a limit."""
        from sqlalchemy import func, select

        query = _only(select(func.count()).select_from(_schema().runs), state, name)
        if not self.exists():
            return 0
        with self._read() as connection:
            return int(connection.execute(query).scalar_one()) if self._check(connection) else 0

    # ---------------------------------------------------------------------------------------------------- inside

    def _rows(self, query: Select[Any]) -> Sequence[RunRow]:
        if not self.exists():
            return []
        with self._read() as connection:
            if not self._check(connection):  # somebody is just making it
                return []
            return [RunRow(**row) for row in connection.execute(query).mappings()]

    @staticmethod
    def _highest(connection: Connection) -> int:
        from sqlalchemy import func, select

        return int(connection.execute(select(func.max(_schema().runs.c.number))).scalar() or 0)

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._told(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """One transaction. The connection is opened and closed inside the lock, since both may fold the log."""
        with self._locked(), self._told(), self._company(), self._writer.begin() as connection:
            if not self._check(connection):
                from sqlalchemy import insert

                _schema().metadata.create_all(connection)
                connection.execute(insert(_schema().about).values(key="version", value=str(SCHEMA_VERSION)))
            yield connection

    @contextmanager
    def _company(self) -> Iterator[None]:
        """Keep a reader open, so that the writer is not the last to close: that would fold, for three times the cost.

        The log is folded by the commit that brings it to 1,000 pages.
        """
        reader = None
        if self.file is not None and self.file.exists():
            reader = sqlite3.connect(_uri(self.file, "ro"), uri=True, timeout=_BUSY_MS / 1000)
        try:
            if reader is not None:
                reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield
        finally:
            if reader is not None:
                reader.close()

    def _check(self, connection: Connection) -> bool:
        """Return whether the tables are there; ConflictError if they are of another program or version."""
        from sqlalchemy import inspect, select

        about = _schema().about
        names = inspect(connection).get_table_names()
        if about.name not in names:
            if names and self.file is not None:
                raise ConflictError(
                    f"{self.where} is a database of another program", hint="Move it away, or use another state folder."
                )
            return False
        value = connection.execute(select(about.c.value).where(about.c.key == "version")).scalar() or ""
        if value != str(SCHEMA_VERSION):
            raise ConflictError(
                f"{self.where} was written by another version of Weft: its format is {value or 'unknown'}, "
                f"this one reads {SCHEMA_VERSION}",
                hint="Use that version, or move the file away: it is made again from the folders of the runs.",
            )
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self.file is None:
            yield
            return
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.file.parent / LOCK_NAME
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _os_error(self.where, error) from None
        try:
            for _ in range(_TRIES):
                with suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_TRY_PAUSE_S)
            else:
                raise ConflictError(
                    f"another process has held {path} for {_TRIES * _TRY_PAUSE_S:g} s",
                    hint="It may be stopped: look with `fuser`, and end it or let it go on.",
                )
            try:
                yield
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)  # a forked child may hold a copy: closing would not be enough
        finally:
            os.close(fd)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what the driver raises into our own errors."""
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        try:
            yield
        except WeftError:
            raise
        except DBAPIError as error:
            self._fail(error.orig or error)
        except SQLAlchemyError as error:
            raise InternalError(f"the index of runs in {self.where}: {error}") from error
        except sqlite3.Error as error:  # raised while connecting
            self._fail(error)

    def _fail(self, error: BaseException) -> NoReturn:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        said = f"the index of runs in {self.where}: {error}"
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise ConflictError(
                f"the index of runs in {self.where} is damaged: {error}",
                hint="Move the file away: the next command makes it again from the folders of the runs.",
            ) from error
        if code == sqlite3.SQLITE_FULL:
            raise DiskFullError(said, hint="Make room on this disk.") from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise ForbiddenError(said, hint="See that you may read and write this folder.") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR) or self.file is None:
            raise ConflictError(said, hint="Try again; see that the database and its disk can be reached.") from error
        raise InternalError(said) from error


def _uri(file: Path, mode: str) -> str:
    return f"file:{quote(str(file))}?mode={mode}"


def _values(run: RunRow) -> dict[str, Any]:
    return {**asdict(run), "parameters": dict(run.parameters)}


def _only(query: Select[Any], state: str | Iterable[str] | None, name: str | None) -> Select[Any]:
    runs = _schema().runs
    if state is not None:
        query = query.where(runs.c.state.in_([state] if isinstance(state, str) else sorted(state)))
    return query if name is None else query.where(runs.c.name == name)


def _set_up(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _begin_at_once(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _os_error(where: str, error: OSError) -> WeftError:
    import errno

    said = f"the index of runs in {where} cannot be opened: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(said, hint="Make room on this disk.")
    return ForbiddenError(said, hint="See that you may write to this folder.")
