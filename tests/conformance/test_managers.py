"""Every vertex manager passes the suite for managers: those of Weft, and one of a user."""

import pytest

from tests.integration import own_managers
from weft.engine.consulting import make
from weft.engine.decisions import Schedule
from weft.engine.policy import REGISTERED, Moment, VertexManager, register_manager
from weft.graph.builder import Graph, after, gather, shuffle
from weft.graph.logical import Manager, Range, Source, Trigger, Vertex
from weft.model.errors import GraphError
from weft.model.program import Program
from weft.testing.conformance import managers as suite
from weft.testing.conformance.managers import CHECKS, try_graph
from weft.wiring import MANAGERS


def pieces(number):
    return [b"x" * (1 + number % 3) for _ in range(8)]


def two_rows(number):
    return [number] * 2


def say_keys(ctx, inputs):
    ctx.emit("keys", [1, 5, 7])


def first():
    return "shuffled"


def shuffled():
    graph = Graph("shuffled")
    maps = graph.map(pieces, range(6))
    graph.add(len, shuffle(maps, 8), n=Range(1, 8), manager=Manager("shuffle", {"target": 60}))
    return graph


def limited():
    graph = Graph("limited")
    plan = graph.add(list, items=["abcdefghij"], name="plan", expands=True)
    scan = graph.add(two_rows, after(plan), n=Source("plan"), manager=Manager("waves", {"rows": 8}))
    graph.add(len, gather(scan, when=Trigger.EVENT, event="enough"))
    return graph


def limited_shuffle():
    graph = Graph("limited_shuffle")
    maps = graph.map(pieces, range(6))
    params = {"rows": 3, "target": 1}
    reader = graph.add(len, shuffle(maps, 8), n=Range(1, 8), manager=Manager("shuffle_waves", params))
    graph.add(len, gather(reader, when=Trigger.EVENT, event="enough"))
    return graph


def pruned():
    graph = Graph("pruned")
    graph.map(two_rows, list(range(20)), after(graph.task(say_keys)), manager="pruning")
    return graph


def joined():
    graph = Graph("joined")
    sides = {name: graph.map(two_rows, range(2), name=name) for name in ("left", "right")}
    params = {"choice": "join", "small": {"left": "copied"}, "otherwise": "shuffled"}
    which = graph.add(first, *map(after, sides.values()), expands=True, manager=Manager("conditional", params))
    branches = {name: graph.add(len, gather(sides["left"]), after(which), name=name) for name in ("copied", "shuffled")}
    graph.choice(which, name="join", **branches)
    return graph


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("marks"))
    graphs = (shuffled, limited, limited_shuffle, pruned, joined, lambda: own_managers.build(folder)[0])
    return [try_graph(graph) for graph in graphs]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("number", range(6), ids=["shuffle", "waves", "shuffle_waves", "pruning", "conditional", "own"])
def test_manager(check, number, trials):
    check(trials[number])


def test_every_manager_of_weft_is_tried():
    tried = {"shuffle", "waves", "shuffle_waves", "pruning", "conditional"}
    assert tried == {name for name in REGISTERED if REGISTERED[name].__module__.startswith("weft.")}
    assert tried <= set(MANAGERS)


class Forgetful(VertexManager):
    moments = frozenset({Moment.STARTED, Moment.FINISHED})
    holds = True

    def __init__(self, wrong: str):
        self.wrong = wrong
        self.calls = 0

    def decide(self, view, memo):
        self.calls += 1
        if self.wrong == "state":
            return [Schedule(view.vertex, self.calls)], None
        return [], memo


@pytest.mark.parametrize(
    ("wrong", "check"),
    [("state", suite.it_answers_from_its_arguments_alone), ("silence", suite.its_decisions_are_accepted)],
)
def test_the_suite_finds_what_is_wrong(wrong, check, monkeypatch):
    monkeypatch.delitem(REGISTERED, "tests.forgetful", raising=False)
    register_manager("tests.forgetful")(Forgetful)

    def graph():
        made = Graph("wrong")
        made.map(two_rows, range(3), manager=Manager("tests.forgetful", {"wrong": wrong}))
        return made

    trial = try_graph(graph)
    with pytest.raises(AssertionError):
        check(trial)


def test_types_of_parameters_are_checked_without_postponed_annotations_too():
    vertex = Vertex("v", Program(str), manager=Manager("tests.forgetful", {"wrong": 3}))
    with pytest.raises(GraphError) as caught:
        make({"tests.forgetful": Forgetful}, vertex)
    assert caught.value.message.endswith("has wrong=3, which is no str")
