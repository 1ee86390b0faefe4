"""The index of runs."""

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.started import start
from weft.model.errors import ConflictError, MissingExtraError, NotFoundError, UsageError, WeftError
from weft.store import catalog as module
from weft.store.catalog import Catalog, HistoryRow, RunRow

ROOT = Path(__file__).parents[3]


@pytest.fixture
def catalog(tmp_path):
    catalog = Catalog.open(tmp_path / "weft.db")
    yield catalog
    catalog.close()


def add(catalog: Catalog, **fields) -> RunRow:
    id, number = catalog.next_run_id()
    row = RunRow(id=id, number=number, **fields)
    catalog.add_run(row)
    return row


def test_reading_makes_nothing(catalog, tmp_path):
    assert catalog.list() == []
    assert catalog.count() == 0
    with pytest.raises(NotFoundError, match="no run '@last'"):
        catalog.find("@last")
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_just_being_made_is_empty(catalog, tmp_path):
    (tmp_path / "weft.db").touch()
    assert catalog.list() == []
    assert catalog.count() == 0
    assert catalog.next_run_id()[1] == 1


def test_ids_count_from_one_and_are_never_given_twice(catalog):
    assert catalog.next_run_id() == ("run-000001", 1)
    assert catalog.next_run_id() == ("run-000002", 2)
    row = add(catalog)
    catalog.remove(row.id)
    assert catalog.next_run_id() == ("run-000004", 4)


def test_a_row_comes_back_as_it_went_in(catalog):
    row = add(
        catalog, name="train", file="a/b.yaml", state="running", created_at=1.5, parameters={"x": 1, "ü": ["a", None]}
    )
    assert catalog.find(row.id) == row


def test_update_changes_what_is_named(catalog):
    row = add(catalog, name="train")
    catalog.update_run(row.id, state="failed", ended_at=7.0, error_code="WEFT501")
    found = catalog.find(row.id)
    assert (found.state, found.ended_at, found.error_code, found.name) == ("failed", 7.0, "WEFT501", "train")


def test_update_refuses_what_is_not_there(catalog):
    row = add(catalog)
    with pytest.raises(UsageError, match="no field colour"):
        catalog.update_run(row.id, colour="red")
    with pytest.raises(NotFoundError, match="run-000009"):
        catalog.update_run("run-000009", state="failed")
    catalog.add_run(row)
    assert catalog.count() == 1, "a row that another process has restored meanwhile is replaced"


def test_find_by_every_form(catalog):
    for state in ("succeeded", "failed", "failed", "running"):
        add(catalog, state=state)
    assert catalog.find("run-000002").number == 2
    assert catalog.find("2").number == 2
    assert catalog.find("000002").number == 2
    assert catalog.find("@last").number == 4
    assert catalog.find("@failed").number == 3
    with pytest.raises(UsageError, match="more than one run: run-000004"):
        catalog.find("run-")
    with pytest.raises(UsageError, match="@best"):
        catalog.find("@best")
    for text in ("", "run-000009", "99", "%", "run_00000", "²"):
        with pytest.raises(NotFoundError):
            catalog.find(text)


def test_a_beginning_is_enough_where_only_one_has_it(catalog):
    catalog.add_run(RunRow(id="abc1", number=1))
    catalog.add_run(RunRow(id="abd", number=2))
    catalog.add_run(RunRow(id="abd2", number=3))
    assert catalog.find("abc").id == "abc1"
    assert catalog.find("abd").id == "abd", "a whole id wins over a beginning"


def test_list_is_newest_first_and_can_be_narrowed(catalog):
    for number in range(6):
        add(catalog, name="odd" if number % 2 else "even", state="failed" if number < 3 else "succeeded")
    assert [row.number for row in catalog.list(limit=2)] == [6, 5]
    assert [row.number for row in catalog.list(state="failed")] == [3, 2, 1]
    assert [row.number for row in catalog.list(state=("failed", "succeeded"), name="odd")] == [6, 4, 2]
    assert catalog.count(name="odd", state="failed") == 1


def test_rebuild_takes_what_the_folders_say(catalog, tmp_path):
    add(catalog, name="gone")
    for number in (3, 8):
        (tmp_path / "runs" / f"run-{number:06d}").mkdir(parents=True)
    (tmp_path / "runs" / "junk").mkdir()

    def describe(folder: Path) -> RunRow | None:
        return RunRow(id=folder.name, number=int(folder.name[-6:])) if folder.name.startswith("run-") else None

    assert catalog.rebuild(tmp_path / "runs", describe) == 2
    assert [row.number for row in catalog.list()] == [8, 3]
    assert catalog.next_run_id() == ("run-000009", 9)


def test_rebuild_without_a_folder_is_empty(catalog, tmp_path):
    assert catalog.rebuild(tmp_path / "none", lambda folder: None) == 0
    assert catalog.next_run_id() == ("run-000001", 1)


def test_threads_get_ids_of_their_own(catalog):
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda _: catalog.next_run_id()[1], range(40)))
    assert sorted(ids) == list(range(1, 41))


def test_processes_get_ids_of_their_own(tmp_path):
    code = (
        "import sys; from weft.store.catalog import Catalog\n"
        "catalog = Catalog.open(sys.argv[1])\n"
        "for _ in range(20): print(catalog.next_run_id()[1])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "weft.db")]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    started = [start(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert sorted(int(line) for text in said for line in text.split()) == list(range(1, 61))


def test_the_log_of_writes_is_folded_now_and_then(catalog, tmp_path):
    row = add(catalog)
    sizes = []
    for number in range(400):
        catalog.update_run(row.id, error_message=f"{number} " + "x" * 20_000)
        sizes.append((tmp_path / "weft.db-wal").stat().st_size)
    assert max(sizes) < 8 << 20
    assert catalog.find(row.id).error_message.startswith("399 ")


def test_what_a_killed_writer_left_in_the_log_is_not_lost(catalog, tmp_path):
    code = (
        "import os, sys; from weft.store.catalog import Catalog\n"
        "catalog = Catalog.open(sys.argv[1])\n"
        "for _ in range(5): catalog.next_run_id()\n"
        "os._exit(0)"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "weft.db")], env=env, check=True)
    assert (tmp_path / "weft.db-wal").stat().st_size > 0
    assert catalog.next_run_id()[1] == 6


def test_a_reader_cannot_write(catalog):
    add(catalog)
    with pytest.raises(WeftError, match="readonly"), catalog.database.read() as connection:
        connection.run("DELETE FROM runs")
    assert catalog.count() == 1


def test_a_reader_that_stays_does_not_hold_writers_up(catalog):
    add(catalog)
    with catalog.database.read() as connection:
        assert connection.rows("SELECT count(*) FROM runs") == [(1,)]
        add(catalog)
    assert catalog.count() == 2


def test_what_fails_is_not_half_written(catalog):
    add(catalog)

    def fail() -> None:
        with catalog.database.write() as connection:
            connection.run("DELETE FROM runs")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert catalog.count() == 1


@pytest.mark.parametrize("content", [b"this is not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_says_what_to_do(tmp_path, content):
    file = tmp_path / "weft.db"
    file.write_bytes(content)
    catalog = Catalog.open(file)
    for act in (catalog.list, catalog.next_run_id):
        with pytest.raises(ConflictError, match="damaged") as caught:
            act()
        assert "Move the file away" in caught.value.hint
    assert file.read_bytes() == content, "what may be mended must not be touched"


def test_another_version_says_so(catalog, tmp_path):
    add(catalog)
    with sqlite3.connect(tmp_path / "weft.db") as connection:
        connection.execute("UPDATE weft_about SET value = '99'")
    connection.close()
    with pytest.raises(ConflictError, match="its format is 99"):
        catalog.list()
    with pytest.raises(ConflictError, match="its format is 99"):
        catalog.next_run_id()


def test_a_database_of_another_program_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "weft.db") as connection:
        connection.execute("CREATE TABLE runs (x)")
    connection.close()
    with pytest.raises(ConflictError, match="another program"):
        Catalog.open(tmp_path / "weft.db").next_run_id()


def test_odd_paths(tmp_path):
    folder = tmp_path / "a b?c=d#e%20'"
    catalog = Catalog.open(folder / "weft.db")
    assert catalog.next_run_id()[1] == 1
    assert (folder / "weft.db").is_file()
    assert catalog.count() == 0


def test_urls_are_checked():
    with pytest.raises(UsageError, match="nonsense://"):
        Catalog.open("nonsense://user:secret@host/db")
    with pytest.raises(UsageError, match="as a path"):
        Catalog.open("sqlite:///x.db")
    with pytest.raises(MissingExtraError, match="not installed"):
        Catalog.open("oracle+cx_oracle://user@host/db")


# ------------------------------------------------------------------------------------------------------------- history


def past(ended_at: float, *, known: str = "f", vertex: str = "v") -> HistoryRow:
    gpu = {"cpu": 1, "gpu": 2}
    return HistoryRow(
        fingerprint=known,
        vertex=vertex,
        ended_at=ended_at,
        tasks=4,
        seconds=1.5,
        nbytes=-1.0,
        rows=7,
        resources=[gpu],
        usage={"memory": 3.0},
    )


def test_history_comes_back_newest_first_and_of_this_graph_alone(catalog):
    assert catalog.history("f") == []
    catalog.add_history([past(1.0, vertex="a"), past(1.0, vertex="b")])
    catalog.add_history([past(2.0)])
    catalog.add_history([past(3.0, known="other")])
    catalog.add_history([])
    assert catalog.history("f") == [past(2.0), past(1.0, vertex="b"), past(1.0, vertex="a")]
    assert catalog.history("nobody") == []


def test_history_is_bounded_for_each_graph_for_each_run_and_in_all(catalog, monkeypatch):
    for ended in range(module.HISTORY_RUNS + 3):
        catalog.add_history([past(float(ended))])
    catalog.add_history([past(1.0, known="other")])
    assert [row.ended_at for row in catalog.history("f")] == [float(ended) for ended in range(12, 2, -1)]
    monkeypatch.setattr(module, "HISTORY_VERTICES", 2)
    catalog.add_history([past(9.0, known="wide", vertex=str(n)) for n in range(5)])
    assert len(catalog.history("wide")) == 2
    monkeypatch.setattr(module, "HISTORY_ROWS", 1)
    catalog.add_history([past(20.0, known="last")])
    assert [len(catalog.history(known)) for known in ("f", "other", "wide", "last")] == [0, 0, 0, 1]


def test_an_index_that_is_older_than_history_gets_it(catalog, tmp_path):
    catalog.next_run_id()
    with sqlite3.connect(tmp_path / "weft.db") as connection:
        connection.execute("DROP TABLE history")
    assert catalog.history("f") == []
    catalog.add_history([past(1.0)])
    assert catalog.history("f") == [past(1.0)]
