"""What alternatives on joined rows tell of one table: which conditions stand before the join, and the same rows."""

import re

import duckdb
import pytest

import weft
from weft.frontends.sql.planner import Planner
from weft.frontends.sql.relations import Filter, Join, Scan, children
from weft.frontends.sql.tables import FileTable
from weft.frontends.sql.text import name_of

TABLES = {
    "a": "SELECT nullif(i % 90, 4) AS k, nullif(i % 13, 5) AS x, i % 7 AS y, 't' || i % 5 AS s FROM range(3000) t(i)",
    "b": "SELECT nullif(i % 70, 5) AS k, nullif(i % 11, 3) AS x, i % 6 AS y, 't' || i % 4 AS s FROM range(800) t(i)",
    "c": "SELECT i % 50 AS k, nullif(i % 9, 2) AS x, 't' || i % 3 AS s FROM range(200) t(i)",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for name, query in TABLES.items():
        duckdb.execute(f"COPY ({query}) TO '{folder / name}.parquet' (FORMAT parquet)")
    return {name: str(folder / f"{name}.parquet") for name in TABLES}


def _before_joins(relation, below=False):
    """Yield for each table below a join its conditions with alternatives, by the names of its columns."""
    match relation:
        case Filter(input=Scan() as scan) if below:
            names = [scan.columns[at][0] for at in scan.output]
            for one in relation.conditions:
                if " OR " in one.text(name_of):
                    yield scan.table, _words(re.sub(r"CAST\('(\d+)' AS \w+\)", r"\1", one.text(names.__getitem__)))
        case _:
            for child in children(relation):
                yield from _before_joins(child, below or isinstance(relation, Join))


def _words(condition):
    """Return a condition in a form that does not tell the order of its alternatives."""
    return " ".join(sorted(re.findall(r"[^\s()]+", condition)))


def _implied(files, text):
    planner = Planner(files.values())
    for name, path in files.items():
        planner.add(FileTable(name, "read_parquet", (path,)))
    return sorted(_before_joins(planner.plan(text, {})))


def _agrees(files, text):
    """Whether a query in stages gives what DuckDB gives."""
    with duckdb.connect() as whole, weft.SqlContext(mode="stages", workers=2) as context:
        for name, path in files.items():
            whole.execute(f"CREATE VIEW {name} AS FROM '{path}'")
            context.register(name, path)
        return sorted(context.sql(text).rows(), key=repr) == sorted(whole.execute(text).fetchall(), key=repr)


THREE = "(a.x = 1 AND b.x = 2 AND b.y > 3) OR (a.y = 3 AND b.x = 4) OR (a.x = 5 AND b.x IS NULL)"


@pytest.mark.parametrize(("text", "implied"), [
    (
        f"SELECT * FROM a JOIN b USING (k) WHERE {THREE}",
        [("a", "x = 1 OR y = 3 OR x = 5"), ("b", "x = 2 AND y > 3 OR x = 4 OR x IS NULL")],
    ),
    (f"SELECT * FROM a LEFT JOIN b ON a.k = b.k WHERE {THREE}", [("a", "x = 1 OR y = 3 OR x = 5")]),
    (f"SELECT * FROM a FULL JOIN b ON a.k = b.k WHERE {THREE}", []),
    (  # one alternative tells nothing of b, and a function may fail
        "SELECT * FROM a JOIN b USING (k) WHERE (a.x = 1 AND b.x = 2) OR (a.x = 3 AND a.y = 2) "
        "OR (a.x = 9 AND (100 / (b.y + 1))::tinyint = 20)",
        [("a", "x = 1 OR x = 3 AND y = 2 OR x = 9")],
    ),
    (
        "SELECT a.s, b.x, c.x FROM a JOIN b USING (k) JOIN c ON b.k = c.k "
        "WHERE (a.x IN (1, 2) AND c.x = 3 AND b.x > c.x) OR (a.y BETWEEN 2 AND 3 AND c.x <> 4 AND b.x < 7)",
        [("a", "x = 1 OR x = 2 OR y >= 2 AND y <= 3"), ("c", "x = 3 OR x <> 4")],
    ),
    ("SELECT * FROM a JOIN b USING (k) WHERE a.x = 1 OR b.x = 2 OR a.y = b.y", []),
], ids=["both sides", "left", "full", "not all alternatives", "three tables", "one of two"])  # fmt: skip
@pytest.mark.parametrize("small", [0, 8 << 20])
def test_alternatives_on_joined_rows_leave_out_rows_of_each_table(files, text, implied, small, monkeypatch):
    monkeypatch.setattr("weft.queries.query.SMALL_BYTES", small)
    monkeypatch.setattr("weft.queries.query.TINY_BYTES", 0)
    assert _implied(files, text) == sorted((table, _words(told)) for table, told in implied)
    assert _agrees(files, text)


def test_a_condition_that_duckdb_hands_down_itself_stands_there_once(files):
    two = "(a.s = 't1' AND b.s = 't2') OR (a.s = 't2' AND b.s = 't1')"
    text = f"SELECT count(*) FROM a JOIN b USING (k) WHERE {two}"
    assert _implied(files, text) == [(table, _words("s = 't1' OR s = 't2'")) for table in ("a", "b")]
    assert _agrees(files, text)


def test_alternatives_on_one_table_alone_stand_as_they_are(files):
    text = "SELECT * FROM a WHERE (x = 1 AND y = 2) OR (x = 3 AND s = 't1')"
    assert _implied(files, text) == []
    assert _agrees(files, text)
