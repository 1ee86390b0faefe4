"""Training jobs as steps of pipelines: replicas as processes, artifacts, failures, retries, resumes and logs."""

import json
import os
import re
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.places import RUN, until
from tests.integration.test_training import Place, replica, tfjob
from weft.runs.reading import read_run
from weft.store.state import list_inner_runs, read_status

WRITE = (
    'mkdir -p "$PF_OUTPUT_ARTIFACT_MODEL" && cat "$PF_INPUT_ARTIFACT_DATA" > "$PF_OUTPUT_ARTIFACT_MODEL/$WEFT_REPLICA"'
)
"""The command of a replica that copies its input artifact to a file of its own in the output folder."""


class Flow(Place):
    """A folder with a job file and a pipeline that has a step `train` for it."""

    def job(self, *documents: dict[str, Any]) -> None:
        (self.folder / "job.yaml").write_text("\n---\n".join(json.dumps(one) for one in documents))

    def pipeline(self, train: dict[str, Any] | None = None, **top: Any) -> None:
        weft = {"kind": "training", "with": {"file": "job.yaml"}, **(train or {}).pop("weft", {})}
        after = top.pop("after", {})
        self.write({"train": {"x-weft": weft, **(train or {})}, **after}, **top)

    def inner(self, step: str = "train", index: int | None = None, run: str = RUN) -> Path:
        found = [one.folder for one in list_inner_runs(self.folder_of(run)) if (one.step, one.index) == (step, index)]
        return found[0]

    def replica_log(self, name: str, attempt: int = 0) -> Path:
        vertex, _, number = name.rpartition("-")
        return self.inner() / "logs" / f"{vertex}.{number}.{attempt}.log"

    def has_printed(self, name: str, text: str) -> bool:
        try:
            return text in self.replica_log(name).read_text()
        except (IndexError, FileNotFoundError):
            return False


@pytest.fixture
def flow(tmp_path) -> Flow:
    return Flow(tmp_path)


@pytest.mark.parametrize("isolation", ["auto", "ports"])
def test_artifacts_reach_each_replica_and_the_next_step(flow, isolation):
    flow.job(
        tfjob({"cleanPodPolicy": "None"}, Chief=replica(WRITE), PS=replica("tail -f /dev/null"), Worker=replica(WRITE))
    )
    flow.write(
        {
            "prepare": {"command": "echo 42 > {{data}}", "artifacts": {"output": ["data"]}},
            "train": {
                "deps": "prepare",
                "x-weft": {"kind": "training", "with": {"file": "job.yaml", "isolation": isolation}},
                "artifacts": {"input": {"data": "{{prepare.data}}"}, "output": ["model"]},
            },
            "evaluate": {
                "deps": "train",
                "command": "cat {{model}}/echo-chief-0 > {{score}}",
                "artifacts": {"input": {"model": "{{train.model}}"}, "output": ["score"]},
            },
        }
    )
    code, out, err = flow.weft("run", "run.yaml")
    assert code == 0, err
    outputs = read_run(flow.folder_of()).outputs
    assert Path(outputs["evaluate.score"]).read_text() == "42\n"
    assert "TFJob echo Succeeded" in out
    config = read_status(flow.inner())[0]
    assert (config["kind"], config["name"]) == ("TFJob", "echo")
    assert flow.alive() == []


def test_variables_of_the_step_replace_those_of_the_file(flow):
    job = tfjob(Worker=replica('echo $EPOCHS $RATE "$(PF_STEP_NAME)" "$COST" $TF_CONFIG', 2))
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "EPOCHS", "value": "1"},
        {"name": "RATE", "value": "$(EPOCHS)0"},
    ]
    flow.job(job)
    flow.pipeline({"parameters": {"epochs": 7}, "env": {"EPOCHS": "{{epochs}}", "COST": "$(EPOCHS) $$"}})
    code, _, err = flow.weft("run", "run.yaml", "-p", "epochs=8")
    assert code == 0, err
    words = flow.replica_log("worker-0").read_text().split(" ", 5)
    assert words[:5] == ["8", "80", "train", "$(EPOCHS)", "$$"]
    assert json.loads(words[5])["task"] == {"type": "worker", "index": 0}


def test_a_failure_tells_the_reason_of_the_job_and_the_first_replica(flow):
    fail = 'echo line of $WEFT_REPLICA; test "${WEFT_REPLICA#*worker-}" = 1 && exit 3; sleep 60'
    flow.job(tfjob(Worker=replica(f"{WRITE}; {fail}", 2)))
    flow.pipeline({"artifacts": {"output": ["model"]}})
    code, out, err = flow.weft("run", "run.yaml")
    assert code == 1
    assert "TFJob echo failed: TFJob team/echo has failed because 1 Worker replica(s) failed." in out
    assert "worker-1: ended with exit code 3" in err
    assert "line of echo-worker-1" in err
    assert read_run(flow.folder_of()).outputs == {}
    _, shown, _ = flow.weft("show", f"{RUN}/train")
    assert "first failure: worker-1" in shown
    assert flow.alive() == []


def test_failures_and_restarts_of_replicas_are_told_while_the_step_runs(flow):
    again = "mkdir failed || { until test -e go; do sleep 0.05; done; exit 0; }; echo no data >&2; exit 3"
    flow.job(tfjob({"backoffLimit": 3}, Worker=replica(again, policy="OnFailure")))
    flow.pipeline()
    process = flow.start()
    until(lambda: "worker-0 starts again" in flow.weft("show", RUN)[1], "the restart in what is shown")
    (flow.folder / "go").touch()
    _, err = process.communicate()
    assert process.returncode == 0, err
    lines = [line.partition(" ")[2] for line in err.splitlines()]
    failed = lines.index("train running: worker-0 failed: ended with exit code 3; its last line: no data")
    assert lines.index("train running: worker-0 starts again") > failed
    assert not any(line.startswith("train running: TFJob echo") for line in lines), "they are those of the step"
    assert "worker-0 failed: ended with exit code 3; its last line: no data\n" in flow.weft("logs", f"{RUN}/train")[1]
    assert "again" not in flow.weft("show", RUN)[1]


def test_logs_of_a_step_of_a_replica_and_of_a_run(flow):
    chief = replica("until test -e up; do sleep 0.02; done; echo a chief")
    flow.job(tfjob(Chief=chief, Worker=replica("echo a worker; touch up; tail -f /dev/null", 1)))
    flow.pipeline()
    assert flow.weft("run", "run.yaml")[0] == 0
    assert flow.weft("logs", f"{RUN}/train/chief-0")[1] == "a chief\n"
    _, merged, _ = flow.weft("logs", f"{RUN}/train")
    assert "train/chief-0  | a chief\n" in merged
    assert "train          | TFJob echo succeeded\n" in merged
    assert "==> train/chief[0] <==\na chief\n" in flow.weft("logs", RUN)[1]
    code, _, err = flow.weft("logs", f"{RUN}/train/server-0")
    assert code > 0
    assert "server-0" in err
    _, shown, _ = flow.weft("show", f"{RUN}/train/chief-0")
    assert "succeeded" in shown
    (job,) = json.loads(flow.weft("show", RUN, "--json")[1])["run"]["jobs"]
    assert (job["step"], job["name"]) == ("train", "echo")


def test_a_step_is_taken_from_the_cache_until_its_job_or_its_code_changes(flow):
    (flow.folder / "train.sh").write_text('echo first; mkdir "$PF_OUTPUT_ARTIFACT_MODEL"')
    flow.job(tfjob(Worker=replica("sh train.sh")))
    flow.pipeline({"cache": {"enable": True}, "artifacts": {"output": ["model"]}})

    def reason() -> str:
        code, _, err = flow.weft("run", "run.yaml")
        assert code == 0, err
        return str(flow.weft("why", "@last/train")[1])

    assert "first" not in reason()
    assert "taken from the cache: result of run-000001" in reason()
    (flow.folder / "train.sh").write_text('echo second; mkdir "$PF_OUTPUT_ARTIFACT_MODEL"')
    assert "train.sh" in reason()
    flow.job(tfjob(Worker=replica("sh train.sh", policy="OnFailure")))
    assert "job echo" in reason()
    assert "taken from the cache: result of run-000004" in reason()


def test_a_retried_step_continues_from_its_checkpoint(flow):
    command = (
        'ls "$WEFT_CHECKPOINT_DIR"; echo resumed $WEFT_RESUMED, restarts $WEFT_RESTARTS; '
        'test $WEFT_RESUMED = 1 || { touch "$WEFT_CHECKPOINT_DIR/step-7"; exit 1; }'
    )
    flow.job(tfjob(Worker=replica(command)))
    flow.pipeline({"weft": {"retry": {"user": 1}}})
    code, out, err = flow.weft("run", "run.yaml")
    assert code == 0, err
    assert flow.replica_log("worker-0").read_text() == "resumed 0, restarts 0\n"
    assert flow.replica_log("worker-0", 1).read_text() == "step-7\nresumed 1, restarts 1\n"
    assert "2 attempts" in out


def test_a_killed_run_resumes_at_the_checkpoint_without_the_finished_steps(flow):
    command = 'ls "$WEFT_CHECKPOINT_DIR"; touch "$WEFT_CHECKPOINT_DIR/step-7"; echo begun; test -e go || exec sleep 600'
    flow.job(tfjob(Worker=replica(command, 2)))
    flow.write(
        {
            "prepare": {"command": "echo x >> prepared"},
            "train": {"deps": "prepare", "x-weft": {"kind": "training", "with": {"file": "job.yaml"}}},
        }
    )
    process = flow.start()
    until(lambda: flow.has_printed("worker-0", "begun") and flow.has_printed("worker-1", "begun"), "a replica")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: not flow.alive(), "the end of the replicas")
    (flow.folder / "go").touch()
    code, _, err = flow.weft("resume", RUN)
    assert code == 0, err
    assert (flow.folder / "prepared").read_text() == "x\n"
    assert flow.replica_log("worker-0", 1).read_text() == "step-7\nbegun\n"


@pytest.mark.parametrize("how", ["cancel", "signal", "suspend"])
def test_a_stopped_run_stops_the_replicas_and_can_be_resumed(flow, how):
    command = 'trap "echo told; exit 1" TERM; echo begun; test -e go && exit 0; sleep 600 & wait'
    flow.job(tfjob(PS=replica("tail -f /dev/null"), Worker=replica(command)))
    flow.pipeline()
    process = flow.start()
    until(lambda: flow.has_printed("worker-0", "begun"), "a replica")
    if how == "signal":
        process.send_signal(signal.SIGINT)
    else:
        words = {"cancel": ["cancel", RUN], "suspend": ["suspend", RUN, "--now"]}[how]
        assert flow.weft(*words)[0] == 0
    process.communicate()
    assert process.returncode != 0
    assert flow.has_printed("worker-0", "told")
    assert flow.alive() == []
    assert read_run(flow.folder_of()).state == ("suspended" if how == "suspend" else "terminated")
    (flow.folder / "go").touch()
    code, _, err = flow.weft("resume", RUN)
    assert code == 0, err
    assert read_run(flow.folder_of()).state == "succeeded"


def test_a_step_over_its_time_stops_its_replicas(flow):
    flow.job(tfjob(Worker=replica("echo begun; exec sleep 600")))
    flow.pipeline({"weft": {"timeout_s": 2}})
    code, out, err = flow.weft("run", "run.yaml")
    assert code == 1
    assert "took longer than its timeout of 2 s" in out + err
    assert flow.alive() == []


def test_the_wait_for_places_is_no_time_of_a_step(flow, monkeypatch):
    (flow.folder / "x").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(flow.folder / "x"))
    cores = len(os.sched_getaffinity(0))
    busy = replica("touch begun; until test -e go; do sleep 0.05; done")
    busy["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cores)}}
    (flow.folder / "busy.yaml").write_text(json.dumps(tfjob(Worker=busy, name="busy")))
    holder = flow.start("run", "busy.yaml")
    until((flow.folder / "begun").exists)
    waits = replica("exec sleep 600")
    waits["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    flow.job(tfjob(Worker=waits))
    flow.pipeline({"weft": {"timeout_s": 1}})
    run = flow.start("run", "run.yaml")
    second = "run-000002"
    until(lambda: flow.folder_of(second).is_dir() and list_inner_runs(flow.folder_of(second)), "its job")
    created = time.monotonic()
    until(lambda: time.monotonic() > created + 3, "a wait of more than the limit")
    assert run.poll() is None
    waited = " ".join(flow.weft("why", second)[1].split())
    assert waited.startswith("train/worker[0]: asks at once")
    assert "needs 1 core at once, 0 are free" in waited
    (flow.folder / "go").touch()
    holder.communicate(timeout=180)
    assert holder.returncode == 0
    _, err = run.communicate(timeout=180)
    assert run.returncode == 1
    counted = r"took longer than its timeout of 1 s; the \d+ s in which its jobs waited for their places do not count"
    assert re.search(counted, err)


def test_a_loop_has_jobs_of_its_own_for_each_item(flow):
    flow.job(tfjob(Worker=replica("echo item $PF_LOOP_ARGUMENT $TF_CONFIG")))
    flow.pipeline({"loop_argument": ["a", "b"]})
    code, _, err = flow.weft("run", "run.yaml")
    assert code == 0, err
    found = [(flow.inner(index=n) / "logs" / "worker.0.0.log").read_text().split()[1] for n in (0, 1)]
    assert found == ["a", "b"]
    assert flow.weft("logs", f"{RUN}/train-1/worker-0")[1].startswith("item b")
    code, _, err = flow.weft("logs", f"{RUN}/train/worker-0")
    assert code > 0
    assert "Name one of them: train-0, train-1" in err


def test_it_runs_after_a_failure_as_post_process(flow):
    flow.job(tfjob(Worker=replica("echo cleaned")))
    post = {"clean": {"x-weft": {"kind": "training", "with": {"file": "job.yaml"}}}}
    flow.write({"bad": {"command": "exit 1"}}, post_process=post)
    code, _, _ = flow.weft("run", "run.yaml")
    assert code == 1
    assert flow.states()["clean"] == "succeeded"


def test_replicas_of_a_step_are_scaled(flow):
    (flow.folder / "weft.toml").write_text("[queues.default]\ncpu = 1\n")
    worker = replica("echo up; tail -f /dev/null")
    worker["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "250m"}}
    flow.job(tfjob(Chief=replica("until test -e go; do sleep 0.05; done"), Worker=worker))
    flow.pipeline()
    process = flow.start()
    until(lambda: flow.has_printed("worker-0", "up"), "a worker")
    code, _, err = flow.weft("scale", f"{RUN}/train", "worker=9")
    assert code == 8
    assert "worker=9 can never run: it needs 2.25 cores at once" in err
    code, _, err = flow.weft("scale", f"{RUN}/train", "worker=2")
    assert code == 0, err
    until(lambda: flow.has_printed("worker-1", "up"), "the second worker")
    (flow.folder / "go").touch()
    process.communicate()
    assert process.returncode == 0


def workers_seen(flow: Flow, index: int, attempt: int = 0) -> int:
    """Return how many workers a start of a worker has found in TF_CONFIG, 0 before it has said so."""
    try:
        return len(json.loads(flow.replica_log(f"worker-{index}", attempt).read_text())["cluster"]["worker"])
    except (IndexError, FileNotFoundError, ValueError):
        return 0


def test_a_scale_of_a_step_lasts_over_a_suspension_and_a_retry(flow):
    fails_once = '"${WEFT_REPLICA#*worker-}" = 0 && rm bad 2> /dev/null && exit 3'
    command = f"echo $TF_CONFIG; while ! test -e go; do test {fails_once}; sleep 0.05; done"
    flow.job(tfjob(Worker=replica(command, 2)))
    flow.pipeline({"weft": {"retry": {"user": 1}}})
    process = flow.start()
    until(lambda: workers_seen(flow, 1), "a worker")
    code, _, err = flow.weft("scale", f"{RUN}/train", "worker=3")
    assert code == 0, err
    assert until(lambda: workers_seen(flow, 2), "the third worker") == 3
    assert flow.weft("suspend", RUN, "--now")[0] == 0
    process.communicate()
    process = flow.start("resume", RUN)
    seen = [until(partial(workers_seen, flow, at, 1), "a worker after the resume") for at in (0, 1, 2)]
    assert seen == [3, 3, 3]
    (flow.folder / "bad").touch()
    seen = [until(partial(workers_seen, flow, at, 2), "a worker of the retry") for at in (0, 1, 2)]
    assert seen == [3, 3, 3]
    (flow.folder / "go").touch()
    _, err = process.communicate()
    assert process.returncode == 0, err
    _, out, _ = flow.weft("logs", f"{RUN}/train")
    marks = [line.split(maxsplit=2) for line in out.splitlines() if "[weft] start" in line]
    names = ["train", *(f"train/worker-{at}" for at in (0, 1, 2))]
    assert marks == [[name, "|", "[weft] start 3 (@2)"] for name in names]


def test_jobs_without_a_file(flow):
    flow.write(
        {
            "train": {
                "parameters": {"workers": 2, "rate": 0.1},
                "x-weft": {
                    "kind": "training",
                    "with": {
                        "kind": "PyTorchJob",
                        "replicas": {"master": 1, "worker": "{{workers}}"},
                        "command": "echo $RANK of $WORLD_SIZE at {{rate}}; echo $RANK > {{out}}.$RANK; touch {{out}}",
                        "env": {"A": "{{rate}}"},
                    },
                },
                "artifacts": {"output": ["out"]},
            }
        }
    )
    code, out, err = flow.weft("run", "run.yaml")
    assert code == 0, err
    assert flow.replica_log("master-0").read_text() == "0 of 3 at 0.1\n"
    assert "PyTorchJob train Succeeded" in out


def test_an_unknown_queue_is_told_before_the_run(flow):
    flow.job(tfjob(Worker=replica("true")))
    flow.pipeline({"weft": {"with": {"file": "job.yaml", "queue": "nightly"}}})
    code, _, err = flow.weft("run", "run.yaml")
    assert code == 0, err
    assert err.count("step train: the queue nightly is unknown") == 1
    code, _, err = flow.weft("plan", "job.yaml", "--queue", "weekly")
    assert code == 0, err
    assert err.count("the queue weekly is unknown") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs either file or replicas"),
        ({"file": "job.yaml", "replicas": {"worker": 1}}, "needs either file or replicas"),
        ({"file": "missing.yaml"}, "missing.yaml"),
        ({"file": "job.yaml", "command": "true"}, "x-weft.with.command: belongs to jobs without a file"),
        ({"replicas": {"worker": 1}, "kind": "TFJobb"}, "Did you mean TFJob?"),
        ({"replicas": {"worker": 1}, "kind": "Zebra"}, "There are: TFJob, PyTorchJob"),
        ({"replicas": {"wroker": 1}}, "there is no role wroker. Did you mean worker?"),
        ({"replicas": {"boss": 1}}, "there is no role boss. There are: worker, ps, chief"),
        ({"replicas": {"worker": 1}, "restart": "Sometimes"}, "Sometimes"),
        ({"replicas": 3}, "must map roles to numbers"),
        ({"fiel": "job.yaml"}, "did you mean file?"),
        (
            {"file": "job.yaml", "priority": "high"},
            "x-weft.with.priority: the value is 'high'; it must be a whole number",
        ),
        (
            {"file": "job.yaml", "isolation": "none"},
            "x-weft.with.isolation: the value is 'none'; it must be one of auto",
        ),
        ({"file": "job.yaml", "outer_network": "perhaps"}, "x-weft.with.outer_network: the value is 'perhaps'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(flow, options, said):
    flow.job(tfjob(Worker=replica("true")))
    flow.write(
        {"first": {"command": "touch ran"}, "train": {"deps": "first", "x-weft": {"kind": "training", "with": options}}}
    )
    code, out, err = flow.weft("run", "run.yaml")
    assert code > 1
    assert said in out + err
    assert "Traceback" not in err
    assert not (flow.folder / "ran").exists()


def test_a_mistake_of_a_step_is_told_once_with_its_hint(flow):
    with_ = {"replicas": {"worker": 2}, "command": "true", "resources": {"memory": "2GB"}}
    flow.write({"train": {"x-weft": {"kind": "training", "with": with_}}})
    code, _, err = flow.weft("plan", "run.yaml")
    assert code > 1
    assert "x-weft.with.resources: worker.resources: must be a quantity, is `2GB`. Did you mean 2Gi?" in err
    assert err.count("2GB") == 1
    assert "mistakes in" not in err


def test_secrets_reach_replicas_and_no_file(flow):
    flow.environ["KEY"] = "very-hidden"
    flow.job(tfjob(Worker=replica("echo $TOKEN | wc -c; echo $TOKEN")))
    flow.pipeline({"env": {"TOKEN": {"secret": "KEY"}}})
    code, out, err = flow.weft("run", "run.yaml")
    assert code == 0, err
    assert flow.replica_log("worker-0").read_text() == "12\n***\n"
    for folder, _, names in os.walk(flow.folder / ".weft"):
        for name in names:
            assert b"very-hidden" not in Path(folder, name).read_bytes(), name
    assert "very-hidden" not in out + err


SERVER = """
import os, socket
server = socket.create_server((os.environ["POD_IP"], 8001))
while True:
    connection, _ = server.accept()
    connection.sendall(b"parameters")
    connection.close()
"""
WORKER = """
import os, socket, time
hosts = open("/etc/volcano/ps.host").read().split()
while True:
    try:
        connection = socket.create_connection((hosts[0], 8001))
        break
    except OSError:
        time.sleep(0.02)
print(os.environ["VK_TASK_INDEX"], connection.recv(99).decode(), len(open("/etc/volcano/worker.host").readlines()))
"""


def test_a_parameter_server_step_of_paddleflow_runs_unmodified(flow):
    (flow.folder / "server.py").write_text(SERVER)
    (flow.folder / "worker.py").write_text(WORKER)
    find = "hosts=(`cat /etc/volcano/ps.host`); export POD_IP=${hosts[${VK_TASK_INDEX}]}"
    (flow.folder / "server.sh").write_text(f"{find}; echo at $PF_JOB_PS_PORT; python server.py")
    env = {
        "PF_JOB_TYPE": "vcjob",
        "PF_JOB_MODE": "PS",
        "PF_JOB_PSERVER_FLAVOUR": "flavour-cpu",
        "PF_JOB_PSERVER_REPLICAS": 1,
        "PF_JOB_PSERVER_COMMAND": "bash server.sh",
        "PF_JOB_WORKER_FLAVOUR": "flavour-cpu",
        "PF_JOB_WORKER_REPLICAS": 2,
        "PF_JOB_WORKER_COMMAND": "python worker.py",
        "PF_JOB_PRIORITY": "NORMAL",
        "PF_JOB_QUEUE_NAME": "q",
    }
    flow.write({"main": {"command": "", "env": env}}, docker_env="paddlepaddle/paddle:2.2.2")
    code, _, err = flow.weft("run", "run.yaml")
    assert code == 0, err
    logs = flow.inner("main") / "logs"
    assert (logs / "ps.0.0.log").read_text() == "at 8001\n"
    assert (logs / "worker.1.0.log").read_text() == "1 parameters 2\n"


@pytest.mark.parametrize(
    ("framework", "log", "said"),
    [
        ("pytorch", "worker.0", "1 of 3"),
        ("tensorflow", "worker.0", "0"),
        ("", "worker.2", "2 3"),
    ],
)
def test_a_collective_step_of_paddleflow_runs_unmodified(flow, framework, log, said):
    commands = {
        "pytorch": "echo $RANK of $WORLD_SIZE",
        "tensorflow": """python -c 'import os, json; print(json.loads(os.environ["TF_CONFIG"])["task"]["index"])'""",
        "": "echo $VC_TASK_INDEX $(wc -l < /etc/volcano/task.host)",
    }
    env = {"PF_JOB_MODE": "Collective", "PF_JOB_REPLICAS": "{{n}}", "PF_JOB_FRAMEWORK": framework}
    step = {
        "command": f"{commands[framework]}; touch {{{{out}}}}",
        "parameters": {"n": 3},
        "env": {name: value for name, value in env.items() if value},
        "artifacts": {"output": ["out"]},
    }
    flow.write({"main": step})
    code, _, err = flow.weft("run", "run.yaml")
    assert code == 0, err
    assert (flow.inner("main") / "logs" / f"{log}.0.log").read_text() == f"{said}\n"


def test_a_failed_worker_fails_a_distributed_step(flow):
    env = {"PF_JOB_MODE": "PS", "PF_JOB_PSERVER_COMMAND": "sleep 600", "PF_JOB_WORKER_COMMAND": "exit 4"}
    flow.write({"main": {"env": env}})
    code, out, err = flow.weft("run", "run.yaml")
    assert code == 1
    assert "exit code 4" in out + err
    assert flow.alive() == []


FLOW = """
import weft


@weft.step
def prepare(points: weft.Output, n: int = 3):
    points.write_text(" ".join(str(i) for i in range(n)))


@weft.step(cache=True, training={"kind": "PyTorchJob", "replicas": {"master": 1, "worker": 1}})
def train(points: weft.Input, model: weft.Output, rate: float = 0.1):
    import os
    import time

    from weft import training

    training.report(step=1, rate=rate)
    print("rank", os.environ["RANK"], "rate", rate, points.read_text(), flush=True)
    said = [model.with_name(f"said-{rank}") for rank in range(2)]
    said[int(os.environ["RANK"])].touch()
    while not all(map(os.path.exists, said)):  # the first that ends may end the other one
        time.sleep(0.02)
    if os.environ["RANK"] == "0":
        model.write_text("$(RANK) {{rate}}")


@weft.command(training={"kind": "JAXJob", "replicas": {"worker": 2}, "isolation": "ports"})
def again(model: weft.Input, out: weft.Output, word: str = "x"):
    both = f'until test -e "{out}.0" && test -e "{out}.1"; do sleep 0.02; done'
    return f'echo {word} $PROCESS_ID; cat "{model}" > "{out}.$PROCESS_ID"; {both}; touch "{out}"'


@weft.pipeline
def flow():
    train(prepare().points, rate=weft.each([0.1, 0.2]))
    again(train.options(name="single")(prepare().points).model)
"""


def test_a_function_runs_in_each_replica(flow):
    (flow.folder / "flow.py").write_text(FLOW)
    code, out, err = flow.weft("run", "flow.py")
    assert code == 0, err
    assert (flow.inner("train", 1) / "logs" / "worker.0.0.log").read_text() == "rank 1 rate 0.2 0 1 2\n"
    assert (flow.inner("again") / "logs" / "worker.1.0.log").read_text() == "x 1\n"
    assert Path(read_run(flow.folder_of()).outputs["single.model"]).read_text() == "$(RANK) {{rate}}"
    assert "PyTorchJob train-0 Succeeded" in out
    (flow.folder / "flow.py").write_text(FLOW.replace('print("rank"', 'print("number"'))
    assert flow.weft("run", "flow.py")[0] == 0
    assert "code flow.train changed" in flow.weft("why", "@last/single")[1]


EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "steps"


def test_the_example_learns_and_is_taken_from_the_cache(flow):
    for path in EXAMPLE.iterdir():
        if path.suffix in (".py", ".yaml"):
            (flow.folder / path.name).write_text(path.read_text())
    code, _, err = flow.weft("run", "run.yaml", "-p", "train.epochs=100")
    assert code == 0, err
    assert "slope 3.0" in flow.weft("logs", f"{RUN}/evaluate")[1]
    assert flow.weft("logs", f"{RUN}/train/worker-1")[1] == "rank 2 of 3 has 133 points\n"
    assert "100%" in flow.weft("show", f"{RUN}/train")[1]
    _, out, _ = flow.weft("run", "run.yaml", "-p", "train.epochs=100")
    assert "taken from the cache" in out


def test_only_a_part_runs(flow):
    flow.job(tfjob(Worker=replica("echo trained")))
    later = {"after": {"deps": "train", "command": "touch later"}}
    flow.pipeline(after=later)
    code, _, err = flow.weft("run", "run.yaml", "--only", "train")
    assert code == 0, err
    assert flow.has_printed("worker-0", "trained")
    assert not (flow.folder / "later").exists()


def test_a_dag_that_loops_over_an_artifact_trains_for_each_item(flow):
    flow.job(tfjob(Worker=replica("echo item $ITEM")))
    inside = {
        "train": {
            "parameters": {"item": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"},
            "env": {"ITEM": "{{item}}"},
            "x-weft": {"kind": "training", "with": {"file": "job.yaml"}},
        }
    }
    flow.write(
        {
            "list": {"command": "echo '[5, 6]' > {{out}}", "artifacts": {"output": ["out"]}},
            "each": {
                "deps": "list",
                "artifacts": {"input": {"items": "{{list.out}}"}},
                "loop_argument": "{{items}}",
                "entry_points": inside,
            },
        }
    )
    code, _, err = flow.weft("run", "run.yaml")
    assert code == 0, err
    printed = flow.weft("logs", RUN)[1]
    assert "item 5\n" in printed
    assert "item 6\n" in printed


def wishing(cpu: str, command: str) -> dict[str, Any]:
    """Return a job of one worker that requests cores."""
    job = tfjob(Worker=replica(command))
    pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return job


def test_a_job_that_can_never_fit_fails_its_step_with_the_arithmetic(flow):
    flow.job(wishing("1000", "true"))
    flow.pipeline()
    code, out, err = flow.weft("run", "run.yaml")
    assert code == 1
    assert "TFJob echo failed" in out
    assert "each cpu 1000" in out + err


def test_two_steps_share_the_machine_one_after_the_other(flow, tmp_path_factory):
    flow.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))
    flow.job(wishing(str(len(os.sched_getaffinity(0))), "mkdir held && rmdir held"))
    step = {"x-weft": {"kind": "training", "with": {"file": "job.yaml"}}}
    flow.write({"one": step, "two": step, "three": step})
    code, _, err = flow.weft("run", "run.yaml")
    assert code == 0, err


def test_why_tells_what_the_replicas_of_a_step_wait_for(flow, tmp_path_factory):
    flow.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))
    flow.job(wishing(str(len(os.sched_getaffinity(0))), "echo begun; until test -e go; do sleep 0.05; done"))
    step = {"x-weft": {"kind": "training", "with": {"file": "job.yaml"}}}
    flow.write({"train": step, "later": {**step, "condition": "1 == 1"}})
    process = flow.start()

    def waiting() -> list[str]:
        return [line for name in ("train", "later") if "holds" in (line := flow.weft("why", f"{RUN}/{name}")[1])]

    (reason,) = until(waiting, "the reason of the step that waits")
    assert f"{RUN}/" in reason.split("holds")[0]
    (flow.folder / "go").touch()
    process.communicate()
    assert process.returncode == 0


def test_why_tells_of_the_replicas_of_a_step(flow):
    flow.job(tfjob(Worker=replica("exit 3")))
    flow.pipeline()
    assert flow.weft("run", "run.yaml")[0] == 1
    assert "train/worker-0: failed: ended with exit code 3" in flow.weft("why", f"{RUN}/train/worker-0")[1]
    assert "train/worker: " in flow.weft("why", f"{RUN}/train/worker")[1]
    code, _, err = flow.weft("why", f"{RUN}/train/worker-7")
    assert code == 4
    assert "worker-7" in err


def test_settings_of_the_command_line_reach_the_jobs_of_steps_and_are_kept(flow):
    both = "touch seen-${WEFT_REPLICA#*worker-}; until test -e seen-0 && test -e seen-1; do sleep 0.02; done"
    flow.job(tfjob(Worker=replica(f"echo $TF_CONFIG; {both}; test -e go", 2)))  # none fails before both have said it
    flow.pipeline()
    assert flow.weft("run", "run.yaml", "--isolation", "ports")[0] == 1
    assert "127.0.0.1:" in flow.replica_log("worker-0").read_text()
    (flow.folder / "go").touch()
    code, _, err = flow.weft("resume", RUN)
    assert code == 0, err
    assert "127.0.0.1:" in flow.replica_log("worker-0", 1).read_text()
