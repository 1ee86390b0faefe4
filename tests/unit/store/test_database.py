"""The one home of databases, as far as the index of runs does not show it."""

import fcntl
import gc
import os
import resource
import socket
import sqlite3
import struct
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.model.errors import CapacityError, ConflictError, DiskFullError, ForbiddenError, NotFoundError, WeftError
from weft.store import database as module
from weft.store.database import Database

pytestmark = pytest.mark.slow


def at(folder: Path, **options: Any) -> Database:
    return Database(
        folder / "some.db",
        what="the index of things",
        schema=["CREATE TABLE things (name TEXT)"],
        version=1,
        again="it is made again",
        lock_name="some.lock",
        **options,
    )


@pytest.fixture
def database(tmp_path):
    database = at(tmp_path)
    yield database
    database.close()


def add(database: Database, name: str) -> None:
    with database.write() as db:
        db.run("INSERT INTO things VALUES (:name)", {"name": name})


def names(database: Database) -> list[str]:
    with database.read() as db:
        return [] if db is None else [row[0] for row in db.rows("SELECT name FROM things")]


def test_a_lock_that_is_held_is_told_and_nothing_is_written(database, tmp_path, monkeypatch):
    add(database, "a")
    monkeypatch.setattr(module, "_TRIES", 3)
    with (tmp_path / "some.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match=r"another process has held .*some\.lock"):
            add(database, "b")
        assert names(database) == ["a"], "who only reads does not wait"
    add(database, "b")
    assert names(database) == ["a", "b"]


def test_a_file_that_was_replaced_is_read_anew(database, tmp_path):
    add(database, "a")
    assert names(database) == ["a"]
    for path in tmp_path.glob("some.db*"):
        path.unlink()
    assert names(database) == []
    add(database, "b")
    assert names(database) == ["b"]


def test_a_lasting_file_is_not_made_anew_while_it_is_gone(tmp_path):
    database = at(tmp_path, lasting=True)
    add(database, "a")
    assert names(database) == ["a"]
    database.file.rename(tmp_path / "away.db")
    for use in (names, lambda one: add(one, "b")):
        with pytest.raises(CapacityError, match=r"some\.db is gone: it was moved or deleted") as told:
            use(database)
        assert told.value.hint.startswith("Move it back")
    assert not database.exists()
    (tmp_path / "away.db").rename(database.file)
    add(database, "b")
    assert names(database) == ["a", "b"]
    database.close()


def test_one_connection_writes_until_it_fails_or_the_file_is_another_one(database, tmp_path, monkeypatch):
    opened: list[str] = []
    connect = database._connect

    def note(mode: str) -> Any:
        opened.append(mode)
        return connect(mode)

    def fail() -> None:
        with database.write() as db:
            db.run("DELETE FROM things")
            raise KeyError

    monkeypatch.setattr(database, "_connect", note)
    for name in "abc":
        add(database, name)
    assert opened.count("rwc") == 1
    with pytest.raises(WeftError), database.write() as db:
        db.run("INSERT INTO nothing VALUES (1)")
    add(database, "d")
    assert opened.count("rwc") == 2
    assert names(database) == ["a", "b", "c", "d"]
    with pytest.raises(KeyError):
        fail()
    add(database, "e")
    assert opened.count("rwc") == 2
    for path in tmp_path.glob("some.db*"):
        path.unlink()
    add(database, "f")
    assert opened.count("rwc") == 3
    assert names(database) == ["f"]


def test_connections_that_stay_open_write_in_turn_and_fold_the_log(database, tmp_path):
    other = Database(
        tmp_path / "some.db",
        what="it",
        schema=["CREATE TABLE things (name TEXT)"],
        version=1,
        again="",
        lock_name="some.lock",
    )
    sizes = []
    for number in range(400):
        add((database, other)[number % 2], f"{number} " + "x" * 20_000)
        sizes.append((tmp_path / "some.db-wal").stat().st_size)
    assert max(sizes) < 8 << 20
    other.close()
    assert [int(name.split()[0]) for name in names(database)] == list(range(400))
    assert database.damage() == ""


def test_a_connection_that_nobody_closed_is_closed_with_its_owner(tmp_path):
    found = weakref.ref(made := Database(tmp_path / "a.db", what="a", schema=[], version=1, again=""))
    with made.write():
        pass
    writers = made._writers
    assert writers
    del made
    gc.collect()
    assert found() is None
    assert not writers


def half_written(tmp_path: Path) -> None:
    """Leave what a kill leaves while the very first tables are written: a page, and the journal that takes it back."""
    path = tmp_path / "some.db"
    with sqlite3.connect(path) as inner:
        inner.execute("CREATE TABLE left_over (name TEXT)")
    inner.close()
    page = struct.unpack(">H", path.read_bytes()[16:18])[0]
    path.write_bytes(path.read_bytes()[:page])
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", 0, 1, 0, 512, page)
    path.with_name("some.db-journal").write_bytes(head.ljust(512, b"\0"))


def test_what_a_killed_process_left_half_written_is_rolled_back_by_who_writes(database, tmp_path):
    half_written(tmp_path)
    add(database, "a")
    assert names(database) == ["a"]


def test_what_a_killed_process_left_half_written_is_rolled_back_by_who_reads(database, tmp_path):
    half_written(tmp_path)
    assert names(database) == []
    assert not (tmp_path / "some.db-journal").exists()
    add(database, "a")
    assert names(database) == ["a"]


def test_who_may_not_write_is_told_what_rolls_it_back(database, tmp_path, monkeypatch):
    half_written(tmp_path)
    connect = database._connect
    monkeypatch.setattr(database, "_connect", lambda mode: connect("ro"))  # as root, no mode of a file forbids
    with pytest.raises(ForbiddenError, match="half written, because its process was killed") as told:
        names(database)
    assert "weft ls" in str(told.value.hint)
    (tmp_path / "some.lock").unlink()
    (tmp_path / "some.lock").symlink_to("nowhere")  # the lock cannot be had either
    with pytest.raises(ForbiddenError, match="half written, because its process was killed"):
        names(database)
    assert (tmp_path / "some.db-journal").exists()


def test_a_full_disk_is_told(database, monkeypatch):
    add(database, "a")

    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(module._Sqlite, "run", full)
    with pytest.raises(DiskFullError, match="the index of things"):
        add(database, "b")
    monkeypatch.undo()
    assert names(database) == ["a"]


def test_it_is_read_where_there_is_no_room_for_what_connections_share(database, tmp_path):
    add(database, "a")
    database.close()
    assert [path.name for path in tmp_path.glob("some.db*")] == ["some.db"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        assert names(database) == ["a"]
        assert names(database) == ["a"], "the lock was let go"
        with pytest.raises(WeftError, match="the index of things"):
            add(database, "b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    add(database, "b")
    assert names(database) == ["a", "b"]


def test_an_error_of_a_full_disk_is_told_as_one(database, monkeypatch):
    add(database, "a")

    def fails(*_: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
        raise error

    monkeypatch.setattr(module._Sqlite, "run", fails)
    with pytest.raises(ConflictError, match="disk I/O error"):
        add(database, "b")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=4096))
    with pytest.raises(DiskFullError, match="disk I/O error") as told:
        add(database, "b")
    assert "weft delete" in told.value.hint


def test_damage_is_found_where_there_is_some(database, tmp_path):
    assert database.damage() == ""
    with database.write() as db:
        db.many("INSERT INTO things VALUES (:name)", ({"name": "x" * 500} for _ in range(500)))
    database.close()
    assert database.damage() == ""
    with sqlite3.connect(tmp_path / "some.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    database.close()
    data = bytearray((tmp_path / "some.db").read_bytes())
    data[20_000:40_000] = b"\xff" * 20_000
    Path(database.where).write_bytes(data)
    assert "damaged" in database.damage()


def test_one_that_is_made_while_it_is_looked_at_is_read(database, tmp_path, monkeypatch):
    (tmp_path / "some.db").touch()  # as another process has made it, which writes its tables next
    other = at(tmp_path)
    rows = module._Sqlite.rows
    added: list[str] = []

    def rows_and_then(self: Any, sql: str, values: Any = None) -> Any:
        try:
            return rows(self, sql, values)
        except sqlite3.OperationalError:
            if not added:
                added.append("a")
                add(other, "a")
            raise

    monkeypatch.setattr(module._Sqlite, "rows", rows_and_then)
    try:
        assert names(database) == ["a"] == added
    finally:
        other.close()


@pytest.mark.parametrize(
    ("state", "kind"),
    [("3D000", NotFoundError), ("28P01", ForbiddenError), ("42501", ForbiddenError), ("XX000", ConflictError)],
)
@pytest.mark.parametrize("closed", [False, True])
def test_the_refusal_of_a_server_is_told(state, kind, closed):
    """The driver raises an error of the network over it if the server has closed the connection by then."""
    database = Database("postgresql+pg8000://me:pw@db/none", what="the index", schema=(), version=1, again="make it")
    try:
        try:
            raise RuntimeError({"C": state, "M": "it is refused"})
        except RuntimeError:
            if not closed:
                raise
            raise BrokenPipeError("network error") from None
    except Exception as error:  # noqa: BLE001
        found = error
    with pytest.raises(kind) as caught:
        database._fail_at_server(found)
    assert caught.value.message == "the index in postgresql+pg8000://me:***@db/none: it is refused"
    assert caught.value.hint


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the driver leaves its socket open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("use", ["read", "write"])
def test_a_server_that_resets_connections_is_told(use):
    """A driver passes on what its first bytes meet, while the server starts or stops."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset() -> None:
            with suppress(OSError):  # it is closed
                while True:
                    one, _ = server.accept()
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    one.close()

        thread = threading.Thread(target=reset)
        thread.start()
        try:
            url = f"postgresql+pg8000://me@127.0.0.1:{server.getsockname()[1]}/none"
            database = Database(url, what="the index", schema=(), version=1, again="make it")
            with pytest.raises(ConflictError, match=r"^the index in "), getattr(database, use)():
                pass
            gc.collect()
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_file_of_others_is_not_set_aside(tmp_path):
    """A folder of the user may be the state folder, and have such a file."""
    file = tmp_path / "some.db"
    file.write_text("my own")
    database = at(tmp_path)
    for _ in range(2):
        with pytest.raises(ConflictError, match="damaged"):
            add(database, "a")
        with pytest.raises(ConflictError, match="is no file of Weft"):
            database.set_aside()
    assert file.read_text() == "my own"
    file.unlink()
    add(database, "a")
    database.close()
    content = bytearray(file.read_bytes())
    content[:16] = b"x" * 16
    file.write_bytes(content)
    with pytest.raises(ConflictError, match="damaged"):
        add(database, "b")
    database.set_aside()
    assert file.with_name("some.db.damaged").read_bytes() == content
    add(database, "b")
    assert names(database) == ["b"]
    database.close()
