"""The engine is spoken to by events and commands: nobody else holds a master's state."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "weft"
INSIDE = ("engine", "testing")
STATE = {"core", "_core"}
"""The attributes by which a master and an inspector hold the state of a job."""
NAMED = {"FINISHED", "FREED"}
"""Values of task states, which rows of an inspector tell."""


SNAPSHOT = "durability/snapshot.py"
"""A snapshot is the state of a master as bytes."""


def outside() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in INSIDE]


def test_nobody_outside_names_the_state_of_a_master():
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in outside()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in STATE
    ]
    assert found == []


def test_only_a_snapshot_takes_the_whole_state():
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in outside()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "whole_state"
    }
    assert users == {SNAPSHOT}


def test_nobody_outside_imports_the_writer_of_task_states():
    """Only names of states: the other modules are protected by an import contract."""
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {alias.name}"
        for path in outside()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "weft.engine.rows"
        for alias in node.names
        if alias.name not in NAMED
    ]
    assert found == []


def test_only_the_loop_speaks_to_a_master():
    """`handle` is called by the loop, a job that begins late, a replay, and who asks what a graph looks like."""
    callers = {
        path.relative_to(SOURCE).as_posix()
        for path in outside()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "handle"
        and "master" in ast.unparse(node.func.value)
    }
    assert callers <= {"runtime/loop.py", "runtime/job.py", "durability/values.py"}
