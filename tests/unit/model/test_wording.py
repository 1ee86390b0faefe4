"""Articles and plurals."""

import numpy as np
import pytest

from weft.model.wording import counted, how_failed, number_text, sentences, type_of, with_article


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


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        ("ValueError: bad", "ended with exit code 3: ValueError: bad"),
        ("pytorch-simple-node-0-1", "ended with exit code 3; its last line: pytorch-simple-node-0-1"),
    ],
)
def test_only_an_exception_is_the_reason_of_a_failure(printed, text):
    assert how_failed(f"ended with exit code 3.\nIts last lines:\n  begun\n  {printed}\nThe whole log: /log") == text
    assert how_failed("ended with exit code 3.\nIt printed nothing.") == "ended with exit code 3.\nIt printed nothing."


def test_sentences_have_a_full_stop_between_them():
    assert sentences("longer than specified deadline", "Its logs") == "longer than specified deadline. Its logs"
    assert sentences("It is suspended.", "Its logs") == "It is suspended. Its logs"
    assert sentences("", "Its logs") == "Its logs"
