"""Tensors when workers die, disks are full and people press Ctrl-C: right results or one clear error, nothing left."""

import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from weft.engine.commands import Launch
from weft.frontends.tensors import blocked_factorizations, blocks, sample_sort
from weft.frontends.tensors.compiler import compile_nodes
from weft.model.errors import DiskFullError
from weft.store.blocks import BlockManager
from weft.store.disk import ChunkFiles
from weft.store.spilling import SpillWriter
from weft.store.tiers import as_tier

MEGA = 2**20
VALUES = np.random.default_rng(7).normal(size=(120, 120))
TALL = VALUES.reshape(1440, 10)
SYSTEM = VALUES + 20 * np.eye(120)

KINDS: dict[str, tuple[str, Callable[[], Any], Any]] = {
    # name: what the vertex is called in which a worker is killed, the expression, what it should be
    "element by element": ("add", lambda: array() * 2 + 1, VALUES * 2 + 1),
    "reduction": ("combine", lambda: wt.sum(array(), axis=0), VALUES.sum(axis=0)),
    "pieces of chunks": ("split", lambda: array().rechunk((120, 7)), VALUES),
    "chunks of pieces": ("rechunk", lambda: array().rechunk((120, 7)), VALUES),
    "product": ("matmul", lambda: wt.matmul(array(), array()), VALUES @ VALUES),
    "running sum": ("carry", lambda: wt.cumulative_sum(array(), axis=0), VALUES.cumsum(axis=0)),
    "qr": ("q", lambda: wt.matmul(*wt.linalg.qr(array(TALL))), TALL),
    "svd": ("join", lambda: wt.linalg.svd(array(TALL), full_matrices=False).S, np.linalg.svd(TALL)[1]),
    "sort": ("merge", lambda: wt.sort(wt.reshape(array(), (-1,))), np.sort(VALUES, axis=None)),
    "panels": ("less_lu", lambda: wt.linalg.solve(array(SYSTEM), VALUES), np.linalg.solve(SYSTEM, VALUES)),
}


def array(values: np.ndarray = VALUES) -> wt.Tensor:
    return wt.asarray(values, chunk_size=(len(values) // 8, values.shape[1]))


def until(condition: Callable[[], Any]) -> None:
    woken = threading.Event()
    for _ in range(3000):
        if condition():
            return
        woken.wait(0.01)
    raise AssertionError("it did not come to that")


def nothing_is_left(session: wt.Session) -> None:
    gc.collect()
    until(lambda: session.engine.store.stats().used == 0)
    store = session.engine.store
    assert isinstance(store, BlockManager)
    folders = store.roots
    until(lambda: not [name for at in folders for name in os.listdir(at) if name.endswith((".chunks", ".part"))])


@pytest.fixture(scope="module")
def session():
    with wt.Session(backend="processes", workers=2, direct=False) as session:
        yield session


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    """Have few elements go the ways of many."""
    monkeypatch.setattr(blocks, "WHOLE_CHUNKS_BYTES", 0)
    monkeypatch.setattr(blocks, "WHOLE_CHUNKS", 1)
    monkeypatch.setattr(sample_sort, "SORTED_FROM", 0)
    monkeypatch.setattr(blocked_factorizations, "BLOCKED_FROM", 0)
    monkeypatch.setattr(blocked_factorizations, "NARROWEST", 30)


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_dies_in_the_middle_of(kind, session):
    name, expression, wanted = KINDS[kind]
    node = expression()._node
    compiled = compile_nodes([node], held=session._holds)
    killed: list[str] = []

    def kill(job, events, commands):
        for command in commands:
            if type(command) is Launch and not killed and name in command.vertex.split("-") and command.worker >= 0:
                pid = session.engine.executor.pids.get(command.worker)
                if pid is not None:
                    killed.append(command.vertex)
                    os.kill(pid, signal.SIGKILL)

    given = {vertex: session._kept(one) for vertex, one in compiled.given.items()}
    run = session.engine.submit(compiled.graph, listeners=[kill], given=given)
    chunks = run.result()[compiled.vertex(node)]
    found = np.empty(node.shape, node.dtype)
    for at, chunk in enumerate(chunks):
        place = node.place(at)
        found[tuple([slice(lo, lo + n) for lo, n in zip(place.begin, place.shape, strict=True)])] = chunk
    assert killed, f"no task of {list(compiled.graph.vertices)} is called {name}"
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
    del chunks, chunk, given
    run.forget()
    del node, compiled
    nothing_is_left(session)


class Full(ChunkFiles):
    """A disk that takes nothing."""

    def write(self, chunks: Any) -> Any:
        raise DiskFullError("no room for chunks", hint="Free some space there.")


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_full_disk_is_one_clear_error_and_the_session_goes_on(backend):
    with wt.Session(backend=backend, workers=2, memory=8 * MEGA, direct=False) as session:
        store = session.engine.store
        assert isinstance(store, BlockManager)
        store._writer = SpillWriter(as_tier(Full(store.roots[-1])), None)
        x = wt.arange(4 * MEGA, dtype=wt.float64, chunk_size=MEGA // 8)
        with pytest.raises(DiskFullError, match="no room for chunks"):
            (x * 2).execute()
        assert float(wt.sum(x[:1000])) == 999 * 500
        nothing_is_left(session)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_ctrl_c_frees_everything(backend, tmp_path):
    """The signal comes from a task, when others have made chunks."""
    main = os.getpid()

    def press(chunk):
        if chunk[0] == 3 * MEGA // 8:
            os.kill(main, signal.SIGINT)
        return chunk + 1

    with wt.Session(backend=backend, workers=2, direct=False) as session:
        x = wt.arange(MEGA, dtype=wt.float64, chunk_size=MEGA // 8)
        with pytest.raises(KeyboardInterrupt):
            (wt.map_chunk(x * 1, press, dtype=np.float64) * 2).execute()
        nothing_is_left(session)
        assert float(wt.sum(x[:10])) == 45
