"""Pipelines on the command line, cold and from the cache, and what the cache itself costs; against snakemake."""

from __future__ import annotations

from benchmarks.harness import Side, Spec


def _ours(case: str) -> Side:
    return Side("weft", "benchmarks.pipelines.ours", case)


def _against_snakemake(name: str, case: str, target: float, about: str) -> Spec:
    peer = Side("snakemake", "benchmarks.pipelines.peer_snakemake", case, peer=True)
    return Spec(name, "s", _ours(case), target, about, peer)


_COMMAND = "The whole command, from the start of the interpreter to its end. "

SPECS = (
    Spec(
        "cached_101_steps_s",
        "s",
        _ours("cached_101"),
        0.4,
        _COMMAND + "100 steps and one below them, all known.",
        scaled_by="python",
    ),
    Spec(
        "cached_1000_steps_s",
        "s",
        _ours("cached_1000"),
        1.0,
        _COMMAND + "1,000 steps with an output, all known.",
        scaled_by="python",
    ),
    Spec(
        "cached_8000_steps_s",
        "s",
        _ours("cached_8000"),
        5.0,
        _COMMAND + "A loop of 8,000 items, all known.",
        scaled_by="python",
    ),
    Spec(
        "report_10000_items_s",
        "s",
        _ours("report_10000"),
        2.0,
        _COMMAND + "`weft report` of a loop of 10,000 items with an output each, as HTML.",
        scaled_by="python",
    ),
    Spec(
        "report_10000_items_mb",
        "MB",
        _ours("report_10000"),
        3.0,
        "The size of that page.",
        figure="bytes",
        scale=1e-6,
    ),
    Spec(
        "hit_decision_ms",
        "ms",
        _ours("hit_decision"),
        0.5,
        "To find the key of a step, look it up, verify its output and put it in place; mean of 1,000.",
        scale=1e3,
        scaled_by="python",
    ),
    Spec(
        "step_overhead_ms",
        "ms",
        _ours("step_overhead"),
        5.0,
        "What one more executed step costs beside its shell, results kept: 100 steps in a row against one.",
        scale=1e3,
        scaled_by="process",
    ),
    Spec(
        "step_overhead_power_ms",
        "ms",
        _ours("step_overhead_power"),
        1.0,
        "The same with `durability: power`, where each step has an output and no result is kept; against 2 ms and two "
        "syncs of a file of the same disk, measured in the same rounds.",
        Side("2 ms + 2 syncs", "benchmarks.pipelines.ours", "power_floor"),
        scale=1e3,
    ),
    Spec(
        "step_overhead_power_kept_ms",
        "ms",
        _ours("step_overhead_power_kept"),
        1.0,
        "The same, results kept; against 5 ms and two syncs.",
        Side("5 ms + 2 syncs", "benchmarks.pipelines.ours", "power_kept_floor"),
        scale=1e3,
    ),
    Spec(
        "plan_10k_s",
        "s",
        _ours("plan_10k"),
        1.0,
        _COMMAND + "`weft plan` of a file with 10,000 steps: alone, in a row, and below one step.",
        scaled_by="python",
    ),
    Spec(
        "chain_11_cold_s",
        "s",
        _ours("chain_11"),
        0.5,
        _COMMAND + "11 trivial shell steps in a row, cold.",
        scaled_by="process",
    ),
    _against_snakemake("chain_11_vs_snakemake", "chain_11", 0.17, _COMMAND + "11 steps in a row, cold."),
    _against_snakemake("fanout_101_vs_snakemake", "fanout_101", 0.3, _COMMAND + "100 steps and one below them, cold."),
    Spec(
        "rekey_50000_files_s",
        "s",
        _ours("rekey_50000"),
        1.5,
        "The digest of a folder of 50,000 unchanged files in 500 folders, by a process that has the index alone; "
        "no byte of content is read.",
        scaled_by="python",
    ),
    Spec(
        "lookup_1e6_ms",
        "ms",
        _ours("lookup_1e6"),
        0.5,
        "One look-up among 1,000,000 results.",
        scale=1e3,
        scaled_by="python",
    ),
    Spec(
        "lookup_1e6_over_1e3",
        "ratio",
        _ours("lookup_1e6"),
        3.0,
        "The same over a look-up among 1,000 results.",
        figure="ratio",
    ),
    Spec(
        "single_flight_64_executions",
        "executions",
        _ours("single_flight_64"),
        1,
        "How often a step runs that 64 processes ask for at once.",
        figure="executions",
    ),
    Spec(
        "takeover_s",
        "s",
        _ours("takeover"),
        2.0,
        "From kill -9 of the run that makes a result to the start of its step in a run that waited for it.",
        scaled_by="process",
    ),
)
