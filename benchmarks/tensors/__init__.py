"""What arrays cost: chunked arithmetic against dask on two threads and against NumPy, and the price of a chunk."""

from __future__ import annotations

from benchmarks.harness import Side, Spec


def _ours(case: str) -> Side:
    return Side("weft", "benchmarks.tensors.ours", case)


def _peer(label: str, case: str) -> Side:
    module = "peer_numpy" if label == "numpy" else "peer_dask"
    return Side(label, f"benchmarks.tensors.{module}", case, peer=True)


def _against(label: str, name: str, target: float, about: str) -> Spec:
    return Spec(name, "s", _ours(name), target, about, _peer(label, name))


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
    Spec(
        "graph_1e6_chunks_s",
        "s",
        _ours("graph_1e6_chunks"),
        0.3,
        "From the call to the first chunk of ((x + 1) * 2 - x).sum() in 10^6 chunks.",
    ),
    Spec(
        "chunk_overhead_us",
        "us",
        _ours("chunk_overhead"),
        20.0,
        "One of 50,000 chunks of a single element of ((x + 1) * 2 - x).sum(), the whole call divided.",
        scale=1e6 / 50_000,
    ),
)
