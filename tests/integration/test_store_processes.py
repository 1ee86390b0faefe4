"""The store between real processes: no copies, no leaks, and nothing left by a process that was killed."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests import started
from weft.model.chunks import ChunkRef, Tier
from weft.store import codec, tiers
from weft.store.blocks import BlockManager
from weft.store.folders import RunFolders, sweep
from weft.store.segments import SegmentWriter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
MIB = 1 << 20


def start(code, *args):
    return started.start(
        [sys.executable, "-c", code, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def stop(process, *, kill=False):
    if kill:
        process.kill()
    process.communicate(timeout=180)


@pytest.fixture
def shm():
    """A folder in real shared memory, where no file may be left at the end."""
    folder = Path(tempfile.mkdtemp(prefix="store-", dir="/dev/shm"))
    yield folder
    left = [path for path in folder.rglob("*") if path.is_file()]
    shutil.rmtree(folder)
    assert left == []


READER = """
import sys
import numpy
from weft.model.chunks import ChunkRef, Tier
from weft.store import tiers
ref = ChunkRef(Tier.SHM, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

def of_mapping():
    found, here = {}, False
    for line in open("/proc/self/smaps"):
        key = line.split()[0]
        if "-" in key and not key.endswith(":"):
            here = ref.location in line
        elif here:
            number = line.split()[1]
            found[key[:-1]] = found.get(key[:-1], 0) + (int(number) if number.isdigit() else 0)
    return found

def private():
    return sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Private_Dirty"))

tiers.read_chunk(ref).sum()
before = private()
array = tiers.read_chunk(ref)
total = array.sum()
usage = of_mapping()
mine = usage["Private_Dirty"] + usage["Private_Clean"]
print(int(total), usage["Rss"], usage["Pss"], mine, private() - before, flush=True)
sys.stdin.read()
"""


def test_a_second_process_maps_a_chunk_without_a_copy(shm, tmp_path):
    with RunFolders("run", shm, tmp_path) as run, BlockManager(1 << 30, shm=run.shm) as store:
        column = store.column(("j", "v"), 1)
        store.put_range(column, 0, SegmentWriter(run.shm).write([codec.encode(np.ones(4 * MIB))]))
        mine = store.load(column, 0)
        assert mine.sum() == 4 * MIB  # touched here, so every page has two users
        ref = column.values[0]
        reader = start(READER, ref.location, ref.offset, ref.nbytes)
        total, rss, pss, private, grown = map(int, reader.stdout.readline().split())
        stop(reader)
        assert total == 4 * MIB
        assert rss >= 32 * 1024
        assert pss <= rss * 0.6
        assert private <= 64
        assert grown <= 4 * 1024


HOLDER = """
import sys
from pathlib import Path
import numpy
from weft.store import codec
from weft.store.folders import RunFolders
from weft.store.blocks import BlockManager
from weft.store.segments import SegmentWriter
run = RunFolders("killed", Path(sys.argv[1]), Path(sys.argv[2]))
store = BlockManager(3 << 20, shm=run.shm, spill=run.spill)
column = store.column(("j", "v"), 8)
for i in range(8):
    store.put_range(column, i, SegmentWriter(run.shm).write([codec.encode(numpy.full(1 << 17, i))]))
print(store.stats().disk > 0, column.values[7].location, column.values[7].nbytes, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_owner_held_is_swept_and_readers_keep_what_they_mapped(shm, tmp_path):
    holder = start(HOLDER, shm, tmp_path)
    spilled, path, nbytes = holder.stdout.readline().split()
    assert spilled == "True"
    mine = tiers.read_chunk(ChunkRef(Tier.SHM, path, 0, int(nbytes)))
    assert sweep(shm) == []  # alive
    assert os.path.exists(path)
    stop(holder, kill=True)
    assert sweep(shm) == ["killed"]
    assert not os.path.exists(path)
    assert (mine == 7).all()


WORKER = """
import pickle
import sys
import numpy
from weft.store import segments
from weft.store.segments import SegmentWriter
writer = SegmentWriter(sys.argv[1], prefix="worker-1-")
cells = segments.pack([numpy.full(50_000, i) for i in range(4)] + [5, "x"], writer)
lost = segments.pack([numpy.zeros(200_000)], writer)
with open(f"{sys.argv[1]}/worker-1-half.chunks.part", "wb") as half_written:
    half_written.write(bytes(4_000_000))
    print(pickle.dumps(cells).hex(), flush=True)
    sys.stdin.read()
"""


def test_a_killed_worker_leaves_what_it_reported_and_nothing_else(shm, tmp_path):
    with RunFolders("run", shm, tmp_path) as run, BlockManager(1 << 30, shm=run.shm, spill=run.spill) as store:
        worker = start(WORKER, run.shm)
        cells = pickle.loads(bytes.fromhex(worker.stdout.readline()))
        stop(worker, kill=True)
        column = store.column(("j", "v"), 6)
        store.put_range(column, 0, cells)
        assert store.reclaim("worker-1-") == 2
        assert len(list(run.shm.glob("*.chunks"))) == 1
        assert [int(store.load(column, i)[-1]) for i in range(4)] == [0, 1, 2, 3]
        assert [store.load(column, i) for i in (4, 5)] == [5, "x"]


CONSUMER = """
import os, pickle, sys
from weft.store import tiers
for line in sys.stdin:
    cells = pickle.loads(bytes.fromhex(line))
    arrays = [tiers.read_chunk(cell) for cell in cells]
    total = sum(int(array[0]) for array in arrays)
    del arrays
    held = sum(sys.argv[1] in mapping for mapping in open("/proc/self/maps"))
    print(total, held, len(os.listdir("/proc/self/fd")), flush=True)
"""


def test_a_long_lived_consumer_holds_neither_mappings_nor_descriptors(shm, tmp_path):
    with RunFolders("run", shm, tmp_path) as run, BlockManager(1 << 30, shm=run.shm, spill=run.spill) as store:
        before, seen = len(os.listdir("/proc/self/fd")), []
        consumer = start(CONSUMER, run.shm)
        for turn in range(5):
            column = store.column(("j", f"v{turn}"), 10)
            store.put_range(column, 0, [np.full(200_000, i) for i in range(10)])
            with store.pin(column, range(10)):
                cells = store.share(column, range(10))
                consumer.stdin.write(pickle.dumps(cells).hex() + "\n")
                consumer.stdin.flush()
                total, held, descriptors = map(int, consumer.stdout.readline().split())
            assert (total, held) == (45, 0)
            seen.append(descriptors)
            store.drop(("j", f"v{turn}"))
        stop(consumer)
        assert len(set(seen)) == 1, seen
        assert len(os.listdir("/proc/self/fd")) <= before  # other tests may have left some to the collector
        assert [path.name for path in run.shm.iterdir() if path.is_file()] == ["owner.lock"]
