"""Where tasks run when workers share no memory: the tensor seed's first placement, then where the bytes are."""

import pytest

from tests.unit.engine.hand import Hand, body, run_out
from weft.engine.events import Done, WorkerJoined
from weft.engine.placement import _blocks
from weft.graph.builder import Graph, gather, grid, shuffle
from weft.graph.grid import group


def homes(h: Hand, vertex: str) -> list[int]:
    return list(h.core.by_id[vertex].home or [])


def test_equal_components_go_to_one_node_each(hand):
    g = Graph("g")
    for name in "abc":
        a = g.add(body, n=4, name=name)
        g.reduce(body, a, name=f"{name}-total")
    h = hand(g, workers=3, nodes=3)
    assert sorted({*homes(h, name)} for name in "abc") == [{0}, {1}, {2}]


def test_a_tree_is_cut_into_neighbours(hand):
    g = Graph("g")
    g.reduce(body, g.add(body, n=8, name="a"))
    h = hand(g, workers=2, nodes=2)
    assert homes(h, "a") == [0, 0, 0, 0, 1, 1, 1, 1]


def test_sources_that_meet_go_together(hand):
    g = Graph("g")
    a, b = (g.add(body, n=4, name=name) for name in "ab")
    g.add(body, a, b, name="c")
    h = hand(g, workers=2, nodes=2)
    assert homes(h, "a") == homes(h, "b")
    assert sorted(homes(h, "a")) == [0, 0, 1, 1]


@pytest.mark.parametrize("n", [1, 5, 7, 16])
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_no_node_has_more_than_its_share(hand, n, workers):
    g = Graph("g")
    g.add(body, g.add(body, n=n, name="a"), name="b")
    h = hand(g, workers=workers, nodes=2)
    nodes = [row.node for row in h.core.workers.values()]
    placed = homes(h, "a")
    assert all(node in nodes for node in placed)
    for node in set(nodes):
        assert placed.count(node) <= -(-n * nodes.count(node) // workers)
        assert abs(placed.count(node) - n * nodes.count(node) / workers) <= 1


def test_shuffles_and_broadcasts_hold_nothing_together(hand):
    g = Graph("g")
    a = g.add(body, n=4, name="a")
    pieces = g.add(body, shuffle(a), n=4, name="pieces")
    g.add(body, pieces, name="each")
    h = hand(g, workers=2, nodes=2)
    assert homes(h, "a") == []  # nothing of it is read on one node: any worker will do


@pytest.mark.parametrize("nodes", [1, 2])
def test_on_one_node_there_is_nothing_to_place(hand, nodes):
    g = Graph("g")
    g.add(body, g.add(body, n=4, name="a"), name="b")
    h = hand(g, workers=2, nodes=nodes)
    assert (homes(h, "a") == []) == (nodes == 1)


def test_large_graphs_are_cut_into_blocks():
    class Stage:
        def __init__(self, n: int) -> None:
            self.n = n
            self.home = [-1] * n

    stages = [Stage(10), Stage(3), Stage(1)]
    _blocks(stages, [5, 7], {5: 10, 7: 4})  # type: ignore[arg-type]
    assert stages[0].home == [5] * 8 + [7] * 2
    assert stages[1].home == [5, 5, 5]
    assert stages[2].home == [5]


def test_a_worker_takes_what_should_run_on_its_node_first(hand):
    g = Graph("g")
    g.add(body, g.add(body, n=4, name="a"), name="b")
    h = hand(g, workers=2, nodes=2, cones=False)
    h(h.idle(1, 0))
    h.expect("launch a[2] on 1", "launch a[0] on 0")
    h(h.done("a[2]", seconds=1.0, nbytes=10), h.done("a[0]", seconds=1.0, nbytes=10), h.idle(0, 1))
    h.expect("launch b[0] on 0", "launch b[2] on 1")


def test_an_idle_node_helps_the_fullest(hand):
    g = Graph("g")
    g.add(body, g.add(body, n=2, name="a"), name="b")
    h = hand(g, workers=2, nodes=2, cones=False)
    assert homes(h, "a") == [0, 1]
    h(h.idle(1))
    h.expect("launch a[1] on 1")
    h(h.done("a[1]", seconds=1.0, nbytes=5), h.idle(1))
    h.expect("launch b[1] on 1")
    h(h.done("b[1]", seconds=1.0), h.idle(1))
    h.expect("free a[1]", "launch a[0] on 1")  # nothing of its own is left


def test_the_node_with_most_bytes_is_chosen(hand):
    g = Graph("g")
    a, b, c = (g.add(body, n=1, name=name) for name in "abc")
    g.add(body, a, b, c, n=1, name="d")
    h = hand(g, workers=3, nodes=3, cones=False)
    h(h.idle(0, 1, 2))
    assert len(h.skip("launch")) == 3
    where = {name: h.core.leases[h.leases[f"{name}[0]"]].worker for name in "abc"}
    h(h.done("a[0]", nbytes=10), h.done("b[0]", nbytes=500), h.done("c[0]", nbytes=400))
    h.expect()
    assert homes(h, "d") == [where["b"]]


def test_equal_bytes_go_to_the_freest_node(hand):
    g = Graph("g")
    a, b = (g.add(body, n=1, name=name) for name in "ab")
    g.add(body, a, b, n=1, name="c")
    g.add(body, n=2, name="busy")
    h = hand(g, workers=4, nodes=2, cones=False)
    h(h.idle(0, 2))
    assert len(h.skip("launch")) == 2
    on = {name: h.core.leases[h.leases[f"{name}[0]"]].worker for name in "ab" if f"{name}[0]" in h.leases}
    if len(on) < 2:
        pytest.skip("another order of sources")
    h(h.idle(1))  # node 0 has another lease
    h.skip("launch")
    h(h.done("a[0]", nbytes=7), h.done("b[0]", nbytes=7))
    h.expect()
    assert homes(h, "c") == [1]


def test_the_work_of_a_lost_node_is_done_by_the_others(hand):
    g = Graph("g")
    g.add(body, grid(g.add(body, n=4, name="a"), group(0, 2), src=(4,), dst=(2,)), n=2, name="b")
    h = hand(g, workers=2, nodes=2, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]", seconds=1.0, nbytes=1))
    h.expect()
    h(h.worker_lost(0, node=True))
    h.expect()
    assert h.rows("a") == ["ready"] * 4
    assert run_out(h, [1])[-1] == "complete succeeded"


def test_only_what_has_not_begun_goes_to_a_worker_that_joins(hand):
    g = Graph("g")
    g.add(body, g.add(body, n=6, name="a"), name="b")
    h = hand(g, workers=2, nodes=2, cones=False)
    h(h.idle(1, 0))
    h.expect("launch a[3] on 1", "launch a[0] on 0")
    h(h.done("a[0]", seconds=1.0, nbytes=9))
    h.expect()
    before = homes(h, "a")
    h(WorkerJoined(h.now, 2, 2, "node2"))
    h.expect()
    assert homes(h, "a") == before
    assert homes(h, "b")[0] == 0, "what reads a[0] stays where that is"
    h(h.idle(2))
    (line,) = h.skip("launch")
    assert line in {"launch b[0] on 2", *[f"launch a[{at}] on 2" for at in (1, 2, 4, 5)]}
    assert h.rows("a")[0] == "finished"
    assert h.rows("a")[3] == "leased"


def test_only_what_has_not_ended_or_is_lost_leaves_a_worker_that_dies(hand):
    """The node stays, and with it what its workers have made."""
    g = Graph("g")
    g.add(body, g.add(body, n=4, name="a"), name="b")
    h = hand(g, workers=4, nodes=2, cones=False)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]", seconds=1.0, nbytes=9))
    h.expect()
    h(h.worker_lost(0))
    h.expect()
    assert h.rows("a")[:2] == ["finished", "leased"]
    assert homes(h, "b")[0] == 0
    h(h.done("a[1]", seconds=1.0, nbytes=9))
    h.expect()
    assert run_out(h, [1, 2, 3])[-1] == "complete succeeded"
    ran = [line for line in map(str, h.leases) if line.startswith("a[0")]
    assert ran == ["a[0]"], "it was made once"


def test_gathered_inputs_tie_a_task_to_no_node(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    g.add(body, gather(a), n=2, name="b")
    h = hand(g, workers=2, nodes=2, cones=False)
    h(h.idle(0, 1))
    assert len(h.skip("launch")) == 2
    h(h.done("a[0]", nbytes=9), h.done("a[1]", nbytes=9), h.idle(1))
    h.expect("launch b[0] on 1")


def test_outputs_of_leases_reported_together_lie_where_they_ran(hand):
    """Many reports of one large vertex are counted in bulk."""
    g = Graph("g")
    g.add(body, shuffle(g.add(body, n=100, name="a"), 2), n=2, name="b")
    h = hand(g, workers=4, nodes=2)
    stage = h.core.by_id["a"]
    while stage.finished < stage.n:
        h(h.idle(0, 1, 2, 3))
        h.pending.clear()
        leases = list(h.core.leases.values())
        ran = {lease.lo: (lease.hi, lease.worker) for lease in leases if lease.stage is stage}
        h(*[Done(h.now, lease.id, lease.hi, 0.1, 10 * (lease.hi - lease.lo)) for lease in leases])
        h.pending.clear()
        for lo, (hi, worker) in ran.items():
            assert stage.node_of[lo:hi] == [worker // 2] * (hi - lo)
            assert stage.size_of[lo:hi] == [10] * (hi - lo)
    assert {0, 1} == set(stage.node_of)
