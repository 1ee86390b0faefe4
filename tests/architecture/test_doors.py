"""The engine is spoken to by events and commands: nobody else holds a master's state."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "weft"
INSIDE = ("engine", "testing")
STATE = {"core", "_core"}
"""The attributes by which a master and an inspector hold the state of a job."""
NAMED = {"FINISHED", "FREED"}
"""Values of task states, which rows of an inspector tell."""


SNAPSHOT = "durability/snapshot.py"
"""A snapshot is the state of a master as bytes."""


PLACES = re.compile(r"\.(?:_?core|whole_state|handle)\b|\bweft\.engine\.rows\b")
"""What stands in the text of each module that has one of these: to parse all modules takes seconds."""


@cache  # not at import, which each process of the suite does
def outside() -> list[tuple[str, ast.AST]]:
    """Return the parts of modules outside that the tests look at, each with the path of its module."""
    texts = {path.relative_to(SOURCE): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    return [
        (path.as_posix(), node)
        for path, text in texts.items()
        if path.parts[0] not in INSIDE and PLACES.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        or (isinstance(node, ast.Attribute) and node.attr in {*STATE, "whole_state"})
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "handle")
    ]


def attributes(names: set[str]) -> Iterator[tuple[str, ast.Attribute]]:
    return ((path, node) for path, node in outside() if isinstance(node, ast.Attribute) and node.attr in names)


def test_nobody_outside_names_the_state_of_a_master():
    assert [f"{path}:{node.lineno}" for path, node in attributes(STATE)] == []


def test_only_a_snapshot_takes_the_whole_state():
    assert {path for path, _ in attributes({"whole_state"})} == {SNAPSHOT}


def test_nobody_outside_imports_the_writer_of_task_states():
    """Only names of states: the other modules are protected by an import contract."""
    found = [
        f"{path}:{node.lineno}: {alias.name}"
        for path, node in outside()
        if isinstance(node, ast.ImportFrom) and node.module == "weft.engine.rows"
        for alias in node.names
        if alias.name not in NAMED
    ]
    assert found == []


def test_only_the_loop_speaks_to_a_master():
    """`handle` is called by the loop, a job that begins late, a replay, and who asks what a graph looks like."""
    callers = {
        path
        for path, node in outside()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "handle"
        and "master" in ast.unparse(node.func.value)
    }
    assert "runtime/loop.py" in callers
    assert callers <= {"runtime/loop.py", "runtime/job.py", "durability/values.py"}
