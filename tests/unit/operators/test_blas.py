"""Threads of BLAS while chunks are computed."""

import os

import numpy as np
import pytest
import threadpoolctl

import weft.tensor as wt
from weft.operators.blas import shared_by

CORES = os.cpu_count() or 1


def threads() -> list[int]:
    return [one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"]


@pytest.mark.skipif(not threads(), reason="this NumPy has a BLAS that cannot be told its threads")
def test_each_worker_has_its_share_while_chunks_are_computed_and_no_longer():
    before = threads()
    seen = []

    def look(chunk):
        seen.extend(threads())
        return chunk

    with wt.Session(workers=2, direct=False) as session:
        wt.map_chunk(wt.ones(6, chunk_size=2), look, dtype=np.float64).fetch(session)
    assert set(seen) == {max(1, CORES // 2)}
    assert threads() == before


def _look(chunk):
    return chunk * 0 + 100 * min(threads()) + max(threads())


@pytest.mark.skipif(not threads(), reason="this NumPy has a BLAS that cannot be told its threads")
def test_worker_processes_have_their_share_of_the_cores():
    before = threads()
    with wt.Session(backend="processes", workers=2, direct=False) as session:
        made = wt.map_chunk(wt.ones(40_000, chunk_size=10_000), _look, dtype=np.float64).fetch(session)
        assert set(made.tolist()) == {101 * max(1, CORES // 2)}
        alone = wt.map_chunk(wt.ones(10_000, chunk_size=10_000), _look, dtype=np.float64).fetch(session)
        assert set(alone.tolist()) == {101 * CORES}, "one task has all of them"
    assert threads() == before


def test_those_who_share_at_the_same_time_put_it_back_once():
    before = threads()
    with shared_by(CORES), shared_by(2):
        assert all(n == 1 for n in threads())
    assert threads() == before
