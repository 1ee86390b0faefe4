"""Folders and patterns stand for the files that they have when a query is made."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from weft.model.errors import DefinitionError, NotFoundError


@pytest.fixture(params=["whole", "stages"])
def context(request):
    with weft.SqlContext(mode=request.param, workers=2) as made:
        yield made


@pytest.fixture(params=["folder", "pattern", "list", "relative"])
def source(request, tmp_path, monkeypatch):
    add(tmp_path / "rows", 1)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "rows"
    return {"folder": folder, "pattern": f"{folder}/*.parquet", "list": [folder], "relative": "rows/*"}[request.param]


def add(folder, at, **columns):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns or {"k": [at]}), folder / f"{at}.parquet")


def test_a_query_reads_files_that_came_after_the_table(context, source, tmp_path, monkeypatch):
    context.register("T", source)
    context.sql("create view v as select k from t")
    assert context.sql("select k from t").rows() == [(1,)]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    add(tmp_path / "rows", 2)
    assert context.sql("select k from t order by k").rows() == [(1,), (2,)]
    add(tmp_path / "rows", 3)
    assert context.sql("select count(*) from v").rows() == [(3,)]
    context.register("seen", context.sql("select k from v"))
    add(tmp_path / "rows", 4)
    assert context.sql("select count(*) from seen").rows() == [(4,)]


def test_a_query_reads_files_that_came_to_a_pattern_of_urls():
    fsspec = pytest.importorskip("fsspec")
    with weft.SqlContext() as own:
        for at in (1, 2):
            with fsspec.open(f"memory://listed/{at}.csv", "wb") as file:
                file.write(b"k\n7\n")
            if at == 1:
                own.register("t", "memory://listed/*.csv")
            assert own.sql("select count(*) from t").rows() == [(at,)]


def test_a_file_that_is_gone_is_not_read(context, source, tmp_path):
    add(tmp_path / "rows", 2)
    context.register("t", source)
    assert context.sql("select sum(k) from t").rows() == [(3,)]
    (tmp_path / "rows" / "1.parquet").unlink()
    assert context.sql("select sum(k) from t").rows() == [(2,)]
    (tmp_path / "rows" / "2.parquet").unlink()
    with pytest.raises(NotFoundError, match="table 't'"):
        context.sql("select sum(k) from t")


def test_a_query_keeps_the_files_of_the_time_when_it_was_made(context, source, tmp_path):
    context.register("t", source)
    before = context.sql("select count(*) from t")
    add(tmp_path / "rows", 2)
    assert context.sql("select count(*) from t").rows() == [(2,)]
    assert before.rows() == [(1,)]


def test_a_later_file_is_looked_at_too(context, source, tmp_path):
    context.register("t", source)
    add(tmp_path / "rows", 2, k=["text"])
    with pytest.raises(DefinitionError, match=r"column k is .* in .*2\.parquet"):
        context.sql("select k from t")
    add(tmp_path / "rows", 2, k=[0.5])
    assert context.sql("select max(k) from t").rows() == [(1.0,)]


def test_a_file_that_has_other_columns_than_when_it_was_registered_is_looked_at_again(context, tmp_path):
    add(tmp_path / "rows", 1)
    context.register("t", tmp_path / "rows" / "1.parquet")
    assert context.sql("select * from t").rows() == [(1,)]
    add(tmp_path / "rows", 1, x=[0.5, 1.5], y=["a", "b"])
    assert context.sql("select max(x), max(y) from t").rows() == [(1.5, "b")]
    assert context.sql("select * from t").columns == ["x", "y"]


def test_a_csv_file_that_has_longer_lines_than_when_it_was_registered_is_refused(context, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,v\n1,2\n2,3\n")
    context.register("t", path)
    path.write_text("id,v\n1,2\n2,3\n3,4,oops\n")
    with pytest.raises(DefinitionError, match="line 4 has 3"):
        context.sql("select count(*) from t")
