"""Names, and how tasks and attempts are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.ids import is_name, parse_task, task_name


@pytest.mark.parametrize("text", ["a", "A", "_", "7", "a-", "read-2", "a.b", "plan/part-1", "a_/b", "x" * 200])
def test_names(text):
    assert is_name(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "a b", "a\n", "a\n\n", "a\0", "é", "x" * 201),
        *("-a", ".a", "/a", "a/", "a.", "a..b", "../a", "a//b", "a/./b", "a/../b", "a/.git", "a\\b", "~a"),
        *("a[0]", "a@1", "a:b", "a;b", "a$b", "*"),
        *(3, None, b"a", ["a"]),
    ],
)
def test_what_is_no_name(text):
    assert not is_name(text)


def test_tasks_are_written_and_read():
    assert task_name("read", 3) == "read[3]"
    assert task_name("read", 3, 0) == "read[3]@0"
    assert parse_task("read") == ("read", None, None)
    assert parse_task("read[3]") == ("read", 3, None)
    assert parse_task("read[3]@2") == ("read", 3, 2)


@given(
    st.text("abc/._-1", min_size=1, max_size=9).filter(is_name),
    st.integers(0, 10**9),
    st.none() | st.integers(0, 99),
)
def test_what_is_written_is_read(vertex, index, attempt):
    assert parse_task(task_name(vertex, index, attempt)) == (vertex, index, attempt)


@pytest.mark.parametrize(
    "text", ["", "[3]", "read[", "read[]", "read[x]", "read[-1]", "read[1][2]", "read@", "a[1]@1@2"]
)
def test_what_is_no_task(text):
    with pytest.raises(ValueError, match="is not a task: write vertex"):
        parse_task(text)
