"""Keys of a measured side of a join leave out rows of a later side with the same keys before they are exchanged."""

import re

import duckdb
import pytest

import weft

TABLES = {
    "parts": "SELECT nullif(i, 7) AS p, 'n' || i % 50 AS name FROM range(2000) t(i)",
    "lines": "SELECT nullif(i * 7 % 2100, 5) AS p, i % 4 AS s, nullif(i % 3000, 11) AS o, i AS n "
    "FROM range(20000) t(i)",
    "orders": "SELECT i AS o, i % 9 AS d FROM range(3000) t(i)",
    "supplies": "SELECT nullif(i // 4, 9) AS p, i % 4 AS s, i % 100 AS cost FROM range(8400) t(i)",
}
JOINED = "FROM lines l JOIN parts r ON l.p = r.p JOIN orders o ON l.o = o.o"
KEYS = "y.p = r.p AND y.s = l.s"
TEXTS = {
    "inner": f"SELECT d, count(*), sum(n * cost) {JOINED} JOIN supplies y ON {KEYS} WHERE {{}} GROUP BY d",
    "one key": f"SELECT d, count(*), sum(cost) {JOINED} JOIN supplies y ON y.p = l.p WHERE {{}} GROUP BY d",
    "the other key": f"SELECT d, count(*), sum(cost) {JOINED} JOIN supplies y ON y.p = r.p WHERE {{}} GROUP BY d",
    "a wide side": "SELECT d, count(*), sum(w.cost), sum(y.cost) "
    f"{JOINED} JOIN supplies y ON y.p = r.p JOIN supplies w ON w.cost = y.cost AND w.s = 1 WHERE {{}} GROUP BY d",
    "semi": f"SELECT d, count(*), sum(n) {JOINED} WHERE {{}} "
    "AND EXISTS (FROM supplies y WHERE y.p = l.p AND y.s <> l.s) GROUP BY d",
    "anti": f"SELECT d, count(*), sum(n) {JOINED} WHERE {{}} "
    "AND NOT EXISTS (FROM supplies y WHERE y.p = l.p AND y.s > 2) GROUP BY d",
    "left": f"SELECT d, count(*), sum(cost) {JOINED} LEFT JOIN supplies y ON {KEYS} WHERE {{}} GROUP BY d",
    "right": f"SELECT count(*), sum(cost), sum(n) FROM (SELECT r.p, l.s, l.n {JOINED} WHERE {{}}) l "
    "RIGHT JOIN supplies y ON y.p = l.p AND y.s = l.s",
    "groups of the rows": "SELECT count(*), sum(m * cost) FROM (SELECT r.p, l.s, max(n) AS m "
    f"{JOINED} WHERE {{}} GROUP BY ALL) l JOIN supplies y ON y.p = l.p AND y.s = l.s",
    "a side of two plans": f"SELECT d, count(*), sum(k) {JOINED} JOIN (SELECT p, count(*) AS k FROM supplies "
    "JOIN orders ON cost = o WHERE d < 8 GROUP BY p) y ON y.p = l.p WHERE {} GROUP BY d",
    "no rows": f"SELECT d, count(*) {JOINED} JOIN supplies y ON y.p = l.p WHERE {{}} AND cost < 0 GROUP BY d",
}
FEW, MANY, NONE = "name LIKE '%7'", "name LIKE 'n%'", "name LIKE 'm%'"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for name, query in TABLES.items():
        duckdb.execute(f"COPY ({query}) TO '{folder / name}.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    return {name: str(folder / f"{name}.parquet") for name in TABLES}


@pytest.fixture(scope="module")
def whole(files):
    with duckdb.connect() as connection:
        for name, path in files.items():
            connection.execute(f"CREATE VIEW {name} AS FROM '{path}'")
        yield connection


@pytest.fixture(scope="module", params=["threads", "processes"])
def store(request, files):
    with weft.SqlContext(workers=2, backend=request.param, mode="stages") as context:
        for name, path in files.items():
            context.register(name, path)
        yield context


@pytest.fixture(autouse=True)
def _sizes(monkeypatch):
    monkeypatch.setattr("weft.queries.query.SMALL_BYTES", 1_000)
    monkeypatch.setattr("weft.queries.query.TINY_BYTES", 0)


@pytest.mark.parametrize("condition", [FEW, MANY, NONE], ids=["few", "many", "none"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_rows_are_those_of_duckdb(store, whole, text, condition):
    text = text.format(condition)
    assert sorted(store.sql(text).rows(), key=repr) == sorted(whole.execute(text).fetchall(), key=repr)


@pytest.mark.parametrize("bubbles", ["gang", "efficient"])
@pytest.mark.parametrize("condition", [FEW, MANY], ids=["few", "many"])
def test_rows_are_those_of_duckdb_if_stages_stream(files, whole, bubbles, condition):
    text = TEXTS["one key"].format(condition)
    with weft.SqlContext(workers=8, mode="stages", bubbles=bubbles) as context:
        for name, path in files.items():
            context.register(name, path)
        assert sorted(context.sql(text).rows()) == sorted(whole.execute(text).fetchall())


@pytest.mark.parametrize("name", ["one key", "the other key"])
@pytest.mark.parametrize(("condition", "most"), [(FEW, 900), (MANY, 8400)], ids=["few", "many"])
def test_rows_without_a_key_of_the_measured_side_are_not_exchanged(store, name, condition, most):
    text = store.sql(TEXTS[name].format(condition)).explain(analyze=True)
    stages = [one for one in re.split(r"\n(?=stage \d+:)", text) if "scan supplies" in one]
    (taken,) = [one for one in stages if "executed: skipped" not in one]
    found = re.search(r"executed: .*; ([\d,]+) rows", taken)
    assert found is not None
    assert int(found[1].replace(",", "")) <= most
    assert ("semi join with stage" in taken) == (condition == FEW)


@pytest.mark.parametrize("name", ["left", "right", "groups of the rows"])
def test_a_side_without_such_keys_or_whose_rows_are_kept_is_read_as_it_is(store, name):
    assert "semi join" not in store.sql(TEXTS[name].format(FEW)).explain()
