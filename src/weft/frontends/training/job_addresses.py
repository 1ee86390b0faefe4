"""The names and ports by which the pods and services of a file find one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from weft.frontends.training.endpoints import listening_ports
from weft.frontends.training.kinds import pod_name
from weft.frontends.training.labels import labels_of
from weft.frontends.training.schema import EnvVar
from weft.operators.network import Isolation, NetworkMember

if TYPE_CHECKING:
    from weft.frontends.training.schema import JobFile, PodTemplate, ServiceSpec, TrainingJob
    from weft.operators.network import ReplicaNetwork


class JobAddresses:
    """Who can be reached in a file: the replicas of `jobs`, each with as many as it may get, and its pods."""

    def __init__(self, jobs: Sequence[TrainingJob], files: JobFile) -> None:
        self._jobs, self._files = jobs, files

    def members(self) -> Iterator[NetworkMember]:
        """Yield the pods that listen, with their ports."""
        for job in self._jobs:
            ports: dict[tuple[str, int], list[int]] = {}
            for type, index, port in listening_ports(job):
                ports.setdefault((type, index), []).append(port)
            for (type, index), own in ports.items():
                aliases = job.replicas[type].template.host_aliases
                subdomain = job.name if job.kind == "TrainJob" else ""  # the headless service of its JobSet
                yield NetworkMember(
                    name=pod_name(job, type, index), ports=tuple(own), subdomain=subdomain, aliases=aliases
                )
        for pod in self._files.pods:
            own = [port.number for container in pod.template.containers for port in container.ports]
            yield NetworkMember(name=pod.name, ports=tuple(own), aliases=pod.template.host_aliases)

    def namespaces(self) -> dict[str, str]:
        """Return the namespace of each pod and each service."""
        return {
            **{service.name: service.namespace for service in self._files.services},
            **{pod.name: pod.namespace for pod in self._files.pods},
            **{
                pod_name(job, type, index): job.namespace
                for job in self._jobs
                for type, spec in job.replicas.items()
                for index in range(spec.replicas or 0)
            },
        }

    def services(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the pods behind each service of the file: those in its namespace with its labels."""
        if not self._files.services:  # each replica asks, and the labels of all take a while
            return {}
        labels = {
            pod_name(job, type, index): labels_of(job, type, index)
            for job in self._jobs
            for type, spec in job.replicas.items()
            for index in range(spec.replicas or 0)
        }
        labels |= {pod.name: dict(pod.template.labels) for pod in self._files.pods}
        namespaces = self.namespaces()
        return {
            service.name: tuple(
                name
                for name, own in labels.items()
                if service.selector
                and service.selector.items() <= own.items()
                and namespaces[name] == service.namespace
            )
            for service in self._files.services
        }

    def forwards(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """Return the ports of the services of which one differs from that of its pods; headless ones have no ports."""
        found = {}
        members = self.services()
        for one in self._files.services:
            if one.headless or not members[one.name]:
                continue
            ports = self._ports_of(one, members[one.name][0])
            if any(port != target for port, target in ports):
                found[one.name] = ports
        return found

    def variables(self, network: ReplicaNetwork) -> Iterator[EnvVar]:
        """Yield the variables by which pods find services: `NAME_SERVICE_HOST` and `NAME_SERVICE_PORT`."""
        found = self.services()
        for service in self._files.services:
            members = found[service.name]
            if not members or not service.ports:
                continue
            port, target = self._ports_of(service, members[0])[0]
            loopback = network.isolation is Isolation.PORTS
            host = network.ip(members[0]) if loopback else network.service_ip(service.name) or network.ip(members[0])
            if not host:
                continue  # at a cluster its pods have not begun
            prefix = service.name.upper().replace("-", "_").replace(".", "_")
            yield EnvVar(name=f"{prefix}_SERVICE_HOST", value=host)
            number = network.port(members[0], target) if loopback else target if service.headless else port
            yield EnvVar(name=f"{prefix}_SERVICE_PORT", value=str(number))

    def _ports_of(self, service: ServiceSpec, member: str) -> tuple[tuple[int, int], ...]:
        """Return (port of the service, port of the pod) for each port of a service, with names of ports looked up."""
        names = {port.name: port.number for one in self._template_of(member).containers for port in one.ports}
        return tuple(
            (number, target if isinstance(target, int) else names.get(target, number))
            for number, target in service.ports
        )

    def _template_of(self, member: str) -> PodTemplate:
        for job in self._jobs:
            for type, spec in job.replicas.items():
                if any(pod_name(job, type, index) == member for index in range(spec.replicas or 0)):
                    return spec.template
        return next(pod.template for pod in self._files.pods if pod.name == member)
