"""Distributed steps of PaddleFlow: what their variables ask for, and mistakes in them."""

from typing import Any

import pytest

from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.compiler import named_images
from weft.frontends.pipelines.kinds import load_kind
from weft.frontends.pipelines.language import Pipeline, Step
from weft.frontends.pipelines.notices import notes
from weft.frontends.pipelines.resolve import resolve
from weft.frontends.pipelines.resolved import ResolvedStep
from weft.model.errors import DefinitionError, PipelineError
from weft.training.steps import KIND

PS = "PF_JOB_MODE: PS, PF_JOB_PSERVER_COMMAND: serve, PF_JOB_WORKER_COMMAND: train"


def job(env: str, step: str = "", extra: str = "") -> Pipeline:
    """Return a pipeline of one step `a` with an environment and further keys in YAML."""
    text = f"name: p\nentry_points:\n  a: {{command: 'true', env: {{{env}}}{step}}}\n{extra}"
    return parse_pipeline(text, "run.yaml")


def options(env: str, step: str = "") -> dict[str, Any]:
    """Return the options of the kind `training` for a step `a` with an environment in YAML."""
    (made,) = resolve(job(env, step), run_id="run-1", user="ada", root="/data")
    assert isinstance(made, ResolvedStep)
    assert made.body is not None
    assert made.body.name == "training"
    found = dict(made.body.portable)
    assert load_kind(made.body.kind).check(found) == ()
    return found


def numbers(found: dict[str, Any]) -> dict[str, Any]:
    return {role: value["replicas"] if isinstance(value, dict) else value for role, value in found["replicas"].items()}


@pytest.mark.parametrize(
    ("env", "kind", "replicas"),
    [
        (PS, "TFJob", {"ps": 1, "worker": 2}),
        (f"{PS}, PF_JOB_PSERVER_REPLICAS: 3, PF_JOB_WORKER_REPLICAS: '4'", "TFJob", {"ps": 3, "worker": 4}),
        (f"{PS}, PF_JOB_FRAMEWORK: tensorflow", "TFJob", {"ps": 1, "worker": 1}),
        (f"{PS}, PF_JOB_FRAMEWORK: paddle", "TFJob", {"ps": 2, "worker": 2}),
        (f"{PS}, PF_JOB_FRAMEWORK: PyTorch", "PyTorchJob", {"master": 1, "worker": 1}),
        ("PF_JOB_MODE: Collective", "TFJob", {"worker": 2}),
        ("PF_JOB_MODE: Collective, PF_JOB_REPLICAS: 5", "TFJob", {"worker": 5}),
        ("PF_JOB_MODE: Collective, PF_JOB_FRAMEWORK: paddle", "PaddleJob", {"worker": 2}),
        ("PF_JOB_MODE: Collective, PF_JOB_TYPE: paddlejob", "PaddleJob", {"worker": 2}),
        (
            "PF_JOB_MODE: Collective, PF_JOB_FRAMEWORK: pytorch, PF_JOB_REPLICAS: 4",
            "PyTorchJob",
            {"master": 1, "worker": 3},
        ),
        (
            "PF_JOB_MODE: Collective, PF_JOB_FRAMEWORK: pytorch, PF_JOB_REPLICAS: 1",
            "PyTorchJob",
            {"master": 1, "worker": 0},
        ),
        (
            "PF_JOB_MODE: collective, PF_JOB_FRAMEWORK: xgboost, PF_JOB_REPLICAS: 3",
            "XGBoostJob",
            {"master": 1, "worker": 2},
        ),
        ("PF_JOB_MODE: Collective, PF_JOB_FRAMEWORK: mpi, PF_JOB_REPLICAS: 3", "MPIJob", {"launcher": 1, "worker": 3}),
        ("PF_JOB_TYPE: distributed, PF_JOB_FRAMEWORK: tensorflow", "TFJob", {"worker": 2}),
        (f"PF_JOB_TYPE: distributed, PF_JOB_FRAMEWORK: tensorflow, {PS[17:]}", "TFJob", {"ps": 1, "worker": 1}),
    ],
)
def test_the_job_that_variables_ask_for(env, kind, replicas):
    found = options(env)
    assert (found.get("kind"), numbers(found)) == (kind, replicas)
    assert found["name"] == "a"


def test_commands_of_roles_and_of_all_replicas():
    found = options(f"{PS}, PF_JOB_RESTART_POLICY: OnFailure, PF_JOB_FRAMEWORK: tensorflow")
    assert found["replicas"]["ps"] == {"replicas": 1, "command": "serve"}
    assert found["replicas"]["worker"] == {"replicas": 1, "command": "train"}
    assert found["restart"] == "OnFailure"
    assert options("PF_JOB_MODE: Collective, PF_JOB_FRAMEWORK: paddle")["command"] == "true"


def test_volcano_gives_hosts_and_indices():
    found = options(f"{PS}, PF_JOB_TYPE: vcjob")
    assert found["files"] == {
        "/etc/volcano/ps.host": "a-ps-0\n",
        "/etc/volcano/worker.host": "a-worker-0\na-worker-1\n",
    }
    assert found["env"]["PF_JOB_PS_PORT"] == "8001"
    assert found["env"]["VK_TASK_INDEX"] == {"field": "metadata.labels['training.kubeflow.org/replica-index']"}
    assert (found["success"], found["isolation"]) == ("AllWorkers", "namespace")
    assert options("PF_JOB_MODE: Collective")["files"] == {"/etc/volcano/task.host": "a-worker-0\na-worker-1\n"}


def test_paddle_gives_its_endpoints():
    found = options(f"{PS}, PF_JOB_FRAMEWORK: paddle")["replicas"]
    assert found["ps"]["env"]["TRAINING_ROLE"] == "PSERVER"
    assert found["worker"]["env"]["PADDLE_PSERVERS_IP_PORT_LIST"] == "a-ps-0:2379,a-ps-1:2379"
    assert found["worker"]["env"]["PADDLE_TRAINERS_NUM"] == "2"


def test_numbers_may_be_parameters():
    env = "PF_JOB_MODE: Collective, PF_JOB_FRAMEWORK: pytorch, PF_JOB_REPLICAS: '{{n}}'"
    assert numbers(options(env, ", parameters: {n: 3}")) == {"master": 1, "worker": 2}
    with pytest.raises(DefinitionError, match="PF_JOB_REPLICAS is `many`, which is no number of replicas"):
        options(env, ", parameters: {n: many}")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("PF_JOB_MODE: PSS", "is not a mode of jobs"),
        ("PF_JOB_MODE: PS", "mode PS needs PF_JOB_PSERVER_COMMAND"),
        ("PF_JOB_MODE: PS, PF_JOB_PSERVER_COMMAND: x", "mode PS needs PF_JOB_WORKER_COMMAND"),
        ("PF_JOB_TYPE: distributed", "a distributed job needs PF_JOB_FRAMEWORK"),
        ("PF_JOB_TYPE: distributed, PF_JOB_MODE: Pod", "a distributed job is not one pod"),
        ("PF_JOB_TYPE: distributed, PF_JOB_FRAMEWORK: spark", "Weft cannot run distributed jobs of `spark`"),
        ("PF_JOB_MODE: Collective, PF_JOB_FRAMEWORK: mxnet", "Weft cannot run distributed jobs of `mxnet`"),
        (f"{PS}, PF_JOB_FRAMEWORK: mpi", "jobs of mpi have no parameter servers"),
        ("PF_JOB_MODE: Collective, PF_JOB_REPLICAS: 0", "`0` is no number of replicas"),
        ("PF_JOB_MODE: Collective, PF_JOB_REPLICAS: two", "`two` is no number of replicas"),
        ("PF_JOB_MODE: Collective, PF_JOB_REPLICAS: '{{PF_LOOP_ARGUMENT}}'", "cannot depend on the item of a loop"),
        ("PF_JOB_MODE: '{{m}}'", "cannot be a template"),
    ],
)
def test_mistakes_are_told_with_their_place(env, said):
    with pytest.raises(PipelineError, match=r"run.yaml:3:\d+: entry_points.a.env.PF_JOB_") as caught:
        job(env, ", parameters: {m: PS}, loop_argument: [1]")
    assert said in caught.value.message


def test_a_template_that_a_step_refers_to_is_checked_too():
    component = "components:\n  c: {command: 'true', env: {PF_JOB_MODE: PS}}\n"
    with pytest.raises(PipelineError, match="mode PS needs"):
        job("A: 1", extra=f"  b: {{reference: {{component: c}}}}\n{component}")


def test_images_stand_for_replicas_and_not_for_steps():
    pipeline = job("PF_JOB_MODE: Collective", ", docker_env: 'mine:1'")
    (step,) = resolve(pipeline, run_id="run-1", user="ada", root="/data")
    assert isinstance(step, ResolvedStep)
    assert step.body is not None
    assert step.body.portable["image"] == "mine:1"
    assert named_images(pipeline) == {}
    assert notes([step], "") == []


def test_one_pod_is_a_command():
    pipeline = job("PF_JOB_MODE: Pod, PF_JOB_TYPE: vcjob")
    (step,) = resolve(pipeline, run_id="run-1", user="ada", root="/data")
    assert isinstance(step, ResolvedStep)
    assert step.body is None
    assert isinstance(pipeline.entry_points["a"], Step)


def test_options_of_the_kind_have_no_further_names():
    assert {"success", "files", "replicas", "file"} <= KIND.options.keys()
