"""The bytes of a worker process: how values are packed, what travels as a file, and what cannot travel."""

import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.chunks import ChunkRef
from weft.model.errors import NotFoundError, ProgramError
from weft.store.api import ABSENT, Column
from weft.store.row_index import SPARSE
from weft.store.rows import as_row
from weft.store.segments import SegmentWriter
from weft.worker.remote_store import LARGE, PackingError, RemoteStore, pack, unpack


@pytest.fixture
def writer(tmp_path):
    return SegmentWriter(tmp_path)


def stored(cells, parts=0) -> tuple[RemoteStore, Column]:
    store = RemoteStore()
    column = store.column(("job", "vertex"), len(cells), parts)
    store.put_range(column, 0, cells)
    return store, column


def values(cells, parts=0) -> list[Any]:
    store, column = stored(cells, parts)
    return [store.load(column, index) for index in range(len(cells))]


# ------------------------------------------------------------------------------------------------------------ packing

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.integers())


@given(st.lists(PLAIN, max_size=20))
def test_small_values_come_back_as_they_were(cells):
    assert unpack(pickle.loads(pickle.dumps(pack(cells, None)))) == cells


def test_values_that_are_all_none_travel_as_a_number():
    packed = pack([None] * 1000, None)
    assert (packed.n, packed.small, packed.large) == (1000, None, ())


def test_a_large_value_goes_by_a_file_and_the_others_with_the_message(writer, tmp_path):
    large = np.arange(LARGE, dtype=np.uint8)
    packed = pack(["small", large, 3], writer)
    assert [at for at, _ in packed.large] == [1]
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
    cells = unpack(packed)
    assert [type(cell) for cell in cells] == [str, ChunkRef, int]
    small, found, three = values(cells)
    assert (small, three) == ("small", 3)
    assert np.array_equal(found, large)


def test_many_small_values_are_divided_when_their_message_becomes_large(writer):
    packed = pack([b"x" * 40_000 + bytes([n]) for n in range(100)], writer)
    assert len(packed.large) == 100
    assert values(unpack(packed))[99] == b"x" * 40_000 + bytes([99])


def test_many_small_rows_share_a_message(writer):
    """In memory they would take 3 MiB; each of 300 pieces of a row in a file is encoded by itself."""
    rows = [list(range(300 * index, 300 * index + 300)) for index in range(300)]
    packed = pack(rows[:], writer, parts=300)
    assert packed.large == ()
    assert unpack(packed) == rows


def test_pieces_of_a_large_row_are_read_one_by_one(writer):
    row = [np.full(LARGE, part, np.uint8) for part in range(3)]
    store, column = stored(unpack(pack([row], writer, parts=3)), parts=3)
    assert store.load_part(column, 0, 2)[0] == 2


def test_pieces_of_a_small_row_are_read_without_a_file():
    store, column = stored([["a", "b", ABSENT]], parts=3)
    assert store.load_part(column, 0, 1) == "b"
    with pytest.raises(NotFoundError, match="piece 2 of job/vertex"):
        store.load_part(column, 0, 2)


def test_a_value_that_cannot_be_pickled_is_named():
    with pytest.raises(PackingError) as failed:
        pack([1, "two", threading.Lock()], None)
    assert failed.value.at == 2
    assert isinstance(failed.value.error, ProgramError)
    assert "_thread.lock cannot leave the process" in str(failed.value.error)


def test_a_value_whose_class_is_not_here_is_the_program_s_fault():
    message = pack([{"a dict": 1}], None)._replace(small=b"cno_such_module\nThing\n.")
    with pytest.raises(ProgramError, match="no_such_module"):
        unpack(message)


# -------------------------------------------------------------------------------------------------------------- cells


def test_a_cell_that_was_not_sent_is_not_found():
    store, column = stored([1, ABSENT])
    assert store.load(column, 0) == 1
    with pytest.raises(NotFoundError, match=r"job/vertex\[1\] was not sent"):
        store.load(column, 1)
    with pytest.raises(NotFoundError, match=r"job/vertex\[1\] was not sent"):
        store.load_part(column, 1, 0)


def test_freed_cells_are_absent_and_their_files_are_forgotten(writer):
    store, column = stored(unpack(pack([np.zeros(LARGE), np.ones(LARGE)], writer)))
    assert sorted(column.tracked) == [0, 1]
    store.free_range(column, 0, 1)
    assert column.values[0] is ABSENT
    assert sorted(column.tracked) == [1]


def test_a_small_value_in_the_place_of_a_file_is_not_tracked(writer):
    store, column = stored(unpack(pack([np.zeros(LARGE)], writer)))
    store.put_range(column, 0, ["small"])
    assert column.tracked == {}


def test_rows_that_were_sent_for_other_readers_are_indexed_too():
    row = as_row({1: "one"}, 9, "a[0]")
    store, column = stored([row, ABSENT], parts=9)
    store.index(column, SPARSE)
    assert column.index is not None
    assert column.index.pieces("edge", (0, 2, 1, 2)) == [(0, 1)]
    store.put_range(column, 1, [row])
    store.index(column, SPARSE)
    assert column.index.pieces("edge", (0, 2, 1, 2)) == [(0, 1), (1, 1)]
