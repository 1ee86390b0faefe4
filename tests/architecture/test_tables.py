"""Every arc of the five lifecycles is taken by some job, nothing moves in any other way, and docs/states is current."""

import ast
import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.simulation.world import random_session
from tests.unit.engine.hand import Hand
from weft.engine import building, job, leases, readiness, rows
from weft.engine.core import BubbleRow, Core, LeaseRow
from weft.engine.extensions import bubbles
from weft.engine.machines.bubble import BUBBLE
from weft.engine.machines.job import JOB
from weft.engine.machines.lease import LEASE
from weft.engine.machines.table import Table, arcs, step
from weft.engine.machines.task import COMPOSITES, TASK, TaskState
from weft.engine.machines.vertex import VERTEX
from weft.engine.physical import Stage
from weft.model.errors import InvalidTransition, WeftError
from weft.testing import states

ROOT = Path(__file__).parents[2]
SEEDS = 150

Pair = tuple[str, str]


class Watch:
    """Sees each step along a table, each change of a status, and each write to the rows of tasks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: Counter[tuple[str, str, str]] = Counter()
        self.changes: dict[str, Counter[Pair]] = {name: Counter() for name in ("job", "vertex", "bubble", "lease")}
        self.moves: Counter[Pair] = Counter()
        for module in (job, bubbles, leases, readiness):
            monkeypatch.setattr(module, "step", self.step)
        for kind, name, what in (
            (Core, "status", "job"),
            (Stage, "status", "vertex"),
            (BubbleRow, "state", "bubble"),
            (LeaseRow, "state", "lease"),
        ):
            monkeypatch.setattr(kind, "__setattr__", self.setter(kind, name, what))
        monkeypatch.setattr(building, "bytearray", rows_seen_by(self.moves), raising=False)

    def step(self, table: Table[Any], state: Any, cause: str, subject: str, story: Any) -> Any:
        """See `weft.engine.machines.table.step`."""
        there = step(table, state, cause, subject, story)
        self.steps[(state.name, cause, there.name)] += 1
        return there

    def setter(self, kind: type[Any], name: str, what: str) -> Any:
        """Return a `__setattr__` that notes how the attribute `name` changes."""
        plain: Any = kind.__setattr__
        changes = self.changes[what]

        def set_attribute(self: Any, attribute: str, value: Any) -> None:
            if attribute == name:
                before = getattr(self, name, None)
                if before is not None:
                    changes[(before.name, value.name)] += 1
            plain(self, attribute, value)

        return set_attribute


def rows_seen_by(moves: Counter[Pair]) -> type[bytearray]:
    """Return a bytearray that notes each (old state, new state) written into it."""

    class Rows(bytearray):
        def __setitem__(self, at: Any, value: Any) -> None:
            old = self[at] if isinstance(at, slice) else bytes((self[at],))
            new = value if isinstance(at, slice) else bytes((value,))
            moves.update((TaskState(a).name, TaskState(b).name) for a, b in zip(old, new, strict=True) if a != b)
            super().__setitem__(at, value)

    return Rows


def pairs(table: Table[Any]) -> set[Pair]:
    return {(here, there) for here, _, there in arcs(table)}


@pytest.fixture(scope="module")
def seen() -> Watch:
    """What random jobs of fixed seeds and the unit tests of the engine go through."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        watch = Watch(monkeypatch)
        for seed in range(SEEDS):
            with suppress(AssertionError, WeftError):  # what goes wrong is told by the tests of simulations
                random_session(seed)
        for run in by_hand():
            with suppress(AssertionError, WeftError):
                run(Hand)
    return watch


def by_hand() -> Iterator[Callable[[type[Hand]], None]]:
    """Yield the unit tests of the engine that want nothing but a hand."""
    for path in sorted((ROOT / "tests" / "unit" / "engine").glob("test_*.py")):
        module = importlib.import_module(f"tests.unit.engine.{path.stem}")
        for name, function in vars(module).items():
            if name.startswith("test_") and list(inspect.signature(function).parameters) == ["hand"]:
                yield function


def test_no_status_changes_but_along_its_table(seen):
    for what, table in (("job", JOB), ("vertex", VERTEX), ("bubble", BUBBLE), ("lease", LEASE)):
        assert set(seen.changes[what]) - pairs(table) == set(), what


def test_every_arc_of_job_vertex_and_bubble_is_taken(seen):
    expected = {*arcs(JOB), *arcs(VERTEX), *arcs(BUBBLE)}
    taken = {arc for arc in seen.steps if arc in expected}
    taken |= {(a, cause, b) for a, cause, b in arcs(VERTEX) if (a, b) in seen.changes["vertex"]}
    assert sorted(expected - taken) == []


def test_every_cause_moves_some_lease_and_every_lease_ends(seen):
    taken = {(cause, there) for _, cause, there in seen.steps}
    assert {(cause, there) for _, cause, there in arcs(LEASE)} - taken == set()
    ended = {here for here, _, there in seen.steps if there == "ENDED"}
    assert {here for here, _, _ in arcs(LEASE)} - ended <= {"NARROWED"}


def test_no_task_moves_but_along_its_table_or_a_declared_path(seen):
    assert set(seen.moves) - legal_pairs() == set()


def test_one_module_writes_the_states_of_tasks():
    writers = {
        path.name
        for path in (ROOT / "src" / "weft" / "engine").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for target in (node.targets if isinstance(node, ast.Assign) else ())
        if isinstance(target, ast.Subscript) and ast.unparse(target.value).split(".")[-1] in ("state", "rows")
    }
    assert writers == {"rows.py"}


def test_a_write_that_the_table_does_not_have_is_refused_with_the_history():
    graph = weft.Graph()
    graph.map(abs, range(3), name="a")
    h = Hand(graph)
    stage = h.core.by_id["a"]
    with pytest.raises(InvalidTransition, match=r"a\[0\]: is \w+, not FINISHED, on the way to FREED"):
        rows.write(h.core, stage, 0, 3, rows.FINISHED, rows.FREED)
    with pytest.raises(InvalidTransition, match=r"a\[1\]: no transition from \w+ on the way to FREED") as caught:
        rows.write_mixed(h.core, stage, 1, 3, rows.FREED)
    assert caught.value.story
    assert rows.LEGAL.count(1) == len({(a, b) for a, b in legal_pairs() if a != b})


def legal_pairs() -> set[Pair]:
    return pairs(TASK) | {(path[0].name, path[-1].name) for path in COMPOSITES.values()}


def test_every_arc_of_a_task_is_taken(seen):
    taken = set(seen.moves)
    for path in COMPOSITES.values():
        if (path[0].name, path[-1].name) in seen.moves:
            taken |= {(here.name, there.name) for here, there in pairwise(path)}
    assert sorted(pairs(TASK) - taken) == []


def test_the_pages_of_the_lifecycles_are_current(capsys):
    assert states.stale(ROOT / "docs" / "states") == []
    assert states.main(["--check", str(ROOT / "docs" / "states")]) == 0


def test_a_stale_page_is_told_in_one_sentence_and_written_anew(tmp_path, capsys):
    assert states.main([str(tmp_path)]) == 0
    assert states.main(["--check", str(tmp_path)]) == 0
    (tmp_path / "job.md").write_text("old")
    (tmp_path / "task.md").unlink()
    assert states.main(["--check", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert "job.md, task.md" in told.err
    assert states.main([str(tmp_path)]) == 0
    assert states.stale(tmp_path) == []


def test_a_page_has_every_state_with_its_meaning_and_every_arc():
    for machine in states.MACHINES:
        page = states.page(machine)
        told = states.meanings(machine.states)
        for state in machine.states:
            assert told[state.name], f"{machine.name}: {state.name} has no comment that says what is true in it"
            assert f"| {state.name} | {told[state.name]}" in page
        for here, cause, there in arcs(machine.table):
            assert f"| {here} | {cause} | {there} |" in page
            assert f"{here} --> {there}: " in page
