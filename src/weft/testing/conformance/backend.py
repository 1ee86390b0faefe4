"""What every backend must do. Call each of `CHECKS` with a rig over it, and those of `VALUE_CHECKS` if it really
computes.

A rig runs graphs on one backend and says what was seen; one may serve many checks. Everything here waits for
conditions, never for time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy
from msgspec import Struct, field

from weft.engine.commands import Launch
from weft.engine.events import Done, Failed, UserEvent
from weft.engine.master import Master
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import OnFailure, Outcome, Retry, Source, Storage
from weft.graph.validate import mark_results, validate
from weft.model.errors import RunCancelledError, TaskError
from weft.model.failures import Failure
from weft.model.resources import Resources
from weft.runtime.actors import add_actor
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.runtime.mapping import Mapped
from weft.runtime.run import Results  # noqa: TC001 (`help` evaluates the fields of records)
from weft.testing.inside import check_job

if TYPE_CHECKING:
    from weft.engine.ports import Clock, Executor, Journal
    from weft.runtime.session import EngineSession
    from weft.worker.actors import ActorHandle

DEADLINE_S = 60
_POLL_S = 0.01


class ObservedJob(Struct):
    """What came of a graph: the job, every tick, and its results where the backend computes."""

    job: JobRun
    ticks: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=list)
    results: Results | None = None
    error: Exception | None = None

    def commands(self, kind: type[Any]) -> list[Any]:
        """Return all commands of a kind, in order."""
        return [command for _, commands in self.ticks for command in commands if type(command) is kind]

    def events(self, kind: type[Any]) -> list[Any]:
        """Return all events of a kind, in order."""
        return [event for events, _ in self.ticks for event in events if type(event) is kind]

    @property
    def state(self) -> str:
        """How the job ended."""
        assert self.job.outcome is not None, "the job did not end:\n" + "\n".join(self.job.master.inspector.story())
        return self.job.outcome.state


class SessionRig:
    """Runs graphs in a session, on a backend that computes."""

    def __init__(self, session: EngineSession) -> None:
        self.session = session
        self.loop = session.loop

    def run(self, graph: Graph, *, cancel: bool = False) -> ObservedJob:
        """Run a graph to its end; with `cancel`, cancel it when its first lease was launched."""
        ticks: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []
        launched = threading.Event()

        def listen(job: JobRun, events: Sequence[Any], commands: Sequence[Any]) -> None:
            ticks.append((tuple(events), tuple(commands)))
            if any(type(command) is Launch for command in commands):
                launched.set()

        run = self.session.submit(graph, listeners=[listen])
        if cancel:
            assert launched.wait(DEADLINE_S), "nothing was launched"
            run.cancel("cancelled by the check")
        assert run.wait(DEADLINE_S), "the job did not end:\n" + "\n".join(run.story())
        return ObservedJob(run._job, ticks, run.results(), run.error())


class SteppedRig:
    """Runs graphs on a backend that only says that it computed. `let_pass` lets its time pass."""

    def __init__(self, executor: Executor, clock: Clock, let_pass: Callable[[], None]) -> None:
        self.loop = Loop(executor, clock)
        self._executor = executor
        self._let_pass = let_pass
        self._count = 0

    def run(self, graph: Graph, *, cancel: bool = False, journal: Journal | None = None) -> ObservedJob:
        """See `SessionRig.run`."""
        mark_results(graph)
        validate(graph, self.loop.pool.capacity())
        self._count += 1
        name = f"job-{self._count}"
        job = JobRun(name, graph, Master(graph, name, self._executor.tuning), journal)
        seen = ObservedJob(job)

        def listen(job: JobRun, events: Sequence[Any], commands: Sequence[Any]) -> None:
            seen.ticks.append((tuple(events), tuple(commands)))
            check_job(job)

        job.listen(listen)
        if cancel:
            job.listen(self._canceller())
        self.loop.submit(job)
        self._let_pass()
        return seen

    def _canceller(self) -> Callable[[JobRun, Sequence[Any], Sequence[Any]], None]:
        from weft.engine.events import CancelRequested

        asked = False

        def listen(job: JobRun, events: Sequence[Any], commands: Sequence[Any]) -> None:
            nonlocal asked
            if not asked and any(type(command) is Launch for command in commands):
                asked = True
                self.loop.post_later(job.id, CancelRequested(self.loop.clock.now(), "cancelled by the check"))

        return listen


Rig = SessionRig | SteppedRig


def quiet(rig: Rig) -> None:
    """Nothing runs, nothing is held, every worker is idle again."""
    assert not rig.loop.jobs
    for _ in range(int(DEADLINE_S / _POLL_S)):
        if rig.loop.pool.idle == len(rig.loop.slots.specs):
            return
        time.sleep(_POLL_S)
    raise AssertionError("a worker was not given back")


# ------------------------------------------------------------------------------------------------------------- bodies


def nothing(*inputs: Any) -> None:
    """Do nothing."""


def double(x: int) -> int:
    """Return twice as much."""
    return 2 * x


def rows(x: int) -> list[int]:
    """Return a piece for each of three partitions."""
    return [10 * x + part for part in range(3)]


def some_pieces(x: int, n: int, *, large: bool) -> dict[int, Any]:
    """Return pieces for one or two of `n` partitions: a number, or 100 kB of it."""
    return {part: numpy.full(12_500, 100 * x + part) if large else 100 * x + part for part in (x, 7 * x % n)}


def firsts(pieces: list[Any]) -> list[int]:
    """Return the number of each piece."""
    return [int(numpy.ravel(piece)[0]) for piece in pieces]


def mostly_none(x: int, n: int) -> list[Any]:
    """Return a list of `n` pieces, of which three are a number or text."""
    row: list[Any] = [None] * n
    for at, piece in enumerate((x, "text", 2 * x)):
        row[(x * (at + 3)) % n] = piece
    return row


def itself(x: Any) -> Any:
    """Return what it is given."""
    return x


def total(values: list[int]) -> int:
    """Return the sum."""
    return sum(values)


def odd_fails(x: int) -> int:
    """Fail for odd numbers."""
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x


def third_time(ctx: Any, inputs: Any) -> int:
    """Fail on the first two attempts."""
    if ctx.attempt < 2:
        raise RuntimeError(f"attempt {ctx.attempt}")
    return int(ctx.attempt)


def until_cancelled(ctx: Any, inputs: Any) -> None:
    """Wait for the cancellation."""
    while not ctx.cancelled():
        time.sleep(0.001)


def until_told(ctx: Any, inputs: Any) -> None:
    """Wait for the cancellation, then fail."""
    until_cancelled(ctx, inputs)
    raise RunCancelledError("stopped")


def waits_if_odd(ctx: Any, inputs: Any) -> int:
    """Return the index; an odd task waits for its cancellation first."""
    if ctx.index % 2:
        until_told(ctx, inputs)
    return int(ctx.index)


class MuteError(Exception):
    """Its message cannot be had."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError("mute")


def raises_mute() -> None:
    """Raise an exception whose text cannot be made."""
    raise MuteError


def emits(ctx: Any, inputs: Any) -> None:
    """Emit an event."""
    ctx.emit("said", {"index": ctx.index})


def serves(ctx: Any, inputs: Any) -> None:
    """Say where it is, until nobody needs it any more."""
    ctx.emit("endpoint", ctx.index * 10)
    until_cancelled(ctx, inputs)


def asks(ctx: Any, inputs: Any) -> list[Any]:
    """Return where the tasks of the service are."""
    while len(found := ctx.endpoints("service")) < 1:
        time.sleep(0.001)
    return list(found)


def writes(ctx: Any, inputs: Any) -> None:
    """Write to two edges."""
    for part in range(3):
        ctx.out("pieces").write(part, ctx.index * 10 + part)
    ctx.out("whole").write(0, ctx.index)


def piece(at: int) -> int | bytes:
    """Return a value for a stream: small and large in turn."""
    return at if at % 2 else bytes([at % 256]) * 100_000


def streams(ctx: Any, inputs: Any) -> None:
    """Write the same pieces to every edge that `params` names."""
    for at in range(ctx.params["n"]):
        for edge in ctx.params["edges"]:
            ctx.out(edge).write(0, piece(at))


def reads_stream(ctx: Any, inputs: Any) -> int:
    """Return how many pieces came, and in order; fail in the middle of the first attempt if `params` say so."""
    count = 0
    for found in inputs["first"]:
        assert found == piece(count)
        count += 1
        if count == 50 and ctx.params["fails"] and not ctx.attempt:
            raise ValueError("in the middle")
    return count


def reads_second_first(ctx: Any, inputs: Any) -> tuple[int, int]:
    """Read one of two inputs to its end before the other."""
    return len(inputs["second"].all()), len(inputs["first"].all())


def writes_none_or_many(ctx: Any, inputs: Any) -> None:
    """Write as many values as the index says."""
    for at in range(ctx.index):
        ctx.out("many").write(0, at)


def reads_batches(ctx: Any, inputs: Any) -> list[Any]:
    """Return the batches of the only input."""
    (found,) = inputs.values()
    return list(found)


def writes_and_answers(ctx: Any, inputs: Any) -> int:
    """Write data to an edge, and answer with a number of tasks."""
    ctx.out("data").write(0, "data")
    return 3


def three() -> int:
    """Return how many tasks somebody else has."""
    return 3


# ------------------------------------------------------------------------------------------------- for every backend


def all_tasks_finish(rig: Rig) -> None:
    """A graph of several stages ends well, with every task counted once."""
    graph = Graph("stages")
    first = graph.add(nothing, n=100, name="first")
    second = graph.add(nothing, one_to_one(first), name="second")
    graph.add(nothing, gather(second), n=3, name="third")
    graph.add(nothing, after(second), n=5, name="fourth")
    seen = rig.run(graph)
    assert seen.state == "succeeded", seen.error
    assert {vertex.id: vertex.finished for vertex in seen.job.master.inspector.view().vertices} == {
        "first": 100,
        "second": 100,
        "third": 3,
        "fourth": 5,
    }


def every_lease_is_answered_once(rig: Rig) -> None:
    """Each launch has one answer, and no answer is without a launch."""
    graph = Graph("leases")
    first = graph.add(nothing, n=200, name="first")
    graph.add(nothing, gather(first), n=20, name="second")
    seen = rig.run(graph)
    launched = [launch.lease for launch in seen.commands(Launch)]
    answered = Counter(event.lease for event in (*seen.events(Done), *seen.events(Failed)))
    assert len(set(launched)) == len(launched)
    assert answered == Counter(launched)
    assert not seen.job.leases


def barriers_hold(rig: Rig) -> None:
    """A task that reads everything is launched after the last of its sources is done."""
    graph = Graph("barrier")
    first = graph.add(nothing, n=64, name="first")
    graph.add(nothing, gather(first), n=4, name="second")
    seen = rig.run(graph)
    at = {id(entry): place for place, tick in enumerate(seen.ticks) for part in tick for entry in part}
    begun = min(at[id(launch)] for launch in seen.commands(Launch) if launch.vertex == "second")
    of_first = {launch.lease for launch in seen.commands(Launch) if launch.vertex == "first"}
    assert max(at[id(done)] for done in seen.events(Done) if done.lease in of_first) <= begun


def light_tasks_need_no_worker(rig: Rig) -> None:
    """Tasks without a core are launched on the light lane and answered."""
    graph = Graph("light")
    graph.add(nothing, n=5, name="light", resources=Resources(cpu=0))
    seen = rig.run(graph)
    assert seen.state == "succeeded", seen.error
    assert {launch.worker for launch in seen.commands(Launch)} == {-1}


def a_cancelled_job_ends(rig: Rig) -> None:
    """A job that is cancelled while a task runs ends, and every lease was answered."""
    graph = Graph("cancel")
    graph.task(until_cancelled, n=3, name="waits")
    seen = rig.run(graph, cancel=True)
    assert seen.state == "cancelled"
    assert not seen.job.leases


def tasks_of_a_higher_priority_start_first(rig: Rig) -> None:
    """Ready tasks start in the order of the priorities of their vertices."""
    graph = Graph("priorities")
    graph.add(nothing, n=5, name="low", priority=-1)
    graph.add(nothing, n=5, name="usual")
    graph.add(nothing, n=5, name="high", priority=1)
    seen = rig.run(graph)
    assert seen.state == "succeeded", seen.error
    launches = seen.commands(Launch)
    # Tasks that a slow worker gives back, and second attempts, start again later.
    assert [*dict.fromkeys(launch.vertex for launch in launches)] == ["high", "usual", "low"], launches


def an_empty_stage_is_no_obstacle(rig: Rig) -> None:
    """A vertex without tasks ends at once."""
    graph = Graph("empty")
    first = graph.add(nothing, n=0, name="first")
    graph.add(nothing, gather(first), n=1, name="second")
    assert rig.run(graph).state == "succeeded"


CHECKS: tuple[Callable[[Rig], None], ...] = (
    all_tasks_finish,
    every_lease_is_answered_once,
    barriers_hold,
    light_tasks_need_no_worker,
    a_cancelled_job_ends,
    tasks_of_a_higher_priority_start_first,
    an_empty_stage_is_no_obstacle,
)


# -------------------------------------------------------------------------------------- for backends that compute


def _results(seen: ObservedJob) -> Results:
    assert seen.error is None, seen.error
    assert seen.results is not None
    return seen.results


def values_arrive(rig: Rig) -> None:
    """Items, one to one, gather, shuffle and trees bring what they should."""
    graph = Graph("values")
    doubled = graph.map(double, range(20))
    again = graph.map(double, doubled).keep()
    pieces = graph.add(rows, one_to_one(again), name="rows")
    sums = graph.add(total, shuffle(pieces, 3), name="sums").keep()
    everything = graph.add(total, gather(sums), name="everything")
    tree = graph.reduce(total, again, name="tree")
    results = _results(rig.run(graph))
    assert results[again] == [4 * x for x in range(20)]
    assert results[sums] == [sum(40 * x + part for x in range(20)) for part in range(3)]
    assert results.value(everything) == sum(results[sums])
    assert results.value(tree) == sum(4 * x for x in range(20))


def mappings_bring_their_pieces(rig: Rig) -> None:
    """A task that returns a mapping has pieces for some partitions; readers get those, in the order of tasks."""
    n = 40
    for large in (False, True):
        graph = Graph("mappings")
        source = graph.add(some_pieces, items=range(n), params={"n": n, "large": large}, name="source").keep()
        each = graph.add(firsts, shuffle(source), n=n, name="each").keep()
        grouped = graph.add(firsts, shuffle(source), n=n, name="again").keep()
        results = _results(rig.run(graph))
        pairs = [(i, part) for i in range(n) for part in sorted({i, 7 * i % n})]
        assert results[each] == [[100 * i + part for i, part in pairs if part == reader] for reader in range(n)]
        assert results[grouped] == results[each]
        assert [sorted(row) for row in results[source]] == [sorted({i, 7 * i % n}) for i in range(n)]
    graph = Graph("grouped")
    source = graph.add(some_pieces, items=range(n), params={"n": n, "large": False}, name="source")
    grouped = graph.add(firsts, shuffle(source, n), n=3, name="grouped").keep()
    bounds = [n * at // 3 for at in range(4)]
    wanted = [[100 * i + part for i, part in pairs if lo <= part < hi] for lo, hi in pairwise(bounds)]
    assert _results(rig.run(graph))[grouped] == wanted


def lists_keep_their_nones(rig: Rig) -> None:
    """A list whose pieces are mostly None is read as any other list."""
    n = 100
    graph = Graph("nones")
    source = graph.add(mostly_none, items=range(n), params={"n": n}, name="source").keep()
    read = graph.add(list, shuffle(source), n=n, name="read").keep()
    grouped = graph.add(list, shuffle(source, n), n=40, name="grouped").keep()
    results = _results(rig.run(graph))
    rows = [mostly_none(i, n=n) for i in range(n)]
    assert results[source] == rows
    assert results[read] == [list(column) for column in zip(*rows, strict=True)]
    assert results[grouped][1] == [row[part] for row in rows for part in range(n // 40, 2 * n // 40)]


def edges_are_told_apart(rig: Rig) -> None:
    """What a task writes edge by edge goes where it was written."""
    graph = Graph("edges")
    written = graph.task(writes, n=2, name="writes")
    pieces = graph.add(list, shuffle(written, 3, name="pieces"), name="pieces")
    whole = graph.add(list, gather(written, name="whole"), name="whole")
    results = _results(rig.run(graph))
    assert results[pieces] == [[part, 10 + part] for part in range(3)]
    assert results.value(whole) == [0, 1]


def an_error_names_task_and_traceback(rig: Rig) -> None:
    """An exception fails the job, naming the task, with the traceback from the user's first frame on."""
    graph = Graph("error")
    graph.map(odd_fails, [0, 2, 3], name="numbers")
    seen = rig.run(graph)
    assert isinstance(seen.error, TaskError)
    assert seen.error.task == "numbers[2]"
    assert "ValueError: 3 is odd" in seen.error.message
    assert "in odd_fails" in seen.error.traceback_text
    assert seen.error.raised == "builtins:ValueError"


def others_go_on(rig: Rig) -> None:
    """With `continue`, what does not need a failed task runs all the same."""
    graph = Graph("continue", on_failure=OnFailure.CONTINUE)
    numbers = graph.map(odd_fails, range(6), name="numbers").keep()
    graph.map(double, numbers, name="doubled")
    last = graph.add(three, after(numbers, outcome=Outcome.ANY), name="last")
    seen = rig.run(graph)
    assert seen.state == "failed"
    assert seen.results is not None
    assert seen.results.value(last) == 3
    failed = {event.index for event in seen.events(Failed) if event.kind is Failure.USER}
    assert failed == {1, 3, 5}


def a_failed_task_is_tried_again(rig: Rig) -> None:
    """Retries are counted in `attempt`."""
    graph = Graph("retry")
    node = graph.task(third_time, n=2, name="third", retry=Retry(user=2))
    assert _results(rig.run(graph))[node] == [2, 2]


def a_task_that_takes_too_long_fails(rig: Rig) -> None:
    """A timeout stops the task and is the job's error."""
    graph = Graph("timeout")
    graph.task(until_told, n=1, name="slow", timeout_s=0.05)
    seen = rig.run(graph)
    assert isinstance(seen.error, TaskError)
    assert "longer than its timeout" in seen.error.message


def an_exception_whose_message_cannot_be_had_is_the_users(rig: Rig) -> None:
    """What fails in a class of the user's is told of, and not tried again as if a worker had been lost."""
    graph = Graph("mute")
    graph.add(raises_mute, n=1, name="mute")
    seen = rig.run(graph)
    assert isinstance(seen.error, TaskError)
    assert "mute[0] failed: MuteError" in seen.error.message
    assert [event.kind for event in seen.events(Failed)] == [Failure.USER]


def events_are_heard(rig: Rig) -> None:
    """What tasks emit reaches the master once each."""
    graph = Graph("events")
    graph.task(emits, n=4, name="emits")
    seen = rig.run(graph)
    heard = [(event.vertex, event.index, event.payload) for event in seen.events(UserEvent)]
    assert sorted(heard) == [("emits", at, {"index": at}) for at in range(4)]


def services_are_found_and_stopped(rig: Rig) -> None:
    """A service lives until its last consumer has ended, and is found by it."""
    graph = Graph("service")
    service = graph.service(serves, n=1, name="service")
    asked = graph.task(asks, service, n=1, name="asks")
    assert _results(rig.run(graph))[asked] == [[0]]


def an_expander_decides(rig: Rig) -> None:
    """The value of an expander is the parallelism of another vertex."""
    graph = Graph("expander")
    planner = graph.add(three, name="planner", expands=True)
    made = graph.add(three, after(planner), n=Source("planner"), name="made").keep()
    assert _results(rig.run(graph))[made] == [3, 3, 3]
    graph = Graph("writer")
    planner = graph.task(writes_and_answers, n=1, name="planner", expands=True)
    made = graph.add(list, one_to_one(planner, name="data"), name="read").keep()
    wide = graph.add(three, after(planner), n=Source("planner"), name="wide").keep()
    results = _results(rig.run(graph))
    assert (results[made], results[wide]) == ([["d", "a", "t", "a"]], [3, 3, 3])


def a_bubble_streams(rig: Rig) -> None:
    """What is written to a stream is read while it is written, and again from the start after a failure."""
    for fails in (False, True):
        graph = Graph("stream")
        source = graph.task(streams, name="source", params={"n": 100, "edges": ["first"]})
        edge = one_to_one(source, name="first", concurrent=True, storage=Storage.EPHEMERAL)
        sink = graph.task(reads_stream, edge, name="sink", params={"fails": fails}, retry=Retry(user=1))
        graph.bubble(source, sink)
        assert _results(rig.run(graph)).value(sink) == 100


def a_stream_on_a_cycle_hangs_nobody(rig: Rig) -> None:
    """A task that reads one of two streams of the same source to its end before the other gets both."""
    names = ["first", "second"]
    graph = Graph("cycle")
    source = graph.task(streams, name="source", params={"n": 100, "edges": names})
    edges = [one_to_one(source, name=name, concurrent=True, storage=Storage.EPHEMERAL) for name in names]
    sink = graph.task(reads_second_first, *edges, name="sink")
    graph.bubble(source, sink)
    assert _results(rig.run(graph)).value(sink) == (100, 100)


def batches_are_read_alike(rig: Rig) -> None:
    """Several values on one edge are several batches for a program of style TASK; a function gets them as it can."""
    graph = Graph("batches")
    source = graph.task(writes_none_or_many, n=3, name="source")
    batches = graph.task(reads_batches, one_to_one(source, name="many"), name="batches")
    results = _results(rig.run(graph))
    assert results[batches] == [[], [0], [0, 1]]
    graph = Graph("values")
    source = graph.task(writes_none_or_many, n=3, name="source")
    values = graph.add(itself, one_to_one(source, name="many"), name="values").keep()
    assert _results(rig.run(graph))[values] == [None, 0, [0, 1]]


def a_map_brings_its_results(rig: Rig) -> None:
    """Results of a map are those of its items, whether or not their number is known, and an error names its item."""
    assert isinstance(rig, SessionRig)
    session = rig.session
    assert Mapped(session, double, range(500)).results() == [2 * x for x in range(500)]
    assert list(Mapped(session, double, iter(range(500)))) == [2 * x for x in range(500)]
    found = Mapped(session, odd_fails, range(4), return_exceptions=True).results()
    assert [found[0], found[2]] == [0, 2]
    for at in (1, 3):
        assert isinstance(found[at], TaskError)
        assert f"odd_fails[{at}] failed for the item {at}" in str(found[at])


def results_come_while_the_run_goes_on(rig: Rig) -> None:
    """The results of a vertex can be read before the run ends, each once."""
    assert isinstance(rig, SessionRig)
    graph = Graph("early")
    early = graph.map(double, range(50)).keep()
    late = graph.task(until_cancelled, after(early), name="late")
    run = rig.session.submit(graph)
    assert sorted(run.as_completed(early, DEADLINE_S)) == [(x, 2 * x) for x in range(50)]
    assert not run.done
    assert run.view().vertices[-1].id == late.id
    run.cancel("read")
    assert run.wait(DEADLINE_S)


def a_cancelled_task_stops_nothing_else(rig: Rig) -> None:
    """A task that is cancelled ends, running or not; the others go on, and their values stay."""
    assert isinstance(rig, SessionRig)
    graph = Graph("cancelled")
    waits = graph.task(until_told, n=3, name="waits")  # one more than there are workers
    numbers = graph.map(double, range(5), name="numbers").keep()
    run = rig.session.submit(graph)
    for index in (2, 0, 1):
        run.cancel_task(waits, index, f"not {index}")
    assert run.wait(DEADLINE_S)
    assert run.status == "failed"
    assert isinstance(run.error(), RunCancelledError)
    assert run.results().finished(numbers) == {x: 2 * x for x in range(5)}


def a_vertex_ends_early_as_a_success(rig: Rig) -> None:
    """A vertex that is stopped has the values that it has, and its readers get them."""
    assert isinstance(rig, SessionRig)
    graph = Graph("enough")
    some = graph.task(waits_if_odd, n=4, name="some").keep()
    whole = graph.add(total, gather(some), name="whole")
    run = rig.session.submit(graph)
    index, value = next(iter(run.as_completed(some, DEADLINE_S)))
    assert index == value
    run.stop(some, "enough")
    assert run.result(DEADLINE_S).value(whole) == sum(run.results().finished(some).values())


class Tally:
    """An actor that counts."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, more: int) -> int:
        """Return the sum so far."""
        self.count += more
        return self.count

    def fail(self) -> None:
        """Raise."""
        raise KeyError("tally")


def adds_to(item: int, tally: ActorHandle) -> int:
    """Add to an actor, and see that its errors are its callers'."""
    error = tally.fail().exception(DEADLINE_S)
    assert isinstance(error, KeyError)
    return int(tally.add(item).result(DEADLINE_S))


def tasks_call_an_actor(rig: Rig) -> None:
    """All tasks call one object, which each run of the graph has anew."""
    assert isinstance(rig, SessionRig)
    graph = Graph("actor")
    node, tally = add_actor(graph, Tally)
    sums = graph.map(adds_to, [1, 10, 100], node, params={"tally": tally}, name="adds").keep()
    for _ in range(2):
        assert max(rig.session.submit(graph).result(DEADLINE_S)[sums]) == 111


def events_of_a_run_are_complete(rig: Rig) -> None:
    """A coroutine hears of the end of every task, and of the end of the run last."""
    import asyncio

    assert isinstance(rig, SessionRig)
    session = rig.session
    graph = Graph("events")
    graph.add(total, gather(graph.map(double, graph.map(double, range(50), name="a"), name="b")), name="total")

    async def heard() -> list[Any]:
        return [event async for event in session.submit(graph).events()]

    events = asyncio.run(asyncio.wait_for(heard(), DEADLINE_S))
    ends = Counter((e.vertex, i) for e in events if e.kind == "finished" for i in range(e.lo, e.hi))
    assert ends == Counter([*[(name, i) for name in "ab" for i in range(50)], ("total", 0)])
    assert (events[-1].kind, events[-1].message) == ("ended", "succeeded")


VALUE_CHECKS: tuple[Callable[[Rig], None], ...] = (
    values_arrive,
    mappings_bring_their_pieces,
    lists_keep_their_nones,
    edges_are_told_apart,
    an_error_names_task_and_traceback,
    others_go_on,
    a_failed_task_is_tried_again,
    a_task_that_takes_too_long_fails,
    an_exception_whose_message_cannot_be_had_is_the_users,
    events_are_heard,
    services_are_found_and_stopped,
    an_expander_decides,
    a_bubble_streams,
    a_stream_on_a_cycle_hangs_nobody,
    batches_are_read_alike,
    a_map_brings_its_results,
    results_come_while_the_run_goes_on,
    a_cancelled_task_stops_nothing_else,
    a_vertex_ends_early_as_a_success,
    tasks_call_an_actor,
    events_of_a_run_are_complete,
)
