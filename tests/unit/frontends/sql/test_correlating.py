"""Correlated subqueries: which are joined with the outer rows themselves, and what all give with NULL."""

import duckdb
import pytest

import weft
from weft.frontends.sql.planner import Planner
from weft.frontends.sql.relations import Join, JoinKind, Shared, children
from weft.frontends.sql.tables import FileTable

OUTER = "SELECT nullif(i % 1100, 4) AS k, i % 3 AS v, i AS n FROM range(6000) t(i)"
INNER = "SELECT nullif(i % 700, 5) AS k, i % 4 AS v, i AS n FROM range(4000) t(i)"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    paths = {"outer_rows": folder / "outer.parquet", "inner_rows": folder / "inner.parquet"}
    for path, query in zip(paths.values(), (OUTER, INNER), strict=True):
        duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return paths


def _walk(relation):
    yield relation
    for child in children(relation):
        yield from _walk(child)


def _planned(files, text):
    """Return the relations in the plan of a query."""
    planner = Planner(map(str, files.values()))
    for name, path in files.items():
        planner.add(FileTable(name, "read_parquet", (str(path),)))
    return list(_walk(planner.plan(text, {})))


def _agrees(files, text):
    """Whether a query in stages gives what DuckDB gives, with sides that are copied, measured and exchanged."""
    with duckdb.connect() as whole:
        for name, path in files.items():
            whole.execute(f"CREATE VIEW {name} AS FROM '{path}'")
        expected = sorted(whole.execute(text).fetchall(), key=repr)
    with weft.SqlContext(mode="stages", workers=2) as context:
        for name, path in files.items():
            context.register(name, str(path))
        return sorted(context.sql(text).rows(), key=repr) == expected


WHERE = {
    "one key": "i.k = o.k",
    "two keys": "i.k = o.k AND i.v = o.v",
    "a comparison beside the key": "i.k = o.k AND i.v <> o.v",
    "another one": "i.k = o.k AND i.n < o.n AND i.v > 1",
}


@pytest.mark.parametrize("small", [0, 1, 8 << 20])
@pytest.mark.parametrize("word", ["EXISTS", "NOT EXISTS"])
@pytest.mark.parametrize("where", WHERE.values(), ids=WHERE)
def test_the_outer_rows_are_joined_with_the_subquery_itself(files, where, word, small, monkeypatch):
    monkeypatch.setattr("weft.queries.query.SMALL_BYTES", small)
    monkeypatch.setattr("weft.queries.query.TINY_BYTES", 0)
    text = f"SELECT * FROM outer_rows o WHERE o.n % 5 > 0 AND {word} (FROM inner_rows i WHERE {where})"
    planned = _planned(files, text)
    assert not any(isinstance(one, Shared) for one in planned)
    kind = JoinKind.SEMI if word == "EXISTS" else JoinKind.ANTI
    assert [one.kind for one in planned if isinstance(one, Join)] == [kind]
    assert _agrees(files, text)


@pytest.mark.parametrize("text", [
    "SELECT * FROM outer_rows o WHERE NOT EXISTS (FROM inner_rows i WHERE i.k IS NOT DISTINCT FROM o.k)",
    "SELECT * FROM outer_rows o WHERE NOT EXISTS (FROM inner_rows i WHERE i.k + 1 = o.k)",
    "SELECT * FROM outer_rows o WHERE EXISTS (FROM inner_rows i WHERE i.k = o.k AND i.n + o.v > 30)",
    "FROM outer_rows o WHERE EXISTS (SELECT k FROM inner_rows i WHERE i.v = o.v GROUP BY k HAVING count(*) > 1)",
    "SELECT * FROM outer_rows o WHERE o.n IN (SELECT i.n FROM inner_rows i WHERE i.v = o.v)",
    "SELECT * FROM outer_rows o WHERE o.n NOT IN (SELECT i.n FROM inner_rows i WHERE i.v = o.v)",
    "SELECT n, EXISTS (FROM inner_rows i WHERE i.k = o.k) FROM outer_rows o",
    "SELECT * FROM outer_rows o WHERE n > (SELECT avg(n) FROM inner_rows i WHERE i.k = o.k)",
    "SELECT * FROM outer_rows o WHERE EXISTS (FROM inner_rows i JOIN outer_rows p ON i.n = p.n WHERE i.k = o.k)",
])  # fmt: skip
def test_other_subqueries_give_what_duckdb_gives(files, text):
    assert _agrees(files, text)
