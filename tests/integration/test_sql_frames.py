"""Data frames of pandas and Polars as tables of queries and as their results, in both modes on both backends."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pyarrow
import pyarrow.parquet
import pytest

import weft
from weft.model.errors import DefinitionError, UsageError
from weft.queries.frames import as_durations

pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
polars = pytest.importorskip("polars", reason="Polars is not installed: pip install polars")

moment = datetime.fromisoformat
VALUES = {
    "n": [1, 2, None, 4],
    "s": ["b", None, "B", "é"],
    "day": [date(2024, 2, 29), None, date(2024, 1, 1), date(2024, 7, 1)],
    "m": [moment("2024-02-29T12:00"), None, moment("2024-01-01"), moment("2024-07-01")],
    "b": [True, None, False, True],
}


def of_pandas():
    made = pandas.DataFrame(VALUES)
    made["n"] = made["n"].astype("Int64")
    made["b"] = made["b"].astype("boolean")
    return made


FRAMES = {"pandas": of_pandas, "polars": lambda: polars.DataFrame(VALUES)}


@pytest.fixture(scope="module", params=["whole threads", "stages threads", "whole processes", "stages processes"])
def context(request):
    mode, backend = request.param.split()
    with weft.SqlContext(mode=mode, backend=backend, workers=2) as made:
        yield made


@pytest.fixture(params=FRAMES)
def frame(request):
    return FRAMES[request.param]()


def test_a_frame_in_scope_is_a_table(context, frame):
    found = context.sql("SELECT b, count(*), sum(n), min(s), max(m) FROM frame GROUP BY b ORDER BY b")
    assert found.explained().mode == context.mode
    del frame
    assert found.rows() == [
        (False, 1, None, "B", moment("2024-01-01")),
        (True, 2, 5, "b", moment("2024-07-01")),
        (None, 1, 2, None, None),
    ]


@pytest.mark.parametrize("other", FRAMES)
def test_a_registered_frame_joins_a_variable_of_either_kind(context, frame, other):
    context.register("t", frame)
    twice = FRAMES[other]()
    found = context.sql("SELECT a.s FROM t a JOIN twice b ON a.n = b.n WHERE b.b ORDER BY a.s")
    del twice
    assert found.rows() == [("b",), ("é",)]


def test_rows_are_frames_again(context, frame):
    context.register("t", frame)
    query = context.sql("SELECT n, s, day, m, b FROM t ORDER BY n")
    assert query.polars().sort("n", nulls_last=True).equals(polars.DataFrame(VALUES).sort("n", nulls_last=True))
    rows = query.pandas()
    assert list(rows.columns) == list(VALUES)
    assert rows["s"].fillna("").tolist() == ["b", "", "é", "B"]
    assert rows["m"].isna().tolist() == [False, True, False, False]
    assert rows["n"].isna().tolist() == [False, False, False, True]


def test_types_that_frames_hold(context, frame):
    context.register("t", frame)
    query = context.sql("SELECT n, b, s FROM t")
    assert query.types == ["BIGINT", "BOOLEAN", "VARCHAR"]
    empty = context.sql("SELECT n, s FROM t WHERE n > 9")
    assert (len(empty.pandas()), empty.polars().schema) == (0, {"n": polars.Int64, "s": polars.String})


@pytest.mark.parametrize("of", ["Int128", "UInt128"])
def test_wide_integers_of_polars_are_decimals(context, of):
    wide = getattr(polars, of)
    made = polars.DataFrame(
        {
            "n": polars.Series([1, 10**38 - 1, None], dtype=wide),
            "l": polars.Series([[2], [None], None], dtype=polars.List(wide)),
            "s": polars.Series([{"x": 3}, {"x": None}, None], dtype=polars.Struct({"x": wide})),
        }
    )
    context.register("t", made)
    found = context.sql("SELECT n, l[1] AS l, s.x AS s FROM t ORDER BY n NULLS LAST")
    assert found.types == ["DECIMAL(38,0)"] * 3
    assert found.rows() == [(1, 2, 3), (10**38 - 1, None, None), (None, None, None)]
    with pytest.raises(DefinitionError, match=r"column 'n' .* has an integer of more than 38 digits") as told:
        context.register("u", polars.DataFrame({"n": polars.Series([10**38], dtype=wide)}))
    assert "polars.String" in told.value.hint


def test_categories_lists_and_decimals_of_polars(context):
    made = polars.DataFrame(
        {
            "c": polars.Series(["x", "y", "x"], dtype=polars.Categorical),
            "l": [[1, 2], [], None],
            "d": ["1.10", None, "2.25"],
        }
    ).with_columns(polars.col("d").cast(polars.Decimal(9, 2)))
    found = context.sql("SELECT c, sum(d), count(l), max(len(l)) FROM made GROUP BY c ORDER BY c::VARCHAR")
    assert [tuple(map(str, row)) for row in found.rows()] == [("x", "3.35", "1", "2"), ("y", "None", "1", "0")]
    assert made.height == 3


@pytest.mark.parametrize(
    "nested", [{"x": ["a", None, "b"]}, {"x": [["a"], ["b"], ["c"]]}, {"x": [{"y": "a"}, {"y": "b"}, None]}]
)
def test_texts_of_polars_behind_a_filter(context, nested):
    made = polars.DataFrame({"k": [1, 2, 3], **nested})
    found = context.sql("SELECT x FROM made WHERE k = 2")
    del made
    assert found.rows() == [(nested["x"][1],)]


def test_categories_and_moments_of_pandas(context):
    made = pandas.DataFrame(
        {
            "c": pandas.Categorical(["x", "y", "x"]),
            "z": pandas.to_datetime(["2024-07-01"] * 3).tz_localize("Europe/Oslo"),
        }
    )
    found = context.sql("SELECT c::VARCHAR, count(*), max(z) AT TIME ZONE 'UTC' FROM made GROUP BY c ORDER BY 1")
    assert found.rows() == [("x", 2, moment("2024-06-30T22:00")), ("y", 1, moment("2024-06-30T22:00"))]
    assert len(made) == 3


def test_a_lazy_frame_is_collected(context):
    lazy = polars.DataFrame(VALUES).lazy().filter(polars.col("n") > 1)
    found = context.sql("SELECT n FROM lazy")
    del lazy
    assert sorted(found.rows()) == [(2,), (4,)]


@pytest.mark.parametrize("null", [pandas.NA, float("nan")], ids=["NA", "nan"])
@pytest.mark.parametrize("storage", ["python", "pyarrow"])
def test_texts_of_pandas_in_each_storage(context, storage, null):
    try:
        of = pandas.StringDtype(storage, na_value=null)
    except TypeError:
        pytest.skip("this pandas has one null for texts")
    made = pandas.DataFrame({"k": [1, 2, 3, 4], "s": pandas.array(["a", None, "", "é"], dtype=of)})
    made["c"] = made["s"].astype("category")
    made.index = pandas.Index(["w", "x", "y", "z"], dtype=of)
    with pytest.warns(UserWarning, match="the index of the data frame is no column"):
        context.register("texts", made)
    found = context.sql("SELECT s, c, typeof(s) FROM texts ORDER BY k").rows()
    assert found == [("a", "a", "VARCHAR"), (None, None, "VARCHAR"), ("", "", "VARCHAR"), ("é", "é", "VARCHAR")]
    assert context.sql("SELECT k FROM texts WHERE s > 'a' OR s IS NULL ORDER BY k").rows() == [(2,), (4,)]
    joined = "SELECT count(*) FROM texts a JOIN texts b USING (s)"
    assert context.sql(joined).rows() == [(3,)]
    again = context.sql("SELECT s FROM texts ORDER BY k").pandas()["s"]
    assert [None if pandas.isna(one) else one for one in again] == ["a", None, "", "é"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["a", None, 1], "column 'v' mixes types: it has in row 0 'a' (str), and in row 2 1 (int)"),
        ([None, 1, b"z"], "column 'v' mixes types: it has in row 1 1 (int), and in row 2 b'z' (bytes)"),
        ([None, 1j], "column 'v' has in row 1 1j (complex), which no column of a table holds"),
        ([1, 2**70], "column 'v' has in row 1 1180591620717411303424 (int), which no column of a table holds"),
    ],
)
def test_mixed_values_of_pandas_are_named_with_their_rows(context, values, told):
    made = pandas.DataFrame({"k": range(len(values)), "v": pandas.Series(values, dtype=object)})
    with pytest.raises(DefinitionError) as caught:
        context.register("mixed", made)
    assert told in caught.value.message
    assert "astype(str)" in caught.value.hint


def test_a_column_of_pandas_with_several_types_is_named(context):
    made = pandas.DataFrame({"a": [1, "x", None]})
    with pytest.raises(DefinitionError, match=r"column 'a' mixes types: .*row 0 1 \(int\).*row 1 'x' \(str\)") as error:
        context.sql("SELECT * FROM made")
    assert len(made) == 3
    assert "one type" in error.value.hint


@pytest.mark.parametrize("text", [None, 5])
def test_a_query_that_is_no_text_is_refused(context, text):
    with pytest.raises(UsageError, match="the query is"):
        context.sql(text)


def test_numbers_of_numpy_are_parameters(context):
    numpy = pytest.importorskip("numpy")
    for kind in (numpy.int8, numpy.int64, numpy.uint64, numpy.float16, numpy.float32, numpy.float64):
        assert context.sql("SELECT $n + 1", {"n": kind(2)}).rows() == [(3,)]
    assert context.sql("SELECT ?, list_sum(?)", [numpy.bool_(True), [numpy.int32(2), numpy.int32(3)]]).rows() == [
        (True, 5)
    ]
    assert context.sql("SELECT $d", {"d": numpy.datetime64("2024-02-29")}).rows() == [(date(2024, 2, 29),)]


def test_half_floats_are_single_floats(context):
    context.register("halves", pandas.DataFrame({"h": pandas.array([0.5, 1.5], dtype="float16")}))
    found = context.sql("SELECT sum(h) AS h FROM halves")
    assert found.rows() == [(2.0,)]
    assert context.sql("SELECT h FROM halves").types == ["FLOAT"]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (pandas.DataFrame(), "has no columns"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate column names"),
        (
            pyarrow.table({"d": pyarrow.nulls(2, pyarrow.decimal256(50, 2))}),
            r"\(d decimal256\(50, 2\)\) cannot be read",
        ),
    ],
    ids=["empty", "twice", "unknown"],
)
def test_a_table_that_cannot_be_read_is_refused_at_once_and_harms_no_query(source, part):
    with weft.SqlContext() as context:
        with pytest.raises(DefinitionError, match=part):
            context.register("t", source)
        with pytest.raises(DefinitionError, match=part):
            context.sql("SELECT * FROM source").rows()
        assert context.sql("SELECT 1").rows() == [(1,)]


def test_intervals_are_lengths_of_time_in_frames(context):
    frame = pandas.DataFrame({"k": [1, 2, 3], "t": pandas.to_timedelta([1.5, None, -2], unit="D")})
    found = context.sql("SELECT t, INTERVAL 1 MONTH + INTERVAL 3 MICROSECONDS AS m FROM frame ORDER BY k")
    expected = [(timedelta(days=1.5), None, timedelta(days=-2)), (timedelta(days=30, microseconds=3),) * 3]
    assert list(zip(*found.rows(), strict=True)) == expected
    made = found.pandas()
    assert [kind.kind for kind in made.dtypes] == ["m", "m"]
    assert made["t"].astype("m8[us]").equals(frame["t"].astype("m8[us]"))
    assert tuple(found.polars()["t"]) == expected[0]
    assert tuple(found.polars()["m"]) == tuple(made["m"]) == expected[1]
    assert context.sql("SELECT INTERVAL 1 DAY AS d WHERE false").pandas()["d"].dtype.kind == "m"
    sliced = pyarrow.array([(0, 1, 0), None, (1, 2, -1000)], pyarrow.month_day_nano_interval())[1:]
    assert as_durations(pyarrow.table({"d": sliced})).column("d").to_pylist() == [
        None,
        timedelta(days=32, microseconds=-1),
    ]


def test_sums_of_integers_are_integers_in_frames(context):
    context.register("t", pyarrow.table({"k": [1, 1, 2], "n": [2, 3, None], "w": [2**62, 2**62, 1]}))
    found = context.sql("SELECT k, sum(n) AS n, sum(w) AS w, 7::UHUGEINT AS u FROM t GROUP BY k ORDER BY k")
    assert found.types[1:] == ["HUGEINT", "HUGEINT", "UHUGEINT"]
    made = found.pandas()
    assert [str(made[name].dtype) for name in "knu"] == ["int64", "Int64", "int64"]
    assert (made["n"][0], made["n"].isna()[1], list(made["u"])) == (5, True, [7, 7])
    assert list(made["w"]) == list(found.polars()["w"]) == [2**63, 1]  # decimals: the first fits no int64
    assert found.polars().schema["n"] == polars.Int64
    assert context.sql("SELECT sum(k) AS k FROM t").pandas()["k"].dtype == "int64"
    assert context.sql("SELECT sum(k) AS k FROM t WHERE false").pandas()["k"].isna().all()


BIG = 2**60 + 1
INTEGERS = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"]


def test_integers_and_booleans_with_null_keep_their_values_in_pandas(context):
    columns = ", ".join(f"unnest([1, NULL]::{of}[]) AS {of}, 1::{of} AS {of}_" for of in INTEGERS)
    found = context.sql(f"SELECT {columns}, unnest([true, NULL]) AS b, true AS b_, unnest([1.5e0, NULL]) AS f").pandas()
    for of in INTEGERS:
        plain = of.replace("TINY", "8").replace("SMALL", "16").replace("BIG", "64").replace("INTEGER", "32INT")
        bits = "".join(filter(str.isdigit, plain))
        unsigned = of.startswith("U")
        assert str(found[of].dtype) == f"{'U' * unsigned}Int{bits}"
        assert str(found[f"{of}_"].dtype) == f"{'u' * unsigned}int{bits}"
    assert [str(found[name].dtype) for name in ("b", "b_", "f")] == ["boolean", "bool", "float64"]
    assert found["b"].isna().tolist() == [False, True]
    context.register("t", pandas.DataFrame({"x": pandas.array([BIG, 2, None], dtype="Int64"), "y": [BIG, 1, 0]}))
    rows = context.sql("SELECT x, y, x FROM t ORDER BY x").pandas()
    assert list(map(str, rows.dtypes)) == ["Int64", "int64", "Int64"]
    assert rows.iloc[:2, 0].tolist() == [2, BIG]
    assert rows["y"].tolist() == [1, BIG, 0]
    assert context.sql("SELECT x FROM t WHERE false").pandas()["x"].dtype == "int64"


WITHIN = {
    "list": "[{}, NULL]",
    "list of lists": "[[{}], NULL]",
    "struct": "{{'x y': {}, 'n': NULL}}",
    "map": "MAP {{'k': {}}}",
    "array": "[{}, NULL]::{}[2]",
}
FOREIGN = {
    "BIGINT": (str(BIG), BIG),
    "BOOLEAN": ("true", True),
    "HUGEINT": (f"{2**70}::HUGEINT", Decimal(2**70)),
    "UUID": (f"'{UUID(int=5)}'::UUID", str(UUID(int=5))),
    "JSON": ("'[1]'::JSON", "[1]"),
    "BIT": ("'10101'::BIT", "10101"),
    "BIGNUM": (f"'{10**60}'::BIGNUM", str(10**60)),
    "TIMETZ": ("'01:02:03+02'::TIMETZ", "01:02:03+02"),
}


def leaves(value):
    """Return the values in lists, arrays and mappings, but for NULL."""
    if isinstance(value, dict):
        value = [*value.values()]
    elif isinstance(value, tuple):
        value = [value[1]]  # an entry of a map
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [] if value is None else [value]


@pytest.mark.parametrize("within", WITHIN)
def test_values_in_lists_structs_and_maps_stay_what_they_are(context, tmp_path, within):
    columns = (f"{WITHIN[within].format(text, of)} AS {of}" for of, (text, _) in FOREIGN.items())
    found = context.sql(f"SELECT {', '.join(columns)}")
    path = tmp_path / "rows.parquet"
    found.write_parquet(path)
    tables = [found.arrow(), pyarrow.Table.from_batches(found.batches()), pyarrow.parquet.read_table(path)]
    rows = [found.pandas().iloc[0].to_dict(), *(table.to_pylist()[0] for table in (*tables, found.polars().to_arrow()))]
    for row in rows:
        for of, (_, expected) in FOREIGN.items():
            assert [(type(leaf), leaf) for leaf in leaves(row[of])] == [(type(expected), expected)]


@pytest.mark.parametrize(
    "of",
    [pyarrow.timestamp("ns", "UTC"), pyarrow.time64("ns"), pyarrow.duration("ns")],
    ids=["moment", "time", "length"],
)
def test_nanoseconds_that_are_cut_are_told(context, of, recwarn):
    context.register("kept", pyarrow.table({"v": pyarrow.array([1000, None, 86_000], of)}))
    assert not recwarn
    with pytest.warns(UserWarning, match=r"column 'v' has nanoseconds, which are cut off"):
        context.register("cut", pyarrow.table({"v": pyarrow.array([1000, None, 1001], of)}))


def test_nanoseconds_in_structs_and_maps_are_moments_in_pandas(context):
    moment = "'2024-01-01 00:00:00.123456789'::TIMESTAMP_NS"
    found = context.sql(
        f"SELECT {{'a': {moment}}} AS s, MAP {{'k': {moment}}} AS m, [{{'a': {moment}}}] AS l, {moment} AS t"
    )
    expected = pandas.Timestamp("2024-01-01 00:00:00.123456789")
    row = found.pandas().iloc[0]
    assert (row["s"], row["m"], row["l"], row["t"]) == ({"a": expected}, [("k", expected)], [{"a": expected}], expected)


def test_types_that_arrow_has_not_are_texts(context, tmp_path):
    texts = {of: FOREIGN[of] for of in ("BIT", "BIGNUM", "TIMETZ")}
    columns = (f"{text} AS a, NULL::{of} AS b" for of, (text, _) in texts.items())  # with columns of equal names
    found = context.sql(f"SELECT {', '.join(columns)}")
    expected = [value for _, text in texts.values() for value in (text, None)]
    with pytest.warns(UserWarning, match="a as a_1, b as b_1, a as a_2, b as b_2;"):
        found.write_parquet(tmp_path / "rows.parquet")
    own = ["a", "b", "a_1", "b_1", "a_2", "b_2"]
    written = pyarrow.parquet.read_table(tmp_path / "rows.parquet")
    for table, names in ((found.arrow(), ["a", "b"] * len(texts)), (written, own)):
        assert table.column_names == names
        assert [column.to_pylist() for column in table.columns] == [[value] for value in expected]
    assert found.polars().rows() == [tuple(expected)]


def test_types_that_files_and_frames_have_not_are_refused_with_what_to_do(context, tmp_path):
    for of in ("INTERVAL", "INTERVAL[]", "UNION(a INTEGER, b VARCHAR)"):
        with pytest.raises(weft.SqlError, match="column c is") as told:
            context.sql(f"SELECT NULL::{of} AS c").write_parquet(tmp_path / "c.parquet")
        assert told.value.hint == 'Cast it: "c"::VARCHAR.'
    with pytest.raises(weft.SqlError, match="Polars has no such type"):
        context.sql("SELECT [INTERVAL 1 DAY] AS c").polars()
    assert not any(tmp_path.iterdir())


NAN = float("nan")
FILTERED = {
    "x > 1": (pyarrow.array([0.5, 1.5, NAN, None]), [1, 2]),
    "x <= 'nan'::double": (pyarrow.array([0.5, NAN, None]), [0, 1]),
    "x in (select x from held)": (pyarrow.array([0.0, -0.0, NAN, None]), [0, 1, 2]),
    "x.p > 1": (pyarrow.array([{"p": NAN}, {"p": 1.0}, None]), [0]),
    "x in (0, 18446744073709551615)": (pyarrow.array([0, 2**64 - 1, 2**63, None], pyarrow.uint64()), [0, 1]),
    "x > '00:00:00'": (pyarrow.array([0, 1000, None], pyarrow.time64("ns")), [1]),
    "x > 'a' and x in (select x from held)": (pyarrow.array(["a", "b" * 20, None], pyarrow.string_view()), [1]),
}


@pytest.mark.parametrize("condition", FILTERED)
def test_a_condition_over_rows_in_memory_has_the_rules_of_values(context, condition):
    values, expected = FILTERED[condition]
    held = pyarrow.table({"x": values, "place": range(len(values))})
    found = context.sql(f"SELECT place FROM held WHERE {condition} ORDER BY place")
    del held
    assert found.rows() == [(place,) for place in expected]


@pytest.mark.parametrize(
    "values",
    [
        pyarrow.array([0, 1, 1_700_000_000_123_456_789], pyarrow.timestamp("ns")),
        pyarrow.array([0, 1, 1_700_000_000_123_456], pyarrow.timestamp("us", "Europe/Berlin")),
        pyarrow.array([NAN, 0.0, 2.5]),
        pyarrow.array([2**64 - 1, 2**63, 0], pyarrow.uint64()),
    ],
    ids=["nanoseconds", "moments", "doubles", "large numbers"],
)
def test_a_join_of_rows_in_memory_finds_all_equal_keys(context, values):
    held = pyarrow.table({"x": values})
    found = context.sql("SELECT count(*) FROM held a JOIN held b ON a.x = b.x")
    del held
    assert found.rows() == [(3,)]


@pytest.mark.parametrize(
    "values",
    [
        pyarrow.array([UUID(int=at).bytes for at in range(3)], pyarrow.binary(16)).cast(pyarrow.uuid()),
        pyarrow.array([Decimal("1.5"), Decimal("-2.5"), Decimal(0)], pyarrow.decimal32(5, 2)),
        pyarrow.array([Decimal("1.5"), Decimal("-2.5"), Decimal(0)], pyarrow.decimal64(15, 2)),
        pyarrow.array(['{"a":1}', "[]", "1"]).cast(pyarrow.json_()),
        pyarrow.array(["x", "y", "z"]).dictionary_encode(),
        pyarrow.RunEndEncodedArray.from_arrays([1, 2, 3], pyarrow.array(["x", "y", "z"])),
    ],
    ids=["UUIDs", "decimals of 32 bits", "decimals of 64 bits", "JSON", "a dictionary", "runs"],
)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT count(*) FROM held a JOIN held b ON a.x = b.x", 3),
        ("SELECT count(*) FROM held WHERE x IN (SELECT x FROM held WHERE place > 0)", 2),
        ("SELECT count(*) FROM held WHERE x = (SELECT max(x) FROM held)", 1),
        ("SELECT count(*) FROM (SELECT * FROM held WHERE x IS NOT NULL ORDER BY x LIMIT 2)", 2),
    ],
)
def test_rows_in_memory_of_types_that_arrow_cannot_compare(context, values, text, expected):
    held = pyarrow.table({"x": values, "place": range(3)})
    found = context.sql(text)
    del held
    assert found.rows() == [(expected,)]


def test_a_frame_of_pandas_is_read_as_it_was(context):
    """Arrow shares the memory of some columns and copies others, so a changed row would have values of two times."""
    old = (1, "one", 1.5, True, moment("2024-01-01"), 7)
    frame = pandas.DataFrame([old], columns=["n", "s", "x", "b", "m", "i"])
    frame["i"] = frame["i"].astype("Int64")
    context.register("changed", frame)
    query = context.sql("FROM frame")
    frame.loc[0] = new = (2, "two", 2.5, False, moment("2025-01-01"), 8)
    assert query.rows() == [old]
    assert context.sql("FROM changed").rows() == [old]
    assert context.sql("FROM frame").rows() == [new]


def test_a_view_of_rows_in_memory_keeps_their_columns(context):
    held = pyarrow.table({'a "b"': [1.5, NAN], "n": [1, 2], "X": pyarrow.array([1, None], pyarrow.uint64())})
    found = context.sql("FROM held WHERE n = 1")
    del held
    assert (found.columns, found.types) == (['a "b"', "n", "X"], ["DOUBLE", "BIGINT", "UBIGINT"])
    assert found.rows() == [(1.5, 1, 1)]


def test_columns_of_equal_names_become_columns_of_polars(context):
    found = context.sql("SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a").polars()
    assert found.columns == ["a", "a_2", "a_1", "a_3"]
    assert found.rows() == [(1, 2, 3, 4)]


def test_what_is_one_column_or_sparse_is_refused_with_what_to_do():
    ones = pandas.Series([1, 2])
    sparse = pandas.DataFrame({"a": [1], "b": pandas.arrays.SparseArray([0])})
    with weft.SqlContext(workers=1) as context:
        for source in (ones, pyarrow.chunked_array([[1]])):
            with pytest.raises(DefinitionError, match=r"no table, but one column\n.*to_frame"):
                context.register("t", source)
        with pytest.raises(DefinitionError, match="a Series is no table"):
            context.sql("FROM ones")
        with pytest.raises(DefinitionError, match=r"column 'b' is sparse\n.*frame\['b'\].sparse.to_dense\(\)"):
            context.sql("FROM sparse")
        with pytest.raises(UsageError, match="table 't' is list"):
            context.register("t", [{"a": 1}])
    assert (len(ones), len(sparse)) == (2, 1)


def test_periods_of_pandas_and_objects_of_polars_are_refused_with_what_to_do():
    frames = [
        (pandas.DataFrame({"x": pandas.period_range("2024-01", periods=2, freq="M")}), "has periods", "to_timestamp"),
        (polars.DataFrame({"x": [object()]}), "has objects of Python", "drop"),
        (polars.DataFrame({"x": [object()]}).lazy(), "has objects of Python", "drop"),
    ]
    with weft.SqlContext() as context:
        for frame, said, hint in frames:
            with pytest.raises(DefinitionError, match=f"column 'x' {said}") as told:
                context.register("t", frame)
            assert hint in told.value.hint
