"""What MPI needs to start processes in the replicas of a job: the hostfile, the agent, and the list of hosts.

In a cluster the agent is `kubectl exec` or ssh. On one machine it is `weft.worker.replica_exec`, which enters a replica
by a socket in a folder of the job. Source: `pkg/controller.v1/mpi` of the training operator 1.9, and the MPI plugin of
Trainer v2.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from weft.frontends.training.environments.mpi import AGENT, HOSTFILE, has_gpu
from weft.frontends.training.environments.trainer import LAUNCHER, NODE, slots
from weft.frontends.training.kinds import pod_name, replica_counts
from weft.frontends.training.schema import EnvVar, TrainingJob

DISCOVER_HOSTS: Final = "discover_hosts.sh"
_LAUNCHERS: Final = {"MPIJob": "Launcher", "TrainJob": LAUNCHER}
_WORKERS: Final = {"MPIJob": "Worker", "TrainJob": NODE}
_ENTER: Final = "WEFT_MPI_ENTER"
_HOSTS: Final = "WEFT_MPI_HOSTS"
_APART: Final = (EnvVar("OMPI_MCA_btl", "self,tcp"), EnvVar("OMPI_MCA_osc", "^sm"))
"""No shared memory: its files carry the name of the host, which is one for all replicas of a machine."""
_LOOPBACK: Final = (
    EnvVar("OMPI_MCA_oob_tcp_if_include", "127.0.0.0/8"),
    EnvVar("OMPI_MCA_btl_tcp_if_include", "127.0.0.0/8"),
)
_SCRIPT: Final = 0o555
_TEXT: Final = 0o444


def uses_mpi(job: TrainingJob) -> bool:
    """Whether a launcher starts the processes of a job."""
    return job.kind == "MPIJob" or (job.kind == "TrainJob" and job.runtime == "mpi")


def starts_processes(job: TrainingJob, type: str) -> bool:
    """Whether a replica of this type is the launcher."""
    return type == _LAUNCHERS[job.kind]


def mpi_hosts(job: TrainingJob) -> Iterator[tuple[str, int]]:
    """Yield type and index of the replicas in which MPI starts processes, in the order of ranks.

    The launcher of an MPIJob is one of them if it has GPUs, that of a TrainJob if its runtime says so.
    """
    launcher, counts = _LAUNCHERS[job.kind], replica_counts(job)
    template = job.replicas[launcher].template if launcher in counts else None
    with_gpus = template is not None and any(has_gpu(one.limits) for one in template.containers)
    if job.launcher_is_node or (job.kind == "MPIJob" and with_gpus):
        yield launcher, 0
    worker = _WORKERS[job.kind]
    for index in range(counts.get(worker, 0)):
        yield worker, index


def hostfile(job: TrainingJob) -> str:
    """Return the hosts of Open MPI: a line with name and slots for each replica that runs processes."""
    return "".join(f"{_host(job, type, index)} slots={slots(job)}\n" for type, index in mpi_hosts(job))


def launcher_files(job: TrainingJob, sockets: str) -> dict[str, tuple[str, int]]:
    """Return text and permission bits of the files of the configuration folder by name.

    `sockets` is the folder with the sockets of the replicas, as the replicas see it; "": each machine has its own, and
    the variables of `spread_variables` have the programs. The configuration folder belongs in the launcher and in all
    replicas: Open MPI checks for its agent on each host. `discover_hosts.sh` names the replicas that run when it is
    called.
    """
    enter, hosts, words = f'"${_ENTER}"', f'"${_HOSTS}"', "'\"$@\"'"
    if sockets:
        (enter, hosts), words = _programs(job, sockets), '"$@"'
    run = "#!/bin/sh\nexec" if sockets else "#!/bin/sh\neval exec"
    return {
        HOSTFILE: (hostfile(job), _TEXT),
        AGENT: (f"{run} {enter} {words}\n", _SCRIPT),
        DISCOVER_HOSTS: (f"{run} {hosts}\n", _SCRIPT),
    }


def _programs(job: TrainingJob, sockets: str) -> tuple[str, str]:
    """Return the commands of a shell that enter a replica, and that name those which run."""
    enter, hosts = _agent("enter", sockets), _agent("hosts", sockets, str(slots(job)))
    return shlex.join(enter), shlex.join(hosts)


def spread_variables(job: TrainingJob, type: str, sockets: str, addresses: Sequence[str]) -> Iterator[EnvVar]:
    """Yield the variables of a replica of a job whose hosts are at machines with these addresses, for `loopback`.

    `sockets` is a folder of the machine for this replica alone. Daemons do not start others: only the launcher has the
    ways to all. Shared memory is for replicas that are alone at their machine: its files carry the name of the machine.
    """
    yield EnvVar("TMPDIR", sockets)
    if type != _LAUNCHERS[job.kind]:
        return
    enter, hosts = _programs(job, sockets)
    yield EnvVar(_ENTER, enter)
    yield EnvVar(_HOSTS, hosts)
    yield EnvVar("OMPI_MCA_plm_rsh_no_tree_spawn", "1")
    here = any(address.startswith("127.") for address in addresses)
    if here or len(set(addresses)) < len(addresses):
        yield from _APART
    if here:
        yield from _LOOPBACK


def local_variables(job: TrainingJob, type: str, folder: str, *, loopback: bool) -> Iterator[EnvVar]:
    """Yield the variables that a launcher on this machine needs beside those of its operator, and after them.

    `folder` is the configuration folder as the launcher sees it; `loopback` says that replicas share one address.
    Replicas on this machine have no ssh daemon, and the user of a sandbox is root in it. Replicas that share /tmp need
    a TMPDIR each: Open MPI makes a folder for its session there.
    """
    if not uses_mpi(job) or type != _LAUNCHERS[job.kind]:
        return
    yield EnvVar("OMPI_MCA_plm_rsh_agent", posixpath.join(folder, AGENT))
    yield EnvVar("OMPI_MCA_plm_rsh_args", "")
    yield EnvVar("OMPI_MCA_orte_default_hostfile", posixpath.join(folder, HOSTFILE))
    yield EnvVar("OMPI_ALLOW_RUN_AS_ROOT", "1")
    yield EnvVar("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    yield EnvVar("I_MPI_HYDRA_BOOTSTRAP", "rsh")
    yield EnvVar("I_MPI_HYDRA_BOOTSTRAP_EXEC", posixpath.join(folder, AGENT))
    if loopback:
        yield from _APART
        yield from _LOOPBACK


def replica_words(job: TrainingJob, type: str, index: int, command: Sequence[str], sockets: str) -> list[str]:
    """Return the command line of a replica on this machine; one that runs MPI processes serves its socket as well.

    `command` is that of the container with its arguments, empty if the container has none: a worker then sleeps, and
    the entry point of its image does not run. An ssh daemon has nothing to do here, so it sleeps too.
    """
    if (type, index) not in set(mpi_hosts(job)):
        return list(command)
    own = () if command and posixpath.basename(command[0]) == "sshd" else command
    return _agent("serve", sockets, pod_name(job, type, index), *own)


def _host(job: TrainingJob, type: str, index: int) -> str:
    name = pod_name(job, type, index)
    return f"{name}.{job.name}" if job.kind == "TrainJob" else name


def _agent(*words: str) -> list[str]:
    """Return the command of the agent for some words."""
    from weft.worker.replica_exec import words as agent_words  # other jobs need none

    return agent_words(*words)
