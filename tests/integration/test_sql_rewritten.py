"""Files that are written again, also within the time that file systems tell apart by seconds, are read as they are."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft

TIMES = 4


def write(path, at):
    """Write a file of the same size and the same second for each `at`, with columns in another order each time."""
    columns = {"price": [100 + at, 200 + at], "costs": [300 + at, 400 + at]}
    pq.write_table(pa.table(dict(sorted(columns.items(), reverse=at % 2 == 0))), path)
    os.utime(path, ns=(10**18 + at, 10**18 + at))


@pytest.fixture(params=["whole", "stages"])
def context(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with weft.SqlContext(mode=request.param, workers=2) as made:
        yield made


@pytest.mark.parametrize("table", ["t", "'rows.parquet'"])
def test_a_file_that_was_rewritten_within_a_second_is_read_anew(context, table):
    write("rows.parquet", 0)
    context.register("t", "rows.parquet")
    for at in range(TIMES):
        write("rows.parquet", at)
        asked = context.sql(f"select sum(price), max(costs), count(*) from {table} where price >= {100 + at}")
        assert asked.rows() == [(300 + 2 * at, 400 + at, 2)]


def test_a_file_that_was_rewritten_within_a_second_has_its_own_columns(context):
    pq.write_table(pa.table({"price": [1], "costs": [2]}), "rows.parquet")
    os.utime("rows.parquet", ns=(10**18, 10**18))
    assert context.sql("select sum(costs) from 'rows.parquet'").rows() == [(2,)]
    pq.write_table(pa.table({"price": [1], "gains": [5]}), "rows.parquet")
    os.utime("rows.parquet", ns=(10**18 + 1, 10**18 + 1))
    assert context.sql("select sum(gains) from 'rows.parquet'").rows() == [(5,)]
    with pytest.raises(weft.SqlError, match="costs"):
        context.sql("select sum(costs) from 'rows.parquet'")
