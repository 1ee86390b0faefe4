"""`weft sql`, and the kind of step `sql`."""

import csv
import io
import json
import os
import threading
from pathlib import Path

import pyarrow.parquet
import pytest

from weft.cli.context import CommandContext
from weft.cli.main import main

DEADLINE_S = 180.0
PEOPLE = "name,age,city\nAnn,30,x\nBob,41,y\nCid,29,x\n"
PIPELINE = """
name: sums
cache: {enable: true}
entry_points:
  make:
    command: "printf 'name,age,city\\nAnn,30,x\\nBob,41,y\\n' > {{raw}}"
    artifacts:
      output: [raw]
  sums:
    deps: make
    parameters: {least: 30}
    artifacts:
      input: {raw: "{{make.raw}}"}
      output: [ages]
    x-weft:
      kind: sql
      with:
        query: QUERY
        tables: {people: raw}
        format: FORMAT
"""
QUERY = "select city, sum(age) as age from people where age > $least group by city"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "people.csv").write_text(PEOPLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weft(*words):
    out, err = io.StringIO(), io.StringIO()
    code = main(words, CommandContext(out=out, err=err, environ={"HOME": str(Path.cwd())}))
    return code, out.getvalue(), err.getvalue()


def test_csv_tells_null_from_an_empty_text_as_copy_does(folder):
    rows = "select * from (values (1, '', null, true), (2, 'a\"b', 'x,y', null)) as v(k, a, b, c) order by k"
    printed = weft("sql", rows, "--csv")[1]
    assert printed == 'k,a,b,c\n1,"",,true\n2,"a""b","x,y",\n'
    assert weft("sql", f"copy ({rows}) to 'copied.csv'", "--allow", ".")[0] == 0
    assert (folder / "copied.csv").read_text() == printed


def test_a_parameter_in_double_quotes_is_text(folder):
    text = "select typeof($n) as n, typeof($z) as z, typeof($t) as t, $t as v"
    assert weft("sql", text, "-p", "n=7", "-p", "z=007", "-p", 't="7"', "--csv")[1] == (
        "n,z,t,v\nINTEGER,VARCHAR,VARCHAR,7\n"
    )


def test_warnings_about_tables_are_those_of_the_command(folder):
    (folder / "names.csv").write_text("a,A\n1,2\n")
    code, out, err = weft("sql", "from names", "names.csv", "--csv")
    assert (code, out) == (0, "a,A_1\n1,2\n")
    assert err.startswith("warning: the columns a and A differ only in case")


def test_rows_as_a_table_json_csv_and_parquet(folder):
    text = "select city, sum(age) as age from people group by city order by city"
    assert weft("sql", text, "people.csv") == (0, "city  age\nx     59\ny     41\n", "2 rows\n")
    code, out, _ = weft(
        "sql", "select name from people where city = $c", "-t", "people=people.csv", "-p", "c=y", "--json"
    )
    assert (code, json.loads(out)["rows"]) == (0, [["Bob"]])
    assert weft("sql", "from 'people.csv' order by age limit 1", "--csv")[1] == "name,age,city\nCid,29,x\n"
    assert weft("sql", "from people", "people.csv", "--parquet", "out.parquet")[0] == 0
    assert pyarrow.parquet.read_table("out.parquet").num_rows == 3
    assert "scan people" in weft("sql", text, "people.csv", "--explain", "--mode", "stages")[1]
    (folder / "q.sql").write_text("select 1 as one")
    assert weft("sql", "q.sql", "--csv")[1] == "one\n1\n"
    assert "the first 1 rows" in weft("sql", "from people", "people.csv", "-n", "1")[2]


def test_columns_of_one_name_in_a_parquet_file_are_told(folder):
    code, _, err = weft("sql", "select 1 as a, 2 as a", "--parquet", "out.parquet")
    assert (code, err.count("warning: ")) == (0, 1)
    assert "a as a_1" in err
    assert pyarrow.parquet.read_table("out.parquet").to_pylist() == [{"a": 1, "a_1": 2}]


def test_a_mistake_has_a_caret_below_it(folder):
    code, _, err = weft("sql", "select name,\n  nme from people", "people.csv")
    assert code == 3
    assert err.split("\n")[1:3] == ["    nme from people", "    ^"]


def test_tables_that_are_not_there_are_told_with_how_to_name_them(folder):
    code, _, err = weft("sql", "from nobody")
    assert code == 3
    assert "Table with name nobody does not exist" in err
    assert "weft sql -t NAME=FILE" in err
    assert "pg_" not in err
    assert 'Did you mean "people"' in weft("sql", "from peopel", "people.csv")[2]
    code, _, err = weft("sql", "from p", "p=people.csv")
    assert code == 2
    assert "To name a table: weft sql ... --table p=people.csv" in err


def test_what_is_refused_and_what_is_wrong(folder):
    code, _, err = weft("sql", "from read_text('/etc/hostname')")
    assert (code, "read_text" in err, "--allow /etc" in err) == (5, True, True)
    assert weft("sql", "from read_csv('people.csv')", "--allow", ".")[0] == 0
    assert weft("sql", "select 1", "-t", "people.csv")[0] == 2
    assert weft("sql", "select 1", "--json", "--csv")[0] == 2
    assert weft("sql", "from gone", "gone.csv")[0] == 4


def test_a_table_of_rows_shows_their_values(folder):
    text = "select NULL as a, '' as b, ' x ' as c, e'first\\nsecond\\ttab\\x1b' as \"d\ne\""
    assert weft("sql", text)[1] == "a     b  c    d\\ne\nNULL      x   first\\nsecond\\ttab\\x1b\n"
    assert weft("sql", "select repeat('y', 70)")[1].endswith("\n" + "y" * 59 + "…\n")
    Path("header.csv").write_text("id,note\n")
    assert weft("sql", "from header", "header.csv") == (0, "id  note\n", "0 rows\n")


@pytest.mark.parametrize("rows", ["-3", "0.5"])
def test_a_wrong_number_of_rows_is_refused(folder, rows):
    code, _, err = weft("sql", "select 1", "--rows", rows)
    assert (code, "--rows" in err) == (2, True)


def test_a_table_that_a_statement_makes_ends_with_the_command(folder):
    code, out, err = weft("sql", "create table z as from people", "people.csv")
    assert (code, out) == (0, "count\n3\n")
    assert "z ends with this call" in err
    assert "copy (select ...) to 'z.parquet'" in err
    assert "ends with" not in weft("sql", "from people", "people.csv")[2]
    assert weft("sql", "copy (select 1 as x) to 'z.parquet'", "--allow", ".")[0] == 0
    assert weft("sql", "from z", "z.parquet")[1] == "x\n1\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["select $n"], ["no value for $n", "--param n=VALUE", "{'n': ...}"]),
        (["select $a + $b", "-p", "c=1"], ["no value for $a, $b", "--param a=VALUE --param b=VALUE"]),
        (["select 1", "-p", "n=3"], ["the text has no $n", "Leave out the value"]),
        (["select ?"], ["1 value missing", "write $NAME, and --param NAME=VALUE"]),
    ],
)
def test_parameters_and_values_that_do_not_fit_are_named(folder, words, told):
    code, _, err = weft("sql", *words)
    assert code == 3
    assert [one for one in told if one not in err] == []


def test_a_file_that_is_missing_is_told_with_the_one_that_may_be_meant(folder):
    assert "Did you mean people.csv?" in weft("sql", "from peopel", "peopel.csv")[2]
    assert f"The path begins at {folder}." in weft("sql", "from x", "other/x.csv")[2]
    Path("empty").mkdir()
    assert "no file that ends in one of: .parquet" in weft("sql", "from empty", "empty")[2]


def test_files_with_different_columns_are_told_with_what_reads_them(folder):
    Path("d1.csv").write_text("a,b\n1,2\n")
    Path("d2.csv").write_text("a,c\n1,2\n")
    code, _, err = weft("sql", "from d", "-t", "d=d?.csv")
    assert (code, "different columns" in err, "union_by_name = true" in err) == (3, True, True)
    text = "select count(*) as n, count(c) as c from read_csv('d?.csv', union_by_name = true)"
    assert weft("sql", text, "--allow", ".")[1] == "n  c\n2  1\n"


WITHOUT_TYPES = "[1, NULL] AS l, {'k': 'v'} AS s, '\\x00a'::BLOB AS b, INTERVAL '1 month 3 days' AS i"


def test_values_that_csv_and_json_have_not_are_texts_of_duckdb(folder):
    text = f"select {WITHOUT_TYPES}, '1'::BIT AS n, MAP {{'a': 'b'::BLOB}} AS m"
    head, row = list(csv.reader(weft("sql", text, "--csv")[1].splitlines()))
    assert (head, row) == (
        ["l", "s", "b", "i", "n", "m"],
        ["[1, NULL]", "{'k': v}", "\\x00a", "1 month 3 days", "1", "{a=b}"],
    )
    (values,) = json.loads(weft("sql", text, "--json")[1])["rows"]
    assert values == [[1, None], {"k": "v"}, "\\x00a", "1 month 3 days", "1", {"a": "b"}]
    text = f"select timestamptz '2024-01-01 00:00:00+00' AS z, {WITHOUT_TYPES}"
    assert json.loads(weft("sql", text, "--json")[1])["rows"][0][1:] == values[:4]


def test_types_that_a_parquet_file_has_not_and_folders_are_mistakes_of_the_call(folder):
    code, _, err = weft("sql", "select interval 1 day as i", "--parquet", "i.parquet")
    assert code == 3
    assert "column i is INTERVAL" in err
    code, _, err = weft("sql", "select 1", "--parquet", ".")
    assert code == 2
    assert ". is a folder" in err


@pytest.mark.parametrize("text", ["", "- 1\n- 2\n"])
def test_what_is_no_pipeline_may_be_a_job_file(folder, text):
    Path("p.yaml").write_text(text)
    code, _, err = weft("run", "p.yaml")
    assert code != 0
    assert "training job" in err
    assert "apiVersion" in err


def run(query=QUERY, form="csv"):
    Path("p.yaml").write_text(PIPELINE.replace("QUERY", json.dumps(query)).replace("FORMAT", form))
    code, out, err = weft("run", "p.yaml", "--json")
    return code, out + err


def made():
    return [path for path in Path(".pipeline").rglob("ages") if path.is_file()]


def test_a_step_reads_inputs_binds_parameters_and_comes_from_the_cache(folder):
    code, said = run()
    assert code == 0, said
    assert made()[0].read_text() == '"city","age"\n"y",41\n'
    assert run()[1].count("taken from the cache") == 2
    code, said = run("select count(*) as n from people", "parquet")
    assert code == 0, said
    assert any(path.read_bytes()[:4] == b"PAR1" for path in made())
    code, said = run(f"select {WITHOUT_TYPES} from people limit 1")
    assert code == 0, said
    expected = ["[1, NULL]", "{'k': v}", "\\x00a", "1 month 3 days"]
    texts = [path.read_bytes() for path in made()]
    assert any(expected in csv.reader(text.decode().splitlines()) for text in texts if text[:4] != b"PAR1")


@pytest.mark.filterwarnings("ignore:the query has columns of one name")  # the step runs on a thread of the run
def test_columns_of_one_name_have_names_of_their_own_in_the_file_of_a_step(folder):
    for form in ("csv", "parquet"):
        code, said = run("select name, age as name from people where name = 'Ann'", form)
        assert code == 0, said
    files = {path.read_bytes()[:4] == b"PAR1": path for path in made()}
    assert files[False].read_text() == '"name","name_1"\n"Ann",30\n'
    assert pyarrow.parquet.read_table(files[True]).to_pylist() == [{"name": "Ann", "name_1": 30}]


@pytest.mark.parametrize("query", ["from read_text('/etc/hostname')", "from 'people.csv'", "select nme from people"])
def test_a_step_reaches_its_inputs_only(folder, query):
    code, said = run(query)
    assert code != 0
    assert not made(), said


def test_wrong_options_and_wrong_syntax_are_found_before_the_run(folder):
    for query, form in (("selec 1", "csv"), ("select {{least}}", "csv"), ("select 1", "xml")):
        code, said = run(query, form)
        assert code == 3, said
    assert not list(Path(".pipeline").rglob("raw"))


def test_a_query_with_the_item_of_a_loop_is_refused_with_what_works(folder):
    (folder / "sums.yaml").write_text(
        PIPELINE.replace("FORMAT", "csv").replace("QUERY", '"select {{PF_LOOP_ARGUMENT}} as item"')
    )
    code, _, err = weft("plan", "sums.yaml")
    assert (code, "let a dag loop" in err) == (3, True), err


class Piped:
    """What a command reads from its standard input."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)

    def read(self) -> str:
        return self.buffer.read().decode()


JSON_LINES = '{"name": "Ann", "age": 30}\n{"name": "Bob", "age": 41}\n'


@pytest.mark.parametrize(
    ("path", "name"), [("-", "stdin"), ("/dev/stdin", "stdin"), ("--table=people=-", "people"), ("-t", "people")]
)
@pytest.mark.parametrize("content", [PEOPLE.encode(), JSON_LINES.encode()])
def test_a_table_may_come_through_stdin(folder, monkeypatch, path, name, content):
    monkeypatch.setattr("sys.stdin", Piped(content))
    words = [path, "people=/dev/stdin"] if path == "-t" else [path]
    code, out, err = weft("sql", f"select max(age) as age from {name}", *words, "--csv")
    assert (code, out, err) == (0, "age\n41\n", "")


def test_a_parquet_file_may_come_through_stdin(folder, monkeypatch):
    assert weft("sql", "from people", "people.csv", "--parquet", "people.parquet")[0] == 0
    monkeypatch.setattr("sys.stdin", Piped((folder / "people.parquet").read_bytes()))
    assert weft("sql", "select max(age) as age from stdin", "-", "--csv")[:2] == (0, "age\n41\n")


def test_tables_may_come_through_named_pipes(folder):
    os.mkfifo(folder / "ages")
    writer = threading.Thread(target=(folder / "ages").write_text, args=(PEOPLE,), daemon=True)
    writer.start()
    code, out, _ = weft("sql", "select count(*) as n from ages join people using (name)", "ages", "people.csv", "--csv")
    writer.join(DEADLINE_S)
    assert (code, out) == (0, "n\n3\n")


@pytest.mark.parametrize("words", [("-", "-t", "x=-"), ("from stdin", "-", "-t", "x=/dev/stdin")])
def test_stdin_is_one_thing_only(folder, monkeypatch, words):
    monkeypatch.setattr("sys.stdin", Piped(PEOPLE.encode()))
    code, _, err = weft("sql", *words)
    assert code == 2
    assert "is stdin, and something else is too" in err
