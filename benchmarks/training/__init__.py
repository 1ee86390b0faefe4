"""What training jobs cost beside the programs that they run."""

from __future__ import annotations

from benchmarks.harness import Side, Spec
from benchmarks.training.frameworks import TENSORFLOW

OF_WEFT = (
    Spec(
        "reconcile_per_s",
        "calls/s",
        Side("weft", "benchmarks.training.ours", "reconcile"),
        1_000,
        "The controller of a TFJob with 1,000 replicas that run is asked; before each second call one pod changed.",
        figure="calls_per_s",
        at_least=True,
        scaled_by="python",
    ),
    Spec(
        "namespaces_overhead_ms",
        "ms",
        Side("weft", "benchmarks.training.ours", "namespaces"),
        60.0,
        "What a replica costs more in namespaces than as a plain process: 20 at once, with the network of their job.",
        scale=1e3,
        scaled_by="process",
    ),
    Spec(
        "four_replicas_s",
        "s",
        Side("weft", "benchmarks.training.runs", "four"),
        1.0,
        "Four replicas that print a line, from the command to Succeeded, with a new interpreter.",
        scaled_by="process",
    ),
    Spec(
        "overhead_vs_shell",
        "s",
        Side("weft", "benchmarks.training.runs", "four_over_shell"),
        0.3,
        "The same four replicas: the time beyond that of four processes of a shell script.",
        scaled_by="process",
    ),
    Spec(
        "hundred_replicas_s",
        "s",
        Side("weft", "benchmarks.training.runs", "hundred"),
        5.0,
        "A hundred replicas that sleep for a second, from the command to Succeeded.",
        scaled_by="process",
    ),
    Spec(
        "hundred_replicas_mb",
        "MB",
        Side("weft", "benchmarks.training.runs", "hundred"),
        150.0,
        "The memory of Weft while it runs them.",
        figure="mb",
    ),
    Spec(
        "suspend_to_gone_s",
        "s",
        Side("weft", "benchmarks.training.runs", "suspended"),
        0.5,
        "Four replicas that ignore SIGTERM are suspended: until no process is left, beyond their grace period.",
        scaled_by="process",
    ),
    Spec(
        "restart_to_running_s",
        "s",
        Side("weft", "benchmarks.training.runs", "restarted"),
        0.2,
        "A replica is killed: until the replacement runs.",
        scaled_by="process",
    ),
)
WITH_TENSORFLOW = (
    Spec(
        "dist_mnist_over_by_hand",
        "s",
        Side("weft", "benchmarks.training.frameworks", "job"),
        1.05,
        "A TFJob that trains on digits: chief, parameter server and two workers; the same processes started by hand.",
        peer=Side("by hand", "benchmarks.training.frameworks", "by_hand"),
    ),
)
SPECS = (*OF_WEFT, *(WITH_TENSORFLOW if TENSORFLOW.exists() else ()))
