"""The keeper: budget, eviction, pins, spill and restore, full disks; and its books, checked after random work."""

import gc
import os
import random
import threading
from contextlib import suppress

import numpy as np
import pytest

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import CapacityError, DiskFullError, InternalError, NotFoundError
from weft.store import accounting, codec, libc, memory, segments, tiers
from weft.store.api import ABSENT, SMALL
from weft.store.blocks import BlockManager
from weft.store.disk import ChunkFiles
from weft.store.segments import SegmentWriter

KIB = 1024
WAIT_S = 60


def array(value, nbytes=100 * KIB):
    return np.full(nbytes // 8, value, dtype=np.int64)


@pytest.fixture
def folders(tmp_path):
    for name in ("shm", "spill"):
        (tmp_path / name).mkdir()
    return {"shm": tmp_path / "shm", "spill": tmp_path / "spill"}


def check_books(store, pins=()):
    """Count everything anew and compare with what the keeper has added up."""
    used = shm = on_disk = evictable = pinned = 0
    live: dict[str, int] = {}
    for entry in {entry for pin in pins for entry in pin._entries if entry.dead}:
        used += entry.nbytes
        on_disk += entry.on_disk
        shm += entry.nbytes if entry.tier is Tier.SHM else 0
        pinned += 1
        if entry.ref is not None and entry.ref.location in store._files.locations():
            live[entry.ref.location] = live.get(entry.ref.location, 0) + 1
    for column in store._columns.values():
        used += column.small_bytes
        small = 0
        for index, cell in enumerate(column.values):
            entry = column.tracked.get(index)
            if cell is ABSENT:
                assert entry is None
                assert not column.readable
                continue
            assert not (column.readable and type(cell) is ChunkRef)
            if entry is None:
                small += 1
                assert type(cell) is not ChunkRef or cell.tier is Tier.INLINE
                continue
            assert not entry.busy
            assert not entry.dead
            assert (entry.tier is Tier.MEMORY) == (type(cell) is not ChunkRef)
            used += entry.nbytes
            on_disk += entry.on_disk
            shm += entry.nbytes if entry.tier is Tier.SHM else 0
            pinned += entry.pins > 0
            in_lru = entry.tier in (Tier.MEMORY, Tier.SHM) and not entry.pins and not entry.unpicklable
            assert (entry in store.memory.lru) == in_lru
            evictable += entry.nbytes if in_lru else 0
            if entry.ref is not None and entry.ref.location in store._files.locations():
                live[entry.ref.location] = live.get(entry.ref.location, 0) + 1
        assert column.small_count == small
    assert live == {path: file.live for path, file in store._files._files.items()}
    pending = {"shm": 0, "spill": 0}
    for path, file in store._files._files.items():
        pending["shm" if "/shm/" in path else "spill"] += file.pending
    stats = store.stats()
    viewed = store.memory.viewed
    assert stats.shm == shm + pending["shm"] + viewed
    assert stats.used == used + pending["shm"] + viewed
    assert stats.disk == on_disk + pending["spill"]
    assert (stats.evictable, stats.pinned_chunks) == (evictable, pinned)


# ------------------------------------------------------------------------------------------------------ small values


def test_small_values_are_only_summed():
    store = BlockManager(1 << 20)
    column = store.column(("j", "v"), 100)
    store.put_range(column, 0, list(range(50)))
    store.put_range(column, 50, ["x" * 100] * 10)
    store.put_range(column, 60, [1, 2, 3], total_bytes=7)
    assert store.stats().used == 50 * 32 + 10 * 149 + 7
    assert not column.tracked
    check_books(store)
    store.free_range(column, 0, 63)
    assert store.stats().used == 0
    check_books(store)


def test_absent_among_the_values_is_not_counted():
    store = BlockManager(1 << 20)
    column = store.column(("j", "v"), 3)
    store.put_range(column, 0, [1, ABSENT, "x"])
    check_books(store)
    store.free_range(column, 0, 3)
    assert store.stats().used == 0


def test_a_column_is_readable_while_all_of_its_cells_are_values_of_fixed_size():
    store = BlockManager(KIB * KIB)
    column = store.column(("j", "v"), 4)
    store.put_range(column, 0, [1, 2.0, None])
    assert not column.readable
    store.put_range(column, 3, [True])
    assert column.readable
    assert store.take_cells(("j", "v"), [1, 2], ("kept", "1")).readable
    column = store.column(("j", "w"), 2)
    store.put_range(column, 0, [1, 2])
    store.free_range(column, 1, 2)
    assert not column.readable
    store.put_range(column, 1, ["text"])
    assert not column.readable


def test_values_from_the_limit_on_are_tracked():
    store = BlockManager(1 << 20)
    column = store.column(("j", "v"), 2)
    store.put_range(column, 0, [np.zeros(SMALL - 1, "i1"), np.zeros(SMALL, "i1")])
    assert list(column.tracked) == [1]
    check_books(store)


# ---------------------------------------------------------------------------------------------------------- eviction


def test_the_garbage_collector_visits_no_record_of_a_chunk():
    with BlockManager(1 << 20) as store:
        column = store.column(("job", "v"), 3)
        store.put_range(column, 0, [bytes(SMALL)] * 3)
        assert [gc.is_tracked(entry) for entry in column.tracked.values()] == [False] * 3


def test_the_least_recently_used_leaves_first(folders):
    store = BlockManager(350 * KIB, **folders)
    column = store.column(("j", "v"), 4)
    for i in range(3):
        store.put_range(column, i, [array(i)])
    store.load(column, 0)
    store.put_range(column, 3, [array(3)])
    assert [type(cell) is ChunkRef for cell in column.values] == [False, True, False, False]
    assert store.stats().used <= store.memory.budget
    check_books(store)
    assert store.load(column, 1)[0] == 1
    assert type(column.values[1]) is np.ndarray
    assert [type(cell) is ChunkRef for cell in column.values] == [False, False, True, False]
    check_books(store)


def test_a_full_folder_is_no_fallback_for_itself(folders, recwarn):
    store = BlockManager(250 * KIB, **folders, overflow=folders["spill"])
    column = store.column(("j", "v"), 3)
    folders["spill"].rmdir()
    with pytest.raises(CapacityError) as caught:
        store.put_range(column, 0, [array(i) for i in range(3)])
    assert "instead" not in caught.value.message
    assert caught.value.message.count(str(folders["spill"])) == 1
    assert not recwarn.list


def test_the_policy_decides_who_leaves(folders):
    seen = []

    def newest_first(info):
        seen.append((info.job, info.vertex, info.index, info.nbytes, info.tier))
        return -info.used

    store = BlockManager(350 * KIB, spill=folders["spill"], eviction=newest_first)
    column = store.column(("j", "v"), 4)
    store.put_range(column, 0, [array(i) for i in range(4)])
    assert [type(cell) is ChunkRef for cell in column.values] == [False, False, False, True]
    assert ("j", "v", 2, 100 * KIB, Tier.MEMORY) in seen


def test_a_chunk_with_a_copy_on_disk_leaves_for_nothing(folders):
    store = BlockManager(250 * KIB, **folders)
    column = store.column(("j", "v"), 3)
    store.put_range(column, 0, [array(i) for i in range(3)])
    for _ in range(3):
        for i in range(3):
            assert store.load(column, i)[0] == i
    assert store.stats().spilled <= 3 * 101 * KIB
    assert store.stats().restored > store.stats().spilled
    check_books(store)


def test_a_durable_output_is_the_copy(folders, tmp_path):
    (tmp_path / "outputs").mkdir()
    store = BlockManager(150 * KIB, **folders)
    column = store.column(("j", "v"), 2)
    (ref,) = ChunkFiles(tmp_path / "outputs", durable=True).write([codec.encode(array(0))])
    store.put_range(column, 0, [array(0)])
    store.add_copy(column, 0, ref)
    store.put_range(column, 1, [array(1)])
    assert column.values[0] is ref
    assert store.stats().spilled == 0
    assert store.load(column, 0)[0] == 0
    check_books(store)
    store.close()
    assert codec.decode(tiers.read(ref))[0] == 0  # not the keeper's to remove


def test_the_single_consumer_is_served_privately(folders):
    store = BlockManager(150 * KIB, **folders)
    column = store.column(("j", "v"), 2)
    store.put_range(column, 0, [array(0), array(1)])
    before = store.stats()
    assert type(column.values[0]) is ChunkRef
    value = store.load(column, 0, last=True)
    value[:] = 5  # its own memory
    assert store.stats() == before._replace(restored=before.spilled)
    assert type(column.values[0]) is ChunkRef
    assert store.load(column, 0)[0] == 0
    assert store.stats().restored > before.restored


def test_readers_at_the_same_time_do_not_share_the_room_that_each_has_made(folders, monkeypatch):
    store = BlockManager(250 * KIB, **folders)
    column = store.column(("j", "v"), 4)
    store.put_range(column, 0, [array(i) for i in range(4)])
    assert [type(cell) is ChunkRef for cell in column.values] == [True, True, False, False]
    read = tiers.read

    def others_first(ref):
        monkeypatch.setattr(tiers, "read", read)
        for i in (1, 2, 3):
            assert store.load(column, i)[0] == i
        return read(ref)

    monkeypatch.setattr(tiers, "read", others_first)
    assert store.load(column, 0)[0] == 0
    assert store.stats().used <= store.memory.budget
    check_books(store)


def test_restored_values_cannot_be_written_to(folders):
    store = BlockManager(150 * KIB, **folders)
    column = store.column(("j", "v"), 2)
    store.put_range(column, 0, [array(0), array(1)])
    with pytest.raises(ValueError, match="read-only"):
        store.load(column, 0)[0] = 3


def test_what_cannot_be_pickled_stays(folders):
    class Held:
        nbytes = 100 * KIB

        def __reduce__(self):
            raise TypeError("not me")

    store = BlockManager(150 * KIB, **folders)
    column = store.column(("j", "v"), 3)
    held = Held()
    store.put_range(column, 0, [held, array(1), array(2)])
    assert column.values[0] is held
    assert [type(cell) is ChunkRef for cell in column.values] == [False, True, True]
    check_books(store)
    store.free_range(column, 0, 3)
    assert store.stats().used == 0


def test_without_a_disk_nothing_leaves():
    store = BlockManager(100 * KIB)
    column = store.column(("j", "v"), 3)
    store.put_range(column, 0, [array(i) for i in range(3)])
    assert store.stats().used == 300 * KIB


# -------------------------------------------------------------------------------------------------------------- pins


def test_pinned_chunks_stay(folders):
    store = BlockManager(250 * KIB, **folders)
    column = store.column(("j", "v"), 5)
    store.put_range(column, 0, [array(0), array(1), 7])
    with store.pin(column, range(3)) as pin, store.pin(column, [0]):
        store.put_range(column, 3, [array(3), array(4)])
        assert [type(cell) is ChunkRef for cell in column.values] == [False, False, False, True, True]
        check_books(store)
        pin.release()
        assert store.stats().pinned_chunks == 1
    assert store.stats().pinned_chunks == 0
    store.load(column, 3)
    assert store.stats().used <= store.memory.budget
    check_books(store)


def test_a_freed_chunk_counts_as_long_as_an_array_views_its_pages(folders):
    store = BlockManager(4 << 20, shm=folders["shm"])
    column = store.column(("j", "v"), 1)
    store.put_range(column, 0, segments.pack([np.ones(200_000)], SegmentWriter(folders["shm"])))
    view = store.load(column, 0)[5:]
    before = store.stats().used
    store.free_range(column, 0, 1)
    assert not [path for path in folders["shm"].rglob("*") if path.is_file()]
    assert store.stats().used >= view.nbytes
    assert store.memory.try_reserve("too much", (4 << 20) - before + 1) is None
    check_books(store)
    assert view.sum() == 199_995
    del view
    assert store.stats().used == 0
    with store.memory.reserve("all", 4 << 20):
        pass
    check_books(store)
    store.close()


def test_a_freed_chunk_keeps_its_file_while_pinned(folders):
    store = BlockManager(1 << 20, **folders)
    column = store.column(("j", "v"), 1)
    store.put_range(column, 0, SegmentWriter(folders["shm"]).write([codec.encode(array(3))]))
    ref = column.values[0]
    pin = store.pin(column, [0])
    store.free_range(column, 0, 1)
    assert column.values[0] is ABSENT
    assert tiers.read_chunk(ref)[0] == 3
    assert store.stats().used == ref.nbytes
    pin.release()
    pin.release()
    assert store.stats().used == 0
    assert list(folders["shm"].iterdir()) == []


class SlowDisk:
    """A disk whose first write waits until it is told to go on."""

    def __init__(self, writev):
        self.started, self.go_on = threading.Event(), threading.Event()
        self.writev = writev

    def __call__(self, fd, pieces):
        self.started.set()
        assert self.go_on.wait(WAIT_S)
        return self.writev(fd, pieces)


def spilling_slowly(folders):
    """A keeper in the middle of spilling cell 0 of its column, in another thread."""
    slow = SlowDisk(os.writev)
    store = BlockManager(150 * KIB, shm=folders["shm"], spill=ChunkFiles(folders["spill"], writev=slow))
    column = store.column(("j", "v"), 2)
    store.put_range(column, 0, [array(0)])
    thread = threading.Thread(target=store.put_range, args=(column, 1, [array(1)]))
    thread.start()
    assert slow.started.wait(WAIT_S)

    def finish():
        slow.go_on.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()

    return store, column, finish


def test_the_lock_is_free_while_bytes_are_written(folders):
    store, column, finish = spilling_slowly(folders)
    other = store.column(("j", "w"), 1)
    store.put_range(other, 0, [5])
    assert store.load(other, 0) == 5
    assert store.load(column, 0)[0] == 0
    finish()
    assert type(column.values[0]) is ChunkRef
    check_books(store)


def test_a_chunk_pinned_while_it_is_spilled_stays(folders):
    store, column, finish = spilling_slowly(folders)
    pin = store.pin(column, [0])
    finish()
    assert type(column.values[0]) is not ChunkRef
    check_books(store)
    pin.release()
    assert store.memory.make_room(100 * KIB)
    assert type(column.values[0]) is ChunkRef
    assert len(list(folders["spill"].iterdir())) <= 2
    check_books(store)


def test_a_chunk_shared_while_it_is_spilled_stays_in_shared_memory(folders):
    store, column, finish = spilling_slowly(folders)
    with store.pin(column, [0]):
        (cell,) = store.share(column, [0])
        finish()
        assert cell.tier is Tier.SHM
        assert column.values[0] is cell
        assert tiers.read_chunk(cell)[0] == 0
    check_books(store)
    store.free_range(column, 0, 2)
    assert store.stats()[1:6] == (0, 0, 0, 0, 0)


def test_a_chunk_freed_while_it_is_spilled_is_gone(folders):
    store, column, finish = spilling_slowly(folders)
    store.free_range(column, 0, 1)
    finish()
    assert column.values[0] is ABSENT
    check_books(store)
    store.free_range(column, 0, 2)
    assert store.stats()[1:6] == (0, 0, 0, 0, 0)
    assert list(folders["spill"].iterdir()) == []


def test_a_chunk_replaced_while_it_is_spilled_is_the_new_one(folders):
    store, column, finish = spilling_slowly(folders)
    store.put_range(column, 0, [9])
    finish()
    assert store.load(column, 0) == 9
    check_books(store)


# ----------------------------------------------------------------------------------------------------- shared memory


def test_segments_of_workers_are_counted_spilled_and_removed(folders):
    store = BlockManager(250 * KIB, **folders)
    column = store.column(("j", "v"), 4)
    cells = segments.pack([array(0), array(1), 5, array(2)], SegmentWriter(folders["shm"]))
    store.put_range(column, 0, cells)
    assert store.stats().used <= store.memory.budget
    assert [getattr(cell, "tier", None) for cell in column.values] == [Tier.DISK, Tier.SHM, None, Tier.SHM]
    check_books(store)
    assert [store.load(column, i)[0] for i in (0, 1, 3)] == [0, 1, 2]
    check_books(store)
    store.free_range(column, 0, 4)
    assert store.stats()[1:6] == (0, 0, 0, 0, 0)
    assert [path for folder in folders.values() for path in folder.iterdir()] == []


def test_a_reader_finds_a_chunk_that_moves_to_disk_meanwhile(folders, monkeypatch):
    store = BlockManager(1 << 20, **folders)
    column = store.column(("j", "v"), 1)
    store.put_range(column, 0, SegmentWriter(folders["shm"]).write([codec.encode(array(3, 2 << 20))]))
    opened = tiers.open_chunk

    def moved_first(ref):
        monkeypatch.setattr(tiers, "open_chunk", opened)
        store.memory.budget = 0
        store.memory.make_room(0)
        return opened(ref)

    assert type(column.values[0]) is ChunkRef
    store.memory.budget = 4 << 20
    monkeypatch.setattr(tiers, "open_chunk", moved_first)
    assert store.load(column, 0)[0] == 3


def test_chunks_of_one_file_may_go_into_several_columns(folders):
    store = BlockManager(1 << 20, **folders)
    first, second = store.column(("j", "v"), 1), store.column(("j", "w"), 1)
    refs = SegmentWriter(folders["shm"]).write([codec.encode(array(i)) for i in range(3)])
    assert len({ref.location for ref in refs}) == 1
    with store.holding(refs):
        store.put_range(first, 0, refs[:1])
        store.free_range(first, 0, 1)
        store.put_range(second, 0, refs[1:2])
        assert store.load(second, 0)[0] == 1
    check_books(store)
    assert store.load(second, 0)[0] == 1
    store.drop(("j", "w"))
    assert list(folders["shm"].iterdir()) == []
    with store.holding(SegmentWriter(folders["shm"]).write([codec.encode(array(0))])):
        pass
    assert list(folders["shm"].iterdir()) == []


def test_share_moves_large_values_to_shared_memory(folders):
    store = BlockManager(1 << 20, **folders)
    column = store.column(("j", "v"), 5)
    store.put_range(column, 0, [array(0), 5, "text", {"k": 1}, array(4)])
    with store.pin(column, range(5)):
        cells = store.share(column, range(5))
        tiers_of = [getattr(cell, "tier", None) for cell in cells]
        assert tiers_of == [Tier.SHM, None, Tier.INLINE, Tier.INLINE, Tier.SHM]
        assert cells[1] == 5
        assert tiers.read_chunk(cells[4])[0] == 4
        assert store.share(column, [4, 0]) == [cells[4], cells[0]]
        check_books(store)
    assert store.load(column, 0)[0] == 0
    store.free_range(column, 0, 5)
    assert list(folders["shm"].iterdir()) == []
    with pytest.raises(NotFoundError):
        store.share(column, [0])


def test_share_needs_shared_memory():
    store = BlockManager(1 << 20)
    column = store.column(("j", "v"), 2)
    store.put_range(column, 0, [array(0), "x"])
    assert store.share(column, [1])[0].tier is Tier.INLINE
    with pytest.raises(InternalError, match="shared memory"):
        store.share(column, [0])


def test_files_of_a_dead_worker_are_reclaimed(folders):
    store = BlockManager(1 << 20, **folders)
    column = store.column(("j", "v"), 1)
    writer = SegmentWriter(folders["shm"], prefix="worker-3-")
    store.put_range(column, 0, writer.write([codec.encode(array(1))]))
    writer.write([codec.encode(array(2))])
    SegmentWriter(folders["shm"], prefix="worker-30-").write([codec.encode(array(2))])
    assert store.reclaim("worker-3-") == 1
    assert store.reclaim("worker-3-") == 0
    assert len(list(folders["shm"].iterdir())) == 2
    assert store.load(column, 0)[0] == 1


def test_files_elsewhere_are_read_and_left(folders, tmp_path):
    store = BlockManager(1 << 20, **folders)
    column = store.column(("j", "v"), 2)
    elsewhere = [ChunkFiles(tmp_path, tier=tier).write([codec.encode(array(1))])[0] for tier in (Tier.DISK, Tier.SHM)]
    store.put_range(column, 0, elsewhere)
    assert store.stats().used == 0
    assert [store.load(column, i)[0] for i in range(2)] == [1, 1]
    check_books(store)
    store.drop(("j", "v"))
    assert all(codec.decode(tiers.read(ref))[0] == 1 for ref in elsewhere)


def test_close_removes_every_file(folders):
    store = BlockManager(150 * KIB, **folders)
    column = store.column(("j", "v"), 4)
    store.put_range(column, 0, [array(i) for i in range(3)])
    store.put_range(column, 3, SegmentWriter(folders["shm"]).write([codec.encode(array(2, 2 << 10))]))
    SegmentWriter(folders["shm"], prefix="dead").write([codec.encode(array(2))])
    pin = store.pin(column, range(4))
    assert list(folders["spill"].iterdir())
    store.close()
    store.close()
    pin.release()
    assert [path for folder in folders.values() for path in folder.iterdir()] == []


# ------------------------------------------------------------------------------------------------------------- parts


@pytest.mark.skipif(not libc.CAN_PUNCH, reason="no holes on this system")
@pytest.mark.parametrize("tier", ["shm", "spill"])
def test_freed_parts_give_back_their_pages(folders, tier):
    store = BlockManager(8 << 20 if tier == "shm" else 0, **folders)
    column = store.column(("j", "v"), 2, parts=8)
    values = [[array(10 * i + p, 64 * KIB) for p in range(8)] for i in range(2)]
    if tier == "shm":
        values = segments.pack(values, SegmentWriter(folders["shm"]), parts=8)
    store.put_range(column, 0, values)

    def blocks():
        return sum(path.stat().st_blocks * 512 for path in folders[tier].iterdir())

    before, counted = blocks(), store.stats().shm + store.stats().disk
    store.free_parts(column, 0, 4, 0, 2)
    if blocks() == before:
        pytest.skip("no holes on this file system")
    assert before - blocks() >= 2 * 4 * 60 * KIB
    assert counted - store.stats().shm - store.stats().disk >= 2 * 4 * 60 * KIB
    assert store.load_part(column, 1, 4)[0] == 14
    with pytest.raises(NotFoundError):
        store.load_part(column, 1, 2)
    check_books(store)
    store.free_parts(column, 4, 8, 0, 2)
    assert column.values == [ABSENT, ABSENT]
    assert [path for path in folders[tier].iterdir() if path.is_file()] == []
    assert store.stats()[1:6] == (0, 0, 0, 0, 0)


def test_parts_that_are_views_of_one_array_count_until_the_last_is_freed(folders):
    store = BlockManager(1 << 20, **folders)
    column = store.column(("j", "v"), 1, parts=4)
    whole = np.zeros((4, 8192))
    store.put_range(column, 0, [[whole[p] for p in range(4)]])
    store.free_parts(column, 0, 3, 0, 1)
    assert store.stats().used >= whole.nbytes
    store.free_parts(column, 3, 4, 0, 1)
    assert store.stats().used == 0


def test_what_was_freed_is_given_back_before_the_process_is_too_large(folders, monkeypatch):
    held, given = [80 * KIB], []

    def give_back():
        given.append(held[0])
        held[0] = 10 * KIB

    monkeypatch.setattr(memory, "resident_bytes", lambda: held[0])
    monkeypatch.setattr(libc, "give_back", give_back)
    for ceiling, wanted in ((100 * KIB, [80 * KIB]), (None, [])):
        given.clear()
        held[0] = 80 * KIB
        store = BlockManager(90 * KIB, ceiling=ceiling, **folders)
        with store.memory.reserve("a", 15 * KIB):
            assert not given, "there is room for both"
            with store.memory.reserve("b", 15 * KIB), store.memory.reserve("c", 15 * KIB):
                assert given == wanted
        store.close()


def test_freed_parts_in_memory_make_room(folders):
    store = BlockManager(1 << 20, **folders)
    column = store.column(("j", "v"), 1, parts=4)
    store.put_range(column, 0, [[array(p) for p in range(4)]])
    store.free_parts(column, 1, 3, 0, 1)
    assert 200 * KIB <= store.stats().used < 201 * KIB
    check_books(store)
    store.memory.budget = 0
    store.memory.make_room(0)
    assert column.values[0].parts == 4
    assert store.load_part(column, 0, 3)[0] == 3
    with pytest.raises(NotFoundError, match="freed"):
        store.load_part(column, 0, 1)


# --------------------------------------------------------------------------------------------------------- full disk


def test_a_full_disk_fails_the_caller_and_nobody_else(folders, full_after):
    files = ChunkFiles(folders["spill"], writev=full_after(120 * KIB))
    store = BlockManager(250 * KIB, shm=folders["shm"], spill=files)
    column = store.column(("j", "v"), 6)
    store.put_range(column, 0, [array(i) for i in range(3)])
    check_books(store)
    with pytest.raises(DiskFullError, match=str(folders["spill"])):
        store.put_range(column, 3, [array(3), 4])
    assert column.values[3:] == [ABSENT] * 3
    check_books(store)
    assert [store.load(column, i)[0] for i in range(3)] == [0, 1, 2]
    store.put_range(column, 4, [4])
    with pytest.raises(DiskFullError):
        store.memory.reserve("v[9]", 200 * KIB)
    assert store.stats()[2::6] == (0, 0)  # nothing reserved, nobody waits
    store.free_range(column, 1, 3)
    with store.memory.reserve("v[9]", 200 * KIB):
        pass
    check_books(store)


def test_a_value_that_cannot_be_kept_is_read_all_the_same(folders, full_after):
    files = ChunkFiles(folders["spill"], writev=full_after(120 * KIB))
    store = BlockManager(150 * KIB, spill=files)
    column = store.column(("j", "v"), 2)
    store.put_range(column, 0, [array(0), array(1)])
    assert type(column.values[0]) is ChunkRef
    assert store.load(column, 0)[0] == 0
    assert type(column.values[0]) is ChunkRef
    check_books(store)


def test_a_broken_disk_leaves_memory_as_it_was(folders):
    def broken(fd, pieces):
        raise OSError(5, "Input/output error")

    store = BlockManager(150 * KIB, spill=ChunkFiles(folders["spill"], writev=broken))
    column = store.column(("j", "v"), 2)
    store.put_range(column, 0, [array(0)])
    with pytest.raises(CapacityError, match="Input/output error"):
        store.put_range(column, 1, [array(1)])
    assert store.load(column, 0)[0] == 0
    check_books(store)


# ------------------------------------------------------------------------------------------------------- random work


def random_work(store, column, parted, writer, rng, turns):
    """Random puts, loads, frees and pins on one thread's columns; asserts what it reads, yields its pins every turn."""
    model, pins = {}, []
    for _ in range(turns):
        what = rng.choice(["put", "put", "put", "load", "load", "free", "pin", "unpin", "parts", "share"])
        i = rng.randrange(len(column))
        if what == "put":
            value = rng.choice(
                [rng.randrange(100), array(rng.randrange(100), rng.choice([2, 30, 90]) * KIB), "x" * 600]
            )
            packed = segments.pack([value], writer) if rng.random() < 0.4 else [value]
            store.put_range(column, i, packed)
            model[i] = value
        elif what == "load" and i in model:
            found = store.load(column, i, last=rng.random() < 0.3)
            assert np.array_equal(found, model[i])
        elif what == "free":
            hi = min(len(column), i + rng.randrange(3))
            store.free_range(column, i, hi)
            for index in range(i, hi):
                model.pop(index, None)
        elif what == "pin":
            pins.append(store.pin(column, [i, (i + 1) % len(column)]))
        elif what == "unpin" and pins:
            pins.pop(rng.randrange(len(pins))).release()
        elif what == "share" and i in model:
            with store.pin(column, [i]):
                (cell,) = store.share(column, [i])
                found = tiers.read_chunk(cell) if type(cell) is ChunkRef else cell
                assert np.array_equal(found, model[i])
        elif what == "parts":
            j = rng.randrange(len(parted))
            if parted.values[j] is ABSENT or rng.random() < 0.3:
                value = [array(p, rng.choice([1, 40]) * KIB) for p in range(4)]
                store.put_range(parted, j, segments.pack([value], writer, parts=4) if rng.random() < 0.5 else [value])
            else:
                part = rng.randrange(4)
                with suppress(NotFoundError):  # freed before
                    assert store.load_part(parted, j, part)[0] == part
                store.free_parts(parted, part, rng.randrange(part, 5), j, j + 1)
        yield pins
    for pin in pins:
        pin.release()


def test_the_books_are_right_after_any_work(folders, seed):
    rng = random.Random(seed)
    for budget in (0, 200 * KIB, 1 << 20):
        store = BlockManager(budget, **folders)
        writer = SegmentWriter(folders["shm"])
        columns = store.column(("j", "v"), 12), store.column(("j", "w"), 4, parts=4)
        for pins in random_work(store, *columns, writer, rng, 300):
            check_books(store, pins)
            stats = store.stats()
            assert stats.used <= budget or not stats.evictable
        check_books(store)
        for key in (("j", "v"), ("j", "w")):
            store.drop(key)
        assert store.stats()[1:6] == (0, 0, 0, 0, 0)
        assert [path for folder in folders.values() for path in folder.iterdir()] == []


def test_the_books_are_right_after_work_of_several_threads(folders, seed):
    store = BlockManager(400 * KIB, **folders)
    failures = []

    def work(who):
        try:
            columns = store.column(("j", f"v{who}"), 12), store.column(("j", f"w{who}"), 4, parts=4)
            extra = store.column(("j", f"x{who}"), 2)
            rng = random.Random(seed * 10 + who)
            for turn, pins in enumerate(random_work(store, *columns, SegmentWriter(folders["shm"]), rng, 200)):
                if turn % 20 == 0:
                    while pins:  # whoever waits pins nothing
                        pins.pop().release()
                    with store.memory.reserve(f"v{who}", rng.randrange(100) * KIB) as grant:
                        store.put_range(extra, 0, [5, array(1)], within=grant)
                        store.free_range(extra, 0, 2)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), store.stats()
    if failures:
        raise failures[0]
    check_books(store)
    store.close()
    assert store.stats()[1:6] == (0, 0, 0, 0, 0)
    assert [path for folder in folders.values() for path in folder.iterdir()] == []


def test_the_default_budget_is_within_memory_and_mount(tmp_path):
    assert 0 < accounting.default_budget() == accounting.memory_bytes() // 2
    assert 0 < accounting.default_budget(tmp_path) <= accounting.default_budget()
    assert accounting.default_budget(tmp_path / "missing") == accounting.default_budget()
    assert BlockManager().memory.budget == accounting.default_budget()


def test_cells_are_taken_over_by_a_new_column(folders):
    store = BlockManager(500 * KIB, **folders)
    old = store.column(("job", "v"), 6)
    store.put_range(old, 0, [array(0), 1, array(2), array(3), "four", array(5)])
    pin = store.pin(old, [3])
    new = store.take_cells(("job", "v"), [3, 4, 0], ("kept", "1"))
    assert [np.max(store.load(new, 0)), store.load(new, 1), np.max(store.load(new, 2))] == [3, "four", 0]
    assert store.stats().used < 300 * KIB
    check_books(store, [pin])
    pin.release()
    with pytest.raises(NotFoundError):
        store.load(old, 0)
    more = store.column(("job", "w"), 4)
    store.put_range(more, 0, [array(at) for at in range(4)])
    assert isinstance(new.values[0], ChunkRef) or isinstance(new.values[2], ChunkRef)
    assert [np.max(store.load(new, 0)), np.max(store.load(new, 2))] == [3, 0]
    check_books(store)
    store.drop(("kept", "1"))
    store.drop(("job", "w"))
    assert store.stats().used == store.stats().disk == 0
    with pytest.raises(NotFoundError, match="no column"):
        store.take_cells(("job", "v"), [0], ("kept", "2"))
