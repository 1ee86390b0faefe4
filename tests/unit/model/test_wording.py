"""Articles and plurals."""

import numpy as np
import pytest

from weft.model.wording import counted, number_text, type_of, with_article


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (3, "an int"),
        (True, "a bool"),
        ([], "a list"),
        (np.zeros(2), "an ndarray"),
        (np.int64(2), "an int64"),
        (np.uint8(2), "a uint8"),
        (object(), "an object"),
    ],
)
def test_a_value_is_named_by_its_type_with_an_article(value, text):
    assert type_of(value) == text


@pytest.mark.parametrize(
    ("noun", "text"),
    [("EdgeValues", "an EdgeValues"), ("User", "a User"), ("_lock", "a lock"), ("MPIJob", "an MPIJob")],
)
def test_articles(noun, text):
    assert with_article(noun) == text


@pytest.mark.parametrize(("n", "text"), [(0, "0 tasks"), (1, "1 task"), (2000, "2,000 tasks")])
def test_plurals(n, text):
    assert counted(n, "task") == text


def test_irregular_plurals():
    assert (counted(1, "vertex", "vertices"), counted(2, "vertex", "vertices")) == ("1 vertex", "2 vertices")


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234567, "0.1234567"), (0.1234568, "0.1234568"), (3.0, "3"), (16777217.25, "16777217.25")]
)
def test_numbers_have_all_digits_that_tell_them_from_others(value, text):
    assert number_text(value) == text
