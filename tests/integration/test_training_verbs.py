"""What users do around a run of training jobs: suspended and cancelled jobs, plans, lists, and wrong uses of verbs."""

import json
import os
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.integration.places import RUN, until
from tests.integration.test_training import Place, replica, tfjob
from weft.operators.network import why_no_namespaces
from weft.runs.reading import read_run
from weft.store.state import list_logs, read_status


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def test_a_job_that_is_suspended_by_its_file_waits_for_a_resume(place):
    place.job(tfjob({"suspend": True}, all_workers=True, Worker=replica("echo hello", 2)))
    code, out, err = place.run()
    assert code == 0, err
    assert "TFJob echo is suspended by its file (spec.runPolicy.suspend: true)" in err
    assert f"its replicas start with: weft resume {RUN}" in err
    assert f"weft resume {RUN}" in out
    assert read_run(place.folder_of()).state == "suspended"
    assert place.conditions() == {"Created": "True", "Suspended": "True"}
    assert read_status(place.folder_of())[0]["status"]["started_at"] is None
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    assert {"Running": "False"} | place.conditions() == {
        "Created": "True",
        "Suspended": "False",
        "Running": "False",
        "Succeeded": "True",
    }
    assert place.log("worker", 1) == "hello\n"


def test_a_suspended_job_beside_another_waits_until_that_has_ended(place):
    place.job(
        tfjob({"suspend": True}, name="one", Worker=replica("echo 1")),
        tfjob(name="two", Worker=replica("echo 2")),
    )
    code, _, err = place.run()
    assert code == 0, err
    assert place.conditions(1)["Succeeded"] == "True"
    assert read_run(place.folder_of()).state == "suspended"
    assert place.weft("resume", RUN)[0] == 0
    assert place.conditions(0)["Succeeded"] == "True"
    assert read_run(place.folder_of()).state == "succeeded"


def test_a_job_that_fails_beside_a_suspended_one_is_told_and_fails_the_command(place):
    place.job(
        tfjob({"suspend": True}, name="one", Worker=replica("echo 1")),
        tfjob(name="two", Worker=replica("exit 3")),
    )
    code, _, err = place.run("--quiet")
    assert code == 1
    assert "TFJob two has failed; the others are suspended" in err
    assert read_run(place.folder_of()).state == "suspended"
    assert place.weft("resume", RUN)[0] == 1
    assert place.conditions(0)["Succeeded"] == "True"


def test_a_job_of_another_controller_is_refused_alone_and_left_alone_beside_others(place):
    other = {"managedBy": "kueue.x-k8s.io/multikueue"}
    place.job(tfjob(other, Worker=replica("echo 1")))
    code, _, err = place.run()
    assert code == 7
    assert "TFJob echo is managed by kueue.x-k8s.io/multikueue (managedBy)" in err
    place.job(tfjob(other, name="one", Worker=replica("echo 1")), tfjob(name="two", Worker=replica("echo 2")))
    code, out, err = place.run()
    assert code == 0, err
    assert "warning: TFJob one is managed by kueue.x-k8s.io/multikueue (managedBy): it is not started here" in err
    assert "Unmanaged" in out


def test_nothing_has_to_stand_for_the_image_of_a_job_of_another_controller(place):
    unknown = replica("unused")
    (container,) = unknown["template"]["spec"]["containers"]
    del container["command"]
    container |= {"workingDir": "/var/no_such_folder", "resources": {"limits": {"cpu": 1000}}}
    place.job(
        tfjob({"managedBy": "kueue.x-k8s.io/multikueue"}, name="one", Worker=unknown),
        tfjob(name="two", Worker=replica("echo 2")),
    )
    code, out, err = place.weft("plan", "run.yaml")
    assert code == 0, out + err
    assert out.count("places ") == 1, "nothing of the job that is left alone takes a place"
    code, out, err = place.run()
    assert code == 0, out + err
    assert "no_such_folder" not in err
    assert place.conditions(1)["Succeeded"] == "True"


def test_a_resume_tells_that_the_job_file_was_edited(place):
    place.job(tfjob(Worker=replica("test -e go")))
    assert place.run()[0] == 1
    assert "has changed" not in place.weft("resume", RUN)[2]
    place.job(tfjob(Worker=replica("test -e go", 2)))
    (place.folder / "go").touch()
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    assert (
        "run.yaml has changed since run-000001 read it, and the run goes on as it was; "
        "for a new run of the file as it is now: weft run run.yaml\n"
    ) in err


def test_a_cancelled_job_has_a_condition_that_says_so(place):
    place.job(tfjob(Worker=replica("sleep 600", 2)))
    process = place.start("run", "run.yaml")
    until(lambda: len(place.alive()) >= 2 and place.conditions().get("Running") == "True")
    assert place.weft("cancel", RUN)[0] == 0
    process.communicate(timeout=180)
    assert {"Running": "False"} | place.conditions() == {"Created": "True", "Running": "False", "Cancelled": "True"}
    status = read_status(place.folder_of())[0]["status"]
    assert status["conditions"][-1]["message"] == "TFJob team/echo was cancelled: weft cancel"
    assert status["replicas"]["Worker"]["active"] == 0
    assert status["completed_at"] is not None


def test_a_killed_run_shows_its_job_as_interrupted(place):
    place.job(tfjob(Worker=replica("sleep 600")))
    process = place.start("run", "run.yaml")
    until(lambda: place.alive() and place.conditions().get("Running") == "True")
    process.kill()
    process.communicate()
    until(lambda: not place.alive(), "the end of the replicas")
    _, out, _ = place.weft("show", RUN)
    assert "Interrupted" in out
    document = json.loads(place.weft("show", RUN, "--json")[1])
    assert document["run"]["jobs"][0]["condition"] == "Interrupted"


def test_ls_has_the_condition_of_each_job(place):
    place.job(tfjob(Worker=replica("echo 1")), tfjob({"suspend": True}, name="two", Worker=replica("echo 2")))
    assert place.run()[0] == 0
    place.job(tfjob(Worker=replica("exit 1")))
    assert place.run()[0] == 1
    _, out, _ = place.weft("ls")
    head, failed, mixed = out.splitlines()
    assert head.split() == ["RUN", "STATE", "JOB", "NAME", "STARTED", "TIME", "USER"]
    assert failed.split()[3] == "Failed"
    assert "1 Succeeded, 1 Suspended" in mixed
    runs = json.loads(place.weft("ls", "--json")[1])["runs"]
    assert runs[1]["jobs"] == [{"name": "echo", "condition": "Succeeded"}, {"name": "two", "condition": "Suspended"}]


def test_a_plan_tells_what_would_start_and_whether_it_fits(place):
    server = replica("serve $(PORT)", policy="Always")
    worker = replica("echo train", 2, policy="OnFailure")
    worker["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    place.job(tfjob({"backoffLimit": 3}, PS=server, Worker=worker))
    code, out, err = place.weft("plan", "run.yaml", "--isolation", "ports")
    assert code == 0, err
    words = " ".join(out.split())
    assert "TFJob echo in namespace team: 3 replicas" in words
    assert "worker 2 OnFailure 0.1 cores, 64.0 MiB of memory 2222 sh -c 'echo train'" in words
    assert "example/none:1 its command runs with the programs of this machine" in words
    assert 'TF_CONFIG worker-1 {"cluster"' in words
    assert '"index":1' in words
    assert "isolation ports: as it was asked for; free ports are chosen at the start" in words
    assert "names echo-ps-0, echo-worker-0 to echo-worker-1" in words
    assert "policy backoffLimit 3" in words
    assert "places 3 start together and need 0.2 cores, 128 MiB of memory; this machine has" in words
    assert not place.root.runs.exists()
    same = place.run("--dry-run", "--isolation", "ports")
    assert same[:2] == (0, out)
    document = json.loads(place.weft("plan", "run.yaml", "--json")[1])
    assert document["schema"] == "weft.plan/1"
    (job,) = document["jobs"]
    assert [one["replicas"] for one in job["replicas"]] == [1, 2]
    assert job["replicas"][1]["requests"] == {"cpu": 0.1, "memory": 64 << 20}


def test_a_plan_has_the_warnings_of_the_run(place):
    worker = replica("true")
    worker["template"]["spec"]["containers"][0]["command"] = ["python", "/opt/none/mnist.py"]
    worker["template"]["spec"]["containers"][0]["securityContext"] = {"runAsUser": 1}
    place.job(tfjob({"backoffLimit": 0}, Worker=worker))
    warnings = [
        "/opt/none/mnist.py, which the command of tensorflow names, does not exist on this machine",
        "runAsUser of tensorflow has an effect in isolation container only",
    ]
    planned, ran = (place.weft(verb, "run.yaml", "--isolation", "ports") for verb in ("plan", "run"))
    document = json.loads(place.weft("plan", "run.yaml", "--isolation", "ports", "--json")[1])
    for warning in warnings:
        assert warning in planned[2]
        assert warning in ran[2]
        assert any(warning in one for one in document["warnings"])


@pytest.mark.parametrize("field", ["folder", "venv"])
def test_a_folder_of_an_image_that_is_not_there_is_told_before_the_run(place, field):
    (place.folder / "weft.toml").write_text(f'[images."example/*"]\n{field} = "none"\n')
    place.job(tfjob(Worker=replica("true")))
    for verb in ("plan", "run"):
        code, _, err = place.weft(verb, "run.yaml")
        assert code != 0
        assert f'weft.toml: [images."example/*"] {field}: {place.folder / "none"} is no' in err
    assert not place.root.runs.exists()


def test_a_plan_replaces_the_variables_of_commands_that_are_known(place):
    worker = replica("train $(RATE) $(ME) $(IP) $(NONE) $$(RATE)", 2, policy="OnFailure")
    worker["template"]["spec"]["containers"][0]["env"] = [
        {"name": "RATE", "value": "0.1"},
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    place.job(tfjob(Worker=worker))
    code, out, err = place.weft("plan", "run.yaml", "--isolation", "ports")
    assert code == 0, err
    words = " ".join(out.split())
    assert "worker 2 OnFailure, no limit 2222 sh -c 'train 0.1 $(ME) <status.podIP> $(NONE) $(RATE)'" in words


def test_a_plan_of_what_cannot_run_has_the_reason_and_the_exit_code_of_the_run(place):
    large = replica("true", 3)
    large["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500"}}
    place.job(tfjob(Worker=large))
    code, out, _ = place.weft("plan", "run.yaml")
    assert code == 8
    assert "it needs 1500 cores at once" in out
    unknown = replica("true")
    del unknown["template"]["spec"]["containers"][0]["command"]
    place.job(tfjob({"suspend": True}, Worker=unknown))
    code, out, _ = place.weft("plan", "run.yaml")
    assert code == 4
    assert "nothing says how the image example/none:1 of container tensorflow starts" in out
    assert "Write into weft.toml" in out
    assert "TFJob echo is suspended by its file" in out


def test_the_time_to_live_of_a_job_removes_its_logs_and_keeps_the_record(place):
    place.job(
        tfjob({"ttlSecondsAfterFinished": 0}, Worker=replica("echo gone")),
        tfjob(name="two", Worker=replica("echo stays")),
    )
    code, _, err = place.run()
    assert code == 0, err
    assert [log.step for log in list_logs(place.folder_of())] == ["two.worker"]
    assert {path.name[:3] for path in (place.folder_of() / "logs").glob("*.log*")} == {"two"}
    code, out, _ = place.weft("show", RUN)
    assert code == 0
    assert "Its logs were removed at" in out
    _, _, err = place.weft("logs", f"{RUN}/echo.worker")
    assert "the logs of TFJob echo were removed at" in err
    assert not list((place.root.path / "expiring").iterdir())


def test_a_time_to_live_that_ends_without_weft_counts_at_the_next_start(place):
    place.job(tfjob({"ttlSecondsAfterFinished": 3600}, Worker=replica("echo gone")))
    assert place.run()[0] == 0
    assert len(list_logs(place.folder_of())) == 1
    (noted,) = (place.root.path / "expiring").iterdir()
    (one,) = json.loads(noted.read_text())
    noted.write_text(json.dumps([{**one, "due": one["due"] - 4000}]))
    assert place.weft("prune", "--keep", "5")[0] == 0
    assert list_logs(place.folder_of()) == []
    assert read_run(place.folder_of()).state == "succeeded"


def test_a_cancelled_job_and_a_resumed_one_do_not_expire(place):
    place.job(tfjob({"ttlSecondsAfterFinished": 0}, Worker=replica("sleep 600")))
    process = place.start("run", "run.yaml")
    until(lambda: place.alive() and place.conditions().get("Running") == "True")
    assert place.weft("cancel", RUN)[0] == 0
    process.communicate(timeout=180)
    assert len(list_logs(place.folder_of())) == 1


@pytest.fixture(scope="module")
def live(tmp_path_factory) -> Iterator[Place]:
    """A folder with a running job."""
    place = Place(tmp_path_factory.mktemp("live"))
    elastic = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "elastic"},
        "spec": {
            "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3},
            "pytorchReplicaSpecs": {"Worker": replica("sleep 600", 2, container="pytorch")},
        },
    }
    place.job(tfjob(Chief=replica("sleep 600"), Worker=replica("sleep 600", 2)), elastic)
    process = place.start("run", "run.yaml")
    steps = {"echo.chief": 1, "echo.worker": 2, "elastic.worker": 2}
    begun = place.folder_of() / "run.json"
    until(lambda: begun.exists() and all(place.states_of(step) == ["running"] * count for step, count in steps.items()))
    until(lambda: len(place.alive()) >= 5 and place.conditions(1).get("Running") == "True")
    yield place
    place.weft("cancel", RUN)
    process.communicate(timeout=180)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("scale", RUN, "echo.worker"), 2, "'echo.worker' is no number of replicas"),
        (("scale", RUN, "echo.wrker=2"), 2, "no replica type 'echo.wrker'"),
        (("scale", RUN, "echo.worker=-1"), 2, "echo.worker cannot have -1 replicas: it can have 0 to 64"),
        (("scale", RUN, "echo.worker=1000"), 2, "echo.worker cannot have 1000 replicas: it can have 0 to 64"),
        (
            ("scale", RUN, "echo.chief=2"),
            2,
            "echo.chief cannot have 2 replicas: it always has 1 (Chief of TFJob echo is one",
        ),
        (("scale", RUN, "echo.chief=2"), 2, f"{RUN} can be scaled by: echo.worker (0 to 64), elastic.worker (1 to 3)"),
        (("scale", RUN, "server=2"), 2, f"{RUN} can be scaled by: echo.worker (0 to 64), elastic.worker (1 to 3)"),
        (("scale", RUN, "echo.worker="), 2, "echo.worker= lacks its number: it can have 0 to 64"),
        (("scale", f"{RUN}/echo.worker=3"), 2, f"For example: weft scale {RUN} echo.worker=3"),
        (("scale", f"{RUN}/echo.worker", "3"), 2, f"weft scale {RUN} echo.worker=3"),
        (("scale", RUN, "elastic.worker=4"), 2, "can have 1 to 3 (minReplicas and maxReplicas of the elasticPolicy"),
        (("resume", RUN), 7, "is still running"),
        (("logs", f"{RUN}/echo.worker-7"), 4, "has no replica 'echo.worker-7'"),
        (("logs", f"{RUN}/echo.server"), 4, "has no replica 'echo.server'"),
        (("logs", f"{RUN}/echo.worker-1/side"), 4, "no log of a container 'side'"),
        (("show", f"{RUN}/nothing"), 4, "has no replica 'nothing'"),
        (("why", f"{RUN}/echo.worker-9"), 4, "There are: echo.worker-0, echo.worker-1"),
        (("delete", RUN), 7, "is still running"),
    ],
)
def test_wrong_uses_of_verbs_on_a_live_run_have_one_clear_message(words, code, said, live: Place):
    found, _, err = live.weft(*words)
    assert found == code
    assert said in " ".join(err.split())
    assert err.count("error WEFT") == 1
    assert "Traceback" not in err


def test_a_number_that_a_run_has_already_is_told(live: Place):
    code, _, err = live.weft("scale", RUN, "echo.worker=2", "Elastic.worker=2")
    assert (code, err) == (0, f"{RUN} has echo.worker=2, elastic.worker=2 already: nothing changes\n")
    code, out, _ = live.weft("scale", RUN, "echo.worker=2", "--json")
    assert (code, json.loads(out)["unchanged"]) == (0, ["echo.worker=2"])


def test_replicas_have_the_names_of_their_pods_too(live: Place):
    assert live.weft("logs", f"{RUN}/echo-worker-1")[0] == 0
    assert "echo.worker-1" in live.weft("show", f"{RUN}/echo-worker-1")[1]


def test_why_and_explain_speak_of_jobs(live: Place):
    _, out, _ = live.weft("why", RUN)
    assert "TFJob echo is Running: TFJob team/echo is running." in out
    _, out, _ = live.weft("why", f"{RUN}/echo.worker")
    assert out == "echo.worker: 2 running\n"
    _, out, _ = live.weft("why", f"{RUN}/echo.worker-0")
    assert "echo.worker-0: is running since" in out
    _, out, _ = live.weft("explain", RUN)
    assert "as the controller says" in out
    assert "2 tasks started" in out
    assert "64" not in out


def test_why_tells_what_ended_a_replica(place):
    place.job(tfjob(Chief=replica("true"), PS=replica("tail -f /dev/null"), Worker=replica("true")))
    assert place.run()[0] == 0
    assert place.weft("why", f"{RUN}/chief-0")[1] == "chief-0: succeeded\n"
    assert place.weft("why", f"{RUN}/ps-0")[1] == "ps-0: terminated: stopped with its job\n"


def test_wrong_uses_of_verbs_on_runs_that_do_not_run(place):
    place.job(tfjob({"suspend": True}, Worker=replica("true")))
    assert place.run()[0] == 0
    for verb in (("suspend", RUN), ("scale", RUN, "worker=2"), ("cancel", RUN)):
        code, _, err = place.weft(*verb)
        assert code == 7
        assert f"{RUN} is suspended already: nothing of it runs" in err
        assert f"weft resume {RUN}" in err
    _, out, _ = place.weft("why", RUN)
    assert f"TFJob echo is Suspended: TFJob echo is suspended. It goes on with: weft resume {RUN}" in out
    assert place.weft("resume", RUN)[0] == 0
    for verb in (("suspend", RUN), ("scale", RUN, "worker=2"), ("cancel", RUN)):
        code, _, err = place.weft(*verb)
        assert code == 7
        assert f"{RUN} has ended already: succeeded" in err
    code, _, err = place.weft("resume", RUN)
    assert code == 7
    assert "there is nothing left to do" in err
    place.write({"one": {"command": "true"}})
    assert place.run()[0] == 0
    code, _, err = place.weft("scale", "@last", "worker=2")
    assert code == 7
    assert "has ended already: succeeded" in err


def test_show_tells_what_replicas_request_and_have_used(place):
    busy = replica("until test -e up; do sleep 0.02; done; python3 -c 'x = bytes([1]) * 50_000_000; print(len(x))'", 2)
    busy["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    place.job(tfjob(all_workers=True, PS=replica("touch up; sleep 600"), Worker=busy))
    code, _, err = place.run()
    assert code == 0, err
    (job,) = json.loads(place.weft("show", RUN, "--json")[1])["run"]["jobs"]
    assert job["requests"] == {"ps": {}, "worker": {"cpu": 0.1}}
    assert set(job["usage"]) == {"ps-0", "worker-0", "worker-1"}
    assert job["usage"]["worker-0"]["memory"] > 50_000_000
    _, out, _ = place.weft("show", RUN)
    line = next(line for line in out.splitlines() if line.startswith("worker ") and "cores" in line)
    assert "0.1 cores" in line
    assert "MiB of memory in one process" in line


WAITS = "echo $TF_CONFIG; while ! test -e go; do sleep 0.05; done"


def quarter(command: str, replicas: int = 1) -> dict[str, Any]:
    """Return replicas that request a quarter of a core each."""
    one = replica(command, replicas)
    one["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "250m"}}
    return one


def workers_seen(place: Place, step: str, index: int, attempt: int = 0) -> int:
    """Return how many workers a start of a replica has found in TF_CONFIG, 0 before it has said so."""
    try:
        return len(json.loads(place.log(step, index, attempt))["cluster"]["worker"])
    except (FileNotFoundError, ValueError):
        return 0


def test_a_scale_beyond_the_room_is_refused_and_one_within_is_seen_by_each_start(place):
    (place.folder / "weft.toml").write_text("[queues.default]\ncpu = 1\n")
    place.job(tfjob(Chief=quarter(WAITS), Worker=quarter(WAITS)))
    process = place.start("run", "run.yaml")
    until(lambda: workers_seen(place, "worker", 0), "the worker")
    code, _, err = place.weft("scale", RUN, "worker=9")
    assert code == 8
    assert "worker=9 can never run: it needs 2.5 cores at once (1 of chief" in err
    assert re.search(r"(this machine|the queue default) has \d", err)
    assert f"{RUN} goes on as it is. The most that fits: worker=3" in err
    code, _, err = place.weft("scale", RUN, "worker=3")
    assert code == 0, err
    seen = [until(partial(workers_seen, place, "worker", at), "a worker") for at in (0, 1, 2)]
    assert seen == [1, 3, 3]
    assert place.weft("suspend", RUN)[0] == 0
    process.communicate()
    process = place.start("resume", RUN)
    again = [until(partial(workers_seen, place, "worker", at, 1), "a worker") for at in (0, 1, 2)]
    assert again == [3, 3, 3]
    assert until(lambda: workers_seen(place, "chief", 0, 1), "the chief") == 3
    (place.folder / "go").touch()
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "ScaleRefused" not in str(read_status(place.folder_of()))


def test_a_scale_lasts_when_a_cancelled_job_begins_anew(place):
    place.job(tfjob(Worker=replica(WAITS, 2)))
    process = place.start("run", "run.yaml")
    until(lambda: workers_seen(place, "worker", 1), "a worker")
    assert place.weft("scale", RUN, "worker=3")[0] == 0
    until(lambda: workers_seen(place, "worker", 2), "the third worker")
    assert place.weft("cancel", RUN)[0] == 0
    process.communicate()
    process = place.start("resume", RUN)
    assert [until(partial(workers_seen, place, "worker", at, 1), "a worker") for at in (0, 1, 2)] == [3, 3, 3]
    (place.folder / "go").touch()
    process.communicate()
    assert process.returncode == 0


def test_a_scale_that_the_machine_has_no_room_for_after_a_resume_is_undone(place):
    (place.folder / "weft.toml").write_text("[queues.default]\ncpu = 1\n")
    place.job(tfjob(Chief=quarter(WAITS), Worker=quarter(WAITS)))
    process = place.start("run", "run.yaml")
    until(lambda: workers_seen(place, "worker", 0), "the worker")
    assert place.weft("scale", RUN, "worker=3")[0] == 0
    until(lambda: workers_seen(place, "worker", 2), "the workers")
    assert place.weft("suspend", RUN)[0] == 0
    process.communicate()
    (place.folder / "weft.toml").write_text("[queues.default]\ncpu = 0.5\n")
    process = place.start("resume", RUN)
    assert until(lambda: workers_seen(place, "worker", 0, 1), "the worker") == 1
    (place.folder / "go").touch()
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "TFJob echo: worker=3 is undone: echo.gang asks at once for slots of 1 of chief, 3 of worker" in out + err
    assert place.conditions()["Succeeded"] == "True"


@pytest.mark.parametrize("asked", [{"cpu": "500"}, {"memory": "500Ti"}, {"nvidia.com/gpu": "8"}])
def test_what_the_machine_does_not_have_is_refused_or_ignored_on_request(asked, place):
    large = replica("echo started", 2)
    large["template"]["spec"]["containers"][0]["resources"] = {"limits": asked}
    place.job(tfjob({"schedulingPolicy": {"minAvailable": 1}}, Worker=large))
    code, _, err = place.run()
    assert code == 8
    assert "this machine has" in err
    helps = {"cpu": "--workers N", "memory": "--requests ignore"}
    assert helps.get(next(iter(asked)), "--without-gpus") in err
    code, out, _ = place.weft("plan", "run.yaml", "--requests", "ignore")
    assert code == 0
    assert "what replicas request is ignored: all start at once" in out
    code, _, err = place.run("--requests", "ignore")
    assert code == 0, err
    if "cpu" not in asked and "memory" not in asked:
        assert place.run("--gpus", "16")[0] == 0


SERVE = """
import os, socket
server = socket.create_server(("", int(os.environ.get("OWN_PORT", 7777))))
while True:
    conversation, _ = server.accept()
    conversation.sendall(b"served")
    conversation.close()
"""
ASK = """
import os, socket, time
names = ("DIRECT", "BY_NAME", "ALONE")
asked = [(os.environ[f"{name}_SERVICE_HOST"], int(os.environ[f"{name}_SERVICE_PORT"])) for name in names]
if os.environ["NAMES"]:
    asked += [("by-name", 80), ("by-name.default.svc", 81), ("direct", 7777), ("alone", 7777)]
for one in asked:
    for _ in range(3000):
        try:
            answer = socket.create_connection(one, 60).recv(9).decode()
        except OSError:
            answer = ""
        if answer:
            break
        time.sleep(0.05)
    print(answer or f"nobody answers at {one}")
"""


def service(name: str, *ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    selector = {"app": "store"}
    spec = {"selector": selector, "ports": list(ports), **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("isolation", ["namespace", "ports"])
def test_the_ports_of_services_are_translated(isolation, place):
    if isolation == "namespace" and why_no_namespaces():
        pytest.skip(why_no_namespaces())
    containers = [
        {
            "name": "store",
            "image": "e/n:1",
            "command": ["python3", "-c", SERVE],
            "env": [] if isolation == "namespace" else [{"name": "OWN_PORT", "value": "$(DIRECT_SERVICE_PORT)"}],
            "ports": [{"containerPort": 7777, "name": "serving"}],
        }
    ]
    metadata = {"name": "store", "labels": {"app": "store"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    worker = replica("unused")
    (container,) = worker["template"]["spec"]["containers"]
    container["command"] = ["python3", "-c", ASK]
    container["env"] = [{"name": "NAMES", "value": "yes" if isolation == "namespace" else ""}]
    one = tfjob(Worker=worker)
    one["metadata"]["namespace"] = "default"
    place.job(
        one,
        pod,
        service("direct", {"port": 7777}),
        service(
            "by-name", {"name": "a", "port": 80, "targetPort": "serving"}, {"name": "b", "port": 81, "targetPort": 7777}
        ),
        service("alone", {"port": 90, "targetPort": 7777}, clusterIP="None"),
    )
    code, _, err = place.run("--isolation", isolation)
    assert code == 0, err + place.log("worker")
    assert place.log("worker").split() == ["served"] * (7 if isolation == "namespace" else 3)


@pytest.mark.parametrize("isolation", ["namespace", "ports"])
def test_a_working_folder_that_this_machine_lacks_is_made_or_that_of_the_image(place, isolation):
    if isolation == "namespace" and (why := why_no_namespaces()):
        pytest.skip(why)
    (place.folder / "code").mkdir()
    (place.folder / "weft.toml").write_text('[images."*"]\nfolder = "code"\n')
    document = tfjob(Worker=replica("pwd; touch made; ls", policy="Never"))
    (container,) = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["workingDir"] = "/var/no_such_folder"
    place.job(document)
    code, _, err = place.run("--isolation", isolation)
    assert code == 0, err
    assert err.count("/var/no_such_folder, the workingDir of tensorflow, does not exist on this machine") == 1
    expected = "/var/no_such_folder" if isolation == "namespace" else str(place.folder / "code")
    assert place.log("worker") == f"{expected}\nmade\n"
    assert not os.path.lexists("/var/no_such_folder")


def test_a_working_folder_that_a_claim_lacks_is_made_in_it(place):
    if why := why_no_namespaces():
        pytest.skip(why)
    spec = replica("pwd; touch made")
    pod = spec["template"]["spec"]
    pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]
    pod["containers"][0] |= {
        "workingDir": "/claimed-data/runs/one",
        "volumeMounts": [{"name": "data", "mountPath": "/claimed-data"}],
    }
    place.job(tfjob(Worker=spec))
    code, out, err = place.run()
    assert code == 0, out + err + place.log("worker")
    assert place.log("worker") == "/claimed-data/runs/one\n"
    assert (place.folder / ".weft" / "claims" / "@team" / "shared" / "runs" / "one" / "made").exists()


def test_options_of_pipelines_are_refused_for_jobs(place):
    place.job(tfjob(Worker=replica("true")))
    code, _, err = place.run("-p", "a=1", "--only", "worker")
    assert code == 2
    assert "-p, --only cannot be used here: " in err


def test_a_job_without_api_version_or_in_another_kind_of_file_is_told_so(place):
    document = tfjob(Worker=replica("true"))
    (place.folder / "job.txt").write_text(json.dumps(document))
    code, _, err = place.weft("run", "job.txt")
    assert code == 3
    assert "a training job is run from a file" in err
    del document["apiVersion"]
    place.job(document)
    code, _, err = place.run()
    assert code == 3
    assert "apiVersion" in err
    assert "entry_points" not in err
