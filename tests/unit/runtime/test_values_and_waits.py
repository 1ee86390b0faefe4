"""Values that one reader only can read, tasks that run out of memory, and tasks that wait for their own session."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import weft
import weft.remote as wr
import weft.tensor as wt
from weft.model.errors import GraphError, OutOfMemoryError, ProgramError


def counted_up():
    return (n for n in range(3))


def mapped():
    return map(str, range(3))


def repeated():
    return itertools.chain([1], [2])


def text_of(values):
    return list(values)


@pytest.mark.parametrize("make", [counted_up, mapped, repeated])
def test_an_iterator_is_refused_as_the_value_of_a_task(make):
    g = weft.Graph("once")
    made = g.add(make)
    g.add(text_of, made, name="first")
    g.add(text_of, made, name="second")
    with weft.Session(workers=2) as session, pytest.raises(ProgramError, match="Return a list"):
        session.run(g)


@pytest.mark.parametrize("make", [counted_up, mapped, repeated])
def test_an_iterator_is_refused_as_the_value_of_a_call(make):
    made = wr.spawn(make)
    both = wr.ExecutableTuple([wr.spawn(text_of, (made,)), wr.spawn(text_of, (made,))])
    with wt.Session(workers=2) as session, pytest.raises(ProgramError, match="list"):
        both.fetch(session=session)


def out_of_memory():
    raise MemoryError("a table of 3 GB")


def test_the_error_of_a_task_without_memory_for_a_retry_is_its_own():
    g = weft.Graph("memory")
    g.add(out_of_memory)
    with weft.Session(workers=1, memory="256MB") as session, pytest.raises(OutOfMemoryError) as failed:
        session.run(g)
    assert "a table of 3 GB" in str(failed.value)
    assert "out_of_memory" in failed.value.traceback_text
    assert "memory" in str(failed.value).partition("\n")[2]


def number():
    return 7


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_leaves_no_worker_for_the_run_it_waits_for_fails(workers):
    barrier = threading.Barrier(workers)

    def nested(_):
        inner = weft.Graph("inner")
        made = inner.add(number)
        barrier.wait(180)
        return session.run(inner)[made]

    g = weft.Graph("outer")
    g.add(nested, items=range(workers))
    after = weft.Graph("after")
    made = after.add(number)
    with weft.Session(workers=workers) as session:
        run = session.submit(g)
        assert run.wait(180)
        with pytest.raises(weft.TaskError, match="more workers"):
            run.result()
        assert session.run(after)[made] == [7]


def test_a_task_may_wait_for_a_run_while_a_worker_is_left():
    def nested():
        inner = weft.Graph("inner")
        made = inner.add(number)
        return session.run(inner)[made][0]

    g = weft.Graph("outer")
    made = g.add(nested)
    with weft.Session(workers=2) as session:
        assert session.run(g)[made] == [7]


def test_a_node_of_another_graph_names_no_result():
    def with_score(name):
        graph = weft.Graph(name)
        return graph, graph.add(str, items=[name], name="score").keep()

    (train, score), (test, other), (_, again) = with_score("train"), with_score("test"), with_score("train")
    with weft.Session(workers=1) as session:
        run = session.submit(train)
        results = run.result()
        assert results[score] == results["score"] == results[again] == ["train"]
        uses: list[Callable[[Any], Any]] = [
            results.__getitem__,
            results.value,
            results.finished,
            results.keep,
            run.as_completed,
            run.stop,
        ]
        for use in uses:
            with pytest.raises(
                GraphError, match="vertex 'score' belongs to graph 'test', and this is a run of 'train'"
            ):
                use(other)
        assert session.run(test)[other] == ["test"]
