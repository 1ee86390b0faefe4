"""`help` works for all that users meet: the public names, and the modules that the docs name."""

import importlib
import pydoc
import re
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`(weft(?:\.[a-z_]+)+)`")


def modules_in_docs():
    names = {name for page in (ROOT / "docs").rglob("*.md") for name in _NAMED.findall(page.read_text())}
    return sorted(name for name in names if (ROOT / "src" / Path(*name.split("."))).with_suffix(".py").exists())


@pytest.mark.parametrize("name", [name for name in weft.__all__ if name != "__version__"])
def test_a_public_name_has_help(name):
    assert pydoc.render_doc(getattr(weft, name))


def test_a_module_that_the_docs_name_has_help():
    found = modules_in_docs()
    assert "weft.graph.task" in found
    for name in found:
        assert pydoc.render_doc(importlib.import_module(name)), name


def test_names_of_packages_that_are_missing_are_not_listed(monkeypatch):
    assert "sql" in dir(weft)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "sql" not in dir(weft)
    assert "Session" in dir(weft)
