"""The variables that each kind of jobs adds, against the texts of upstream's own tests."""

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from weft.frontends.training.endpoints import (
    ClusterEndpoints,
    Endpoints,
    LoopbackEndpoints,
    listening_ports,
    loopback_warnings,
)
from weft.frontends.training.environment import environment_of
from weft.frontends.training.environments.tensorflow import is_distributed
from weft.frontends.training.kinds import KINDS, pod_name
from weft.frontends.training.schema import (
    Container,
    ElasticPolicy,
    EnvVar,
    PodTemplate,
    Port,
    ReplicaSpec,
    TrainingJob,
)

NAME = "test-tfjob"


def make_job(kind: str = "TFJob", *, port: int = 0, **fields: Any) -> TrainingJob:
    """A defaulted job; `fields` are replicas by type, and fields of the record."""
    word = KINDS[kind]
    container = Container(name=word.container, image="test/image:1", ports=(Port(port or word.port, word.port_name),))
    counts = {type: n for type, n in fields.items() if type[0].isupper() or type == "node"}
    replicas = {
        type: ReplicaSpec(template=PodTemplate(containers=(container,)), replicas=n) for type, n in counts.items()
    }
    others = {name: value for name, value in fields.items() if name not in counts}
    return TrainingJob(kind=kind, replicas=replicas, **{"name": NAME, **others})


def variables(job: TrainingJob, type: str, index: int = 0, endpoints: Endpoints | None = None) -> dict[str, EnvVar]:
    container = job.replicas[type].template.containers[0]
    added = environment_of(job, type, index, container, endpoints or ClusterEndpoints(job))
    return {variable.name: variable for variable in added}


def texts(job: TrainingJob, type: str, index: int = 0, endpoints: Endpoints | None = None) -> dict[str, str]:
    return {name: variable.value for name, variable in variables(job, type, index, endpoints).items()}


# ------------------------------------------------------------------------------------------------------- TensorFlow


@pytest.mark.parametrize(
    ("counts", "namespace", "domain", "expected"),
    [
        ({"Worker": 1}, "ns0", "", None),
        ({"Worker": 1}, "ns1", "tf.training.com", None),
        (
            {"Worker": 1, "PS": 1},
            "ns2",
            "tf.training.org",
            '{"cluster":{"ps":["test-tfjob-ps-0.ns2.svc.tf.training.org:2222"],'
            '"worker":["test-tfjob-worker-0.ns2.svc.tf.training.org:2222"]},'
            '"task":{"type":"worker","index":0},"environment":"cloud"}',
        ),
        (
            {"Worker": 1, "PS": 1, "Evaluator": 1},
            "ns3",
            "tf.training.io",
            '{"cluster":{"evaluator":["test-tfjob-evaluator-0.ns3.svc.tf.training.io:2222"],'
            '"ps":["test-tfjob-ps-0.ns3.svc.tf.training.io:2222"],'
            '"worker":["test-tfjob-worker-0.ns3.svc.tf.training.io:2222"]},'
            '"task":{"type":"worker","index":0},"environment":"cloud"}',
        ),
        (
            {"Worker": 1, "PS": 1, "Evaluator": 1},
            "ns3",
            "",
            '{"cluster":{"evaluator":["test-tfjob-evaluator-0.ns3.svc:2222"],'
            '"ps":["test-tfjob-ps-0.ns3.svc:2222"],"worker":["test-tfjob-worker-0.ns3.svc:2222"]},'
            '"task":{"type":"worker","index":0},"environment":"cloud"}',
        ),
    ],
)
def test_tf_config_is_upstreams_text(counts: dict[str, Any], namespace: str, domain: str, expected: str | None) -> None:
    job = make_job(namespace=namespace, **counts)
    assert texts(job, "Worker", 0, ClusterEndpoints(job, domain)).get("TF_CONFIG") == expected


def test_the_cluster_of_tensorflow_names_every_type_and_the_port_of_each() -> None:
    job = make_job(Chief=1, Master=1, Worker=2, PS=1)
    other = make_job(PS=1, port=4444).replicas["PS"]
    job = TrainingJob(kind="TFJob", name=NAME, replicas={**job.replicas, "PS": other})
    config = json.loads(texts(job, "PS")["TF_CONFIG"])
    assert list(config["cluster"]) == ["chief", "master", "ps", "worker"]
    assert config["cluster"]["ps"] == ["test-tfjob-ps-0.default.svc:4444"]
    assert config["cluster"]["worker"] == [
        "test-tfjob-worker-0.default.svc:2222",
        "test-tfjob-worker-1.default.svc:2222",
    ]
    assert config["task"] == {"type": "ps", "index": 0}


def test_only_the_main_container_receives_tf_config() -> None:
    job = make_job(Worker=2)
    assert environment_of(job, "Worker", 0, Container(name="sidecar"), ClusterEndpoints(job)) == ()


def test_characters_that_go_escapes_are_escaped() -> None:
    job = make_job(Worker=2, **dict[str, Any]({"Odd<&>\u2028": 1}))
    assert '"odd\\u003c\\u0026\\u003e\\u2028":["' in texts(job, "Worker")["TF_CONFIG"]


@pytest.mark.parametrize(
    ("counts", "distributed"),
    [
        ({"Worker": 1, "PS": 0}, False),
        ({"Worker": 1, "PS": 1}, True),
        ({"Worker": 0, "PS": 1}, False),
        ({"Worker": 1, "PS": 0, "Chief": 1}, True),
    ],
)
def test_a_job_of_one_replica_is_local(counts: dict[str, Any], distributed: bool) -> None:
    assert is_distributed(make_job(**counts)) is distributed


def test_dynamic_workers_have_a_sparse_cluster() -> None:
    job = make_job(Worker=2, PS=2, Chief=1, dynamic_workers=True)
    servers = '["test-tfjob-ps-0.default.svc:2222","test-tfjob-ps-1.default.svc:2222"]'
    assert texts(job, "Worker", 1)["TF_CONFIG"] == (
        '{"cluster":{"worker":{"1":"test-tfjob-worker-1.default.svc:2222"},"ps":' + servers + "},"
        '"task":{"type":"worker","index":1}}'
    )
    assert texts(job, "PS", 0)["TF_CONFIG"] == (
        '{"cluster":{"worker":{},"ps":["test-tfjob-ps-0.default.svc:2222"]},"task":{"type":"ps","index":0}}'
    )
    assert texts(job, "Chief")["TF_CONFIG"] == '{"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}}'


# ---------------------------------------------------------------------------------------------------------- PyTorch


def test_the_master_of_pytorch() -> None:
    job = make_job("PyTorchJob", name="test-job", Master=1, Worker=3, nproc_per_node="auto")
    assert texts(job, "Master") == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "PET_MASTER_PORT": "23456",
        "MASTER_ADDR": "test-job-master-0",
        "PET_MASTER_ADDR": "test-job-master-0",
        "WORLD_SIZE": "4",
        "RANK": "0",
        "PET_NODE_RANK": "0",
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": "4",
    }
    assert texts(job, "Worker", 1)["RANK"] == texts(job, "Worker", 1)["PET_NODE_RANK"] == "2"


def test_the_world_of_pytorch_counts_processes() -> None:
    job = make_job("PyTorchJob", Master=1, Worker=1, nproc_per_node="2")
    assert texts(job, "Worker")["WORLD_SIZE"] == "4"


def test_every_container_of_pytorch_receives_the_variables() -> None:
    job = make_job("PyTorchJob", Worker=2, nproc_per_node="auto")
    names = list(variables(job, "Worker"))
    assert names == ["PYTHONUNBUFFERED", "PET_NPROC_PER_NODE", "PET_NNODES"], "no master: no MASTER_ADDR and no RANK"


def test_the_elastic_policy_of_pytorch() -> None:
    policy = ElasticPolicy(
        min_replicas=1, max_replicas=3, backend="c10d", port=1234, host="localhost", id="rdzv-id",
        conf=(("rdzv-conf-name", "rdzv-conf-value"), ("rdzv-conf-name-1", "rdzv-conf-value-1")), max_restarts=3,
    )  # fmt: skip
    added = texts(make_job("PyTorchJob", Worker=1, elastic=policy), "Worker")
    assert added == {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_ENDPOINT": "localhost:1234",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "1:3",
        "PET_MAX_RESTARTS": "3",
        "PET_RDZV_ID": "rdzv-id",
        "PET_RDZV_CONF": "rdzv-conf-name=rdzv-conf-value,rdzv-conf-name-1=rdzv-conf-value-1",
    }


def test_the_first_worker_is_the_rendezvous_of_an_elastic_job() -> None:
    policy = ElasticPolicy(min_replicas=2, max_replicas=2, nproc_per_node=4, standalone=True)
    added = texts(make_job("PyTorchJob", name="j", Worker=2, elastic=policy), "Worker", 1)
    assert added["PET_RDZV_ENDPOINT"] == "j-worker-0:23456"
    assert added["PET_NPROC_PER_NODE"] == "4"
    assert added["PET_STANDALONE"] == ""


@pytest.mark.parametrize("host", ["j-worker-0", "j-worker-0.default.svc"])
def test_a_rendezvous_that_names_a_replica_moves_with_it(host: str) -> None:
    job = make_job("PyTorchJob", name="j", Worker=2, elastic=ElasticPolicy(host=host, port=29400))
    assert texts(job, "Worker")["PET_RDZV_ENDPOINT"] == f"{host}:29400"
    moved = LoopbackEndpoints({("Worker", 0): {29400: 40001}})
    assert texts(job, "Worker", 1, moved)["PET_RDZV_ENDPOINT"] == "127.0.0.1:40001"
    other = make_job("PyTorchJob", name="j", Worker=2, elastic=ElasticPolicy(host="etcd-service", port=2379))
    assert texts(other, "Worker", 1, moved)["PET_RDZV_ENDPOINT"] == "etcd-service:2379"


# -------------------------------------------------------------------------------------------------------- the others


def test_jax() -> None:
    job = make_job("JAXJob", name="test-jaxjob", port=6666, Worker=1)
    assert variables(job, "Worker") == {
        "PYTHONUNBUFFERED": EnvVar("PYTHONUNBUFFERED", "1"),
        "COORDINATOR_PORT": EnvVar("COORDINATOR_PORT", "6666"),
        "COORDINATOR_ADDRESS": EnvVar("COORDINATOR_ADDRESS", "test-jaxjob-worker-0"),
        "NUM_PROCESSES": EnvVar("NUM_PROCESSES", "1"),
        "PROCESS_ID": EnvVar("PROCESS_ID", "0"),
    }


def test_xgboost_has_one_port_for_all_workers_of_a_cluster() -> None:
    job = make_job("XGBoostJob", name="x", Master=1, Worker=2)
    assert texts(job, "Worker", 1) == {
        "MASTER_PORT": "9999",
        "MASTER_ADDR": "x-master-0",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "PYTHONUNBUFFERED": "1",
        "WORKER_PORT": "9999",
        "WORKER_ADDRS": "x-worker-0,x-worker-1",
    }
    assert "WORKER_PORT" not in texts(make_job("XGBoostJob", Master=1), "Master")


def test_paddle_without_a_master_is_collective() -> None:
    job = make_job("PaddleJob", name="p", Worker=2)
    first, second = variables(job, "Worker", 0), variables(job, "Worker", 1)
    assert first["POD_IP_DUMMY"] == EnvVar("POD_IP_DUMMY", field="status.podIP")
    assert first["PADDLE_MASTER"].value == "$(POD_IP_DUMMY):36543"
    assert list(first).index("POD_IP_DUMMY") < list(first).index("PADDLE_MASTER"), "a reference needs its definition"
    assert second["PADDLE_MASTER"].value == "p-worker-0:36543"
    assert {name: second[name].value for name in ("PADDLE_JOB_ID", "PADDLE_NNODES")} == {
        "PADDLE_JOB_ID": "p",
        "PADDLE_NNODES": "2",
    }
    assert "PADDLE_TRAINER_NUM" not in second


def test_paddle_with_a_master_has_parameter_servers() -> None:
    job = make_job("PaddleJob", name="p", Master=2, Worker=2)
    assert texts(job, "Master", 0)["PADDLE_MASTER"] == "$(POD_IP_DUMMY):36543"
    assert texts(job, "Master", 1)["PADDLE_MASTER"] == "p-master-0:36543"
    assert texts(job, "Master", 1)["PADDLE_SERVER_NUM"] == "1"
    assert texts(job, "Worker", 0)["PADDLE_MASTER"] == "p-master-0:36543"
    assert texts(job, "Worker", 0)["PADDLE_TRAINER_NUM"] == "1"


def test_the_launcher_of_mpi() -> None:
    job = make_job("MPIJob", name="m", Launcher=1, Worker=2)
    assert texts(job, "Launcher") == {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/kubexec.sh",
    }
    assert texts(job, "Worker") == {}


def test_a_launcher_with_gpus_and_its_own_bootstrap_keeps_both() -> None:
    container = Container(name="mpi", limits={"nvidia.com/gpu": 1}, env=(EnvVar("I_MPI_HYDRA_BOOTSTRAP", "ssh"),))
    template = PodTemplate(containers=(container, Container(name="side")))
    job = TrainingJob(kind="MPIJob", name="m", replicas={"Launcher": ReplicaSpec(template=template, replicas=1)})
    assert list(variables(job, "Launcher")) == [
        "OMPI_MCA_plm_rsh_agent",
        "OMPI_MCA_orte_default_hostfile",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC",
    ]
    assert environment_of(job, "Launcher", 0, template.containers[1], ClusterEndpoints(job)) == ()


INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def test_the_torch_runtime_of_trainer() -> None:
    job = make_job("TrainJob", name="t", node=2, runtime="torch")
    assert variables(job, "node", 1) == {
        "PET_NNODES": EnvVar("PET_NNODES", "2"),
        "PET_NPROC_PER_NODE": EnvVar("PET_NPROC_PER_NODE", "1"),
        "PET_NODE_RANK": EnvVar("PET_NODE_RANK", field=INDEX),
        "PET_MASTER_ADDR": EnvVar("PET_MASTER_ADDR", "t-node-0-0.t"),
        "PET_MASTER_PORT": EnvVar("PET_MASTER_PORT", "29500"),
    }


@pytest.mark.parametrize(
    ("requests", "limits", "given", "expected"),
    [
        ({"cpu": 2.5}, {"cpu": 8}, None, "3"),
        ({}, {"cpu": 4}, None, "4"),
        ({"cpu": 4}, {"example.com/gpu": 2}, None, "auto"),
        ({"cpu": 4}, {}, "7", "7"),
        ({"cpu": 4}, {"example.com/gpu": 2}, "cpu", "4"),
        ({"cpu": 4}, {}, "gpu", "gpu"),
        ({}, {}, "auto", "1"),
    ],
)
def test_the_processes_of_a_node_follow_its_resources(
    requests: dict[str, float], limits: dict[str, float], given: str | None, expected: str
) -> None:
    container = Container(name="node", requests=requests, limits=limits)
    spec = ReplicaSpec(template=PodTemplate(containers=(container,)), replicas=1)
    job = TrainingJob(kind="TrainJob", name="t", runtime="torch", nproc_per_node=given, replicas={"node": spec})
    assert texts(job, "node")["PET_NPROC_PER_NODE"] == expected


def test_the_jax_xgboost_and_plain_runtimes_of_trainer() -> None:
    assert variables(make_job("TrainJob", name="t", node=2, runtime="jax"), "node") == {
        "JAX_NUM_PROCESSES": EnvVar("JAX_NUM_PROCESSES", "2"),
        "JAX_PROCESS_ID": EnvVar("JAX_PROCESS_ID", field=INDEX),
        "JAX_COORDINATOR_ADDRESS": EnvVar("JAX_COORDINATOR_ADDRESS", "t-node-0-0.t:29500"),
    }
    assert variables(make_job("TrainJob", name="t", node=2, runtime="xgboost"), "node") == {
        "DMLC_TRACKER_URI": EnvVar("DMLC_TRACKER_URI", "t-node-0-0.t"),
        "DMLC_TRACKER_PORT": EnvVar("DMLC_TRACKER_PORT", "29500"),
        "DMLC_TASK_ID": EnvVar("DMLC_TASK_ID", field=INDEX),
        "DMLC_NUM_WORKER": EnvVar("DMLC_NUM_WORKER", "2"),
    }
    assert variables(make_job("TrainJob", name="t", node=2, runtime="plain"), "node") == {}


def test_the_mpi_runtime_of_trainer() -> None:
    spec = ReplicaSpec(template=PodTemplate(containers=(Container(name="node"),)), replicas=1)
    job = TrainingJob(
        kind="TrainJob", name="t", runtime="mpi", slots_per_worker=4, replicas={"launcher": spec, "node": spec}
    )
    assert texts(job, "launcher") == {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "4",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    }
    assert texts(job, "node") == {}


# -------------------------------------------------------------------------------------------------------- addresses


def own_ports(job: TrainingJob) -> dict[tuple[str, int], dict[int, int]]:
    """A table with another port for each port of each replica."""
    table: dict[tuple[str, int], dict[int, int]] = {}
    for at, (type, index, port) in enumerate(listening_ports(job)):
        table.setdefault((type, index), {})[port] = 40000 + at
    return table


def test_each_replica_of_an_address_has_its_own_port() -> None:
    job = make_job(Chief=1, Worker=2)
    assert list(listening_ports(job)) == [("Chief", 0, 2222), ("Worker", 0, 2222), ("Worker", 1, 2222)]
    config = json.loads(texts(job, "Worker", 1, LoopbackEndpoints(own_ports(job)))["TF_CONFIG"])
    assert config["cluster"] == {"chief": ["127.0.0.1:40000"], "worker": ["127.0.0.1:40001", "127.0.0.1:40002"]}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (make_job("PyTorchJob", Master=1, Worker=1), {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "40000"}),
        (make_job("JAXJob", Worker=2), {"COORDINATOR_ADDRESS": "127.0.0.1", "COORDINATOR_PORT": "40000"}),
        (make_job("PaddleJob", Worker=2), {"PADDLE_MASTER": "127.0.0.1:40000"}),
        (make_job("TrainJob", node=2, runtime="torch"), {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "40000"}),
        (
            make_job("XGBoostJob", Master=1, Worker=2),
            {"MASTER_PORT": "40000", "WORKER_PORT": "40002", "WORKER_ADDRS": "127.0.0.1,127.0.0.1"},
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, TrainingJob) else "",
)
def test_the_last_replica_finds_the_others_at_their_own_ports(job: TrainingJob, expected: dict[str, str]) -> None:
    type, index, _ = list(listening_ports(job))[-1]
    added = texts(job, type, index, LoopbackEndpoints(own_ports(job)))
    assert {name: added[name] for name in expected} == expected


def test_the_rendezvous_of_an_elastic_job_is_a_port_of_the_first_worker() -> None:
    job = make_job("PyTorchJob", Worker=2, elastic=ElasticPolicy(port=29400))
    assert list(listening_ports(job)) == [("Worker", 0, 23456), ("Worker", 0, 29400), ("Worker", 1, 23456)]


def test_names_of_pods() -> None:
    assert pod_name(make_job(name="1/2/3/4/5"), "WORKER", 1) == "1-2-3-4-5-worker-1"
    assert pod_name(make_job("MPIJob", name="m"), "Launcher", 0) == "m-launcher"
    assert pod_name(make_job("MPIJob", name="m"), "Worker", 3) == "m-worker-3"
    assert pod_name(make_job("TrainJob", name="t"), "node", 1) == "t-node-0-1"


def with_container(job: TrainingJob, type: str, **fields: Any) -> TrainingJob:
    container = replace(job.replicas[type].template.containers[0], **fields)
    spec = replace(job.replicas[type], template=PodTemplate(containers=(container,)))
    return replace(job, replicas={**job.replicas, type: spec})


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (make_job("TFJob", Chief=1, PS=2, Worker=2), []),
        (make_job("XGBoostJob", name="x", Master=1, Worker=1), []),
        (make_job("XGBoostJob", name="x", Master=1, Worker=2), ["XGBoostJob x: .* WORKER_PORT of its own"]),
        (
            with_container(make_job(name="j", PS=1, Worker=2), "Worker", args=("--ps=j-ps-0.default.svc:2222",)),
            ["container tensorflow of Worker names j-ps-0,"],
        ),
        (
            with_container(make_job(name="j", Worker=2), "Worker", env=(EnvVar("STORE", "http://etcd-service:2379"),)),
            ["of Worker names etcd-service,"],
        ),
        (with_container(make_job(name="j", Worker=2), "Worker", args=("--out=/data/j-worker-01",)), []),
        (
            make_job("PyTorchJob", Worker=2, elastic=ElasticPolicy(host="etcd-service", port=2379)),
            ["rdzvHost is the service etcd-service"],
        ),
        (
            TrainingJob(
                kind="TFJob",
                name="j",
                replicas={"Worker": ReplicaSpec(template=PodTemplate(host_aliases={"10.0.0.9": ("store",)}))},
            ),
            ["hostAliases of Worker have no effect"],
        ),
    ],
)
def test_what_one_address_cannot_do_is_said(job: TrainingJob, expected: list[str]) -> None:
    found = list(loopback_warnings(job, ["etcd-service"]))
    assert len(found) == len(expected)
    assert all(re.search(pattern, text) for pattern, text in zip(expected, found, strict=True))


def test_what_a_cluster_without_names_cannot_do_is_said_without_an_isolation():
    job = with_container(make_job("XGBoostJob", name="x", Master=1, Worker=2), "Worker", args=("x-master-0",))
    first, second = loopback_warnings(job, spread=True)
    assert "replicas may share a machine" in first
    assert "where replicas have the addresses of their machines. Use the variables" in second
    assert "isolation" not in first + second
