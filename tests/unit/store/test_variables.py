"""The variables of a process, decoded again after each change."""

import os

from weft.store.variables import variables_here


def test_they_are_the_same_until_one_changes(monkeypatch):
    monkeypatch.setenv("WEFT_TEST", "one")
    first = variables_here()
    assert first == dict(os.environ)
    assert variables_here() is first
    monkeypatch.setenv("WEFT_TEST", "two")
    assert variables_here()["WEFT_TEST"] == "two"
    assert first["WEFT_TEST"] == "one"
    monkeypatch.delenv("WEFT_TEST")
    assert "WEFT_TEST" not in variables_here()
