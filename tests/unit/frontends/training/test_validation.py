"""The tables of the operator's webhooks, and the mistakes that they let pass."""

import json
from typing import Any

import pytest

from weft.documents import yaml
from weft.documents.problems import Problems
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.reading import JOB_FILE, read_text
from weft.frontends.training.schema import RunPolicy, SchedulingPolicy, TrainingJob
from weft.frontends.training.validation import check_job, update_errors
from weft.model.errors import JobFileError

Document = dict[str, Any]
LABEL = (
    "should match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic"
    " character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
REQUIRED = "Required value: "
OWN = {"managedBy": "kubeflow.org/training-operator"}


def replica(container: str, image: str = "image", **fields: object) -> Document:
    return {"template": {"spec": {"containers": [{"name": container, "image": image}]}}, **fields}


def none(**fields: object) -> Document:
    return {"template": {"spec": {"containers": []}}, **fields}


def manifest(kind: str, replicas: object, name: str = "test", **spec: object) -> Document:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {KINDS[kind].spec_key: replicas, **spec},
    }


def refused(document: Document) -> tuple[list[tuple[str, str]], list[str]]:
    """What the webhook refuses: (path, message), and its warnings."""
    problems = Problems("f", JOB_FILE)
    tree = yaml.load(json.dumps(document), problems)
    warnings = check_job(tree, KINDS[document["kind"]], problems)
    return [(one.path, one.message) for one in problems.found], [text for _, text in warnings]


def cases(kind: str, container: str, type: str, bad_name: str) -> list[tuple[Document, list[tuple[str, str]]]]:
    """The rows that all kinds with a webhook share."""
    key, shown = KINDS[kind].spec_key, f'"{container}"' if kind == "PaddleJob" else container
    one: Any = {"replicas": 1} if type == "Master" else {}
    good = {type: replica(container, **one)}
    path = f"spec.{key}[{type}].template.spec.containers"
    named = (path, f"{REQUIRED}must have at least one container with name {shown}")
    supported = '"kueue.x-k8s.io/multikueue", "kubeflow.org/training-operator"'
    other = f'Unsupported value: "other-job-controller": supported values: {supported}'
    return [
        (manifest(kind, good, runPolicy=OWN), []),
        (manifest(kind, good, bad_name), [("metadata.name", f'Invalid value: "{bad_name}": {LABEL}')]),
        (manifest(kind, {type: none(**one)}), [(path, f"{REQUIRED}must be specified"), named]),
        (manifest(kind, {type: replica(container, "", **one)}), [(f"{path}[0].image", f"{REQUIRED}must be required")]),
        (manifest(kind, {type: replica("", **one)}), [named]),
        (manifest(kind, good, runPolicy={"managedBy": "other-job-controller"}), [("spec.runPolicy.managedBy", other)]),
        (manifest(kind, None), [(f"spec.{key}", f"{REQUIRED}must be required")]),
    ]


SHARED = [
    *cases("TFJob", "tensorflow", "Worker", "00test"),
    *cases("PyTorchJob", "pytorch", "Worker", "0-test"),
    *cases("PaddleJob", "paddle", "Worker", "__test"),
    *cases("JAXJob", "jax", "Worker", "0-test"),
    *cases("XGBoostJob", "xgboost", "Master", "-test")[:-1],
]
TF, TORCH, XGB = "spec.tfReplicaSpecs", "spec.pytorchReplicaSpecs", "spec.xgbReplicaSpecs"
MASTER = {"Master": replica("pytorch", replicas=1)}
OWN_ROWS = [
    (
        manifest("TFJob", {"Chief": replica("tensorflow"), "Master": replica("tensorflow")}),
        [(TF, "Forbidden: must not have more than 1 Chief or Master role")],
    ),
    (
        manifest("PyTorchJob", {"Master": replica("pytorch", replicas=2)}),
        [(f"{TORCH}[Master].replicas", "Forbidden: must be 1")],
    ),
    (manifest("PyTorchJob", {"Master": replica("pytorch")}), [(f"{TORCH}[Master].replicas", "Forbidden: must be 1")]),
    (
        manifest("PyTorchJob", MASTER, elasticPolicy={}),
        [(f"{TORCH}[Worker]", f"{REQUIRED}must be configured if elastic policy is used")],
    ),
    (
        manifest("PyTorchJob", {"Worker": replica("pytorch", replicas=0)}, elasticPolicy={}),
        [(f"{TORCH}[Worker].replicas", "Forbidden: must be at least 1")],
    ),
    (
        manifest("PyTorchJob", {"worker": replica("pytorch")}),
        [(f"{TORCH}[worker]", 'Unsupported value: "worker": supported values: "Master", "Worker"')],
    ),
    (
        manifest("XGBoostJob", {"Master": replica("xgboost", replicas=2)}),
        [(f"{XGB}[Master].replicas", "Forbidden: must be 1")],
    ),
    (
        manifest("XGBoostJob", {"Worker": replica("xgboost", replicas=1)}),
        [(f"{XGB}[Master]", f"{REQUIRED}must be present")],
    ),
    (
        manifest("JAXJob", {"Worker": None}),
        [
            ("spec.jaxReplicaSpecs[Worker].template.spec.containers", f"{REQUIRED}must be specified"),
            (
                "spec.jaxReplicaSpecs[Worker].template.spec.containers",
                f"{REQUIRED}must have at least one container with name jax",
            ),
        ],
    ),
]


@pytest.mark.parametrize(("document", "expected"), [*SHARED, *OWN_ROWS])
def test_the_tables_of_the_webhooks(document, expected):
    assert refused(document) == (expected, [])


@pytest.mark.parametrize(("also", "expected"), [(False, []), (True, ["spec.elasticPolicy.nProcPerNode"])])
def test_the_old_number_of_processes_is_deprecated(also, expected):
    replicas = {**MASTER, "Worker": replica("pytorch", replicas=1)}
    new: Any = {"nprocPerNode": "1"} if also else {}
    found, warnings = refused(manifest("PyTorchJob", replicas, elasticPolicy={"nProcPerNode": 1}, **new))
    assert [path for path, _ in found] == expected
    assert warnings == ["spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead"]


@pytest.mark.parametrize(
    ("replicas", "messages"),
    [
        (None, ["MPIReplicaSpecs is not valid"]),
        ({"Launcher": none()}, ["MPIReplicaSpecs is not valid: containers definition expected in Launcher"]),
        (
            {"Launcher": replica("", "")},
            [
                "MPIReplicaSpec is not valid: Image is undefined in the container of Launcher",
                "MPIReplicaSpec is not valid: ImageName is undefined in the container of Launcher",
            ],
        ),
        (
            {"Launcher": replica("")},
            ["MPIReplicaSpec is not valid: ImageName is undefined in the container of Launcher"],
        ),
        (
            {"Launcher": replica("m", replicas=2)},
            ["MPIReplicaSpec is not valid: There must be only 1 launcher replica"],
        ),
        (
            {"Launcher": replica("m"), "Chief": replica("m")},
            ["MPIReplicaType is Chief but must be one of [Launcher Worker]"],
        ),
        ({"Worker": replica("m")}, ["MPIReplicaSpec is not valid: Master ReplicaSpec must be present"]),
        ({"Launcher": replica("m")}, []),
    ],
)
def test_the_rules_of_an_mpi_job(replicas, messages):
    assert [message for _, message in refused(manifest("MPIJob", replicas))[0]] == messages


# --------------------------------------------------------------------------------------- beyond the webhooks


def mistakes(document: Document) -> list[str]:
    with pytest.raises(JobFileError) as caught:
        read_text(json.dumps(document), "f")
    return caught.value.message.splitlines()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"PS": replica("tensorflow")}, "parameter servers alone never end a job"),
        ({}, "a job needs a replica type"),
        ({"Worker": replica("tensorflow", replicas=-1)}, "Invalid value: -1: must be greater than or equal to 0"),
        (
            {"Worker": replica("tensorflow", restartPolicy="Onfailure")},
            'Unsupported value: "Onfailure": supported values: "Always", "OnFailure", "Never", "ExitCode"',
        ),
        ({"Worker": replica("tensorflow"), "WORKER": replica("tensorflow")}, "Worker gives the same replica type"),
        ({"Worker": replica("tensorflow", replicas=10**7)}, "Invalid value: 10000000: must be at most 10000"),
    ],
)
def test_mistakes_that_the_webhooks_let_pass(spec, message):
    assert message in mistakes(manifest("TFJob", spec))[0]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"cleanPodPolicy": "none"},
            'spec.runPolicy.cleanPodPolicy: Unsupported value: "none": supported values: "All"',
        ),
        ({"backoffLimit": -1}, "must be greater than or equal to 0"),
        (
            {"schedulingPolicy": {"minAvailable": 3}},
            "Invalid value: 3: the job has 1 replica, so it could never start",
        ),
        ({"suspend": "yes"}, "spec.runPolicy.suspend: must be true or false, is the text `yes`"),
    ],
)
def test_mistakes_in_the_run_policy(policy, message):
    assert message in mistakes(manifest("TFJob", {"Worker": replica("tensorflow")}, runPolicy=policy))[0]


def test_a_name_that_is_too_long_for_its_pods():
    document = manifest("TFJob", {"Worker": replica("tensorflow", replicas=100)}, "a" * 55)
    assert "has a name of 65 characters, at most 63 are allowed" in mistakes(document)[0]


def test_unknown_types_of_a_tf_job_are_a_warning():
    document = manifest("TFJob", {"Workers": replica("tensorflow"), "Chief": replica("tensorflow")})
    (warning,) = read_text(json.dumps(document), "f").warnings
    assert "spec.tfReplicaSpecs[Workers]: `Workers` is no replica type" in warning
    assert "Did you mean Worker?" in warning


@pytest.mark.parametrize(
    ("type", "number", "count"), [("Chief", 2, 1), ("Chief", 1, 0), ("Evaluator", 3, 1), ("PS", 3, 0)]
)
def test_types_that_tensorflow_accepts_once(type, number, count):
    replicas = {type: replica("tensorflow", replicas=number), "Worker": replica("tensorflow")}
    warnings = read_text(json.dumps(manifest("TFJob", replicas)), "f").warnings
    assert [f"accepts one {type} only" in warning for warning in warnings] == [True] * count


def changed(**fields) -> TrainingJob:
    return TrainingJob(kind="TFJob", name="test", replicas={}, policy=RunPolicy(**fields))


def queue(name: str) -> SchedulingPolicy:
    return SchedulingPolicy(queue=name)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (changed(), changed(backoff_limit=3, suspend=True), []),
        (
            changed(managed_by="kubeflow.org/training-operator"),
            changed(managed_by="kueue.x-k8s.io/multikueue"),
            ['spec.runPolicy.managedBy: Invalid value: "kueue.x-k8s.io/multikueue": field is immutable'],
        ),
        (
            changed(scheduling=queue("a")),
            changed(scheduling=queue("b")),
            [
                'spec.runPolicy.schedulingPolicy.queue: Invalid value: "b":'
                " spec.runPolicy.schedulingPolicy.queue is immutable"
            ],
        ),
        (changed(), changed(scheduling=queue("b")), []),
    ],
)
def test_changes_of_a_job(old, new, expected):
    assert update_errors(old, new) == expected
