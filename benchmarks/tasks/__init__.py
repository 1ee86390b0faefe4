"""What a task costs: graphs of tasks that do nothing, against dask and a pool of processes; the master alone."""

from __future__ import annotations

from benchmarks.harness import Side, Spec


def _ours(case: str, *, fresh: bool = False) -> Side:
    return Side("weft", "benchmarks.tasks.ours", case, fresh=fresh)


def _dask(label: str, case: str) -> Side:
    return Side(label, "benchmarks.tasks.peer_dask", case, peer=True)


def _against_dask(name: str, case: str, tasks: int, target: float, about: str) -> Spec:
    label = "dask processes" if case.startswith("processes") else "dask threads"
    return Spec(name, "us/task", _ours(case), target, about, _dask(label, case), scale=1e6 / tasks)


_HELD = _ours("threads_tree_held")
_SIMULATOR = _ours("simulator_1m", fresh=True)
_SHUFFLE = _ours("shuffle_1e5x1e5", fresh=True)
_WIDE = _ours("real_shuffle", fresh=True)
_WIDE_PROCESSES = _ours("real_shuffle_processes", fresh=True)

SPECS = (
    _against_dask("threads_10k", "threads_10k", 10_000, 0.004, "10,000 independent tasks; 2 threads."),
    _against_dask(
        "threads_stage_300x300",
        "threads_stage",
        600,
        0.01,
        "300 tasks return 300 pieces each, 300 tasks read one piece of each of them and add them up; 2 threads.",
    ),
    Spec(
        "threads_stage_300x300_over_bodies",
        "us/task",
        _ours("threads_stage"),
        1.5,
        "The same against the floor of Python: the bodies and the reads of the pieces alone, in one loop.",
        Side("loop", "benchmarks.tasks.peer_loop", "stage"),
        scale=1e6 / 600,
    ),
    _against_dask(
        "threads_chain_1000",
        "threads_chain",
        1000,
        0.1,
        "1,000 vertices of one task in a row, each adds one; 2 threads.",
    ),
    _against_dask(
        "threads_tree_16383", "threads_tree", 16_383, 0.01, "A binary tree that adds up 8,192 leaves; 2 threads."
    ),
    _against_dask(
        "threads_tree_two_source",
        "threads_tree_two_source",
        32_767,
        0.04,
        "The same over 8,192 sums of a leaf of one vertex and a leaf of another; 2 threads.",
    ),
    Spec(
        "threads_tree_held",
        "values",
        _HELD,
        28,
        "The most values alive at a time in the tree, counted by the values; the target is 2 log2(8,192 leaves) + 2.",
        figure="tree",
    ),
    Spec(
        "threads_tree_two_source_held",
        "values",
        _HELD,
        30,
        "The same over two sources, which have 16,384 leaves.",
        figure="two_source",
    ),
    _against_dask("processes_10k", "processes_10k", 10_000, 0.006, "10,000 independent tasks; 2 warm processes."),
    Spec(
        "processes_chunks_64x32mb",
        "s",
        _ours("processes_chunks"),
        0.12,
        "64 chunks of 32 MB are made in one process and added up in another. The pool's are made by 2 processes and "
        "pickled to a third; Weft's are made and read by 2 processes, each adds up what the other has made.",
        Side("process pool", "benchmarks.tasks.peer_pool", "processes_chunks", peer=True),
    ),
    Spec(
        "simulator_1m_tasks_per_s",
        "tasks/s",
        _SIMULATOR,
        300_000,
        "The whole engine but for the tasks: 10 stages of 100,000 tasks, each stage a shuffle of the one before, on "
        "10,000 simulated workers; task times are exponential with a mean of 10 s, so that a lease is one task, and "
        "reports of the same 0.1 s are seen to together.",
        figure="tasks_per_s",
        at_least=True,
        scaled_by="python",
    ),
    Spec("simulator_1m_gb", "GB", _SIMULATOR, 0.5, "The most memory that process held.", figure="gb"),
    Spec(
        "shuffle_1e5x1e5_s",
        "s",
        _SHUFFLE,
        3.0,
        "One shuffle of 100,000 tasks by 100,000 partitions in the master: each task reports, 100 workers add up what "
        "was written for each partition (int64), partitions are grouped to 256 MB, the readers are routed and asked "
        "for their inputs.",
        scaled_by="python",
    ),
    Spec(
        "real_shuffle_10000_s",
        "s",
        _WIDE,
        3.0,
        "A shuffle of 10,000 tasks by 10,000 with 3 pieces for each source, which are numbers: the graph is built and "
        "run, and all sums are read; 2 threads.",
        scaled_by="python",
    ),
    Spec(
        "real_shuffle_10000_gb",
        "GB",
        _WIDE,
        0.15,
        "The most memory that process held.",
        figure="gb",
    ),
    Spec(
        "real_shuffle_10000_processes_s",
        "s",
        _WIDE_PROCESSES,
        3.0,
        "The same on 2 warm processes.",
        scaled_by="python",
    ),
    Spec(
        "real_shuffle_10000_processes_gb",
        "GB",
        _WIDE_PROCESSES,
        0.3,
        "The most memory that the session held, and twice that of its largest child process.",
        figure="gb",
    ),
    Spec(
        "patches_10000_s",
        "s",
        _ours("patches_10000"),
        3.0,
        "10,000 patches of a control vertex in the master: each adds a vertex that reads the one added before, and its "
        "task runs before the next patch.",
        scaled_by="python",
    ),
    Spec("shuffle_1e5x1e5_gb", "GB", _SHUFFLE, 0.5, "The most memory that process held.", figure="gb"),
    Spec(
        "spawn_1e5_s",
        "s",
        _ours("spawn_1e5"),
        5.0,
        "100,000 spawned calls that add one, and one that adds up their results; 2 threads.",
        scaled_by="python",
    ),
    Spec(
        "spawn_depth_1e4_s",
        "s",
        _ours("spawn_depth_1e4"),
        10.0,
        "A function that spawns itself and waits for the result, 10,000 levels deep; 2 warm processes.",
        scaled_by="python",
    ),
    Spec(
        "small_jobs_per_s",
        "jobs/s",
        _ours("small_jobs"),
        1_500,
        "1,000 jobs of 10 tasks that do nothing, 100 of them submitted ahead; one session of 2 threads.",
        figure="per_s",
        at_least=True,
        scaled_by="python",
    ),
    Spec(
        "small_jobs_processes_per_s",
        "jobs/s",
        _ours("small_jobs_processes"),
        1_000,
        "The same on 2 warm processes.",
        figure="per_s",
        at_least=True,
        scaled_by="python",
    ),
    Spec(
        "live_jobs_10000_over_100",
        "ratio",
        _ours("live_jobs", fresh=True),
        0.8,
        "Jobs of 10 tasks that are submitted while all workers are busy, and then run: jobs in a second with 10,000 "
        "such jobs over jobs in a second with 100.",
        figure="ratio",
        at_least=True,
    ),
    Spec(
        "session_10k_jobs_mb",
        "MB",
        _ours("session_10k_jobs", fresh=True),
        5,
        "The growth of a process over 10,000 jobs of 10 tasks in one session.",
        figure="mb",
    ),
    Spec(
        "import_and_first_result_s",
        "s",
        _ours("first_result"),
        0.3,
        "From the start of an interpreter to the value of a graph of one task, importing the library included.",
        _dask("dask threads", "first_result"),
    ),
)
