"""Databases and queries as users meet them."""

import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

import weft
from weft.model.errors import ConflictError, NotFoundError, SqlError, UsageError
from weft.wiring.session import open_sessions

MODES = pytest.mark.parametrize("mode", ["whole", "stages"])
BACKENDS = pytest.mark.parametrize("backend", ["threads", "processes"])


@pytest.fixture
def people(tmp_path):
    table = pa.table({"name": ["Ann", "Bob", "Cid", "Dora"], "age": [30, 41, None, 29], "city": ["x", "y", "x", "y"]})
    pyarrow.parquet.write_table(table, tmp_path / "people.parquet")
    return str(tmp_path / "people.parquet")


@MODES
@BACKENDS
def test_a_query_over_a_file(people, mode, backend):
    with weft.SqlContext(workers=2, backend=backend, mode=mode) as context:
        context.register("people", people)
        query = context.sql("SELECT city, count(age) AS n FROM people GROUP BY city ORDER BY city")
        assert query.columns == ["city", "n"]
        assert query.rows() == [("x", 1), ("y", 2)]
        assert query.arrow().column_names == ["city", "n"]
        assert context.tables == ["people"]


@MODES
def test_tables_in_memory_and_in_files_together(people, mode):
    cities = pa.table({"city": ["x", "y"], "land": ["A", "B"]})
    with weft.SqlContext(mode=mode) as context:
        context.register("people", people)
        context.register("cities", cities)
        text = "SELECT land, max(name) FROM people JOIN cities USING (city) GROUP BY ALL ORDER BY ALL"
        assert context.sql(text).rows() == [("A", "Cid"), ("B", "Dora")]


@MODES
def test_parameters_are_bound_and_never_pasted(people, mode):
    with weft.SqlContext(mode=mode) as context:
        context.register("people", people)
        evil = "x' OR name = 'Bob"
        assert context.sql("SELECT name FROM people WHERE city = ?", [evil]).rows() == []
        found = context.sql(
            "SELECT name, '?' FROM people WHERE city = $place AND age < $age", {"place": "y", "age": 40}
        )
        assert found.rows() == [("Dora", "?")]


@MODES
def test_csv_files_by_a_pattern(tmp_path, mode):
    for part in range(3):
        (tmp_path / f"part{part}.csv").write_text(f"k,v\n{part},a\n{part + 10},b\n")
    with weft.SqlContext(mode=mode) as context:
        context.register("parts", tmp_path / "part*.csv")
        assert context.sql("SELECT v, sum(k) FROM parts GROUP BY v ORDER BY v").rows() == [("a", 3), ("b", 33)]


@MODES
def test_folders_whose_names_are_values(tmp_path, mode):
    for year in (2023, 2024):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        pyarrow.parquet.write_table(pa.table({"n": [1, 2]}), folder / "data.parquet")
    with weft.SqlContext(mode=mode) as context:
        context.register("sales", tmp_path)
        assert context.sql("SELECT year, sum(n) FROM sales WHERE year > 2023 GROUP BY year").rows() == [(2024, 3)]


def test_a_mistake_has_its_place_and_what_is_probably_meant(people):
    with weft.SqlContext() as context:
        context.register("people", people)
        with pytest.raises(SqlError) as caught:
            context.sql("SELECT name,\n       agee\nFROM people")
        assert (caught.value.line, caught.value.column) == (2, 8)
        assert "age" in caught.value.hint
        with pytest.raises(SqlError, match="one statement"):
            context.sql("SELECT 1; SELECT 2")


WRONG = {
    "SELECT name,\n       agee\nFROM people": (2, 8, "age"),
    "SELECT name\nFROM\n  peeple": (3, 3, "people"),
    "SELECT sum(name) FROM people": (1, 8, "There are: sum("),
    "SELECT uper(name) FROM people": (1, 8, "upper"),
    "SELECT p.name FROM people p JOIN people q ON p.city = q.citty": (1, 55, "city"),
    "SELECT 1,\n q . citty\nFROM (SELECT city FROM people) q": (2, 2, "city"),
    "SELECT qq.city FROM people q": (1, 8, "q"),
    "SELECT p.name FROM people p JOIN people q ON p.city = citty": (1, 55, "city"),
    "SELECT city, age FROM people GROUP BY city": (1, 14, "GROUP BY list"),
    "SELECT city FROM people WHERE sum(age) > 3 GROUP BY city": (1, 31, "HAVING"),
    "SELECT name FROM people\n WHERE": (2, 7, "ends too early"),
    "SELEC name FROM people": (1, 1, "SELECT and not SELEC"),
    "SELECT name FORM people": (1, 18, "FROM and not FORM"),
    "SELECT name FROM people ORDR BY name": (1, 30, "ORDER and not ORDR"),
    "SELECT (name FROM people": (1, 14, "Look before FROM"),
    "SELECT name FROM semi": (1, 18, 'double quotes as a name, "semi"'),
    "SELECT name FROM people JOIN order": (1, 30, "A name is missing here, or order is the name"),
}


@MODES
def test_wrong_sql_is_told_before_anything_is_read_or_started(tmp_path, people, mode, monkeypatch):
    broken = (tmp_path / "people.parquet").read_bytes()
    footer = int.from_bytes(broken[-8:-4], "little") + 8  # which has the columns; the rows before it are lost
    (tmp_path / "people.parquet").write_bytes(b"PAR1" + bytes(len(broken) - footer - 4) + broken[-footer:])
    started = []
    for kind in ("Session", "QuerySession"):
        monkeypatch.setattr(f"weft.queries.context.{kind}", lambda *args, **options: started.append(args))
    with weft.SqlContext(workers=2, backend="processes", mode=mode) as context:
        context.register("people", people)
        for text, (line, column, hint) in WRONG.items():
            with pytest.raises(SqlError) as caught:
                context.sql(text)
            assert (caught.value.line, caught.value.column) == (line, column), text
            assert hint in caught.value.hint, text
        with pytest.raises(duckdb.Error), context.catalogue.cursor() as connection:  # a scan is noticed
            connection.execute("SELECT name FROM people").fetchall()
    assert not started


def test_worker_processes_exchange_rows_without_pandas(tmp_path):
    def loaded(ctx, _inputs):
        return "pandas" in sys.modules

    graph = weft.Graph("loaded")
    node = graph.task(loaded, name="loaded").keep()
    parts = [str(tmp_path / f"{part}.parquet") for part in range(3)]
    for number, part in enumerate(parts):
        duckdb.execute(f"COPY (SELECT i + {number} AS k, i AS v FROM range(10) t(i)) TO '{part}' (FORMAT parquet)")
    with weft.SqlContext(workers=1, backend="processes", mode="stages") as context:
        context.register("t", parts)
        context.register("few", parts[:1])
        text = "SELECT t.k, sum(t.v) FROM t JOIN (SELECT k FROM few LIMIT 2) f ON t.k = f.k GROUP BY t.k ORDER BY t.k"
        assert context.sql(text).rows() == [(0, 0), (1, 1)]
        assert context.sql("SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY n, k LIMIT 1").rows() == [(0, 1)]
        assert context.session.run(graph).value(node) is False


def test_worker_processes_have_loaded_duckdb_before_their_first_task():
    def loaded(ctx, _inputs):
        modules = {"duckdb", "pyarrow", "weft.frontends.sql.fragment"} - sys.modules.keys()
        import duckdb

        return modules, duckdb.sql("SELECT sum(i) FROM range(1000000) t(i)").fetchall()

    graph = weft.Graph("loaded")
    node = graph.task(loaded, name="loaded").keep()
    with weft.SqlContext(workers=1, backend="processes", mode="stages") as context:
        assert context.session.run(graph).value(node) == (set(), [(499999500000,)])


@MODES
def test_files_of_json(tmp_path, mode):
    (tmp_path / "a.json").write_text('[{"k": 1, "v": {"x": [1, 2]}}, {"k": 2, "v": {"x": []}}]')
    (tmp_path / "b.jsonl").write_text('{"k": 2, "v": {"x": [5]}}\n{"k": 3, "v": null}\n')
    with weft.SqlContext(mode=mode) as context:
        context.register("t", [tmp_path / "a.json", tmp_path / "b.jsonl"])
        query = context.sql("SELECT k, sum(len(v.x)) AS n, max(v.x[1]) AS x FROM t GROUP BY k ORDER BY k")
        assert query.rows() == [(1, 2, 1), (2, 1, 5), (3, None, None)]
        query.write_json(tmp_path / "out.json.gz")
        context.register("out", tmp_path / "out.json.gz")
        assert context.sql("SELECT k, n, x FROM out ORDER BY k").rows() == query.rows()


def test_what_is_no_table_is_refused(tmp_path):
    with weft.SqlContext() as context:
        with pytest.raises(NotFoundError, match="there is no file"):
            context.register("gone", tmp_path / "gone.parquet")
        with pytest.raises(UsageError, match="is int"):
            context.register("number", 3)
    with pytest.raises(UsageError, match="mode is 'fast'"):
        weft.SqlContext(mode="fast")


NUMBERS = [0, -1, 1.5, True, "2", None, 2**70]


@MODES
@pytest.mark.parametrize("rows", NUMBERS)
def test_a_wrong_number_of_rows_is_refused_at_the_call(people, mode, rows):
    with weft.SqlContext(mode=mode, workers=1) as context:
        context.register("people", people)
        query = context.sql("SELECT name FROM people")
        with pytest.raises(UsageError, match=f"rows is {rows!r}; it must be a whole number from 1"):
            query.batches(rows)
        with pytest.raises(UsageError, match="rows is"), query.reader(rows):
            pass


@pytest.mark.parametrize("rows", [-1, 1.5, True, "2", None])
def test_a_wrong_number_of_first_rows_is_refused(rows):
    query = weft.sql("SELECT 1 AS x")
    for read in (query.first, query.show):
        with pytest.raises(UsageError, match=f"rows is {rows!r}; it must be a whole number"):
            read(rows)


def test_the_first_rows_are_shown_and_that_there_are_more(capsys):
    weft.sql("SELECT 100 + range AS x FROM range(50)").show(30)
    shown = capsys.readouterr().out
    assert [word for word in shown.split() if word.isdigit()] == [*map(str, range(100, 130)), "30"]
    assert shown.endswith("the first 30 rows\n")
    weft.sql("SELECT 7 AS x").show(1)
    assert "first" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"workers": 0}, "workers is 0; it must be a whole number from 1"),
        ({"workers": "a"}, "workers is 'a'"),
        ({"workers": 1.5}, "workers is 1.5"),
        ({"durable": 3}, "durable is 3"),
        ({"cluster": "auto", "backend": "ray"}, "cluster is 'auto'"),
        ({"cluster": weft.ClusterOptions()}, "cluster is for the backend 'ray', not 'threads'"),
        ({"memory": -1}, "memory is -1"),
        ({"allow": 3}, "allow has an int"),
        ({"allow": ["data", None]}, "allow has None"),
        ({"backend": ["threads"]}, "there is no backend"),
    ],
)
def test_options_of_a_context_are_checked_before_it_is_used(options, told):
    with pytest.raises(UsageError, match=told):
        weft.SqlContext(**options)


@pytest.mark.parametrize("parameters", [5, "x", {1, 2}])
def test_parameters_are_a_list_or_a_mapping(parameters):
    with pytest.raises(UsageError, match="the parameters are a"):
        weft.sql("SELECT ?", parameters)


@MODES
def test_a_closed_context_says_so(people, mode):
    context = weft.SqlContext(mode=mode, workers=1)
    context.register("people", people)
    read, unread = context.sql("SELECT name FROM people"), context.sql("SELECT age FROM people")
    planned = context.sql("SELECT city FROM people")
    planned.explain()
    rows = read.rows()
    context.close()
    context.close()
    assert read.rows() == rows
    for call in (
        unread.rows,
        planned.rows,
        unread.arrow,
        unread.explained if mode == "stages" else unread.rows,
        lambda: list(unread.batches()),
        lambda: context.sql("SELECT 1"),
        lambda: context.sql("DROP TABLE people"),
        lambda: context.register("more", people),
        lambda: context.forget("people"),
    ):
        with pytest.raises(ConflictError, match="the context of the query is closed") as told:
            call()
        assert told.value.hint == "Open another one: weft.SqlContext()."


def test_the_function_of_the_process(people):
    query = weft.sql("SELECT count(*) AS n FROM people_here", people_here=people)
    assert query.rows() == [(4,)]
    assert "<td>4</td>" in query._repr_html_()
    assert repr(query) == "<query: n BIGINT>"


def test_the_sessions_of_a_context_are_no_sessions_that_the_user_has_opened(people):
    before = open_sessions()
    with weft.SqlContext(mode="stages") as context:
        context.register("people", people)
        assert context.sql("SELECT count(*) AS n FROM people").rows() == [(4,)]
        context.session.check_open()
        assert open_sessions() == before


def test_explain_names_stages_or_why_there_are_none(people):
    with weft.SqlContext(mode="stages") as context:
        context.register("people", people)
        assert "scan people" in context.sql("SELECT city, count(*) FROM people GROUP BY city").explain()
        query = context.sql("SELECT reservoir_quantile(age, 0.5) FROM people")
        assert "the aggregate function reservoir_quantile cannot be divided" in query.explain()
        assert query.rows() == [(30.0,)]
