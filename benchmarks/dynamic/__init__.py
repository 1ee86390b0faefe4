"""What changing the graph while it runs is worth: each row against the graph that does not change."""

from __future__ import annotations

from benchmarks.harness import Side, Spec


def _ours(case: str) -> Side:
    return Side("weft", "benchmarks.dynamic.ours", case)


_PARALLELISM = _ours("parallelism")
_PRUNING = _ours("pruning")
_LIMIT = _ours("limit")
_WORST = _ours("limit_worst")
_JOIN = _ours("join")
_FAULTS = _ours("faults")
_BUBBLES = _ours("bubbles")
_REAL = _ours("bubbles_real")
_JOURNAL = _ours("journal")

SPECS = (
    Spec(
        "parallelism_500_to",
        "tasks",
        _PARALLELISM,
        1,
        "1,000 maps write 500 partitions, 10 MB in all, and 500 readers are planned: how many there were; 2 threads.",
        figure="tasks",
    ),
    Spec(
        "parallelism_decision_ms",
        "ms",
        _PARALLELISM,
        50,
        "The manager's decision in the row before: sizes in, groups and router out.",
        figure="decision_ms",
        scaled_by="python",
    ),
    Spec(
        "skew_max_over_mean",
        "ratio",
        _ours("skew"),
        1.3,
        "100,000 partitions of lognormal sizes (sigma 1) grouped for 1,000 readers, none over the target: bytes of the "
        "fullest reader over the mean; the median of 5 seeds.",
        figure="ratio",
    ),
    Spec(
        "pruning_scan_tasks",
        "tasks",
        _PRUNING,
        3,
        "1,000 Parquet files of 20,000 rows, one for each key, joined with 3 keys: how many were read; 2 threads.",
        figure="scan_tasks",
    ),
    Spec(
        "pruning_wall_speedup",
        "times",
        _PRUNING,
        3,
        "The time of the same join that reads all files and filters, over the time with pruning.",
        figure="speedup",
        at_least=True,
    ),
    Spec(
        "limit_tasks_started",
        "tasks",
        _LIMIT,
        11,
        "LIMIT 5 over 4,000 row groups of 5,000 rows, where 1 row in 4,000 matches: how many were started; 2 threads.",
        figure="started",
    ),
    Spec(
        "limit_wall_speedup",
        "times",
        _LIMIT,
        5,
        "The time of starting all 4,000 at once, over that of waves.",
        figure="speedup",
        at_least=True,
    ),
    Spec(
        "limit_task_seconds_saving",
        "times",
        _LIMIT,
        100,
        "Seconds in tasks when all 4,000 are started, over those with waves.",
        figure="saving",
        at_least=True,
    ),
    Spec(
        "limit_worst_case_overhead",
        "ratio",
        _WORST,
        1.15,
        "The same where no row matches, so that all 4,000 are read: the time with waves over that of starting all.",
        figure="ratio",
    ),
    Spec(
        "conditional_join_over_wrong",
        "times",
        _JOIN,
        3,
        "50 Parquet files joined with 50 others that turn out large: the time of the plan that gives these whole to "
        "every task, over that of the choice, which shuffles.",
        figure="over_copied",
        at_least=True,
    ),
    Spec(
        "conditional_join_over_wrong_small",
        "times",
        _JOIN,
        3,
        "The same where a filter leaves 1 row in 1,000 of the others: the time of the plan that shuffles, over that of "
        "the choice, which gives them whole to every task.",
        figure="over_shuffled",
        at_least=True,
    ),
    Spec(
        "conditional_join_over_best",
        "ratio",
        _JOIN,
        1.1,
        "The time of the choice over that of the better plan, the worse of both cases.",
        figure="over_best",
    ),
    Spec(
        "faults_5pct_slowdown",
        "ratio",
        _FAULTS,
        1.16,
        "Simulated: 1,000 maps, 500 readers of their shuffle, 100 of theirs, on 100 workers; a task takes 5 s and an "
        "exponential part with a mean of 5 s; 5 % of attempts fail at a random moment: the time over that without "
        "failures; the median of 5 seeds.",
        figure="5",
    ),
    Spec("faults_10pct_slowdown", "ratio", _FAULTS, 1.2, "The same where 10 % of attempts fail.", figure="10"),
    Spec(
        "bubble_speedup_over_batch",
        "times",
        _BUBBLES,
        1.5,
        "Simulated: graphs shaped like the 22 queries of TPC-H at 1 TB, all one after the other, in five settings: the "
        "time in batch over that in bubbles of 500 tasks, in the setting where that is the median.",
        figure="speedup",
        at_least=True,
    ),
    Spec(
        "bubble_resources_over_batch",
        "ratio",
        _BUBBLES,
        1.2,
        "Slots times seconds held, of bubbles over batch, in that setting.",
        figure="resources",
    ),
    Spec(
        "bubble_speed_of_gang",
        "ratio",
        _BUBBLES,
        1.0,
        "The time of one gang over that in bubbles, in that setting.",
        figure="gang_speed",
    ),
    Spec(
        "bubble_resources_of_gang",
        "ratio",
        _BUBBLES,
        1.0,
        "Slots times seconds held, of bubbles over one gang, in that setting.",
        figure="gang_resources",
    ),
    Spec(
        "bubble_settings_in_order",
        "settings",
        _BUBBLES,
        5,
        "In how many of the five batch takes longer than bubbles, bubbles as long as a gang or longer, and hold less.",
        figure="in_order",
        at_least=True,
    ),
    Spec(
        "bubble_real_in_order",
        "runs",
        _REAL,
        1,
        "Whether the same holds for a pipeline of four stages over 120 Parquet files, in bubbles of two: 4 threads.",
        figure="in_order",
        at_least=True,
    ),
    Spec(
        "bubble_real_speedup_over_batch",
        "times",
        _REAL,
        1.0,
        "The time of this pipeline in batch over that in bubbles.",
        figure="speedup",
        at_least=True,
    ),
    Spec(
        "journal_events_per_s",
        "events/s",
        _JOURNAL,
        50_000,
        "200,000 events in ticks of two, written and synced to the disk of the working folder, at most 1,000 events or "
        "10 ms at a time, until the last one is durable.",
        figure="events",
        at_least=True,
        scaled_by="python",
    ),
    Spec(
        "journal_floor_events_per_s",
        "events/s",
        _JOURNAL,
        50_000,
        "The floor of that row in the same run: the same bytes written and synced as they are, 1,000 events at a time.",
        figure="floor",
        at_least=True,
        scaled_by="python",
    ),
    Spec(
        "journal_read_events_per_s",
        "events/s",
        _JOURNAL,
        50_000,
        "The same journal read back and decoded, as a resume does.",
        figure="read",
        at_least=True,
        scaled_by="python",
    ),
    Spec(
        "straggler_slowdown",
        "ratio",
        _ours("straggler_simulated"),
        1.3,
        "Simulated: 320 tasks of 1 s on 16 workers, one of them ten times slower: the time over that of 16 equal ones.",
        figure="ratio",
    ),
    Spec(
        "straggler_slowdown_processes",
        "ratio",
        _ours("straggler_processes"),
        1.6,
        "120 tasks that hash for some tens of milliseconds, on 4 worker processes, one of them made to stand still for "
        "nine tenths of the time: the time over that before.",
        figure="ratio",
    ),
)
