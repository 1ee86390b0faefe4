"""The journal: what is written comes back, a torn end is as if never written, and nothing overtakes its record."""

import errno
import os
import random
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from weft.durability import encoding
from weft.durability import journal as module
from weft.durability.encoding import Reader, Schema, encode
from weft.durability.journal import (
    FileJournal,
    Header,
    graph_digest,
    read_journal,
    recover,
)
from weft.durability.side_outputs import SideOutputs
from weft.engine import commands as c
from weft.engine import decisions as d
from weft.engine import events as e
from weft.engine.master import Master
from weft.engine.policy import Moment, VertexManager
from weft.engine.ports import ManualClock
from weft.engine.recovery import Epoch, digest
from weft.engine.replay import Answer, Tape, Tick, replay
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, gather
from weft.graph.logical import SEQUENTIAL, Edge, Patch, Scheduling, Storage, Trigger, Vertex, scatter_gather
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Group
from weft.model.errors import ConflictError, DiskFullError, InternalError, NotFoundError, ProgramError, WeftError
from weft.model.failures import Failure
from weft.model.program import Program
from weft.model.records import as_dict
from weft.model.resources import ONE_SLOT_ONLY, Resources
from weft.runtime.job import JobRun, Latch
from weft.runtime.loop import Loop
from weft.store import disk
from weft.store.disk import FileSystems
from weft.testing.fakes import RecordingExecutor
from weft.wiring import MANAGERS, Session

DEADLINE_S = 180.0


def body(*_: object) -> int:
    return 1


def header(**fields) -> Header:
    return Header(graph="g", tuning=Tuning(), **fields)


def tick(number: int) -> Tick:
    return Tick((e.Done(float(number), number, number + 1, 0.5, 10), e.Offered(number + 0.5, [0, 1])), commands=0)


def records_of(module: ModuleType) -> set[type]:
    """The events or decisions that a module declares."""
    own = {kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__}
    return {kind for kind in own if issubclass(kind, Struct | tuple)}


def append(journal: FileJournal, events, then) -> None:
    when_durable = journal.append(events, [])
    assert when_durable is not None
    when_durable(then)


def wait(done: threading.Event | Latch) -> None:
    assert done.wait(DEADLINE_S)


class Disk:
    """Stands for the sync of a disk: waits until it is let go on, counts, or fails."""

    def __init__(self, *, held: bool = False, error: OSError | None = None) -> None:
        self.go_on = threading.Event()
        self.reached = threading.Event()
        self.syncs = 0
        self.error = error
        if not held:
            self.go_on.set()

    def __call__(self, fd: int) -> None:
        self.reached.set()
        assert self.go_on.wait(DEADLINE_S)
        self.syncs += 1
        if self.error is not None:
            raise self.error


def opened(path: Path, disk: Disk) -> FileJournal:
    FileJournal.create(path, header()).close()
    recorded = read_journal(path)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    assert recorded.records == ()
    return FileJournal(path, fd, Tape(), sync=disk)


class TestEncoding:
    def test_every_event_comes_back(self):
        events = (
            e.JobSubmitted(0.0),
            e.CancelRequested(1.0, "why"),
            e.TaskCancelRequested(1.0, "v", 1, 3, "why"),
            e.FinishRequested(1.0, "v", "why"),
            e.Requested(1.0, "scale", {"w": 4}),
            e.ClockSet(1.0, 1.7e9),
            e.WorkerJoined(0.0, 1, 0, "local", "p"),
            e.WorkerLost(0.0, 1, "gone", True, 3),
            e.Offered(0.0, [1, 2]),
            e.Granted(0.0, 5, (("a", 1, 0), ("b", 2, 1))),
            e.Refused(0.0, 5, "no"),
            e.Started(0.0, 1 << 41),
            e.Done(0.0, 1, 2, 0.25, 1 << 40, (1, 2), 0, [1, "x", None, {"k": [1.5]}], (), 7),
            e.Failed(0.0, 1, 2, "v", 3, Failure.INPUT, "m", "t", 0.5, 1, ("u", 4)),
            e.NodeJoined(0.0, 4, "n", "p", (7, 8), Resources(memory=5, gpu=1, gpu_type="t")),
            e.NodeDraining(0.0, 4, "r"),
            e.NodeLost(0.0, 4, "r"),
            e.NodeLost(0.0, 4, "r", emptied=True),
            e.OutputMoved(0.0, "v", 0, 2, 1),
            e.Deferred(0.0, 3, "r"),
            e.GaveBack(0.0, 1, 2),
            e.Progress(0.0, 1, 2, 3),
            e.Weighed(0.0, 1, 1 << 40),
            e.Noted(0.0, "v", "unstoppable", (3, 0.5)),
            e.UserEvent(0.0, "v", 0, "n", {"a": (1, 2), 3: b"x"}),
            e.OutputLost(0.0, "v", 0, 2, "r"),
            e.Hit(0.0, "v", 0, 1),
            e.Miss(0.0, "v", 0, "r"),
            e.Waiting(0.0, "v", 0, "o"),
            e.Unanswered(0.0),
            e.TimerFired(0.0, 9),
            e.IdleTick(0.0),
        )
        assert {type(event) for event in events} == records_of(e) - {e.DoneEach}  # written as the `Done` of each
        found = Reader().read(encode(Tick(events)))
        assert found == Tick(events)
        assert [type(event) for event in found.events] == [type(event) for event in events]

    def test_answers_come_back_with_their_decisions(self):
        patch = Patch(vertices=(Vertex("a/b", Program("m:f")),), edges=(Edge("a", "a/b"),))
        decisions = (
            d.SetParallelism("v", 2, (("a>v", Rectangles.from_groups(3, [0, 2, 4])), ("b>v", Group(4, 2, 2))), [1, 2]),
            d.SetEdge("e", Scheduling(when=Trigger.FRACTION, fraction=0.5), Storage.DURABLE),
            d.SetEdge("e", SEQUENTIAL),
            d.SetResources("v", (Resources(cpu=2),)),
            d.SetResources("v", ONE_SLOT_ONLY),
            d.Schedule("v", 3),
            d.Finish("v", "r"),
            d.Choose("c", "b"),
            d.ApplyPatch("v", patch),
            d.Emit("v", "n", {"x": 1}),
            d.Fail("v", "r"),
            d.BackUp(3, "r"),
            d.WeighTasks(3),
            d.Avoid(3, 60.0, "r"),
            d.Readmit(3, "r"),
            d.Remake("v", 3, "r"),
            d.SetEdge("e", movement=scatter_gather(4)),
            d.StartTasks("v", 0, 2),
            d.StopTasks("v", 0, 2, "r"),
            d.Conclude("failed", "r", "v[1]"),
            d.AskController("v", "n", {"x": 1}),
            d.WakeAt(1e9),
        )
        assert {type(one) for one in decisions} == records_of(d)
        record = Tick(
            (),
            (
                Answer("v", decisions, (1, {2, 3}, range(4), frozenset("a"), 1 << 70)),
                Answer("w", ({"\udcff": ["a\udcfe"]},), error="\udcff"),
            ),
        )
        found = Reader().read(encode(record))
        routers, there = found.answers[0].decisions[0].routers, decisions[0].routers
        assert routers[0][1].rows() == there[0][1].rows()  # type: ignore[attr-defined]
        assert (routers[1][1].n_src, routers[1][1].n_dst, routers[1][1].group) == (4, 2, 2)
        assert found.answers[0].decisions[1:] == decisions[1:]
        assert found.answers[0].decisions[2].scheduling == SEQUENTIAL
        assert found.answers[0].decisions[4].resources == ONE_SLOT_ONLY
        assert (found.answers[0].memo, found.answers[1]) == (record.answers[0].memo, record.answers[1])

    @pytest.mark.parametrize("kind", ["<i8", "<f4", "|b1", "<U3"])
    def test_arrays_come_back(self, kind):
        array = np.array([[1, 0], [0, 1]]).astype(kind)
        found = Reader().read(encode(Tick((e.Done(0.0, 1, 2, stats=(("e", array),)),))))
        ((_, back),) = found.events[0].stats
        assert back.dtype == array.dtype
        assert back.tolist() == array.tolist()
        back[0, 0] = back[1, 1]  # the master adds to it

    def test_sums_of_few_partitions_come_back(self):
        sums = {3: 40, 10**6: 7}
        found = Reader().read(encode(Tick((e.Done(0.0, 1, 2, stats=(("e", sums),)),))))
        assert found.events[0].stats == (("e", sums),)

    def test_numbers_of_numpy_become_plain_ones(self):
        found = Reader().read(encode(Tick((e.Done(np.float64(1.5), 1, np.int64(2)),))))  # type: ignore[arg-type]
        assert (type(found.events[0].now), type(found.events[0].hi)) == (float, int)

    def test_what_cannot_be_written_down_is_refused(self):
        with pytest.raises(ProgramError, match="an object cannot be written to the journal"):
            encode(Tick((e.UserEvent(0.0, "v", 0, "n", object()),)))

    @given(st.binary(max_size=60))
    def test_foreign_bytes_make_a_clear_error(self, data):
        try:
            Reader().read(data)
        except ConflictError:
            return

    def test_only_listed_types_are_made(self):
        schemas = [Schema("Tick", 1, ("events", "answers")), Schema("Path", 1, ("path",))]
        payload = msgspec.msgpack.encode([0, [encoding._ext(encoding._RECORD, [1, "/"])], []])
        with pytest.raises(
            ConflictError, match="a record 'Path' of schema 1, which this version of Weft does not know"
        ):
            Reader(schemas).read(payload)


class TestSchemas:
    """A journal is read by a version that has other fields than the one that wrote it."""

    def test_each_kind_states_its_fields_by_name(self):
        stated = {schema.kind: schema for schema in encoding.SCHEMAS}
        assert stated["Done"] == Schema("Done", 1, e.Done.__struct_fields__)
        retry = ("user", "memory", "infrastructure", "crash", "delay_s", "memory_factor")
        assert stated["Retry"].fields == (*retry, "factor", "max_delay_s", "jitter", "on")
        assert {"Tick", "Answer", "SetEdge", "Scheduling"} < stated.keys()

    def test_fields_are_matched_by_name(self):
        schemas = [Schema("Tick", 1, ("events",)), Schema("GaveBack", 1, ("hi", "now", "lease"))]
        payload = msgspec.msgpack.encode([0, [encoding._ext(encoding._RECORD, [1, 6, 1.5, 4])]])
        assert Reader(schemas).read(payload) == Tick((e.GaveBack(1.5, 4, 6),))

    def test_a_field_that_a_newer_version_has_added_is_passed_over(self):
        written = Schema("GaveBack", 1, ("now", "new", "lease", "hi"))
        payload = msgspec.msgpack.encode([0, [encoding._ext(encoding._RECORD, [1, 1.5, [1, 2], 4, 6])], []])
        found = Reader([Schema("Tick", 1, ("events", "answers")), written]).read(payload)
        assert found == Tick((e.GaveBack(1.5, 4, 6),))

    def test_a_field_that_an_older_version_had_not_takes_its_default(self):
        schemas = [Schema("Tick", 1, ("events",)), Schema("Done", 1, ("now", "lease", "hi"))]
        payload = msgspec.msgpack.encode([0, [encoding._ext(encoding._RECORD, [1, 1.5, 4, 6])]])
        assert Reader(schemas).read(payload) == Tick((e.Done(1.5, 4, 6),), (), -1)

    def test_a_field_without_a_default_that_is_not_there_is_refused(self):
        schemas = [Schema("Tick", 1, ("events",)), Schema("Done", 1, ("now", "lease"))]
        payload = msgspec.msgpack.encode([0, [encoding._ext(encoding._RECORD, [1, 1.5, 4])]])
        with pytest.raises(ConflictError, match=r"cannot be read: .*'hi'"):
            Reader(schemas).read(payload)

    def test_a_renamed_field_and_a_renamed_kind_are_upgraded(self, monkeypatch):
        monkeypatch.setitem(encoding.RENAMED, "Returned", "GaveBack")
        monkeypatch.setitem(encoding.NUMBERS, "GaveBack", 3)
        upgrades = {
            ("GaveBack", 1): lambda fields: {"lease": fields.pop("unit"), **fields},
            ("GaveBack", 2): lambda fields: fields | {"hi": fields["hi"] + 1},
        }
        for key, upgrade in upgrades.items():
            monkeypatch.setitem(encoding.UPGRADES, key, upgrade)
        schemas = [Schema("Tick", 1, ("events",)), Schema("Returned", 1, ("now", "unit", "hi"))]
        payload = msgspec.msgpack.encode([0, [encoding._ext(encoding._RECORD, [1, 1.5, 4, 6])]])
        assert Reader(schemas).read(payload) == Tick((e.GaveBack(1.5, 4, 7),))

    def test_a_schema_of_a_newer_number_is_refused_when_it_is_met(self):
        schemas = [Schema("Tick", 1, ("events",)), Schema("Done", 2, ("now", "lease"))]
        assert Reader(schemas).read(msgspec.msgpack.encode([0, []])) == Tick(())
        payload = msgspec.msgpack.encode([0, [encoding._ext(encoding._RECORD, [1, 1.5, 4])]])
        with pytest.raises(
            ConflictError, match="'Done' of schema 2, which this version of Weft does not know"
        ) as caught:
            Reader(schemas).read(payload)
        assert "or a newer one" in caught.value.hint

    def test_every_upgrade_leads_to_the_number_in_force(self):
        for kind, number in encoding.NUMBERS.items():
            assert kind in {schema.kind for schema in encoding.SCHEMAS}
            assert all((kind, before) in encoding.UPGRADES for before in range(1, number))
        assert {kind for kind, _ in encoding.UPGRADES} <= encoding.NUMBERS.keys()

    def test_each_process_states_the_schemas_of_what_it_writes(self, tmp_path):
        """The journal of an older version, which a newer one has gone on with."""
        path = tmp_path / "journal"
        older = tuple(
            schema._replace(fields=("now", "lease", "hi", "gone")) if schema.kind == "GaveBack" else schema
            for schema in encoding.SCHEMAS
        )
        FileJournal.create(path, header(schemas=older)).close()
        at = [schema.kind for schema in older].index("GaveBack")
        record = encoding._packed([encoding._TICK, [encoding._ext(encoding._RECORD, [at, 1.5, 4, 6, "x"])], [], 0])
        with path.open("ab") as file:
            file.write(module._frame(record))
        journal = FileJournal.reopen(path, read_journal(path), Tape())
        journal.append((e.GaveBack(2.5, 5, 7),), [])
        journal.close()
        assert journal.join(DEADLINE_S)
        ticks = [Tick((e.GaveBack(1.5, 4, 6),), (), 0), Tick((e.GaveBack(2.5, 5, 7),), (), 0)]
        assert read_journal(path).records == (ticks[0], Epoch(1), ticks[1])

    def test_a_header_of_a_newer_version_is_read(self, tmp_path):
        path = tmp_path / "journal"
        said = as_dict(header(incarnation=2)) | {"colour": "red"}
        said["tuning"] |= {"more": 1}
        del said["answered"]
        path.write_bytes(module._MAGIC + module._frame(msgspec.msgpack.encode(said)))
        assert read_journal(path).header == header(incarnation=2)


class TestFile:
    def test_records_come_back_in_order(self, tmp_path):
        journal = FileJournal.create(tmp_path / "journal", header(restored=(("a", 0),), incarnation=3))
        for number in range(50):
            journal.append(tick(number).events, [])
        journal.close()
        assert journal.join(DEADLINE_S)
        found = read_journal(tmp_path / "journal")
        assert found.records == tuple(map(tick, range(50)))
        assert found.header == header(restored=(("a", 0),), incarnation=3)
        assert found.size == (tmp_path / "journal").stat().st_size

    def test_a_record_cut_at_any_byte_is_as_if_never_written(self, tmp_path):
        path = tmp_path / "journal"
        journal = FileJournal.create(path, header())
        journal.append(tick(0).events, [])
        journal.append(tick(1).events, [])
        journal.close()
        assert journal.join(DEADLINE_S)
        whole = path.read_bytes()
        second = len(whole) - len(module._frame(encode(tick(1))))
        for cut in range(second, len(whole)):
            path.write_bytes(whole[:cut])
            found = read_journal(path)
            assert (found.records, found.size) == ((tick(0),), second), f"cut at {cut}"
            again = FileJournal.reopen(path, found, Tape())
            again.append(tick(2).events, [])
            again.close()
            assert again.join(DEADLINE_S)
            assert read_journal(path).records == (tick(0), Epoch(1), tick(2))

    def test_a_changed_byte_ends_what_is_believed(self, tmp_path):
        path = tmp_path / "journal"
        journal = FileJournal.create(path, header())
        sizes = []
        for number in range(3):
            journal.append(tick(number).events, [])
            sizes.append(len(module._frame(encode(tick(number)))))
        journal.close()
        assert journal.join(DEADLINE_S)
        whole = bytearray(path.read_bytes())
        whole[-sizes[2] - 3] ^= 1
        path.write_bytes(whole)
        assert read_journal(path).records == (tick(0),)

    def test_a_tail_of_zeros_is_no_record(self, tmp_path):
        path = tmp_path / "journal"
        FileJournal.create(path, header()).close()
        size = path.stat().st_size
        path.write_bytes(path.read_bytes() + bytes(4096))
        assert (read_journal(path).records, read_journal(path).size) == ((), size)

    def test_what_is_no_journal_is_refused(self, tmp_path):
        with pytest.raises(NotFoundError):
            read_journal(tmp_path / "none")
        for data in (b"", b"weftjnl\n", b"x" * 100):
            (tmp_path / "bad").write_bytes(data)
            with pytest.raises(ConflictError, match="is not a journal"):
                read_journal(tmp_path / "bad")

    def test_a_journal_of_another_format_is_refused(self, tmp_path):
        FileJournal.create(tmp_path / "journal", header(weft="0.0.1", format=1)).close()
        with pytest.raises(
            ConflictError, match=r"by Weft 0\.0\.1 in format 1, and this version reads format 2"
        ) as caught:
            read_journal(tmp_path / "journal")
        assert "Resume the run with the version that wrote it" in caught.value.hint

    def test_a_journal_of_another_version_is_read(self, tmp_path):
        FileJournal.create(tmp_path / "journal", header(weft="0.0.1")).close()
        assert read_journal(tmp_path / "journal").header.weft == "0.0.1"

    def test_it_is_closed_to_others(self, tmp_path):
        FileJournal.create(tmp_path / "journal", header()).close()
        assert (tmp_path / "journal").stat().st_mode & 0o077 == 0


class TestGroupCommit:
    def test_what_comes_during_a_sync_goes_into_the_next_one(self, tmp_path):
        disk = Disk(held=True)
        journal = opened(tmp_path / "journal", disk)
        done = [threading.Event() for _ in range(200)]
        append(journal, tick(0).events, done[0].set)
        wait(disk.reached)
        for number in range(1, 200):
            append(journal, tick(number).events, done[number].set)
        assert not done[0].is_set(), "nothing is durable before the sync"
        disk.go_on.set()
        for event in done:
            wait(event)
        assert disk.syncs == 2
        journal.close()
        assert journal.join(DEADLINE_S)

    def test_a_record_becomes_durable_though_nobody_waits(self, tmp_path):
        disk = Disk()
        journal = opened(tmp_path / "journal", disk)
        journal.append(tick(0).events, [])
        wait(disk.reached)
        journal.close()
        assert journal.join(DEADLINE_S)
        assert read_journal(tmp_path / "journal").records == (tick(0),)

    def test_followers_of_a_write_do_not_wait_for_its_sync(self, tmp_path):
        disk = Disk(held=True)
        journal = opened(tmp_path / "journal", disk)
        order: list[int] = []
        last = threading.Event()
        for number in range(50):
            journal.append(tick(number).events, [])
            journal.when_written(partial(order.append, number))
        journal.when_written(last.set)
        wait(disk.reached)
        known = len(read_journal(tmp_path / "journal").records)
        assert order == list(range(known)), "called in order, none before its write"
        disk.go_on.set()
        wait(last)
        assert order == list(range(50))
        journal.close()
        assert journal.join(DEADLINE_S)
        told = threading.Event()
        journal.when_written(told.set)
        assert told.is_set(), "of a journal that has ended too"

    def test_what_waits_is_called_in_order(self, tmp_path):
        journal = opened(tmp_path / "journal", Disk())
        order: list[int] = []
        last = threading.Event()
        for number in range(300):
            append(journal, tick(number).events, lambda number=number: order.append(number))
        append(journal, tick(300).events, last.set)
        wait(last)
        assert order == list(range(300))
        journal.close()
        assert journal.join(DEADLINE_S)

    def test_a_full_disk_holds_nobody_up_and_is_told(self, tmp_path):
        disk = Disk(error=OSError(errno.ENOSPC, "No space left on device"))
        journal = opened(tmp_path / "journal", disk)
        done = [threading.Event(), threading.Event()]
        for number, event in enumerate(done):
            append(journal, tick(number).events, event.set)
        for event in done:
            wait(event)
        assert isinstance(journal.error, DiskFullError)
        journal.close()
        assert journal.join(DEADLINE_S)


class Order:
    """Stands for the calls that make things durable: writes down which came, and may fail at one of them."""

    def __init__(self, *, fails_at: str = "") -> None:
        self.calls: list[str] = []
        self.fails_at = fails_at

    def call(self, what: str) -> None:
        self.calls.append(what)
        if what == self.fails_at:
            raise OSError(errno.EIO, "Input/output error")


class TestSideOutputs:
    """What a journal makes durable before a record, and who waits for that."""

    outputs: Mapping[tuple[str, int], list[str]] = {}

    def opened(self, folder: Path, order: Order) -> FileJournal:
        FileJournal.create(folder / "journal", header()).close()
        fd = os.open(folder / "journal", os.O_WRONLY | os.O_APPEND)
        systems = FileSystems([folder], flush=lambda _: order.call("files"))
        files = SideOutputs(systems, lambda vertex, index: self.outputs.get((vertex, index)))
        return FileJournal(folder / "journal", fd, Tape(), sync=lambda _: order.call("record"), files=files)

    def tell(self, journal: FileJournal, order: Order, *events) -> None:
        told = threading.Event()
        append(journal, events, lambda: order.calls.append("told"))
        journal.when_durable(told.set)
        wait(told)

    def test_what_tasks_left_is_durable_before_the_record_of_their_end_and_that_before_it_is_told(self, tmp_path):
        order = Order()
        journal = self.opened(tmp_path, order)
        self.tell(journal, order, e.Done(0.0, 1, 1))
        assert order.calls == ["files", "record", "told"], "two calls for one end"

    @pytest.mark.parametrize("event", [e.Hit(0.0, "v", 0), e.Progress(0.0, 1, 1), tick(0).events[0]])
    def test_an_end_of_any_kind_counts(self, tmp_path, event):
        order = Order()
        self.tell(self.opened(tmp_path, order), order, e.IdleTick(0.0), event)
        assert order.calls[0] == "files"

    @pytest.mark.parametrize("event", [e.Done(0.0, 1, 2), e.Progress(0.0, 1, 2), e.Hit(0.0, "v", 1)])
    def test_where_outputs_are_known_they_alone_are_synced(self, tmp_path, monkeypatch, event):
        order = Order()
        self.outputs = {("v", 0): [str(tmp_path / "a")], ("v", 1): [str(tmp_path / "b"), str(tmp_path / "none")]}
        for name in "ab":
            (tmp_path / name).touch()
        monkeypatch.setattr(disk, "sync_file", lambda fd: order.call(os.path.basename(os.readlink(f"/dev/fd/{fd}"))))
        journal = self.opened(tmp_path, order)
        journal.append([e.IdleTick(0.0)], [c.Launch(0, 1, "v", 0, 2, None, 0, Resources())])
        self.tell(journal, order, event)
        named = ["b"] if isinstance(event, e.Hit) else ["a", "b"]
        assert order.calls[order.calls.index(named[0]) :] == [*named, tmp_path.name, "record", "told"]
        assert "files" not in order.calls

    def test_what_a_lease_has_left_is_synced_once(self, tmp_path, monkeypatch):
        asked: list[tuple[str, int]] = []

        def outputs(vertex: str, index: int) -> tuple[str, ...]:
            asked.append((vertex, index))
            return ()

        files = SideOutputs(FileSystems([tmp_path]), outputs)
        assert files.ended([], [c.Launch(0, 7, "v", 2, 6, None, 0, Resources())]) == []
        assert files.ended([e.Progress(0.0, 7, 4)], []) == [(), ()]
        assert files.ended([e.Done(0.0, 7, 6)], []) == [(), ()]
        assert asked == [("v", 2), ("v", 3), ("v", 4), ("v", 5)]
        assert files.ended([e.Done(0.0, 7, 6)], []) == [None], "nobody knows of this lease any more"

    def test_where_nothing_ended_only_the_record_is_synced(self, tmp_path):
        order = Order()
        self.tell(self.opened(tmp_path, order), order, e.Miss(0.0, "v", 0), e.Offered(0.0, [1]))
        assert order.calls == ["record", "told"]

    def test_no_record_tells_of_what_could_not_be_made_durable(self, tmp_path):
        order = Order(fails_at="files")
        journal = self.opened(tmp_path, order)
        self.tell(journal, order, e.Done(0.0, 1, 1))
        assert order.calls == ["files", "told"]
        assert "Input/output error" in str(journal.error)
        assert read_journal(tmp_path / "journal").records == ()


class Slow:
    """A journal whose records become durable when the test says so."""

    def __init__(self) -> None:
        self.error: WeftError | None = None
        self.waiting: list[Callable[[], None]] = []
        self.closed = False

    def append(self, events, commands):
        return self.waiting.append

    def close(self) -> None:
        self.closed = True

    def durable(self) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then()


class TestLoop:
    def run(self, graph: Graph) -> tuple[RecordingExecutor, Loop, JobRun, Slow]:
        executor = RecordingExecutor(1, answers=False)
        loop = Loop(executor, ManualClock())
        journal = Slow()
        job = JobRun("j", graph, Master(graph, "j", Tuning(cones=False)), journal)
        loop.submit(job)
        return executor, loop, job, journal

    def kinds(self, executor: RecordingExecutor) -> list[str]:
        return [call[0] for call in executor.calls]

    def chain(self) -> Graph:
        graph = Graph("chain")
        first = graph.add(body, n=1, name="a")
        graph.add(body, first, n=1, name="b").keep()
        return graph.finish()

    def test_launches_go_ahead_and_frees_and_the_end_wait(self):
        executor, _, job, journal = self.run(self.chain())
        executor.done("j", next(iter(job.leases)))
        assert self.kinds(executor).count("launch") == 2, "b was launched before anything was durable"
        executor.done("j", next(iter(job.leases)))
        assert "free" not in self.kinds(executor)
        assert job.outcome is None
        assert not job.finished.is_set()
        journal.durable()
        assert self.kinds(executor)[-2:] == ["free", "retire_job"]
        assert job.outcome == c.Complete("succeeded")
        assert job.finished.is_set()
        assert journal.closed

    def strict(
        self, graph: Graph | None = None, *, gated: bool = False
    ) -> tuple[RecordingExecutor, Loop, JobRun, Slow]:
        executor = RecordingExecutor(1, answers=False, gated=gated)
        loop = Loop(executor, ManualClock())
        journal = Slow()
        graph = graph or self.chain()
        job = JobRun("j", graph, Master(graph, "j", Tuning(cones=False)), journal)
        job.strict = True
        loop.submit(job)
        return executor, loop, job, journal

    def test_nothing_follows_in_a_strict_job_before_the_end_of_a_task_is_durable(self):
        executor, _, job, journal = self.strict()
        assert self.kinds(executor).count("launch") == 1, "what follows from no end waits for nothing"
        executor.done("j", next(iter(job.leases)))
        assert self.kinds(executor).count("launch") == 1
        journal.durable()
        assert self.kinds(executor).count("launch") == 2
        executor.done("j", next(iter(job.leases)))
        journal.durable()
        assert job.outcome == c.Complete("succeeded")

    def test_a_strict_job_fails_with_its_journal(self):
        executor, _, job, journal = self.strict()
        executor.done("j", next(iter(job.leases)))
        journal.error = DiskFullError("the journal cannot be written")
        journal.durable()
        assert self.kinds(executor).count("launch") == 1
        assert job.outcome.state == "failed"
        assert "the journal cannot be written" in job.outcome.message
        assert job.finished.is_set()
        assert journal.closed

    def gated(self) -> tuple[RecordingExecutor, Loop, JobRun, Slow]:
        graph = Graph("chain")
        step = graph.add(body, n=1, name="a", resources=Resources(cpu=0))
        step = graph.add(body, step, n=1, name="b", resources=Resources(cpu=0))
        graph.add(body, step, n=1, name="c", resources=Resources(cpu=0)).keep()
        return self.strict(graph.finish(), gated=True)

    def test_what_follows_from_an_end_may_prepare_itself_behind_a_gate(self):
        executor, _, job, journal = self.gated()
        assert not job.gates, "what follows from no end waits for nothing"
        executor.done("j", next(iter(job.leases)))
        (lease,) = job.leases
        gate = job.gates.pop(lease)
        assert self.kinds(executor).count("launch") == 2, "it is launched"
        assert not gate.is_open
        journal.durable()
        assert gate.is_open
        assert gate.wait() is True
        executor.done("j", lease)
        (lease,) = job.leases
        assert not job.gates.pop(lease).is_open, "each end has a gate of its own"
        assert "free" not in self.kinds(executor), "outputs are freed once the record is durable"
        journal.durable()
        assert "free" in self.kinds(executor)
        executor.done("j", lease)
        journal.durable()
        assert job.outcome == c.Complete("succeeded")

    def test_nobody_passes_a_gate_whose_record_cannot_be_written(self):
        executor, _, job, journal = self.gated()
        executor.done("j", next(iter(job.leases)))
        (gate,) = job.gates.values()
        journal.error = DiskFullError("the journal cannot be written")
        journal.durable()
        assert gate.wait() is False
        assert not gate.is_open
        assert job.outcome.state == "failed"

    def test_what_waits_at_a_gate_is_stopped_at_once(self):
        executor, loop, job, journal = self.gated()
        executor.done("j", next(iter(job.leases)))
        (lease,) = job.leases
        loop.cancel(job, "enough")
        assert [call[2] for call in executor.calls if call[0] == "stop"] == [lease]
        assert not job.gates[lease].is_open
        journal.durable()
        assert job.gates[lease].is_open
        assert job.outcome.state == "cancelled"

    def test_a_lease_that_is_held_back_is_stopped_after_it_was_launched(self):
        executor, loop, job, journal = self.strict()
        executor.done("j", next(iter(job.leases)))
        loop.cancel(job, "enough")
        assert self.kinds(executor).count("launch") == 1
        assert "stop" not in self.kinds(executor)
        journal.durable()
        assert self.kinds(executor)[-2:] == ["launch", "stop"]

    def test_what_is_launched_later_waits_for_the_same_end(self):
        executor, _, job, journal = self.gated()
        executor.done("j", next(iter(job.leases)))
        lease = next(iter(job.leases))
        executor.failed("j", lease, Failure.INFRASTRUCTURE)
        (again,) = job.leases
        assert again != lease
        assert not job.gates[again].is_open
        journal.durable()
        assert job.gates[again].is_open

    def test_no_lease_overtakes_the_freeing_of_what_it_makes_again(self):
        graph = Graph("again")
        first = graph.add(body, n=1, name="a")
        second = graph.add(body, first, n=1, name="b")
        graph.add(body, second, n=1, name="c").keep()
        executor, loop, job, journal = self.run(graph.finish())
        for _ in "ab":
            executor.done("j", next(iter(job.leases)))  # a is to be freed; c runs
        loop.post("j", e.OutputLost(0.0, "b", 0, 1, "gone"))
        lease = next(iter(job.leases))
        executor.open.pop(("j", lease))
        loop.post("j", e.Failed(0.0, lease, 0, "c", 0, Failure.INPUT, "gone", lost=("b", 0)))
        launched = [call[2].vertex for call in executor.calls if call[0] == "launch"]
        assert launched == ["a", "b", "c"], "a is made again only when its old output was freed"
        assert len(job.leases) == 1
        journal.durable()
        told = [call[0] if call[0] != "launch" else call[2].vertex for call in executor.calls]
        assert told[-2:] == ["free", "a"]

    def test_a_tick_that_cannot_be_written_down_fails_the_job(self, tmp_path):
        graph = Graph("bad")
        graph.add(body, n=1, name="a")
        executor = RecordingExecutor(1, answers=False)
        loop = Loop(executor, ManualClock())
        journal = FileJournal.create(tmp_path / "journal", header())
        job = JobRun("j", graph.finish(), Master(graph, "j"), journal)
        loop.submit(job)
        loop.post("j", e.UserEvent(0.0, "a", 0, "n", object()))
        wait(job.finished)
        assert "cannot be written to the journal" in job.outcome.message
        assert journal.join(DEADLINE_S)


class Wave(VertexManager):
    """A manager that holds its tasks back and lets one more go each time."""

    moments = frozenset({Moment.STARTED, Moment.FINISHED})
    holds = True
    counts = False
    asked = 0

    def decide(self, view, memo):
        Wave.asked += 1
        return (d.Schedule(view.vertex, (memo or 0) + 1),), (memo or 0) + 1


class TestRecovery:
    def test_managers_are_not_asked_again(self, tmp_path):
        graph = Graph("waves")
        graph.add(body, n=4, name="a", manager="wave")
        graph.finish()
        executor = RecordingExecutor(2)
        loop = Loop(executor, ManualClock())
        journal = FileJournal.create(tmp_path / "journal", Header(graph=graph_digest(graph), tuning=Tuning()))
        job = JobRun("j", graph, Master(graph, "j", Tuning(), journal.managers({"wave": Wave})), journal)
        loop.submit(job)
        wait(job.finished)
        assert journal.join(DEADLINE_S)
        asked = Wave.asked
        assert asked >= 4
        found = recover(graph, read_journal(tmp_path / "journal"), {"wave": Wave})
        assert found.pending.completed
        assert Wave.asked == asked
        assert found.master.core.stages[0].memo == job.master.core.stages[0].memo

    def test_a_journal_that_does_not_fit_is_refused(self):
        graph = Graph("g")
        graph.add(body, n=1, name="a")
        graph.finish()
        master = Master(graph, "j")
        with pytest.raises(InternalError, match="nobody asked for"):
            replay(master, Tape(), [Tick((e.JobSubmitted(0.0),), (Answer("a", ()),))])
        recorded = module.Recorded(Header(graph="another", tuning=Tuning()), (), 0)
        with pytest.raises(ConflictError, match="another graph"):
            recover(graph, recorded, {})

    def test_the_digest_tells_states_apart(self):
        graph = Graph("g")
        graph.add(body, n=3, name="a")
        graph.finish()
        one, two = Master(graph, "j"), Master(graph, "j")
        assert digest(one.core) == digest(two.core)
        seen = {digest(one.core)}
        rng = random.Random(1)
        for number in range(3):
            one.handle([e.WorkerJoined(0.0, number, 0)] if number else [e.JobSubmitted(0.0)])
            seen.add(digest(one.core))
        one.handle([e.Offered(rng.random(), [1])])
        seen.add(digest(one.core))
        assert len(seen) == 5


def number(item: int) -> int:
    return item * item


def total(*columns: list[int]) -> int:
    return sum(sum(column) for column in columns)


class TestSession:
    @pytest.mark.parametrize("backend", ["threads", "processes"])
    def test_a_journaled_job_gives_the_same_and_replays_to_where_it_ended(self, backend, tmp_path):
        with Session(backend, workers=2) as session:
            graph = Graph("squares")
            column = graph.map(number, range(200), name="square")
            graph.add(total, gather(column), n=1, name="sum").keep()
            graph.finish()
            path = tmp_path / "journal"
            tuning = session.executor.tuning
            journal = FileJournal.create(path, Header(graph=graph_digest(graph), tuning=tuning))
            session.managers = journal.managers(session.managers)
            run = session.start(graph, journal=journal)
            assert run.result(DEADLINE_S).value() == sum(item * item for item in range(200))
            assert journal.join(DEADLINE_S)
            assert journal.faults == []
            live = digest(run.job.master.core)
        tape = Tape()
        again = Master(graph, "squares-1", tuning, tape.managers(MANAGERS))
        pending = replay(again, tape, read_journal(path).records)
        assert pending.completed
        again.retire()  # as the one that has run
        assert digest(again.core) == live

    @pytest.mark.parametrize("backend", ["threads", "processes"])
    def test_a_task_that_prepares_nothing_begins_behind_the_gate(self, backend, tmp_path):
        may, waiting = threading.Event(), threading.Event()
        syncs: list[int] = []
        begun: list[str] = []

        def sync(fd: int) -> None:
            syncs.append(fd)
            if begun:
                waiting.set()
                wait(may)
            os.fsync(fd)

        def first() -> None:
            begun.append("a")

        def second(_: None) -> None:
            assert may.is_set(), "what it follows from is not durable"
            begun.append("b")

        with Session(backend, workers=1) as session:
            graph = Graph("two")
            step = graph.add(first, n=1, name="a", resources=Resources(cpu=0))
            graph.add(second, step, n=1, name="b", resources=Resources(cpu=0)).keep()
            graph.finish()
            journal = FileJournal.create(tmp_path / "journal", header(), sync=sync)
            session.managers = journal.managers(session.managers)
            run = session.start(graph, journal=journal, strict=True)
            wait(waiting)
            (lease,) = run.job.leases.values()
            assert lease.vertex == "b", "it is launched"
            may.set()
            run.result(DEADLINE_S)
            assert journal.join(DEADLINE_S)
        assert begun == ["a", "b"]
