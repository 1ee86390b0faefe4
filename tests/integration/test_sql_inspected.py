"""What queries would change, cut or leave out without a word is refused, widened or told."""

import datetime
import gzip
import json
import re
import warnings
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from weft.model.errors import DefinitionError, SqlError

pandas = pytest.importorskip("pandas")
MANY = 30_000
"""More rows than those that DuckDB takes types from."""


def files(folder, *tables, hive=False):
    for at, table in enumerate(tables):
        place = folder / f"part={at}" if hive else folder
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), place / f"{at}.parquet")
    return str(folder)


@pytest.fixture(params=["whole", "stages"])
def context(request):
    with weft.SqlContext(mode=request.param, workers=2) as made:
        yield made


# ------------------------------------------------------------------------------------------------------------- Parquet


@pytest.mark.parametrize("nested", [False, True])
def test_parquet_decimals_of_more_digits_than_sql_has_are_refused(context, tmp_path, nested):
    wide, value = pa.decimal256(50, 2), Decimal("1.23")  # DuckDB reads it as another number
    column = pa.array([[value]], pa.list_(wide)) if nested else pa.array([value], wide)
    folder = files(tmp_path, {"k": [1], "v": column}, {"k": [2], "v": column})
    with pytest.raises(DefinitionError, match=r"in .*0\.parquet is DECIMAL\(50,2\)") as told:
        context.register("t", folder)
    assert "DECIMAL(38,2)" in told.value.hint
    assert "EXCLUDE" in told.value.hint
    with weft.SqlContext(allow=[tmp_path], mode=context.mode) as granted:
        read = f"SELECT * EXCLUDE (v) FROM read_parquet('{tmp_path}/0.parquet')"
        assert granted.sql(read).rows() == [(1,)]


@pytest.mark.parametrize("hive", [False, True])
def test_parquet_files_whose_values_would_be_rounded_are_refused(context, tmp_path, hive):
    ids = pa.array([2**53 + 1, 1])
    folder = files(tmp_path, {"k": [1, 2], "v": ids}, {"k": [3, 4], "v": [1.6, 2.7]}, hive=hive)
    with pytest.raises(
        DefinitionError, match=r"column v is BIGINT in .*0\.parquet, and DOUBLE in .*1\.parquet"
    ) as told:
        context.register("t", folder)
    assert "union_by_name = true" in told.value.hint


@pytest.mark.parametrize("hive", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "of"),
    [
        (pa.array([1, 2]), pa.array([1.6, 2.7]), "DOUBLE"),  # the statistics of the file tell that all are exact
        (pa.array([1, 2], pa.int32()), pa.array([2**40, 4]), "BIGINT"),
        (pa.array([2**40, 4]), pa.array([1, 2], pa.int32()), "BIGINT"),
        (pa.array([0.5, 2], pa.float32()), pa.array([0.1, 2.7]), "DOUBLE"),
        (pa.nulls(2), pa.array(["a", "b"]), "VARCHAR"),
    ],
)
def test_parquet_files_of_several_types_have_one_that_holds_all_values(context, tmp_path, first, second, of, hive):
    context.register("t", files(tmp_path, {"v": first}, {"v": second}, hive=hive))
    query = context.sql("SELECT v FROM t")
    assert query.types == [of]
    key = str
    assert sorted((row[0] for row in query.rows()), key=key) == sorted(
        [*first.to_pylist(), *second.to_pylist()], key=key
    )
    assert context.sql("SELECT count(v) FROM t").rows() == [(4 - first.null_count,)]


def test_columns_of_later_parquet_files_are_not_left_out(context, tmp_path):
    folder = files(tmp_path, {"k": [1]}, {"k": [2], "w": [9]})
    with pytest.raises(DefinitionError, match=r"1\.parquet has w, and .*0\.parquet has not") as told:
        context.register("t", folder)
    assert "union_by_name = true" in told.value.hint
    with pytest.raises(DefinitionError, match="different columns"):
        weft.SqlContext(allow=[tmp_path]).sql(f"SELECT * FROM '{tmp_path}/*.parquet'")


def test_what_the_hint_names_reads_files_with_different_columns(tmp_path):
    folder = files(tmp_path, {"k": [1]}, {"k": [2], "w": [9]})
    with weft.SqlContext(allow=[tmp_path]) as context:
        with pytest.raises(DefinitionError) as told:
            context.register("t", folder)
        read = told.value.hint.partition(": ")[2].removesuffix(".")
        assert context.sql(f"{read} ORDER BY k").rows() == [(1, None), (2, 9)]


def test_the_order_of_columns_may_differ(context, tmp_path):
    context.register("t", files(tmp_path, {"k": [1], "v": [2]}, {"v": [4], "k": [3]}))
    assert sorted(context.sql("SELECT k, v FROM t").rows()) == [(1, 2), (3, 4)]


# --------------------------------------------------------------------------------------------------------- CSV and JSON


@pytest.mark.parametrize(
    ("usual", "late", "read"),
    [
        ("1", "1.7", 1.7),
        ("1", "15e-1", 1.5),
        ("2024-01-01", "2024-01-02 10:00:00", datetime.datetime.fromisoformat("2024-01-02T10:00:00")),
    ],
)
def test_a_late_value_of_csv_is_neither_rounded_nor_cut(context, tmp_path, usual, late, read):
    (tmp_path / "t.csv").write_text("k,v\n" + f"1,{usual}\n" * MANY + f"7,{late}\n")
    context.register("t", str(tmp_path / "t.csv"))
    assert context.sql("SELECT v FROM t WHERE k = 7").rows() == [(read,)]


@pytest.mark.parametrize(
    ("usual", "late", "read"),
    [
        ("98765", "01234", "01234"),
        ("98765", "+5", "+5"),
        ("98765", "1_000", "1_000"),
        ("98765", "0x10", "0x10"),
        ("98765", "-05", "-05"),
        ("98765", "1e3", 1000.0),
        ("98765", "-0", 0),
        ("98765", " 5", 5),
        ("2024-01-01 02:00:00", "2024-01-01 02:00:00+05:00", "2024-01-01 02:00:00+05:00"),
        ("2024-01-01 02:00:00", "2024-01-01 02:00:00Z", "2024-01-01 02:00:00Z"),
    ],
)
def test_a_late_value_of_csv_is_not_written_otherwise(context, tmp_path, usual, late, read):
    (tmp_path / "t.csv").write_text("k,v\n" + f"1,{usual}\n" * MANY + f"7,{late}\n")
    context.register("t", str(tmp_path / "t.csv"))
    assert context.sql("SELECT v FROM t WHERE k = 7").rows() == [(read,)]


@pytest.mark.parametrize(
    ("values", "of"),
    [
        (["12345678901234567890", "12345678901234567891"], "HUGEINT"),
        (["12345678901234567890", "1.5"], "VARCHAR"),
        (["1" * 40, "1" * 39 + "2"], "VARCHAR"),
        (["100000000000000000000", "0.5"], "DOUBLE"),  # exact as it is
        (["2024-03-31 01:30:00.123456789", "2024-03-31 01:30:00.123456790"], "TIMESTAMP_NS"),
        (["2024-03-31 01:30:00.123456789", "1066-03-31 01:30:00"], "VARCHAR"),
    ],
)
def test_values_of_csv_with_more_digits_than_a_type_keep_them(context, tmp_path, values, of):
    (tmp_path / "t.csv").write_text("id,n\n" + "".join(f"{value},1\n" for value in values))
    context.register("t", str(tmp_path / "t.csv"))
    assert context.sql("SELECT id FROM t").types == [of]
    assert context.sql("SELECT count(DISTINCT id) FROM t").rows() == [(2,)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("ticket,hours\n1201,3\n#1202,4\n1203,5\n", [("1201", 3), ("#1202", 4), ("1203", 5)]),
        ("n,tag\n1,#a\n2,#b\n#,x\n", [("1", "#a"), ("2", "#b"), ("#", "x")]),
    ],
)
def test_csv_rows_that_begin_with_a_hash_are_no_comments(context, tmp_path, text, rows):
    (tmp_path / "t.csv").write_text(text)
    context.register("t", str(tmp_path / "t.csv"))
    assert context.sql("FROM t").rows() == rows


def test_comments_of_csv_are_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n# note\n3,4\n")
    with weft.SqlContext(allow=[tmp_path]) as context:
        with pytest.raises(DefinitionError, match="line 3 has 1, and the first line 2") as error:
            context.register("t", str(path))
        read = f"FROM read_csv('{path}', comment = '#')"
        assert read in error.value.hint
        assert context.sql(read).rows() == [(1, 2), (3, 4)]
        path.write_text("# made by x\na,b\n1,2\n")
        with pytest.warns(UserWarning, match="line 1 is no row .*'# made by x'"):
            context.register("t", str(path))


@pytest.mark.parametrize("late", [0, MANY])
def test_an_empty_text_of_csv_is_not_null(context, tmp_path, late):
    (tmp_path / "t.csv").write_text("a,b\n" + '1,"x"\n' * late + '1,""\n2,\n3,x\n')
    context.register("t", str(tmp_path / "t.csv"))
    assert context.sql("SELECT a, b FROM t WHERE b = '' OR a = 2 ORDER BY a").rows() == [(1, ""), (2, None)]


def test_numbers_of_csv_may_be_missing_in_quotes(context, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('"a","b"\n"1",""\n"2","5"\n')
    context.register("t", str(path))
    assert context.sql("FROM t ORDER BY a").rows() == [(1, None), (2, 5)]
    path.write_text('"a","b","c"\n"1","","x"\n"2","5",""\n')
    with pytest.warns(UserWarning, match='"" is NULL in all columns, also in the texts c, since it stands in b'):
        context.register("t", str(path))
    assert context.sql("FROM t ORDER BY a").rows() == [(1, None, "x"), (2, 5, None)]


def test_columns_of_csv_files_have_their_types_in_any_order(context, tmp_path):
    (tmp_path / "0.csv").write_text("t,n,d\nx,1,2024-01-02\n,2,\n")
    (tmp_path / "1.csv").write_text("n,d,t\n3,2024-01-03 01:02:03,y\n")
    context.register("t", str(tmp_path))
    found = context.sql("SELECT t, n, d FROM t ORDER BY n")
    assert found.types == ["VARCHAR", "BIGINT", "TIMESTAMP"]
    assert [row[:2] for row in found.rows()] == [("x", 1), (None, 2), ("y", 3)]


@pytest.mark.parametrize("days_first", [False, True])
@pytest.mark.parametrize("late", [0, MANY])
def test_days_in_one_csv_file_and_times_in_another_are_times(context, tmp_path, days_first, late):
    days = "t,n\n2024-01-02,1\n,2\n" + "2024-01-03,0\n" * late
    times = "t,n\n2024-01-04 05:06:07,3\n" + "2024-01-05 00:00:01,0\n" * late
    for at, text in enumerate([days, times] if days_first else [times, days]):
        (tmp_path / f"{at}.csv").write_text(text)
    context.register("t", str(tmp_path))
    found = context.sql("SELECT t FROM t WHERE n > 0 ORDER BY n")
    assert found.types == ["TIMESTAMP"]
    first, last = map(datetime.datetime.fromisoformat, ("2024-01-02", "2024-01-04T05:06:07"))
    assert found.rows() == [(first,), (None,), (last,)]


@pytest.mark.parametrize(
    ("day", "time", "of"),
    [
        ("13/01/2024", "2024-01-04 05:06:07", "VARCHAR"),
        ("2024-01-02", "2024-01-04 05:06:07.123456789", "TIMESTAMP_NS"),
        ("2024-01-02", "2024-01-04 05:06:07\n2024-01-04 05:06:07+01:00", "VARCHAR"),
    ],
)
def test_days_and_times_of_csv_files_that_a_timestamp_does_not_hold(context, tmp_path, day, time, of):
    (tmp_path / "0.csv").write_text(f"t\n{day}\n")
    (tmp_path / "1.csv").write_text(f"t\n{time}\n")
    context.register("t", str(tmp_path))
    assert context.sql("SELECT t FROM t").types == [of]


@pytest.mark.parametrize("text", ["a,b\n1,ä\n", "a\n1\n"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_csv_file_in_utf_16_is_told(tmp_path, text, encoding, name):
    path = tmp_path / name
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with weft.SqlContext(allow=[tmp_path]) as context:
        with pytest.raises(DefinitionError, match=r"is UTF-16 by its first bytes, and not UTF-8") as told:
            context.register("t", str(path))
        assert "Write the file as UTF-8" in told.value.hint
        read = f"FROM read_csv('{path}', encoding = 'utf-16')"
        assert (read in told.value.hint) == (encoding != "utf-16-be")
        if encoding != "utf-16-be":
            assert len(context.sql(read).rows()) == 1


def test_an_empty_text_of_csv_at_a_url_is_null():
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://quoted/t.csv", "w") as file:
        file.write('a,b\n"",x\ny,z\n')
    with weft.SqlContext() as context:
        context.register("t", "memory://quoted/t.csv")
        assert context.sql("SELECT a FROM t ORDER BY b").rows() == [(None,), ("y",)]


@pytest.mark.parametrize("count", [10, 30])
def test_many_csv_files_have_the_types_of_all(context, tmp_path, count):
    for at in range(count):
        (tmp_path / f"{at:02}.csv").write_text(f"a,b\n{'N/A' if at == count - 1 else at},x\n")
    context.register("t", str(tmp_path))
    query = context.sql("SELECT a FROM t")
    assert query.types == ["VARCHAR"]
    assert {a for (a,) in query.rows()} == {"N/A", *map(str, range(count - 1))}


@pytest.mark.parametrize(("usual", "late", "read"), [(1, 1.7, 1.7), ({"x": 1}, {"x": 1.7}, {"x": 1.7}), (True, 3, "3")])
def test_a_late_value_of_json_is_not_rounded(context, tmp_path, usual, late, read):
    lines = [json.dumps({"k": 1, "v": usual})] * MANY + [json.dumps({"k": 7, "v": late})]
    (tmp_path / "t.json").write_text("\n".join(lines))
    context.register("t", str(tmp_path / "t.json"))
    assert context.sql("SELECT v FROM t WHERE k = 7").rows() == [(read,)]


@pytest.mark.parametrize(
    ("lines", "of"),
    [
        ([1234567890123456789, None, 12.5], "VARCHAR"),
        ([12345678901234567890123], "VARCHAR"),
        ([-(2**63) - 1, 4], "VARCHAR"),
        ([*[1] * MANY, 9007199254740993, 1.5], "VARCHAR"),
        ([{"b": [1.5, 1, 12345678901234567890123]}], "JSON"),
    ],
)
def test_integers_of_json_that_a_double_rounds_are_told(context, tmp_path, lines, of):
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(json.dumps({"k v": value, "t": "x"}) for value in lines))
    with pytest.warns(
        UserWarning, match=r"table t: integers of more digits than a DOUBLE holds are rounded in k v"
    ) as told:
        context.register("t", str(file))
    read = f"FROM read_json('{file}', columns = {{'k v': '{of}', ...}})"
    assert read in str(told[0].message)
    with weft.SqlContext(allow=[tmp_path]) as other:
        found = [json.loads(one or "null") for (one,) in other.sql(read.replace(", ...", "")).rows()]
    assert found == lines


@pytest.mark.parametrize("before", [0, MANY])
def test_a_key_that_an_object_of_json_has_twice_is_told_with_what_reads_it(context, tmp_path, before):
    file = tmp_path / "t.jsonl"
    file.write_text('{"k": 3}\n' * before + '{"k": 1, "k": 2}\n')
    with pytest.raises(DefinitionError, match=rf"t\.jsonl, line {before + 1}: .*duplicate key") as told:
        context.register("t", str(file))
    assert "sample_size" not in told.value.hint
    read = f"SELECT json->>'KEY' FROM read_json_objects('{file}')"
    assert read in told.value.hint
    with weft.SqlContext(allow=[tmp_path]) as other:
        assert len(other.sql(read.replace("KEY", "k")).rows()) == before + 1


@pytest.mark.parametrize(
    "lines",
    [
        [9007199254740992, 1.5, 1e300, 0.1234567890123456789, -1234567890.123456789],
        ["1234567890123456789", "x"],
        [1234567890123456789, 7],
        [{"a": 'b"12345678901234567890123', "c": 1.5}],
        [1e22, 10**22],
    ],
)
def test_values_of_json_that_no_type_rounds_are_read_without_a_word(context, tmp_path, lines):
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(json.dumps({"v": value}) for value in lines))
    context.register("t", str(file))
    assert context.sql("FROM t").rows() == [(value,) for value in lines]


@pytest.mark.parametrize("end", ["csv", "json"])
def test_late_values_below_folders_of_values_are_not_rounded(context, tmp_path, end):
    for part, last in ((1, "2"), (2, "1.7")):
        rows = [*["1"] * MANY, last]
        folder = tmp_path / f"part={part}"
        folder.mkdir()
        text = "v\n" + "\n".join(rows) if end == "csv" else "\n".join(f'{{"v": {row}}}' for row in rows)
        (folder / f"t.{end}").write_text(text + "\n")
    context.register("t", str(tmp_path))
    found = context.sql("SELECT part, max(v) FROM t GROUP BY part ORDER BY part").rows()
    assert found == [(1, 2), (2, 1.7)]


@pytest.mark.parametrize("end", ["csv", "json"])
def test_a_late_value_of_another_type_is_told_with_what_reads_it(context, tmp_path, end):
    file = tmp_path / f"t.{end}"
    if end == "csv":
        file.write_text("k,v\n" + "1,1\n" * MANY + "7,abc\n")
    else:
        file.write_text('{"k": 1, "v": 1}\n' * MANY + '{"k": 7, "v": "abc"}\n')
    context.register("t", str(file))
    with pytest.raises(SqlError, match=rf"t\.{end}, line 3000\d: .*abc") as told:
        context.sql("SELECT v FROM t WHERE k = 7").rows()
    assert f"FROM read_{end}('{file}', sample_size = -1)" in told.value.hint
    with weft.SqlContext(allow=[tmp_path]) as other:
        read = other.sql(f"SELECT v FROM read_{end}('{file}', sample_size = -1) WHERE k = 7").rows()
    assert "abc" in str(read)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b,c\n1,2,3\n4,5\n", "line 3 has 2, and the first line 3"),
        ("a,b,c\n1,2,3\n4,5,6,7\n6,7,8\n", "line 3 has 4, and the first line 3"),
        ("a,b\n1,2\n3,4\ntotal\n", "line 4 has 1, and the first line 2"),
        ("a,b\n1,2,3\n4,5,6\n", "line 2 has 3, and the first line 2.*\n.*If line 1 is no row:"),
        ("a,b\n1,2\n" + "1,2,3\n" * 5, "line 3 has 3, and the first line 2.*\n.*If lines 1 to 2 are no rows:"),
        ("a,b,c\n" + "1,2,3\n" * MANY + "4,5,6,7\n", "line 30002: Expected Number of Columns: 3 Found: 4"),
    ],
)
def test_csv_lines_with_other_numbers_of_values_are_refused(tmp_path, text, told):
    (tmp_path / "t.csv").write_text(text)
    with weft.SqlContext() as context, pytest.raises(DefinitionError, match=told) as caught:
        context.register("t", str(tmp_path / "t.csv"))
    assert "null_padding = true" in caught.value.hint


def test_lines_before_the_names_of_columns_are_told(tmp_path):
    (tmp_path / "t.csv").write_text("Report of 2024\n\na,b\n1,2\n3,4\n")
    with weft.SqlContext() as context:
        with pytest.warns(UserWarning, match=r"lines 1 to 2 are no rows of .*t\.csv.*'Report of 2024'"):
            context.register("t", str(tmp_path / "t.csv"))
        assert context.sql("FROM t").rows() == [(1, 2), (3, 4)]


def test_a_header_that_is_taken_for_a_row_is_told(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("region,2019,2020\nnorth,1,2\n")
    with weft.SqlContext(allow=[tmp_path]) as context:
        with pytest.warns(UserWarning, match="first line of .*t.csv is taken for a row.*'region,2019,2020'") as told:
            context.register("t", str(file))
        assert context.sql("FROM t").rows() == [("region", 2019, 2020), ("north", 1, 2)]
        read = f"FROM read_csv('{file}', header = true)"
        assert read in str(told[0].message)
        assert context.sql(f'SELECT "2019" {read}').rows() == [(1,)]


@pytest.mark.parametrize("text", ["1,1\n2,3\n", "1,\n2,3\n", "a,b\n1,2\n"])
def test_a_first_line_that_is_no_header_is_not_told(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with weft.SqlContext() as context:
        context.register("t", str(tmp_path / "t.csv"))  # a warning is an error in these tests


@pytest.mark.parametrize("end", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,v\n1,2\n2,3\n3,4,oops\n", r"line 4 has 3, and the first line 2"),
        ("id,v\n1,2\n2,3\nx,y,z\n3,4,5\n", r"line 4 has 3, and the first line 2"),  # x, y and z are no names
        ("id;v\n1;2\n3;4;5\n6;7;8\n", r"line 3 has 3, and the first line 2"),
        ('a,b\n, \n""#\n', r"line 3 has 1, and the first line 2"),  # DuckDB finds no form of it
    ],
)
def test_no_csv_lines_are_taken_for_a_preamble(tmp_path, text, told, end):
    path = tmp_path / f"t.{end}"
    path.write_bytes(gzip.compress(text.encode()) if end == "csv.gz" else text.encode())
    with weft.SqlContext() as context, pytest.raises(DefinitionError, match=told) as error:
        context.register("t", str(path))
    assert f"read_csv('{path}'" in error.value.hint


def test_a_preamble_that_looks_like_rows_can_be_left_out_by_the_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("made,2024\nby,Ann\na,b,c\n1,2,3\n")
    with weft.SqlContext(allow=[tmp_path]) as context:
        with pytest.raises(DefinitionError, match="line 3 has 3, and the first line 2") as error:
            context.register("t", str(path))
        read = f"FROM read_csv('{path}', skip = 2)"
        assert read in error.value.hint
        assert context.sql(read).rows() == [(1, 2, 3)]


def test_lines_before_the_names_of_a_compressed_csv_file_are_told(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"Report of 2024\n\na,b\n1,2\n3,4\n"))
    with (
        weft.SqlContext() as context,
        pytest.warns(UserWarning, match="lines 1 to 2 are no rows of .*'Report of 2024'"),
    ):
        context.register("t", str(tmp_path / "t.csv.gz"))


def test_a_csv_file_at_a_url_loses_no_lines(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://ragged/t.csv", "wb") as file:
        file.write(b"id,v\n1,2\n2,3\n3,4,oops\n")
    with weft.SqlContext() as context, pytest.raises(DefinitionError, match="line 4 has 3, and the first line 2"):
        context.register("t", "memory://ragged/t.csv")


@pytest.mark.parametrize(
    ("data", "line", "end", "before", "rows"),
    [
        (b"a,b\r\n1,2\n3,4\r\n", 2, "\\n", "\\r\\n", 2),
        (b"a,b\n1,x\n" + b"2,y\n" * 30_000 + b"3,z\r\n", 30_003, "\\r\\n", "\\n", 30_002),
        (b'a,b\r\n1,"x\ny"\r\n2,z\n', 4, "\\n", "\\r\\n", 2),
        (b"a,b\r1,2\n", 2, "\\n", "\\r", 1),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_lines_of_a_csv_file_that_end_in_different_ways_are_told(tmp_path, data, line, end, before, rows, zipped):
    path = tmp_path / ("mixed.csv.gz" if zipped else "mixed.csv")
    path.write_bytes(gzip.compress(data) if zipped else data)
    with weft.SqlContext(allow=[str(tmp_path)]) as context:
        with pytest.raises(DefinitionError) as told:
            context.register("mixed", str(path))
        assert f"line {line} of {path} ends with {end}, and lines before it with {before}" in str(told.value)
        read = str(told.value).partition("granted folder: ")[2].rstrip(".")
        assert len(context.sql(read).rows()) == rows


def test_an_end_of_a_line_that_is_found_while_a_query_runs_is_told(tmp_path):
    path = tmp_path / "long.csv"
    path.write_bytes(b"a,b\r\n" + b"x,y\r\n" * 1_000_000 + b"z,z\n" + b"5,z\r\n")
    with pytest.raises(weft.WeftError, match=r"ends (in another way|with \\n)[^$]*strict_mode = false"):
        weft.sql("SELECT max(a) FROM t", t=str(path)).rows()


def test_csv_that_is_not_utf_8_is_told_with_its_encoding(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\n1,Zürich\n".encode("latin-1"))
    with weft.SqlContext(allow=[tmp_path]) as context:
        with pytest.raises(DefinitionError, match="line 2: Invalid unicode") as error:
            context.register("t", str(path))
        read = f"FROM read_csv('{path}', encoding = 'latin-1')"
        assert read in error.value.hint
        assert context.sql(read).rows() == [(1, "Zürich")]


def test_columns_of_later_csv_files_are_not_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("k\n1\n")
    (tmp_path / "b.csv").write_text("k,w\n2,9\n")
    with weft.SqlContext() as context, pytest.raises(DefinitionError, match=r"b\.csv has w, and .*a\.csv has not"):
        context.register("t", str(tmp_path))


@pytest.mark.parametrize("end", ["jsonl", "ndjson.gz"])
def test_json_lines_are_written_by_the_end_of_a_path(tmp_path, end):
    path = tmp_path / f"o.{end}"
    weft.sql("SELECT unnest([1, 2]) AS a").write_json(path)
    text = path.read_bytes()
    lines = (gzip.decompress(text) if end.endswith("gz") else text).decode().splitlines()
    assert list(map(json.loads, lines)) == [{"a": 1}, {"a": 2}]


def test_nan_and_infinities_are_null_in_json(tmp_path):
    values = """'nan'::DOUBLE AS a, ['-inf'::FLOAT, 1.5] AS b, {'x': 'inf'::DOUBLE} AS c, 'NaN, "-Infinity' AS d"""
    weft.sql(f'SELECT {values}, 2 AS "NaN"').write_json(tmp_path / "o.json")
    text = (tmp_path / "o.json").read_text()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")) == [
        {"a": None, "b": [None, 1.5], "c": {"x": None}, "d": 'NaN, "-Infinity', "NaN": 2}
    ]


# ----------------------------------------------------------------------------------------------------- tables and names


def test_a_query_stands_for_the_tables_of_then(context, tmp_path):
    pq.write_table(pa.table({"k": [3]}), tmp_path / "t.parquet")
    for name in ("t", "T"):
        context.register("t", pa.table({"k": [1]}))
        context.sql("CREATE OR REPLACE VIEW v AS SELECT k + 10 AS k FROM t")
        query, through, planned = context.sql("SELECT k FROM t"), context.sql("FROM v"), context.sql("SELECT k FROM t")
        planned.explain()
        context.register(name, str(tmp_path / "t.parquet"))
        assert (query.rows(), through.rows(), planned.rows()) == ([(1,)], [(11,)], [(1,)])
        assert context.sql("SELECT k FROM query JOIN t USING (k)").rows() == []
        assert context.sql("SELECT k FROM t").rows() == [(3,)]
        assert context.sql("FROM v").rows() == [(13,)]


def test_views_may_be_made_anew_below_others(context):
    context.sql("CREATE VIEW a AS SELECT 1 AS k")
    context.sql("CREATE VIEW b AS FROM a")
    context.sql("CREATE OR REPLACE VIEW a AS SELECT 2 AS k")
    assert context.sql("FROM b").rows() == [(2,)]


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (pandas.Index(["x", "y"], name="id"), "the index 'id' of"),
        (pandas.Index(["x", "y"]), "the index of"),
        (pandas.RangeIndex(2, name="row"), "the index 'row' of"),
        (pandas.MultiIndex.from_tuples([(1, 2), (1, 3)], names=["a", "b"]), "the index 'a', 'b' of"),
    ],
)
def test_an_index_of_pandas_that_is_data_is_told(index, told):
    frame = pandas.DataFrame({"v": [1, 2]}, index=index)
    with weft.SqlContext() as context, pytest.warns(UserWarning, match=rf"{told} the data frame.*reset_index\(\)"):
        context.register("t", frame)


def test_numbers_of_rows_are_no_data(recwarn):
    frame = pandas.DataFrame({"v": [1, 2, 3]})
    with weft.SqlContext() as context:
        context.register("t", frame)
        context.register("left", frame[frame.v > 1])
    assert not list(recwarn)


@pytest.mark.parametrize("kind", ["arrow", "parquet", "csv", "json"])
def test_columns_that_differ_only_in_case_are_told(tmp_path, kind):
    source = pa.table({"a": [1], "A": [2]})
    if kind == "parquet":
        pq.write_table(source, tmp_path / "t.parquet")
    elif kind == "csv":
        (tmp_path / "t.csv").write_text("a,A\n1,2\n")
    elif kind == "json":
        (tmp_path / "t.json").write_text('{"a": 1, "A": 2}')
    with weft.SqlContext() as context:
        with pytest.warns(UserWarning, match="the columns a and A differ only in case.*A is A_1"):
            context.register("t", source if kind == "arrow" else str(tmp_path / f"t.{kind}"))
        assert context.sql("SELECT a, A_1 FROM t").rows() == [(1, 2)]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["name", "Name_2"], []),
        (["name", "Name", "Name_2"], ["name and Name differ only in case.*: Name is Name_1 in"]),
        (["name", "Name_1", "Name"], ["name and Name differ only in case.*: Name is Name_1_1 in"]),
        (["name", "NAME", "name_1"], ["name and NAME differ .*: NAME is NAME_1 in", "NAME_1 and name_1 differ"]),
        (["name", "name"], []),
    ],
)
def test_columns_of_parquet_that_are_renamed_are_told_by_their_names_in_the_file(tmp_path, names, told):
    nested = [pa.array([{"name": 1, "Name": 2}]), *[pa.array([n]) for n, _ in enumerate(names)]]
    pq.write_table(pa.table(nested, names=["nested", *names]), tmp_path / "t.parquet")
    with weft.SqlContext() as context, warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        context.register("t", str(tmp_path / "t.parquet"))
    assert len(found) == len(told), [str(one.message) for one in found]
    for one, text in zip(found, told, strict=True):
        assert re.search(text, str(one.message))


def test_numbers_with_decimal_commas_are_told_with_what_to_write(tmp_path):
    (tmp_path / "a.csv").write_text("k;v;w;x\n1;1,5;a;\n2;-1.000,25;2,5;\n")
    (tmp_path / "b.csv").write_text("k;v;w;x\n1;0,5;b;\n")
    with weft.SqlContext(allow=[str(tmp_path)]) as context:
        with pytest.warns(UserWarning, match=r"such as '1,5', are texts in v of .*a\.csv\. To have numbers") as found:
            context.register("t", str(tmp_path))
        assert len(found) == 1
        read = str(found[0].message).rpartition("granted folder: ")[2]
        (tmp_path / "a.csv").write_text("k;v\n1;1,5\n2;2,25\n")
        assert context.sql(f"SELECT sum(v) {read}").rows() == [(3.75,)]


@pytest.mark.parametrize("names", ["ae", "ea"])
def test_an_empty_file_among_csv_files_is_named(tmp_path, names):
    (tmp_path / "a.csv").write_text("k,v\n1,2\n")
    (tmp_path / "e.csv").touch()
    with weft.SqlContext() as context, pytest.raises(DefinitionError, match=r"e\.csv is empty") as refused:
        context.register("t", [str(tmp_path / f"{name}.csv") for name in names])
    assert "others have columns" in refused.value.hint


def test_an_empty_csv_file_is_refused(tmp_path):
    (tmp_path / "e.csv").touch()
    with weft.SqlContext() as context, pytest.raises(DefinitionError, match=r"e\.csv is empty") as refused:
        context.register("t", tmp_path / "e.csv")
    assert refused.value.hint.startswith("See whether what writes it has failed")


def test_csv_files_at_urls_are_looked_at_as_those_of_this_machine(tmp_path):
    (tmp_path / "a.csv").write_text("k,d\n1,2020-01-01\n")
    (tmp_path / "b.csv").write_text("k,d\n2,2020-01-01 10:00:00\n")
    (tmp_path / "case.csv").write_text("K,d\n1,2020-01-01\n")
    (tmp_path / "wide.csv").write_bytes("k,d\n1,2020-01-01\n".encode("utf-16"))
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://{tmp_path.name}"
    system = fsspec.filesystem("memory")
    for file in tmp_path.iterdir():
        system.pipe(f"/{tmp_path.name}/{file.name}", file.read_bytes())
    with weft.SqlContext() as context:
        context.register("days", [f"{url}/a.csv", f"{url}/b.csv"])
        assert context.sql("FROM days").types == ["BIGINT", "TIMESTAMP"]
        with pytest.raises(DefinitionError, match=r"have different columns: .*a\.csv has k, and .*case\.csv has not"):
            context.register("t", [f"{url}/a.csv", f"{url}/case.csv"])
        with pytest.raises(DefinitionError, match=r"wide\.csv is UTF-16 by its first bytes"):
            context.register("t", f"{url}/wide.csv")


@pytest.mark.parametrize(
    "condition",
    [
        "day >= 2024-03-01",
        "moment < 2024-03-01",
        "s = 2024-03-01",
        "day BETWEEN 2024-03-01 AND 2024-04-01",
        "day IN (2024-03-01)",
        "day IN (DATE '2020-01-01', 2024-3-1)",
    ],
)
def test_a_date_without_quotes_is_told(condition):
    day = datetime.date(2024, 5, 1)
    days = pa.table({"day": [day], "moment": [datetime.datetime.fromisoformat("2024-05-01")], "s": ["2024-05-01"]})
    with weft.SqlContext() as context:
        context.register("days", days)
        with pytest.raises(SqlError) as told:
            context.sql(f"SELECT * FROM days WHERE {condition}").rows()
    assert told.value.hint.endswith("is 2020, an integer: write DATE '2024-03-01'.")
