"""Files that are written again, also within the time that file systems tell apart by seconds, are read as they are."""

import os

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from weft.model.errors import NotFoundError

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


@pytest.mark.parametrize("read", ["rows", "batches", "write_parquet", "csv"])
@pytest.mark.parametrize("table", ["t", "v", "'rows.parquet'"])
def test_a_query_of_before_has_the_columns_of_a_file_that_was_rewritten(context, table, read):
    pq.write_table(pa.table({"price": [1]}), "rows.parquet")
    context.register("t", "rows.parquet")
    context.sql("create view v as select * from t")
    asked = context.sql(f"select * from {table}")
    assert asked.columns == ["price"]
    pq.write_table(pa.table({"gains": ["five"], "kinds": [[1.5]]}), "rows.parquet")
    if read == "rows":
        assert asked.rows() == [("five", [1.5])]
    elif read == "batches":
        assert pa.Table.from_batches(asked.batches()).column_names == ["gains", "kinds"]
    elif read == "csv":
        assert [batch.to_pydict() for batch in asked.csv_batches()] == [{"gains": ["five"], "kinds": ["[1.5]"]}]
    else:
        asked.write_parquet("out.parquet")
        assert pq.read_table("out.parquet").to_pydict() == {"gains": ["five"], "kinds": [[1.5]]}
    assert list(zip(asked.columns, asked.types, strict=True)) == [("gains", "VARCHAR"), ("kinds", "DOUBLE[]")]


def test_a_query_of_before_has_the_columns_of_now_before_it_runs(context):
    pq.write_table(pa.table({"price": [1]}), "rows.parquet")
    asked = context.sql("select * from 'rows.parquet'")
    pq.write_table(pa.table({"gains": [0.5]}), "rows.parquet")
    assert (asked.columns, asked.types) == (["gains"], ["DOUBLE"])
    rows = asked.rows()
    pq.write_table(pa.table({"kinds": [1]}), "rows.parquet")
    assert (asked.columns, asked.rows()) == (["gains"], rows), "they are those of its rows"
    os.unlink("rows.parquet")
    with pytest.raises(weft.WeftError, match=r"rows\.parquet"):
        _ = context.sql("select * from 'rows.parquet'").columns


def test_a_query_over_files_whose_columns_are_known_is_checked_without_a_look_at_them(context):
    write("rows.parquet", 0)
    context.register("t", "rows.parquet")
    context.sql("create view v as select price from t")
    asked = "select sum(price) from t join v using (price)"
    for _ in range(2):
        assert context.sql(asked).types == ["HUGEINT"]
    before = os.stat("rows.parquet")
    with open("rows.parquet", "r+b") as file:
        file.write(bytes(before.st_size))
    os.utime("rows.parquet", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert context.sql(asked).types == ["HUGEINT"]
    write("rows.parquet", 1)
    assert context.sql(asked).rows() == [(302,)]


def test_a_query_over_a_file_that_is_gone_is_refused_until_it_is_there_again(context):
    write("rows.parquet", 0)
    context.register("t", "rows.parquet")
    assert context.sql("select sum(price) from t").rows() == [(300,)]
    for at in range(2):
        os.rename("rows.parquet", "elsewhere.parquet")
        with pytest.raises(NotFoundError, match=r"rows\.parquet"):
            context.sql("select sum(price) from t")
        os.rename("elsewhere.parquet", "rows.parquet")
        assert context.sql(f"select sum(price + {at}) from t").rows() == [(300 + 2 * at,)]


def test_queries_over_one_table_after_another_have_the_columns_of_each(context):
    kinds = (
        "1.5::DECIMAL(9,2) AS d, {'a b': [1], 'c': NULL} AS s, MAP {'k': DATE '2020-01-01'} AS m, 'x'::BLOB AS \"a b\""
    )
    duckdb.execute(f"COPY (SELECT 1 AS k, {kinds}) TO 'one.parquet' (FORMAT parquet)")
    duckdb.execute(
        "COPY (SELECT 1 AS k, TIMESTAMPTZ '2020-01-01' AS z, UUID '00000000-0000-0000-0000-000000000001' AS u) "
        "TO 'two.parquet' (FORMAT parquet)"
    )
    memory = pa.table({"k": [1], "w": [0.5]})
    context.register("one", "one.parquet")
    context.register("Two", "two.parquet")
    context.register("memory", memory)
    context.sql("create table made as select 1 as k, 'a'::ENUM('a', 'b') AS e, INTERVAL 1 DAY AS i")
    context.sql("create view v as select * exclude (k) from two")
    texts = [
        "one",
        "two",
        "one join two using (k)",
        "v",
        "memory join one using (k)",
        "made",
        "one join made using (k)",
    ]
    for text in (*texts, *reversed(texts), *texts):
        asked = context.sql(f"select * from {text}")
        with context.catalogue.cursor() as connection:
            wanted = connection.execute(f"DESCRIBE SELECT * FROM {text}").fetchall()
        assert list(zip(asked.columns, asked.types, strict=True)) == [row[:2] for row in wanted]


def test_a_function_that_reads_tables_by_names_sees_the_columns_of_now(context):
    write("rows.parquet", 0)
    context.register("t", "rows.parquet")
    pq.write_table(pa.table({"price": [1], "costs": [2]}), "others.parquet")
    context.register("u", "others.parquet")
    for _ in range(3):
        assert context.sql("select t.price from t join u using (costs)").types == ["BIGINT"]
    pq.write_table(pa.table({"price": [0.5], "costs": [2]}), "rows.parquet")
    assert context.sql("select max(costs) from u").rows() == [(2,)]
    assert context.sql("select q.price from query_table(['T', 'T']) q join u using (costs)").types == ["DOUBLE"]
