"""A computation of tensors that is cancelled, wherever it is: while it is prepared, and at each stage of its tasks.

Preparation: the graph is made, it is handed over, its tasks wait for workers, its lengths are waited for. A task waits
for memory, reads, computes, and its result goes to the store. Nothing is left, a worker process that computed is dead,
and the session goes on.
"""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.compiler import compile_nodes
from weft.store.blocks import BlockManager
from weft.store.disk import ChunkFiles
from weft.store.spilling import SpillWriter
from weft.store.tiers import as_tier

MEGA = 2**20
DEADLINE_S = 180.0


class Gate:
    """Something that waits until a file is there, in whatever process, and says that it does."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def wait(self) -> None:
        Path(self.folder, f"begun.{os.getpid()}").touch()
        while not Path(self.folder, "open").exists():
            time.sleep(0.002)

    def __call__(self, chunk: Any) -> Any:
        self.wait()
        return chunk

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is called when the gate is open."""

        def held(*args: Any, **kwargs: Any) -> Any:
            self.wait()
            return function(*args, **kwargs)

        return held

    def open(self) -> None:
        Path(self.folder, "open").touch()

    def begun(self) -> list[int]:
        """The processes that wait, or have waited."""
        return [int(path.suffix[1:]) for path in Path(self.folder).glob("begun.*")]


class Held(Gate):
    """An array whose parts are read when the gate is open."""

    shape = (MEGA // 4,)
    dtype = np.dtype(np.float64)

    def __getitem__(self, index: Any) -> Any:
        self.wait()
        return np.zeros(MEGA // 4)[index]


class Slow(ChunkFiles):
    """A disk that takes what it is given when the gate is open."""

    gate: Gate

    def write(self, chunks: Any) -> Any:
        self.gate.wait()
        return super().write(chunks)


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def nothing_is_left(session: wt.Session) -> None:
    def empty() -> bool:
        gc.collect()
        stats = session.engine.store.stats()
        return (stats.used, stats.reserved, stats.disk, stats.waiting_tasks) == (0, 0, 0, 0)

    until(empty)
    store = session.engine.store
    assert isinstance(store, BlockManager)
    folders = store.roots
    until(lambda: not [name for at in folders for name in os.listdir(at) if name.endswith((".chunks", ".part"))])


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(params=["threads", "processes"])
def session(request) -> Iterator[wt.Session]:
    with wt.Session(backend=request.param, workers=2, memory=32 * MEGA, direct=False, grace_s=0.05) as session:
        yield session


def cancelled(session: wt.Session, later: Any, gate: Gate, *, here: bool = False) -> None:
    """Cancel a computation that waits at a gate, and see that nothing of it goes on; `here`: no task of it waits."""
    assert later.cancel()
    if here:
        gate.open()
    with pytest.raises(CancelledError):
        later.result(DEADLINE_S)
    assert later.cancelled()
    if session.apart and not here:
        assert gate.begun()
        until(lambda: all(map(gone, gate.begun())))  # before the gate opens: they were killed
    gate.open()
    nothing_is_left(session)
    assert float(wt.sum(wt.ones(MEGA // 8, chunk_size=MEGA // 32)).fetch(session)) == MEGA // 8


def ones() -> wt.Tensor:
    return wt.ones(MEGA // 4, chunk_size=MEGA // 16)


def test_while_the_graph_is_made(session, tmp_path, monkeypatch):
    gate = Gate(tmp_path)
    monkeypatch.setattr("weft.tensor.sessions.compile_nodes", gate.before(compile_nodes))
    later = session.submit(ones() * 2)
    until(gate.begun)
    assert later.cancel()
    monkeypatch.undo()
    cancelled(session, later, gate, here=True)


def test_while_it_is_handed_over(session, tmp_path, monkeypatch):
    gate = Gate(tmp_path)
    monkeypatch.setattr(session.engine, "submit", gate.before(session.engine.submit))
    later = session.submit(ones() * 2)
    until(gate.begun)
    assert later.cancel()
    monkeypatch.undo()
    cancelled(session, later, gate, here=True)


def test_while_its_tasks_wait_for_workers(session, tmp_path):
    gate = Gate(tmp_path)
    first = session.submit(ones().map_chunk(gate, dtype=np.float64))
    until(lambda: len(gate.begun()) == (2 if session.apart else 1))
    later = session.submit(ones() * 2)
    assert later.cancel()
    with pytest.raises(CancelledError):
        later.result(DEADLINE_S)
    cancelled(session, first, gate)


def test_while_its_lengths_are_waited_for(session, tmp_path):
    """The function is called where the rest of the graph is made: it is asked for the type of what it returns."""
    gate = Gate(tmp_path)
    x = ones()
    gate.open()
    made = x[x > 0][::2].map_chunk(gate)
    for path in tmp_path.iterdir():
        path.unlink()
    later = session.submit(made)
    until(gate.begun)
    cancelled(session, later, gate)


def test_while_a_task_waits_for_memory(session, tmp_path):
    gate = Gate(tmp_path)
    n = session.engine.store.memory.budget // 8 // 3
    later = session.submit(wt.ones(2 * n, chunk_size=n).map_chunk(gate, dtype=np.float64))
    until(lambda: session.engine.store.stats().waiting_tasks and gate.begun())
    cancelled(session, later, gate)


def test_while_a_task_reads(session, tmp_path):
    gate = Held(tmp_path)
    later = session.submit(wt.from_array(gate, chunk_size=MEGA // 16) * 2)
    until(gate.begun)
    cancelled(session, later, gate)


def test_while_a_task_computes(session, tmp_path):
    gate = Gate(tmp_path)
    later = session.submit(ones().map_chunk(gate, dtype=np.float64) + 1)
    until(gate.begun)
    cancelled(session, later, gate)


def test_while_a_result_goes_to_the_store(session, tmp_path):
    """There is no room, and others are written to disk for it."""
    gate, store = Gate(tmp_path), session.engine.store
    assert isinstance(store, BlockManager)
    slow = Slow(store.roots[-1])
    slow.gate = gate
    store._writer = SpillWriter(as_tier(slow), None)
    later = session.submit(wt.arange(16 * MEGA, dtype=wt.float64, chunk_size=MEGA // 8) * 2)
    until(gate.begun)
    cancelled(session, later, gate, here=True)


def test_several_times_is_as_good_as_once(session, tmp_path):
    gate = Gate(tmp_path)
    later = session.submit(ones().map_chunk(gate, dtype=np.float64))
    until(gate.begun)
    together = [threading.Thread(target=later.cancel) for _ in range(4)]
    for one in together:
        one.start()
    for one in together:
        one.join()
    gate.open()
    with pytest.raises(CancelledError):
        later.result(DEADLINE_S)
    assert later.cancel()
    nothing_is_left(session)
