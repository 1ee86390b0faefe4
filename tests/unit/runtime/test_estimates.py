"""What earlier jobs of a session have measured makes the leases of small jobs wide at once."""

from typing import Any, NamedTuple

from weft.backends.simulator import Simulator
from weft.engine.master import Master
from weft.graph.builder import Graph
from weft.runtime.estimates import Estimates
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop


def quick(item: int) -> int:
    return item


class Row(NamedTuple):
    """What of a vertex is learned from."""

    vertex: Any
    seconds: float


def _jobs(*graphs: Graph) -> list[int]:
    """Run jobs one after another on one simulated worker; return the number of leases of each."""
    simulator = Simulator(1, seconds=0.0001)
    loop = Loop(simulator, simulator.clock)
    counts = []
    for at, graph in enumerate(graphs):
        before = simulator.leases
        job = JobRun(f"job-{at}", graph, Master(graph, f"job-{at}", simulator.tuning))
        loop.submit(job)
        simulator.run()
        assert job.outcome is not None
        assert job.outcome.state == "succeeded"
        counts.append(simulator.leases - before)
    return counts


def _graph(function, tasks: int = 10, vertices: int = 1) -> Graph:
    graph = Graph("g")
    for _ in range(vertices):
        graph.map(function, range(tasks))
    return graph


def test_the_second_job_of_a_function_needs_no_probe():
    first, second = _jobs(_graph(quick), _graph(quick))
    assert first > 1
    assert second == 1


def test_a_closure_may_do_anything_and_is_probed():
    seen: list[int] = []
    first, second = _jobs(_graph(lambda _: seen), _graph(lambda _: seen))
    assert second == first


def test_a_large_graph_is_probed():
    first, small, large = _jobs(_graph(quick), _graph(quick), _graph(quick, 2, vertices=17))
    assert small == 1
    assert first > 1
    assert large > 17


def test_the_oldest_estimates_go_first():
    estimates = Estimates()
    graphs = [_graph(eval(f"lambda item: item + {number}")) for number in range(300)]
    for graph in graphs:
        (vertex,) = graph.vertices.values()
        row: Any = Row(vertex, 0.5)
        estimates.learn([row])
    (known,) = estimates.of(graphs[-1].vertices)
    assert known[1] == 0.5
    assert not estimates.of(graphs[0].vertices)
