"""The folder of a run at a URL: what has changed is written, and another machine makes the same folder of it."""

import os
import threading

import pytest

from tests.objects import Objects
from weft.model.errors import CapacityError, UsageError
from weft.runs import mirroring
from weft.runs.handing import leave
from weft.runs.mirroring import RunMirror, adopt
from weft.store.run_log import FilePiece, RunLog, read_owner, remove_run
from weft.store.shared import SharedStorage
from weft.store.state import DRIVER, RunFolder, StateRoot

RUN, KEY = "run-000001", "run-000001-abc"


class Clock:
    time = 1_000_000.0

    def __call__(self):
        return self.time


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/there"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def held(tmp_path):
    with RunFolder.create(StateRoot(tmp_path / "a" / ".weft"), RUN) as found:
        found.describe(name="trial", storage={"url": "", "key": KEY})
        yield found


@pytest.fixture
def notes():
    return []


@pytest.fixture
def mirror(held, url, clock, notes):
    found = RunMirror(held, url, KEY, notes.append, clock)
    found.open()
    yield found
    found.close()


def copy(tmp_path, url, clock):
    """Return the files of the folder that another machine makes, by name."""
    clock.time += 1_000
    state = StateRoot(tmp_path / os.urandom(4).hex() / ".weft")
    adopt(state, RUN, url, clock)
    found = {}
    for file in state.folder(RUN).rglob("*"):
        if file.is_file() and file.name not in ("run.json", "owner.lock"):
            found[str(file.relative_to(state.folder(RUN)))] = file.read_text()
    return found


def test_files_grow_are_replaced_and_are_cut(mirror, held, url, clock, tmp_path, monkeypatch):
    monkeypatch.setattr(mirroring, "_PIECE", 7)
    monkeypatch.setattr(mirroring, "_SEGMENT", 20)
    folder = held.path
    (folder / "journal").write_text("one")
    (folder / "events.jsonl").write_text("{}\n")
    (folder / "labels.json").write_text("a")
    (folder / "logs" / "x.0.log").write_text("a long line, in several pieces and segments\n")
    mirror.send()
    want = {
        "journal": "one",
        "events.jsonl": "{}\n",
        "labels.json": "a",
        "logs/x.0.log": "a long line, in several pieces and segments\n",
    }
    assert copy(tmp_path, url, clock) == want
    with (folder / "journal").open("a") as file:
        file.write(" and two")
    (folder / "labels.json").write_text("another one")
    (folder / "logs" / "x.0.log").write_text("cut\n")
    (folder / ".draft").write_text("not yet")
    (folder / "control.sock").write_text("of this machine")
    mirror.send()
    want |= {"journal": "one and two", "labels.json": "another one", "logs/x.0.log": "cut\n"}
    assert copy(tmp_path, url, clock) == want
    draft = folder / "new"
    draft.write_text("a new journal")
    draft.rename(folder / "journal")
    mirror.send()
    assert copy(tmp_path, url, clock) == want | {"journal": "a new journal"}


def test_a_new_owner_keeps_the_note_of_its_own_driver(mirror, held, url, clock, tmp_path):
    (held.path / DRIVER).write_text("the former one")
    mirror.send()
    assert DRIVER not in copy(tmp_path, url, clock)
    with RunFolder.create(StateRoot(tmp_path / "b" / ".weft"), RUN) as other:
        other.describe(name="trial", storage={"url": "", "key": KEY})
        (other.path / DRIVER).write_text("the new one")
        clock.time += 1_000
        taken = RunMirror(other, url, KEY, lambda note: None, clock)
        taken.open()
        taken.close()
        assert (other.path / DRIVER).read_text() == "the new one"


def test_nothing_is_written_when_nothing_has_changed(mirror, held, url):
    (held.path / "journal").write_text("one")
    mirror.send()
    names = SharedStorage(url).names("runs")
    mirror.send()
    assert SharedStorage(url).names("runs") == names


def test_a_url_that_does_not_answer_is_told_once_and_the_rest_is_written_later(
    mirror, held, url, clock, tmp_path, notes, monkeypatch
):
    (held.path / "journal").write_text("one")
    with monkeypatch.context() as broken:

        def fails(*_):
            raise OSError("no way to the store")

        broken.setattr(SharedStorage, "create", fails)
        mirror.send()
        mirror.send()
    assert ["no way to the store" in note for note in notes] == [True]
    (held.path / "journal").write_text("one two")
    mirror.send()
    assert copy(tmp_path, url, clock)["journal"] == "one two"


def test_a_store_without_conditional_writes_is_told_and_refused_for_runs_in_the_background(held, clock, notes):
    Objects.clear()
    mirror = RunMirror(held, "objects://bucket/some", KEY, notes.append, clock)
    mirror.open()
    mirror.send()
    assert ["this machine alone" in note for note in notes] == [True]
    with pytest.raises(UsageError, match="cannot hold a run in the background"):
        mirror.hand_over()
    mirror.close()
    assert Objects.store == {}


@pytest.mark.parametrize("name", ["../out", "logs/../../out", "owner.lock", "lease.json", "a/b", ".hidden", ""])
def test_a_log_that_names_other_files_is_refused(held, url, clock, tmp_path, name):
    log = RunLog(SharedStorage(url), KEY, clock)
    log.take()
    log.append([FilePiece(name="run.json", data=b"{}", whole=True), FilePiece(name=name, data=b"bad", end=True)])
    log.release()
    with pytest.raises(UsageError, match="which is no file of a run"):
        adopt(StateRoot(tmp_path / "b" / ".weft"), RUN, url, clock)
    assert not (tmp_path / "b" / ".weft" / "out").exists()


def test_a_long_log_is_written_anew_and_those_that_follow_it_miss_nothing(
    mirror, held, url, clock, tmp_path, monkeypatch
):
    monkeypatch.setattr(mirroring, "_OBJECTS", 20)
    monkeypatch.setattr(mirroring, "_SEGMENT", 50)  # the whole takes several segments
    log = RunLog(SharedStorage(url), KEY, clock)
    follower = tmp_path / "follower"
    (follower / "logs").mkdir(parents=True)

    def follow(since):
        segments = log.read(since)
        for segment in segments:
            for piece in segment.pieces:
                mirroring.apply(follower, piece)
        return segments[-1].number

    seen, most = 1, 0
    for at in range(100):
        with open(held.path / "journal", "a") as file:
            file.write(f"tick {at}\n")
        (held.path / "project.json").write_text(f"{at}")
        held.log_path("a", attempt=0).write_text(f"line {at}\n" * 8)
        mirror.send()
        mirror._guarded(mirror._compact)
        most = max(most, len(log.read()))
        if at % 30 == 7:
            seen = follow(seen)
    assert most < 80, "the log does not grow with the run"
    follow(seen)
    found = copy(tmp_path, url, clock)
    assert found == {
        str(file.relative_to(follower)): file.read_text()
        for file in follower.rglob("*")
        if file.is_file() and file.name != "run.json"
    }
    assert found["journal"] == "".join(f"tick {at}\n" for at in range(100))
    assert found["project.json"] == "99"


def test_a_log_that_could_not_be_written_anew_is_as_it_was(mirror, held, url, clock, tmp_path, monkeypatch):
    monkeypatch.setattr(mirroring, "_OBJECTS", 3)
    for at in range(5):
        (held.path / "project.json").write_text(f"{at}")
        (held.path / "journal").write_text("tick\n" * at)
        mirror.send()
    log = RunLog(SharedStorage(url), KEY, clock)
    before = [one.number for one in log.read()]

    def refuse(*_, **__):
        raise CapacityError("the URL does not answer")

    monkeypatch.setattr(RunLog, "append", refuse)
    mirror._guarded(mirror._compact)
    assert [one.number for one in log.read()] == before
    monkeypatch.undo()
    mirror.send()
    assert copy(tmp_path, url, clock)["project.json"] == "4"


def test_a_lease_that_could_not_be_renewed_is_renewed_as_soon_as_that_works(held, url, clock, notes, monkeypatch):
    monkeypatch.setattr(mirroring, "_LOOK_S", 0.01)
    tries = []
    renewed = threading.Event()
    renew = RunLog.renew

    def refuse(log):
        tries.append(1)
        if 1 < len(tries) < 5:
            raise CapacityError("the URL does not answer")
        renew(log)
        if len(tries) == 5:
            renewed.set()

    monkeypatch.setattr(RunLog, "renew", refuse)
    mirror = RunMirror(held, url, KEY, notes.append, clock)
    mirror.open()
    try:
        assert renewed.wait(60)
    finally:
        mirror.close()
    assert len(tries) == 5


def test_a_driver_leaves_nothing_at_its_machine_when_its_run_is_at_the_url_or_was_deleted_since(
    mirror, held, url, clock, tmp_path
):
    mirror.keep = True
    leave(KEY, tmp_path / "a", begun=True)
    assert held.path.exists(), "its run has not ended"
    mirror.close()
    held.release()
    remove_run(url, KEY, None, clock)
    assert not SharedStorage(url).names("runs")
    leave(KEY, tmp_path / "a", begun=True)
    assert not (tmp_path / "a").exists()


def test_a_driver_leaves_at_its_machine_what_could_not_be_written_to_the_url(
    mirror, held, url, clock, tmp_path, monkeypatch
):
    mirror.keep = True
    (held.path / "events").write_text("the end\n")

    def broken(log, pieces, *, over=False):
        raise CapacityError("the URL does not answer")

    monkeypatch.setattr(RunLog, "append", broken)
    mirror.close()
    held.release()
    leave(KEY, tmp_path / "a", begun=True)
    assert (held.path / "events").exists()
    assert RunLog(SharedStorage(url), KEY, clock).lease(read_owner(held.path).token).until > clock()
