"""Expressions that are compiled at their first use."""

import re

import pytest

from weft.model.patterns import late_pattern, late_patterns


def test_it_has_the_methods_of_the_expression():
    numbers = late_pattern(r"(?P<whole>\d+)", re.ASCII)
    assert numbers.fullmatch("12").group("whole") == "12"
    assert numbers.sub("n", "a1b22") == "anbn"
    assert numbers.pattern == r"(?P<whole>\d+)"
    assert not numbers.search("٣")


def test_bytes_are_matched_by_an_expression_of_bytes():
    assert [found.start() for found in late_pattern(b"[^\0]").finditer(b"\0a\0b")] == [1, 3]


def test_a_wrong_expression_is_told_at_its_first_use():
    wrong = late_pattern("(")
    with pytest.raises(re.error):
        wrong.match("")


def test_a_library_gets_late_expressions_while_it_is_loaded_alone():
    with late_patterns():
        wrong, digits = re.compile("("), re.compile(r"\d+", re.ASCII)
    assert digits.findall("1 a 23") == ["1", "23"]
    with pytest.raises(re.error):
        wrong.match("")
    with pytest.raises(re.error):
        re.compile("(")
