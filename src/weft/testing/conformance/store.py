"""What every `ChunkStore` must do, whatever tiers it has: call each of `CHECKS` with a fresh, empty store.

A store whose budget is a few hundred KiB is checked for more: it must spill and restore to pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import InternalError, NotFoundError
from weft.store import codec
from weft.store.api import ABSENT, SMALL, ChunkStore, Column, sizeof
from weft.store.row_index import ALL
from weft.store.rows import EdgeValues

JOB = "job"
_JOIN_S = 60


def _raises(error: type[BaseException], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def _absent(store: ChunkStore, column: Column, *indexes: int) -> None:
    for index in indexes:
        assert column.values[index] is ABSENT, f"cell {index} is not absent"
        _raises(NotFoundError, lambda index=index: store.load(column, index))  # type: ignore[misc]


def _array(index: int, nbytes: int = 64 * 1024) -> Any:
    return numpy.full(nbytes // 8, index, dtype=numpy.int64)


def new_column_is_absent(store: ChunkStore) -> None:
    """A column starts empty, and is the same one for the same key."""
    column = store.column((JOB, "v"), 3)
    _absent(store, column, 0, 1, 2)
    assert store.column((JOB, "v"), 3) is column
    assert store.column((JOB, "w"), 3) is not column
    assert len(column) == 3


def values_come_back(store: ChunkStore) -> None:
    """Values of every kind are loaded as they were put, more than once."""
    values = [7, "text", None, 2.5, b"x" * 5000, [1, [2, {"k": (3,)}]], numpy.arange(12.0).reshape(3, 4), {"a": 1}]
    column = store.column((JOB, "v"), len(values))
    store.put_range(column, 0, values)
    for last in (False, False, True):
        for index, value in enumerate(values):
            found = store.load(column, index, last=last)
            assert numpy.array_equal(found, value) if isinstance(value, numpy.ndarray) else found == value


def put_touches_its_range_only(store: ChunkStore) -> None:
    """A put in the middle leaves the other cells alone; one beyond the end is refused and changes nothing."""
    column = store.column((JOB, "v"), 6)
    store.put_range(column, 2, [20, 30])
    _absent(store, column, 0, 1, 4, 5)
    assert [store.load(column, 2), store.load(column, 3)] == [20, 30]
    _raises(InternalError, lambda: store.put_range(column, 5, [50, 60]))
    _raises(InternalError, lambda: store.put_range(column, -1, [0]))
    assert len(column) == 6
    _absent(store, column, 5)
    store.put_range(column, 3, [])
    assert store.load(column, 3) == 30


def put_replaces(store: ChunkStore) -> None:
    """A second put into the same cells wins, large over small and small over large."""
    column = store.column((JOB, "v"), 2)
    store.put_range(column, 0, [1, _array(2)])
    store.put_range(column, 0, [_array(3), 4])
    assert store.load(column, 0)[0] == 3
    assert store.load(column, 1) == 4


def free_gives_up_its_range_only(store: ChunkStore) -> None:
    """Freed cells are absent, the others stay; freeing twice, or what was never there, is no error."""
    column = store.column((JOB, "v"), 6)
    store.put_range(column, 0, [0, _array(1), 2, _array(3), 4])
    for _ in range(2):
        store.free_range(column, 1, 3)
    store.free_range(column, 5, 6)
    _absent(store, column, 1, 2, 5)
    assert (store.load(column, 0), store.load(column, 3)[0], store.load(column, 4)) == (0, 3, 4)
    store.put_range(column, 1, [11])
    assert store.load(column, 1) == 11


def drop_forgets(store: ChunkStore) -> None:
    """A dropped column is gone; the same key then names a new one, of any length."""
    column = store.column((JOB, "v"), 2)
    store.put_range(column, 0, [1, _array(2)])
    store.drop((JOB, "v"))
    store.drop((JOB, "v"))
    _absent(store, column, 0, 1)
    again = store.column((JOB, "v"), 5)
    assert again is not column
    _absent(store, again, 0, 4)


def length_is_kept_while_values_are_held(store: ChunkStore) -> None:
    """An empty column takes another length; one with values refuses it."""
    column = store.column((JOB, "v"), 2)
    assert len(store.column((JOB, "v"), 4)) == 4
    store.put_range(column, 0, [1])
    _raises(InternalError, lambda: store.column((JOB, "v"), 5))


def refs_are_read(store: ChunkStore) -> None:
    """A ref with its bytes inside stands for its value."""
    chunk = codec.encode(["inline", 1])
    ref = ChunkRef(Tier.INLINE, "", 0, chunk.nbytes, 0, codec.to_bytes(chunk))
    column = store.column((JOB, "v"), 2)
    store.put_range(column, 0, [ref, 5])
    assert store.load(column, 0) == ["inline", 1]
    assert store.load(column, 0, last=True) == ["inline", 1]
    store.free_range(column, 0, 1)
    _absent(store, column, 0)


def parts_are_read_and_freed_alone(store: ChunkStore) -> None:
    """Pieces of partitioned values are read one by one; freeing some leaves the others; freeing all frees the cell."""
    n, parts = 8, 4
    column = store.column((JOB, "v"), n, parts=parts)
    store.put_range(column, 0, [[_array(10 * i + p, 32 * 1024) for p in range(parts)] for i in range(n)])
    for part in (2, 0):
        for i in range(n):
            assert store.load_part(column, i, part)[-1] == 10 * i + part
    store.free_parts(column, 0, 2, 0, n)
    for i in range(n):
        _raises(NotFoundError, lambda i=i: store.load_part(column, i, 1))  # type: ignore[misc]
        assert store.load_part(column, i, 2, last=True)[-1] == 10 * i + 2
    store.free_parts(column, 2, 4, 0, 3)
    _absent(store, column, 0, 1, 2)
    assert store.load_part(column, 3, 3)[0] == 33


def small_parts_too(store: ChunkStore) -> None:
    """Partitioned values of tiny pieces, lists or tuples, behave like large ones."""
    column = store.column((JOB, "v"), 2, parts=2)
    store.put_range(column, 0, [[1, 2], (3, 4)])
    store.free_parts(column, 0, 1, 0, 2)
    assert store.load_part(column, 1, 1) == 4
    _raises(NotFoundError, lambda: store.load_part(column, 1, 0))
    store.free_parts(column, 1, 2, 0, 2)
    _absent(store, column, 0, 1)


def sparse_rows_are_read_and_freed_alone(store: ChunkStore) -> None:
    """Rows with some partitions only: those are read and freed one by one, and what was freed is missed."""
    n, parts = 4, 1_000
    column = store.column((JOB, "v"), n, parts=parts)
    keys = [0, 3, 500, 999]
    rows = [EdgeValues({ALL: {key: [_array(key + i, 32 * 1024)] for key in keys}}) for i in range(n - 1)]
    rows.append(EdgeValues({"one": {3: [1, 2]}, "two": {4: [3]}}))
    store.put_range(column, 0, rows)
    for i in range(n - 1):
        for key in keys:
            assert store.load_values(column, i, "edge", key, key + 1)[0][0] == key + i
        assert store.load_values(column, i, "edge", 1, 3) == []
        assert [piece[0] for piece in store.load_values(column, i, "edge", 2, 999)] == [3 + i, 500 + i]
    assert store.load_values(column, 3, "one", 0, parts) == [1, 2]
    assert store.load_values(column, 3, "two", 4, 5) == [3]
    assert store.load_values(column, 3, "two", 3, 4) == []
    store.free_range(column, 3, 4)
    assert column.index is not None
    assert column.index.pieces("edge", (0, 3, 2, 999)) == [(i, key) for i in range(3) for key in (3, 500)]
    store.free_parts(column, 0, 500, 0, 3)
    for i in range(n - 1):
        assert store.load_values(column, i, "edge", 500, 501)[0][0] == 500 + i
        _raises(NotFoundError, lambda i=i: store.load_values(column, i, "edge", 3, 4))  # type: ignore[misc]
    store.free_parts(column, 500, parts, 0, 3)
    for i in range(n - 1):
        assert store.load_values(column, i, "edge", 501, 999) == [], "a row that has nothing is not lost"
        _raises(NotFoundError, lambda i=i: store.load_values(column, i, "edge", 500, 501))  # type: ignore[misc]
    assert store.stats().used < 4 * SMALL


def more_than_fits_comes_back(store: ChunkStore) -> None:
    """Four megabytes of arrays are loaded unchanged, in any order, whatever the store's budget is."""
    column = store.column((JOB, "v"), 64)
    for index in range(64):
        store.put_range(column, index, [_array(index)])
    for index in (*range(63, -1, -1), *range(0, 64, 7)):
        found = store.load(column, index, last=index % 2 == 0)
        assert found.shape == (8192,)
        assert (found == index).all()
    store.free_range(column, 0, 64)
    _absent(store, column, 0, 63)


def threads_do_not_disturb_each_other(store: ChunkStore) -> None:
    """Threads that put, load and free in columns of their own and in one they share see their own values."""
    shared = store.column((JOB, "shared"), 64)
    failures: list[BaseException] = []

    def work(who: int) -> None:
        try:
            own = store.column((JOB, f"own{who}"), 16)
            for turn in range(4):
                store.put_range(own, 0, [_array(100 * who + i, 32 * 1024) for i in range(16)])
                store.put_range(shared, 16 * who, [_array(turn) for _ in range(16)])
                for i in range(16):
                    assert store.load(own, i)[0] == 100 * who + i
                    assert store.load(shared, 16 * who + i)[0] == turn
                store.free_range(own, 0, 16)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_JOIN_S)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def sizes_are_sensible(store: ChunkStore) -> None:
    """Arrays, bytes and text count their bytes, containers their items, the rest little."""
    assert sizeof(numpy.zeros(1000)) == 8000
    assert sizeof(b"x" * 1000) >= 1000
    assert sizeof("x" * 1000) >= 1000
    assert 16000 <= sizeof([numpy.zeros(1000), numpy.zeros(1000)]) < 17000
    assert 8000 <= sizeof({"a": numpy.zeros(1000)}) < 9000
    assert sizeof(None) == 0
    assert sizeof(object()) < 1000


CHECKS: tuple[Callable[[ChunkStore], None], ...] = (
    new_column_is_absent,
    values_come_back,
    put_touches_its_range_only,
    put_replaces,
    free_gives_up_its_range_only,
    drop_forgets,
    length_is_kept_while_values_are_held,
    refs_are_read,
    parts_are_read_and_freed_alone,
    small_parts_too,
    sparse_rows_are_read_and_freed_alone,
    more_than_fits_comes_back,
    threads_do_not_disturb_each_other,
    sizes_are_sensible,
)
