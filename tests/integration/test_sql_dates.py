"""Dates in CSV files whose order of day and month is not written in them, and words that are no booleans."""

from __future__ import annotations

import warnings
from datetime import date, datetime

import pytest

import weft
from weft.model.errors import DefinitionError


@pytest.fixture
def context(tmp_path):
    with weft.SqlContext(mode="whole", allow=[tmp_path]) as made:
        yield made


def _written(folder, **files):
    for name, values in files.items():
        rows = "".join(f"{at},{value}\n" for at, value in enumerate(values))
        (folder / f"{name}.csv").write_text("id,d\n" + rows)
    return str(folder / "*.csv")


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_files_have_the_order_that_fits_all_of_them(context, tmp_path, order):
    _written(tmp_path, a=["01/02/2024", "01/05/2024"], b=["01/20/2024", ""])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context.register("t", [str(tmp_path / f"{name}.csv") for name in order])
    assert sorted(context.sql("SELECT d FROM t WHERE d IS NOT NULL").rows()) == [
        (date(2024, 1, 2),),
        (date(2024, 1, 5),),
        (date(2024, 1, 20),),
    ]


@pytest.mark.parametrize(
    ("text", "taken", "other", "right"),
    [
        ("01/02/2024", "%d/%m/%Y", "%m/%d/%Y", date(2024, 1, 2)),
        ("01.02.2024", "%d.%m.%Y", "%m.%d.%Y", date(2024, 1, 2)),
        ("01-02-24", "%y-%m-%d", "%d-%m-%y", date(2024, 2, 1)),
    ],
)
def test_dates_that_have_a_meaning_in_two_orders_are_told_with_what_reads_them(
    context, tmp_path, text, taken, other, right
):
    pattern = _written(tmp_path, a=["", text])
    with pytest.warns(UserWarning, match=f"column d is read as {taken}, .* as {other} too: {text}") as told:
        context.register("t", pattern)
    advice = str(told[0].message).partition("folder: ")[2]
    assert context.sql(f"SELECT d FROM ({advice}) WHERE d IS NOT NULL").rows() == [(right,)]


def test_times_that_have_a_meaning_in_two_orders_are_told(context, tmp_path):
    pattern = _written(tmp_path, a=["01/02/2024 10:00:00"])
    with pytest.warns(UserWarning, match="column d is read as %d/%m/%Y %H:%M:%S, .* as %m/%d/%Y %H:%M:%S too"):
        context.register("t", pattern)
    assert context.sql("SELECT d FROM t").rows() == [(datetime.fromisoformat("2024-02-01T10:00"),)]


@pytest.mark.parametrize("values", [["20/02/2024", "01/02/2024"], ["02/02/2024"], ["2024-02-01"], ["2024/02/01"]])
def test_dates_of_one_meaning_are_read_without_a_word(context, tmp_path, values):
    pattern = _written(tmp_path, a=values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context.register("t", pattern)
    assert context.sql("SELECT DISTINCT month(d) FROM t").rows() == [(2,)]


def test_files_whose_dates_have_no_order_in_common_are_refused(context, tmp_path):
    pattern = _written(tmp_path, a=["20/01/2024"], b=["01/20/2024"])
    with pytest.raises(DefinitionError, match=r"different forms in d: %d/%m/%Y in .*a\.csv, %m/%d/%Y in .*b\.csv"):
        context.register("t", pattern)


@pytest.mark.parametrize("values", [["NO", "NO"], ["F", "F"], ["t", "f"], ["yes", "no"]])
def test_codes_are_texts(context, tmp_path, values):
    context.register("t", _written(tmp_path, a=values))
    assert context.sql("SELECT d FROM t ORDER BY id").rows() == [(value,) for value in values]


def test_true_and_false_are_booleans(context, tmp_path):
    context.register("t", _written(tmp_path, a=["True", "FALSE", "", "true"]))
    assert context.sql("SELECT d FROM t ORDER BY id").rows() == [(True,), (False,), (None,), (True,)]
