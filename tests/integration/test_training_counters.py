"""`weft metrics`: counters of jobs over several runs, their restarts, failures and deletions."""

import pytest

from tests.integration.test_training import Place, replica, tfjob


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def counters(place: Place) -> dict[str, int]:
    code, out, err = place.weft("metrics")
    assert code == 0, err
    rows = [line.removeprefix("training_operator_jobs_").rsplit(" ", 1) for line in out.splitlines() if line[0] != "#"]
    return {name: int(count) for name, count in rows}


def test_jobs_are_counted_over_runs_by_namespace_and_framework(place):
    labels = '{job_namespace="team",framework="tensorflow"}'
    assert counters(place) == {}
    place.job(tfjob(Worker=replica("test -e again || { touch again; exit 130; }", policy="ExitCode")))
    assert place.run()[0] == 0
    other = tfjob(name="other", Worker=replica("exit 3"))
    other["metadata"]["namespace"] = "lab"
    place.job(other, tfjob(name="good", Worker=replica("true")))
    assert place.run()[0] != 0
    lab = labels.replace("team", "lab")
    expected = {
        f"created_total{labels}": 2,
        f"created_total{lab}": 1,
        f"successful_total{labels}": 2,
        f"failed_total{lab}": 1,
        f"restarted_total{labels}": 1,
    }
    assert counters(place) == expected
    assert place.weft("delete", "run-000001", "run-000002")[0] == 0
    assert counters(place) == {**expected, f"deleted_total{labels}": 2, f"deleted_total{lab}": 1}
