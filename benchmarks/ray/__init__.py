"""What a cluster costs: graphs, arrays and queries on two nodes of a Ray cluster with one core each.

Rows and tables are of modest size; `benchmarks.ray.sizes` names the variables for larger ones.
"""

from __future__ import annotations

from benchmarks.harness import Side, Spec
from benchmarks.ray import queries
from benchmarks.ray.sizes import GB, QUERIES, SIZES

_OURS = "benchmarks.ray.ours"


def _against_ray(name: str, case: str, target: float, about: str, tasks: int = 0) -> Spec:
    unit, scale = ("us/task", 1e6 / tasks) if tasks else ("s", 1.0)
    peer = Side("Ray", "benchmarks.ray.peer", case)
    return Spec(name, unit, Side("weft", _OURS, case), target, about, peer, scale=scale)


def _against(
    label: str, module: str, name: str, cases: tuple[str, str], target: float, about: str, *, longest_s: float = 600.0
) -> Spec:
    """Return a row against a peer of the peers' environment."""
    ours, theirs = cases
    peer = Side(label, module, theirs, peer=True, longest_s=longest_s)
    return Spec(name, "s", Side("weft", _OURS, ours, longest_s=longest_s), target, about, peer)


_SHUFFLED = f"ray_shuffle_{SIZES.shuffled / GB:g}gb_200x200"
_SHUFFLE = (
    f"{SIZES.shuffled / GB:g} GB of rows of 100 bytes, 8 of which are a random key, are made in 200 blocks, and sorted "
    "into 200 parts whose limits follow from samples"
)
_TABLES = "_".join([f"ray_tpch_sf{SIZES.scale:g}_stages", *[f"q{number}" for number in sorted(QUERIES)]])
_TABLES_S = 3600.0
"""How long the queries may take once, at scale 10 with a slow peer."""
_QUERIES = f"queries of TPC-H at scale {SIZES.scale:g}, in stages: the geometric mean of their times"

_SIMULATED = Side("weft", _OURS, "simulated", fresh=True)

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
    _against_ray(_SHUFFLED, "sort", 0.5, f"{_SHUFFLE}; Ray Data does the same."),
    _against(
        "Daft on Ray",
        "benchmarks.ray.peer_daft",
        f"{_SHUFFLED}_vs_daft",
        ("sort", "sort"),
        0.5,
        f"{_SHUFFLE}; Daft does the same.",
    ),
    *[
        _against(
            "dask distributed",
            "benchmarks.tensors.peer_distributed",
            f"ray_tensor_{row}",
            (row, f"processes_{row}"),
            0.7,
            f"The row {row} of the tensors, against two worker processes of dask on this machine.",
        )
        for row in ("ewise", "rechunk", "qr")
    ],
    Spec(
        "ray_node_killed_slowdown",
        "s",
        Side("weft", "benchmarks.ray.losses", "killed"),
        1.5,
        "A shuffle of 200 tasks by 200, each of which waits 80 ms, at four nodes, one of which is killed when half of "
        "the tasks are done; against the same undisturbed. Four nodes that lose one of them for its half take 1.33 "
        "times as long where its outputs are made again and nothing else is lost.",
        Side("undisturbed", "benchmarks.ray.losses", "undisturbed"),
    ),
    _against(
        "Daft on Ray",
        "benchmarks.ray.peer_daft",
        f"{_TABLES}_vs_daft",
        ("tables_of_daft", "tables"),
        0.33,
        f"{len(queries.chosen(queries.OF_DAFT))} {_QUERIES}. Daft plans these as they are written.",
        longest_s=_TABLES_S,
    ),
    _against(
        "Spark local",
        "benchmarks.ray.peer_spark",
        f"{_TABLES}_vs_spark",
        ("tables", "tables"),
        0.33,
        f"{len(queries.chosen(queries.ALL))} {_QUERIES}; Spark has two threads on this machine.",
        longest_s=_TABLES_S,
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
