"""Cached training steps: what their replicas open is an input of the result, and without it none is kept."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.places import until
from tests.integration.test_training import replica, tfjob
from tests.integration.test_training_steps import Flow
from weft.operators.tracing import can_trace
from weft.store.state import list_inner_runs, read_status

pytestmark = pytest.mark.skipif(not can_trace(), reason="this system does not tell which files a command opens")

READ = 'cat "da"ta/x.csv > "$PF_OUTPUT_ARTIFACT_MODEL"'
"""A script whose text does not name its data."""
MAP = '[images."lab/*"]\nfolder = "code"\nworkdir = "/opt/lab"\nentrypoint = ["sh", "train.sh"]\nenv = {RATE = "1"}\n'
DOCKERFILE = 'FROM python\nENV RATE=1\nCOPY code /opt/lab\nWORKDIR /opt/lab\nENTRYPOINT ["sh", "train.sh"]\n'


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    flow = Flow(tmp_path)
    for folder in (flow.folder, flow.folder / "code", flow.folder / "other"):
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "data" / "x.csv").write_text("one")
        (folder / "train.sh").write_text(READ)
    (flow.folder / "weft.toml").write_text("")
    return flow


def cached(flow: Flow, options: dict[str, Any], **step: Any) -> None:
    own = {"cache": {"enable": True}, "artifacts": {"output": ["model"]}, **step}
    flow.write({"train": {"x-weft": {"kind": "training", "with": options}, **own}})


def plan(flow: Flow, *flags: str) -> str:
    code, out, err = flow.weft("plan", "run.yaml", *flags)
    assert code == 0, err
    return out + err


def runs(flow: Flow, *flags: str) -> str:
    code, out, err = flow.weft("run", "run.yaml", *flags)
    assert code == 0, err
    return out + err


def check(flow: Flow, change: Callable[[], object], said: str) -> None:
    """Run the step, see that it is used again, and that it is not after a change."""
    assert "not kept" not in runs(flow)
    assert "be reused" in plan(flow)
    change()
    planned = plan(flow)
    assert said in planned
    assert "be reused" not in planned
    runs(flow)
    assert said in flow.weft("why", "@last/train")[1]


@pytest.mark.parametrize("isolation", ["auto", "ports"])
@pytest.mark.parametrize("how", ["a file", "replicas", "PaddleFlow"])
def test_what_replicas_open_counts(flow, how, isolation):
    if how == "a file":
        flow.job(tfjob(Worker=replica("sh train.sh")))
        cached(flow, {"file": "job.yaml", "isolation": isolation})
    elif how == "replicas":
        cached(flow, {"kind": "TFJob", "replicas": {"worker": 2}, "command": "sh train.sh", "isolation": isolation})
    else:
        step = {"command": "sh train.sh", "cache": {"enable": True}, "artifacts": {"output": ["model"]}}
        env = {"PF_JOB_MODE": "Collective", "PF_JOB_FRAMEWORK": "pytorch"}
        flow.write({"train": {**step, "env": env}})
        (flow.folder / "weft.toml").write_text(f'isolation = "{isolation}"\n')
    check(flow, lambda: (flow.folder / "data" / "x.csv").write_text("two"), "data/x.csv changed")


CHANGES = {
    "a file that the script opens": (lambda at: (at / "code/data/x.csv").write_text("two"), "code/data/x.csv changed"),
    "the script": (lambda at: (at / "code/train.sh").write_text(f"echo; {READ}"), "code/train.sh changed"),
    "the folder": (lambda at: (at / "weft.toml").write_text(MAP.replace("code", "other")), "folder: code → other"),
    "a variable": (lambda at: (at / "weft.toml").write_text(MAP.replace('"1"', '"2"')), "environment RATE: 1 → 2"),
    "the entry point": (lambda at: (at / "weft.toml").write_text(MAP.replace('"sh", ', '"sh", "-e", ')), "entry point"),
    "the programs": (lambda at: (at / "weft.toml").write_text(f'{MAP}venv = "v"\n'), "programs was added"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_stands_for_an_image_counts(flow, what):
    (flow.folder / "v" / "bin").mkdir(parents=True)
    (flow.folder / "weft.toml").write_text(MAP)
    cached(flow, {"kind": "TFJob", "replicas": {"worker": 1}, "image": "lab/x"})
    change, said = CHANGES[what]
    check(flow, lambda: change(flow.folder), said)


BUILDS = {
    "a variable": (lambda at: (at / "Dockerfile").write_text(DOCKERFILE.replace("=1", "=2")), "environment RATE"),
    "the entry point": (lambda at: (at / "Dockerfile").write_text(f"{DOCKERFILE}CMD [a]\n"), "entry point"),
    "a copied file": (lambda at: (at / "code/train.sh").write_text(f"echo; {READ}"), "copied code changed"),
    "a new file": (lambda at: (at / "code/new").write_text(""), "copied code changed"),
}


@pytest.mark.parametrize("what", BUILDS)
def test_a_dockerfile_counts_with_what_it_copies(flow, what):
    (flow.folder / "Dockerfile").write_text(DOCKERFILE)
    cached(flow, {"kind": "TFJob", "replicas": {"worker": 1}, "image": "lab/x"})
    change, said = BUILDS[what]
    check(flow, lambda: change(flow.folder), said)


@pytest.mark.parametrize("kind", ["workingDir", "hostPath", "claim"])
def test_folders_of_the_job_file_count(flow, tmp_path, kind):
    (tmp_path / "elsewhere").mkdir()
    data = tmp_path / "elsewhere" / "x.csv"
    command = 'cat "$ROOT"/"x.c"sv > "$PF_OUTPUT_ARTIFACT_MODEL"'
    job = tfjob(Worker=replica(command if kind != "workingDir" else "sh train.sh"))
    pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"][0]["env"] = [{"name": "ROOT", "value": "/opt/data"}]
    if kind == "workingDir":
        pod["containers"][0]["workingDir"] = str(flow.folder / "code")
        data = flow.folder / "code" / "data" / "x.csv"
    else:
        claim = {"persistentVolumeClaim": {"claimName": "own"}}
        pod["volumes"] = [{"name": "v", **({"hostPath": {"path": str(data.parent)}} if kind == "hostPath" else claim)}]
        pod["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/opt/data"}]
    if kind == "claim":
        data = flow.folder / ".weft" / "claims" / "@team" / "own" / "x.csv"
        data.parent.mkdir(parents=True)
    data.write_text("one")
    flow.job(job)
    cached(flow, {"file": "job.yaml"})
    check(flow, lambda: data.write_text("two"), "x.csv changed")


def test_changed_fields_of_a_job_file_are_named(flow):
    job = tfjob(Worker=replica("sh train.sh"))
    spec = job["spec"]["tfReplicaSpecs"]["Worker"]
    container = spec["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "RATE", "value": "0.1"}]
    flow.job(job)
    cached(flow, {"file": "job.yaml"})
    runs(flow)
    spec["replicas"] = 2
    flow.job(job)
    assert "job echo replicas.Worker.replicas: 1 → 2" in plan(flow)
    spec["replicas"], container["env"][0]["value"] = 1, "0.2"
    flow.job(job)
    planned = plan(flow)
    assert "job echo replicas.Worker.template.containers[0 tensorflow].env[0 RATE].value changed" in planned
    assert "0.1" not in planned


def test_a_file_that_replicas_leave_in_the_project_counts(flow):
    command = 'sh train.sh; echo > "le"ft.bin'
    cached(flow, {"kind": "TFJob", "replicas": {"worker": 1}, "command": command})
    check(
        flow, lambda: (flow.folder / "left.bin").unlink(), "left.bin, which it wrote and which is no output of it, is"
    )


def test_what_a_hook_and_an_init_container_open_counts(flow):
    hooked = '"$WEFT_CHECKPOINT_DIR/hooked"'
    waits = f"until test -e {hooked}; do sleep 0.02; done"
    job = tfjob(Worker=replica(f'{waits}; echo > "$PF_OUTPUT_ARTIFACT_MODEL"'))
    pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    hook = f'cat "da"ta/x.csv; touch {hooked}'
    pod["containers"][0]["lifecycle"] = {"postStart": {"exec": {"command": ["sh", "-c", hook]}}}
    pod["initContainers"] = [{"name": "first", "image": "lab/x", "command": ["sh", "-c", 'cat "co"de/data/x.csv']}]
    flow.job(job)
    cached(flow, {"file": "job.yaml"})
    check(flow, lambda: (flow.folder / "data" / "x.csv").write_text("two"), "data/x.csv changed")
    assert "be reused" in plan(flow)
    (flow.folder / "code" / "data" / "x.csv").write_text("two")
    assert "code/data/x.csv changed" in plan(flow)


def test_a_result_is_kept_after_an_attempt_that_failed_if_nothing_changed(flow):
    first = 'touch "$WEFT_CHECKPOINT_DIR/1"; cat "co"de/data/x.csv; exit 1'
    script = f'test -e "$WEFT_CHECKPOINT_DIR/1" || {{ {first}; }}; {READ}'
    (flow.folder / "train.sh").write_text(script)
    weft = {"kind": "training", "with": {"kind": "TFJob", "replicas": {"worker": 1}, "command": "sh train.sh"}}
    own = {"cache": {"enable": True}, "artifacts": {"output": ["model"]}}
    flow.write({"train": {"x-weft": {**weft, "retry": {"user": 1}}, **own}})
    check(flow, lambda: (flow.folder / "code" / "data" / "x.csv").write_text("two"), "code/data/x.csv changed")


def test_no_result_is_kept_that_goes_on_from_an_attempt_with_other_code(flow):
    went = 'echo "old" >> "$WEFT_CHECKPOINT_DIR/steps"; exit 1'
    ends = 'echo "new" >> "$WEFT_CHECKPOINT_DIR/steps"; cp "$WEFT_CHECKPOINT_DIR/steps" "$PF_OUTPUT_ARTIFACT_MODEL"'
    (flow.folder / "train.sh").write_text(went)
    cached(flow, {"kind": "TFJob", "replicas": {"worker": 1}, "command": "sh train.sh"})
    assert flow.weft("run", "run.yaml")[0] != 0
    (flow.folder / "train.sh").write_text(ends)
    code, out, err = flow.weft("resume", "@last")
    assert code == 0, err
    assert "its result is not kept: " in out + err
    assert "train.sh changed after the attempt that it goes on from had begun" in out + err
    assert "be reused" not in plan(flow)
    (model,) = flow.folder.glob(".pipeline/run-000001/**/model")
    assert model.read_text() == "old\nnew\n"
    runs(flow)
    assert "be reused" in plan(flow), "the next run has a checkpoint of its own"


@pytest.mark.parametrize("left", ["nothing", "a file of the project", "a job that has ended"])
def test_a_result_is_kept_after_an_attempt_with_other_code_that_left_nothing(flow, left):
    leaves = 'echo old > "le"ft; ' if left == "a file of the project" else ""
    (flow.folder / "train.sh").write_text(f'{leaves}cat "co"de/data/x.csv; exit 4')
    jobs = [tfjob(Worker=replica("sh train.sh"))]
    if left == "a job that has ended":
        (flow.folder / "train.sh").write_text("until test -e ended; do sleep 0.05; done; exit 4")
        jobs.append(tfjob(Worker=replica("true"), name="other"))
    flow.job(*jobs)
    cached(flow, {"file": "job.yaml"})
    run = flow.start("run", "run.yaml")
    if len(jobs) > 1:
        until(lambda: flow.folder_of().is_dir() and list_inner_runs(flow.folder_of()))
        until(lambda: any("Succeeded" in str(one["status"]) for one in read_status(flow.inner())), "the end of a job")
        (flow.folder / "ended").touch()
    run.communicate(timeout=180)
    assert run.returncode == 1
    (flow.folder / "train.sh").write_text(READ)
    code, out, err = flow.weft("resume", "@last")
    assert code == 0, err
    spoilt = left != "nothing"
    assert ("train.sh changed after the attempt that it goes on from had begun" in out + err) == spoilt
    assert ("be reused" in plan(flow)) != spoilt


def test_a_result_that_goes_on_from_an_attempt_is_kept_if_that_had_the_same_inputs(flow):
    goes_on = 'cat "$1" >> "$WEFT_CHECKPOINT_DIR/steps"; cp "$WEFT_CHECKPOINT_DIR/steps" "$2"'

    def write(data: str, good: str, retries: int) -> None:
        (flow.folder / "train.sh").write_text(f"{goes_on}; {good}")
        options = {"kind": "TFJob", "replicas": {"worker": 1}, "command": "sh train.sh {{data}} {{model}}"}
        train = {
            "deps": "prepare",
            "cache": {"enable": True},
            "artifacts": {"input": {"data": "{{prepare.data}}"}, "output": ["model"]},
            "x-weft": {"kind": "training", "with": options, "retry": {"user": retries}},
        }
        made = {"command": f"echo {data} > {{{{data}}}}", "artifacts": {"output": ["data"]}}
        flow.write({"prepare": made, "train": train})

    write("bad", 'grep -q good "$1"', 0)
    assert flow.weft("run", "run.yaml")[0] != 0
    write("good", 'grep -q good "$1"', 0)
    code, out, err = flow.weft("resume", "@last", "--file", "run.yaml")
    assert code == 0, err
    assert "data changed after the attempt that it goes on from had begun" in out + err
    (model,) = flow.folder.glob(".pipeline/run-000001/**/model")
    assert model.read_text() == "bad\ngood\n"
    write("same", 'test "$(wc -l < "$2")" = 2', 1)
    assert "not kept" not in runs(flow)


def test_no_result_is_kept_of_a_job_that_was_scaled(flow):
    chief = replica('until test -e go; do sleep 0.05; done; echo made > "$PF_OUTPUT_ARTIFACT_MODEL"')
    flow.job(tfjob(Chief=chief, Worker=replica("echo up; tail -f /dev/null")))
    scope = {"enable": True, "fs_scope": [{"name": "main", "path": "train.sh"}]}
    cached(flow, {"file": "job.yaml"}, cache=scope)
    process = flow.start()
    until(lambda: flow.has_printed("worker-0", "up"), "a worker")
    code, _, err = flow.weft("scale", "@last/train", "worker=2")
    assert code == 0, err
    until(lambda: flow.has_printed("worker-1", "up"), "the second worker")
    (flow.folder / "go").touch()
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "its result is not kept: weft scale changed the replicas (worker=2); to keep one, write them" in out + err
    assert "be reused" not in plan(flow)
    assert "not kept" not in runs(flow)
    assert "be reused" in plan(flow)


@pytest.mark.parametrize("why", ["the setting", "sudo"])
def test_without_what_replicas_open_no_result_is_kept_until_a_scope_is_written(flow, why):
    sudo = "; command -v sudo || true" if why == "sudo" else ""
    options = {"kind": "TFJob", "replicas": {"worker": 1}, "command": f"sh train.sh{sudo}"}
    cached(flow, options)
    if why == "the setting":
        (flow.folder / "weft.toml").write_text("trace = false\n")
    said = runs(flow)
    assert "its result is not kept: it is not known what it opened" in said
    planned = plan(flow)
    assert "train keeps no result: it is not known what it opened" in planned
    assert "fs_scope: [{name: main, path: FILES}]" in planned
    assert "be reused" not in planned
    cached(flow, options, cache={"enable": True, "fs_scope": [{"name": "main", "path": "data"}]})
    check(flow, lambda: (flow.folder / "data" / "x.csv").write_text("two"), "x.csv changed")


def test_host_paths_whose_files_are_not_told_keep_no_result(flow):
    (flow.folder / ".hidden").mkdir()
    job = tfjob(Worker=replica("sh train.sh"))
    pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["volumes"] = [{"name": "v", "hostPath": {"path": str(flow.folder / ".hidden")}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/opt/data"}]
    flow.job(job)
    cached(flow, {"file": "job.yaml"})
    why = f"since its replicas use {flow.folder / '.hidden'}, where files are hidden or belong to the system"
    assert why in runs(flow)
    assert why in plan(flow)


FUNCTION = """
import importlib

import weft


@weft.step(cache=True, training={"kind": "TFJob", "replicas": {"worker": 1}})
def train(model: weft.Output, of: str = "small"):
    with open("data/" + "x.csv") as file:
        model.write_text(file.read() + importlib.import_module("model_" + of).NAME)


def unused():
    return 1


@weft.pipeline
def fit():
    train()
"""


def test_what_a_function_opens_in_replicas_counts(flow):
    (flow.folder / "flow.py").write_text(FUNCTION)
    (flow.folder / "model_small.py").write_text("NAME = 'small'\n")

    def ran(verb: str) -> str:
        code, out, err = flow.weft(verb, "flow.py")
        assert code == 0, err
        return str(out + err)

    assert "not kept" not in ran("run")
    (flow.folder / "flow.py").write_text(FUNCTION.replace("return 1", "return 2"))
    assert "be reused" in ran("plan")
    (flow.folder / "model_small.py").write_text("NAME = 'less'\n")
    assert "model_small.py changed" in ran("plan")
    (flow.folder / "model_small.py").write_text("NAME = 'small'\n")
    assert "be reused" in ran("plan")
    (flow.folder / "data" / "x.csv").write_text("two")
    assert "data/x.csv changed" in ran("plan")


def test_a_start_whose_end_nobody_saw_leaves_the_result_unknown(tmp_path):
    from weft.frontends.training.opened_reports import FOLDER, opened_in

    assert opened_in(tmp_path)[0] is None
    (tmp_path / FOLDER).mkdir()
    report = {"began": 3.0, "opened": {"read": ["/a"], "written": []}}
    (tmp_path / FOLDER / "1.json").write_text(json.dumps(report))
    (tmp_path / FOLDER / "2.json").write_text(json.dumps({"began": 2.0, "opened": {"read": ["/b"]}}))
    opened, began = opened_in(tmp_path)
    assert opened is not None
    assert (list(opened.read), began) == (["/a", "/b"], 2.0)
    (tmp_path / FOLDER / "3.json").write_text("")
    assert opened_in(tmp_path)[0] is None


@pytest.mark.parametrize("kind", ["claim", "host path"])
def test_a_file_that_replicas_leave_in_a_volume_counts(flow, tmp_path, kind):
    volumes = tmp_path / "elsewhere"
    volumes.mkdir()
    job = tfjob(Worker=replica('echo "$RATE" > /models/"mo"del; echo > "$PF_OUTPUT_ARTIFACT_MODEL"'))
    pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    claim = {"persistentVolumeClaim": {"claimName": "own"}}
    pod["volumes"] = [{"name": "v", **({"hostPath": {"path": str(volumes)}} if kind == "host path" else claim)}]
    pod["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/models"}]
    flow.job(job)
    cached(flow, {"file": "job.yaml"}, parameters={"rate": 1}, env={"RATE": "{{rate}}"})
    left = (volumes if kind == "host path" else flow.folder / ".weft" / "claims" / "@team" / "own") / "model"
    said = "model, which it wrote and which is no output of it, changed"
    check(flow, lambda: left.write_text("9\n"), said)
    runs(flow, "-p", "train.rate=2")
    assert said in plan(flow)
    runs(flow)
    assert left.read_text() == "1\n"
    left.unlink()
    assert "model, which it wrote and which is no output of it, is gone" in plan(flow)
