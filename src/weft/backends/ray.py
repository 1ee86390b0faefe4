"""The nodes of a Ray cluster: one actor on each, which holds a node of Weft with its worker processes.

Ray gives a process on each machine, tells which machines are there, and ends the actors with the session. Everything
else (which worker runs which task, values, losses) is Weft's, by `weft.backends.cluster`. No task and no value passes
through Ray. The secret of the session reaches the actors as an argument, by Ray's own channel. If that is encrypted,
Weft's connections are, too, by the files of Ray on each machine.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import ray
from msgspec.structs import replace
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from weft._version import __version__
from weft.backends.cluster import Cluster
from weft.backends.cluster_nodes import NodeAddress, NodeConnection, NodeNetwork
from weft.backends.ray_client import ClientRelay, by_client
from weft.backends.ray_connecting import (
    AUTH_MODE,
    LACKS,
    QUIET_S,
    START_S,
    asks_for_token,
    connect,
    disconnect,
    tls_files,
    told,
)
from weft.backends.ray_environments import failure, packages
from weft.backends.ray_places import LOOK_S, RayReservation
from weft.backends.ray_prints import are_printed, print_marks, wait_for_marks
from weft.backends.scaling import ACCELERATOR, BUNDLES, Bundle, ScalingProvider, ScalingRequests, bundle
from weft.engine.machines.task import TaskState
from weft.engine.provider import NodeKind
from weft.model.clusters import ClusterOptions
from weft.model.errors import CapacityError, UsageError, WeftError
from weft.model.resources import Resources
from weft.model.wording import counted
from weft.store.handshake import Credentials

if TYPE_CHECKING:
    from weft.engine.ports import Shell
    from weft.engine.provider import Provider
    from weft.store.blocks import BlockManager
    from weft.worker.actor_gateway import PlainEntrance

INSTALL_S: Final = 1800.0
"""Seconds within which Ray must have made the environment of a session on a machine."""
INSTALL_QUIET_S: Final = 5.0
"""Seconds until it is told that packages are installed."""
_LEAVING_S: Final = 15.0
"""Seconds that an actor outlives its node, unless Ray ends it before."""
_OWN: Final = ("CPU", "GPU", "memory", "object_store_memory")
_OF_RAY: Final = re.compile(rf"{ACCELERATOR}|node:|.*_group_(\d+_)?[0-9a-f]{{32,}}$")
"""The names of Ray's own resources, and the pattern of others: machines, their GPUs, and parts of placement groups."""
_FOLDER: Final = "RAY_TMPDIR"
_LOOK_ENDS_S: Final = 15.0
"""Seconds at the end of a session for a look at the cluster that has begun."""
_NUDGE_S: Final = 10.0
"""Seconds until a machine whose actor has not begun gets something to do."""
_PRINTS_S: Final = 3.0
"""Seconds at the end of a session for the last lines that tasks have printed."""
_ENVIRONMENTS: Final = "runtime_resources"
"""The folder of a node for the environments of sessions, in the folder that the nodes of one machine share."""
_HEAD: Final = "node:__internal_head__"
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
        self._fault: WeftError | None = None
        try:
            self._node = start(tls=tls_files(os.environ), **options)
        except WeftError as error:
            self._fault = error
        else:
            threading.Thread(target=self._leave, daemon=True).start()

    def _leave(self) -> None:
        """End this process when its session has ended: Ray does not, once its own process of the machine is dead."""
        self._node.wait()
        time.sleep(_LEAVING_S)
        os._exit(0)

    def facts(self) -> NodeFacts:
        """Return the address of the node, its memory and the versions of its programs. WeftError: it has no node."""
        if self._fault is not None:
            raise self._fault
        return NodeFacts(self._node.address, self._node.budget, __version__, platform.python_version())

    def end(self) -> None:
        """End the node, and wait until nothing is left of it."""
        self._node.end()

    def end_prints(self, name: str) -> str:
        """Print the mark of the actor once its node has ended; return its name."""
        self._node.wait()
        print_marks(name)
        return name


class RayNode(NamedTuple):
    """A machine of the cluster as Ray describes it."""

    id: str
    ip: str
    name: str
    resources: Resources
    workers: int

    @property
    def wanted(self) -> Resources:
        """What a session takes of it."""
        return replace(self.resources, cpu=self.workers, memory=0)


def machines(rows: Iterable[dict[str, Any]]) -> list[RayNode]:
    """Return the machines that are alive and have cores; two of one name are told apart by their ids."""
    alive = [node for node in rows if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    names = [node["NodeName"] for node in alive]
    found = []
    for node in alive:
        has, name = node["Resources"], node["NodeName"]
        found.append(
            RayNode(
                node["NodeID"],
                node["NodeManagerAddress"],
                name if names.count(name) == 1 else f"{name}-{node['NodeID'][:6]}",
                _resources(has["CPU"], has),
                int(has["CPU"]),
            )
        )
    return found


def _resources(cores: float, has: Mapping[str, float]) -> Resources:
    """Return the resources of a machine with so many cores; Ray counts its others in `has`."""
    types = [key.removeprefix(ACCELERATOR) for key in has if key.startswith(ACCELERATOR)]
    custom = tuple(sorted((key, float(n)) for key, n in has.items() if key not in _OWN and not _OF_RAY.match(key)))
    return Resources(cores, gpu=int(has.get("GPU", 0)), gpu_type=types[0] if types else "", custom=custom)


def listed() -> list[dict[str, Any]]:
    """Return the machines of the cluster as Ray lists them."""
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return found


def near_head() -> Any:
    """Return the place of an actor at the head of the cluster, or elsewhere if that cannot be."""
    head = next((node["NodeID"] for node in listed() if node["Alive"] and _HEAD in node["Resources"]), None)
    return "DEFAULT" if head is None else NodeAffinitySchedulingStrategy(head, soft=True)


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
            cores = int(has["CPU"])
            found.append(
                NodeKind(cores, _resources(cores, has), limit=group.max_count if group.max_count > 0 else None)
            )
    return found


def request(bundles: list[Bundle]) -> None:
    """Ask the autoscaler for room for bundles of resources, instead of what was asked before."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=bundles)


def made() -> None:
    """Do nothing, in the environment of a session: its task ends when Ray has made that."""


class ClusterToTry:
    """A Ray cluster that `run_cluster` runs on this machine.

    `variables` are those of the environment of who connects with it by its address.
    """

    def __init__(self, head: Any, variables: dict[str, str]) -> None:
        self._head = head
        self.variables = variables

    def check(self) -> None:
        """CapacityError: a process without which there is no cluster has ended."""
        for of, status in self.ended().items():
            raise CapacityError(
                f"the Ray cluster has ended: its process {of} has, with exit status {status}",
                hint=_last_words(Path(self._head.get_logs_dir_path()), of),
            )

    def ended(self) -> dict[str, int]:
        """Return the exit status of each such process that has ended."""
        return {of: process.returncode for of, process in self._head.dead_processes() if of in _OF_A_HEAD}


_OF_A_HEAD: Final = ("gcs_server", "raylet")


def _last_words(logs: Path, of: str) -> str:
    """Return what a process of Ray has logged last, for a hint; empty if that is nothing."""
    for path in (logs / f"{of}.err", logs / f"{of}.out"):
        with suppress(OSError):
            lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                return f"The last line of its log: {lines[-1][:400]}"
    return ""


def _not_started(error: Exception) -> CapacityError:
    """Return the error of a cluster that Ray has not started."""
    logs = _address_file().with_name("session_latest") / "logs"
    hint = _last_words(logs, "gcs_server") or f"Ray's logs are in {logs}."
    if "AF_UNIX path length" in str(error):
        hint = "Set RAY_TMPDIR to a folder with a shorter path: names of sockets have 107 bytes at most."
    elif isinstance(error, OSError):
        hint = "Set RAY_TMPDIR to a folder that exists and that you may write to."
    return CapacityError(f"the Ray cluster cannot be started: {type(error).__name__}: {error}", hint=hint)


@contextmanager
def run_cluster(nodes: int, cpus: int) -> Iterator[ClusterToTry]:
    """Run a cluster of `nodes` nodes with `cpus` cores each on this machine.

    It asks for the token of Ray if this user has one, as clusters of `ray start` do: who connects with the cluster of
    this machine shows the token then. Its folder, with the logs of Ray and the environments of sessions, is removed at
    the end. UsageError: a number below 1. ForbiddenError: the environment asks for a token that cannot be found.
    CapacityError: Ray does not start it.
    """
    for name, number in (("nodes", nodes), ("cpus", cpus)):
        if number < 1:
            raise UsageError(f"a cluster has {name} from 1 on, not {number}")
    from ray.cluster_utils import Cluster as Machines

    logging.getLogger("ray").setLevel(logging.ERROR)
    asks = asks_for_token()
    own = _own_folder()
    try:
        local = Machines(initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False})
    except BaseException as error:
        told = _not_started(error) if isinstance(error, Exception) else None
        _remove(own)
        if told is not None:
            raise told from error
        raise
    head: Any = local.head_node
    folder = Path(head.get_session_dir_path())
    found = ClusterToTry(head, {"RAY_ADDRESS": str(local.address)} | ({AUTH_MODE: "token"} if asks else {}))
    try:
        try:
            for number in range(1, nodes):
                # Each node makes the environments of sessions, and one makes nothing where another one is at it.
                local.add_node(num_cpus=cpus, runtime_env_dir_name=f"{_ENVIRONMENTS}_{number}")
        except Exception as error:
            found.check()
            raise _not_started(error) from error
        yield found
    finally:
        local.shutdown()  # type: ignore[no-untyped-call]
        shutil.rmtree(folder, ignore_errors=True)
        latest = folder.parent / "session_latest"
        if latest.is_symlink() and not latest.exists():
            latest.unlink(missing_ok=True)
        _remove(own)


def _address_file() -> Path:
    """Return the file in Ray's folder with the address of the cluster of this machine."""
    return Path(ray._private.utils.get_ray_address_file(None))  # type: ignore[attr-defined]


def _own_folder() -> Path | None:
    """Have Ray use a new folder, and return it, if that for all users has files of another one; else return None."""
    shared = _address_file()
    if os.access(shared if shared.exists() else next(up for up in shared.parents if up.exists()), os.W_OK):
        return None
    own = Path(tempfile.mkdtemp(prefix="weft-ray-"))  # sockets have short paths
    os.environ[_FOLDER] = str(own)
    return own


def _remove(own: Path | None) -> None:
    if own is not None:
        del os.environ[_FOLDER]
        shutil.rmtree(own, ignore_errors=True)


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
        cluster: ClusterOptions | None = None,
        grace_s: float,
        window: int | None,
        options: dict[str, Any],
    ) -> None:
        tls = tls_files(os.environ)
        self._wanted = cluster or ClusterOptions()
        if ray.is_initialized() and (self._wanted.address is not None or self._wanted.working_dir is not None):
            raise UsageError(
                "this process is connected with a Ray cluster already, so that the session can choose none",
                hint="Leave ray.init to the session, or give it the address and runtime_env={'working_dir': ...}.",
            )
        self._packages = packages(self._wanted)
        self._connected = connect(self._wanted, tls)
        self._start = start
        self._actors: dict[str, Any] = {}
        self._reservation: RayReservation | None = None
        self._relay: ClientRelay | None = None
        """The way to the nodes, if Ray's client is all that reaches the cluster."""
        try:
            self._relay = ClientRelay(near_head()) if by_client() else None
            could = self._at_cluster(kinds) if workers is None else []
        except BaseException:
            self._end_actors()
            raise
        own = bool(self._packages) or self._wanted.working_dir is not None
        self._options = options | {"grace_s": grace_s, "window": window, "own_first": own}
        self._most = workers
        self._why = ""
        """Why the last actor that was lost before its node began has ended, by Ray."""
        self._ids: dict[tuple[str, int], str] = {}
        """The id of the machine of each node, by its address."""
        self._scaling: ScalingRequests | None = None
        if could:
            self._scaling = ScalingRequests(could, partial(self._at_cluster, request), self._plain)
        self._ending = threading.Event()
        self._looks = threading.Thread(target=self._look, name="weft-ray", daemon=True)
        self._secret = secret = os.urandom(32)
        self._bundles: dict[int, RayNode] = {}
        try:
            nodes = self._begin(self._reserved(dict(enumerate(self._reserve()))))
        except BaseException:
            self._end_actors()
            raise
        network = None if self._relay is None else NodeNetwork(Credentials(secret, tls), self._relay.dial)
        super().__init__(nodes, secret, store, tls=tls, grace_s=grace_s, window=window, network=network)

    def _at_cluster(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of this module where Ray answers all questions, which it does not by its client."""
        return function(*arguments) if self._relay is None else self._relay.call(function, *arguments)

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

    def _ask_for_the_first(self) -> None:
        """Ask the autoscaler for a machine if there is none with a core, and wait for it."""
        if machines(listed()) or not self._at_cluster(kinds):
            return
        sys.stderr.write("weft: no machine of the Ray cluster has a core; its autoscaler is asked for one\n")
        self._at_cluster(request, [bundle(Resources())] * min(self._most or 1, BUNDLES))
        try:
            while not machines(listed()):
                self._ending.wait(LOOK_S)
        finally:
            self._at_cluster(request, [])

    def _reserve(self) -> list[RayNode]:
        """Wait until the cores of the machines to use are free, and return what was asked for, one for each bundle."""
        self._ask_for_the_first()
        while True:
            chosen = self._chosen()
            self._reservation = RayReservation([node.wanted for node in chosen])
            if self._reservation.wait(lambda: self._chosen() == chosen):  # noqa: B023 - called in this round only
                return chosen
            self._reservation.release()  # a machine has come or gone

    def _reserved(self, wanted: Mapping[int, RayNode], leaving: Collection[str] = ()) -> list[tuple[RayNode, Any]]:
        """Return the machines that were found for bundles since the last call, each with the place of its actor.

        `wanted` has the workers of each bundle.
        """
        assert self._reservation is not None
        there = {node.id: node for node in machines(listed()) if node.id not in leaving}
        found = []
        for number, id in self._reservation.machines().items():
            before = self._bundles.get(number)
            if id in there and (before is None or before.id != id):
                self._bundles[number] = node = there[id]._replace(workers=wanted[number].workers)
                found.append((node, self._reservation.bundle(number)))
        return found

    def _begin(self, found: Sequence[tuple[RayNode, Any]]) -> list[NodeAddress]:
        """Start an actor on each machine and return their nodes. CapacityError: one does not answer in time."""
        if self._packages:
            self._install([node for node, _ in found])
        ips = [node.ip for node in machines(listed())]
        for node, place in found:
            options = self._options | {"secret": self._secret, "workers": node.workers, "host": node.ip}
            options["shares"] = max(1, ips.count(node.ip))
            actor = ray.remote(NodeActor).options(
                num_cpus=node.workers,
                num_gpus=node.resources.gpu,
                resources=dict(node.resources.custom),
                scheduling_strategy=place,
                max_concurrency=2,
                runtime_env=self._packages,
            )
            self._actors[node.id] = actor.remote(self._start, options)
        return self._answers([node for node, _ in found])

    def _answers(self, found: Sequence[RayNode]) -> list[NodeAddress]:
        """Return the nodes of actors that have been started."""
        answers = [self._actors[node.id].facts.remote() for node in found]
        starting = f"the Ray cluster starts workers at {counted(len(found), 'machine')}"
        with told(f"{starting}: {', '.join(node.name for node in found)}", QUIET_S):
            missing = self._awaited(found, answers)
        if missing:
            names = [node.name for node, answer in zip(found, answers, strict=True) if answer in missing]
            raise CapacityError(
                f"{counted(len(missing), 'machine')} of the Ray cluster did not start a worker within {START_S:g} s: "
                + ", ".join(names),
                hint="See `ray status`, and the logs of Ray there.",
            )
        pairs = zip(found, answers, strict=True)
        begun = [(node, facts) for node, answer in pairs if (facts := self._facts(node, answer)) is not None]
        if not begun:
            raise CapacityError(
                f"no machine of the Ray cluster has started a node: {self._why}", hint="See `ray status`."
            )
        for node, one in begun:
            if one.weft != __version__:
                raise UsageError(
                    f"machine {node.name} has Weft {one.weft}, and this process has Weft {__version__}",
                    hint="Install the same version on all machines.",
                )
        self._ids |= {(one.address[0], one.address[1]): node.id for node, one in begun}
        return [
            NodeAddress(
                (one.address[0], one.address[1]),
                node.workers,
                node.name,
                replace(node.resources, cpu=node.workers, memory=one.budget),
            )
            for node, one in begun
        ]

    def _awaited(self, found: Sequence[RayNode], answers: Sequence[Any]) -> list[Any]:
        """Wait for answers of actors, each at its machine, and return those that do not come in time.

        A machine that has just joined, or has taken over the part of a lost one, may look at its queue only when
        something else arrives there: so machines that do not answer get a task that does nothing.
        """
        end, missing = time.monotonic() + START_S, list(answers)
        nudges: list[Any] = []
        while missing and (left := end - time.monotonic()) > 0:
            _, missing = ray.wait(missing, num_returns=len(missing), timeout=min(_NUDGE_S, left))
            late = [node for node, answer in zip(found, answers, strict=True) if answer in missing]
            if not nudges:
                nudges = [self._make_at(node, soft=True) for node in late]
        return missing

    def _make_at(self, node: RayNode, *, soft: bool) -> Any:
        """Begin a task that does nothing at a machine, in the environment of the session; `soft`: or at another."""
        place = NodeAffinitySchedulingStrategy(node.id, soft=soft)
        return (
            ray.remote(made)
            .options(num_cpus=0, max_retries=0, scheduling_strategy=place, runtime_env=self._packages)
            .remote()
        )

    def _install(self, found: list[RayNode]) -> None:
        """Have Ray make the environment on each machine.

        UsageError: it cannot, by the file. CapacityError: it cannot, or takes too long.
        """
        at = counted(len(found), "machine")
        begun = {self._make_at(node, soft=False): node for node in found}
        with told(f"the packages of {self._wanted.requirements} are installed at {at}", INSTALL_QUIET_S):
            _, missing = ray.wait([*begun], num_returns=len(begun), timeout=INSTALL_S)
        if missing:
            names = ", ".join(begun[answer].name for answer in missing)
            raise CapacityError(
                f"the packages of {self._wanted.requirements} were not installed within {INSTALL_S:g} s on {names}",
                hint="See runtime_env_setup*.log of Ray there.",
            )
        for answer, node in begun.items():
            try:
                ray.get(answer)
            except ray.exceptions.RuntimeEnvSetupError as error:
                raise failure(self._wanted, node.name, str(error)) from None
            except ray.exceptions.RayError:
                continue  # the machine was lost meanwhile, or has no Weft: its actor meets the same

    def _facts(self, node: RayNode, answer: Any) -> NodeFacts | None:
        """Return what the actor of a machine says about itself, None if the machine was lost meanwhile."""
        try:
            return NodeFacts(*ray.get(answer))
        except WeftError as error:
            cause = getattr(error, "cause", error)  # Ray adds its own class and a traceback
            raise CapacityError(f"no node can be started on machine {node.name}: {cause}", hint=cause.hint) from None
        except ray.exceptions.RayActorError as error:
            if lacks := LACKS.search(str(error)):
                raise UsageError(
                    f"machine {node.name} of the Ray cluster has no module {lacks[1]}",
                    hint="Install what is installed here into the environment of Ray there: pip install 'weft[ray]'; "
                    "or name it in the requirements file of the session.",
                ) from None
            if isinstance(error, ray.exceptions.ActorDiedError) and "__init__" in str(error):
                raise CapacityError(f"no node can be started on machine {node.name}: {error}") from error
            self._why = " ".join(str(error).split())
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
        return ScalingProvider(self.present(), self.draining.drained, self._scaling)

    def _look(self) -> None:
        """Follow the machines of the cluster."""
        while not self._ending.wait(LOOK_S):
            if self._relay is not None and self._relay.lost:
                self.give_up(self._relay.lost)
                return
            with suppress(Exception):  # the cluster may be gone: the loss of its nodes is reported by their links
                self.look(self._at_cluster(draining))

    def look(self, leaving: set[str]) -> None:
        """Leave machines that drain, by their ids, use others, and ask for more if tasks wait.

        Others are machines that take the places of lost ones, and unless the number of workers is given, all that join.
        """
        for node in list(self._nodes.values()):
            if self._ids.get(node.about.address) in leaving:
                self.drain(node.number, f"Ray drains {node.about.name}")
        for node_and_place in [*self._reserved(self._bundles, leaving), *self._joined(leaving)]:
            if self._ending.is_set():
                return
            self._use(*node_and_place)
        if self._scaling is not None:
            there = [node for node in self._nodes.values() if not (node.dead or node.leaves)]
            has = [(node.about.workers, node.about.resources) for node in there]
            self._scaling.tell([replace(one, cpu=workers, memory=0) for workers, one in has])

    def _use(self, node: RayNode, place: Any) -> None:
        """Use a machine that has joined. One that cannot be used gets its cores back, and the reason is printed."""
        try:
            for about in self._begin([(node, place)]):
                self.join(about)
        except WeftError as error:
            sys.stderr.write(f"weft: machine {node.name} of the Ray cluster is not used: {error}\n")
            with suppress(Exception):  # it may be gone
                ray.kill(self._actors[node.id])

    def _joined(self, leaving: Collection[str]) -> Iterator[tuple[RayNode, Any]]:
        """Yield machines that have joined, but none that will take the place of a lost one."""
        there = machines(listed())
        alive = {node.id for node in there}
        vacant = [node for node in self._bundles.values() if node.id not in alive]
        for node in there if self._most is None else ():
            if node.id not in {*self._actors, *leaving} and not any(node.workers >= lost.workers for lost in vacant):
                yield node, NodeAffinitySchedulingStrategy(node.id, soft=False)

    def _plain(self) -> int:
        """Return the number of tasks that are ready and have not started."""
        jobs = list(self.loop.jobs.values())
        rows = [row for job in jobs if job.built for row in job.inspector.vertices]
        ready = sum(bytes(row.state).count(TaskState.READY) for row in rows)
        return ready + sum(not job.built for job in jobs)  # one that waits for its first turn has a task at least

    def _entrance(self) -> PlainEntrance:
        return super()._entrance() if self._relay is None else self._relay.entrance

    def left(self, node: NodeConnection) -> None:
        """See `Cluster.left`: its actor holds the cores of the machine."""
        super().left(node)
        with suppress(Exception):  # its machine may be gone
            ray.kill(self._actors[self._ids[node.about.address]])

    def close(self) -> None:
        """See `Executor.close`."""
        self._ending.set()
        super().close()
        if self._looks.is_alive():  # Ray connects a process again that asks it after the end
            self._looks.join(_LOOK_ENDS_S)
        if self._scaling is not None:
            with suppress(Exception):  # the cluster may be gone
                self._scaling.withdraw()
        if self._connected and are_printed():
            with suppress(Exception):  # the cluster may be gone
                self._wait_for_prints()
        self._end_actors()

    def _wait_for_prints(self) -> None:
        """Wait for the last lines that tasks have printed, a little while."""
        end = time.monotonic() + _PRINTS_S
        alive = [self._actors[self._ids[node.about.address]] for node in self._nodes.values() if not node.dead]
        asked = [actor.end_prints.remote(os.urandom(8).hex()) for actor in alive]
        there, _ = ray.wait(asked, num_returns=len(asked), timeout=_PRINTS_S) if asked else ([], [])
        names = []
        for answer in there:
            with suppress(ray.exceptions.RayError):
                names.append(ray.get(answer))
        wait_for_marks(names, end - time.monotonic())

    def _end_actors(self) -> None:
        for actor in self._actors.values():
            with suppress(Exception):  # its machine may be gone
                ray.kill(actor)
        self._actors.clear()
        if self._reservation is not None:
            self._reservation.release()
        if self._relay is not None:
            self._relay.close()
        if self._connected:
            self._connected = False
            disconnect()
