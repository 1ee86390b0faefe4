"""What a task of a stage tells about its rows."""

import os
from datetime import date
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from weft.frontends.sql import fragment
from weft.frontends.sql.fragment import LONGEST, PIECE_ROWS, database, divided, key_ranges, run_fragment

DAYS = [date(2020, 1, 1), None, date(1960, 1, 1)]


@pytest.mark.parametrize(
    ("values", "most", "ranges"),
    [
        (pa.array([3, None, 1, 2, 2], pa.int8()), 2, [[1, 2], [3, 3]]),
        (pa.array([3, None, 1, 2, 2], pa.int8()), 9, [[1, 1], [2, 2], [3, 3]]),
        (pa.array([3, None, 1, 2, 2], pa.int8()), 1, [[1, 3]]),
        (pa.array([2**62, -(2**62)]), 9, [[-(2**62), -(2**62)], [2**62, 2**62]]),
        (pa.array([None, None], pa.int32()), 1, []),
        (pa.array([], pa.int64()), 5, []),
        (pa.array(DAYS), 1, [["1960-01-01", "2020-01-01"]]),
        (pa.array(DAYS), 5, [["1960-01-01", "1960-01-01"], ["2020-01-01", "2020-01-01"]]),
        (pa.array([2**31 - 1, 5], pa.int32()).view(pa.date32()), 5, [[None, None]]),
        (pa.array(["b", None, "a", "b"]), 5, [["a", "a"], ["b", "b"]]),
        (pa.array(["b", None, "a", "b"]), 1, [["a", "b"]]),
        (pa.array(["b", "a" * (LONGEST + 1)]), 5, [[None, None]]),
    ],
)
def test_ranges_hold_all_keys(values, most, ranges):
    assert key_ranges(pa.chunked_array([values[:1], values[1:]], values.type), most) == ranges


@pytest.mark.parametrize(("partitions", "together"), [(0, 2), (3, 3), (8, 8), (20, 8)])
def test_streamed_rows_go_on_in_pieces_that_are_large_for_each_partition(partitions, together):
    class Writer:
        def __init__(self):
            self.sent = []

        def write(self, partition, piece):
            self.sent.append((partition, piece.num_rows))

    writer = Writer()
    rows = PIECE_ROWS * together
    column = f", CAST(i % {partitions} AS USMALLINT)" if partitions else ""
    params = {"sql": f"SELECT i{column} FROM range({rows + 1}) t(i)", "received": [], "sending": ["edge"]}
    ctx = SimpleNamespace(
        params=params | ({"partitions": partitions} if partitions else {}),
        out=lambda edge: writer,
        on_cancel=lambda action: None,
        cancelled=lambda: False,
    )
    assert run_fragment(ctx, {}) is None
    first = writer.sent[: max(1, partitions)]
    assert [partition for partition, _ in first] == list(range(max(1, partitions)))
    assert sum(count for _, count in first) == rows
    assert [count for _, count in writer.sent[len(first) :]] == [1]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_rows_are_divided_block_by_block_and_keep_their_order(block, monkeypatch):
    monkeypatch.setattr(fragment, "BLOCK_ROWS", block)
    monkeypatch.setattr(fragment, "PIECE_OF_BLOCK", 1)
    numbers = pa.array([5, 0, 3, 3, 5, 0, 5, 1] * 9, pa.uint16())
    texts = pa.array([None if at % 11 == 0 else str(at) for at in range(72)])
    table = pa.table({"at": range(72), "text": texts, "partition": numbers})
    table = pa.concat_tables([table.slice(0, 10), table.slice(10)])
    pieces = divided(table, 6)
    assert list(pieces) == [0, 1, 3, 5]
    for at, piece in pieces.items():
        own = table.filter(pa.compute.equal(table.column(2), at)).select([0, 1])
        assert piece.combine_chunks() == own.combine_chunks()
    assert divided(table.slice(0, 0), 6) == {}


def test_files_that_have_changed_are_read_by_another_database(tmp_path):
    path = tmp_path / "rows.parquet"
    for at in range(3):
        pq.write_table(pa.table({"n": [7 + at]}), path)
        os.utime(path, ns=(10**18 + at, 10**18 + at))  # the same second
        with database([f"{tmp_path}/"], stamp=str(at)) as connection:
            assert connection.execute(f"SELECT max(n) FROM read_parquet('{path}')").fetchall() == [(7 + at,)]


def test_few_databases_are_kept_and_one_in_use_goes_on(monkeypatch):
    kept: dict[tuple[object, ...], object] = {}
    monkeypatch.setattr("weft.frontends.sql.fragment._databases", kept)
    monkeypatch.setattr("weft.frontends.sql.fragment.KEPT_DATABASES", 2)
    with database(stamp="a") as connection:
        for stamp in ("b", "c", "b", "d"):
            database(stamp=stamp).close()
        assert [key[-1] for key in kept] == ["b", "d"]
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
