"""The metadata of pods and services."""

import pytest

from weft.frontends.training.kinds import KINDS
from weft.frontends.training.labels import (
    Owner,
    annotations_of,
    is_master,
    labels_of,
    owner_of,
    pod_restart_policy,
    selector_of,
)
from weft.frontends.training.schema import PodTemplate, ReplicaSpec, TrainingJob


def make_job(kind: str, *types: str, name: str = "j", policy: str | None = None, **labels: str) -> TrainingJob:
    template = PodTemplate(labels=labels, annotations={"note": "kept"})
    spec = ReplicaSpec(template=template, replicas=2, restart_policy=policy)
    return TrainingJob(kind=kind, name=name, uid="u-1", replicas=dict.fromkeys(types, spec))


def test_labels_of_the_template_stay_and_those_of_the_operator_win() -> None:
    job = make_job("TFJob", "PS", "Worker", **{"app": "mnist", "training.kubeflow.org/job-name": "mine"})
    assert labels_of(job, "PS", 1) == {
        "app": "mnist",
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": "j",
        "training.kubeflow.org/replica-type": "ps",
        "training.kubeflow.org/replica-index": "1",
    }
    assert annotations_of(job, "PS", 1) == {"note": "kept"}


def test_a_service_finds_its_pod_alone() -> None:
    job = make_job("PyTorchJob", "Master", "Worker")
    pods = [(type, index) for type in job.replicas for index in (0, 1)]
    for pod in pods:
        selector = selector_of(job, *pod).items()
        assert [other for other in pods if selector <= labels_of(job, *other).items()] == [pod]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"TrainJob"}))
def test_the_operator_of_each_kind(kind: str) -> None:
    job = make_job(kind, "Worker", name="test/key")
    labels = labels_of(job, "Worker", 0)
    assert labels["training.kubeflow.org/operator-name"] == f"{kind.lower()}-controller"
    assert labels["training.kubeflow.org/job-name"] == "test-key"


@pytest.mark.parametrize(
    ("kind", "types", "masters"),
    [
        ("TFJob", ("Chief", "PS", "Worker"), {("Chief", 0), ("Chief", 1)}),
        ("TFJob", ("Master", "Worker"), {("Master", 0), ("Master", 1)}),
        ("TFJob", ("PS", "Worker"), {("Worker", 0)}),
        ("PyTorchJob", ("Master", "Worker"), {("Master", 0), ("Master", 1)}),
        ("PyTorchJob", ("Worker",), {("Worker", 0)}),
        ("MPIJob", ("Launcher", "Worker"), {("Launcher", 0), ("Launcher", 1)}),
        ("XGBoostJob", ("Master", "Worker"), {("Master", 0), ("Master", 1)}),
        ("PaddleJob", ("Worker",), set()),
        ("JAXJob", ("Worker",), {("Worker", 0)}),
    ],
)
def test_the_role_of_a_master(kind: str, types: tuple[str, ...], masters: set[tuple[str, int]]) -> None:
    job = make_job(kind, *types)
    pods = [(type, index) for type in types for index in (0, 1)]
    assert {pod for pod in pods if is_master(job, *pod)} == masters
    named = {pod for pod in pods if labels_of(job, *pod).get("training.kubeflow.org/job-role") == "master"}
    assert named == masters


def test_the_owner_of_a_pod_is_its_job() -> None:
    assert owner_of(make_job("TFJob")) == Owner(api_version="kubeflow.org/v1", kind="TFJob", name="j", uid="u-1")
    assert owner_of(make_job("TrainJob")).api_version == "trainer.kubeflow.org/v1alpha1"


def test_a_pod_of_a_train_job_knows_its_index() -> None:
    job = make_job("TrainJob", "node")
    index = "batch.kubernetes.io/job-completion-index"
    assert annotations_of(job, "node", 1) == {"note": "kept", index: "1"}
    assert labels_of(job, "node", 1) == {
        "jobset.sigs.k8s.io/jobset-name": "j",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        index: "1",
        "trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
    }


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("ExitCode", "Never"), ("Never", "Never"), ("Always", "Always"), ("OnFailure", "OnFailure"), (None, "Never")],
)
def test_restart_policies_of_pods(policy: str | None, expected: str) -> None:
    assert pod_restart_policy(make_job("TFJob", "Worker", policy=policy), "Worker") == expected
