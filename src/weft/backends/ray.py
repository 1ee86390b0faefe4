"""The nodes of a Ray cluster: one actor on each, which holds a node of Weft with its worker processes.

Ray gives a process on each machine, tells which machines are there, and ends the actors with the session. Everything
else (which worker runs which task, values, losses) is Weft's, by `weft.backends.cluster`. No task and no value passes
through Ray. The secret of the session reaches the actors as an argument, by Ray's own channel.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from weft._version import __version__
from weft.backends.cluster import Cluster, NodeAddress, NodeConnection
from weft.backends.scaling import Bundle, ScalingProvider, ScalingRequests
from weft.engine.machines.task import TaskState
from weft.engine.provider import NodeKind
from weft.model.errors import CapacityError, UsageError
from weft.model.resources import Resources
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.engine.ports import Shell
    from weft.engine.provider import Provider
    from weft.store.blocks import BlockManager

READY_S: Final = 60.0
"""Seconds within which the actor of a node must answer."""
CONNECT_S: Final = 5.0
"""Seconds within which the head of a cluster must accept a connection."""
LOOK_S: Final = 2.0
"""Seconds between two looks for nodes that have joined the cluster."""
_ACCELERATOR: Final = "accelerator_type:"
StartNode = Callable[..., Any]
"""Starts a node in this process: `weft.wiring.node.RunningNode`."""


class NodeFacts(NamedTuple):
    """What the actor of a node says about itself."""

    address: tuple[str, int]
    budget: int
    weft: str
    python: str


class NodeActor:
    """The actor on one machine: a node of Weft, until its session has ended."""

    def __init__(self, start: StartNode, options: dict[str, Any]) -> None:
        self._node = start(**options)

    def facts(self) -> NodeFacts:
        """Return the address of the node, its memory and the versions of its programs."""
        return NodeFacts(self._node.address, self._node.budget, __version__, platform.python_version())

    def end(self) -> None:
        """End the node, and wait until nothing is left of it."""
        self._node.end()


class RayNode(NamedTuple):
    """A machine of the cluster as Ray describes it."""

    id: str
    ip: str
    name: str
    resources: Resources
    workers: int


def machines(rows: Iterable[dict[str, Any]]) -> list[RayNode]:
    """Return the machines that are alive and have cores; two of one name are told apart by their ids."""
    alive = [node for node in rows if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    names = [node["NodeName"] for node in alive]
    found = []
    for node in alive:
        has, name = node["Resources"], node["NodeName"]
        kinds = [key.removeprefix(_ACCELERATOR) for key in has if key.startswith(_ACCELERATOR)]
        found.append(
            RayNode(
                node["NodeID"],
                node["NodeManagerAddress"],
                name if names.count(name) == 1 else f"{name}-{node['NodeID'][:6]}",
                Resources(cpu=has["CPU"], gpu=int(has.get("GPU", 0)), gpu_type=kinds[0] if kinds else ""),
                int(has["CPU"]),
            )
        )
    return found


def listed() -> list[dict[str, Any]]:
    """Return the machines of the cluster as Ray lists them."""
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return found


def draining() -> set[str]:
    """Return the ids of the machines that Ray drains: they are idle, or about to be taken away."""
    found: dict[str, int] = ray._private.state.state.get_draining_nodes()
    return set(found)


def kinds() -> list[NodeKind]:
    """Return the machines that the autoscaler of the cluster could add; none if it has no autoscaler."""
    config = ray._private.state.state.get_cluster_config()
    found = []
    for group in config.node_group_configs if config is not None else ():
        has = group.resources
        if has.get("CPU", 0) >= 1 and group.max_count:
            types = [key.removeprefix(_ACCELERATOR) for key in has if key.startswith(_ACCELERATOR)]
            resources = Resources(int(has["CPU"]), 0, int(has.get("GPU", 0)), types[0] if types else "")
            found.append(NodeKind(int(has["CPU"]), resources, limit=group.max_count if group.max_count > 0 else None))
    return found


def request(bundles: list[Bundle]) -> None:
    """Ask the autoscaler for room for bundles of resources, instead of what was asked before."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=bundles)


def connect(address: str | None) -> bool:
    """Connect this process to a Ray cluster; return whether it was not connected before.

    `address` is `host:port`, or None for that of `RAY_ADDRESS`, else of the cluster on this machine. UsageError: there
    is none, or its Ray or Python is of another version.
    """
    if ray.is_initialized():
        return False
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _knock(where)
        ray.init(address=where, logging_level=logging.ERROR)
    except OSError as error:
        raise UsageError(
            "there is no Ray cluster on this machine" if where == "auto" else f"no Ray cluster answers at {where}",
            hint="Start one (ray start --head), or name one: RAY_ADDRESS=host:6379",
        ) from error
    except RuntimeError as error:
        raise UsageError(
            f"this process cannot join the Ray cluster: {error}",
            hint="The versions of Python and Ray must be those of the cluster.",
        ) from error
    return True


def _knock(address: str) -> None:
    """Look whether anything listens at `host:port`, or, with `auto`, where the last cluster of this machine was.

    Ray itself waits minutes for a dead one. OSError: nothing does.
    """
    if address == "auto":
        noted = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
        address = noted.read_text(encoding="utf-8").strip() if noted.exists() else ""
    host, _, port = address.rpartition(":")
    if host and "/" not in address and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()


@contextmanager
def run_cluster(nodes: int, cpus: int) -> Iterator[str]:
    """Run a cluster of `nodes` nodes with `cpus` cores each on this machine, and yield its address.

    UsageError: a number below 1.
    """
    for name, number in (("nodes", nodes), ("cpus", cpus)):
        if number < 1:
            raise UsageError(f"a cluster has {name} from 1 on, not {number}")
    from ray.cluster_utils import Cluster as Machines

    logging.getLogger("ray").setLevel(logging.ERROR)
    local = Machines(initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            local.add_node(num_cpus=cpus)
        yield str(local.address)
    finally:
        local.shutdown()  # type: ignore[no-untyped-call]


class RayCluster(Cluster):
    """The machines of a Ray cluster as nodes. At most `workers` worker processes in all (None: one for each core).

    `start` starts a node in the process of an actor; `options` are its further parameters. Machines that join the
    cluster later become nodes, too, unless `workers` is given.
    """

    name = "ray"
    others_may_join = True

    def __init__(
        self,
        store: BlockManager,
        start: StartNode,
        *,
        workers: int | None = None,
        address: str | None = None,
        grace_s: float,
        window: int | None,
        options: dict[str, Any],
    ) -> None:
        self._connected = connect(address)
        self._start = start
        self._options = options | {"grace_s": grace_s, "window": window}
        self._most = workers
        self._actors: dict[str, Any] = {}
        self._ids: dict[tuple[str, int], str] = {}
        """The id of the machine of each node, by its address."""
        self._scaling: ScalingRequests | None = None
        if workers is None and (could := kinds()):
            self._scaling = ScalingRequests(could, request, self._plain)
        self._ending = threading.Event()
        self._looks = threading.Thread(target=self._look, name="weft-ray", daemon=True)
        secret = os.urandom(32)
        try:
            nodes = self._begin(self._chosen(), secret)
        except BaseException:
            self._end_actors()
            raise
        super().__init__(nodes, secret, store, grace_s=grace_s, window=window)

    def _chosen(self) -> list[RayNode]:
        """Return the machines to use, with the number of workers of each. CapacityError: there is none."""
        found = machines(listed())
        if self._most is not None:
            left, chosen = self._most, []
            for place, node in enumerate(found):
                share = min(node.workers, -(-left // (len(found) - place)))
                left -= share
                chosen.append(node._replace(workers=share))
            found = [node for node in chosen if node.workers]
        if not found:
            raise CapacityError(
                "no machine of the Ray cluster has a core", hint="Add one: ray start --address=HOST:6379 --num-cpus=4"
            )
        return found

    def _begin(self, found: list[RayNode], secret: bytes) -> list[NodeAddress]:
        """Start an actor on each machine and return their nodes. CapacityError: one does not answer in time."""
        for node in found:
            options = self._options | {"secret": secret, "workers": node.workers, "host": node.ip}
            actor = ray.remote(NodeActor).options(
                num_cpus=node.workers,
                num_gpus=node.resources.gpu,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
                max_concurrency=2,
            )
            self._actors[node.id] = actor.remote(self._start, options)
        answers = [self._actors[node.id].facts.remote() for node in found]
        _, missing = ray.wait(answers, num_returns=len(answers), timeout=READY_S)
        if missing:
            names = [node.name for node, answer in zip(found, answers, strict=True) if answer in missing]
            raise CapacityError(
                f"{counted(len(missing), 'machine')} of the Ray cluster did not start a worker within {READY_S:g} s: "
                + ", ".join(names),
                hint="Their cores may be taken by other jobs; see `ray status`.",
            )
        pairs = zip(found, answers, strict=True)
        told = [(node, facts) for node, answer in pairs if (facts := self._facts(node, answer)) is not None]
        if not told:
            raise CapacityError("all machines of the Ray cluster were lost meanwhile", hint="See `ray status`.")
        for node, one in told:
            if one.weft != __version__:
                raise UsageError(
                    f"machine {node.name} has Weft {one.weft}, and this process has Weft {__version__}",
                    hint="Install the same version on all machines.",
                )
        self._ids |= {(one.address[0], one.address[1]): node.id for node, one in told}
        return [
            NodeAddress(
                (one.address[0], one.address[1]),
                node.workers,
                node.name,
                Resources(node.workers, one.budget, node.resources.gpu, node.resources.gpu_type),
            )
            for node, one in told
        ]

    def _facts(self, node: RayNode, answer: Any) -> NodeFacts | None:
        """Return what the actor of a machine says about itself, None if the machine was lost meanwhile."""
        try:
            return NodeFacts(*ray.get(answer))
        except ray.exceptions.RayActorError as error:
            if isinstance(error, ray.exceptions.ActorDiedError) and "__init__" in str(error):
                raise CapacityError(f"no node can be started on machine {node.name}: {error}") from error
            del self._actors[node.id]
            return None

    def attach(self, loop: Shell) -> None:
        """See `Executor.attach`."""
        super().attach(loop)
        self._looks.start()

    @property
    def provider(self) -> Provider:
        """See `Executor.provider`."""
        if self._scaling is None:
            return super().provider
        return ScalingProvider(self.present(), self._drained, self._scaling)

    def _look(self) -> None:
        """Follow the machines of the cluster."""
        while not self._ending.wait(LOOK_S):
            with suppress(Exception):  # the cluster may be gone: the loss of its nodes is reported by their links
                self.look(draining())

    def look(self, leaving: set[str]) -> None:
        """Leave machines that drain, by their ids, use those that have joined, and ask for more if tasks wait."""
        for node in list(self._nodes.values()):
            if self._ids.get(node.about.address) in leaving:
                self.drain(node.number, f"Ray drains {node.about.name}")
        if self._most is None:
            fresh = [node for node in machines(listed()) if node.id not in self._actors and node.id not in leaving]
            for machine in fresh:
                for about in self._begin([machine], self._secret):
                    self.join(about)
        if self._scaling is not None:
            there = [node for node in self._nodes.values() if not (node.dead or node.leaves)]
            has = [(node.about.workers, node.about.resources) for node in there]
            self._scaling.tell([Resources(workers, 0, one.gpu, one.gpu_type) for workers, one in has])

    def _plain(self) -> int:
        """Return the number of tasks that are ready and have not started."""
        jobs = list(self.loop.jobs.values())
        rows = [row for job in jobs if job.built for row in job.inspector.vertices]
        ready = sum(bytes(row.state).count(TaskState.READY) for row in rows)
        return ready + sum(not job.built for job in jobs)  # one that waits for its first turn has a task at least

    def left(self, node: NodeConnection) -> None:
        """See `Cluster.left`: its actor holds the cores of the machine."""
        super().left(node)
        with suppress(Exception):  # its machine may be gone
            ray.kill(self._actors[self._ids[node.about.address]])

    def close(self) -> None:
        """See `Executor.close`."""
        self._ending.set()
        super().close()
        if self._scaling is not None:
            with suppress(Exception):  # the cluster may be gone
                self._scaling.withdraw()
        self._end_actors()

    def _end_actors(self) -> None:
        for actor in self._actors.values():
            with suppress(Exception):  # its machine may be gone
                ray.kill(actor)
        self._actors.clear()
        if self._connected:
            self._connected = False
            ray.shutdown()
