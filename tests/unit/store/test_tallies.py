"""Counters of training jobs: of present and of deleted runs."""

import json
from pathlib import Path

import pytest

from weft.store.state import StateRoot, write_status
from weft.store.tallies import COUNTERS, TALLIES, as_rows, as_text, counted_removal, job_counters


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    (tmp_path / "runs").mkdir()
    return StateRoot(tmp_path)


def run(root: StateRoot, number: int, namespace: str = "team", **counters: int) -> Path:
    folder = root.runs / f"run-{number:06}"
    folder.mkdir()
    named = {f"jobs_{name}_total": count for name, count in counters.items()}
    write_status(folder, [{"namespace": namespace, "framework": "tensorflow", "counters": named}])
    return folder


def remove(root: StateRoot, folder: Path) -> None:
    with counted_removal(root.path, folder):
        (folder / "status.json").unlink()
        folder.rmdir()


def test_the_counters_of_all_runs_add_up(root):
    run(root, 1, created=1, successful=1, restarted=3)
    run(root, 2, created=2, failed=1)
    run(root, 3, "other", created=1)
    (root.runs / "run-000004").mkdir()
    assert job_counters(root) == {
        ("team", "tensorflow", "jobs_created_total"): 3,
        ("team", "tensorflow", "jobs_successful_total"): 1,
        ("team", "tensorflow", "jobs_restarted_total"): 3,
        ("team", "tensorflow", "jobs_failed_total"): 1,
        ("other", "tensorflow", "jobs_created_total"): 1,
    }


def test_no_counter_goes_down_when_runs_are_deleted(root):
    folder = run(root, 1, created=2, failed=1)
    run(root, 2, created=1)
    before = job_counters(root)
    remove(root, folder)
    assert job_counters(root) == {**before, ("team", "tensorflow", "jobs_deleted_total"): 2}


def test_a_removal_that_begins_again_counts_once(root):
    folder = run(root, 1, created=1)
    with pytest.raises(OSError, match="disk"), counted_removal(root.path, folder):
        raise OSError("disk")
    counts = job_counters(root)
    assert counts["team", "tensorflow", "jobs_created_total"] == 1
    remove(root, folder)
    assert job_counters(root) == counts
    assert json.loads((root.path / TALLIES).read_text())["removed"] == []


def test_runs_of_pipelines_leave_no_file(root):
    (root.runs / "run-000001").mkdir()
    with counted_removal(root.path, root.runs / "run-000001"):
        pass
    assert not (root.path / TALLIES).exists()


def test_a_damaged_file_counts_nothing(root):
    (root.path / TALLIES).write_text("{")
    run(root, 1, created=1)
    assert list(job_counters(root).values()) == [1]


def test_the_text_is_that_of_prometheus():
    text = as_text({('a"b\\c\nd', "tensorflow", "jobs_created_total"): 3})
    lines = text.splitlines()
    assert lines[:3] == [
        "# HELP training_operator_jobs_created_total Number of jobs created.",
        "# TYPE training_operator_jobs_created_total counter",
        'training_operator_jobs_created_total{job_namespace="a\\"b\\\\c\\nd",framework="tensorflow"} 3',
    ]
    assert len(lines) == 2 * len(COUNTERS) + 1
    pods = {("n", "mpi", "created_pods_total"): 1, ("n", "jax", "created_pods_total"): 2}
    assert "# TYPE created_pods_total counter\ncreated_pods_total 3\n" in as_text(pods)
    assert as_rows(pods) == [{"name": "created_pods_total", "labels": {}, "value": 3}]
    assert as_rows({("n", "mpi", "jobs_failed_total"): 1}) == [
        {
            "name": "training_operator_jobs_failed_total",
            "labels": {"job_namespace": "n", "framework": "mpi"},
            "value": 1,
        }
    ]
