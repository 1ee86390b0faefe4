"""The bounds of floats in Parquet files answer no query: they leave NaN out, and -0.0 stands in them for 0.0."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft

FLOATS = {"x": pa.array([1.5, None, 7.25, -2.0]), "f": pa.array([0.5, 3, 2, 1], pa.float32()), "k": range(4)}


@pytest.fixture(params=["whole", "stages"])
def context(request):
    with weft.SqlContext(mode=request.param, workers=2) as made:
        yield made


@pytest.fixture
def path(tmp_path):
    pq.write_table(pa.table(FLOATS), tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("select max(x) from t", (7.25,)),
        ("select max(f), min(f), count(*) from t", (3.0, 0.5, 4)),
        ("select max(distinct x) from t where x > -100", (7.25,)),
        ('select "MAX"(x order by x) from (from t where true)', (7.25,)),
        ("select k from t where x = (select max(x) from t)", (2,)),
        ("select max(columns(*)) from t", (7.25, 3.0, 3)),
        ("select max(k), count(*) from t", (3, 4)),
    ],
)
def test_the_greatest_float_of_a_file_is_that_of_its_rows(context, path, text, row):
    context.register("t", path)
    context.sql("create table stored as from t")
    context.sql("create view seen as from t")
    for name in ("t", "stored", "seen"):
        query = context.sql(text.replace("from t", f"from {name}"))
        assert query.rows() == [row]
        if context.mode == "stages":
            query.explain()
            assert not query.whole_because


def test_a_file_behind_from_and_one_of_csv_have_their_greatest_float(context, tmp_path, path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("x\n1.5\n7.25\n")
    context.register("c", "rows.csv")
    assert context.sql("select max(x) from c").rows() == [(7.25,)]
    with weft.SqlContext(mode=context.mode, workers=2) as own:
        assert own.sql("select max(x) from 'rows.parquet'").rows() == [(7.25,)]


def test_one_folder_that_a_condition_leaves_of_many_has_its_greatest_float(context, tmp_path):
    for part in (1, 2):
        (tmp_path / f"part={part}").mkdir()
        pq.write_table(pa.table({"x": [0.5, part + 1.0]}), tmp_path / f"part={part}" / "rows.parquet")
    context.register("t", str(tmp_path))
    assert context.sql("select max(x), min(x) from t where part = 1").rows() == [(2.0, 0.5)]


@pytest.mark.parametrize("taken", [("file_index",), ("File_Index", "FILENAME")])
def test_columns_may_have_the_names_that_duckdb_gives_to_places(context, tmp_path, taken):
    table = pa.table({"x": [1.0, 2.0], **{name: pa.nulls(2, pa.int64()) for name in taken}})
    pq.write_table(table, tmp_path / "rows.parquet")
    context.register("t", str(tmp_path / "rows.parquet"))
    assert context.sql("select max(x), count(*) from t").rows() == [(2.0, 2)]


def test_nan_is_the_greatest_number_and_a_filter_finds_it(context, tmp_path):
    table = pa.table({"x": [1.0, math.nan, 0.5]})
    pq.write_table(table, tmp_path / "rows.parquet")
    context.register("t", str(tmp_path / "rows.parquet"))
    assert math.isnan(context.sql("select max(x) from t").rows()[0][0])
    assert context.sql("select count(*) from t where x > 1").rows() == [(1,)]


def test_the_least_float_has_its_own_sign(context, tmp_path):
    pq.write_table(pa.table({"x": [0.0, 1.0]}), tmp_path / "rows.parquet")
    context.register("t", str(tmp_path / "rows.parquet"))
    ((least,),) = context.sql("select min(x) from t").rows()
    assert math.copysign(1, least) == 1
