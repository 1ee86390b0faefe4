"""Runs that are pruned: those that are too old or too many, and no others."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from weft.model.errors import UsageError
from weft.runs.removing import prunable
from weft.store.catalog import RunRow
from weft.store.labels import change_labels
from weft.store.last_links import link_last
from weft.store.state import RunFolder, StateRoot

DAY = 86_400.0
NOW = 100 * DAY


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    """Six runs that ended on days 10, 20, ... 60, of which the second failed; one of day 5 was interrupted."""
    root = StateRoot(tmp_path / ".weft")
    root.prepare()
    catalog = root.catalog()
    for number, state in enumerate(["interrupted", *["succeeded", "failed"], *["succeeded"] * 4]):
        run = f"run-{number:06d}"
        with RunFolder.create(root, run) as folder:
            folder.describe(number=number, name="x", created_at=5 * DAY, steps=[])
            if state != "interrupted":
                folder.events.write_text(
                    f'{{"time": {number * 10 * DAY}, "state": "running"}}\n'
                    f'{{"time": {number * 10 * DAY}, "state": "{state}", "ended": true}}\n'
                )
            ended = None if state == "interrupted" else number * 10 * DAY
            row = RunRow(id=run, number=number, name="x", state=state, ended_at=ended)
            catalog.add_run(row)
    catalog.close()
    return root


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        ({"older_than_s": 65 * DAY}, [3, 2, 1]),
        ({"keep": 4}, [2, 1]),
        ({"keep": 4, "older_than_s": 85 * DAY}, [1]),
        ({"keep": 0, "state": "failed"}, [2]),
        ({"keep": 1, "state": "failed"}, []),
        ({"keep": 0, "state": "interrupted"}, [0]),
        ({"older_than_s": 99 * DAY}, []),
        ({"keep_last": 4}, [2, 1]),
        ({"keep_last": 4, "older_than_s": 85 * DAY}, [1]),
        ({"keep_last": 0}, [5, 4, 3, 2, 1]),
        ({"keep_last": 0, "name": "x"}, [5, 4, 3, 2, 1]),
        ({"keep_last": 0, "name": "y"}, []),
    ],
)
def test_runs_that_are_too_old_or_too_many_go(root, given, gone):
    assert [row.number for row in prunable(root, NOW, **given)] == gone


def test_a_run_that_somebody_owns_stays(root):
    with RunFolder.create(root, "run-000001"):
        assert [row.number for row in prunable(root, NOW, keep=4)] == [2]


@pytest.mark.parametrize(
    "given", [{}, {"state": "failed"}, {"keep": -1}, {"keep_last": -1}, {"keep": 1, "state": "running"}]
)
def test_what_makes_no_sense_is_refused(root, given):
    with pytest.raises(UsageError):
        prunable(root, NOW, **given)


def test_a_run_with_the_tag_keep_stays(root):
    change_labels(root.folder("run-000004"), tags={"keep": "", "stage": "test"})
    change_labels(root.folder("run-000003"), tags={"stage": "keep"})
    assert [row.number for row in prunable(root, NOW, keep_last=1)] == [5, 3, 2, 1]
    assert [row.number for row in prunable(root, NOW, keep=0)] == [6, 5, 3, 2, 1]


def ended(state: StateRoot, number: int, *, day: float, tags: dict[str, str] | None = None, **described: Any) -> None:
    """Add a run of `y` that has succeeded."""
    run, time = f"run-{number:06d}", day * DAY
    with RunFolder.create(state, run) as folder:
        folder.describe(number=number, name="y", created_at=time, steps=[], **described)
        folder.events.write_text(
            f'{{"time": {time}, "state": "running"}}\n{{"time": {time}, "state": "succeeded", "ended": true}}\n'
        )
    with closing(state.catalog()) as catalog:
        catalog.add_run(RunRow(id=run, number=number, name="y", state="succeeded", ended_at=time))
    change_labels(state.folder(run), tags=tags)


def gone(root: StateRoot, **given: Any) -> list[int]:
    return [row.number for row in prunable(root, NOW, name="y", **given)]


def test_the_newest_runs_are_those_that_ended_last(root):
    ended(root, 7, day=90)
    ended(root, 8, day=80)
    assert gone(root, keep_last=1) == [8]
    assert gone(root, keep=1) == [8]
    assert gone(root, keep_last=1, spared="run-000008") == []


def test_a_part_of_a_pipeline_is_not_its_last_success(root):
    ended(root, 7, day=70)
    ended(root, 8, day=80, targets=["a"])
    ended(root, 9, day=90, only="a")
    assert gone(root, keep_last=1) == [8]


def test_the_run_of_the_last_outputs_stays(root, tmp_path):
    for number in (7, 8, 9):
        ended(root, number, day=number * 10, root=str(tmp_path), place=[".pipeline"])
    made = tmp_path / ".pipeline" / "run-000007" / "y" / "o"
    made.parent.mkdir(parents=True)
    made.touch()
    link_last(tmp_path / ".pipeline", "run-000007", "y", {"a.o": str(made)})
    assert gone(root, keep_last=1) == [8]
    assert gone(root, older_than_s=1) == [9, 8, 7]


def test_points_of_sweeps_do_not_count(root):
    ended(root, 7, day=70)
    ended(root, 8, day=75)
    for number in range(9, 12):
        ended(root, number, day=number * 8, tags={"sweep": "sweep-000001", "point": str(number)})
    assert gone(root, keep_last=1) == [7]
    assert gone(root, keep_last=1, older_than_s=15 * DAY) == [10, 9, 7]
