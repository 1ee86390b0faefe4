"""Files that cannot be read: the error names the table, the file and the place, whole and in stages."""

import pytest

import weft
from tests.integration.places import Project
from weft.model.errors import DefinitionError, SqlError

BROKEN = {
    "latin.csv": (b"a,b\n1,\xe9\n", "latin.csv, line 2: "),
    "empty.parquet": (b"", "too small to be a Parquet file"),
    "text.parquet": (b"PAR1 but not really a file of Parquet", "No magic bytes found"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_read_is_named(name, tmp_path):
    content, told = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with weft.SqlContext(workers=1) as context, pytest.raises(DefinitionError) as caught:
        context.register("t", str(tmp_path / name))
    assert str(caught.value).startswith("the table t cannot be read: ")
    assert told in str(caught.value)
    code, _, err = Project(tmp_path).weft("sql", "from t", name)
    assert code == 3
    assert "error WEFT200: " in err


@pytest.mark.parametrize("mode", ["whole", "stages"])
def test_a_type_that_changes_late_in_a_csv_file_is_told_with_its_line(mode, tmp_path):
    (tmp_path / "mixed.csv").write_text("a,b\n" + "".join(f"{i},{i}\n" for i in range(30_000)) + "x,y\n")
    with weft.SqlContext(workers=1, mode=mode) as context:
        context.register("t", str(tmp_path / "mixed.csv"))
        with pytest.raises(DefinitionError) as caught:
            context.sql("SELECT max(a) FROM t").rows()
    assert "mixed.csv" in str(caught.value)
    assert "30002" in str(caught.value)
    assert "Could not convert string" in str(caught.value)


def test_a_pivot_without_its_values_is_told_the_form_that_runs():
    with weft.SqlContext(workers=1) as context, pytest.raises(SqlError, match="FROM t PIVOT") as caught:
        context.sql("PIVOT (SELECT 1 AS k, true AS b) ON b USING count(*)")
    assert "PIVOT without its values is several statements" in caught.value.message
