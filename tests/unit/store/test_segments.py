"""Segments: one copy in, none out, lifetimes, and a full tmpfs."""

import gc
import os
import sys

import numpy as np
import pyarrow as pa
import pytest

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import DiskFullError, NotFoundError, UnreadableError
from weft.model.failures import Failure
from weft.store import codec, segments, tiers
from weft.store.blocks import BlockManager
from weft.store.disk import LARGE_FILE
from weft.store.segments import SegmentWriter
from weft.worker.run import InputLostError

pytestmark = pytest.mark.usefixtures("few_objects")

LINUX = sys.platform == "linux"


def mapped(path):
    with open("/proc/self/maps") as maps:
        return sum(str(path) in line for line in maps)


def test_values_are_read_from_the_mapping(tmp_path):
    values = [np.arange(100_000), pa.table({"a": np.arange(1000)}), "text", {"k": np.ones(5000)}]
    refs = SegmentWriter(tmp_path).write([codec.encode(value) for value in values])
    array, table, text, nested = map(tiers.read_chunk, refs)
    assert (array == values[0]).all()
    assert table.equals(values[1])
    assert (text, nested["k"].sum()) == ("text", 5000)
    assert not array.flags.writeable
    assert not nested["k"].flags.writeable
    assert refs[0].offset % codec.PAGE == 0
    assert {ref.tier for ref in refs} == {Tier.SHM}


@pytest.mark.parametrize("tier", [Tier.SHM, Tier.DISK])
def test_what_is_gone_is_told_from_what_cannot_be_read_here(tier, tmp_path):
    (ref,) = SegmentWriter(tmp_path).write([codec.encode(np.arange(100_000))])
    ref = ref._replace(tier=tier)
    os.remove(ref.location)
    with pytest.raises(NotFoundError) as gone:
        tiers.read_chunk(ref)
    assert type(gone.value) is NotFoundError
    os.symlink(ref.location, ref.location)  # nobody may follow it, not even root
    with pytest.raises(UnreadableError, match="cannot be read here"):
        tiers.read_chunk(ref)
    kinds = [InputLostError.of("a", 1, error).kind for error in (gone.value, UnreadableError("there"))]
    assert kinds == [Failure.INPUT, Failure.READ]


@pytest.mark.skipif(not LINUX, reason="needs /proc")
def test_a_mapping_lives_as_long_as_its_views(tmp_path):
    (ref,) = SegmentWriter(tmp_path).write([codec.encode({"a": np.arange(400_000)})])
    array = tiers.read_chunk(ref)["a"][5:]
    again = tiers.read_chunk(ref)["a"]
    assert mapped(ref.location) == 1
    os.unlink(ref.location)
    del again
    gc.collect()
    assert array.sum() == sum(range(5, 400_000))
    assert mapped(ref.location) == 1
    del array
    gc.collect()
    assert mapped(ref.location) == 0


@pytest.mark.skipif(not LINUX, reason="needs /proc")
def test_mappings_of_small_files_are_kept_until_forgotten(tmp_path):
    refs = SegmentWriter(tmp_path).write([codec.encode(i) for i in range(50)])
    assert [tiers.read_chunk(ref) for ref in refs] == list(range(50))
    assert mapped(refs[0].location) == 1
    segments.forget(refs[0].location)
    gc.collect()
    assert mapped(refs[0].location) == 0


@pytest.mark.skipif(not LINUX, reason="needs /proc")
def test_no_descriptor_is_held(tmp_path):
    writer = SegmentWriter(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    arrays = []
    for i in range(200):
        (ref,) = writer.write([codec.encode(np.full(20_000, i))])
        arrays.append(tiers.read_chunk(ref))
    assert len(os.listdir("/proc/self/fd")) == before
    assert [int(array[-1]) for array in arrays] == list(range(200))


def test_full_shared_memory_is_an_error_not_a_signal(tiny_tmpfs, tmp_path):
    writer = SegmentWriter(tiny_tmpfs)
    with pytest.raises(DiskFullError, match=str(tiny_tmpfs)):
        writer.write([codec.encode(np.zeros(1 << 19))])
    assert list(tiny_tmpfs.iterdir()) == []
    (tmp_path / "disk").mkdir()
    writer = SegmentWriter(tiny_tmpfs, fallback=tmp_path / "disk")
    (ref,) = writer.write([codec.encode(np.arange(1 << 19))])
    assert ref.tier is Tier.DISK
    assert tiers.read_chunk(ref)[-1] == (1 << 19) - 1


def test_fallback_to_disk_when_writing_fails(tmp_path, full_after):
    for name in ("shm", "disk"):
        (tmp_path / name).mkdir()
    writer = SegmentWriter(tmp_path / "shm", fallback=tmp_path / "disk", writev=full_after(1000))
    refs = writer.write([codec.encode(np.full(1000, i)) for i in range(3)])
    assert [ref.tier for ref in refs] == [Tier.DISK] * 3
    assert [int(tiers.read_chunk(ref)[0]) for ref in refs] == [0, 1, 2]
    assert list((tmp_path / "shm").iterdir()) == []


def test_lost_and_cut_segments(tmp_path):
    (ref,) = SegmentWriter(tmp_path).write([codec.encode(np.arange(400_000))])
    with pytest.raises(NotFoundError, match="ends before"):
        tiers.open_chunk(ref._replace(nbytes=ref.nbytes + 1))
    os.unlink(ref.location)
    gc.collect()
    with pytest.raises(NotFoundError, match="lost"):
        tiers.open_chunk(ref)


def test_parts_in_segments_and_files(tmp_path):
    pieces = [np.full(1000, i) for i in range(4)]
    chunk = codec.encode_parts(pieces)
    (shm,) = SegmentWriter(tmp_path).write([chunk])
    inline = ChunkRef(Tier.INLINE, "", 0, chunk.nbytes, 4, codec.to_bytes(chunk))
    for ref in (shm, shm._replace(tier=Tier.DISK), inline):
        assert [int(tiers.read_chunk_part(ref, part)[0]) for part in range(4)] == [0, 1, 2, 3]


def test_pack_leaves_plain_values_and_packs_the_rest(tmp_path):
    values = [1, None, "s", "t" * 2000, [1, 2], np.arange(3000), [np.arange(300), np.arange(400)]]
    cells = segments.pack(values, SegmentWriter(tmp_path))
    assert cells[:3] == [1, None, "s"]
    assert [cell.tier for cell in cells[3:]] == [Tier.SHM, Tier.INLINE, Tier.SHM, Tier.SHM]
    assert len({cell.location for cell in cells[3:] if cell.location}) == 1
    assert tiers.read_chunk(cells[3]) == "t" * 2000
    assert tiers.read_chunk(cells[4]) == [1, 2]
    cells = segments.pack(values[6:], SegmentWriter(tmp_path), parts=2)
    assert cells[0].parts == 2
    assert tiers.read_chunk_part(cells[0], 1).shape == (400,)


def large_value():
    return codec.encode(np.zeros(LARGE_FILE // 8))


@pytest.mark.skipif(not LINUX, reason="it is reached through /proc")
def test_large_files_lie_in_the_folder_with_large_pages_while_it_is_there(tmp_path):
    place = tmp_path / "shared"
    place.mkdir()
    pages = tmp_path / "pages"
    pages.mkdir()
    held = os.open(pages, os.O_RDONLY)
    large = segments.LargePages(str(place))
    writer = SegmentWriter(place, prefix="w1-")
    small = codec.encode(np.zeros(LARGE_FILE // 16))
    before = writer.write([large_value()])[0]
    large.use(os.getpid(), held)
    os.close(held)
    refs = writer.write([small, large_value(), small])
    assert [os.path.dirname(ref.location) for ref in (before, *refs)] == [
        str(place),
        str(place),
        f"{place}/large",
        str(place),
    ]
    assert [path.stat().st_size for path in pages.iterdir()] == [refs[1].nbytes]
    assert all((tiers.read_chunk(ref) == 0).all() for ref in refs)
    large.close()
    large.close()
    assert os.path.dirname(writer.write([large_value()])[0].location) == str(place)


def test_a_file_system_that_cannot_be_reached_is_left_alone(tmp_path):
    large = segments.LargePages(str(tmp_path))
    closed = os.open(tmp_path, os.O_RDONLY)
    os.close(closed)
    large.use(os.getpid(), closed)
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_dead_writer_are_swept_from_large_pages_too(tmp_path):
    (tmp_path / "large").mkdir()
    store = BlockManager(1 << 30, shm=tmp_path)
    dead, alive = (SegmentWriter(tmp_path, prefix=f"w{number}-") for number in (1, 2))
    for writer in (dead, alive):
        writer.write([large_value()])
    (ref,) = dead.write([large_value()])
    store.put_range(store.column(("job", "v"), 1), 0, [ref])
    assert store.reclaim("w1-") == 1
    assert (tiers.read_chunk(ref) == 0).all()
    store.close()
    assert list((tmp_path / "large").iterdir()) == []
