"""Priorities of runs: who gets idle workers and grants first."""

import threading

import pytest

import weft
from weft.model.errors import UsageError

DEADLINE_S = 180.0


@pytest.fixture(params=["plain", "requests"])
def resources(request):
    """Resources of tasks that start on offers, and of tasks that need a request each."""
    return weft.Resources() if request.param == "plain" else weft.Resources(memory=1024)


ORDERS: dict[str, "Order"] = {}
"""By the name of the session: functions of durable runs are pickled, and find here what they share with the test."""


def wait(item):
    assert ORDERS[item[0]].release.wait(DEADLINE_S)


def note(item):
    ORDERS[item[0]].names.append(item[1])


class Order:
    """Runs whose tasks write down their name, behind one that has the only worker."""

    def __init__(self, session, resources):
        self.session = session
        self.resources = resources
        self.names: list[str] = []
        self.release = threading.Event()
        ORDERS[session.name] = self
        self.runs = [self._submit("first", wait)]

    def _submit(self, name, fn, n=1, **options):
        graph = weft.Graph(name)
        graph.map(fn, [(self.session.name, name)] * n, name=name, resources=self.resources)
        return self.session.submit(graph, **options)

    def add(self, name, n=1, **options):
        run = self._submit(name, note, n, **options)
        self.runs.append(run)
        return run

    def end(self):
        self.release.set()
        for run in self.runs:
            assert run.wait(DEADLINE_S)
            assert run.status == "succeeded"
        return self.names


@pytest.fixture(params=[False, True], ids=["plain", "durable"])
def order(request, tmp_path, resources):
    durable = tmp_path if request.param else False
    with weft.Session("threads", workers=1, durable=durable, name=f"order-{len(ORDERS)}") as session:
        made = Order(session, resources)
        yield made
        made.release.set()


def test_runs_of_a_higher_priority_go_first(order):
    order.add("low", priority=-1)
    order.add("default")
    order.add("high", n=3, priority=1)
    assert order.end() == ["high"] * 3 + ["default", "low"]


def test_a_priority_can_be_changed(order):
    order.add("one", priority=1)
    late = order.add("late")
    order.add("other")
    late.priority = 2
    assert late.priority == 2
    assert order.end() == ["late", "one", "other"]


def test_equal_priorities_keep_the_order(order):
    for name in ("a", "b", "c"):
        order.add(name, priority=5)
    assert order.end() == ["a", "b", "c"]


def test_an_ended_run_may_get_one(order):
    run = order.add("one")
    order.end()
    run.priority = 3
    assert not order.session.loop.pool.priorities


@pytest.mark.parametrize("priority", ["high", 1.5, True, 10**7])
def test_a_wrong_priority_is_refused(order, priority):
    with pytest.raises(UsageError, match="priority is"):
        order.add("wrong", priority=priority)
    with pytest.raises(UsageError, match="priority is"):
        order.runs[0].priority = priority
