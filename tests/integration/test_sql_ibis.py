"""Expressions of Ibis on Weft: each gives what Ibis's own backend for DuckDB gives."""

import gzip
import json
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest

import weft
from weft.model.errors import SqlError, UsageError

ibis = pytest.importorskip("ibis", reason="ibis is not installed: pip install 'weft[ibis]'")
pytest.importorskip("pyarrow_hotfix", reason="ibis-framework[duckdb] is not installed: pip install 'weft[ibis]'")

from ibis import _  # noqa: E402

from weft.queries.ibis import Backend  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # read by Ibis

SALES = pa.table({
    "good": [n % 7 for n in range(200)],
    "amount": [None if n % 11 == 0 else n for n in range(200)],
    "shop": ["xyz"[n % 3] for n in range(200)],
})  # fmt: skip
GOODS = pa.table({"good": list(range(8)), "kind": ["a", "b"] * 4, "tags": [["t", str(n)] for n in range(8)]})

EXPRESSIONS = {
    "filter": lambda s, g: s.filter(_.amount > 150, _.shop == "x"),
    "mutate": lambda s, g: s.mutate(double=_.amount * 2, tax=_.amount / 7).drop("shop"),
    "group": lambda s, g: s.group_by("shop").agg(total=_.amount.sum(), mean=_.amount.mean(), n=_.count()),
    "having": lambda s, g: s.group_by("good").having(_.count() > 28).agg(most=_.amount.max()),
    "inner join": lambda s, g: s.join(g, "good").group_by("kind").agg(total=_.amount.sum()),
    "left join": lambda s, g: g.left_join(s.filter(_.good < 3), "good").select("good", "kind", "amount"),
    "semi join": lambda s, g: g.semi_join(s.filter(_.amount > 195), "good"),
    "anti join": lambda s, g: g.anti_join(s, "good"),
    "order and limit": lambda s, g: s.order_by(ibis.desc("amount"), "shop").limit(5, offset=2),
    "window": lambda s, g: s.mutate(r=ibis.row_number().over(group_by="shop", order_by=["amount", "good"])),
    "distinct": lambda s, g: s.select("good", "shop").distinct(),
    "union": lambda s, g: s.select("good").union(g.select("good"), distinct=True),
    "case": lambda s, g: s.mutate(size=ibis.cases((_.amount < 50, "small"), else_="large")).shop.value_counts(),
    "nested": lambda s, g: g.mutate(first=_.tags[1]).select("good", "first"),
    "memtable": lambda s, g: s.join(ibis.memtable({"shop": ["x"], "city": ["Oslo"]}), "shop").select("city", "good"),
}


@pytest.fixture(scope="module", params=["whole", "stages"])
def connection(request):
    with weft.SqlContext(mode=request.param, workers=2) as context:
        context.register("sales", SALES)
        context.register("goods", GOODS)
        yield Backend.from_connection(context)


@pytest.fixture(scope="module")
def peer():
    made = ibis.duckdb.connect()
    made.con.register("sales", SALES)
    made.con.register("goods", GOODS)
    return made


def rows(table):
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_give_what_duckdb_gives(connection, peer, name):
    found, wanted = (
        EXPRESSIONS[name](each.table("sales"), each.table("goods")).to_pyarrow() for each in (connection, peer)
    )
    assert found.schema == wanted.schema
    assert rows(found) == rows(wanted)


def test_data_frames_scalars_columns_and_batches(connection, peer):
    for each in (connection, peer):
        sales = each.table("sales")
        assert sales.amount.max().execute() == 199
        assert next(iter(sales.shop.topk(1).execute().columns)) == "shop"
        assert sales.count().to_pyarrow().as_py() == 200
    frame = connection.table("sales").order_by("amount").execute()
    assert list(frame.columns) == ["good", "amount", "shop"]
    assert frame.amount.isna().sum() == 19
    reader = connection.to_pyarrow_batches(connection.table("sales").select("good"), chunk_size=64)
    assert sum(batch.num_rows for batch in reader) == 200


@pytest.mark.parametrize("rows", [0, -1, 1.5])
def test_a_wrong_number_of_rows_of_a_batch_is_refused(connection, rows):
    with pytest.raises(UsageError, match=f"chunk_size is {rows}"):
        connection.to_pyarrow_batches(connection.table("sales"), chunk_size=rows)


def test_tables_schemas_and_sql(connection):
    assert {"goods", "sales"} <= set(connection.list_tables())
    assert connection.list_tables(like="^goo") == ["goods"]
    schema = connection.table("goods").schema()
    assert dict(schema.items()) == {
        "good": ibis.dtype("int64"),
        "kind": ibis.dtype("string"),
        "tags": ibis.dtype("array<string>"),
    }
    with pytest.raises(ibis.common.exceptions.TableNotFound):
        connection.table("nothing")
    assert connection.sql("select kind, count(*) n from goods group by kind").n.sum().execute() == 8
    explained = connection.to_query(connection.table("goods").filter(_.good > 1)).explained()
    assert explained.mode == connection.con.mode


def test_files_become_tables(connection, tmp_path):
    connection.to_parquet(connection.table("goods").drop("tags"), tmp_path / "goods.parquet")
    connection.to_csv(connection.table("goods").drop("tags"), tmp_path / "goods.csv")
    assert connection.read_parquet(tmp_path / "goods.parquet", table_name="of_parquet").count().execute() == 8
    assert connection.read_csv(tmp_path / "goods.csv").good.sum().execute() == 28


@pytest.mark.parametrize(("name", "opened"), [("goods.json", open), ("goods.json.gz", gzip.open)])
def test_files_of_json_have_the_rows_that_duckdb_writes(connection, tmp_path, name, opened):
    table = connection.table("goods").filter(_.good != 3)
    connection.to_json(table, tmp_path / name)
    with duckdb.connect() as peer:
        peer.register("goods", GOODS)
        peer.execute(f"COPY (FROM goods WHERE good <> 3) TO '{tmp_path}/peer-{name}' (FORMAT json, ARRAY true)")
    texts = []
    for path in (tmp_path / name, tmp_path / f"peer-{name}"):
        with opened(path, "rb") as file:
            texts.append(sorted(json.load(file), key=str))
        read = connection.read_json(path)
        assert read.schema() == table.schema()
        assert rows(read.to_pyarrow()) == rows(table.to_pyarrow())
    assert texts[0] == texts[1]
    connection.to_json(table.filter(_.good > 90), tmp_path / "none.json", compression="none")
    assert (tmp_path / "none.json").read_text() == "[\n]\n"
    with pytest.raises(UsageError, match="'lzma'"):
        connection.to_json(table, tmp_path / name, compression="lzma")
    with pytest.raises(ibis.common.exceptions.UnsupportedArgumentError):
        connection.to_json(table, tmp_path / name, dateformat="%d")


def test_rows_are_put_in_place_of_those_with_the_same_key(connection):
    connection.create_table("stock", {"good": [1, 2, 2, 3], "n": [10, 20, 21, 30], "place": ["a", "b", "c", "d"]})
    connection.upsert("stock", {"good": [2, 4], "n": [99, 40]}, on="good")
    found = sorted(connection.table("stock").to_pyarrow().to_pylist(), key=str)
    wanted = [(1, 10, "a"), (2, 99, "b"), (2, 99, "c"), (3, 30, "d"), (4, 40, None)]
    assert [tuple(row.values()) for row in found] == wanted
    connection.upsert("stock", connection.table("stock").filter(_.good == 3).mutate(n=_.n + 1), on="good")
    assert connection.table("stock").filter(_.good == 3).n.execute().tolist() == [31]
    for rows_of, on in (({"good": [1], "m": [2]}, "good"), ({"n": [1]}, "good"), ({"good": [1]}, "m")):
        with pytest.raises(ibis.common.exceptions.IbisInputError, match="no column"):
            connection.upsert("stock", rows_of, on=on)
    connection.drop_table("stock")


def test_rows_of_files_have_no_numbers(connection):
    assert not connection.has_operation(ibis.expr.operations.RowID)
    with pytest.raises(ibis.common.exceptions.OperationNotDefinedError):
        connection.table("goods").mutate(n=connection.table("goods").rowid()).execute()


def test_tables_are_made_and_dropped(connection):
    made = connection.create_table("made", connection.table("sales").group_by("shop").agg(n=_.count()))
    assert made.n.sum().execute() == 200
    with pytest.raises(Exception, match="exists"):
        connection.create_table("made", SALES)
    connection.create_table("made", GOODS.select(["good"]), overwrite=True)
    assert connection.table("made").count().execute() == 8
    connection.insert("made", connection.table("made"))
    assert connection.table("made").count().execute() == 16
    connection.truncate_table("made")
    assert connection.table("made").count().execute() == 0
    connection.drop_table("made")
    assert "made" not in connection.list_tables()
    connection.create_table("made", schema={"a": "int64", "b": "string"})
    assert connection.table("made").execute().empty
    connection.drop_table("made")


def test_views_follow_what_they_read(connection):
    few = ibis.memtable({"good": [1, 2, 9]})
    seen = connection.create_view("seen", connection.table("goods").semi_join(few, "good"))
    assert sorted(seen.good.to_pyarrow().to_pylist()) == [1, 2]
    base = connection.create_table("base", GOODS.select(["good"]))
    over = connection.create_view("over", base.agg(n=_.count()))
    assert over.n.execute().tolist() == [8]
    connection.insert("base", GOODS.select(["good"]))
    assert over.n.execute().tolist() == [16]
    with pytest.raises(SqlError, match="exists"):
        connection.create_view("seen", base)
    assert connection.create_view("seen", base, overwrite=True).count().execute() == 16
    for name in ("seen", "over"):
        connection.drop_view(name)
    connection.drop_table("base")
    connection.drop_view("seen", force=True)
    with pytest.raises(ibis.common.exceptions.TableNotFound):
        connection.drop_view("seen")


@pytest.mark.parametrize("mode", ["whole", "stages"])
def test_one_expression_runs_in_another_mode(connection, mode):
    total = connection.table("sales").group_by("shop").agg(n=_.count())
    assert connection.to_query(total, mode=mode).explained().mode == mode
    assert total.n.sum().execute(mode=mode) == 200
    assert total.to_pyarrow(mode=mode).num_rows == 3
    assert connection.to_pyarrow_batches(total, mode=mode).read_all().num_rows == 3
    with pytest.raises(UsageError, match="'fast'"):
        total.execute(mode="fast")


def test_functions_in_python_are_refused(connection):
    def twice(x: int) -> int:
        return x * 2

    called = ibis.udf.scalar.python(twice)
    with pytest.raises(ibis.common.exceptions.UnsupportedOperationError, match="twice"):
        connection.table("goods").mutate(x=called(_.good)).execute()


def test_a_backend_without_a_context_has_its_own():
    made = Backend().connect(workers=1)
    made.con.register("goods", GOODS)
    assert made.table("goods").count().execute() == 8
    made.disconnect()
    with pytest.raises(UsageError, match="context"):
        Backend().connect(3)


def test_without_ibis_the_extra_is_named(tmp_path):
    (tmp_path / "ibis.py").write_text("raise ModuleNotFoundError('no', name='ibis')\n")
    program = "import weft.queries.ibis"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert "pip install 'weft[ibis]'" in found.stderr
