"""Compiles the jobs of a file to one logical graph: a vertex for each replica type, and one gang for each job.

Parameter servers, MPI workers and plain pods are services, all other replicas are finite; concurrent edges lead from
the services of a job to its other replicas. The job controller `RECONCILE` starts and stops the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.frontends.training.census import restarts_whole
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.schema import (
    ALWAYS,
    EXIT_CODE,
    NEVER,
    ON_FAILURE,
    PodTemplate,
    ReplicaSpec,
    TrainingJob,
)
from weft.graph.logical import (
    CONCURRENT,
    NONE,
    Backoff,
    Bubble,
    Edge,
    LogicalGraph,
    Manager,
    Range,
    RestartPolicy,
    Scheduling,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
)
from weft.model.program import Program, Style
from weft.model.resources import Resources

if TYPE_CHECKING:
    from weft.frontends.training.schema import Container, JobFile

FRONTEND: Final = "training"
CONTROLLER: Final = "reconcile"
"""The name of the job controller that calls a pure function of a front end."""
RECONCILE: Final = "weft.frontends.training.controller:reconcile"
BODY: Final = "weft.frontends.training.replica:run_replica"
REMOTE_BODY: Final = "weft.frontends.training.remote:run_remotely"
"""The program of a replica, and that of one at a machine of a cluster."""
TRIAL_BODY: Final = "weft.frontends.training.trials:run_trial_replica"
REMOTE_TRIAL_BODY: Final = "weft.frontends.training.remote:run_trial_remotely"
"""Those of a replica in a trial."""
TUNER: Final = "weft.frontends.training.tuner:run_tuner"
TUNED: Final = "tuned"
"""The event for which the replicas of a tuned job wait."""
POD: Final = "Pod"
"""The replica type of a plain pod."""
SERVICES: Final = frozenset({("TFJob", "PS"), ("MPIJob", "Worker"), (POD, POD)})
"""The replica types, by kind, that live as long as others of their job."""
SCALABLE: Final = ("Worker", "PS", "node")
"""The replica types whose number of replicas may change during a run."""
MOST_REPLICAS: Final = 64
"""The number of replicas to which a type can be scaled, if its file asks for fewer."""
_RESTARTS: Final[Mapping[str, RestartPolicy]] = {
    ALWAYS: RestartPolicy.ALWAYS,
    ON_FAILURE: RestartPolicy.ON_FAILURE,
    NEVER: RestartPolicy.NEVER,
    EXIT_CODE: RestartPolicy.NEVER,  # the controller creates the pod again
}
_GPU: Final = "gpu"
GPU_SUFFIX: Final = "/gpu"
"""The end of the names of resources that are GPUs, of any vendor."""


class ReplicaGroup(Struct, frozen=True):
    """The replicas of one type of a job, and the vertex that stands for them."""

    vertex: str
    job: TrainingJob
    type: str
    spec: ReplicaSpec

    @property
    def is_service(self) -> bool:
        """See the function of this name."""
        return is_service(self.job, self.type)

    @property
    def scalable(self) -> bool:
        """Whether users may change its number of replicas."""
        return self.type in SCALABLE and self.job.kind != POD

    @property
    def most(self) -> int:
        """The number of replicas that it may be scaled to: the number of tasks of its vertex."""
        count = 1 if self.spec.replicas is None else self.spec.replicas
        tuning = self.job.tuning
        candidates = [one.replicas.get(self.type, 0) for one in tuning.candidates] if tuning is not None else [0]
        if not self.scalable:
            return max(count, 1, *candidates)
        elastic = self.job.elastic.max_replicas if self.job.elastic else None
        return max(MOST_REPLICAS, 2 * count, elastic or 0, *candidates)


def is_service(job: TrainingJob, type: str) -> bool:
    """Whether the replicas of a type live as long as others of their job."""
    return (job.kind, type) in SERVICES or job.replicas[type].restart_policy == ALWAYS


def groups_of(files: JobFile) -> Iterator[ReplicaGroup]:
    """Yield the replica groups of all jobs and plain pods, in the order of their kinds and files."""
    several = len(files.jobs) > 1
    for job in files.jobs:
        order = KINDS[job.kind].types
        for type in sorted(job.replicas, key=lambda name: (order.index(name) if name in order else len(order), name)):
            vertex = f"{job.name}.{type.lower()}" if several else type.lower()
            yield ReplicaGroup(vertex, job, type, job.replicas[type])
    for pod in files.pods:
        policy = pod.template.restart_policy or ALWAYS
        spec = ReplicaSpec(template=pod.template, replicas=1, restart_policy=policy)
        job = TrainingJob(kind=POD, name=pod.name, namespace=pod.namespace, replicas={POD: spec})
        yield ReplicaGroup(f"pod.{pod.name}", job, POD, spec)


def compile_jobs(
    files: JobFile,
    name: str,
    run: str,
    options: Mapping[str, Any],
    *,
    count_requests: bool = True,
    spread: bool = False,
) -> LogicalGraph:
    """Return the graph of the jobs of a file for a run. `options` go to the controller.

    Without `count_requests` no replica requests anything, and there are no gangs. With `spread` each replica takes a
    core of a cluster at least, since its processes run there, and each job is a gang.
    GraphError: names of jobs collide.
    """
    graph = LogicalGraph(
        name,
        frontend=FRONTEND,
        backoff=Backoff(at_once=True),
        controller=Manager(CONTROLLER, {"target": RECONCILE, "params": {**_described(files), **options}}),
    )
    groups = list(groups_of(files))
    asked: dict[str, Resources] = {}
    for group in groups:
        requests = requests_of(group.spec.template) if count_requests else Resources(cpu=0)
        asked[group.vertex] = placed(requests, spread=spread)
        graph.add_vertex(_vertex(group, run, asked[group.vertex], REMOTE_BODY if spread else BODY))
    for job in files.jobs:
        own = [group for group in groups if group.job is job]
        for service in own:
            for other in own:
                if service.is_service and not other.is_service:
                    edge = Edge(service.vertex, other.vertex, NONE, CONCURRENT, Storage.NONE)
                    graph.add_edge(edge)
        if job.tuning is not None:
            _add_tuner(graph, job, [group.vertex for group in own], run, several=len(files.jobs) > 1)
        if job.tuning is not None or not all(asked[group.vertex].light for group in own):
            graph.bubbles.append(Bubble(gang_name(job.name), tuple(group.vertex for group in own), whole=True))
    for group in groups:
        if group.job.kind == POD and not asked[group.vertex].light:
            graph.bubbles.append(Bubble(gang_name(group.vertex), (group.vertex,), whole=True))
    return graph


def _add_tuner(graph: LogicalGraph, job: TrainingJob, own: Sequence[str], run: str, *, several: bool) -> None:
    """Add the control vertex of a job, for whose event its replicas wait."""
    tuner = Vertex(
        f"{job.name}.tune" if several else "tune",
        Program(TUNER, {"run": run, "job": job.name}, style=Style.TASK),
        kind=VertexKind.SERVICE,
        resources=(Resources(cpu=0),),
    )
    graph.add_vertex(tuner)
    for vertex in own:
        graph.add_edge(Edge(tuner.id, vertex, NONE, Scheduling(True, Trigger.EVENT, event=TUNED), Storage.NONE))


def gang_name(job: str) -> str:
    """Return the id of the bubble of a job, or of the vertex of a plain pod."""
    return f"{job}.gang"


def _described(files: JobFile) -> dict[str, Any]:
    """Return the jobs as JSON for the controller; secrets stay out of the graph."""
    return {
        "groups": {group.vertex: [group.job.name, group.type] for group in groups_of(files)},
        "jobs": as_json(files.jobs),
        "pods": [pod.name for pod in files.pods],
    }


def as_json(value: object) -> Any:
    """Return records as plain lists and mappings."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _vertex(group: ReplicaGroup, run: str, requests: Resources, body: str) -> Vertex:
    return Vertex(
        group.vertex,
        Program(body, {"run": run, "job": group.job.name, "type": group.type}, style=Style.TASK),
        parallelism=Range(0, group.most),
        kind=VertexKind.SERVICE if group.is_service else VertexKind.FINITE,
        resources=(requests,),
        restart=RestartPolicy.NEVER if restarts_whole(group.job) else _RESTARTS.get(group.spec.restart_policy or NEVER),
        controlled=True,
    )


def requests_of(template: PodTemplate) -> Resources:
    """Return what a pod requests, its limits where it requests nothing: the sum of its containers."""
    total: dict[str, float] = {}
    for container in template.containers:
        for name in {**container.limits, **container.requests}:
            value = container.requests.get(name, container.limits.get(name, 0.0))
            short = _GPU if name.endswith(GPU_SUFFIX) else name
            total[short] = total.get(short, 0.0) + value
    return Resources(
        cpu=total.get("cpu", 0.0),
        memory=int(total.get("memory", 0.0)),
        gpu=int(total.get(_GPU, 0.0)),
        gpu_type=_gpu_type(template) if total.get(_GPU) else "",
    )


def placed(requests: Resources, *, spread: bool) -> Resources:
    """Return what a replica takes of this machine, or with `spread` of a cluster: there it is a core at least, and its
    memory is that of its machine, not of a store.
    """
    if not spread:
        return requests
    return Resources(cpu=max(1.0, requests.cpu), gpu=requests.gpu, gpu_type=requests.gpu_type)


def gpus_of(container: Container) -> int:
    """Return the number of GPUs of a container."""
    names = {name for name in (*container.limits, *container.requests) if name.endswith(GPU_SUFFIX)}
    return int(sum(container.requests.get(name, container.limits.get(name, 0.0)) for name in names))


def without_gpus(files: JobFile) -> JobFile:
    """Return jobs as if no container requested GPUs."""

    def cut(template: PodTemplate) -> PodTemplate:
        return replace(
            template,
            containers=tuple(map(_without, template.containers)),
            init_containers=tuple(map(_without, template.init_containers)),
        )

    jobs = []
    for job in files.jobs:
        specs = {type: replace(spec, template=cut(spec.template)) for type, spec in job.replicas.items()}
        jobs.append(replace(job, replicas=specs))
    pods = [replace(pod, template=cut(pod.template)) for pod in files.pods]
    return replace(files, jobs=tuple(jobs), pods=tuple(pods))


def _without(container: Container) -> Container:
    def cut(amounts: Mapping[str, float]) -> dict[str, float]:
        return {name: amount for name, amount in amounts.items() if not name.endswith(GPU_SUFFIX)}

    return replace(container, limits=cut(container.limits), requests=cut(container.requests))


def _gpu_type(template: PodTemplate) -> str:
    """Return the GPU type that a node selector asks for."""
    wanted = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "accelerator")
    return next((template.node_selector[label] for label in wanted if label in template.node_selector), "")
