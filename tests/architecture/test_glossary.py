"""Each public class name exists once, the glossary names only classes that exist, and retired words are gone."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import weft

SOURCE = Path(weft.__file__).parent
GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"


@cache  # not at import: each process of the suite imports this module, and one runs its tests
def texts() -> dict[str, str]:
    """Return the text of each module."""
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


def public_classes() -> Counter[str]:
    """Count the public classes at the top level of each module, by name."""
    named = [name for text in texts().values() for name in re.findall(r"^class (\w+)", text, re.MULTILINE)]
    return Counter(name for name in named if not name.startswith("_"))


def test_each_public_class_name_exists_once() -> None:
    assert [name for name, times in public_classes().items() if times > 1] == []


def test_the_glossary_names_classes_that_exist() -> None:
    named = re.findall(r"\| `(\w+)` \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) > 20
    assert set(named) <= set(public_classes())


def retired() -> list[str]:
    """Return the words of the glossary's last table, first column."""
    table = GLOSSARY.read_text(encoding="utf-8").partition("## Retired words")[2]
    rows = re.findall(r"^\| ([a-z, ]+) \|", table, re.MULTILINE)
    return [word for row in rows for word in row.split(", ") if word != "word"]


@cache
def defined_names(path: str) -> set[str]:
    """Return the names of functions, classes, arguments, variables and attributes that a module defines."""
    found = set()
    for node in ast.walk(ast.parse(texts()[path])):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return found


@pytest.mark.parametrize("word", retired())
def test_a_retired_word_is_part_of_no_name(word: str) -> None:
    pattern = re.compile(
        rf"(?<![a-zA-Z]){word}(?![a-z])|{word.capitalize()}(?![a-z])|(?<![A-Z]){word.upper()}(?![A-Z])"
    )
    assert {
        f"{path}: {name}"
        for path, text in texts().items()
        if word in text.lower()  # to parse all modules takes seconds
        for name in defined_names(path)
        if pattern.search(name)
    } == set()
