"""Expressions that are compiled, and modules that are loaded, at their first use."""

import re
import sys
from importlib import import_module

import pytest

from weft.model.patterns import late_modules, late_pattern, late_patterns


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


def test_a_library_gets_late_modules_while_it_is_loaded_alone(tmp_path, monkeypatch):
    (tmp_path / "seldom_asked.py").write_text("value = 7\n")
    (tmp_path / "library_with_it.py").write_text("import seldom_asked\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("library_with_it", "seldom_asked"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with late_modules("seldom_asked", "re"):
        library = import_module("library_with_it")
        assert sys.modules["re"] is re
    assert "seldom_asked" not in sys.modules
    assert library.seldom_asked.value == 7
    assert sys.modules["seldom_asked"].value == 7
    with pytest.raises(AttributeError):
        _ = library.seldom_asked.missing


def test_a_late_module_that_does_not_exist_is_told_at_its_first_use():
    with late_modules("no_module_of_this_name"):
        late = import_module("no_module_of_this_name")
    with pytest.raises(ModuleNotFoundError):
        _ = late.value
