"""The addresses by which the replicas of a job reach each other.

In a cluster each replica has a name and an address of its own, and the port of the job file. Isolation "ports" has one
address for all replicas, so each replica has ports of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from weft.frontends.training.kinds import KINDS, pod_name, replica_counts
from weft.model.patterns import late_pattern
from weft.operators.network import Isolation

if TYPE_CHECKING:
    from weft.frontends.training.schema import Container, TrainingJob
    from weft.operators.network import ReplicaNetwork

LOOPBACK: Final = "127.0.0.1"
_HOST: Final = late_pattern(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
"""The labels of host names in a text."""


class Endpoints(Protocol):
    """Where a replica is reached, as the other replicas of its job see it."""

    def host(self, type: str, index: int) -> str:
        """Return the full name of a replica in the cluster."""
        ...

    def name(self, type: str, index: int) -> str:
        """Return the short name of a replica."""
        ...

    def port(self, type: str, index: int, declared: int) -> int:
        """Return the port at which a replica listens in place of the port that its file declares."""
        ...

    def ip(self, type: str, index: int) -> str:
        """Return the IP address of a replica, "" while it is unknown."""
        ...


class ClusterEndpoints:
    """The names and ports of a cluster with the given domain, such as "cluster.local" ("": the default domain)."""

    def __init__(self, job: TrainingJob, domain: str = "") -> None:
        self._job = job
        self._suffix = f".{domain}" if domain else ""

    def host(self, type: str, index: int) -> str:
        """Return the name of the service of a replica with its namespace; of a TrainJob, the name in its subdomain."""
        name = pod_name(self._job, type, index)
        if self._job.kind == "TrainJob":
            return f"{name}.{self._job.name}"
        return f"{name}.{self._job.namespace}.svc{self._suffix}"

    def name(self, type: str, index: int) -> str:
        """Return the name of the service of a replica."""
        return pod_name(self._job, type, index)

    def port(self, type: str, index: int, declared: int) -> int:
        """Return the declared port."""
        return declared

    def ip(self, type: str, index: int) -> str:
        """Return "": a cluster gives addresses to running pods only."""
        return ""


class LoopbackEndpoints:
    """One address for all replicas. `ports` has the own port of each replica by its declared port.

    A declared port without an entry stays as it is.
    """

    def __init__(self, ports: Mapping[tuple[str, int], Mapping[int, int]]) -> None:
        self._ports = ports

    def host(self, type: str, index: int) -> str:
        """Return the loopback address."""
        return LOOPBACK

    def name(self, type: str, index: int) -> str:
        """Return the loopback address."""
        return LOOPBACK

    def port(self, type: str, index: int, declared: int) -> int:
        """Return the own port of a replica."""
        return self._ports.get((type, index), {}).get(declared, declared)

    def ip(self, type: str, index: int) -> str:
        """Return the loopback address."""
        return LOOPBACK


def main_container(job: TrainingJob, type: str) -> Container | None:
    """Return the container that runs the training, else the first one; None: a template without containers."""
    containers = job.replicas[type].template.containers
    named = (one for one in containers if one.name == KINDS[job.kind].container)
    return next(named, containers[0] if containers else None)


def declared_port(job: TrainingJob, type: str) -> int:
    """Return the port for which the other replicas look: that of the kind's name in the main container."""
    kind = KINDS[job.kind]
    container = main_container(job, type) if type in job.replicas else None
    ports = container.ports if container is not None else ()
    return next((port.number for port in ports if port.name == kind.port_name), kind.port)


def listening_ports(job: TrainingJob) -> Iterator[tuple[str, int, int]]:
    """Yield type, index and port of each declared port of each replica, each once."""
    for type, replicas in replica_counts(job).items():
        containers = job.replicas[type].template.containers
        ports = dict.fromkeys(port.number for container in containers for port in container.ports)
        ports.setdefault(declared_port(job, type))
        for index in range(replicas):
            rendezvous = job.elastic.port if job.elastic and (type, index) == ("Worker", 0) else None
            for port in dict.fromkeys((*ports, *((rendezvous,) if rendezvous is not None else ()))):
                yield type, index, port


class _NamedEndpoints(ClusterEndpoints):
    """The names of a cluster, in a network that knows the addresses of the replicas."""

    def __init__(self, job: TrainingJob, network: ReplicaNetwork) -> None:
        super().__init__(job)
        self._network = network

    def ip(self, type: str, index: int) -> str:
        """Return the address of a replica."""
        return self._network.ip(self.name(type, index))


def endpoints_of(job: TrainingJob, network: ReplicaNetwork, most: TrainingJob) -> Endpoints:
    """Return the endpoints of a job in an open network; `most` is the job with as many replicas as it may get."""
    if network.isolation is not Isolation.PORTS:
        return _NamedEndpoints(job, network)
    ports: dict[tuple[str, int], dict[int, int]] = {}
    for type, index, port in listening_ports(most):
        ports.setdefault((type, index), {})[port] = network.port(pod_name(job, type, index), port)
    return LoopbackEndpoints(ports)


def loopback_warnings(
    job: TrainingJob,
    services: Iterable[str] = (),
    entered: Iterable[tuple[str, int]] = (),
    *,
    spread: bool = False,
) -> Iterator[str]:
    """Yield what may not work where replicas have no names: they share one address, or (`spread`) have machines' own.

    `services` are names of services of the file, `entered` types and indices of replicas that an agent enters by name.
    """
    where = "where replicas have the addresses of their machines" if spread else "where replicas share one address"
    instead = "" if spread else "isolation: namespace"
    either = f"{instead}, or " if instead else ""
    counts = replica_counts(job)
    about = f"{job.kind} {job.name}"
    if job.kind == "XGBoostJob" and counts.get("Worker", 0) > 1:
        shared = "replicas may share a machine" if spread else f"replicas share the address {LOOPBACK}"
        needs = "cannot run so" if spread else f"need {instead}"
        yield (
            f"{about}: {shared}, so each worker has a WORKER_PORT of its own. Programs that expect one port for all "
            f"workers, such as LightGBM, {needs}."
        )
    replicas = {(type, index) for type, n in counts.items() for index in range(n)} - set(entered)
    names = {pod_name(job, type, index) for type, index in replicas} | set(services)
    for type, spec in job.replicas.items():
        if spec.template.host_aliases:
            yield f"{about}: hostAliases of {type} have no effect {where}." + (f" Use {instead}." if instead else "")
        for container in spec.template.containers:
            texts = (*container.command, *container.args, *(variable.value for variable in container.env))
            named = sorted(names.intersection(word for text in texts for word in _HOST.findall(text)))
            if named:
                yield (
                    f"{about}: container {container.name} of {type} names {', '.join(named)}, and no such name exists "
                    f"{where}. Use {either}the variables that the job sets."
                )
    if job.elastic is not None and job.elastic.host in set(services):
        yield (
            f"{about}: rdzvHost is the service {job.elastic.host}, and no such name exists {where}. "
            f"Use {either}rdzvBackend: c10d without rdzvHost."
        )
