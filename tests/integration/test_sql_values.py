"""Values that are easily lost or changed on their way between stages."""

import math
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

import weft
from weft.model.errors import SqlError
from weft.queries import query

MODES = pytest.mark.parametrize("mode", ["whole", "stages"])
BACKENDS = pytest.mark.parametrize("backend", ["threads", "processes"])


@pytest.fixture(params=[0, 1 << 20], ids=["shuffled", "copied"])
def context(request, tmp_path, monkeypatch):
    """A context with a table `t` in three files, of which one is empty."""
    monkeypatch.setattr(query, "SMALL_BYTES", request.param)
    monkeypatch.setattr("weft.queries.planned.SPLIT_BYTES", 1)
    schema = pa.schema([("k", pa.int32()), ("v", pa.float64()), ("s", pa.string()), ("b", pa.bool_())])
    for number, ids in enumerate(([0, 1], [2, 3, 4], [])):
        rows = {
            "k": ids,
            "v": [math.nan if k == 1 else float(k) for k in ids],
            "s": [f"s{k}" for k in ids],
            "b": [k > 2 for k in ids],
        }
        pyarrow.parquet.write_table(pa.table(rows, schema=schema), tmp_path / f"t{number}.parquet")
    with weft.SqlContext(workers=2) as made:
        made.register("t", tmp_path / "t*.parquet")
        made.register("nothing", tmp_path / "t2.parquet")
        yield made


@MODES
def test_nan_is_the_greatest_number_behind_an_exchange(context, mode):
    asked = context.sql("SELECT k FROM (SELECT k, max(v) AS m FROM t GROUP BY k) WHERE m > 1e300", mode=mode)
    assert asked.rows() == [(1,)]


def test_nan_matches_nan_in_a_scan_beside_copies(context):
    text = "SELECT k FROM t SEMI JOIN (SELECT DISTINCT v FROM t WHERE k = 1) AS u ON t.v >= u.v"
    assert context.sql(text, mode="stages").rows() == [(1,)]


@MODES
def test_conditions_on_booleans_and_moments_behind_an_exchange(context, mode):
    text = "SELECT count(*) FROM (SELECT k, bool_or(b) AS b FROM t GROUP BY k) a JOIN t USING (k) WHERE a.b AND t.b"
    assert context.sql(text, mode=mode).rows() == [(2,)]


@MODES
def test_the_row_of_a_scalar_subquery_is_found_in_any_split(context, mode):
    text = "SELECT k FROM t WHERE s = (SELECT s FROM t WHERE k = 4)"
    assert context.sql(text, mode=mode).rows() == [(4,)]


@MODES
def test_equal_sets_of_groups_stay_apart(context, mode):
    text = "SELECT b, count(*) FROM t GROUP BY GROUPING SETS ((b), (b), ()) ORDER BY ALL"
    assert context.sql(text, mode=mode).rows() == [(False, 3), (False, 3), (True, 2), (True, 2), (None, 5)]


@MODES
def test_pairs_in_a_subquery(context, mode):
    text = "SELECT k, (k, b) IN (SELECT k, b FROM t WHERE k < 2) FROM t ORDER BY k"
    assert context.sql(text, mode=mode).rows() == [(0, True), (1, True), (2, False), (3, False), (4, False)]
    text = "SELECT k, (k, b) IN (SELECT k, b FROM t WHERE k < 2 UNION ALL SELECT 3, NULL) FROM t ORDER BY k"
    assert context.sql(text, mode=mode).rows() == [(0, True), (1, True), (2, None), (3, None), (4, None)]


@MODES
def test_a_table_without_rows(context, mode):
    assert context.sql("SELECT k, s FROM nothing", mode=mode).rows() == []
    assert context.sql("SELECT count(*), sum(k), first(s) FROM nothing", mode=mode).rows() == [(0, None, None)]
    assert context.sql("SELECT count(*) FROM t LEFT JOIN nothing USING (k)", mode=mode).rows() == [(5,)]


@MODES
def test_columns_with_equal_names(context, mode):
    asked = context.sql('SELECT k, k, s AS "a ""b""" FROM t WHERE k = 2', mode=mode)
    assert asked.columns == asked.arrow().column_names == ["k", "k", 'a "b"']
    assert asked.rows() == [(2, 2, "s2")]


@MODES
def test_moments_with_zones(context, mode):
    text = "SELECT k, TIMESTAMPTZ '2024-01-01 02:00:00+02' AS z, [z] AS l, MAP {k: z} AS m FROM t WHERE k > 3"
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    ((k, z, several, pairs),) = context.sql(text, mode=mode).rows()
    assert (k, z, several, dict(pairs)) == (4, moment, [moment], {4: moment})
    assert context.sql("SELECT TIMESTAMPTZ '2024-01-01' AS z, s FROM t WHERE k > 9", mode=mode).rows() == []


@MODES
def test_the_types_of_decimals(context, mode):
    asked = context.sql("SELECT max(k::DECIMAL(3, 1) * 2) AS m, avg(k::DECIMAL(3, 1)) AS a FROM t", mode=mode)
    assert asked.whole_because == "" or mode == "whole"
    assert asked.arrow().schema.types == [pa.decimal128(13, 1), pa.float64()]


def test_averages_of_decimals_are_equal_to_the_last_bit(tmp_path):
    cents = [(7919 * n) % 100_003 for n in range(6000)]
    pyarrow.parquet.write_table(
        pa.table({"k": [n % 2000 for n in range(6000)], "cents": cents}), tmp_path / "t.parquet"
    )
    with weft.SqlContext(workers=2) as context:
        context.register("t", tmp_path / "t.parquet")
        text = "SELECT k, avg((cents * 0.01)::DECIMAL(9, 2)), avg((cents * 0.0001)::DECIMAL(18, 4)) FROM t GROUP BY k"
        found, wanted = (sorted(context.sql(text, mode=mode).rows()) for mode in ("stages", "whole"))
        assert found == wanted


@MODES
def test_folders_whose_files_have_different_columns(tmp_path, mode, monkeypatch):
    monkeypatch.setattr("weft.queries.planned.SPLIT_BYTES", 1)
    for number, columns in enumerate(
        ({"n": [1, 2], "old": ["a", "b"]}, {"n": [3], "new": [1.5]}, {"new": [2], "n": [4]})
    ):
        folder = tmp_path / f"part={number}"
        folder.mkdir()
        pyarrow.parquet.write_table(pa.table(columns), folder / "rows.parquet")
    with weft.SqlContext(workers=2, mode=mode) as context:
        context.register("t", tmp_path)
        rows = [(1, "a", None, 0), (2, "b", None, 0), (3, None, 1.5, 1), (4, None, 2.0, 2)]
        assert context.sql("SELECT n, old, new, part FROM t ORDER BY n").rows() == rows
        some = context.sql("SELECT n, old, new, part FROM t WHERE part > 0 AND n > 3")
        assert some.rows() == rows[3:]
        assert some.whole_because == "" or mode == "whole"


@MODES
@BACKENDS
def test_types_that_arrow_has_not(tmp_path, mode, backend):
    with weft.SqlContext(workers=2, mode=mode, backend=backend) as context:
        context.register("t", pa.table({"k": [1, 2, 2]}))
        text = """SELECT k, max(('00000000-0000-0000-0000-00000000000' || k)::UUID)::VARCHAR,
            max((k * 85070591730234615865843651857942052863)::HUGEINT), max(TIMETZ '10:00:00+02')::VARCHAR,
            max((to_months(k) + to_days(1)))::VARCHAR, max(MAP {k: 'x'})::VARCHAR, max('101'::BIT)::VARCHAR,
            list(k::VARCHAR::ENUM ('1', '2'))::VARCHAR FROM t GROUP BY k ORDER BY k"""
        one, two = context.sql(text).rows()
        assert one[1:] == (
            "00000000-0000-0000-0000-000000000001", 85070591730234615865843651857942052863, "10:00:00+02",
            "1 month 1 day", "{1=x}", "101", "[1]",
        )  # fmt: skip
        assert two[-1] == "[2, 2]"


@MODES
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT CAST(s AS INTEGER) FROM t", "Could not convert string 's.' to INT32"),
        ("SELECT b, sum(CAST(s AS INTEGER)) FROM t GROUP BY b", "Could not convert string 's.' to INT32"),
        ("SELECT k, (SELECT s FROM t AS u WHERE u.b = t.b) FROM t", "More than one row returned by a subquery"),
        ("SELECT sum(k::HUGEINT * 170141183460469231731687303715884105727) FROM t GROUP BY b", "Overflow in mult"),
    ],
)
def test_errors_while_a_query_runs(context, mode, text, message):
    with pytest.raises(SqlError, match=message) as caught:
        context.sql(text, mode=mode).rows()
    with pytest.raises(SqlError) as again:
        list(context.sql(text, mode=mode).batches())
    assert again.value.code == caught.value.code
    if mode == "stages":
        assert "LINE" not in str(caught.value)
        assert " c1" not in str(caught.value)


@pytest.mark.parametrize("mode", ["whole", "stages"])
def test_rows_with_nan_are_kept_though_the_bounds_of_a_file_leave_it_out(tmp_path, mode):
    """Parquet keeps the least and the greatest float of a file without NaN, which DuckDB sorts above all others."""
    path = tmp_path / "floats.parquet"
    duckdb.execute(f"COPY (SELECT 31 AS i, 'nan'::DOUBLE AS d UNION ALL SELECT 40, 1.5) TO '{path}' (FORMAT parquet)")
    with weft.SqlContext(workers=1, mode=mode) as context:
        context.register("floats", path)
        assert context.sql("SELECT i FROM floats WHERE i::DOUBLE <= d").rows() == [(31,)]
