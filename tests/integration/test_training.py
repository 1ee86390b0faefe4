"""Training jobs as processes of this machine, from the command line."""

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.places import RUN, Project, until
from weft.runs.reading import read_run
from weft.store.state import log_stem, read_status


def replica(
    command: str, replicas: int = 1, policy: str = "Never", container: str = "tensorflow", **pod: Any
) -> dict[str, Any]:
    one = {"name": container, "image": "example/none:1", "command": ["sh", "-c", command]}
    spec = {"containers": [one], "terminationGracePeriodSeconds": 2, **pod}
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": spec}}


def tfjob(
    policy: dict[str, Any] | None = None, name: str = "echo", *, all_workers: bool = False, **replicas: Any
) -> dict[str, Any]:
    """Return a job; without a chief, it ends with its first worker and stops the others, or with `all_workers`."""
    success = {"successPolicy": "AllWorkers"} if all_workers else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"runPolicy": policy or {}, **success, "tfReplicaSpecs": replicas},
    }


class Place(Project):
    """A folder with a job file."""

    def job(self, *documents: dict[str, Any]) -> None:
        self.file.write_text("\n---\n".join(json.dumps(one) for one in documents))

    def run(self, *words: str) -> tuple[int, str, str]:
        return self.weft("run", "run.yaml", *words)

    def conditions(self, job: int = 0) -> dict[str, str]:
        found = read_status(self.folder_of())
        return {one["type"]: one["status"] for one in found[job]["status"]["conditions"]} if found else {}

    def states_of(self, step: str) -> list[str]:
        found = next(one for one in read_run(self.folder_of()).steps if one.name == step)
        return [item.state for _, item in sorted(found.items.items())]

    def log(self, step: str, index: int = 0, attempt: int = 0) -> str:
        return (self.folder_of() / "logs" / f"{log_stem(step)}.{index}.{attempt}.log").read_text()

    def alive(self) -> list[int]:
        """Return the processes that belong to a run of this folder."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    environ = Path("/proc", name, "environ").read_bytes()
                except OSError:
                    continue
                if str(self.folder).encode() in environ and b"WEFT_REPLICA=" in environ:
                    found.append(int(name))
        return found


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def test_a_job_succeeds_with_its_chief_and_its_servers_end(place):
    place.job(
        tfjob(
            Chief=replica("echo hello; until test -e told.echo-worker-1; do sleep 0.02; done"),
            PS=replica("tail -f /dev/null", 2),
            Worker=replica("echo $TF_CONFIG; touch told.$HOSTNAME", 2),
        )
    )
    code, out, err = place.run()
    assert code == 0, err
    assert {"Running": "False"} | place.conditions() == {"Created": "True", "Running": "False", "Succeeded": "True"}
    assert "TFJob echo" in out
    assert "Succeeded" in out
    assert place.log("chief") == "hello\n"
    config = json.loads(place.log("worker", 1))
    assert config["task"] == {"type": "worker", "index": 1}
    assert sorted(config["cluster"]) == ["chief", "ps", "worker"]
    assert place.alive() == []


def test_workers_and_evaluators_that_none_leaves_go_on_after_the_chief(place):
    last = replica("until test -e go; do sleep 0.05; done; touch done-$HOSTNAME")
    servers = replica("tail -f /dev/null")
    place.job(tfjob({"cleanPodPolicy": "None"}, Chief=replica("true"), Worker=last, Evaluator=last, PS=servers))
    run = place.start("run", "run.yaml")
    until(lambda: place.folder_of().is_dir() and place.conditions().get("Succeeded") == "True", "the end of the job")
    (place.folder / "go").touch()
    _, err = run.communicate(timeout=180)
    assert run.returncode == 0, err
    assert "workers and evaluators that still run go on to their own end (cleanPodPolicy: None)" in err
    assert sorted(one.name for one in place.folder.glob("done-*")) == ["done-echo-evaluator-0", "done-echo-worker-0"]
    assert place.alive() == []


def test_the_first_replica_that_fails_is_told_with_its_last_lines(place):
    place.job(
        tfjob(Worker=replica('echo line $WEFT_REPLICA; test "${WEFT_REPLICA#*worker-}" = 1 && exit 3; sleep 60', 2))
    )
    code, out, err = place.run()
    assert code == 1
    assert place.conditions()["Failed"] == "True"
    assert "worker-1" in err
    assert "exit code 3" in err + out
    assert place.alive() == []


def test_a_replica_that_failed_though_its_job_succeeded_is_named(place):
    fails = replica("touch failed; echo no data here; exit 3", policy="OnFailure", container="pytorch")
    waits = replica("until test -e failed; do sleep 0.05; done", container="pytorch")
    spec = {"runPolicy": {}, "pytorchReplicaSpecs": {"Master": waits, "Worker": fails}}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    place.job({**kind, "metadata": {"name": "echo"}, "spec": spec})
    code, out, err = place.run()
    assert code == 0, out + err
    why = "ended with exit code 3; its last line: no data here"
    assert f"warning: the run succeeded, but worker-0 failed: {why}\n" in err


def test_a_failed_replica_restarts_in_place(place):
    command = "echo start $WEFT_RESTARTS; test -e again || { touch again; exit 1; }"
    place.job(tfjob(Worker=replica(command, policy="OnFailure")))
    code, _, err = place.run()
    assert code == 0, err
    assert (place.log("worker"), place.log("worker", 0, 1)) == ("start 0\n", "start 1\n")


def test_the_restarts_of_a_replica_are_counted_over_the_resumes_of_a_failed_run(place):
    command = 'test "${WEFT_REPLICA#*worker-}" = 1 && exec tail -f /dev/null; echo start $WEFT_RESTARTS; test -e go'
    place.job(tfjob({"backoffLimit": 1}, Worker=replica(command, 2, policy="OnFailure")))
    assert place.run()[0] == 1
    starts = len(list((place.folder_of() / "logs").glob("worker.0.*.log")))
    (place.folder / "go").touch()
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    assert place.log("worker", 0, starts) == f"start {starts}\n"


def test_exit_codes_above_127_create_the_pod_again(place):
    command = "test -e again || { touch again; exit 130; }; echo done"
    place.job(tfjob(Worker=replica(command, policy="ExitCode")))
    code, _, err = place.run()
    assert code == 0, err
    assert place.log("worker", 0, 1) == "done\n"


def test_a_low_exit_code_is_permanent(place):
    place.job(tfjob(Worker=replica("exit 1", policy="ExitCode")))
    assert place.run()[0] == 1
    assert place.conditions()["Failed"] == "True"


def test_a_deadline_fires_in_time(place):
    place.job(tfjob({"activeDeadlineSeconds": 1}, Worker=replica("sleep 600", 2)))
    code, out, err = place.run()
    assert code == 1
    assert "longer than specified deadline" in out + err
    assert place.alive() == []


def test_suspend_frees_everything_and_a_resume_starts_again(place):
    place.job(tfjob(all_workers=True, Worker=replica("echo $WEFT_RESTARTS >> starts; test -e go || sleep 600", 2)))
    starts = place.folder / "starts"
    process = place.start("run", "run.yaml")
    until(lambda: starts.exists() and starts.read_text() == "0\n0\n" and place.conditions().get("Running") == "True")
    code, _, err = place.weft("suspend", RUN)
    assert code == 0, err
    process.communicate(timeout=180)
    assert place.alive() == []
    assert read_run(place.folder_of()).state == "suspended"
    assert {"Running": "False"} | place.conditions() == {"Created": "True", "Running": "False", "Suspended": "True"}
    ended = read_run(place.folder_of()).ended or 0.0
    shown = place.weft("show", RUN)[1]
    until(lambda: time.time() > ended + 1)
    assert place.weft("show", RUN)[1] == shown  # the time of a suspended job stands still
    (place.folder / "go").touch()
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    assert place.conditions()["Succeeded"] == "True"
    assert place.conditions()["Suspended"] == "False"
    assert sorted(starts.read_text().split()) == ["0", "0", "1", "1"]


def test_a_cancel_ends_all_processes(place):
    place.job(tfjob(PS=replica("trap '' TERM; sleep 600"), Worker=replica("sleep 600", 2)))
    process = place.start("run", "run.yaml")
    until(lambda: len(place.alive()) >= 3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=180)
    assert process.returncode == 130
    assert place.alive() == []


def test_a_killed_run_goes_on_with_new_replicas(place):
    both = "until test $(wc -l < starts) -ge 4; do sleep 0.02; done"  # the first that ends may end the other one
    place.job(tfjob(Worker=replica(f"echo x >> starts; if test -e go; then {both}; else exec sleep 600; fi", 2)))
    process = place.start("run", "run.yaml")
    until(lambda: (place.folder / "starts").exists() and len((place.folder / "starts").read_text().split()) == 2)
    process.kill()
    process.communicate()
    until(lambda: not place.alive(), "the end of the replicas")
    (place.folder / "go").touch()
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    assert place.conditions()["Succeeded"] == "True"
    assert len((place.folder / "starts").read_text().split()) == 4


def test_several_jobs_of_a_file_are_one_run(place):
    place.job(
        tfjob(name="one", Worker=replica("echo 1")),
        tfjob(name="two", Worker=replica("sleep 0.2; echo 2", 2)),
    )
    code, _, err = place.run()
    assert code == 0, err
    assert [one["name"] for one in read_status(place.folder_of())] == ["one", "two"]
    assert place.log("two.worker") == "2\n"


def test_a_folder_of_files_has_its_runs_in_itself(place):
    jobs = Place(place.folder / "jobs")
    jobs.job(tfjob(name="one", Worker=replica("echo 1")))
    code, out, err = place.weft("run", "jobs")
    assert code == 0, err
    assert "TFJob one  ✔ Succeeded" in out, "the record of this run is shown"
    assert f"weft show {RUN} -C jobs" in out
    assert jobs.log("worker") == "1\n"
    assert not place.root.path.exists()


def test_secrets_in_volumes_and_in_the_name_of_a_program_reach_nothing_else(place):
    text = "first-hidden\\nsecond-hidden\\n"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"token": "hidden-text"}}
    lines = {**secret, "metadata": {"name": "lines"}, "stringData": {"pem": text.replace("\\n", "\n")}}
    job = tfjob(
        Worker=replica('cat keys/token keys/pem; ls "$(cat keys/token)"'), Chief=replica("unused", policy="Never")
    )
    for type, volume in (("Worker", "keys"), ("Chief", "")):
        pod = job["spec"]["tfReplicaSpecs"][type]["template"]["spec"]
        if volume:
            sources = [{"secret": {"name": "key"}}, {"secret": {"name": "lines"}}]
            pod["volumes"] = [{"name": "keys", "projected": {"sources": sources}}]
            pod["containers"][0]["volumeMounts"] = [{"name": "keys", "mountPath": str(place.folder / "keys")}]
        else:
            pod["containers"][0]["env"] = [
                {"name": "T", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}}
            ]
            pod["containers"][0]["command"] = ["/nowhere/$(T)"]
    (place.folder / "keys").mkdir()
    place.job(job, secret, lines)
    code, out, err = place.run()
    assert code == 1
    told = (
        out + err + "".join(place.weft(*words)[1] for words in (("show", RUN), ("logs", RUN), ("show", RUN, "--json")))
    )
    assert "/nowhere/***" in told
    for hidden in ("hidden-text", "first-hidden", "second-hidden"):
        assert hidden not in told
        for path in place.folder_of().rglob("*"):
            if path.is_file() and "pods" not in path.parts:
                assert hidden.encode() not in path.read_bytes(), path


def test_a_resume_runs_no_job_again_that_has_succeeded(place):
    both = "until test $(wc -l < ran) -ge 2; do sleep 0.02; done"  # the first that ends may end the other one
    good = tfjob(Worker=replica(f"echo ran >> ran; {both}", 2))
    bad = tfjob(Worker=replica("until test -e fail; do sleep 0.05; done; test -e go"))
    good["metadata"]["name"], bad["metadata"]["name"] = "good", "bad"
    place.job(good, bad)

    def conditions() -> list[str]:
        found = json.loads(place.weft("show", RUN, "--json")[1])
        return [one["condition"] for one in found.get("run", {}).get("jobs", ())]

    process = place.start("run", "run.yaml")
    until(lambda: conditions() == ["Succeeded", "Running"])
    (place.folder / "fail").touch()
    process.communicate()
    assert process.returncode == 1
    (place.folder / "go").touch()
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    assert (place.folder / "ran").read_text() == "ran\nran\n"
    assert conditions() == ["Succeeded", "Succeeded"]


def test_values_of_few_letters_are_not_masked_or_only_as_whole_words(place):
    data = {"FLAG": "1", "KEY": "hush-hush", "PORT": "5432"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": data}
    job = tfjob(Worker=replica('echo "step 1 loss 0.11 flag $FLAG key $KEY at $(URL), not $(OTHER)"'))
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["envFrom"] = [{"secretRef": {"name": "key"}}]
    container["env"] = [{"name": "OTHER", "value": "15432"}, {"name": "URL", "value": "db:$(PORT)"}]
    place.job(job, secret)
    code, plan, err = place.weft("plan", "run.yaml", "--json")
    assert code == 0, err
    assert "at ***, not 15432" in plan
    code, _, err = place.run()
    assert code == 0, err
    assert place.log("worker") == "step 1 loss 0.11 flag 1 key *** at db:***, not 15432\n"


def test_secrets_reach_replicas_and_nothing_else(place):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"token": "hidden-text"}}
    job = tfjob(Worker=replica('test "${#TOKEN}" = 11 && echo "$TOKEN" is right'))
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}}]
    place.job(job, secret)
    code, out, err = place.run()
    assert code == 0, err
    assert place.log("worker") == "*** is right\n"
    assert "hidden-text" not in out + err
    for path in place.folder_of().rglob("*"):
        if path.is_file():
            assert b"hidden-text" not in path.read_bytes(), path


def test_a_wrong_file_is_refused_with_its_place(place):
    job = tfjob(Worker=replica("true"))
    job["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailur"
    place.file.write_text(json.dumps(job, indent=1))
    code, _, err = place.run()
    assert code == 3
    assert "run.yaml:" in err
    assert "OnFailure" in err


def test_an_image_without_a_command_asks_what_to_write(place):
    job = tfjob(Worker=replica("true"))
    del job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]
    place.job(job)
    code, _, err = place.run()
    assert code == 4
    assert 'weft.toml: [images."example/none*"]' in err


def test_a_train_job_ends_complete_and_its_nodes_find_the_first_one(place):
    command = 'echo hello; getent hosts "$PET_MASTER_ADDR" > /dev/null && echo found'
    trainer = {"numNodes": 2, "image": "example/none:1", "command": ["sh", "-c", command]}
    place.job(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "tiny"},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
        }
    )
    code, out, err = place.run()
    assert code == 0, err
    assert "✔ Complete" in out
    assert place.log("node", 1) == "hello\nfound\n"


def test_a_run_prints_few_lines_and_its_story_has_the_conditions(place):
    place.job(tfjob({"cleanPodPolicy": "Running"}, Worker=replica("sleep 0.1", 20)))
    code, out, err = place.run()
    assert code == 0, err
    assert err.splitlines()[0] == "note: image example/none:1: its command runs with the programs of this machine"
    told = [line.partition(" ")[2] for line in err.splitlines()]
    assert "TFJob echo created" in told
    assert told.index("TFJob echo succeeded") < 5
    assert len(out.splitlines()) < 15
    assert out.endswith(f"weft logs {RUN}\n")
    _, story, _ = place.weft("story", RUN)
    assert "TFJob echo succeeded" in story
    _, shown, _ = place.weft("show", RUN, "--events")
    assert "SuccessfulCreatePod" in shown


def test_logs_of_replicas_and_of_containers_beside_them(place):
    wait = "until test -e $WEFT_CHECKPOINT_DIR/$WEFT_REPLICA; do sleep 0.01; done; echo text"
    job = tfjob(name="one", all_workers=True, Worker=replica(wait, 2))
    containers = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    beside = "echo beside; touch $WEFT_CHECKPOINT_DIR/$WEFT_REPLICA; sleep 60"
    containers.append({"name": "sidecar", "image": "example/none:1", "command": ["sh", "-c", beside]})
    quiet = {"name": "quiet", "image": "example/none:1", "command": ["true"]}
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["initContainers"] = [quiet]
    place.job(job, tfjob(name="two", Worker=replica("echo other")))
    code, _, err = place.run()
    assert code == 0, err
    merged = place.weft("logs", RUN)[1].splitlines()
    assert sorted(merged) == ["one.worker-0 | text", "one.worker-1 | text", "two.worker-0 | other"]
    timed = place.weft("logs", RUN, "--timestamps")[1].splitlines()
    assert timed == sorted(timed, key=lambda line: line.split(" | ")[1])
    assert sorted(re.sub(r"\| [-\d]+ [.:\d]+ ", "| ", line) for line in timed) == sorted(merged)
    assert place.weft("logs", f"{RUN}/two.worker-0")[1] == "other\n"
    assert place.weft("logs", f"{RUN}/one.worker-0/sidecar")[1] == "beside\n"
    code, out, err = place.weft("logs", f"{RUN}/one.worker-0/quiet")
    assert (code, out) == (0, "")
    assert "has printed nothing" in err
    code, _, err = place.weft("logs", f"{RUN}/one.worker-0/other")
    assert code == 4
    assert "sidecar" in err
    assert f"main container: weft logs {RUN}/one.worker-0" in err
