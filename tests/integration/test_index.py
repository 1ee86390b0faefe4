"""The index of runs: made again from the folders when missing, empty or damaged, and left out while it is locked."""

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.places import RUN, Commands, Project
from weft.store import database

SECOND, THIRD = "run-000002", "run-000003"


class Place(Project):
    """A project whose run has succeeded."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write({"a": {"command": "true"}})
        assert self.weft()[0] == 0
        self.index = folder / ".weft/weft.db"

    def listed(self) -> list[str]:
        code, out, err = self.weft("ls", "--json")
        assert code == 0, err
        return [run["id"] for run in json.loads(out)["runs"]]


class Here(Place):
    """The same, with commands in this process, which wait a moment for a lock and not ten seconds."""

    def __init__(self, folder: Path) -> None:
        self.commands = Commands(folder)
        super().__init__(folder)

    def weft(self, *words: str) -> tuple[int, str, str]:
        return self.commands.ended(*(words or ("run", "run.yaml")))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(database, "_TRIES", 50)
    return Here(tmp_path)


def cut(file: Path) -> None:
    """Damage all pages but the first."""
    data = bytearray(file.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file.write_bytes(data)


DAMAGE = {
    "missing": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "nonsense": lambda file: file.write_bytes(b"nonsense" * 1000),
    "pages": cut,
    "older": lambda file: file.with_name("kept").replace(file),
}


FIRST = [("ls",), ("run", "run.yaml", "-q"), ("delete", "2"), ("resume", "2")]


CASES = [*((kind, ("show", "2")) for kind in DAMAGE), *(("nonsense", words) for words in FIRST), ("pages", FIRST[2])]


@pytest.mark.parametrize(("kind", "first"), CASES)
def test_an_index_that_is_lost_is_made_again(place, kind, first):
    with sqlite3.connect(place.index) as kept:  # with the log of writes folded
        kept.execute("VACUUM INTO ?", (str(place.index.with_name("kept")),))
    kept.close()
    assert place.weft()[0] == 0
    for end in ("-wal", "-shm"):
        Path(f"{place.index}{end}").unlink(missing_ok=True)
    DAMAGE[kind](place.index)
    code, out, err = place.weft(*first)
    assert code == (7 if first[0] == "resume" else 0), err
    assert first[0] != "resume" or "has succeeded" in err
    assert first[0] != "run" or out == f"{THIRD}\n"
    left = {"run": [THIRD, SECOND, RUN], "delete": [RUN]}.get(first[0], [SECOND, RUN])
    assert place.listed() == left
    assert place.weft("run", "run.yaml", "-q")[0] == 0
    assert place.weft("doctor")[0] == 0


def test_ids_go_on_after_a_run_that_nobody_can_read(place):
    assert place.weft()[0] == 0
    (place.folder_of(SECOND) / "run.json").write_text("{")
    place.index.unlink()
    assert place.weft("run", "run.yaml", "-q")[1] == f"{THIRD}\n"


class TestLocked:
    """Another process holds the lock of the index."""

    @pytest.fixture(autouse=True)
    def lock(self, here: Here) -> Iterator[None]:
        with here.index.with_name("db.lock").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def test_runs_are_read(self, here):
        assert here.listed() == [RUN]
        assert here.weft("show", "1")[0] == here.weft("logs", "@last")[0] == 0

    def test_runs_begin_and_are_listed(self, here):
        code, out, err = here.weft("run", "run.yaml", "-q")
        assert (code, out) == (0, f"{SECOND}\n")
        assert "the index of runs is not up to date: another process has held" in err
        assert here.listed() == [SECOND, RUN]

    def test_runs_are_deleted(self, here):
        assert here.weft("delete", "1")[0] == 0
        assert here.listed() == []
        assert here.weft("run", "run.yaml", "-q")[1] == f"{SECOND}\n", "no id is given out twice"


def test_an_index_that_was_locked_is_corrected_by_the_next_start(here):
    with here.index.with_name("db.lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert here.weft("delete", "1")[0] == 0
        assert here.weft()[0] == 0
    assert here.weft()[0] == 0
    with closing(sqlite3.connect(here.index)) as index:
        rows = index.execute("SELECT id, state FROM runs ORDER BY id").fetchall()
    assert [row[1] for row in rows] == ["succeeded"] * len(rows)
    assert here.listed() == [row[0] for row in reversed(rows)]


def test_a_refused_run_takes_no_number(place):
    code, _, err = place.weft("run", "-q", "run.yaml", "--only", "nothing")
    assert code == 2
    assert "no step 'nothing'" in err
    assert place.weft("run", "-q", "run.yaml")[1] == f"{SECOND}\n"


@pytest.mark.parametrize("damage", ["cut", "empty", "no object", "gone", "of a newer version"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_run_whose_description_is_damaged_is_shown_as_such(here, damage, lost):
    assert here.weft()[0] == 0
    file = here.folder / ".weft/runs" / RUN / "run.json"
    whole = file.read_text()
    new = {"cut": whole[: len(whole) // 2], "empty": "", "no object": "[]", "of a newer version": '{"version": 99}\n'}
    if damage in new:
        file.write_text(new[damage])
    else:
        file.unlink()
    is_told = damage != "of a newer version" or lost  # the index shows such a run as it was
    if lost:
        here.index.unlink()
    for _ in range(2):
        code, out, err = here.weft("ls")
        assert code == 0, err
        assert ("damaged" in out, f"{RUN} is damaged: " in err) == (is_told, is_told)
        runs = {run["id"]: run for run in json.loads(here.weft("ls", "--json")[1])["runs"]}
        assert {id: run["state"] == "damaged" for id, run in runs.items()} == {SECOND: False, RUN: is_told}
        assert here.weft()[0] == 0  # a later run does not make the index forget it
        here.weft("delete", "@last")
    for words in (("show", "1"), ("show", RUN), ("logs", "1")):
        code, _, err = here.weft(*words)
        assert code == (4 if damage == "gone" else 7), err
        assert "run.json" in err or "version" in err
    _, out, err = here.weft("doctor")
    assert f"weft delete {RUN}" in out + err
    file.write_text(whole)
    assert "damaged" not in here.weft("ls")[1]
    file.write_text("{")
    code, _, err = here.weft("delete", "1")
    assert code == 0, err
    assert here.listed() == [SECOND]
