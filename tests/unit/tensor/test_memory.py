"""The memory of a session is kept to, for data that is many times as large; what can never fit is told beforehand."""

import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.tensor as wt
from weft.frontends.tensors import blocks
from weft.frontends.tensors.arrays import executables
from weft.frontends.tensors.chunks import largest
from weft.frontends.tensors.compiler import compile_nodes
from weft.model.errors import CapacityError, UsageError
from weft.store.accounting import resident_bytes

pytestmark = pytest.mark.slow

MEGA = 2**20


@contextmanager
def watched(backend: str, memory: int) -> Iterator[list[int]]:
    """Open a session; yield a list that gets what its store held at most when the block ends."""
    found: list[int] = []
    ended = threading.Event()
    most = 0

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.001):
            stats = session.engine.store.stats()
            most = max(most, stats.used + stats.reserved)

    with wt.Session(backend=backend, workers=2, memory=memory, direct=False) as session:
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            thread.join()
            found.append(most)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_reduction_of_more_than_the_memory(backend):
    with watched(backend, 16 * MEGA) as most:
        x = wt.random.default_rng(1).random((1600, 8192), chunk_size=(50, 8192))
        assert float(wt.sum(x)) == pytest.approx(1600 * 4096, rel=0.01)
    assert most[0] <= 20 * MEGA


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_chunks_are_changed_through_the_disk(backend):
    with watched(backend, 16 * MEGA) as most:
        x = wt.arange(1600 * 4096, dtype=wt.float64, chunk_size=40 * 4096)
        rows = wt.reshape(x, (1600, 4096))
        columns = rows.rechunk((1600, 100)).execute()
        values = np.arange(1600 * 4096, dtype=float).reshape(1600, 4096)
        np.testing.assert_array_equal(columns[:, 130:150].fetch(), values[:, 130:150])
        np.testing.assert_array_equal(wt.sum(columns, axis=0).fetch(), values.sum(axis=0))
    assert most[0] <= 20 * MEGA


@pytest.mark.parametrize("lengths", [(3000,), (1, 1000, 1000, 999)])
def test_broadcasting_makes_no_large_chunks(lengths):
    values = np.arange(float(sum(lengths)))
    x = wt.tensor(values, chunk_size=(lengths,))
    made = np.subtract.outer(x, x)
    assert largest(made.node.grid) * 8 <= 4 * MEGA
    assert float(abs(made).sum()) == abs(np.subtract.outer(values, values)).sum()
    columns = wt.ones((3000, 1000), chunk_size=(3000, 1000))
    assert (columns * x[:, None]).chunks == columns.chunks  # those of an operand stay


def test_a_task_that_can_never_fit_is_told_before_anything_runs():
    made = []

    class Noted:
        shape, dtype = (4_000_000,), np.dtype(float)

        def __getitem__(self, index):
            made.append(index)
            return np.zeros(4_000_000)[index]

    with wt.Session(backend="threads", workers=1, memory=16 * MEGA):
        x = wt.from_array(Noted(), chunk_size=400_000)
        told = (
            r"a task of rechunk-multiply needs .* bytes, .* left of memory=16,777,216\. .*float64, 1 chunk of 4000000"
        )
        with pytest.raises(CapacityError, match=told) as error:
            (x.rechunk(-1) * 2).execute()
        assert "Use smaller chunks" in str(error.value.hint)
        assert not made
        assert float(wt.sum(x)) == 0
    (enough,) = map(int, re.findall(r"(\d+) MiB or more", str(error.value.hint)))
    assert enough <= 2 * 96
    with wt.Session(backend="threads", workers=1, memory=enough * MEGA):
        assert float((x.rechunk(-1) * 2)[5]) == 0


def test_large_parts_of_a_product_are_added_few_at_a_time():
    """Eight of the 11 parts, each of 18 MB, do not fit."""
    with wt.Session(backend="threads", workers=1, memory=256 * MEGA, direct=False):
        tall = wt.ones((16_384, 1500), chunk_size=(256, 1500))
        made = (tall.T @ tall).execute()
        assert made[7, 1499].fetch() == 16_384
        assert float(wt.max(made)) == float(wt.min(made)) == 16_384


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_what_only_then_is_known_not_to_fit_is_told_in_the_same_words(backend):
    def words(x):
        with pytest.raises(CapacityError) as error:
            (x.rechunk(-1) * 2).execute()
        return re.sub(r", (mask|add) ", ", ", error.value.message), error.value.hint

    with wt.Session(backend=backend, workers=2, memory=16 * MEGA, direct=False):
        x = wt.arange(4 * MEGA, dtype=wt.float64, chunk_size=MEGA // 4)
        assert words(x[x >= 0]) == words(x + 0)


def test_the_memory_is_that_of_the_process():
    """What it holds already is taken off, but for half; with workers of their own nothing is."""
    held = resident_bytes()
    with wt.Session(workers=1, memory=held + 200 * MEGA) as session:
        assert (
            max(100 * MEGA, held // 2) <= session.engine.store.memory.budget <= max(200 * MEGA, held // 2 + 100 * MEGA)
        )
    with wt.Session(workers=1, memory=8 * MEGA) as session:
        assert session.engine.store.memory.budget == 4 * MEGA
    with wt.Session(backend="processes", workers=1, memory=8 * MEGA) as session:
        assert session.engine.store.memory.budget == 8 * MEGA
    with weft.Session(workers=1, memory=MEGA) as plain:
        assert plain.store.memory.budget == MEGA


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_memory_in_which_nothing_runs_is_refused(backend):
    with pytest.raises(UsageError, match="memory is 1,000 bytes") as error:
        wt.Session(backend=backend, memory="1KB")
    assert "at least 4MiB; 32MiB for every function" in str(error.value.hint)
    for memory, make in ((4, lambda a: (a + 1).sum()), (32, wt.sort), (32, wt.median)):
        with wt.Session(backend=backend, workers=2, memory=memory * MEGA, direct=False) as session:
            session.run(make(wt.arange(400_000, dtype=wt.float64)))


def test_a_session_for_graphs_computes_no_arrays():
    x = wt.arange(10**6, chunk_size=10**5)
    wt.stop_server()
    with weft.Session(workers=1) as session:
        with pytest.raises(UsageError, match="Session, which computes no arrays"):
            wt.fetch(x + 1, session=session)
        with pytest.warns(UserWarning, match="not by the open weft.Session"):
            assert int(wt.max(x)) == 10**6 - 1
        assert int(wt.min(x)) == 0  # it is told once
    wt.stop_server()
    assert int(wt.max(x + 1)) == 10**6


PROGRAMS = {
    "reduced": "x = random((24 * 2**20,), chunk_size=2**19); m = x.mean(); wt.fetch(m, (x < m + x.std()).mean())",
    "rechunked": "float(random((3072, 8192), chunk_size=(64, 8192)).rechunk((3072, 170)).mean())",
    "sorted": "int(wt.argsort(random(12 * 2**20)).max())",
    "transformed": "float(abs(wt.fft.fft(random((3072, 8192)), axis=0)).max())",
    "counted": "wt.fetch(*[one.max() for one in wt.unique_counts(random(12 * 2**20))])",
    "numbered": "wt.fetch(*[one.max() for one in wt.unique_inverse(random(12 * 2**20))])",
    "contained": "float(wt.isin(random(12 * 2**20), random(6 * 2**20)).mean())",
    "distinct": "wt.fetch(*[one.max() for one in wt.unique_all(random(12 * 2**20))])",
}
PARTS_OF_DISTINCT = ("counted", "numbered")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say what a process held")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if name in PARTS_OF_DISTINCT else []) for name in PROGRAMS]
)
def test_a_process_never_holds_more_than_the_memory(name, tmp_path):
    """96 MiB of numbers or more with 140 MiB; what the process held at most is what the system says."""
    program = f"""
import weft.tensor as wt
random = wt.random.default_rng(1).random
with wt.Session(workers=2, memory=140 * 2**20, spill={str(tmp_path)!r}) as session:
    {PROGRAMS[name]}
    assert session.engine.store.stats().spilled > 2**26
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 <= 140 * MEGA


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say what a process held")
@pytest.mark.parametrize(
    "source",
    ["wt.from_array(np.load(path, mmap_mode='r')[1:], chunk_size=(1, -1))", "wt.load(path, chunk_size=(1, -1))"],
)
def test_the_pages_of_a_map_are_held_no_longer_than_a_chunk_is_read(source, tmp_path):
    """128 MiB are read from a file; what the process holds of files is what the system says."""
    path = str(tmp_path / "x.npy")
    np.save(path, np.arange(16 * MEGA, dtype=float).reshape(64, -1))
    program = f"""
import numpy as np, weft.tensor as wt
def held():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("RssFile")))
path = {path!r}
with wt.Session(workers=2, memory=64 * 2**20, direct=False):
    wt.fetch(wt.ones((64, 64), chunk_size=16) + 1)
    x = {source}
    before = held()
    assert float(wt.max(x)) == {16 * MEGA - 1}
    print(held() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 <= 16 * MEGA


def processes_below(pid: int) -> list[int]:
    """Return a process and all those below it."""
    found = [pid]
    with suppress(OSError):  # one of them has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += processes_below(int(child))
    return found


def own_bytes(pid: int) -> int:
    """Return the resident bytes of a process without shared memory; each page of a file counts once."""
    with suppress(OSError):
        rows = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
        return sum(int(row[1]) * 1024 for row in rows if row[0] in ("Pss_Anon:", "Pss_File:"))
    return 0


def shared_bytes(folder: Path, pids: list[int]) -> int:
    """Return the bytes of the files of shared memory, and of removed ones that a process still maps."""
    removed: dict[str, int] = {}
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                if str(folder) in line and line.endswith("(deleted)"):
                    span, _, _, _, inode, *_ = line.split()
                    lo, hi = (int(end, 16) for end in span.split("-"))
                    removed[inode] = hi - lo
    files = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            files += path.stat().st_blocks * 512
    return files + sum(removed.values())


SORTED_AND_TRANSFORMED = {
    "sorted": lambda n: wt.argsort(wt.random.random(n)),
    "transformed": lambda n: abs(wt.fft.fft(wt.random.random((5120, n // 5120)), axis=0)),
}


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not say what is shared")
@pytest.mark.parametrize("name", SORTED_AND_TRANSFORMED)
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_all_processes_hold_no_more_than_the_memory_together(backend, name):
    """Twice the limit is computed. The sum of all processes exceeds that before the work by the limit and a base.

    The base is what interpreters and code take: 8 MiB. Two samples in a row must show an excess, since a value that
    moves between two places may be seen in both.
    """
    limit = 40
    held: list[int] = []
    ended = threading.Event()
    compute = SORTED_AND_TRANSFORMED[name]
    with wt.Session(workers=2, memory=limit * MEGA, backend=backend, direct=False) as session:
        folder = Path(getattr(session.engine.executor, "_shm", "/nonexistent"))
        for warmed in SORTED_AND_TRANSFORMED.values():
            wt.fetch(wt.max(warmed(2 * MEGA)))
        before = sum(map(own_bytes, processes_below(os.getpid())))

        def watch() -> None:
            while not ended.wait(0.004):
                pids = processes_below(os.getpid())
                held.append(sum(map(own_bytes, pids)) + shared_bytes(folder, pids))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            wt.fetch(wt.max(compute(limit * MEGA // 4)))
        finally:
            ended.set()
            thread.join()
        assert session.engine.store.stats().spilled > limit * MEGA // 2
    again = before // 100  # what earlier tests have freed and the allocator takes up again
    assert max(map(min, pairwise(held))) - before <= (limit + 8) * MEGA + again


def test_chunks_are_chosen_for_the_memory():
    with wt.Session(workers=2, memory=64 * MEGA):
        assert max(wt.zeros(100 * MEGA).chunks[0]) * 8 <= 4 * MEGA
        assert max(wt.random.random(100 * MEGA).chunks[0]) * 8 <= 4 * MEGA


@pytest.mark.parametrize("shape", [(3000, 3000, 3000), (20, 90_000, 40), (300, 3000, 1100)])
def test_a_product_in_chunks_that_were_chosen_fits(shape):
    rows, inner, columns = shape
    with wt.Session(workers=2, memory=64 * MEGA, backend="processes"):
        product = wt.ones((rows, inner)) @ wt.ones((inner, columns))
        several = wt.ones((3, rows, inner)) @ wt.ones((inner, columns))
        compile_nodes([product._node, several._node]).check(16 * MEGA)
        np.testing.assert_array_equal(product[:2, -3:].fetch(), np.full((2, 3), inner))


def test_an_axis_that_must_be_whole_does_not_make_chunks_larger():
    x = wt.zeros((10_000, 1_000), chunk_size=(100, 1_000)).node
    made = blocks.whole_along(x, (0,))
    assert made.grid[0].n == 1
    assert largest(made.grid) <= max(largest(x.grid), MEGA // 8)


@pytest.mark.parametrize("backend", ["direct", "threads", "processes"])
def test_pieces_make_the_same_chunks(backend, monkeypatch, seed):
    monkeypatch.setattr(blocks, "WHOLE_CHUNKS_BYTES", 0)
    monkeypatch.setattr(blocks, "WHOLE_CHUNKS", 0)
    rng = random.Random(seed)
    arguments = {"backend": "threads" if backend == "direct" else backend, "direct": backend == "direct"}
    with wt.Session(workers=2, **arguments):
        for _ in range(20 if backend == "direct" else 6):
            shape = [rng.randint(1, 12) for _ in range(rng.randint(1, 3))]
            values = np.arange(float(np.prod(shape))).reshape(shape)
            x = wt.asarray(values, chunk_size=tuple([rng.randint(1, size) for size in shape]))
            y = x.rechunk(tuple([rng.randint(1, size) for size in shape]))
            np.testing.assert_array_equal((y + 1).fetch(), values + 1, err_msg=f"{x.chunks} {y.chunks}")
            z = y.rechunk(tuple([rng.randint(1, size) for size in shape]))
            np.testing.assert_array_equal(z.fetch(), values, err_msg=f"{x.chunks} {z.chunks}")


def test_tasks_say_what_they_hold():
    x = wt.random.random((1000, 1000), chunk_size=(500, 1000))
    (vertex,) = compile_nodes([(x * 2 + 1)._node]).graph.vertices.values()
    assert vertex.output_bytes == 4_000_000
    assert vertex.scratch_bytes == 0, "what lies between is made tile by tile"
    (vertex,) = compile_nodes([wt.sort(x * 2, axis=1)._node]).graph.vertices.values()
    assert vertex.output_bytes == 4_000_000
    assert vertex.scratch_bytes >= 4_000_000, "the chunk that is sorted"


def test_chunks_that_nobody_reads_are_not_made():
    made = []

    def noted(chunk):
        made.append(len(chunk))
        return chunk

    with wt.Session(workers=2, direct=False):
        x = wt.map_chunk(wt.arange(1000, chunk_size=10), noted)
        made.clear()
        assert wt.sum(x[15:35] + 1).fetch() == sum(range(16, 36))
        assert made == [10] * 3


def test_a_transform_counts_the_complex_copy_of_its_input():
    x = wt.random.random((64, 64), chunk_size=64)
    compiled = compile_nodes([abs(wt.fft.fft(x, axis=0))._node])
    real = 64 * 64 * 8
    compiled.check(6 * real)
    with pytest.raises(CapacityError):
        compiled.check(5 * real)  # real input, complex copy and complex value, beside the chunk of the result


def test_an_array_that_no_memory_holds_is_not_computed_to_be_fetched(monkeypatch):
    monkeypatch.setattr(executables, "memory_bytes", lambda: 2 << 30)
    x = wt.ones((3 << 27,), chunk_size=1 << 24)
    with pytest.raises(CapacityError, match=r"values to fetch take 3\.0 GiB, and the memory here is 2\.0 GiB"):
        x.fetch()
    assert not x._ready()
    assert wt.fetch(x[:3]).tolist() == [1, 1, 1]
