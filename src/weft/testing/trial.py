"""Run one graph on the simulator with invariants checked after every event: the engine's property test in one call."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.backends.simulator import Faults, Simulator
from weft.engine.consulting import check_controller, check_managers
from weft.engine.machines.task import TaskState
from weft.engine.master import Master
from weft.engine.tuning import Tuning
from weft.graph.validate import mark_results, validate
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.testing.graphs import random_graph
from weft.testing.inside import check_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.engine.policy import ManagerFactory
    from weft.graph.logical import LogicalGraph


class Trial(Struct, frozen=True):
    """The outcome of a trial."""

    simulator: Simulator
    job: JobRun


def run_graph(
    graph: LogicalGraph,
    *,
    checked: bool = True,
    cancel_at: float | None = None,
    managers: Mapping[str, ManagerFactory] | None = None,
    **simulator: Any,
) -> Trial:
    """Run `graph` on a `Simulator(**simulator)` to its end; AssertionError if the job does not end."""
    sim = Simulator(check=check_job if checked else None, **simulator)
    loop = Loop(sim, sim.clock)
    mark_results(graph)
    validate(graph)
    check_managers(managers or {}, graph.vertices.values(), lambda: graph)
    check_controller(managers or {}, graph)
    job = JobRun("trial", graph, Master(graph, "trial", sim.tuning, managers))
    loop.submit(job)
    if cancel_at is not None:
        sim.at(cancel_at, lambda: loop.cancel(job, "cancelled by the trial"))
    sim.run(most_moments=2_000_000)
    if job.crash is not None:
        raise job.crash
    assert job.outcome is not None, "the job did not end:\n" + "\n".join(job.master.inspector.story())
    if checked:
        check_job(job)
        expect_clean(sim, job)
    return Trial(sim, job)


def expect_clean(sim: Simulator, job: JobRun) -> None:
    """Check that only results are held, no task runs, and all tokens and slots are free."""
    core = job.master.core
    assert not job.leases, f"leases are left: {job.leases}"
    held = {(vertex, index) for (owner, vertex), indices in sim.held.items() if owner == job.id for index in indices}
    finished = {
        (stage.id, i) for stage in core.stages for i in range(max(stage.n, 0)) if stage.state[i] == TaskState.FINISHED
    }
    assert finished <= held, f"finished, but not held: {sorted(finished - held)[:5]}"
    if core.status.value == "cancelled":
        assert not finished, f"a cancelled job keeps {sorted(finished)[:5]}"
    else:
        kept = {stage.id for stage in core.stages if stage.keep}
        assert {vertex for vertex, _ in finished} <= kept, "only results are kept"
    assert core.tokens == core.graph.limits, f"tokens are lost: {core.tokens} of {core.graph.limits}"


def random_trial(seed: int) -> Trial:
    """Run a random graph under random faults, all drawn from `seed`."""
    rng = random.Random(seed)
    graph = random_graph(rng)
    faulty = rng.random() < 0.8

    def often(probability: float) -> float:
        return probability if faulty and rng.random() < 0.5 else 0.0

    faults = Faults(
        seed=seed,
        worker_lost=often(0.1),
        node_lost=rng.choice([0.0, 0.5]),
        user=often(0.1),
        memory=often(0.05),
        infrastructure=often(0.1),
        output_lost=often(0.1),
        duplicate=often(0.2),
        started=often(0.3),
        give_back=often(0.2),
        most=rng.choice([1, 3, 10, 40]),
    )
    nodes = rng.choice([1, 1, 2, 3])
    tuning = Tuning(target_s=rng.choice([0.5, 5.0, 50.0]), shared_memory=nodes == 1, cones=rng.random() < 0.8)
    rng.random()  # a draw that the seeds were found with
    seconds = {f"v{i}": rng.choice([0.01, 1.0, 3.0]) for i in range(20)}
    return run_graph(
        graph,
        workers=rng.randint(max(2, nodes), 5),
        nodes=nodes,
        seconds=lambda vertex, _: seconds.get(vertex, 1.0),  # finally vertices have no figure of their own
        faults=faults,
        tuning=tuning,
        cancel_at=rng.choice([None, None, None, None, rng.random() * 10]),
    )
