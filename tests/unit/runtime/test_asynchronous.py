"""Runs in asyncio: awaited, cancelled, and read event by event."""

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import weft
from tests.unit.runtime.tasks import DEADLINE_S, begin, double, three_fails, waits_for
from weft.model.errors import RunCancelledError, UsageError

ROOT = Path(__file__).parents[3]


def fails_once(folder):
    """Fail the first time, once somebody reads the events of the run: those of the past have no retries."""
    waits_for(folder / "read")
    if not (folder / "once").exists():
        (folder / "once").touch()
        raise ValueError("the first time")


def emits(ctx, inputs):
    ctx.emit("rows", {"n": 3})


def run(coroutine):
    async def limited():
        return await asyncio.wait_for(coroutine, DEADLINE_S)

    return asyncio.run(limited())


async def all_events(run):
    return [event async for event in run.events()]


def ended(events, kind="finished", vertex="tasks"):
    return Counter(i for event in events if (event.kind, event.vertex) == (kind, vertex) for i in range(*event[3:5]))


# ---------------------------------------------------------------------------------------------------- the end


def test_an_awaited_run_gives_its_results(session):
    async def main():
        results = await begin(session, double, range(5))
        return results["tasks"]

    assert run(main()) == [0, 2, 4, 6, 8]


def test_an_awaited_run_raises_its_error(session):
    async def main():
        await begin(session, three_fails, range(5))

    with pytest.raises(ValueError, match="three"):
        run(main())


def test_many_runs_are_awaited_without_a_thread_each(threads):
    others = threading.active_count()  # of tests before this one

    async def main():
        runs = [begin(threads, double, [number]) for number in range(300)]
        waiting = asyncio.gather(*runs)
        await asyncio.sleep(0)
        more = threading.active_count() - others
        results = await waiting
        return [result["tasks"][0] for result in results], more

    values, more = run(main())
    assert values == list(range(0, 600, 2))
    assert more < 20


def test_an_ended_run_can_be_awaited_twice(threads):
    async def main():
        begun = begin(threads, double, [1])
        begun.wait()
        return (await begun)["tasks"] + (await begun)["tasks"]

    assert run(main()) == [2, 2]


def test_the_event_loop_goes_on_meanwhile(threads, tmp_path):
    async def main():
        waiting = asyncio.ensure_future(begin(threads, waits_for, [tmp_path / "go"]).async_result())
        await asyncio.sleep(0)
        (tmp_path / "go").touch()
        return (await waiting).value("tasks")

    assert run(main()) == "go"


@pytest.mark.parametrize("cancels", [True, False])
def test_a_cancelled_task_cancels_its_run_if_asked_to(threads, tmp_path, cancels):
    begun = begin(threads, waits_for, [tmp_path / "go"])

    async def main():
        waiting = asyncio.ensure_future(begun.async_result(cancel_run=cancels))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(main())
    (tmp_path / "go").touch()
    if cancels:
        with pytest.raises(RunCancelledError, match="the task that awaits it was cancelled"):
            begun.result()
    else:
        assert begun.result().value("tasks") == "go"


def test_an_event_loop_may_close_before_its_runs_end(threads, tmp_path):
    begun = begin(threads, waits_for, [tmp_path / "go"])

    async def main():
        begun.events()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(begun.async_result(), 0.01)

    run(main())
    (tmp_path / "go").touch()
    assert begun.result().value("tasks") == "go"


def test_durable_runs_are_awaited_until_they_are_on_disk(tmp_path):
    async def main():
        with weft.Session("threads", workers=1, durable=tmp_path) as session:
            begun = begin(session, double, [1])
            await begun
            return begun.done

    assert run(main())


def test_a_task_without_another_worker_may_not_await_a_run():
    with weft.Session("threads", workers=1) as session:

        def inner():
            async def main():
                await begin(session, double, [1])

            asyncio.run(main())

        graph = weft.Graph("outer")
        graph.add(inner)
        with pytest.raises(weft.TaskError, match="waits for a run of its own session"):
            session.run(graph)


# ----------------------------------------------------------------------------------------------------- events


def test_the_events_of_a_run_are_complete_and_end(session, tmp_path):
    graph = weft.Graph("job")
    gate = graph.add(waits_for, items=[tmp_path / "go"], name="gate")
    tasks = graph.map(double, range(100), weft.after(gate), name="tasks")
    graph.add(sum, weft.gather(tasks), name="total")

    async def main():
        stream = session.submit(graph).events()
        (tmp_path / "go").touch()
        return [event async for event in stream]

    events = run(main())
    assert ended(events) == Counter(range(100))
    assert ended(events, vertex="total") == Counter([0])
    assert set(ended(events, "launched")) == set(range(100))
    assert [(event.kind, event.message) for event in events if event.kind == "ended"] == [("ended", "succeeded")]
    assert events[-1].kind == "ended"
    launched, finished = (
        next(at for at, event in enumerate(events) if (event.kind, event.vertex) == (kind, "tasks"))
        for kind in ("launched", "finished")
    )
    assert launched < finished
    assert [(event.vertex, event.message) for event in events if event.kind == "vertex"][-1] == ("total", "done")


async def all_events_of(session, graph):
    return await all_events(session.submit(graph))


def test_chains_and_trees_are_told_task_by_task(session):
    graph = weft.Graph("job")
    node = graph.map(double, range(64), name="a")
    node = graph.map(double, node, name="b")
    graph.reduce(sum, node, 4, name="tree")
    events = run(all_events_of(session, graph))
    for name, vertex in graph.vertices.items():
        assert isinstance(vertex.parallelism, int)
        assert ended(events, vertex=name) == Counter(range(vertex.parallelism)), name


def test_events_that_were_missed_come_first(session):
    begun = begin(session, double, range(50))
    begun.wait()
    events = run(all_events(begun))
    assert ended(events) == Counter(range(50))
    assert events[-1].kind == "ended"


def test_an_ended_run_tells_the_states_of_its_vertices(session):
    graph = weft.Graph("ended")
    graph.map(double, range(3), name="a")
    made = session.submit(graph)
    made.wait()
    found = [(event.kind, event.vertex, event.message) for event in run(all_events(made))]
    assert found == [("finished", "a", ""), ("vertex", "a", "done"), ("ended", "", "succeeded")]


def test_failures_come_with_their_messages(session):
    begun = begin(session, three_fails, range(8), on_failure=weft.OnFailure.CONTINUE)
    events = run(all_events(begun))
    assert ended(events) == Counter(set(range(8)) - {3})
    assert ended(events, "failed") == Counter([3])
    assert "three" in next(event.message for event in events if event.kind == "failed")
    assert events[-1].message == "failed"


def test_a_retry_is_an_event(session, tmp_path):
    graph = weft.Graph("job")
    graph.map(fails_once, [tmp_path], retry=weft.Retry(user=1), name="tasks")

    async def main():
        reader = session.submit(graph).events()
        (tmp_path / "read").touch()
        return [event async for event in reader]

    events = run(main())
    assert ended(events, "retried") == Counter([0])
    assert ended(events) == Counter([0])
    assert "the first time" in next(event.message for event in events if event.kind == "retried")


@pytest.mark.parametrize("late", [False, True])
def test_emitted_events_come_with_their_payload(session, late):
    graph = weft.Graph("job")
    graph.task(emits, name="tasks")
    begun = session.submit(graph)
    if late:
        begun.wait()
    events = run(all_events(begun))
    assert [(event.message, event.payload) for event in events if event.kind == "emitted"] == [("rows", {"n": 3})]


def test_a_cancelled_run_ends_its_events(threads, tmp_path):
    async def main():
        begun = begin(threads, waits_for, [tmp_path / "go"])
        kinds = []
        async for event in begun.events():
            kinds.append((event.kind, event.message))
            if event.kind == "launched" or event.message == "running":
                begun.cancel("enough")
                (tmp_path / "go").touch()
        return kinds

    assert run(main())[-1] == ("ended", "cancelled")


def test_events_of_many_runs_at_once(session):
    async def main():
        return await asyncio.gather(*(all_events(begin(session, double, range(20))) for _ in range(50)))

    for events in run(main()):
        assert ended(events) == Counter(range(20))
        assert events[-1].kind == "ended"


def test_two_readers_see_the_same_events(threads):
    async def main():
        begun = begin(threads, double, range(20))
        return await asyncio.gather(all_events(begun), all_events(begun))

    one, other = run(main())
    assert ended(one) == ended(other) == Counter(range(20))


def test_events_need_an_event_loop(threads):
    with pytest.raises(UsageError, match="none runs in this thread"):
        begin(threads, double, [1]).events()


def test_a_run_without_asyncio_does_not_load_it():
    code = (
        "import sys, weft\n"
        "g = weft.Graph(); n = g.map(abs, range(3))\n"
        "with weft.Session(workers=1) as s:\n"
        "    run = s.submit(g); run.result(); list(weft.as_completed([run])); list(run.as_completed(n))\n"
        "    s.map(abs, range(3)).results()\n"
        "print('asyncio' in sys.modules)"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
