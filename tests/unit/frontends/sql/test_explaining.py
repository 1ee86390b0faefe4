"""Stages in the words of SQL."""

import duckdb
import pytest

from weft.frontends.sql.explaining import describe_stages
from weft.frontends.sql.planner import Planner
from weft.frontends.sql.stages import cut
from weft.frontends.sql.tables import FileTable


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    made = Planner(folders=[f"{folder}/"])
    for name in ("sales", "goods"):
        path = folder / f"{name}.parquet"
        query = "SELECT i AS id, i % 7 AS kind, (i % 5)::VARCHAR AS label, i / 3 AS price FROM range(900) t(i)"
        duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
        made.add(FileTable(name, "read_parquet", (str(path),)))
    return made


def described(planner, text, *, small=0):
    return describe_stages(cut(planner.plan(text, {}), lambda relation: 1, small=small), lambda relation: 10)


def test_scans_tell_columns_and_conditions_and_groups_are_partial_and_final(planner):
    scan, final = described(planner, "SELECT kind, sum(id), avg(price), count(*) FROM sales WHERE id > 3 GROUP BY kind")
    assert scan.table == "sales"
    assert scan.steps == (
        "scan sales: id, kind, price; where id > 3",
        "partial aggregation by kind: sum(id), sum(price), count(price), count(*)",
    )
    assert final.steps[0] == "final aggregation by kind: sum(id), sum(price), count(price), count(*)"
    assert "compute avg(price)" in final.steps
    (exchange,) = final.exchanges
    assert (exchange.kind, exchange.keys, exchange.sources) == ("hash", ("kind",), (0,))
    assert exchange.movement == "by the hash of kind"
    assert exchange.estimated_bytes == 10


def test_groups_over_groups_are_not_taken_for_their_final_step(planner):
    text = "SELECT stddev(n) FROM (SELECT kind, count(*) AS n FROM sales GROUP BY kind)"
    stages = described(planner, text)
    assert stages[-1].steps[0].startswith("aggregation: stddev")
    assert "final aggregation by kind: count(*)" in stages[1].steps


def test_joins_tell_their_kind_their_keys_and_where_rows_come_from(planner):
    text = "SELECT s.label FROM sales s LEFT JOIN goods g ON s.id = g.kind"
    join = described(planner, text)[-1]
    assert "left join of stage 0 and stage 1 on id = kind" in join.steps
    assert [exchange.movement for exchange in join.exchanges] == ["by the hash of id", "by the hash of kind"]
    copied = described(planner, text, small=1)[-1]
    assert "left join with stage 0 on id = kind" in copied.steps
    assert copied.exchanges[0].movement == "a copy to each task"


def test_a_filter_of_the_keys_of_a_measured_side(planner):
    groups = "SELECT kind, sum(id) AS t FROM goods GROUP BY kind HAVING count(*) > 2"
    text = f"SELECT count(*) FROM sales s JOIN ({groups}) g ON s.id = g.t"
    steps = [step for stage in described(planner, text, small=0.5) for step in stage.steps]
    assert "Bloom filter of sum(id)" in steps
    assert any(step.startswith("leave out rows whose CAST(id AS HUGEINT) the filter of stage") for step in steps)


def test_sorts_limits_windows_and_distinct_rows(planner):
    first, last = described(planner, "SELECT id FROM sales ORDER BY price DESC, id LIMIT 3 OFFSET 2")
    assert "sort by price desc, id, limit 5" in first.steps
    assert "sort by price desc, id, limit 3, offset 2" in last.steps
    waves, _ = described(planner, "SELECT id FROM sales WHERE label = '3' LIMIT 4")
    assert waves.steps[-1] == "no more tasks start than 4 rows need"
    assert "where label = '3'" in waves.steps[0]
    window = described(planner, "SELECT row_number() OVER (PARTITION BY kind ORDER BY id) FROM sales")[-1]
    assert window.steps[0].startswith("window row_number() OVER (PARTITION BY kind")
    distinct = described(planner, "SELECT DISTINCT label FROM sales UNION SELECT label FROM goods")
    assert distinct[-1].steps[0] == "distinct label"
    assert distinct[-1].exchanges[0].sources == (0, 1) or len(distinct) > 3


def test_long_expressions_are_cut(planner):
    listed = ", ".join(f"'{at}{'x' * 20}'" for at in range(40))
    (stage,) = described(planner, f"SELECT label FROM sales WHERE lower(label) IN ({listed})")
    assert max(map(len, stage.steps)) < 400
