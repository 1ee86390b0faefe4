"""Bytecode of modules that have just changed: it would be stale after an edit within the same second."""

import os
import sys
import time

from weft.frontends.pipelines.invoke import YOUNG_S, find


def written(folder, monkeypatch, age):
    """Whether finding a function in a module of this age leaves bytecode behind."""
    name = f"aged_{int(age)}"
    file = folder / f"{name}.py"
    file.write_text("def f(): return 1\n")
    moment = time.time() - age
    os.utime(file, (moment, moment))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    assert find(str(folder), f"{name}:f")() == 1
    del sys.modules[name]
    return list(folder.rglob("*.pyc")) != []


def test_a_module_that_has_just_changed_leaves_no_bytecode(tmp_path, monkeypatch):
    assert not written(tmp_path, monkeypatch, 0)


def test_an_older_module_leaves_bytecode(tmp_path, monkeypatch):
    assert written(tmp_path, monkeypatch, 100 * YOUNG_S)
