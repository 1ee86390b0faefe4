"""Cuts: legal on any graph, and each as its name says."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from weft.graph.builder import Graph, after, gather, shuffle
from weft.graph.logical import LogicalGraph, Range, Storage
from weft.graph.validate import mark_results, validate
from weft.model.errors import GraphError
from weft.policies.bubbles import (
    CostModel,
    Cut,
    VertexEstimate,
    apply_cut,
    batch,
    cost,
    efficient,
    estimates_of,
    gang,
    greedy,
    predict,
)
from weft.testing.graphs import random_graph, work
from weft.testing.trial import run_graph

pytestmark = pytest.mark.slow

CUTS: dict[str, Callable[[LogicalGraph], Cut]] = {
    "batch": batch,
    "gang": gang,
    "greedy": lambda graph: greedy(graph, 12),
    "efficient": lambda graph: efficient(graph, 12),
    "cost": lambda graph: cost(graph, 12, more=1.0),
}


def drawn(draw: random.Random) -> Graph:
    graph = random_graph(draw, most_vertices=14, plain=draw.random() < 0.5)
    graph.bubbles.clear()
    for edge in graph.edges:
        edge.blocking = draw.random() < 0.3
    return graph


@pytest.mark.parametrize("name", CUTS)
def test_every_cut_of_a_random_graph_is_legal(name: str, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        graph = drawn(draw)
        cut = CUTS[name](graph)
        assert sorted(id for group in cut for id in group) == sorted(graph.vertices)
        done = apply_cut(graph, cut)
        mark_results(done)
        validate(done)


@pytest.mark.parametrize("name", CUTS)
def test_a_random_graph_that_was_cut_runs_to_its_end(name: str, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(10):
        graph = drawn(draw)
        run_graph(apply_cut(graph, CUTS[name](graph), timeout_s=5.0), workers=4, seconds=1.0)


def test_bounds_hold_on_random_graphs(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        graph = drawn(draw)
        size = draw.randint(1, 30)
        known = estimates_of(graph)
        for cut in (greedy(graph, size), efficient(graph, size)):
            assert all(len(group) == 1 or sum(known[id].tasks for id in group) <= size for group in cut)
        of = {id: group for group in efficient(graph, size) for id in group}
        assert not [edge.id for edge in graph.edges if edge.blocking and of[edge.src] is of[edge.dst]]


def join(**options: Any) -> Graph:
    graph = Graph("join")
    left = graph.add(work, n=4, name="left")
    right = graph.add(work, n=2, name="right")
    both = graph.add(work, shuffle(left), shuffle(right, blocking=True), n=4, name="both")
    graph.add(work, gather(both), name="answer")
    return graph


def test_batch_is_one_vertex_each_and_gang_is_one_bubble() -> None:
    assert batch(join()) == (("left",), ("right",), ("both",), ("answer",))
    assert gang(join()) == (("left", "right", "both", "answer"),)


def test_greedy_stops_where_the_next_vertex_does_not_fit() -> None:
    assert greedy(join(), 11) == (("left", "right", "both", "answer"),)
    assert greedy(join(), 10) == (("left", "right", "both"), ("answer",))


def test_greedy_lets_no_scan_wait_for_what_only_a_later_member_reads() -> None:
    assert greedy(join(), 8) == (("left",), ("right",), ("both", "answer"))


def test_efficient_leaves_the_build_side_out() -> None:
    assert efficient(join(), 100) == (("left", "both", "answer"), ("right",))


def test_a_path_that_leaves_does_not_come_back() -> None:
    graph = Graph("diamond")
    top = graph.add(work, n=2, name="top")
    side = graph.add(work, after(top), name="side")
    graph.add(work, top, after(side), n=2, name="bottom")
    for cut in (greedy(graph, 100), efficient(graph, 100)):
        validate(apply_cut(graph, cut))
        assert cut == (("top",), ("side",), ("bottom",))


def test_who_waits_for_a_manager_stays_alone() -> None:
    graph = Graph("open")
    maps = graph.add(work, n=4, name="maps")
    graph.add(work, shuffle(maps, 8), n=Range(1, 8), manager="shuffle", name="open")
    assert gang(graph) == (("maps",), ("open",))


def test_streams_inside_and_files_between() -> None:
    graph = join()
    done = apply_cut(graph, greedy(graph, 10))
    stored = {edge.id: edge.storage for edge in done.edges}
    assert stored == {
        "left->both": Storage.EPHEMERAL,
        "right->both": Storage.EPHEMERAL,
        "both->answer": Storage.LOCAL,
    }
    assert [bubble.vertices for bubble in done.bubbles] == [("left", "right", "both")]
    assert not graph.bubbles
    assert {edge.storage for edge in graph.edges} == {Storage.LOCAL}


def test_what_fits_the_prewarmed_workers_runs_on_them_alone_too() -> None:
    graph = join()
    done = apply_cut(graph, greedy(graph, 8), prewarmed=4)
    assert {bubble.vertices: bubble.prewarmed for bubble in done.bubbles} == {
        ("left",): True,
        ("right",): True,
        ("both", "answer"): False,
    }


def test_what_is_kept_is_not_streamed_away() -> None:
    graph = join()
    graph.vertices["both"].keep = True
    done = apply_cut(graph, gang(graph))
    assert next(edge for edge in done.edges if edge.src == "both").storage is Storage.LOCAL


def test_a_bubble_of_nothing_is_refused() -> None:
    with pytest.raises(GraphError, match="holds nothing"):
        greedy(join(), 0)


# --------------------------------------------------------------------------------------------------------------- cost

PRICE = CostModel(cold_s=2.0, warm_s=0.0, notice_s=0.0, disk=1e6, network=1e12)


def known(seconds: float = 1.0, nbytes: float = 4e6) -> dict[str, VertexEstimate]:
    return {id: VertexEstimate(tasks, seconds, nbytes) for id, tasks in (("a", 2), ("b", 2))}


def chain() -> Graph:
    graph = Graph("chain")
    graph.add(work, graph.add(work, n=2, name="a"), n=2, name="b")
    return graph


def test_batch_pays_for_cold_starts_and_disks() -> None:
    found = predict(chain(), batch(chain()), 4, known(), PRICE)
    assert found.seconds == pytest.approx((2 + 1 + 2) * 2)  # start, work, and 2 MB a task at 1 MB/s, for each of two
    assert found.slot_seconds == pytest.approx(found.seconds * 2)


def test_a_bubble_pays_for_slots_that_wait() -> None:
    found = predict(chain(), gang(chain()), 4, known(), PRICE)
    assert found.seconds == pytest.approx(1.0, abs=0.001)
    assert found.slot_seconds == pytest.approx(4.0, abs=0.01)
    graph = chain()
    graph.edges[0].blocking = True
    found = predict(graph, gang(graph), 4, known(), PRICE)
    assert found.seconds == pytest.approx(2.0, abs=0.001)
    assert found.slot_seconds == pytest.approx(2 * 1 + 2 * 2, abs=0.01)


def test_cost_takes_the_bubble_where_starts_and_disks_are_dear() -> None:
    assert cost(chain(), 4, known(), PRICE) == (("a", "b"),)


def test_cost_takes_batch_where_idle_slots_are_all_there_is_to_win() -> None:
    graph = chain()
    graph.edges[0].blocking = True
    cheap = CostModel(cold_s=0.0, warm_s=0.0, notice_s=0.0, disk=1e12, network=1e12)
    assert cost(graph, 4, known(), cheap) == (("a",), ("b",))


def test_cost_never_asks_for_more_slots_than_there_are() -> None:
    assert cost(chain(), 3, known(), PRICE) == (("a",), ("b",))
