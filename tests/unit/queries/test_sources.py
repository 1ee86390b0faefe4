"""Files of tables: what a path, a folder or a pattern names, and what is listed again."""

import glob
import os

import pytest

from weft.model.errors import NotFoundError
from weft.queries.sources import file_table, listed, listed_again

FILES = [
    "1.csv",
    "2.csv",
    "n[1].csv",
    ".hidden.csv",
    "_left.csv",
    "a/1.csv",
    "a/b/3.csv",
    "a/.c/4.csv",
    ".d/5.csv",
    "x[y]/6.csv",
]
PATTERNS = [
    "*.csv",
    "?.csv",
    "[!1].csv",
    ".*.csv",
    "n[[]1].csv",
    "n[1].csv",
    "*/*.csv",
    "*/1.csv",
    "a/../*.csv",
    "**/*.csv",
    "a/**",
    "**.csv",
    "*/.c/*.csv",
    "x[[]y]/*.csv",
]


@pytest.fixture(params=["plain", "sq[u]are"])
def folder(request, tmp_path, monkeypatch):
    made = tmp_path / request.param
    for name in FILES:
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("k\n1\n")
    (made / "folder.csv").mkdir()
    (made / "link.csv").symlink_to("a/1.csv")
    (made / "gone.csv").symlink_to("nothing")
    monkeypatch.chdir(made)
    return made


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_names_the_files_that_glob_finds(folder, pattern):
    found = [pattern] if os.path.isfile(pattern) else glob.glob(pattern, recursive=True)
    wanted = sorted({str(folder / os.path.normpath(path)) for path in found if os.path.isfile(path)})
    assert len(wanted) > 0
    table = file_table("t", pattern)
    assert list(table.files) == wanted
    again, stamp = listed_again(table, listed(pattern, table))
    assert again is table
    assert stamp == table.stamp()


def test_a_folder_names_the_files_below_it_that_are_not_hidden(folder):
    names = ["1.csv", "2.csv", "a/1.csv", "a/b/3.csv", "link.csv", "n[1].csv", "x[y]/6.csv"]
    assert list(file_table("t", ".").files) == [str(folder / name) for name in names]
    assert list(file_table("t", "x[y]").files) == [str(folder / "x[y]/6.csv")]


@pytest.mark.parametrize("pattern", ["*.csv/", "1.csv/", "*.parquet", "folder.csv", "\0", "nothing/*"])
def test_a_pattern_without_files_is_refused(folder, pattern):
    with pytest.raises(NotFoundError, match="table 't'"):
        file_table("t", pattern)


@pytest.mark.parametrize("place", ["*.csv", "."])
def test_a_table_is_listed_again_where_its_files_are(folder, place, tmp_path, monkeypatch):
    table = file_table("t", place)
    places = listed(place, table)
    monkeypatch.chdir(tmp_path)
    (folder / "9.csv").write_text("k\n1\n")
    more, stamp = listed_again(table, places)
    assert set(more.files) - set(table.files) == {str(folder / "9.csv")}
    assert stamp == more.stamp() != table.stamp()
    (folder / "9.csv").unlink()
    assert listed_again(more, places)[0] == table
