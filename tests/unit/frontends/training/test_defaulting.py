"""The defaults of each kind: the tables of the operator's own tests."""

import pytest

from weft.frontends.training.defaulting import defaulted
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.schema import (
    Container,
    ElasticPolicy,
    PodTemplate,
    Port,
    ReplicaSpec,
    RunPolicy,
    TrainingJob,
)

# Kinds whose container gets a port; an MPIJob has none.
WITH_PORT = ("TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob")


def job(kind: str, spec: ReplicaSpec, type: str = "Worker", **fields) -> TrainingJob:
    return TrainingJob(kind=kind, name="test", replicas={type: spec}, **fields)


def replica(kind: str, *ports: Port, container: str = "", **fields) -> ReplicaSpec:
    name = container or KINDS[kind].container
    return ReplicaSpec(template=PodTemplate(containers=(Container(name=name, image="i", ports=ports),)), **fields)


@pytest.mark.parametrize("kind", WITH_PORT)
@pytest.mark.parametrize("own_policy", [None, "Always"])
@pytest.mark.parametrize("number", [None, 3])
def test_replicas_and_restart_policy(kind, own_policy, number):
    found = defaulted(job(kind, replica(kind, replicas=number, restart_policy=own_policy)))
    assert found.policy.clean_pod_policy is None
    assert found.replicas["Worker"].replicas == (number or 1)
    assert found.replicas["Worker"].restart_policy == (own_policy or KINDS[kind].restart_policy)


@pytest.mark.parametrize("kind", WITH_PORT)
def test_the_port_is_appended_unless_one_has_its_name(kind):
    own = Port(KINDS[kind].port, KINDS[kind].port_name)
    table = [
        ((), (own,)),
        ((Port(1234, "customPort"),), (Port(1234, "customPort"), own)),
        ((own,), (own,)),
        ((Port(77, own.name),), (Port(77, own.name),)),
        ((Port(own.number, "other"),), (Port(own.number, "other"), own)),
    ]
    for given, expected in table:
        found = defaulted(job(kind, replica(kind, *given)))
        assert found.replicas["Worker"].template.containers[0].ports == expected, given


def test_the_port_goes_to_the_container_of_the_training_or_to_the_first():
    side, main = Container(name="side"), Container(name="tensorflow")
    for containers, index in (((side, main), 1), ((side, side), 0)):
        spec = ReplicaSpec(template=PodTemplate(containers=containers))
        found = defaulted(job("TFJob", spec)).replicas["Worker"].template.containers
        assert [len(one.ports) for one in found] == [int(at == index) for at in range(2)]


@pytest.mark.parametrize(("given", "named"), [("WORKER", "Worker"), ("ps", "PS"), ("cHief", "Chief"), ("x", "x")])
def test_replica_types_take_their_names(given, named):
    assert list(defaulted(job("TFJob", replica("TFJob"), given)).replicas) == [named]


def test_the_clean_up_of_the_file_stays():
    for kind in KINDS:
        given = job(kind, replica(kind), policy=RunPolicy(clean_pod_policy="All"))
        assert defaulted(given).policy.clean_pod_policy == "All"


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
@pytest.mark.parametrize(
    ("low", "high", "expected"), [(None, None, (4, 4)), (1, 2, (1, 2)), (None, 2, (2, 2)), (3, None, (3, 3))]
)
def test_the_bounds_of_an_elastic_job(kind, low, high, expected):
    elastic = ElasticPolicy(min_replicas=low, max_replicas=high)
    found = defaulted(job(kind, replica(kind, replicas=4), elastic=elastic)).elastic
    assert found is not None
    assert (found.min_replicas, found.max_replicas) == expected


@pytest.mark.parametrize(
    ("elastic", "own", "expected"),
    [
        (None, None, "auto"),
        (ElasticPolicy(), None, "auto"),
        (ElasticPolicy(nproc_per_node=2), None, None),
        (None, "2", "2"),
        (ElasticPolicy(), "gpu", "gpu"),
    ],
)
def test_processes_per_node(elastic, own, expected):
    given = job("PyTorchJob", replica("PyTorchJob"), elastic=elastic, nproc_per_node=own)
    assert defaulted(given).nproc_per_node == expected


def test_an_mpi_job_has_one_launcher_no_worker_and_no_port():
    replicas = {"Launcher": replica("MPIJob"), "Worker": replica("MPIJob")}
    found = defaulted(TrainingJob(kind="MPIJob", name="test", replicas=replicas))
    assert {name: spec.replicas for name, spec in found.replicas.items()} == {"Launcher": 1, "Worker": 0}
    assert {spec.restart_policy for spec in found.replicas.values()} == {"Never"}
    assert all(not one.ports for spec in found.replicas.values() for one in spec.template.containers)


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_of_a_job_with_defaults_change_nothing(kind):
    once = defaulted(job(kind, replica(kind), KINDS[kind].types[0], elastic=ElasticPolicy()))
    assert defaulted(once) == once


def test_a_pod_without_containers_gets_no_port():
    found = defaulted(job("TFJob", ReplicaSpec(template=PodTemplate())))
    assert found.replicas["Worker"].template == PodTemplate()
