"""The quota of tasks: in one batch, first come first served, refused if it can never fit, woken and cancelled."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from weft.model.chunks import ChunkRef
from weft.model.errors import CapacityError, RunCancelledError, WeftError
from weft.store.blocks import BlockManager

KIB = 1024
WAIT_S = 60


class Asker:
    """A thread that asks for memory; `granted` is set when it has it."""

    def __init__(self, store, owner, nbytes, order=None, **options):
        self.granted = threading.Event()
        self.error = None
        self.reservation = None

        def ask():
            try:
                self.reservation = store.memory.reserve(owner, nbytes, **options)
                if order is not None:
                    order.append(owner)
            except WeftError as error:
                self.error = error
            self.granted.set()

        self.thread = threading.Thread(target=ask)
        self.thread.start()

    def done(self):
        assert self.granted.wait(WAIT_S), "it waits for ever"
        self.thread.join(WAIT_S)
        return self.reservation


def wait_until(condition):
    pause = threading.Event()
    for _ in range(WAIT_S * 200):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("the condition never came true")


def waiting(store, count):
    wait_until(lambda: store.stats().waiting_tasks == count)


def test_pieces_of_a_chunk_hold_the_rest_of_it_only_while_there_is_room():
    store = BlockManager(100 * KIB)
    column = store.column(("j", "v"), 2, parts=2)
    for index, made in enumerate((False, True)):
        chunk = np.arange(40 * KIB, dtype=np.uint8)
        with store.memory.reserve("task", 11 * KIB * index):
            store.put_range(column, index, [[chunk[: 10 * KIB], chunk[10 * KIB :]]])
        pieces = [store.load_part(column, index, part) for part in (0, 1)]
        assert [piece.base is None for piece in pieces] == [made] * 2
        np.testing.assert_array_equal(np.concatenate(pieces), chunk)


def test_freed_values_count_until_they_are_dropped():
    store = BlockManager(100 * KIB)
    column = store.column(("j", "v"), 1)
    store.put_range(column, 0, [np.zeros(80 * KIB, np.uint8)])
    later: list[Callable[[], None]] = []
    store.free_range(column, 0, 1, defer=later.append)
    assert store.stats().used >= 80 * KIB
    assert store.memory.try_reserve("a", 50 * KIB) is None
    asker = Asker(store, "a", 50 * KIB)
    waiting(store, 1)
    for drop in later:
        drop()
    with asker.done():
        assert (store.stats().used, store.memory.leaving) == (0, 0)


def test_granted_at_once_if_it_fits():
    store = BlockManager(100)
    with store.memory.reserve("a", 60) as first, store.memory.reserve("b", 40):
        assert store.stats().reserved == 100
        first.shrink(70)
        assert first.nbytes == 60
        first.shrink(10)
        assert store.stats().reserved == 50
    first.release()
    assert store.stats().reserved == 0
    assert store.memory.reserve("c", 0).nbytes == 0


def test_what_never_fits_is_refused_at_once():
    store = BlockManager(100)
    with store.memory.reserve("a", 100), pytest.raises(CapacityError, match=r"big\[0\] needs 101 bytes") as caught:
        store.memory.reserve("big[0]", 101)
    assert "budget" in caught.value.hint
    assert store.stats().waiting_tasks == 0


def test_first_come_first_served_behind_the_head():
    store = BlockManager(100)
    order: list[str] = []
    first = store.memory.reserve("first", 80)
    large = Asker(store, "large", 90, order)
    waiting(store, 1)
    small = Asker(store, "small", 10, order)
    waiting(store, 2)
    assert store.memory.try_reserve("sneaky", 1) is None
    assert order == []  # small would fit, but large is before it
    first.release()
    large.done().release()
    small.done().release()
    assert order == ["large", "small"]
    assert store.stats().reserved == 0


def test_lower_priorities_go_first():
    store = BlockManager(100)
    order: list[str] = []
    first = store.memory.reserve("first", 100)
    askers = []
    for count, (owner, priority) in enumerate([("c", 2), ("a", -1), ("b", 0.5), ("b2", 0.5)], 1):
        askers.append(Asker(store, owner, 100, order, priority=priority))
        waiting(store, count)
    first.release()
    for at in (1, 2, 3, 0):
        askers[at].done().release()
    assert order == ["a", "b", "b2", "c"]


def test_shrinking_wakes_who_waits():
    store = BlockManager(100)
    first = store.memory.reserve("first", 80)
    second = Asker(store, "second", 50)
    waiting(store, 1)
    first.shrink(50)
    assert second.done().nbytes == 50


def test_freeing_wakes_who_waits():
    store = BlockManager(100 * KIB)
    column = store.column(("j", "v"), 1)
    held = store.memory.reserve("held", 1)
    store.put_range(column, 0, [np.zeros(90 * KIB, "i1")])
    second = Asker(store, "second", 50 * KIB)
    waiting(store, 1)
    store.free_range(column, 0, 1)
    second.done().release()
    held.release()


def test_room_is_made_by_evicting(tmp_path):
    store = BlockManager(100 * KIB, spill=tmp_path)
    column = store.column(("j", "v"), 2)
    store.put_range(column, 0, [np.zeros(45 * KIB, "i1"), np.ones(45 * KIB, "i1")])
    with store.pin(column, [0]), store.memory.reserve("a", 50 * KIB):
        assert [type(cell) is ChunkRef for cell in column.values] == [False, True]
        second = Asker(store, "b", 40 * KIB)
        waiting(store, 1)
        assert type(column.values[0]) is not ChunkRef
    assert second.done().nbytes == 40 * KIB
    assert store.stats().used + store.stats().reserved <= store.memory.budget


def test_nothing_is_evicted_for_who_must_wait_all_the_same(tmp_path):
    store = BlockManager(100 * KIB, spill=tmp_path)
    column = store.column(("j", "v"), 1)
    store.put_range(column, 0, [np.zeros(20 * KIB, "i1")])
    first = store.memory.reserve("first", 70 * KIB)
    second = Asker(store, "second", 60 * KIB)
    waiting(store, 1)
    assert store.stats().spilled == 0
    first.release()
    second.done()


def test_unpinning_wakes_who_waits(tmp_path):
    store = BlockManager(100 * KIB, spill=tmp_path)
    column = store.column(("j", "v"), 1)
    store.put_range(column, 0, [np.zeros(90 * KIB, "i1")])
    pin = store.pin(column, [0])
    second = Asker(store, "second", 50 * KIB)
    waiting(store, 1)
    assert type(column.values[0]) is not ChunkRef
    pin.release()
    second.done()
    assert type(column.values[0]) is ChunkRef


def test_who_could_only_wait_for_ever_is_granted():
    store = BlockManager(100 * KIB)  # without a disk, what is stored cannot leave
    column = store.column(("j", "v"), 1)
    store.put_range(column, 0, [np.zeros(90 * KIB, "i1")])
    with store.memory.reserve("a", 50 * KIB):
        assert store.stats().used + store.stats().reserved > store.memory.budget


def test_outputs_come_out_of_the_reservation():
    store = BlockManager(100 * KIB)
    column = store.column(("j", "v"), 3)
    with store.memory.reserve("a", 60 * KIB) as grant:
        store.put_range(column, 0, [np.zeros(40 * KIB, "i1")], within=grant)
        assert (store.stats().used, store.stats().reserved) == (40 * KIB, 20 * KIB)
        store.put_range(column, 1, [np.zeros(40 * KIB, "i1")], within=grant)
        assert (store.stats().used, store.stats().reserved) == (80 * KIB, 0)
    assert store.stats().reserved == 0


def test_growth_spills_and_never_waits(tmp_path):
    store = BlockManager(100 * KIB, spill=tmp_path)
    column = store.column(("j", "v"), 2)
    store.put_range(column, 0, [np.zeros(40 * KIB, "i1")])
    with store.memory.reserve("a", 50 * KIB) as grant:
        grant.grow(30 * KIB)
        assert grant.nbytes == 80 * KIB
        assert type(column.values[0]) is ChunkRef
        grant.grow(100 * KIB)  # nothing is left to leave
        store.put_range(column, 1, [np.ones(40 * KIB, "i1")])
        assert type(column.values[1]) is ChunkRef
    assert store.load(column, 1).all()


@pytest.mark.parametrize("prompt", [True, False])
def test_cancel_while_waiting(prompt):
    store = BlockManager(100)
    first = store.memory.reserve("first", 100)
    cancelled = threading.Event()
    second = Asker(store, "second", 50, cancelled=cancelled.is_set)
    waiting(store, 1)
    third = Asker(store, "third", 100)
    waiting(store, 2)
    cancelled.set()
    if prompt:
        store.memory.wake()
    assert second.done() is None
    assert isinstance(second.error, RunCancelledError)
    assert "second" in str(second.error)
    assert store.stats().waiting_tasks == 1
    first.release()
    third.done().release()
    with pytest.raises(RunCancelledError):
        store.memory.reserve("late", 1, cancelled=lambda: True)
    assert store.stats().reserved == 0


def test_close_releases_who_waits():
    store = BlockManager(100)
    store.memory.reserve("first", 100)
    second = Asker(store, "second", 50)
    waiting(store, 1)
    store.close()
    second.done()
    assert isinstance(second.error, RunCancelledError)
