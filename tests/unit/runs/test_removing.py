"""Runs that are pruned: those that are too old or too many, and no others."""

from pathlib import Path

import pytest

from weft.model.errors import UsageError
from weft.runs.removing import prunable
from weft.store.catalog import RunRow
from weft.store.labels import change_labels
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
