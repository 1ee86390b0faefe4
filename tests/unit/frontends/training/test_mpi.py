"""The files and command lines of MPI jobs."""

import pytest

from weft.frontends.training.mpi import hostfile, launcher_files, local_variables, mpi_hosts, replica_words
from weft.frontends.training.schema import Container, PodTemplate, ReplicaSpec, TrainingJob


def make_job(
    kind: str = "MPIJob", *, gpus: int = 0, workers: int = 2, slots: int | None = None, is_node: bool = False
) -> TrainingJob:
    container = Container(name="mpi", limits={"nvidia.com/gpu": gpus} if gpus else {})
    launcher, worker = ("Launcher", "Worker") if kind == "MPIJob" else ("launcher", "node")
    return TrainingJob(
        kind=kind,
        name="m",
        runtime="" if kind == "MPIJob" else "mpi",
        slots_per_worker=slots,
        launcher_is_node=is_node,
        replicas={
            launcher: ReplicaSpec(template=PodTemplate(containers=(container,)), replicas=1),
            worker: ReplicaSpec(template=PodTemplate(containers=(Container(name="mpi"),)), replicas=workers),
        },
    )


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (make_job(), "m-worker-0 slots=1\nm-worker-1 slots=1\n"),
        (make_job(slots=4, workers=1), "m-worker-0 slots=4\n"),
        (make_job(gpus=1, slots=2, workers=1), "m-launcher slots=2\nm-worker-0 slots=2\n"),
        (make_job(workers=0), ""),
        (make_job("TrainJob", slots=2, workers=1), "m-node-0-0.m slots=2\n"),
        (make_job("TrainJob", workers=1, is_node=True), "m-launcher-0-0.m slots=1\nm-node-0-0.m slots=1\n"),
        (make_job("TrainJob", workers=1, gpus=1), "m-node-0-0.m slots=1\n"),
    ],
)
def test_the_hostfile(job: TrainingJob, expected: str) -> None:
    assert hostfile(job) == expected


def test_a_launcher_that_is_a_node_comes_first() -> None:
    assert list(mpi_hosts(make_job(is_node=True, workers=1))) == [("Launcher", 0), ("Worker", 0)]


def test_files_of_the_configuration_folder() -> None:
    files = launcher_files(make_job(), "/run dir/sockets")
    assert {name: mode for name, (_, mode) in files.items()} == {
        "hostfile": 0o444,
        "kubexec.sh": 0o555,
        "discover_hosts.sh": 0o555,
    }
    assert "enter '/run dir/sockets' \"$@\"" in files["kubexec.sh"][0]
    assert all(text.startswith("#!/bin/sh\n") for name, (text, _) in files.items() if name.endswith(".sh"))


def test_a_worker_serves_beside_its_command_and_a_launcher_does_not() -> None:
    job = make_job()
    command = ["python", "train.py"]
    assert replica_words(job, "Launcher", 0, command, "/s") == command
    assert replica_words(job, "Worker", 1, command, "/s")[-5:] == ["serve", "/s", "m-worker-1", *command]
    assert replica_words(job, "Worker", 1, (), "/s")[-3:] == ["serve", "/s", "m-worker-1"]
    assert replica_words(make_job(gpus=1), "Launcher", 0, command, "/s")[-4:] == ["/s", "m-launcher", *command]


def test_a_node_of_a_train_job_needs_no_ssh_daemon() -> None:
    job = make_job("TrainJob")
    assert replica_words(job, "node", 0, ["/usr/sbin/sshd", "-De"], "/s")[-2:] == ["/s", "m-node-0-0"]


def test_variables_of_a_launcher_on_this_machine() -> None:
    found = {one.name: one.value for one in local_variables(make_job(), "Launcher", "/etc/mpi", loopback=False)}
    assert found["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    assert found["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert "OMPI_MCA_btl_tcp_if_include" not in found
    shared = {one.name: one.value for one in local_variables(make_job(), "Launcher", "/x", loopback=True)}
    assert shared["OMPI_MCA_btl_tcp_if_include"] == "127.0.0.0/8"
    assert shared["OMPI_MCA_btl"] == "self,tcp", "shared memory is named after the host, which all replicas share"
    assert list(local_variables(make_job(), "Worker", "/x", loopback=True)) == []
