"""Sparse rows: their forms, their bytes, and the index that finds those with values of a partition."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.chunks import Tier
from weft.model.errors import NotFoundError, TaskError
from weft.store import codec, tiers
from weft.store.api import ABSENT
from weft.store.blocks import BlockManager
from weft.store.row_index import ALL, DENSE, LISTED, SPARSE, RowIndex
from weft.store.rows import EdgeValues, as_row, positions, record_rows
from weft.store.segments import SegmentWriter

pytestmark = pytest.mark.slow

# ------------------------------------------------------------------------------------------------------------- forms


def test_a_mapping_becomes_a_row_of_the_pieces_that_are_there():
    row = as_row({np.int64(7): "seven", 2: None}, 10, "a[0]")
    assert (row.part("any", 7), row.part("any", 2), row.part("any", 3)) == (["seven"], [None], [])
    assert row.part("any", 0, 10) == [None, "seven"]
    assert row.returned() == {7: "seven", 2: None}


@pytest.mark.parametrize("key", [-1, 10, 2.5, "3", None])
def test_a_key_that_is_no_partition_is_refused(key):
    with pytest.raises(TaskError, match=r"a\[0\] returned a piece for partition .* of 10"):
        as_row({key: 1}, 10, "a[0]")


def test_a_list_is_sparse_only_if_its_pieces_are_mostly_none():
    few: list[Any] = [None] * 100
    few[3] = few[99] = "piece"
    row = as_row(few, 100, "a[0]")
    assert type(row) is EdgeValues
    assert (row.returned(), row.part("any", 2), row.part("any", 98, 100)) == (few, [None], [None, "piece"])
    for dense in ([1] * 100, [None, 1, 1, 1] * 25, [None] * 10, [None] * 99, (None,) * 100):
        assert as_row(dense, 100, "a[0]") is dense


def test_freed_pieces_are_missed():
    row = EdgeValues({ALL: {1: ABSENT, 2: ["b"]}})
    assert row.part("any", 2) == ["b"]
    for read in (lambda: row.part("any", 1), lambda: row.part("any", 0, 9), row.returned):
        with pytest.raises(NotFoundError, match="freed"):
            read()


# ------------------------------------------------------------------------------------------------------------- bytes

KEYS = st.dictionaries(st.integers(0, 300), st.lists(st.integers() | st.binary(), min_size=1, max_size=3), max_size=12)
WRITTEN = st.dictionaries(st.sampled_from(["a->b", "a->c"]), KEYS).map(EdgeValues)
MAPPED = st.dictionaries(st.integers(0, 300), st.binary()).map(lambda found: as_row(found, 301, "a[0]"))
ROWS = WRITTEN | MAPPED


@given(ROWS)
def test_a_row_is_read_back_whole_or_by_partition(row: EdgeValues):
    chunk = codec.encode_row(row)
    data = codec.to_bytes(chunk)
    again = codec.decode(data)
    assert (again.by_edge, again.listed) == (row.by_edge, row.listed)
    ref = chunk.inline()
    for edge in ("a->b", "a->c", "a->d"):
        for lo, hi in ((0, 301), (7, 8), (100, 200)):
            assert tiers.read_values(ref, edge, lo, hi) == row.part(edge, lo, hi)
            assert len(positions(ref.pieces, edge, lo, hi)[1]) == sum(lo <= part < hi for part in row.of(edge))


def test_a_freed_piece_stays_freed_in_bytes():
    chunk = codec.encode_row(EdgeValues({ALL: {1: ABSENT, 5: ["b"]}}))
    ref = chunk.inline()
    assert tiers.read_values(ref, "any", 5, 6) == ["b"]
    with pytest.raises(NotFoundError, match="freed"):
        tiers.read_values(ref, "any", 1, 2)
    assert pickle.loads(pickle.dumps(codec.decode(codec.to_bytes(chunk)))).of("any") == {1: ABSENT, 5: ["b"]}


def test_empty_partitions_take_no_bytes():
    few = codec.encode_row(as_row({3: b"x", 70_000: b"y"}, 100_000, "a[0]"))
    assert few.nbytes + len(few.pieces) < 500
    large = codec.encode_row(as_row({3: b"x" * 1000, 70_000: b"y" * 1000}, 100_000, "a[0]"))
    assert large.nbytes + len(large.pieces) < 2_500
    assert (few.parts, large.parts, large.ref(Tier.SHM, "there", 0).parts) == (0, 2, 2), "small pieces share a chunk"


# ------------------------------------------------------------------------------------------------------------- index


@given(st.lists(ROWS | st.just(ABSENT) | st.just(["dense"]), min_size=1, max_size=8), st.data())
def test_the_index_finds_the_rows_with_values_of_partitions(rows: list[Any], data: st.DataObject):
    index = RowIndex(len(rows))
    order = data.draw(st.permutations(range(len(rows))))
    for at in [*order, order[0]]:
        cell = rows[at]
        if type(cell) is EdgeValues and data.draw(st.booleans()):
            cell = codec.encode_row(cell).inline()
        record_rows(index, at, [cell])
    lo = data.draw(st.integers(0, len(rows) - 1))
    hi = data.draw(st.integers(lo + 1, len(rows)))
    part_lo = data.draw(st.integers(0, 300))
    part_hi = data.draw(st.integers(part_lo + 1, 301))
    wanted = [
        (at, part)
        for at in range(lo, hi)
        if type(rows[at]) is EdgeValues
        for key in ("a->b", ALL)
        for part in sorted(rows[at].by_edge.get(key, ()))
        if part_lo <= part < part_hi
    ]
    assert index.pieces("a->b", (lo, hi, part_lo, part_hi)) == sorted(wanted)
    sparse = all(type(row) is EdgeValues for row in rows[lo:hi])
    assert index.kind(lo, hi) == (SPARSE if sparse else DENSE)


def test_rows_of_one_kind_are_known_as_such():
    index = RowIndex(3)
    nones = as_row([None] * 100, 100, "a[0]")
    record_rows(index, 0, [nones, nones, as_row({1: 2}, 100, "a[2]")])
    assert [index.kind(0, 2), index.kind(2, 3), index.kind(0, 3), index.kind(1, 1)] == [LISTED, SPARSE, DENSE, DENSE]
    index.clear(0, 1)
    assert index.kind(0, 2) == DENSE


def test_a_row_of_small_pieces_in_shared_memory_is_read_by_partition(tmp_path):
    row = as_row({part: part for part in range(0, 900, 3)}, 900, "a[0]")
    (ref,) = SegmentWriter(tmp_path).write([codec.encode_row(row)])
    with BlockManager(1 << 20, shm=tmp_path) as store:
        column = store.column(("j", "v"), 1, parts=900)
        store.put_range(column, 0, [ref])
        assert column.index is not None
        assert column.index.pieces("any", (0, 1, 4, 10)) == [(0, 6), (0, 9)]
        assert store.load_values(column, 0, "any", 4, 10) == [6, 9]
        store.free_parts(column, 0, 900, 0, 1)  # goes with its column, since its pieces share a chunk
        assert store.load_values(column, 0, "any", 6, 7) == [6]


@pytest.mark.parametrize("text", ["ab", b"ab"])
def test_a_text_is_no_list_of_pieces(text):
    with pytest.raises(TaskError, match=r"a\[0\] returned a (str|bytes) for 2 partitions"):
        as_row(text, 2, "a[0]")
