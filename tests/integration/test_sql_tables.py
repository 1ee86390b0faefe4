"""Where the tables of queries come from, statements that change them, and what queries may not reach."""

import math
import os
import re
import resource
import signal
import sys
import threading
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import weft
import weft.tensor
from tests.integration.places import until
from weft.model.errors import (
    ConflictError,
    DefinitionError,
    ForbiddenError,
    MissingExtraError,
    NotFoundError,
    RunCancelledError,
    SqlError,
)
from weft.queries import query as queries

MODES = pytest.mark.parametrize("mode", ["whole", "stages"])
PEOPLE = pa.table({"name": ["Ann", "Bob", "Cid"], "age": [30, 41, 29]})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    for part in range(2):
        pyarrow.parquet.write_table(PEOPLE.slice(part, 2 - part), tmp_path / "data" / f"{part}.parquet")
    (tmp_path / "cities.csv").write_text("name,city\nAnn,x\nBob,y\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------------------------------------- names in the text


class Frame:
    """A data frame of Polars, as far as DuckDB and Arrow see it."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, schema=None):
        return self._table.__arrow_c_stream__(schema)


def test_all_that_gives_arrow_streams_is_a_table():
    rows = Frame(PEOPLE)
    with weft.SqlContext() as context:
        assert context.sql("SELECT max(age) FROM rows").rows() == [(41,)]
        del rows


@MODES
def test_variables_of_the_caller_are_tables(mode):
    pandas = pytest.importorskip("pandas")
    here = PEOPLE
    frame = pandas.DataFrame({"name": ["Ann"], "land": ["A"]})
    with weft.SqlContext(mode=mode) as context:
        query = context.sql("SELECT age, land FROM here JOIN frame USING (name)")
        del here, frame
        assert query.rows() == [(30, "A")]
        assert context.sql("SELECT count(*) FROM PEOPLE").rows() == [(3,)]  # a global one
        with pytest.raises(SqlError, match="frames"):
            context.sql("FROM frames")
        assert context.tables == []


def test_a_table_of_the_context_comes_before_a_variable():
    people = PEOPLE.slice(0, 1)
    with weft.SqlContext() as context:
        context.register("people", PEOPLE)
        assert context.sql("SELECT count(*) FROM people").rows() == [(people.num_rows + 2,)]
        assert context.sql("WITH frame AS (SELECT 1) SELECT count(*) FROM frame").rows() == [(1,)]


@MODES
def test_files_behind_from(folder, mode):
    with weft.SqlContext(mode=mode) as context:
        text = "SELECT city, age FROM 'data/*.parquet' JOIN 'cities.csv' USING (name) ORDER BY age"
        assert context.sql(text).rows() == [("x", 30), ("y", 41), ("y", 41)]
        with pytest.raises(NotFoundError, match=r"gone\.csv"):
            context.sql("FROM 'gone.csv'")


@MODES
def test_urls_are_read_by_fsspec(mode):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://lake/people.parquet", "wb") as file:
        pyarrow.parquet.write_table(PEOPLE, file)
    with weft.SqlContext(mode=mode) as context:
        context.register("people", "memory://lake/*.parquet")
        assert context.sql("SELECT max(age) FROM people").rows() == [(41,)]
        with pytest.raises(ForbiddenError, match="memory://other"):
            context.sql("FROM read_parquet('memory://other/x.parquet')")
    with weft.SqlContext(mode=mode, allow=["memory://lake"]) as context:
        assert context.sql("SELECT min(age) FROM 'memory://lake/people.parquet'").rows() == [(29,)]
        context.sql("FROM 'memory://lake/people.parquet'").write_parquet("memory://lake/copy.parquet")
        assert context.sql("SELECT count(*) FROM 'memory://lake/copy.parquet'").rows() == [(3,)]


@MODES
def test_a_file_at_a_url_that_has_changed_is_read_again(mode):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    with weft.SqlContext(mode=mode) as context:
        for end, old, new in (("csv", b"n\n1\n", b"n\n2\n3\n"), ("json", b'[{"n": 1}]', b'[{"n": 2}, {"n": 3}]')):
            system.pipe(f"/changing/t.{end}", old)
            context.register("t", f"memory://changing/t.{end}")
            assert context.sql("SELECT sum(n) FROM t").rows() == [(1,)]
            system.pipe(f"/changing/t.{end}", new)
            assert context.sql("SELECT sum(n) FROM t").rows() == [(5,)]


LATE = {
    "a word": ('"abc"', "abc"),
    "quotes": ('"say ""hi"""', 'say "hi"'),
    "a comma": ('"a,b"', "a,b"),
    "a line break": ('"a\nb"', "a\nb"),
    "nothing": ('""', ""),
    "quotes within a word": ('5" pipe', '5" pipe'),
}


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("late", LATE)
def test_quotes_behind_the_lines_that_duckdb_looks_at_are_quotes(tmp_path, late, files):
    text, value = LATE[late]
    for number in range(files):
        plain = "".join(f"{i},x{i},y\n" for i in range(25_000))
        (tmp_path / f"{number}.csv").write_text(f"i,s,t\n{plain}-1,{text},z\n")
    with weft.SqlContext() as context:
        context.register("t", f"{tmp_path}/*.csv")
        assert context.sql("SELECT s, t FROM t WHERE i = -1").rows() == [(value, "z")] * files
        assert context.sql("SELECT count(*) FROM t").rows() == [(25_001 * files,)]


def test_other_quotes_stay_what_they_are(tmp_path):
    (tmp_path / "t.csv").write_text("i,s\n" + "".join(f"{i},'a,{i}'\n" for i in range(100)))
    with weft.SqlContext() as context:
        context.register("t", tmp_path / "t.csv")
        assert context.sql("SELECT s FROM t WHERE i = 7").rows() == [("a,7",)]


def test_a_failed_query_leaves_the_object_at_a_url_as_it_was():
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    wrong = "SELECT CASE WHEN i < 199999 THEN i ELSE CAST('x' || i AS BIGINT) END AS i FROM range(200000) t(i)"
    with weft.SqlContext(allow=["memory://kept"]) as context:
        for write in (
            lambda query, url: query.write_parquet(url),
            lambda query, url: query.write_json(url),
            lambda query, url: context.sql(f"COPY ({query.text}) TO '{url}' (FORMAT csv)"),
        ):
            system.pipe("/kept/old", b"old")
            for name in ("old", "new"):
                with pytest.raises(weft.SqlError, match="query:1:41: Could not convert string 'x199999' to INT64"):
                    write(context.sql(wrong), f"memory://kept/{name}")
            assert system.cat_file("/kept/old") == b"old"
            assert not system.exists("/kept/new")
        context.sql("COPY (SELECT 1 AS a) TO 'memory://kept/old' (FORMAT csv)")
        assert system.cat_file("/kept/old") == b"a\n1\n"


@pytest.mark.parametrize(
    "read",
    [
        lambda query, context, place: query.rows(),
        lambda query, context, place: list(query.batches()),
        lambda query, context, place: query.write_parquet(place),
        lambda query, context, place: query.write_json(place),
        lambda query, context, place: context.sql(f"COPY ({query.text}) TO '{place}' (FORMAT csv)"),
        lambda query, context, place: context.sql(f"CREATE TABLE made AS {query.text}"),
    ],
    ids=["rows", "batches", "parquet", "json", "copy", "table"],
)
def test_a_query_tells_what_failed_though_its_reader_was_only_interrupted(read, tmp_path, monkeypatch):
    """A thread of DuckDB that fails interrupts the one that gives the rows, which may notice that first."""
    begin = weft.queries.query.Query._begin

    def interrupted(query, connection):
        found = begin(query, connection)
        return Interrupted(found) if "199999" in query.text else found

    monkeypatch.setattr(weft.queries.query.Query, "_begin", interrupted)
    wrong = "SELECT CASE WHEN i < 199999 THEN i ELSE CAST('x' || i AS BIGINT) END AS i FROM range(200000) t(i)"
    with weft.SqlContext(allow=[str(tmp_path)]) as context:
        with pytest.raises(weft.SqlError, match="Could not convert string 'x199999' to INT64"):
            read(context.sql(wrong), context, tmp_path / "place")
        right = context.sql("SELECT i + 199999 AS i FROM range(2) t(i)")
        with pytest.raises(weft.SqlError, match="DuckDB ended the query and did not tell why"):
            read(right, context, tmp_path / "place")


def test_names_of_other_libraries_lead_to_what_a_query_has():
    with weft.SqlContext() as context:
        query = context.sql("SELECT 1 AS i")
        for name, there in {"to_pandas": "pandas()", "fetchall": "rows()", "head": "show()"}.items():
            with pytest.raises(
                AttributeError, match=rf"'Query' object has no attribute '{name}': here it is {re.escape(there)}"
            ):
                getattr(query, name)
        with pytest.raises(AttributeError, match=r"no attribute 'other'$"):
            _ = query.other


def test_a_query_is_an_array_of_rows_and_columns():
    with weft.SqlContext() as context:
        query = context.sql("SELECT i, i / 2 AS half FROM range(3) t(i) ORDER BY i")
        wanted = [[0.0, 0.0], [1.0, 0.5], [2.0, 1.0]]
        assert np.asarray(query).tolist() == wanted
        assert weft.tensor.asarray(query).fetch().tolist() == wanted
        assert np.asarray(query, dtype="f4").dtype == "f4"


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ("sum(i) AS i", np.array([[3]])),
        ("sum(i) AS i, avg(i) AS mean", np.array([[3, 1.0]])),
        (
            "max(1.25) AS price, max(0.5::DOUBLE) AS rate, max(NULL::DECIMAL(4, 1)) AS none",
            np.array([[1.25, 0.5, np.nan]]),
        ),
        ("sum(i) * 10::HUGEINT ** 20 AS i", np.array([[3e20]])),
        ("max(1.25) AS price", np.array([[Decimal("1.25")]])),
        ("sum(i) + 9223372036854775807 AS i", np.array([[Decimal(2**63 + 2)]])),
    ],
)
def test_wide_integers_and_decimals_have_the_types_of_numpy_where_these_hold_them(columns, wanted):
    with weft.SqlContext() as context:
        found = np.asarray(context.sql(f"SELECT {columns} FROM range(3) t(i)"))
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("at", [1, 3_000])
def test_a_word_for_missing_numbers_is_told(tmp_path, at):
    rows = [f"{i},{i}.5,x{i}" for i in range(5_000)]
    rows[at] = f"{at},NA,NA"
    (tmp_path / "t.csv").write_text("i,v,s\n" + "\n".join(rows) + "\n")
    with weft.SqlContext(allow=[str(tmp_path)]) as context:
        with pytest.warns(UserWarning, match=r"table t: v of .*t\.csv is text, since 'NA' stands where") as told:
            context.register("t", tmp_path / "t.csv")
        assert context.sql("SELECT max(v) FROM t").rows() == [("NA",)]
        (way,) = {str(one.message).partition("folder: ")[2] for one in told}
        assert context.sql(f"SELECT max(v), count(v), count(s) {way}").rows() == [(4_999.5, 4_999, 4_999)]


@pytest.mark.parametrize(
    "text", ["v\n1\nNA\nabc\n", "v\nNA\nNA\n", "v\n1\nNA\n-\n", "v\nx\ny\n", f"v,w\n1,{'x' * 200_000}\nNA,y\n"]
)
def test_texts_that_are_no_numbers_are_not_told(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with weft.SqlContext() as context:
        context.register("t", tmp_path / "t.csv")
        assert len(context.sql("SELECT v FROM t").rows()) == text.count("\n") - 1


def test_a_view_does_not_read_itself():
    with weft.SqlContext() as context:
        context.register("people", PEOPLE)
        context.sql("CREATE VIEW old AS FROM people WHERE age > 29")
        context.sql("CREATE VIEW older AS FROM old WHERE age > 40")
        for text in ("old AS FROM old", "old AS FROM older", "People AS SELECT name FROM people"):
            with pytest.raises(SqlError, match="would read itself"):
                context.sql(f"CREATE OR REPLACE VIEW {text}")
        context.sql("CREATE OR REPLACE VIEW older AS WITH older AS (FROM old) FROM older WHERE age < 35")
        assert context.sql("SELECT name FROM older").rows() == [("Ann",)]


class Interrupted:
    """The rows of a query whose reader is told that it was interrupted."""

    def __init__(self, found):
        self.schema = found.to_arrow_reader(1).schema

    def to_arrow_table(self):
        raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")

    def to_arrow_reader(self, rows):
        def batches():
            raise OSError("INTERRUPT Error: Interrupted!")
            yield

        return pa.RecordBatchReader.from_batches(self.schema, batches())


@MODES
def test_a_query_is_a_table_of_another(mode):
    with weft.SqlContext(mode=mode) as context:
        context.register("people", PEOPLE)
        old = context.sql("SELECT * FROM people WHERE age > ?", [29])
        assert context.sql("SELECT name FROM old ORDER BY name").rows() == [("Ann",), ("Bob",)]
        del old
        context.register("all_of_them", context.sql("SELECT name AS who FROM people"))
        assert context.sql("SELECT count(who) FROM all_of_them").rows() == [(3,)]


# ------------------------------------------------------------------------------------------------------- statements


def test_columns_of_the_same_name_have_types_of_their_own():
    with weft.SqlContext() as context:
        query = context.sql("SELECT 1 AS a, 'x' AS a")
        assert (query.columns, query.types, query.rows()) == (["a", "a"], ["INTEGER", "VARCHAR"], [(1, "x")])
        with pytest.raises(SqlError, match="two columns of the table t are called a"):
            context.sql("CREATE TABLE t AS SELECT 1 AS a, 'x' AS a").rows()
        with pytest.raises(SqlError, match="two columns of the table t are called a and A, which is one name in SQL"):
            context.sql('CREATE TABLE t AS SELECT 1 AS a, 2 AS "A"').rows()


@MODES
@pytest.mark.parametrize("place", ["{folder}", "memory://equal"], ids=["a file", "a URL"])
@pytest.mark.parametrize(
    ("end", "write"),
    [
        ("parquet", lambda context, text, out: context.sql(text).write_parquet(out)),
        ("json", lambda context, text, out: context.sql(text).write_json(out)),
        ("csv", lambda context, text, out: context.sql(f"COPY ({text}) TO '{out}'")),
    ],
    ids=["write_parquet", "write_json", "COPY"],
)
def test_columns_of_one_name_have_names_of_their_own_in_files(tmp_path, mode, place, end, write):
    out = f"{place.format(folder=tmp_path)}/out.{end}"
    with weft.SqlContext(mode=mode, workers=1, allow=[tmp_path, "memory://equal"]) as context:
        context.sql("CREATE TABLE a AS SELECT range AS id, 'x' AS name FROM range(3)")
        text = "SELECT a.*, b.*, 7 AS name FROM a JOIN a b ON a.id = b.id"
        with pytest.warns(UserWarning, match="has id as id_1, name as name_1, name as name_2; .* with AS") as told:
            write(context, text, out)
        assert len(told) == 1
        read = context.sql(f"FROM '{out}' ORDER BY id")
        assert read.columns == ["id", "name", "id_1", "name_1", "name_2"]
        assert read.rows() == [(at, "x", at, "x", 7) for at in range(3)]


def test_a_column_that_differs_in_case_alone_has_a_name_of_its_own_in_a_file(tmp_path):
    with weft.SqlContext(workers=1) as context, pytest.warns(UserWarning, match="the file has A as A_1;"):
        context.sql('SELECT 1 AS a, 2 AS "A"').write_parquet(tmp_path / "out.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist() == [{"a": 1, "A_1": 2}]


@MODES
def test_tables_and_views_within_a_session(mode):
    with weft.SqlContext(mode=mode) as context:
        context.register("people", PEOPLE)
        assert context.sql("CREATE TABLE sums AS SELECT sum(age) AS s, interval 3 days AS i FROM people").rows() == [
            (1,)
        ]
        assert context.sql("FROM sums").types == ["HUGEINT", "INTERVAL"]
        assert context.sql("INSERT INTO sums VALUES (?, NULL)", [7]).rows() == [(1,)]
        assert context.sql("INSERT INTO sums (s) SELECT s + 1 FROM sums").rows() == [(2,)]
        assert context.sql("SELECT s FROM sums ORDER BY s").rows() == [(7,), (8,), (100,), (101,)]
        context.sql("CREATE VIEW old (who) AS SELECT name FROM people WHERE age > 29 ORDER BY name")
        assert context.sql("FROM old").rows() == [("Ann",), ("Bob",)]
        context.sql("CREATE OR REPLACE VIEW old AS SELECT 1 AS one")
        assert context.sql("FROM old").rows() == [(1,)]
        context.sql("CREATE TABLE typed (a INTEGER, b VARCHAR)")
        context.sql("INSERT INTO typed SELECT 1, 'x'")
        assert context.sql("FROM typed").rows() == [(1, "x")]
        context.sql("DROP TABLE typed")
        context.sql("DROP VIEW IF EXISTS typed")
        assert context.tables == ["old", "people", "sums"]


def test_statements_that_are_wrong():
    with weft.SqlContext() as context:
        with pytest.raises(SqlError) as raised:
            context.sql("DROP TABLE two")
        assert raised.value.hint == "There is none."
        context.register("people", PEOPLE)
        context.sql("CREATE TABLE one AS SELECT 1 AS a")
        for text, match in {
            "CREATE TABLE one AS SELECT 2": "exists",
            "DROP TABLE two": "no table two",
            "INSERT INTO people VALUES ('x', 1)": "takes rows",
            "INSERT INTO one VALUES (1, 2)": "1 column",
            "UPDATE one SET a = 2": "UPDATE is not available",
            "CREATE MACRO f(x) AS x": "CREATE MACRO",
            "CREATE TABLE a.b AS SELECT 1": "several parts",
            "CREATE TABLE t AS SELECT nme FROM people": "nme",
        }.items():
            with pytest.raises(SqlError, match=match):
                context.sql(text)
        assert context.sql("CREATE TABLE IF NOT EXISTS one AS SELECT 2").rows() == [(0,)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INSERT INTO t VALUES ('x')", "query:1:23: Could not convert string 'x' to INT32"),
        ("INSERT INTO t (a)\n VALUES\n  ('x')", "query:3:4: Could not convert string 'x' to INT32"),
        ("INSERT INTO t SELECT no FROM t", "query:1:22: Referenced column"),
        ("INSERT INTO t VALUES (1, 2)", "query: table t has 1 columns"),
        ('INSERT INTO "t" (b) VALUES (1)', 'query: Table "t" does not have a column with name "b"'),
    ],
)
def test_an_error_of_insert_is_about_its_own_text(text, said):
    with weft.SqlContext(workers=1) as context:
        context.sql("CREATE TABLE t (a INT)")
        with pytest.raises(SqlError) as caught:
            context.sql(text)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ("a INT DEFAULT 1, b INT", "DEFAULT"),
        ("a INT NOT NULL", "NOT NULL"),
        ("a INT PRIMARY KEY", "PRIMARY KEY"),
        ("a INT CHECK (a > 0)", "CHECK"),
    ],
)
def test_what_tables_do_not_keep_is_refused(columns, what):
    with weft.SqlContext() as context:
        with pytest.raises(weft.SqlError, match=f"the table t has {what}"):
            context.sql(f"CREATE TABLE t ({columns})")
        assert context.tables == []


def test_a_view_reads_what_its_variables_were():
    rows = PEOPLE
    with weft.SqlContext() as context:
        context.sql("CREATE VIEW v AS SELECT count(*) AS n FROM rows")
        del rows
        assert context.sql("FROM v").rows() == [(3,)]


@pytest.mark.parametrize("held", [[1, 2], {"x": [1]}, 7, math])
def test_a_variable_that_is_no_table_is_said_to_be_none(held):
    with weft.SqlContext(workers=1) as context:
        for text in ("SELECT 1 FROM\n held", "CREATE VIEW v AS FROM held", "CREATE TABLE t AS FROM held"):
            with pytest.raises(SqlError, match=r"held is a variable, and an? \w+ is no table") as told:
                context.sql(text)
            assert "Arrow table, a data frame" in told.value.hint
        with pytest.raises(SqlError, match=r"query:2:2: held is a variable"):
            context.sql("SELECT 1 FROM\n held")
        with pytest.raises(SqlError, match="Table with name nothing_here does not exist"):
            context.sql("FROM nothing_here")


@pytest.mark.parametrize(
    ("text", "parameters", "told"),
    [
        ("SELECT ? + ?", [1], "too few values for the text: 1 value missing"),
        ("SELECT ?", [1, 2, 3], "too many values for the text: 2 values left"),
        ("SELECT $a", None, r"no value for \$a"),
        ("SELECT $a", {"a": 1, "b": 2}, r"the text has no \$b"),
        ("INSERT INTO t VALUES ($a)", {"b": 2}, r"no value for \$a"),
    ],
)
def test_parameters_without_values_and_values_without_parameters_are_named(text, parameters, told):
    with weft.SqlContext(workers=1) as context:
        context.sql("CREATE TABLE t (a INT)")
        with pytest.raises(SqlError, match=told) as caught:
            context.sql(text, parameters)
    assert caught.value.hint


def test_files_with_different_columns_are_told_with_what_reads_them(tmp_path):
    for name in "bc":
        (tmp_path / f"{name}.csv").write_text(f"a,{name}\n1,2\n")
    with weft.SqlContext(mode="whole", allow=[tmp_path]) as context:
        with pytest.raises(DefinitionError, match=r"columns: .*c\.csv has c, and .*b\.csv has not") as told:
            context.register("t", str(tmp_path / "*.csv"))
        assert "union_by_name = true" in told.value.hint


def test_csv_files_whose_names_of_columns_differ_in_case_are_told_with_what_reads_them(tmp_path):
    for name, header in (("b", "id,my txt,n"), ("c", "ID,My txt,n")):
        (tmp_path / f"{name}.csv").write_text(f"{header}\n1,{name},2\n")
    with weft.SqlContext(mode="whole", allow=[tmp_path]) as context:
        with pytest.raises(DefinitionError, match=r"columns: .*b\.csv has id, my txt, and .*c\.csv has not") as told:
            context.register("t", str(tmp_path / "*.csv"))
        advice = told.value.hint.partition("folder: ")[2].rstrip(".")
        assert context.sql(f"{advice} ORDER BY 2").rows() == [(1, "b", 2), (1, "c", 2)]


@MODES
def test_a_dropped_table_is_named_by_the_views_and_queries_that_read_it(mode):
    with weft.SqlContext(mode=mode, workers=1) as context:
        context.sql("CREATE TABLE a AS SELECT range AS k FROM range(5)")
        context.sql("CREATE VIEW b (s) AS SELECT sum(k) FROM a")
        context.sql("CREATE VIEW c AS WITH own AS (FROM b) SELECT s FROM own")
        made, through = context.sql("SELECT k + 1 AS k FROM a"), context.sql("FROM c")
        context.sql("DROP TABLE a")
        for read in (lambda: context.sql("FROM c"), through.rows, lambda: list(through.batches())):
            with pytest.raises(SqlError, match="the view b reads the table a, which is gone") as told:
                read()
            assert told.value.hint == 'Make a again, or drop the view: DROP VIEW "b".'
        with pytest.raises(SqlError, match="Table with name a does not exist") as told:
            made.rows()
        assert "pg_" not in told.value.hint
        context.sql("CREATE TABLE a AS SELECT 7 AS k")
        assert context.sql("FROM c").rows() == [(7,)]
        assert (sorted(made.rows()), through.rows()) == ([(k + 1,) for k in range(5)], [(10,)])  # of the table of then


@MODES
def test_copy_writes_below_granted_folders(folder, mode):
    with weft.SqlContext(mode=mode, allow=[folder / "data"]) as context:
        context.register("people", PEOPLE)
        copied = context.sql("COPY (SELECT * FROM people WHERE age > 29) TO 'data/out.csv' (HEADER, DELIMITER ';')")
        assert copied.rows() == [(2,)]
        assert (folder / "data" / "out.csv").read_text() == "name;age\nAnn;30\nBob;41\n"
        for path in ("out.csv", "data/../out.csv", "/tmp/out.csv"):
            with pytest.raises(ForbiddenError, match="COPY"):
                context.sql(f"COPY people TO '{path}'")
    with weft.SqlContext() as context:  # a registered file may be read, and not replaced
        context.register("people", "data/0.parquet")
        with pytest.raises(ForbiddenError, match="COPY"):
            context.sql("COPY (SELECT 1) TO 'data/0.parquet'")


@pytest.mark.parametrize("way", ["PARTITION_BY a", "PER_THREAD_OUTPUT"])
def test_copy_overwrites_a_folder_when_all_rows_are_written_and_no_files_of_others(tmp_path, way):
    folder = tmp_path / "out"
    with weft.SqlContext(allow=[tmp_path]) as context:

        def copy(text, options=""):
            return context.sql(f"COPY ({text}) TO '{folder}' (FORMAT parquet, {way}{options})").rows()

        assert copy("SELECT i % 3 AS a, i AS b FROM range(10000) t(i)", ", OVERWRITE") == [(10000,)]
        context.register("t", folder)
        assert copy("SELECT a, b + 1 AS b FROM t WHERE a > 0", ", OVERWRITE") == [(6666,)]
        with weft.SqlContext(allow=[tmp_path]) as after:
            read = f"SELECT count(*), min(a), sum(b) FROM '{folder}/**/*.parquet'"
            expected = (6666, 1, sum(i + 1 for i in range(10000) if i % 3))
            assert after.sql(read).rows() == [expected]
            with pytest.raises(SqlError, match="x"):
                copy("SELECT a, CAST(IF(b > 9990, 'x', '1') AS INTEGER) AS b FROM t", ", OVERWRITE true")
            assert after.sql(read).rows() == [expected]
            (folder / "sub").mkdir()
            (folder / "sub" / "notes.txt").write_text("mine")
            with pytest.raises(
                ConflictError, match=r"holds also sub/notes\.txt, which OVERWRITE would delete"
            ) as refused:
                copy("SELECT 1 AS a, 2 AS b", ", OVERWRITE")
            assert "OVERWRITE_OR_IGNORE" in refused.value.hint
            assert after.sql(read).rows() == [expected]
        assert (folder / "sub" / "notes.txt").read_text() == "mine"
        assert not list(folder.glob(".*"))


@MODES
def test_negative_zeros_stay_in_all_tables(mode):
    values = [0.0, -0.0, 1.5, None, math.nan] * 3_000
    rows = pa.table(
        {"i": range(len(values)), "x": values, "f": pa.array(values, pa.float32()), "l": [[v] for v in values]}
    )
    shown = [str(value) for value in values]
    narrow = ["None" if value is None else repr(value) for value in values]
    for columns in (["i", "x", "f"], ["i", "x", "f", "l"]):
        with weft.SqlContext(mode=mode) as context:
            context.register("t", rows.select(columns))
            context.sql("CREATE TABLE u AS SELECT * FROM t")
            context.sql("CREATE TABLE w AS SELECT * FROM t WHERE x > 0")
            context.sql("INSERT INTO w SELECT * FROM t WHERE x <= 0")
            for table in "tu":
                found = context.sql(f"SELECT x, f FROM {table} ORDER BY i").rows()
                assert [(str(x), repr(f)) for x, f in found] == list(zip(shown, narrow, strict=True))
            assert sorted({str(x) for (x,) in context.sql("SELECT x FROM w").rows()}) == ["-0.0", "0.0", "1.5", "nan"]
            assert context.sql("FROM u LIMIT 1").columns == columns
            if "l" in columns:
                assert {str(one) for (one,) in context.sql("SELECT l FROM u").rows()} >= {"[0.0]", "[-0.0]"}


@MODES
@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.json"])
def test_a_copy_that_fails_leaves_the_earlier_file_and_nothing_else(tmp_path, mode, old, name):
    if old is not None:
        (tmp_path / name).write_text(old)
    with weft.SqlContext(mode=mode, allow=[tmp_path]) as context:
        context.register("t", pa.table({"i": range(200_000)}))
        rows = "SELECT i, CASE WHEN i = 199999 THEN error('no luck') END AS b FROM t"
        with pytest.raises(SqlError, match="no luck"):
            context.sql(f"COPY ({rows}) TO '{tmp_path}/{name}'")
        assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == ([] if old is None else [(name, old)])
        context.sql(f"COPY (SELECT 1 AS a) TO '{tmp_path}/{name}'")
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_ctrl_c_during_a_copy_leaves_the_earlier_file_and_nothing_else(tmp_path):
    (tmp_path / "out.csv").write_text("old")
    main = threading.main_thread().ident or 0

    def writes() -> bool:
        frame, names = sys._current_frames().get(main), set()
        while frame is not None:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
        return {"executed", "wait"} <= names and len(list(tmp_path.iterdir())) > 1

    def interrupt() -> None:
        until(writes)
        os.kill(os.getpid(), signal.SIGINT)

    with weft.SqlContext(allow=[tmp_path]) as context:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            context.sql(f"COPY (SELECT i, sin(i) AS b FROM range(100000000000) t(i)) TO '{tmp_path}/out.csv'")
        thread.join()
        assert context.sql("SELECT 1").rows() == [(1,)]
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("out.csv", "old")]


@pytest.mark.parametrize("end", ["csv", "parquet", "json"])
def test_a_copy_that_fails_leaves_the_earlier_file_alone(tmp_path, end):
    place = tmp_path / f"out.{end}"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with weft.SqlContext(mode="whole", workers=1, allow=[tmp_path]) as context:
        context.sql(f"COPY (SELECT 1 AS n) TO '{place}'")
        before = place.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            with pytest.raises(SqlError, match="Could not write file"):
                context.sql(f"COPY (SELECT hash(i) AS n FROM range(2000000) r(i)) TO '{place}'")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert place.read_bytes() == before
    assert os.listdir(tmp_path) == [place.name]


@MODES
@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_a_table_whose_file_is_gone_harms_no_other_table(tmp_path, mode, end):
    place = tmp_path / f"f.{end}"
    duckdb.execute(f"COPY (SELECT 1 AS n) TO '{place}'")
    with weft.SqlContext(mode=mode, workers=1) as context:
        context.register("f", place)
        context.register("people", PEOPLE)
        assert context.sql("FROM f").rows() == [(1,)]
        place.rename(tmp_path / "kept")
        assert context.sql("SELECT count(*) FROM people").rows() == [(3,)]
        with pytest.raises(NotFoundError, match=f"there is no file {place}\n"):
            context.sql("FROM f").rows()
        (tmp_path / "kept").rename(place)
        assert context.sql("FROM f").rows() == [(1,)]


ENDLESS = "SELECT range AS n FROM range(100000000000)"
NO_ROW = f"{ENDLESS} WHERE hash(n) = 0"


@pytest.mark.parametrize(
    "read",
    [
        lambda context, place: context.sql(f"COPY ({ENDLESS}) TO '{place}'"),
        lambda context, place: context.sql(f"CREATE TABLE t AS {ENDLESS}"),
        lambda context, place: context.sql(f"CREATE TABLE t AS {NO_ROW}"),
        lambda context, place: context.sql(f"COPY ({NO_ROW}) TO '{place}'"),
        lambda context, place: context.sql(f"INSERT INTO empty {NO_ROW}"),
        lambda context, place: context.sql(f"INSERT INTO empty {ENDLESS}"),
        lambda context, place: context.sql(ENDLESS).write_parquet(place),
        lambda context, place: any(not rows.num_rows for rows in context.sql(ENDLESS).batches()),
    ],
    ids=[
        "copy",
        "create",
        "create-of-no-row",
        "copy-of-no-row",
        "insert-of-no-row",
        "insert",
        "write_parquet",
        "batches",
    ],
)
def test_ctrl_c_is_a_keyboard_interrupt(tmp_path, read):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with weft.SqlContext(mode="whole", workers=1, allow=[tmp_path]) as context:
            context.sql("CREATE TABLE empty (n BIGINT)")
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(KeyboardInterrupt):
                read(context, tmp_path / "out.parquet")
            assert context.sql("SELECT 1").rows() == [(1,)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------------------------------------------------- streams


def test_batches_come_while_the_query_runs(tmp_path):
    with weft.SqlContext() as context:
        query = context.sql("SELECT range AS n, range::HUGEINT AS h FROM range(100000000000)")
        batch = next(iter(query.batches(1000)))  # all rows would not fit into memory
        assert batch.num_rows <= 1000
        assert query.first(3).column("n").to_pylist() == [0, 1, 2]
        context.sql("SELECT range AS n FROM range(300000)").write_parquet(tmp_path / "n.parquet")
        assert pyarrow.parquet.read_metadata(tmp_path / "n.parquet").num_rows == 300000
        context.sql("SELECT 1 AS n LIMIT 0").write_parquet(tmp_path / "empty.parquet")
        assert pyarrow.parquet.read_table(tmp_path / "empty.parquet").column_names == ["n"]


@MODES
@pytest.mark.parametrize("end", ["csv", "json", "parquet"])
def test_a_file_that_has_changed_is_read_again(folder, mode, end):
    def write(*numbers):
        if end == "csv":
            (folder / "t.csv").write_text("\n".join(map(str, ["n", *numbers])))
        elif end == "json":
            (folder / "t.json").write_text("\n".join(f'{{"n": {number}}}' for number in numbers))
        else:
            pyarrow.parquet.write_table(pa.table({"n": numbers}), folder / "t.parquet")

    write(1, 2)
    with weft.SqlContext(mode=mode, workers=2) as context:
        context.register("t", f"t.{end}")
        assert context.sql("SELECT sum(n) FROM t").rows() == [(3,)]
        later = context.sql("SELECT sum(n) FROM t")
        write(10, 20, 30)
        assert context.sql("SELECT sum(n) FROM t").rows() == [(60,)]
        assert later.rows() == [(60,)]


@MODES
@pytest.mark.parametrize("end", ["parquet", "json"])
def test_a_query_may_replace_the_file_that_it_reads(folder, mode, end):
    file = folder / f"people.{end}"
    with weft.SqlContext(mode=mode, workers=2) as context:
        write = f"write_{end}"
        getattr(weft.sql("FROM people", people=PEOPLE), write)(file)
        (folder / f"link.{end}").symlink_to(file)
        context.register("people", file)
        getattr(context.sql("SELECT * FROM people WHERE age > 29"), write)(f"link.{end}")
        assert context.sql("SELECT name FROM people ORDER BY name").rows() == [("Ann",), ("Bob",)]
    assert not file.is_symlink()
    assert (folder / f"link.{end}").is_symlink()
    assert not list(folder.glob(".*"))


@MODES
@pytest.mark.parametrize("end", ["parquet", "json"])
def test_a_query_that_fails_leaves_the_file_that_was_there(folder, mode, end):
    file = folder / f"people.{end}"
    file.write_text("earlier")
    with weft.SqlContext(mode=mode, workers=2) as context:
        context.register("people", "data/*.parquet")
        query = context.sql("SELECT (CASE age WHEN 41 THEN 'many' ELSE '1' END)::INTEGER AS n FROM people")
        with pytest.raises(SqlError, match="many"):
            getattr(query, f"write_{end}")(file)
        with pytest.raises(NotFoundError, match="there is no folder"):
            getattr(context.sql("FROM people"), f"write_{end}")(folder / "missing" / "out")
    assert file.read_text() == "earlier"
    assert not list(folder.glob(".*"))


def test_rows_are_written_into_a_pipe(folder):
    os.mkfifo("pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((folder / "pipe").read_bytes()))
    reader.start()
    weft.sql("SELECT 1 AS n").write_json("pipe")
    reader.join(180)
    assert read == [b'[\n\t{"n":1}\n]\n']


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(queries, "import_module", _missing)
    with weft.SqlContext() as context, pytest.raises(MissingExtraError, match="polars") as caught:
        context.sql("SELECT 1").polars()
    assert "pip install polars" in caught.value.hint


def _missing(name):
    raise ImportError(name)


# ------------------------------------------------------------------------------------------------------- permissions

REACHING = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM read_blob('/etc/hostname')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM parquet_metadata('/etc/x.parquet')",
    "SELECT * FROM read_json('/etc/x.json')",
    "SELECT * FROM '/etc/x.parquet'",
    "SELECT (SELECT count(*) FROM read_text('/etc/hostname'))",
    "WITH t AS (FROM read_text('/etc/hostname')) FROM t",
    "CREATE TABLE t AS FROM read_text('/etc/hostname')",
    "CREATE VIEW t AS FROM read_text('/etc/hostname')",
    "COPY (SELECT 1) TO '/tmp/x.csv'",
    "ATTACH '/tmp/x.db'",
    "ATTACH ':memory:' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET allowed_directories = ['/']",
    "PRAGMA threads = 1",
    "CALL pragma_version()",
    "EXPORT DATABASE '/tmp/x'",
]


@MODES
@pytest.mark.parametrize("text", REACHING)
def test_what_is_not_granted_is_refused(text, mode):
    with weft.SqlContext(mode=mode) as context:
        with pytest.raises(ForbiddenError) as caught:
            context.sql(text).rows()
        assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SET TimeZone = 'Europe/Oslo'", "AT TIME ZONE"),
        ("SET GLOBAL memory_limit = '1GB'", "memory='4GiB'"),
        ("PRAGMA threads = 1", "workers=4"),
        ("SET threads TO 1", "workers=4"),
        ("SET VARIABLE a = 1", "$name"),
        ("SET default_null_order = 'nulls_first'", "NULLS FIRST"),
        ("SET search_path = 'a'", "There are: SELECT"),
        ("EXPLAIN SELECT 1", "explain(analyze=True)"),
        ("UPDATE t SET a = 2", "CREATE OR REPLACE TABLE t AS"),
        ("WITH a AS (SELECT 1) INSERT INTO t FROM a", "INSERT INTO t WITH"),
        ("SELECT 1; SELECT 2", "Call sql for each"),
        ("-- nothing", "Write a query"),
        ("COPY (SELECT 1) TO '/x.csv'", "weft sql --allow / ..."),
    ],
)
@MODES
def test_statements_that_are_refused_tell_what_to_write_instead(text, hint, mode):
    with weft.SqlContext(mode=mode) as context:
        context.sql("CREATE TABLE t AS SELECT 1 AS a")
        with pytest.raises((ForbiddenError, SqlError)) as told:
            context.sql(text)
    assert hint in told.value.hint
    assert "register the file" not in told.value.hint


@pytest.mark.parametrize("text", ["DESCRIBE", "SHOW", "SHOW ALL TABLES", "SHOW DATABASES"])
def test_statements_about_the_catalog_are_said_to_be_missing(text):
    with weft.SqlContext() as context, pytest.raises(weft.SqlError, match="is not available in queries"):
        context.sql(text)


@MODES
@pytest.mark.parametrize(
    "text",
    [
        "DESCRIBE people",
        "desc people;",
        "DESCRIBE SELECT age + 0.5 AS x, name FROM people",
        "SUMMARIZE people -- all of it",
        "SUMMARIZE FROM people WHERE age < 40;",
    ],
)
def test_tables_and_queries_are_described_and_summarized_as_by_duckdb(text, mode):
    with duckdb.connect() as connection, weft.SqlContext(workers=1, mode=mode) as context:
        connection.register("people", PEOPLE)
        wanted = connection.execute(text)
        columns, rows = [one[0] for one in wanted.description], wanted.fetchall()
        context.register("people", PEOPLE)
        query = context.sql(text)
        assert (query.columns, query.rows()) == (columns, rows)
        context.register("described", context.sql(text))  # a view of it
        assert context.sql("SELECT count(*) FROM described").rows() == [(len(rows),)]
        assert context.sql("FROM described").columns == columns


def test_a_summary_takes_parameters_variables_and_files(folder):
    frame = PEOPLE
    with weft.SqlContext(workers=1) as context:
        assert context.sql("SUMMARIZE SELECT age FROM frame WHERE age > ?", [29]).arrow()["count"].to_pylist() == [2]
        described = context.sql("DESCRIBE 'cities.csv'").rows()
        assert [row[:2] for row in described] == [("name", "VARCHAR"), ("city", "VARCHAR")]
    assert frame.num_rows == 3


@pytest.mark.parametrize(
    ("text", "line", "column", "parameters"),
    [
        ("DESCRIBE nobody", 1, 10, None),
        ("SUMMARIZE SELECT age,\n nothing FROM people", 2, 2, None),
        ("SUMMARIZE SELECT age,\n nothing FROM people WHERE age > ?", 2, 2, [1]),
    ],
)
def test_a_mistake_in_what_is_described_has_its_place(text, line, column, parameters):
    with weft.SqlContext(workers=1) as context:
        context.register("people", PEOPLE)
        with pytest.raises(SqlError, match=r"nobody|nothing") as caught:
            context.sql(text, parameters)
        assert (caught.value.line, caught.value.column) == (line, column)


def test_show_tables_gives_the_tables_and_views_of_the_context(folder):
    with weft.SqlContext(workers=1) as context:
        assert context.sql("SHOW TABLES").rows() == []
        context.register("People", PEOPLE)
        context.register("cities", "cities.csv")
        context.sql("CREATE VIEW old AS FROM People WHERE age > 29")
        query = context.sql("show tables;")
        assert (query.columns, query.types) == (["name"], ["VARCHAR"])
        assert query.rows() == [("People",), ("cities",), ("old",)]


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        ("VALUES (5, 'r'), (6, 's') RETURNING a, b", ["a", "b"], [(5, "r"), (6, "s")]),
        ("SELECT age, name FROM people WHERE age > 40 RETURNING *;", ["a", "b"], [(41, "Bob")]),
        ("BY NAME SELECT 'n' AS b RETURNING a IS NULL AS x, b AS x", ["x", "x"], [(True, "n")]),
        ("(b) FROM (SELECT name FROM people LIMIT 1) RETURNING b", ["b"], [("Ann",)]),
        ("SELECT 1 AS returning, 'q'", ["count"], [(1,)]),
    ],
)
def test_an_insert_returns_the_rows_that_it_is_asked_for(text, columns, rows):
    people = PEOPLE
    with weft.SqlContext(workers=1) as context:
        context.sql("CREATE TABLE u (a INTEGER, b VARCHAR)")
        query = context.sql(f"INSERT INTO u {text}")
        assert (query.columns, query.rows()) == (columns, rows)
        assert context.sql("SELECT count(*) FROM u").rows() == [(len(rows),)]
    assert people.num_rows == 3


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("INSERT INTO u VALUES (1, 'r') RETURNING u.a", "RETURNING names the table u", 41),
        ("INSERT INTO u VALUES (1, 'r') RETURNING nope", "nope", 41),
        ("CREATE TABLE v (x) AS SELECT 1", r"takes nothing between the name and AS", 16),
        ("CREATE TABLE v PARTITIONED BY (x) AS SELECT 1 AS x", r"takes nothing between the name and AS", 16),
        ("COPY u TO 'u.csv' (FORMAT csv, RETURN_FILES)", "no RETURN_FILES", 19),
        ("COPY u TO 'u.csv' (return_stats true)", "no return_stats", 19),
    ],
)
def test_clauses_that_have_no_effect_here_are_refused(folder, text, said, column):
    with weft.SqlContext(workers=1, allow=["."]) as context:
        context.sql("CREATE TABLE u (a INTEGER, b VARCHAR)")
        with pytest.raises(SqlError, match=said) as caught:
            context.sql(text)
        assert (caught.value.line, caught.value.column) == (1, column)
        assert context.tables == ["u"]
        assert context.sql("FROM u").rows() == []
    assert not (folder / "u.csv").exists()


def test_copy_writes_the_columns_that_it_names(folder):
    with weft.SqlContext(workers=1, allow=["."]) as context:
        context.register("a (b", PEOPLE)
        context.sql("""COPY "a (b" (age, name) TO 'rows.csv'""")
        assert (folder / "rows.csv").read_text() == "age,name\n30,Ann\n41,Bob\n29,Cid\n"
        context.sql("""COPY "a (b" TO 'rows.csv'""")
        assert (folder / "rows.csv").read_text() == "name,age\nAnn,30\nBob,41\nCid,29\n"


def test_the_error_names_the_function_and_the_grant():
    with weft.SqlContext() as context, pytest.raises(ForbiddenError, match="read_text") as caught:
        context.sql("SELECT * FROM read_text('/etc/hostname')")
    assert "allow=['/etc']" in caught.value.hint
    assert "--allow /etc" in caught.value.hint


def test_the_current_folder_gives_data_files_only(folder):
    (folder / ".env").write_text("SECRET=1\n")
    (folder / "link.csv").symlink_to("/etc/passwd")
    with weft.SqlContext() as context:
        for text in ("FROM read_text('.env')", "FROM read_csv('cities.csv')", "FROM 'link.csv'"):
            with pytest.raises(ForbiddenError):
                context.sql(text)
    with weft.SqlContext(allow=["."]) as context:
        assert context.sql("SELECT content FROM read_text('.env')").rows() == [("SECRET=1\n",)]


# ---------------------------------------------------------------------------------------------------------- the end


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("by", ["cancel", "ctrl-c"])
@MODES
def test_a_run_that_is_stopped_interrupts_the_kernel(mode, backend, by, monkeypatch):
    """The query would take hours, so that it ends only if the kernel is interrupted."""
    with weft.SqlContext(mode=mode, backend=backend, workers=2) as context:
        context.register("t", pa.table({"n": range(1_000_000)}))
        query = context.sql("SELECT sum(a.n * b.n % 7) FROM t a, t b WHERE a.n <> b.n + 1")
        session = context.own if mode == "whole" else context.session
        submit, stopping = session.submit, []

        def stop(run):
            while not any(vertex.executing for vertex in run.view().vertices) and not run.done:
                threading.Event().wait(0.01)
            if by == "cancel":
                run.cancel("enough")
            else:
                os.kill(os.getpid(), signal.SIGINT)

        def begun(graph, **more):
            run = submit(graph, **more)
            stopping.append((run, threading.Thread(target=stop, args=[run])))
            stopping[-1][1].start()
            return run

        monkeypatch.setattr(session, "submit", begun)
        with pytest.raises((RunCancelledError, KeyboardInterrupt)):
            query.arrow()
        for run, thread in stopping:
            thread.join(180)
            assert run.status == "cancelled"
        monkeypatch.undo()
        assert context.sql("SELECT max(n) FROM t").rows() == [(999_999,)]


def test_files_that_change_between_queries_are_read_anew(tmp_path):
    file, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    with weft.SqlContext(mode="stages", workers=2) as context:
        for at, name in ((file, "t"), (other, "u")):
            pa.parquet.write_table(pa.table({"i": [1, 2, 3]}), at)
            context.register(name, at)
        text = "SELECT sum(t.i), count(*) FROM t JOIN u USING (i)"
        assert context.sql(text).rows() == context.sql(text).rows() == [(6, 3)]
        pa.parquet.write_table(pa.table({"i": [3, 4, 5, 1]}), file)
        query = context.sql(text)
        assert (query.rows(), query.whole_because) == ([(4, 2)], "")
        pa.parquet.write_table(pa.table({"i": [4], "k": [7]}), other)
        context.register("u", other)
        assert context.sql("SELECT t.i, k FROM t JOIN u USING (i)").rows() == [(4, 7)]
        context.forget("t")
        context.register("T", other)
        assert context.sql("SELECT k FROM T").rows() == [(7,)]


@pytest.fixture(scope="module")
def large_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "big.parquet"
    rows = "SELECT hash(i) AS h, hash(i)::VARCHAR AS s FROM range(4000000) t(i)"
    duckdb.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")
    return path


@MODES
def test_a_query_that_needs_more_memory_than_it_may_take_is_spilled(mode, large_file):
    with weft.SqlContext(workers=2, mode=mode, memory="256MiB") as context:
        context.register("big", large_file)
        text = "SELECT row_number() OVER (ORDER BY s, h) AS n FROM big QUALIFY n % 1000000 = 0 ORDER BY n"
        assert context.sql(text).rows() == [(1_000_000 * n,) for n in range(1, 5)]
        assert context.sql("SELECT current_setting('memory_limit')", mode="whole").rows() == [("256.0 MiB",)]


@MODES
def test_tables_that_change_between_queries_are_read_anew(mode):
    with weft.SqlContext(workers=2, mode=mode) as context:
        for values in ([1, 2], [3]):
            context.register("t", pa.table({"n": values}))
            assert context.sql("SELECT n FROM t ORDER BY n").rows() == [(n,) for n in values]
        context.register("other", pa.table({"n": [4]}))
        assert context.sql("SELECT t.n, other.n FROM t, other").rows() == [(3, 4)]
        context.forget("t")
        with pytest.raises(SqlError):
            context.sql("SELECT n FROM t")


def test_hugeints_are_decimals_of_the_same_value():
    text = (
        "SELECT n, 'x' AS s FROM (VALUES (99999999999999999999999999999999999999::HUGEINT), "
        "((-99999999999999999999999999999999999999)::HUGEINT), (NULL), (0)) v(n)"
    )
    query = weft.sql(text)
    table = query.arrow()
    assert table.schema.field("n").type == pa.decimal128(38, 0)
    most = 10**38 - 1
    assert table.column("n").to_pylist() == [most, -most, None, 0]
    assert table.slice(1, 2).column("n").to_pylist() == [-most, None]
    assert weft.sql(text.replace("(NULL)", "(1), (NULL)") + " WHERE n = 0").arrow().column("n").to_pylist() == [0]
    assert weft.sql(f"{text} WHERE n = 7").arrow().num_rows == 0
