"""Aggregates and windows in stages: which are divided, and that their rows are those of whole queries."""

import duckdb
import pyarrow as pa
import pytest

import weft
from tests.fixtures.staged import StagedQuery

ROWS = (
    "SELECT i, i % 97 AS k, CASE WHEN i % 10 < 7 THEN 1 ELSE i % 40 END AS s, (hash(i) % 1000)::BIGINT AS h, i % 5 AS v"
)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Eight files; one value of `s` has seven of ten rows."""
    folder = tmp_path_factory.mktemp("numbers")
    with duckdb.connect() as connection:
        for part in range(8):
            rows = f"{ROWS} FROM range({part * 1000}, {part * 1000 + 1000}) t(i)"
            connection.execute(f"COPY ({rows}) TO '{folder}/{part}.parquet' (FORMAT parquet)")
    return str(folder)


@pytest.fixture
def context(numbers):
    with weft.SqlContext(workers=2, mode="stages") as made:
        made.register("t", numbers)
        yield made


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s, median(h) FROM t GROUP BY s",
        "SELECT v, quantile_cont(h, 0.25), quantile_disc(h, [0.1, 0.9]) FROM t GROUP BY v",
        "SELECT v, quantile_cont(i, 0.3 ORDER BY i DESC), quantile_disc(k, 1) FROM t GROUP BY v",
        "SELECT quantile_cont((i / 3)::DECIMAL(9, 2), 0.3), median(DATE '2020-01-01' + i::INT), median(h) FROM t",
        "SELECT s, percentile_disc(0.3) WITHIN GROUP (ORDER BY h) FROM t GROUP BY s",
        "SELECT s, histogram(v) FROM t GROUP BY s",
        "SELECT v, quantile_disc([k, i], 0.5), quantile_disc([k], [0.5]), quantile_disc(k, [0.5]) FROM t GROUP BY v",
        "SELECT max(h, 3), min(h, 2) FROM t",
        "SELECT v, max(h, 3) FROM t GROUP BY v",
        "SELECT v, array_agg(i ORDER BY h DESC, i), array_agg(DISTINCT s ORDER BY s) FROM t GROUP BY v",
        "SELECT array_agg(i ORDER BY i) FILTER (v = 3) FROM t",
    ],
)
def test_aggregates_of_all_rows_of_a_group(context, text):
    query = context.sql(text)
    assert sorted(query.rows()) == sorted(context.sql(text, mode="whole").rows())
    assert query.whole_because == ""


@pytest.mark.parametrize("bounds", ["2:", ":2", ":", "2:3", "-2:", "v + 1:", "NULL:2"])
@pytest.mark.parametrize("step", ["", ":2"])
def test_slices_without_bounds_are_divided(context, bounds, step):
    bounds = f"{bounds}-" if step and bounds.endswith(":") else bounds
    text = f"SELECT i, [i, k, s, v][{bounds}{step}] FROM t" + ("" if step else f" WHERE 'text'[{bounds}] IS NOT NULL")
    query = context.sql(text)
    assert sorted(query.rows()) == sorted(context.sql(text, mode="whole").rows())
    assert query.whole_because == ""


def test_a_lambda_is_told_to_run_whole(context):
    query = context.sql("SELECT list_filter([i, k], lambda x: x > 3) FROM t WHERE i = 4")
    assert query.rows() == [([4, 4],)]
    assert query.whole_because == "the function list_filter with its lambda cannot be divided"


MIXED = [
    "SELECT s, count(DISTINCT i), sum(h), avg(h), count(*), min(i), count(v) FILTER (i % 3 = 1) FROM t GROUP BY s",
    "SELECT count(DISTINCT k), sum(h), count(*), max(i) FROM t",
    "SELECT s, count(DISTINCT h), bool_and(i > 3), any_value(s) FROM t GROUP BY s HAVING count(DISTINCT h) > 10",
    "SELECT count(DISTINCT k), count(*), sum(h), min(i) FROM t WHERE v > 9",
]


@pytest.mark.parametrize("text", MIXED)
def test_distinct_values_beside_other_aggregates(context, text):
    query = StagedQuery(context, text, partitions=16, target=1)
    run = query.start()
    assert sorted(query.rows(run)) == sorted(query.wanted())
    assert all(exchange.kind == "hash" for exchange in query.plan.stages[1].exchanges)


def test_the_distinct_values_of_a_heavy_group_are_divided(context):
    query = StagedQuery(context, "SELECT s, count(DISTINCT -i), sum(h) FROM t GROUP BY s", partitions=16, target=1)
    run = query.start()
    assert sorted(query.rows(run)) == sorted(query.wanted())
    tasks, rows = ({one.id: (one.n, one.rows) for one in run.view().vertices})["stage_1"]
    assert tasks == 16
    assert rows <= tasks * 40  # a row for each group, of all the tasks that have some of its values


@pytest.mark.parametrize(
    ("text", "exchanges"),
    [
        ("SELECT i, row_number() OVER (PARTITION BY k ORDER BY i), sum(h) OVER (PARTITION BY v ORDER BY i) FROM t", 2),
        ("SELECT i, rank() OVER (PARTITION BY k, v ORDER BY i), sum(h) OVER (PARTITION BY v ORDER BY i) FROM t", 1),
        (
            "SELECT i, sum(h) OVER (PARTITION BY v ORDER BY i), lag(i) OVER (PARTITION BY k ORDER BY i), "
            "rank() OVER (PARTITION BY v, s ORDER BY i) FROM t",
            2,
        ),
        ("SELECT i, string_agg(v::VARCHAR, '-') OVER (PARTITION BY k ORDER BY i) FROM t", 1),
        ("SELECT i, k, count(*) OVER (PARTITION BY k), sum(v) OVER () FROM t", 2),
    ],
)
def test_windows_of_other_partitions_follow_one_another(context, text, exchanges):
    query = StagedQuery(context, text, partitions=4)
    kinds = [exchange.kind for stage in query.plan.stages for exchange in stage.exchanges]
    assert len(kinds) == exchanges
    assert kinds[0] == "hash"
    assert sorted(query.rows(query.start())) == sorted(query.wanted())


@pytest.mark.parametrize(
    ("order", "frame", "divided"),
    [
        ("i", "10 PRECEDING AND CURRENT ROW", True),
        ("i DESC", "3 PRECEDING AND 2 FOLLOWING", True),
        ("i", "UNBOUNDED PRECEDING AND v PRECEDING", True),
        ("i // 4", "CURRENT ROW AND (v + 1) FOLLOWING", True),
        ("DATE '2024-01-01' + (i // 3)::INT", "INTERVAL 2 DAYS PRECEDING AND INTERVAL 1 DAY FOLLOWING", True),
        ("(i / 8)::DECIMAL(9, 2) DESC NULLS FIRST", "0.5 PRECEDING AND 1.25 FOLLOWING", True),
        ("i", "0 PRECEDING AND 1 FOLLOWING", False),
    ],
)
def test_windows_over_ranges_of_values(context, order, frame, divided):
    text = f"SELECT i, sum(h) OVER (PARTITION BY k ORDER BY {order} RANGE BETWEEN {frame}) FROM t"
    query = context.sql(text)
    assert sorted(query.rows()) == sorted(context.sql(text, mode="whole").rows())
    assert (query.whole_because == "") == divided


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v, count(*), sum(i) FROM t JOIN few ON t.i = few.id WHERE few.name <> 'x' GROUP BY ROLLUP (v)",
        "SELECT v, s, max(i) FROM t JOIN few ON i = id WHERE name <> 'x' GROUP BY GROUPING SETS ((v), (), (s))",
        "SELECT v, count(*) FROM t WHERE i = (SELECT min(id) FROM few WHERE name <> 'x') GROUP BY CUBE (v)",
    ],
)
@pytest.mark.parametrize("bubbles", ["batch", "gang"])
def test_the_group_of_all_rows_is_there_where_no_task_reads_a_table(context, text, bubbles):
    few = pa.table({"id": [1, 2], "name": ["x", "x"]})
    context.register("few", few)
    query = context.sql(text, bubbles=bubbles)
    (row,) = query.rows()
    assert [row] == context.sql(text, mode="whole").rows()
    assert query.whole_because == ""
