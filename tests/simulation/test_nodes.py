"""Nodes that join for what waits, drain without losing work, and are lost: by seed, on the virtual clock."""

from typing import Any

import pytest

from tests.simulation.world import expect_idle, random_session
from weft.backends.simulated_cluster import Network, SimulatedCluster
from weft.backends.simulated_nodes import Elastic, ElasticProvider
from weft.engine.events import Failed, NodeDraining, NodeLost
from weft.engine.explain import explain
from weft.engine.master import Master
from weft.engine.provider import NodeKind
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, gather
from weft.graph.logical import Retry
from weft.graph.validate import mark_results, validate
from weft.model.errors import CapacityError
from weft.model.resources import Resources
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.testing.inside import check_job
from weft.testing.trial import expect_clean


def body(*inputs: object) -> object:
    return inputs


class Cluster:
    """A cluster whose nodes change, and one job on it; `events` are all that its master has heard."""

    def __init__(self, graph: Graph, elastic: Elastic, **simulator: Any) -> None:
        options = {"workers": 2, "nodes": 1, "tuning": Tuning(target_s=1.0, shared_memory=False), **simulator}
        self.sim = SimulatedCluster(elastic=elastic, check=check_job, **options)
        self.loop = Loop(self.sim, self.sim.clock)
        mark_results(graph)
        validate(graph, self.loop.pool.capacity())
        self.job = JobRun("job", graph, Master(graph, "job", self.sim.tuning))
        self.events: list[Any] = []
        self.launched: list[tuple[float, int]] = []
        self.job.listen(self._listen)

    @property
    def nodes(self) -> ElasticProvider:
        assert self.sim.elastic is not None
        return self.sim.elastic

    def _listen(self, job: JobRun, events: Any, commands: Any) -> None:
        self.events += events
        self.launched += [(self.sim.clock.time, c.worker) for c in commands if type(c).__name__ == "Launch"]

    def run(self, at: float = -1.0, then: Any = None) -> "Cluster":
        self.loop.submit(self.job)
        if then is not None:
            self.sim.at(at, then)
        self.sim.run(most_moments=100_000)
        if self.job.crash is not None:
            raise self.job.crash
        assert self.job.outcome is not None, "\n".join(self.job.inspector.story())
        check_job(self.job)
        expect_clean(self.sim, self.job)
        return self

    def told(self, subject: str = "") -> str:
        return "\n".join(self.job.inspector.story(subject))


def gang(count: int, timeout_s: float = 1e6, **fields: Any) -> Graph:
    g = Graph("gang")
    a = g.add(body, n=count, name="a", **fields)
    b = g.add(body, a, name="b")
    g.bubble(a, b, name="both", timeout_s=timeout_s)
    return g


def test_a_gang_that_does_not_fit_now_waits_for_nodes_and_says_why():
    cluster = Cluster(gang(3), Elastic((NodeKind(4, name="big", limit=2),), delay_s=30.0, idle_s=5.0)).run()
    assert cluster.job.outcome.state == "succeeded"
    assert "waits for nodes to join: it needs 6 slots at once; the session has 2" in cluster.told("both")
    assert "joined as big: 4 slots" in cluster.told("node 1")
    assert any("waits for nodes" in change.what for change in explain(cluster.job.master.core).changes)
    assert cluster.nodes.joined >= 1
    assert min(at for at, _ in cluster.launched) >= 30.0
    assert sorted(cluster.nodes.there) == [0]  # what was brought has drained
    assert cluster.loop.pool.idle == 2


def test_while_it_waits_the_reasons_name_the_nodes_that_are_there():
    cluster = Cluster(gang(3), Elastic((NodeKind(4, name="big", limit=2),), delay_s=30.0, idle_s=5.0))
    told: list[str] = []
    cluster.run(10.0, lambda: told.extend(wait.line() for wait in cluster.loop.waits(cluster.job, "a")))
    (line,) = told
    assert line.startswith(
        "a: asks at once, for the bubble both, for 3 tasks of a with cpu 1, 3 tasks of b with cpu 1; "
        "waits for nodes to join: it needs 6 slots at once; the session has 2"
    )
    assert cluster.loop.waits(cluster.job, "") == ()


def test_a_task_waits_for_a_node_with_the_memory_and_gpus_that_it_asks_for():
    g = Graph("one")
    g.add(body, n=3, name="a", resources=Resources(memory=100, gpu=1, gpu_type="h100"))
    kind = NodeKind(2, Resources(memory=250, gpu=2, gpu_type="h100"), limit=1)
    cluster = Cluster(g, Elastic((kind,), delay_s=10.0)).run()
    assert cluster.job.outcome.state == "succeeded"
    ends = sorted(at for at, _ in cluster.launched)
    assert ends == [10.0, 10.0, 11.0]  # two at a time: its memory and its GPUs are counted
    assert "waits for nodes to join: a asks for" in cluster.told("a")


def test_what_the_provider_can_never_have_is_refused_at_submit_and_later():
    elastic = Elastic((NodeKind(4, Resources(memory=50), limit=1),))
    g = Graph("never")
    g.add(body, n=1, name="a", resources=Resources(gpu=1))
    with pytest.raises(CapacityError, match="more than any worker has"):
        Cluster(g, elastic)
    refused = Cluster(gang(4), elastic).run()
    assert "refused: it needs 8 slots at once; the session has 6" in refused.told("both")
    assert "waits for nodes" not in refused.told("both")
    assert refused.job.outcome.state == "succeeded"  # as single tasks


def test_a_node_drains_without_losing_what_runs_on_it():
    g = Graph("drain")
    a = g.add(body, n=4, name="a")
    g.add(body, gather(a), n=1, name="b")
    cluster = Cluster(g, Elastic(), workers=4, nodes=2, seconds=2.0)
    cluster.run(0.5, lambda: cluster.nodes._drain(1, "its machine is wanted elsewhere"))
    assert cluster.job.outcome.state == "succeeded"
    assert not [event for event in cluster.events if isinstance(event, Failed)]
    assert [type(e) for e in cluster.events if isinstance(e, NodeDraining | NodeLost)] == [NodeDraining, NodeLost]
    assert "drains: its machine is wanted elsewhere" in cluster.told("node 1")
    assert all(worker < 2 for at, worker in cluster.launched if at > 0.5)
    assert (sorted(cluster.nodes.there), cluster.loop.pool.idle) == ([0], 2)


def test_a_node_that_is_lost_takes_its_work_and_outputs_and_may_be_had_again():
    g = Graph("lost")
    a = g.add(body, n=8, name="a", retry=Retry(infrastructure=3))
    g.add(body, gather(a), n=1, name="b")
    cluster = Cluster(g, Elastic(delay_s=3.0), workers=2, nodes=1, seconds=2.0)
    cluster.run(2.5, lambda: cluster.nodes._take(0, "its machine has failed"))
    assert cluster.job.outcome.state == "succeeded"
    assert cluster.nodes.joined == 1  # no worker was left: what waits asked for one
    assert next(at for at, _ in cluster.launched if at > 2.5) == 5.5


def test_nodes_join_and_drain_behind_a_network(seed):
    cluster = Cluster(gang(3), Elastic((NodeKind(4, limit=2),), delay_s=5.0), network=Network())
    assert cluster.run().job.outcome.state == "succeeded"


@pytest.mark.parametrize("number", range(60))
def test_sessions_whose_nodes_change(number):
    world, jobs = random_session(number, elastic=True)
    assert all(job.outcome is not None for job in jobs)
    expect_idle(world)
