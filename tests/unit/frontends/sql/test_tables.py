"""Splits of tables: which rows of which files a task scans."""

import duckdb
import pytest

from weft.frontends.sql.tables import FileTable


@pytest.fixture
def table(tmp_path):
    """Return a table of twelve files, of which the fourth is large: it has eight groups of rows."""
    files = []
    for number in range(12):
        rows = 16_384 if number == 3 else 3
        files.append(str(tmp_path / f"{number:02}.parquet"))
        values = f"SELECT {number} AS n, hash(i) AS i FROM range({rows}) t(i)"
        duckdb.execute(f"COPY ({values}) TO '{files[-1]}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    return FileTable("t", "read_parquet", tuple(files))


@pytest.mark.parametrize("most", [1, 3, 7, 100])
def test_few_splits_have_the_rows_of_all(table, most):
    with duckdb.connect() as connection:
        splits = table.splits(connection, 1)
        few = splits.few(most)
        assert 1 < len(few) <= min(1 + most, len(splits))
        assert [file in few[0] for file in table.files] == [True] + [False] * 11
        found = " UNION ALL ".join(f"(SELECT n, i FROM {rows})" for rows in few)
        every = connection.execute(f"SELECT n, i FROM {table.rows_of(table.files)} ORDER BY ALL").fetchall()
        assert connection.execute(f"FROM ({found}) ORDER BY ALL").fetchall() == every


def test_a_file_that_is_read_whole_is_opened_once(table):
    with duckdb.connect() as connection:
        splits = table.splits(connection, 1)
        assert len(splits) == 11 + 8
        (_, rest) = splits.few(1)
        assert rest.count("read_parquet") == 1
        assert [rest.count(file) for file in table.files] == [0] + [1] * 11
