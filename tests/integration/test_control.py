"""History: what a run took is there for the next run of the same graph, and for nobody else."""

from typing import Any

import pytest

from weft.durability.journal import JOURNAL, FileJournal, Header, graph_digest, read_journal, recover
from weft.graph.builder import Graph, VertexHandle, controlled, gather
from weft.graph.logical import CONCURRENT, NONE, Edge, Patch, Range, Storage, Vertex
from weft.graph.task import DECIDE, VertexHistory
from weft.graph.validate import mark_results
from weft.model.errors import CapacityError, TaskError, UsageError
from weft.model.program import Program
from weft.model.resources import Resources
from weft.store.catalog import Catalog
from weft.wiring import MANAGERS, Session

DEADLINE_S = 180.0
BACKENDS = ["threads", "processes"]


def count(ctx: Any, inputs: Any) -> int:
    ctx.usage(memory=100 + ctx.index)
    if ctx.params["fail"]:
        raise ValueError("bad")
    return int(ctx.resources.memory)


def ask(ctx: Any, inputs: Any) -> None:
    """Give the work twice the memory that it was seen to use."""
    told = ctx.history("work")
    ctx.emit("told", [past.usage for past in told])
    if told:
        ctx.set_resources("work", Resources(memory=2 * int(told[0].usage["memory"])))
    ctx.emit("ready")


def steering(made: Graph, fn: Any, *, light: bool) -> VertexHandle:
    return made.control(fn, name="control") if light else made.service(fn, name="control")


def graph(*, fail: bool = False, n: int = 2, light: bool = True) -> Graph:
    made = Graph("job")
    control = steering(made, ask, light=light)
    made.task(count, controlled(control), n=n, name="work", params={"fail": fail})
    return made


def run(folder: Any, made: Graph, backend: str = "threads") -> tuple[list[int], list[VertexHistory]]:
    with Session(backend, workers=2, history=folder) as session:
        values = session.submit(made).result(DEADLINE_S)["work"]
        assert session.historian is not None
        assert session.historian.problems == []
        return values, list(session.historian.read(made)[1])


def ask_too_much(ctx: Any, inputs: Any) -> None:
    ctx.emit("told", ctx.set_resources("work", Resources(cpu=100)))
    ctx.emit("ready")


def test_what_no_node_has_fails_who_was_to_take_it():
    made = Graph("job")
    made.task(count, controlled(made.control(ask_too_much, name="control")), n=2, name="work", params={"fail": False})
    with (
        Session("threads", workers=2) as session,
        pytest.raises(CapacityError, match=r"work asks for cpu 100 for one task; no node has that much"),
    ):
        session.submit(made).result(DEADLINE_S)


@pytest.mark.parametrize("light", [True, False], ids=["light", "on a worker"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_run_is_sized_by_the_first(backend, light, tmp_path):
    assert run(tmp_path, graph(light=light), backend)[0] == [0, 0]
    values, told = run(tmp_path, graph(light=light), backend)
    assert values == [202, 202]
    first = min(told, key=lambda past: past.ended_at)  # the second may have been written
    assert (first.vertex, first.tasks, first.resources) == ("work", 2, (Resources(),))
    assert first.usage["memory"] == 101.0
    assert first.seconds >= 0
    assert first.ended_at > 1e9


def hold(ctx: Any, inputs: Any) -> int:
    return len(bytearray(ctx.item << 20))


def test_worker_processes_tell_how_much_memory_they_held(tmp_path):
    def made() -> Graph:
        graph = Graph("memory")
        large = graph.task(hold, n=2, items=[300, 1], name="large")
        graph.task(hold, gather(large), n=2, items=[1, 1], name="small")
        return graph

    with Session("processes", workers=1, history=tmp_path) as session:
        session.submit(made()).result(DEADLINE_S)
        assert session.historian is not None
        session.historian.close()
    with Session(workers=1, history=tmp_path) as session:
        assert session.historian is not None
        told = {past.vertex: past.usage["peak_memory"] for past in session.historian.read(made())[1]}
    assert told["large"] >= 300 << 20
    assert told["small"] <= told["large"] - (250 << 20)  # the peak of another vertex is not its own


def test_a_wider_run_of_the_same_work_has_the_history_of_the_narrow_one(tmp_path):
    run(tmp_path, graph())
    assert run(tmp_path, graph(n=3))[0] == [202, 202, 202]


def test_a_run_that_failed_is_not_kept(tmp_path):
    with pytest.raises(TaskError):
        run(tmp_path, graph(fail=True))
    with Session(workers=1, history=tmp_path) as session:
        assert session.historian is not None
        assert session.historian.read(graph(fail=True))[1] == []


def test_a_session_without_history_keeps_and_reads_nothing(tmp_path):
    run(tmp_path, graph())
    with Session(workers=2) as session:
        assert session.historian is None
        assert session.submit(graph()).result(DEADLINE_S)["work"] == [0, 0]


def test_a_durable_session_keeps_a_history_only_if_it_is_asked_to(tmp_path):
    for history, known in ((False, 0), (True, 1), (True, 2), (False, 2)):
        with Session(workers=2, durable=tmp_path, history=history) as session:
            session.submit(graph()).result(DEADLINE_S)
            assert (session.historian is not None) is history
        with Session(workers=1, history=tmp_path) as session:
            assert session.historian is not None
            kept = [past for past in session.historian.read(graph())[1] if past.vertex == "work"]
            assert len(kept) == known


def test_a_damaged_index_is_a_problem_and_fails_no_job(tmp_path):
    (tmp_path / "weft.db").write_bytes(b"no database" * 100)
    with Session(workers=2, history=tmp_path) as session:
        assert session.submit(graph()).result(DEADLINE_S)["work"] == [0, 0]
        assert session.historian is not None
        session.historian.close()
        assert len(session.historian.problems) == 2


def test_what_a_control_vertex_decided_is_replayed(tmp_path):
    run(tmp_path, graph())
    made = graph()
    mark_results(made)
    with Session(workers=2, history=tmp_path) as session:
        tuning = session.executor.tuning
        journal = FileJournal.create(tmp_path / JOURNAL, Header(graph=graph_digest(made), tuning=tuning))
        session.start(made, journal=journal).result(DEADLINE_S)
        assert journal.join(DEADLINE_S)
        assert journal.faults == []
    recorded = read_journal(tmp_path / JOURNAL)
    assert any(getattr(event, "name", "") == DECIDE for tick in recorded.records for event in tick.events)
    again = graph()
    mark_results(again)
    core = recover(again, recorded, MANAGERS).master.core
    assert core.by_id["work"].resources == (Resources(memory=202),)


# ------------------------------------------------------------------------------------------- what a control vertex may


def dry(ctx: Any, inputs: Any) -> None:
    ctx.emit("seen", {"index": ctx.index})


def steer(ctx: Any, inputs: Any) -> None:
    replies = [ctx.set_parallelism("work", 3), ctx.set_parallelism("sum", 2)]
    vertex = Vertex("control/dry", Program(dry, style=ctx.code.style), 2)
    replies.append(ctx.patch(Patch((vertex,), (Edge("control", "control/dry", NONE, CONCURRENT, Storage.NONE),))))
    while (seen := ctx.watch("control/dry")).state != "done" and not ctx.cancelled():
        pass
    ctx.emit("replies", [replies, sorted(payload["index"] for _, _, payload in seen.events), seen.finished])
    ctx.emit("ready")


@pytest.mark.parametrize("light", [True, False], ids=["light", "on a worker"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_decisions_are_replied_to_and_a_dry_run_is_watched(backend, light):
    made = Graph("steered")
    control = steering(made, steer, light=light)
    work = made.task(lambda ctx, inputs: ctx.parallelism, controlled(control), n=Range(1, 3), name="work").keep()
    made.add(sum, gather(work), name="sum")
    said: list[Any] = []

    def listen(job: Any, events: Any, commands: Any) -> None:
        said.extend(event.payload for event in events if getattr(event, "name", "") == "replies")

    with Session(backend, workers=6) as session:  # one on a worker shares a bubble with those that it controls
        results = session.submit(made, listeners=[listen]).result(DEADLINE_S)
        assert results["work"] == [3, 3, 3]
    ((replies, indices, finished),) = said
    assert (replies[0], replies[2], indices, finished) == ("", "", [0, 1], 2)
    assert "no order-only edge" in replies[1]


WRONG = {
    "no resources": lambda ctx, inputs: ctx.set_resources("work"),
    "other resources": lambda ctx, inputs: ctx.set_resources("work", "gpu"),
    "no number": lambda ctx, inputs: ctx.set_parallelism("work", 2.5),
    "no patch": lambda ctx, inputs: ctx.patch({}),
    "not controlled": lambda ctx, inputs: ctx.watch("other"),
    "our own name": lambda ctx, inputs: ctx.emit("weft.decide"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_an_error_of_the_control_vertex(name):
    made = Graph("wrong")
    made.task(count, controlled(made.control(WRONG[name], name="control")), name="work", params={"fail": False})
    made.task(count, name="other", params={"fail": False})
    with Session(workers=2) as session, pytest.raises(TaskError, match="control"):
        session.submit(made).result(DEADLINE_S)


def test_gpus_are_a_number(tmp_path):
    with pytest.raises(UsageError, match="gpus"):
        Session(gpus=-1)


def test_the_index_is_that_of_the_state_folder(tmp_path):
    run(tmp_path, graph())
    catalog = Catalog.open(tmp_path / "weft.db")
    assert catalog.list() == []
    catalog.close()
