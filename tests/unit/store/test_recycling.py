"""Files of freed segments: written again only if nobody looks, given up when room is needed."""

import errno
import os
import sys

import numpy as np
import pytest

from weft.store import codec, recycling, tiers
from weft.store.blocks import BlockManager
from weft.store.recycling import RECYCLED, FreeFiles
from weft.store.segments import SegmentWriter

MIB = 1 << 20
alone = recycling._alone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases on files are Linux's")


@pytest.fixture
def place(tmp_path):
    if not recycling.trusted(str(tmp_path)):
        pytest.skip("the file system of the temporary folder has no leases")
    return tmp_path


def write(writer, value, count=200_000):
    (ref,) = writer.write([codec.encode(np.full(count, float(value)))])
    return ref


def kept(place):
    folder = place / RECYCLED
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_a_freed_file_is_written_again(place):
    free = FreeFiles([str(place)], 100 * MIB)
    writer = SegmentWriter(place)
    first = write(writer, 1)
    inode = os.stat(first.location).st_ino
    assert free.keep(first.location, 100 * MIB)
    assert not os.path.exists(first.location)
    second = write(writer, 2, 190_000)
    assert os.stat(second.location).st_ino == inode
    assert os.stat(second.location).st_size == second.nbytes
    assert second.location != first.location
    assert tiers.read_chunk(second).tolist() == [2.0] * 190_000
    assert kept(place) == []


def test_an_array_that_outlives_its_cell_does_not_change(place, monkeypatch):
    free = FreeFiles([str(place)], 100 * MIB)
    writer = SegmentWriter(place)
    first = write(writer, 1)
    array = tiers.read_chunk(first)
    assert free.keep(first.location, 100 * MIB)
    second = write(writer, 2)
    assert (array == 1).all()
    assert (tiers.read_chunk(second) == 2).all()
    assert len(kept(place)) == 1
    monkeypatch.setattr(recycling, "LOOKS", 1)
    third = write(writer, 3)
    assert (array == 1).all()
    assert (tiers.read_chunk(third) == 3).all()
    assert kept(place) == []


def test_a_file_that_is_read_for_a_little_longer_is_written_again(place):
    free = FreeFiles([str(place)], 100 * MIB)
    writer = SegmentWriter(place)
    first = write(writer, 1)
    inode = os.stat(first.location).st_ino
    array = tiers.read_chunk(first)
    assert free.keep(first.location, 100 * MIB)
    second = write(writer, 2)
    assert (array == 1).all()
    assert os.stat(second.location).st_ino != inode
    del array
    assert os.stat(write(writer, 3).location).st_ino == inode
    assert kept(place) == []


def test_a_writer_looks_at_few_files_in_use(place, monkeypatch):
    monkeypatch.setattr(recycling, "TRIES", 2)
    free = FreeFiles([str(place)], 100 * MIB)
    writer = SegmentWriter(place)
    refs = [write(writer, number) for number in range(3)]
    arrays = [tiers.read_chunk(ref) for ref in refs[:2]]
    for ref in refs:
        assert free.keep(ref.location, 100 * MIB)
    write(writer, 3)
    assert len(kept(place)) == 3
    assert [array[0] for array in arrays] == [0, 1]


@pytest.mark.parametrize("count", [90_000, 500_000])
def test_a_file_of_another_size_is_left(place, count):
    free = FreeFiles([str(place)], 100 * MIB)
    writer = SegmentWriter(place)
    assert free.keep(write(writer, 1).location, 100 * MIB)
    assert (tiers.read_chunk(write(writer, 2, count)) == 2).all()
    assert len(kept(place)) == 1


@pytest.mark.parametrize(("count", "limit", "room"), [(100, 10, 10), (200_000, 1, 10), (200_000, 10, 1), (0, 10, 10)])
def test_what_is_small_or_has_no_room_is_not_kept(place, count, limit, room):
    free = FreeFiles([str(place)], limit * MIB)
    path = place / "one.chunks"
    path.write_bytes(bytes(8 * count))
    assert not free.keep(str(path), room * MIB)
    assert path.exists()


def test_what_was_taken_makes_room_for_more(place):
    free = FreeFiles([str(place)], 2 * MIB)
    writer = SegmentWriter(place)
    first, second = write(writer, 1), write(writer, 2)
    assert free.keep(first.location, 9 * MIB)
    assert not free.keep(second.location, 9 * MIB)
    write(writer, 3)
    assert free.keep(second.location, 9 * MIB)


def test_a_store_keeps_within_its_budget_and_leaves_nothing(place):
    store = BlockManager(8 * MIB, shm=place)
    writer = SegmentWriter(place, prefix="w-")
    column = store.column(("j", "v"), 8)
    store.put_range(column, 0, [write(writer, 1)])
    store.free_range(column, 0, 1)
    assert len(kept(place)) == 1
    store.put_range(column, 1, [write(writer, i) for i in range(4)])  # the first of them takes what was kept
    assert kept(place) == []
    store.free_range(column, 1, 3)
    assert len(kept(place)) == 1  # a quarter of the budget
    with store.memory.reserve("task", 4 * MIB):
        assert kept(place) == []
    store.free_range(column, 3, 5)
    assert len(kept(place)) == 1
    store.close()
    assert os.listdir(place) == []


def test_a_full_disk_gets_back_what_was_kept(place):
    free = FreeFiles([str(place)], 100 * MIB)
    room = 1

    def writev(fd, buffers):
        if kept(place) or not room:
            raise OSError(errno.ENOSPC, "full")
        return os.writev(fd, buffers)

    assert free.keep(write(SegmentWriter(place), 1).location, 100 * MIB)
    ref = write(SegmentWriter(place, writev=writev), 2, 800_000)
    assert (tiers.read_chunk(ref) == 2).all()


def test_nothing_is_kept_where_leases_tell_nothing(place, monkeypatch):
    monkeypatch.setattr(recycling, "_known", {})
    monkeypatch.setattr(recycling, "_alone", lambda fd: True)
    path = write(SegmentWriter(place), 1).location
    free = FreeFiles([str(place)], 100 * MIB)
    assert not free.keep(path, 100 * MIB)
    assert os.path.exists(path)


def test_a_process_that_starts_meanwhile_does_not_end_the_keeping(place, monkeypatch):
    free = FreeFiles([str(place)], 100 * MIB)
    path = write(SegmentWriter(place), 1).location
    with monkeypatch.context() as busy:
        busy.setattr(recycling, "_known", {})
        busy.setattr(recycling, "_alone", lambda fd: False)  # it has copies of all descriptors
        assert not free.keep(path, 100 * MIB)
        busy.setattr(recycling, "_alone", alone)
        assert free.keep(path, 100 * MIB)
