"""What arrays cost: chunked arithmetic against dask and NumPy, the price of a chunk, memory, and more than memory.

The rows that go to disk take a few GB; with `BENCHMARKS_FULL=1` in the environment they take tens of them.
"""

from __future__ import annotations

from benchmarks.harness import Side, Spec
from benchmarks.tensors.sizes import GB, LONGEST_S, SIZES

_MODULES = {
    "numpy": "peer_numpy",
    "dask threads": "peer_dask",
    "dask distributed": "peer_distributed",
    "scipy": "peer_numpy",
    "jax": "peer_jax",
    "pytorch": "peer_torch",
}
_LONGEST_S = 3600.0


def _ours(case: str, *, fresh: bool = False) -> Side:
    return Side("weft", "benchmarks.tensors.ours", case, fresh=fresh)


def _peer(label: str, case: str, *, fresh: bool = False) -> Side:
    return Side(label, f"benchmarks.tensors.{_MODULES[label]}", case, peer=True, fresh=fresh)


def _against(label: str, name: str, target: float, about: str) -> Spec:
    return Spec(name, "s", _ours(name), target, about, _peer(label, name))


def _in_one_piece(label: str, row: str) -> Spec:
    about = f"{row} beside {label}, which has it in one piece."
    return Spec(f"{row}_vs_{label}", "s", _ours(row), 1.0, about, _peer(label, row))


def _memory(row: str) -> Spec:
    case = f"peak_{row}"
    about = f"The most memory that a process of its own holds, having run {row} once and brought the result together."
    theirs = _peer("dask threads", case, fresh=True)
    return Spec(f"peak_memory_{row}", "GB", _ours(case, fresh=True), 1.0, about, theirs, figure="gb")


def _in_processes(row: str, target: float) -> Spec:
    about = f"{row} on two worker processes; factors stay with the workers."
    return _against("dask distributed", f"processes_{row}", target, about)


def _out_of_core(row: str, about: str) -> tuple[Spec, ...]:
    module = "benchmarks.tensors.out_of_core"
    ours = Side("weft", module, row, fresh=True, longest_s=_LONGEST_S)
    disk = Side("disk", module, f"{row}_on_disk", fresh=True, longest_s=_LONGEST_S)
    return (
        Spec(f"out_of_core_{row}", "s", ours, 4.0, about, disk),
        Spec(f"out_of_core_{row}_gb", "GB", ours, SIZES.memory / GB, "The most memory that process held.", figure="gb"),
        Spec(
            f"out_of_core_{row}_vs_distributed",
            "s",
            ours,
            1.0,
            "The same against two worker processes of dask.distributed with half of that memory each: inf if they died "
            f"or were not done after {LONGEST_S / 60:g} minutes.",
            Side(
                "dask distributed",
                "benchmarks.tensors.peer_distributed",
                row,
                peer=True,
                fresh=True,
                longest_s=_LONGEST_S,
            ),
        ),
    )


_DRAWN = {"ewise": 0.7, "rechunk": 0.5, "cumsum": 1.0, "transpose_sum": 0.7, "qr": 1.0, "svd": 1.0, "ata": 1.0}
"""The rows on numbers that are drawn on the way, each with its target on processes."""
_GIVEN = {"matmul": 1.0, "fused_e1": 1.0, "fused_e3": 1.0}
"""Those on arrays in memory."""

_UNCUT = [row for row in _DRAWN if row != "rechunk"]
"""Those that do not ask for chunks."""

SPECS = (
    _against(
        "dask threads",
        "ewise",
        0.5,
        "((a + b) * c).sum() of three random vectors of 10^8, made on the way, in chunks of 10^7.",
    ),
    _against("dask threads", "rechunk", 0.8, "20,000 x 5,000 random numbers from rows to columns, and their sum."),
    _against("dask threads", "cumsum", 0.95, "The last of the running sums of 10^8 random numbers."),
    _against("dask threads", "transpose_sum", 0.8, "(x.T + 1).sum() of 20,000 x 5,000 random numbers."),
    _against("dask threads", "qr", 1.05, "Q and R of 10^6 x 50 random numbers in 10 blocks of rows."),
    _against("dask threads", "svd", 1.05, "U, S and V of the same."),
    _against("dask threads", "ata", 0.9, "x.T @ x of the same."),
    _against("numpy", "matmul", 1.1, "4,000 x 4,000 by itself, in chunks of 1,000 x 1,000; NumPy in one piece."),
    _against("numpy", "fused_e1", 0.35, "((a + b) * c - a / b).sum() of three vectors of 4 x 10^7 in memory."),
    _against(
        "numpy", "fused_e3", 0.55, "(sin(a) * exp(b) + cos(c) * log(b)).sum() of three vectors of 4 x 10^7 in memory."
    ),
    _against(
        "dask threads",
        "map_overlap",
        0.7,
        "The mean of each element of 6,000 x 6,000 in memory with its four neighbours, in chunks of 500 x 500 with a "
        "halo of 1 on both axes, mirrored at the ends; and the sum.",
    ),
    _against(
        "scipy",
        "sparse_matvec",
        1.2,
        "A sparse matrix of 10^6 x 10^6 with 10 elements in each row by a dense vector; SciPy in one piece.",
    ),
    *[_in_one_piece(label, row) for row in (*_UNCUT, *_GIVEN, "map_overlap") for label in ("jax", "pytorch")],
    _in_one_piece("pytorch", "sparse_matvec"),
    Spec(
        "graph_1e6_chunks_s",
        "s",
        _ours("graph_1e6_chunks"),
        0.3,
        "From the call to the first chunk of ((x + 1) * 2 - x).sum() in 10^6 chunks.",
        scaled_by="python",
    ),
    Spec(
        "chunk_overhead_us",
        "us",
        _ours("chunk_overhead"),
        0.04,
        "One of 50,000 chunks of a single element of ((x + 1) * 2 - x).sum(), the whole call divided; dask has 5,000.",
        _peer("dask threads", "chunk_overhead"),
        figure="chunk_s",
        scale=1e6,
    ),
    *[_memory(row) for row in (*_DRAWN, *_GIVEN)],
    *_out_of_core(
        "reduced",
        f"Mean, standard deviation and the share of numbers below their sum of {SIZES.reduced / GB:g} GB of random "
        f"numbers, of which memory={SIZES.memory / GB:g} GB holds a part; against writing and reading as much once.",
    ),
    *_out_of_core(
        "rechunked",
        f"{SIZES.rechunked / GB:g} GB of random numbers from rows to columns, and their mean, with "
        f"memory={SIZES.memory / GB:g} GB; against writing and reading as much once.",
    ),
    *[_in_processes(row, target) for row, target in {**_DRAWN, **_GIVEN}.items()],
)
