"""Snapshots hold declared fields by name, and are read by versions that have others."""

import pickle

import pytest

from tests.pickled import weft_modules_in
from weft.durability import pickles, snapshot
from weft.engine.core import Core, WorkerRow
from weft.engine.events import JobSubmitted, Offered, WorkerJoined
from weft.engine.machines.job import JobState
from weft.engine.master import Master
from weft.engine.physical import Stage
from weft.engine.policy import BLAME
from weft.engine.recovery import digest
from weft.engine.replay import Replay, Tape, Tick
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, gather
from weft.model.errors import ConflictError
from weft.policies.blame import NodeExclusion


def graph() -> Graph:
    made = Graph("g")
    made.add("m:f", gather(made.add("m:f", n=3, name="a")), name="b")
    return made


def replayed(tape: Tape) -> Replay:
    found = Replay(Master(graph(), "g", Tuning(), {}), tape)
    found.feed([Tick((JobSubmitted(1.0),))])
    return found


def test_every_field_is_declared():
    """A new field of the core or a stage is kept in snapshots, or made anew: say so beside the field."""
    core = replayed(Tape()).master.core
    assert set(Core.__slots__) == {*Core.KEPT, *Core.MADE_ANEW}
    assert all(hasattr(core, name) for name in Core.__slots__)
    assert set(Stage.__slots__) == {*Stage.KEPT, *Stage.MADE_ANEW}
    for kind in (Core, Stage):
        assert len(set(kind.KEPT)) == len(kind.KEPT)


def test_a_snapshot_is_the_master_that_it_was_made_of():
    before = replayed(Tape())
    wanted = digest(before.master.core)
    after = snapshot.load(snapshot.dump(graph(), before), graph(), {}, Tape())
    assert digest(after.master.core) == wanted
    assert [stage.id for stage in after.master.core.stages] == ["a", "b"]
    assert after.master.core.stages[1].inputs[0].src is after.master.core.stages[0]


def test_fields_of_another_version_are_passed_over_or_as_in_a_new_job(monkeypatch):
    own = snapshot._fields

    def other(value, kept):
        fields = own(value, kept)
        if isinstance(value, Stage):
            del fields["written"]
        if isinstance(value, Core):
            del fields["memos"]
        return fields | {"new": 1}

    before = replayed(Tape())
    before.master.core.workers[1] = WorkerRow(0, "node")
    monkeypatch.setattr(snapshot, "_fields", other)
    data = snapshot.dump(graph(), before)
    monkeypatch.undo()
    core = snapshot.load(data, graph(), {}, Tape()).master.core
    assert (core.status, core.memos, core.stages[0].written) == (JobState.RUNNING, {}, 0)
    assert core.workers == {1: WorkerRow(0, "node")}
    assert not hasattr(core, "new")


def test_a_class_that_has_been_renamed_is_found(monkeypatch):
    before = replayed(Tape())
    before.master.core.workers[1] = WorkerRow(0, "node")
    data = snapshot.dump(graph(), before)
    was, now = b"\x8c\x09WorkerRow", b"\x8c\x09OldestRow"
    assert data.count(was) == 1
    with pytest.raises(ConflictError, match="cannot be read"):
        snapshot.load(data.replace(was, now), graph(), {}, Tape())
    monkeypatch.setitem(pickles.RENAMED, "OldestRow", "WorkerRow")
    assert snapshot.load(data.replace(was, now), graph(), {}, Tape()).master.core.workers == {1: WorkerRow(0, "node")}


def test_the_policies_of_a_job_answer_through_the_tape_of_the_reader():
    """They are made anew: answers of theirs are in the records after the snapshot."""
    before = replayed(Tape())
    tape = Tape()
    data = snapshot.dump(graph(), before)
    core = snapshot.load(data, graph(), {BLAME: NodeExclusion}, tape).master.core
    assert core.policies.keys() == {BLAME}
    assert core.policies[BLAME]._tape is tape  # type: ignore[attr-defined]


def test_a_snapshot_names_no_module_whose_classes_it_holds():
    tape = Tape()
    made = Replay(Master(graph(), "g", Tuning(), tape.managers({BLAME: NodeExclusion})), tape)
    made.feed([Tick((JobSubmitted(1.0), WorkerJoined(1.0, 1, 0, "node"), Offered(1.0, [1])))])
    assert made.master.core.leases
    assert weft_modules_in(snapshot.dump(graph(), made), pickles=2) == {"weft.durability.pickles"}


def test_a_snapshot_of_another_schema_is_refused():
    data = snapshot.dump(graph(), replayed(Tape()))
    other = snapshot.SCHEMA + 1
    with pytest.raises(
        ConflictError, match=f"it is of schema {other}, and this version reads schema {snapshot.SCHEMA}"
    ):
        snapshot.load(pickle.dumps({"schema": other}) + data, graph(), {}, Tape())
