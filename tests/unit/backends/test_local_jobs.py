"""A job on one machine: its leases, its outputs, and what its tasks ask for."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.backends.rig import DEADLINE_S, job_of, launch_of, posted_events
from tests.unit.engine.hand import body
from weft.backends.local_jobs import EVENTS_KEPT, LocalJob
from weft.engine.commands import MarkEnded, Publish, Reply
from weft.engine.events import Done, Failed, UserEvent
from weft.graph.builder import Graph, controlled, gather
from weft.graph.spec import MachineAddress
from weft.model.errors import NotFoundError, RunCancelledError
from weft.model.failures import Failure
from weft.store.api import ABSENT
from weft.store.blocks import BlockManager
from weft.worker.lease import LeaseResult


def watched() -> Graph:
    """A vertex `a` of three tasks, a control vertex `c` of it, and a reader `b` that starts while `a` runs."""
    g = Graph("g")
    a = g.add(body, controlled(g.control(body, name="c")), n=3, name="a")
    g.add(body, gather(a, fraction=0.3), n=1, name="b")
    return g


class Rig:
    def __init__(self, store: BlockManager, graph: Graph | None = None, **fields: Any) -> None:
        self.loop = posted_events()
        self.store = store
        self.job = job_of(graph or watched(), **fields)
        self.local = LocalJob(self.job, store, self.loop, 1_000)

    def commit(self, hi: int, *, lease: int = 1, kind: str = "") -> tuple[Any, LeaseResult]:
        running: Any = self.local.lease(launch_of(self.job, "a", 0, 3, lease=lease))
        outcome = LeaseResult(hi, [f"value {at}" for at in range(hi)], 0.5)
        outcome.kind = kind
        self.local.commit(running, outcome)
        return running, outcome

    def values(self) -> list[Any]:
        return [None if value is ABSENT else value for value in self.local.column("a", 3, 0).values]


@pytest.fixture
def rig(tmp_path):
    store = BlockManager(1 << 20, spill=tmp_path / "spill")
    yield Rig(store)
    store.close()


def test_the_code_of_a_record_is_made_once(rig):
    spec = rig.job.inspector.spec("a")
    assert rig.local.code(spec) is rig.local.code(spec)
    assert rig.local.code(rig.job.inspector.spec("a")) is not rig.local.code(spec)


def test_a_lease_runs_until_it_is_forgotten(rig):
    lease = rig.local.lease(launch_of(rig.job, "a", 0, 3))
    assert rig.local.running == {1: lease}
    assert lease.host is rig.local
    rig.local.forget(lease)
    assert rig.local.running == {}


def test_a_lease_takes_its_barrier_once(rig):
    rig.job.gates[1] = barrier = object()
    assert rig.local.lease(launch_of(rig.job, "a", 0, 1)).gate is barrier
    assert rig.local.lease(launch_of(rig.job, "a", 0, 1)).gate is None


def test_values_are_stored_before_the_report(rig):
    lease, outcome = rig.commit(2)
    assert rig.values() == ["value 0", "value 1", None]
    report = rig.local.report(lease, outcome, 4.0)
    assert isinstance(report, Done)
    assert (report.now, report.lease, report.hi, report.seconds) == (4.0, 1, 2, 0.5)
    assert report.values is None
    assert rig.local.running == {}


def test_a_failure_keeps_the_values_before_it(rig):
    lease, outcome = rig.commit(1, kind=Failure.USER.value)
    outcome.vertex, outcome.index, outcome.message = "a", 1, "it broke"
    assert rig.values() == ["value 0", None, None]
    report = rig.local.report(lease, outcome, 0.0)
    assert isinstance(report, Failed)
    assert (report.hi, report.index, report.kind, report.message) == (1, 1, Failure.USER, "it broke")


def test_a_lease_that_the_loop_has_dropped_stores_nothing(rig):
    lease = rig.local.lease(launch_of(rig.job, "a", 0, 3))
    rig.job.leases.clear()
    rig.local.commit(lease, LeaseResult(3, [1, 2, 3], 0.0))
    assert rig.values() == [None] * 3


def test_values_after_the_time_limit_do_not_count(rig):
    lease = rig.local.lease(launch_of(rig.job, "a", 0, 3))
    lease.late = True
    outcome = LeaseResult(3, [1, 2, 3], 0.0)
    rig.local.commit(lease, outcome)
    assert (rig.values(), outcome.hi, outcome.kind) == ([None] * 3, 0, Failure.STOPPED.value)


def test_a_closed_job_keeps_no_value(rig):
    lease = rig.local.lease(launch_of(rig.job, "a", 0, 3))
    rig.local.close()
    rig.local.commit(lease, LeaseResult(3, [1, 2, 3], 0.0))
    assert rig.values() == [None] * 3


def test_the_values_of_an_expander_travel_in_the_report(tmp_path):
    g = Graph("g")
    g.add(body, n=3, name="a", expands=True)
    store = BlockManager(1 << 20, spill=tmp_path / "spill")
    rig = Rig(store, g)
    lease, outcome = rig.commit(2)
    report = rig.local.report(lease, outcome, 0.0)
    assert isinstance(report, Done)
    assert report.values == ["value 0", "value 1"]
    store.close()


# ---------------------------------------------------------------------------------------- durable outputs


class KeptOutputs:
    """Outputs of a durable job that record all calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def put(self, vertex: str, n: int, lease: int, lo: int, values: list[Any], parts: int) -> list[Any]:
        self.calls.append(("put", vertex, n, lease, lo, values, parts))
        return []

    def cells(self, vertex: str, indices: Any) -> Any:
        yield 1, [f"{vertex} again"]

    def free(self, vertex: str, lo: int, hi: int, defer: Any) -> None:
        self.calls.append(("free", vertex, lo, hi))


def test_durable_values_are_written_and_restored(tmp_path):
    store = BlockManager(1 << 20, spill=tmp_path / "spill")
    kept = KeptOutputs()
    rig = Rig(store, outputs=kept)
    rig.commit(2)
    assert kept.calls == [("put", "a", 3, 1, 0, ["value 0", "value 1"], 0)]
    rig.local.restore("a", [1])
    assert rig.values() == ["value 0", "a again", None]
    rig.local.restore("a", [])
    assert rig.values() == ["value 0", "a again", None]
    store.close()


def test_files_of_partitions_are_freed_with_the_last_one(tmp_path):
    store = BlockManager(1 << 20, spill=tmp_path / "spill")
    kept = KeptOutputs()
    local = Rig(store, outputs=kept, inspector=SimpleNamespace(status=_running())).local
    column = store.column(("job", "x"), 2, 3)
    local.free_parts(column, "x", (0, 1), lambda action: action())
    assert kept.calls == []
    local.free_parts(column, "x", (2,), lambda action: action())
    assert kept.calls == [("free", "x", 0, 2)]
    store.close()


def _running() -> Any:
    from weft.engine.machines.job import JobState

    return JobState.RUNNING


# ------------------------------------------------------------------------------------------ requests of tasks


def test_events_go_to_the_loop(rig):
    rig.local.emit(1, "a", 2, "rows", 7)
    assert rig.loop.posts == [("job", UserEvent(0.0, "a", 2, "rows", 7))]


def test_endpoints_are_told_when_all_are_known(rig):
    for index in (2, 0):
        rig.local.publish(Publish("a", index, "endpoint", f"port {index}"))
        assert rig.local.endpoints("a") is None
    rig.local.publish(Publish("a", 1, "endpoint", "port 1"))
    assert rig.local.endpoints("a") == ["port 0", "port 1", "port 2"]
    with pytest.raises(NotFoundError, match="no service 'x' in g"):
        rig.local.endpoints("x")


def test_a_reply_is_read_once(rig):
    rig.local.take_reply(Reply("t", "not now"))
    assert [rig.local.reply(token) for token in ("t", "t", "u")] == ["not now", None, None]


def test_only_a_control_vertex_sees_a_vertex_and_its_last_events(rig):
    for number in range(EVENTS_KEPT + 2):
        rig.local.publish(Publish("a", 0, "loss", number))
    rig.local.publish(Publish("b", 0, "loss", 1))
    seen = rig.local.watch("c", "a")
    assert (seen.n, seen.finished, len(seen.events), seen.events[0]) == (3, 0, EVENTS_KEPT, ("loss", 0, 2))
    for control, vertex in (("c", "b"), ("b", "a"), ("c", "x")):
        assert rig.local.seen(control, vertex) is None
        with pytest.raises(NotFoundError, match="controls no vertex"):
            rig.local.watch(control, vertex)


def test_history_is_that_of_one_vertex(rig):
    past = [SimpleNamespace(vertex="a"), SimpleNamespace(vertex="b")]
    rig.job.history = past
    assert rig.local.history("b") == past[1:]


def test_without_a_cache_every_result_counts_as_kept(rig):
    assert rig.local.keep_result("recipe", 0.0, "spoilt") == ""
    rig.job.cache = SimpleNamespace(keep=lambda *recipe: f"no: {recipe}")
    assert rig.local.keep_result("recipe", 0.0, "spoilt") == "no: ('recipe', 0.0, 'spoilt')"


def test_the_front_end_of_the_run_answers_questions_of_tasks(rig):
    with pytest.raises(NotFoundError, match="nobody answers questions of the tasks of g"):
        rig.local.ask_run(("where",))
    rig.job.host = SimpleNamespace(answer=lambda question, machine, run: (question, machine.host, run.starts("z")))
    assert rig.local.ask_run(("where", 1)) == (("where", 1), "127.0.0.1", {})
    assert rig.local.ask_run(("where", 1), MachineAddress("n", "10.0.0.7"))[1] == "10.0.0.7"


# ----------------------------------------------------------------------------------------------- live inputs


def reading(rig: Rig) -> tuple[list[Any], threading.Thread, Any]:
    """A thread that reads the values of `a` while `a` runs."""
    lease: Any = rig.local.lease(launch_of(rig.job, "b", 0, 1, lease=9))
    context: Any = SimpleNamespace(lease=lease, vertex="b", index=0)
    found: list[Any] = []

    def read() -> None:
        try:
            found.extend(rig.local.live_input(lease.root.inputs[0], 0, context))
        except RunCancelledError as error:
            found.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    return found, thread, lease


def test_a_live_reader_waits_for_the_end_of_its_source(rig):
    rig.commit(2)
    found, thread, _ = reading(rig)
    rig.local.mark_ended(MarkEnded("a"))
    thread.join(DEADLINE_S)
    assert found == ["value 0", "value 1"]


def test_a_source_that_runs_again_is_waited_for(rig):
    rig.local.mark_ended(MarkEnded("a"))
    rig.local.mark_ended(MarkEnded("a", ended=False))
    found, thread, _ = reading(rig)
    rig.commit(3)
    thread.join(DEADLINE_S)
    assert found == ["value 0", "value 1", "value 2"]


def test_a_stopped_live_reader_waits_no_longer(rig):
    found, thread, lease = reading(rig)
    lease.stop = True
    rig.local.settle()
    thread.join(DEADLINE_S)
    assert [str(each) for each in found] == ["b[0] was stopped"]
