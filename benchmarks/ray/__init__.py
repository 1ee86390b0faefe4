"""What a cluster costs: graphs on two nodes of a Ray cluster with one core each, against Ray's own tasks there."""

from __future__ import annotations

from benchmarks.harness import Side, Spec


def _against_ray(name: str, case: str, target: float, about: str, tasks: int = 0) -> Spec:
    unit, scale = ("us/task", 1e6 / tasks) if tasks else ("s", 1.0)
    peer = Side("Ray", "benchmarks.ray.peer", case)
    return Spec(name, unit, Side("weft", "benchmarks.ray.ours", case), target, about, peer, scale=scale)


_SIMULATED = Side("weft", "benchmarks.ray.ours", "simulated", fresh=True)

SPECS = (
    _against_ray("ray_10k_noop", "independent", 0.02, "10,000 independent tasks.", 10_000),
    _against_ray(
        "ray_stage_300x300",
        "stage",
        0.02,
        "300 tasks return 300 pieces each, 300 tasks read one piece of each of them and add them up.",
        600,
    ),
    _against_ray("ray_tree_16383", "tree", 0.05, "A binary tree that adds up 8,192 leaves.", 16_383),
    _against_ray("ray_chain_1000", "chain", 0.1, "1,000 tasks in a row, each adds one.", 1_000),
    _against_ray(
        "ray_chunks_64x32mb",
        "chunks",
        1.0,
        "64 chunks of 32 MB are made at one node and added up at the other.",
    ),
    _against_ray(
        "ray_session_start_s",
        "start",
        1.5,
        "A session is opened on a running cluster and runs a task; Ray connects and runs its first task.",
    ),
    Spec(
        "simulated",
        "tasks/s",
        _SIMULATED,
        100_000,
        "The whole engine but for the tasks, on 1,000 simulated nodes with 10 workers each, whose links take 1 ms: 10 "
        "stages of 100,000 tasks, each stage a shuffle of the one before. Outputs have 1 MB, and the engine places "
        "tasks by them; task times are exponential with a mean of 10 s, so that a lease is one task.",
        figure="tasks_per_s",
        at_least=True,
        scaled_by="python",
    ),
    Spec("simulated_gb", "GB", _SIMULATED, 1.0, "The most memory that process held.", figure="gb"),
)
