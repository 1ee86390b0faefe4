"""The rules of values on the page of SQL: each statement gives its rows, whole and in stages."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from math import inf, nan
from pathlib import Path

import duckdb
import pytest

import weft
from weft.model.errors import SqlError

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text().partition("\n## Rules of values\n")[2]
RULES = re.findall(r"^\|.*\| `([^`]+)` \| `([^`]+)` \|$", PAGE, re.MULTILINE)
NAMES = {"Decimal": Decimal, "datetime": datetime, "timedelta": timedelta, "inf": inf, "nan": nan}


@pytest.fixture(scope="module", params=["whole threads", "stages threads", "stages processes"])
def context(request, tmp_path_factory):
    """A context with the table of the page, each of its rows in a file of its own that one task scans."""
    mode, backend = request.param.split()
    folder = tmp_path_factory.mktemp("rules")
    with duckdb.connect() as connection:
        connection.execute(re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0])
        for k in range(1, 5):
            connection.execute(f"COPY (FROM t WHERE k = {k}) TO '{folder}/{k}.parquet' (FORMAT parquet)")
    with pytest.MonkeyPatch.context() as patch, weft.SqlContext(mode=mode, backend=backend, workers=2) as made:
        patch.setattr("weft.queries.planned.SPLIT_BYTES", 1)
        made.register("t", folder / "*.parquet")
        yield made


def test_all_rows_of_the_page_are_read():
    assert len(RULES) == sum(line.startswith("| ") for line in PAGE.splitlines()) - 1


@pytest.mark.parametrize(("statement", "shown"), RULES)
def test_a_rule_holds(context, statement, shown):
    text = statement.replace(r"\|", "|")
    query = context.sql(text)
    assert query.explained().mode == context.mode, query.whole_because
    if shown.startswith("error: "):
        with pytest.raises(SqlError, match=re.escape(shown.removeprefix("error: "))):
            query.rows()
        return
    rows = query.rows() if " order by " in text else sorted(query.rows(), key=repr)
    assert repr(rows) == repr(eval(shown, NAMES))
