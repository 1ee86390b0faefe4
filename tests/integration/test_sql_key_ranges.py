"""Groups by a column that files are sorted by: final in the tasks that scan ranges of its values."""

import os
import random

import duckdb
import pytest

import weft
from tests.fixtures.staged import StagedQuery

GROUPED = "SELECT k, sum(v) FROM t GROUP BY k HAVING sum(v) > 30"
QUERIES = {
    "having": GROUPED,
    "two keys": "SELECT k, v % 3, count(*), avg(v) FROM t GROUP BY ALL",
    "distinct aggregate": "SELECT k, count(DISTINCT v), sum(v) FROM t GROUP BY k",
    "two distinct aggregates": "SELECT k, count(DISTINCT v), count(DISTINCT v % 5) FROM t GROUP BY k",
    "list": "SELECT k, list(v ORDER BY v) FROM t GROUP BY k",
    "filter": "SELECT k, max(v) FROM t WHERE v > 5 AND k > 70 GROUP BY k",
    "distinct": "SELECT DISTINCT k, v FROM t",
    "distinct on": "SELECT DISTINCT ON (k) k, v FROM t ORDER BY k, v",
    "window": "SELECT k, v, sum(v) OVER (PARTITION BY k) FROM t",
    "groups of groups": "SELECT n, count(*) FROM (SELECT k, count(*) n FROM t GROUP BY k) GROUP BY n",
    "rollup": "SELECT k, v % 3, sum(v) FROM t GROUP BY ROLLUP (k, v % 3)",
    "expression": "SELECT k // 2, sum(v) FROM t GROUP BY k // 2",
    "union": "SELECT k, count(*) FROM (SELECT k FROM t UNION ALL SELECT k + 1 FROM t) GROUP BY k",
    "semi join": f"SELECT * FROM t WHERE k IN (SELECT k FROM ({GROUPED}))",
    "outer join": "SELECT k, count(v), count(w) FROM t LEFT JOIN (SELECT 2 * k j, v w FROM t) ON k = j GROUP BY k",
    "limit": "SELECT count(*) FROM (SELECT k FROM t GROUP BY k LIMIT 10)",
}
FILES = {
    "one file": [range(200)],
    "several files that share keys": [range(60, 130), range(61), range(129, 200)],
}
TYPES = {"BIGINT": "{}", "SMALLINT": "{} - 100", "DATE": "DATE '1999-11-11' + CAST({} AS INTEGER)"}


def written(folder, keys, rows=200, of="BIGINT", form="{}"):
    """Write files of small row groups, of which each key has `rows` rows; the keys are sorted."""
    for number, each in enumerate(keys):
        values = f"unnest({list(each)!s}) AS i"
        key = f"CAST({form.format('i')} AS {of})"
        query = (
            f"SELECT {key} AS k, CAST(hash(i * 100 + j) % 17 AS BIGINT) AS v "
            f"FROM (SELECT {values}), range({rows}) r(j) ORDER BY i"
        )
        file = folder / f"{number}.parquet"
        duckdb.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    return str(folder / "*.parquet")


@pytest.fixture(scope="module")
def context():
    with weft.SqlContext(mode="stages", backend="threads", workers=2) as made:
        yield made


def staged(context, text):
    """Return a query whose splits are a quarter of its table each."""
    return StagedQuery(context, text, split=sum(map(os.path.getsize, context.catalogue.table("t").files)) // 4)


def ranged(query):
    return [stage.ranged for stage in query.plan.stages if stage.ranged is not None]


@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_those_of_duckdb(context, tmp_path, name, files):
    context.register("t", written(tmp_path, FILES[files]))
    query = staged(context, QUERIES[name])
    found = query.rows(query.start())
    assert sorted(found, key=repr) == sorted(query.wanted(), key=repr)
    plain = name in ("rollup", "expression", "union", "outer join")
    assert files != "one file" or plain or ranged(query)


@pytest.mark.parametrize("of", TYPES)
def test_groups_are_final_in_the_scan(context, tmp_path, of):
    context.register("t", written(tmp_path, [range(200)], of=of, form=TYPES[of]))
    query = staged(context, GROUPED)
    (stage,) = query.plan.stages
    assert (stage.ranged, stage.exchanges) == (("k", of), ())
    assert sorted(query.rows(query.start())) == sorted(query.wanted())


UNSORTED = {
    "NULL keys": "CASE WHEN i % 5000 = 0 THEN NULL ELSE i END",
    "unsorted": "hash(i) % 1000",
    "text": "format('{:05}', i)",
    "floats": "CAST(i AS DOUBLE)",
    "one key": "7",
}


@pytest.mark.parametrize("name", UNSORTED)
def test_other_files_are_grouped_by_an_exchange(context, tmp_path, name):
    rows = f"SELECT {UNSORTED[name]} AS k, i AS v FROM range(40_000) t(i)"
    duckdb.execute(f"COPY ({rows}) TO '{tmp_path}/t.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    context.register("t", f"{tmp_path}/t.parquet")
    query = staged(context, "SELECT k, sum(v) FROM t GROUP BY k")
    assert not ranged(query)
    assert sorted(query.rows(query.start()), key=repr) == sorted(query.wanted(), key=repr)


def test_keys_of_any_sizes_lie_in_one_range(context, tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for number in range(8):
        keys = sorted(rng.choice([rng.randrange(-300, 300), 0, 50]) for _ in range(rng.randrange(60, 400)))
        folder = tmp_path / str(number)
        folder.mkdir()
        context.register("t", written(folder, [keys], rows=rng.choice([20, 70, 200])))
        for text in (GROUPED, QUERIES["two distinct aggregates"], QUERIES["window"]):
            query = staged(context, text)
            assert sorted(query.rows(query.start())) == sorted(query.wanted()), (seed, number, text)


def test_a_plan_is_right_after_its_files_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.queries.planned.SPLIT_BYTES", 1 << 12)
    path = written(tmp_path, [range(200)])
    with weft.SqlContext(mode="stages", backend="threads", workers=2) as context:
        context.register("t", path)
        query = context.sql("SELECT k, count(*) FROM t GROUP BY k")
        assert "by ranges of k" in query.explain()
        assert sorted(query.rows()) == [(key, 200) for key in range(200)]
        written(tmp_path, [[*range(200)] * 2], rows=100, form="(i * 7) % 200")
        again = context.sql("SELECT k, count(*) FROM t GROUP BY k")
        assert sorted(again.rows()) == [(key, 200) for key in range(200)]
        graph = query._compiled()[1]  # the plan of before, over the splits of now
        found = context.session.run(graph)
        (last,) = graph.vertices
        assert sum(table.num_rows for table in found[last]) == 200
