"""`weft metrics`: counters of jobs over several runs, their restarts, failures and deletions."""

import pytest

from tests.integration.test_training import Place, replica, tfjob


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def counters(place: Place) -> dict[str, int]:
    code, out, err = place.weft("metrics")
    assert code == 0, err
    rows = [line.removeprefix("training_operator_").rsplit(" ", 1) for line in out.splitlines() if line[0] != "#"]
    return {name: int(count) for name, count in rows}


def of_jobs(place: Place) -> dict[str, int]:
    return {name[5:]: count for name, count in counters(place).items() if name.startswith("jobs_")}


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
    assert of_jobs(place) == expected
    assert place.weft("delete", "run-000001", "run-000002")[0] == 0
    assert of_jobs(place) == {**expected, f"deleted_total{labels}": 2, f"deleted_total{lab}": 1}


def test_pods_and_services_are_counted_when_they_have_come_and_gone(place):
    failing = replica("test -e again || { touch again; exit 130; }; sleep 0.1", policy="ExitCode")
    place.job(tfjob(Worker=failing, PS=replica("sleep 600")))
    assert place.run()[0] == 0
    found = {name: count for name, count in counters(place).items() if not name.startswith("jobs_")}
    expected = {
        "created_pods_total": 3,
        "deleted_pods_total": 2,
        "failed_pods_total": 1,
        "succeeded_service_creation_total": 2,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert found.keys() - expected.keys() <= {"created_pod_groups_total", "deleted_pod_groups_total"}
    before = counters(place)
    assert place.weft("delete", "run-000001")[0] == 0
    after = counters(place)
    assert {name: after[name] for name in before} == before
