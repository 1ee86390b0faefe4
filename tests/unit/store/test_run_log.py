"""The log of a run at a URL: one order, one owner, and torn objects that count for nothing."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence

import fsspec
import pytest

from tests.integration.places import SOURCE
from tests.objects import Objects
from tests.servers import s3_bucket, s3_endpoint
from weft.model.errors import CapacityError, ConflictError, UsageError
from weft.store import shared
from weft.store.run_log import LEASE_S, FilePiece, LogSegment, RunLog, logs_of
from weft.store.shared import SharedStorage

__all__ = ["s3_bucket", "s3_endpoint"]

KEY = "run-000001-abc"


class Clock:
    def __init__(self):
        self.time = 1_000_000.0

    def __call__(self):
        return self.time


class Owner(RunLog):
    """An owner that has what earlier ones have written."""

    earlier: Sequence[LogSegment] = ()


@pytest.fixture(params=["file", "s3"])
def storage(request, tmp_path):
    if request.param == "file":
        return SharedStorage(f"file://{tmp_path}/there")
    return SharedStorage(f"s3://{request.getfixturevalue('s3_bucket')}/some/prefix")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def begin(storage, clock):
    """Return what makes an owner that has taken the run."""

    def begun(dead=""):
        log = Owner(storage, KEY, clock)
        log.earlier = log.take(dead)
        return log

    return begun


def piece(text, name="journal", offset=0):
    return FilePiece(name=name, data=text.encode(), offset=offset, end=True)


def texts(segments):
    return [one.data.decode() for segment in segments for one in segment.pieces]


def test_an_owner_is_followed_by_another_one_that_reads_all_of_it(begin, storage, clock):
    first = begin()
    first.append([piece("a"), piece("b", offset=1)])
    first.append([piece("c", offset=2)])
    assert logs_of(storage, "run-000001") == logs_of(storage, KEY) == [KEY]
    assert logs_of(storage, "run-00000") == []
    first.release()
    second = begin()
    assert texts(second.earlier) == ["a", "b", "c"]
    assert [one.epoch for one in second.read()] == [1, 1, 1, 2]
    assert texts(second.read(3)) == ["c"]


def test_a_second_owner_is_refused_while_the_first_lives(begin, clock):
    first = begin()
    clock.time += LEASE_S - 1
    with pytest.raises(ConflictError, match="lasts 1 s"):
        begin()
    first.renew()
    clock.time += LEASE_S - 1
    with pytest.raises(ConflictError):
        begin()
    first.append([piece("a")])
    clock.time += 2
    assert texts(begin().earlier) == ["a"]


def test_an_owner_that_was_thought_dead_writes_nothing_more(begin, clock):
    first = begin()
    first.append([piece("a")])
    clock.time += LEASE_S + 1
    second = begin()
    with pytest.raises(ConflictError, match="another process drives"):
        first.append([piece("late")])
    with pytest.raises(ConflictError, match="another process drives"):
        first.check_owned()
    second.append([piece("b")])
    second.check_owned()
    assert texts(second.read()) == ["a", "b"]


def test_it_is_fenced_also_when_the_next_owner_has_ended_the_run(begin, clock, storage):
    first = begin()
    first.append([piece("a")])
    clock.time += LEASE_S + 1
    second = begin()
    second.append([piece("b")])
    second.remove()
    with pytest.raises(ConflictError):
        first.append([piece("late")])
    assert texts(second.read()) == []
    assert not [name for name in storage.names("runs") if "/lease/" in name]


def test_a_removal_that_was_cut_off_leaves_a_log_that_is_over(begin, storage, monkeypatch):
    log = begin()
    log.append([piece("a")])

    def cut_off(self, *below):
        raise CapacityError("the machine was lost")

    with monkeypatch.context() as broken:
        broken.setattr(shared.SharedStorage, "remove", cut_off)
        with pytest.raises(CapacityError):
            log.remove()
    assert log.read()[-1].over


def test_a_run_with_one_owner_leaves_nothing(begin, storage):
    log = begin()
    log.append([piece("a")])
    log.remove()
    assert storage.names("runs") == []


def test_a_run_in_a_folder_leaves_no_empty_one(tmp_path, clock):
    log = RunLog(SharedStorage(f"file://{tmp_path}"), KEY, clock)
    log.take("")
    log.append([piece("a")])
    log.remove()
    assert [*(tmp_path / "runs").iterdir()] == []


def test_of_two_that_take_a_run_at_the_same_time_one_gets_it(begin, storage, clock, monkeypatch):
    begin().append([piece("a")])
    clock.time += LEASE_S + 1
    slow = RunLog(storage, KEY, clock)
    renew = slow.renew

    def overtaken():
        renew()
        begin()

    monkeypatch.setattr(slow, "renew", overtaken)
    with pytest.raises(ConflictError):
        slow.take()
    assert [one.epoch for one in slow.read()] == [1, 1, 2]
    assert len([name for name in storage.names("runs") if "/lease/" in name]) == 1, "that of the owner"


def test_one_that_is_known_to_be_dead_is_not_waited_for(begin):
    first = begin()
    assert begin(first.token).earlier[-1].token == first.token


def tear(storage, number):
    """Cut an object of the log short."""
    system, path = fsspec.url_to_fs(f"{storage.url}/runs/{KEY}/log/{number:08}")
    data = system.cat_file(path)
    system.pipe_file(path, data[: len(data) // 2])


def test_a_torn_object_at_the_end_counts_for_nothing_and_the_next_owner_goes_on(begin, storage, clock):
    first = begin()
    first.append([piece("a")])
    first.append([piece("torn")])
    tear(storage, 3)
    clock.time += LEASE_S + 1
    second = begin()
    assert texts(second.earlier) == ["a"]
    second.append([piece("b")])
    assert texts(second.read()) == ["a", "b"]
    with pytest.raises(ConflictError, match="another process drives"):
        first.append([piece("late")])


def test_a_torn_object_in_the_middle_of_an_epoch_is_damage(begin, storage, clock):
    first = begin()
    first.append([piece("a")])
    first.append([piece("b")])
    tear(storage, 2)
    with pytest.raises(ConflictError, match=r"segment 2 .* is damaged"):
        first.read()


def test_an_answer_that_was_lost_is_no_other_owner(begin, storage, monkeypatch):
    log = begin()
    create = storage.create

    def twice(data, name):
        create(data, name)
        return create(data, name)

    monkeypatch.setattr(storage, "create", twice)
    log.append([piece("a")])
    log.append([piece("b")])
    assert texts(log.read()) == ["a", "b"]


def test_a_store_that_cannot_create_an_object_only_if_there_is_none_is_refused(clock, storage, monkeypatch):
    Objects.clear()
    with pytest.raises(UsageError, match="only if there is none"):
        RunLog(SharedStorage("objects://bucket/some"), KEY, clock).take()

    def replaces(self, data, name):
        self.put_bytes(data, name)
        return True

    monkeypatch.setattr(shared.SharedStorage, "create", replaces)
    with pytest.raises(UsageError, match="replaces an object") as caught:
        RunLog(storage, KEY, clock).take()
    assert "If-None-Match" in caught.value.hint
    assert storage.names("runs") == []


def test_a_url_that_does_not_answer_is_given_up(begin, storage, monkeypatch):
    log = begin()
    going_on = threading.Event()
    monkeypatch.setattr(storage, "names", lambda below: going_on.wait() and [])
    with pytest.raises(CapacityError, match="has not answered"):
        log.read(1, 0.01)
    going_on.set()
    monkeypatch.undo()
    assert len(log.read(1, 600.0)) == 1


def test_a_url_that_refuses_says_so_at_once(begin, storage, monkeypatch):
    def refused(below):
        raise CapacityError("it is not permitted")

    monkeypatch.setattr(storage, "names", refused)
    with pytest.raises(CapacityError, match="not permitted"):
        begin().read(1, 600.0)


def test_what_was_written_again_is_forgotten_and_earlier_owners_stay_fenced(begin, storage, clock):
    first = begin()
    for text in "abc":
        first.append([piece(text)])
    clock.time += LEASE_S + 1
    second = begin()
    for text in "defg":
        second.append([piece(text)])
    second.forget(8)
    assert [one.number for one in second.read()] == [1, 4, 5, 8, 9]
    assert texts(second.read(7)) == ["f", "g"]
    assert [one.number for one in second.read(2)] == [4, 5, 8, 9]
    with pytest.raises(ConflictError, match="another process drives"):
        first.append([piece("late")])
    with pytest.raises(ConflictError, match="another process drives"):
        first.forget(5)
    second.append([piece("h")])
    clock.time += LEASE_S + 1
    third = begin()
    assert texts(third.earlier) == ["c", "f", "g", "h"]
    third.append([piece("i")])
    third.forget(12)
    assert [one.number for one in third.read()] == [1, 4, 5, 10, 11, 12]
    for earlier in (first, second):
        with pytest.raises(ConflictError, match="another process drives"):
            earlier.append([piece("late")])
    third.remove()


def test_a_reader_of_what_is_forgotten_meanwhile_reads_what_took_its_place(begin, storage, monkeypatch):
    owner = begin()
    for text in "ab":
        owner.append([piece(text)])
    read = storage.read

    def slow_read(name):
        monkeypatch.setattr(storage, "read", read)
        owner.append([piece("both")])
        owner.forget(4)
        return read(name)

    monkeypatch.setattr(storage, "read", slow_read)
    assert texts(owner.read(2)) == ["both"]


FIRST_READ = """
import sys
from weft.store.run_log import FilePiece, LogSegment, decoded, encoded

data = encoded(LogSegment(number=1, epoch=1, token="t", host="h", pieces=(FilePiece(name="a", data=b"b"),)))
sys.setprofile(lambda frame, event, arg: event == "call" and print(frame.f_globals.get("__name__", "?")))
decoded(data)
sys.setprofile(None)
"""


def test_the_first_segments_of_a_process_may_be_read_by_several_threads():
    environ = os.environ | {"PYTHONPATH": str(SOURCE)}
    found = subprocess.run([sys.executable, "-c", FIRST_READ], env=environ, capture_output=True, text=True, check=True)
    called = {name.partition(".")[0] for name in found.stdout.split()}
    assert called == {"weft"}, "msgspec collects the fields of a type, which crashes processes with several threads"


def test_who_looks_while_another_owner_takes_the_run_sees_the_lease_of_that_one(begin, storage, clock):
    first = begin()
    clock.time += LEASE_S + 1
    taken: list[RunLog] = []

    class Late(RunLog):
        """A reader that has read the segments when the next owner takes the run."""

        def lease(self, token):
            if not taken:
                taken.append(begin())
            return super().lease(token)

    segments, lease = Late(storage, KEY, clock).look(1, 60.0)
    assert [one.token for one in segments] == [first.token, taken[0].token]
    assert lease is not None
    assert lease.until > clock()


def test_a_lease_is_there_while_it_is_renewed(clock, tmp_path, monkeypatch):
    log = RunLog(SharedStorage(f"file://{tmp_path}/there"), KEY, clock)
    log.take()
    seen = []
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append(log.lease(log.token)))
    clock.time += 1
    log.renew()
    (between,) = seen
    assert between is not None
    assert between.until == clock() - 1 + LEASE_S
    assert [path.name for path in (tmp_path / "there" / "runs" / KEY / "lease").iterdir()] == [f"{log.token}.json"]
