"""Training jobs declared in Python: the file that they stand for, and mistakes by argument."""

import pickle
from typing import Any

import pytest

import weft
from weft import training
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.reading import read_text
from weft.frontends.training.schema import EnvVar
from weft.training.manifests import SOURCE


def records(job):
    return read_text(job.to_yaml(), SOURCE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_each_kind_is_a_file_that_reads_as_the_same_job(kind):
    role = {"MPIJob": "launcher", "XGBoostJob": "master", "TrainJob": "node"}.get(kind, "worker")
    arguments: dict[str, Any] = {role: 1}
    job = training.job(kind=kind, name="fit", command="true", **arguments)
    assert records(job) == job._files
    assert [(one.kind, one.name) for one in job._files.jobs] == [(kind, "fit")]


def test_what_replicas_share_and_what_a_role_has_itself():
    job = training.job(
        worker={"replicas": 2, "env": {"A": 2}, "restart": "OnFailure", "command": ["train", "--fast"]},
        ps=1,
        chief=0,
        env={"A": 1, "B": "x"},
        resources={"cpu": 1, "memory": "1Gi", "gpu": 1},
        restart="Never",
        image="mine:1",
        grace_s=3,
        backoff_limit=4,
        deadline_s=60,
        clean="All",
    )
    (made,) = records(job).jobs
    assert {type: (spec.replicas, spec.restart_policy) for type, spec in made.replicas.items()} == {
        "PS": (1, "Never"),
        "Worker": (2, "OnFailure"),
    }
    ps, worker = (made.replicas[type].template for type in ("PS", "Worker"))
    assert worker.containers[0].command == ("train", "--fast")
    assert worker.containers[0].env == (EnvVar("A", "2"), EnvVar("B", "x"))
    assert ps.containers[0].requests == {"cpu": 1, "memory": 1 << 30, "nvidia.com/gpu": 1}
    assert (ps.containers[0].image, ps.grace_s) == ("mine:1", 3)
    assert (made.policy.backoff_limit, made.policy.deadline_s, made.policy.clean_pod_policy) == (4, 60, "All")


def test_elastic_workers_and_a_restart_of_the_whole_job():
    (made,) = records(training.job("PyTorchJob", worker=2, elastic=(1, 4), restart="job")).jobs
    assert (made.elastic.min_replicas, made.elastic.max_replicas) == (1, 4)
    assert made.annotations == {"weft.dev/restart": "job"}


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        ({"kind": "PyTorchJob", "master": 1}, 6),
        ({"kind": "PyTorchJob", "master": 1, "restart": "OnFailure"}, None),
        ({"kind": "PyTorchJob", "master": {"replicas": 1, "restart": "OnFailure"}}, None),
        ({"kind": "PyTorchJob", "master": 1, "backoff_limit": 2}, 2),
        ({"kind": "TFJob", "worker": 1}, None),
    ],
)
def test_a_kind_that_starts_replicas_again_unasked_has_a_limit(arguments, limit):
    (made,) = records(training.job(**arguments)).jobs
    assert made.policy.backoff_limit == limit


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"worker": -1}, "worker: Invalid value: -1"),
        ({"worker": "two"}, "worker: "),
        ({"worker": 1, "restart": "OnFailur"}, 'worker.restart: Unsupported value: "OnFailur"'),
        ({"worker": {"replicas": 1, "restart": "Sometimes"}}, "worker.restart: Unsupported value"),
        ({"worker": 1, "name": "No_Name"}, "name: Invalid value"),
        ({"worker": 1, "clean": "Some"}, "clean: "),
        ({"worker": 1, "deadline_s": -1}, "deadline_s: "),
        ({"worker": 1, "resources": {"cpu": "much"}}, "worker.resources: "),
        ({"kind": "JAXJob", "worker": 0}, "a JAXJob needs replicas"),
        ({"kind": "TFJo", "worker": 1}, "Did you mean TFJob?"),
        ({"kind": None, "worker": 1}, "kind is None"),
        ({"kind": "JAXJob", "ps": 1}, "a JAXJob has no ps"),
        ({"worker": {"replica": 1}}, "Did you mean replicas?"),
        ({"worker": 1, "elastic": (1, 2)}, "a TFJob is not elastic"),
        ({"kind": "JAXJob", "worker": 1, "success": "AllWorkers"}, "a JAXJob has no success policy"),
        ({"worker": 1, "runtime": "torch-distributed"}, "a TFJob has no runtime"),
        ({"worker": 1, "command": 5}, "the command is 5"),
        ({"worker": 1, "env": ["A"]}, "env is ['A']; it must be a mapping"),
        ({}, "a TFJob needs replicas"),
    ],
)
def test_a_mistake_names_its_argument(arguments, said):
    with pytest.raises((weft.DefinitionError, weft.UsageError)) as caught:
        training.job(**arguments)
    assert said in str(caught.value)
    assert "spec." not in str(caught.value)


def test_all_mistakes_are_told_together():
    with pytest.raises(weft.DefinitionError) as caught:
        training.job(worker=-1, clean="Some")
    assert "worker: " in str(caught.value)
    assert "clean: " in str(caught.value)


def test_a_mistake_in_an_argument_of_several_fields_is_told_once():
    with pytest.raises(weft.DefinitionError) as caught:
        training.job(worker=2, resources={"memory": "2GB", "cpu": "x"})
    told = str(caught.value)
    assert (told.count("is `2GB`"), told.count("is `x`"), told.count("Did you mean 2Gi?")) == (1, 1, 1)


def test_a_function_that_cannot_be_pickled_is_refused():
    lock = pickle.Pickler  # a class is fine; an open file is not
    with open(__file__) as file, pytest.raises(weft.ProgramError, match="cannot be pickled"):
        training.job(worker=1).submit(lambda: (lock, file))


def test_a_command_takes_no_arguments():
    with pytest.raises(weft.UsageError, match="takes no arguments"):
        training.job(worker=1).run("true", 1)


def test_files_and_fields_of_the_pod_in_each_replica():
    job = training.job(
        worker=2,
        success="AllWorkers",
        files={"/etc/hosts.d/all": "a\n", "/etc/hosts.d/own": "b"},
        env={"ME": {"field": "metadata.name"}},
    )
    files = records(job)
    assert files == job.files
    assert [one.data for one in files.config_maps.values()] == [{"file-0": b"a\n", "file-1": b"b"}]
    (made,) = files.jobs
    container = made.replicas["Worker"].template.containers[0]
    assert [(mount.path, mount.sub_path) for mount in container.mounts] == [
        ("/etc/hosts.d/all", "file-0"),
        ("/etc/hosts.d/own", "file-1"),
    ]
    assert container.env == (EnvVar("ME", field="metadata.name"),)
    assert made.success_policy == "AllWorkers"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"files": {"relative": "x"}}, "absolute paths"),
        ({"files": {"/etc/x": 3}}, "absolute paths"),
        ({"env": {"A": {"secret": "x"}}}, "env.A"),
        ({"success": "Sometimes"}, "success"),
    ],
)
def test_wrong_files_and_fields_name_their_argument(arguments, said):
    with pytest.raises((weft.UsageError, weft.JobFileError)) as caught:
        training.job(worker=1, **arguments)
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_a_mistake_in_what_replicas_request_is_told_once():
    with pytest.raises(weft.JobFileError) as found:
        training.job(worker=1, command="true", resources={"gpus": 1})
    assert found.value.message.splitlines() == [
        "weft.training.job: worker.resources: Invalid value: `gpus`: must be a standard resource for containers",
        "    Did you mean gpu?",
    ]
