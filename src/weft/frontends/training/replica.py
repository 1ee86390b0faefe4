"""The body of a replica on this machine: its containers as commands under guardians, or in their images by an engine.

Volumes and environment are made, init containers run one after the other, then the containers run together. The end of
the container with the training is the end of the replica; the others are stopped then. Source: pods of Kubernetes
core/v1.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from weft.frontends.training.compiler import gpus_of
from weft.frontends.training.lacks import TEMPORARY, covers, start_folder
from weft.frontends.training.lifecycle import ContainerLife, execute
from weft.frontends.training.log_folders import LOGDIR, LogPlace, option_folders
from weft.frontends.training.memory import MemoryPlace, used_bytes
from weft.frontends.training.metrics import FOLDER, SUFFIX
from weft.frontends.training.quantities import shown_quantity
from weft.frontends.training.reporting import CHECKPOINTS, FUNCTION, METRICS, RESTARTS, RESUMED, VALUE
from weft.frontends.training.schema import ALWAYS, ON_FAILURE, Container, PodTemplate
from weft.frontends.training.surroundings import inherited_of
from weft.frontends.training.volumes import VolumePlaces, make_volumes, mounts_of, remove_volumes
from weft.graph.task import pass_gate, prepares
from weft.model.errors import DiskFullError, InternalError, RunCancelledError, TaskError
from weft.model.ids import loop_item, task_name
from weft.operators.call import CommandResult, CommandSpec, failure_of, run_guarded
from weft.operators.devices import VISIBLE, device_variables
from weft.operators.mounts import BindMount, MountNamespace, make_mount_points, plan
from weft.operators.tensorboard import FOLDER as LOGS_FOLDER
from weft.store.folders import remove_folder
from weft.store.state import log_stem

if TYPE_CHECKING:
    from weft.frontends.training.images import ImageRecipe
    from weft.frontends.training.lifecycle import TakeEnd
    from weft.frontends.training.memory import MemoryVolumes
    from weft.frontends.training.opened_reports import OpenedReports
    from weft.frontends.training.schema import ContainerProbe, FileItem, JobFile
    from weft.frontends.training.surroundings import StepSurroundings
    from weft.graph.task import TaskContext, TaskInput
    from weft.operators.call import StopCommand
    from weft.operators.network import ReplicaPlace

_START_S: Final = 5.0
"""The seconds that the program of a probe may take to start, beside the timeout of the probe."""
_ENGINE_LOOK_S: Final = 0.05
_VOLUME_LOOK_S: Final = 1.0
"""The seconds between two measurements of volumes with a limit."""
_EVICTION_GRACE_S: Final = 1.0
_FIRST_DELAY_S: Final = 1.0
_LONGEST_DELAY_S: Final = 60.0
"""The pause before the second start of a sidecar, doubled for each further one up to the longest."""
REPLICA: Final = "WEFT_REPLICA"
"""The variable with the name of a replica."""
FUNCTION_FILE: Final = "function.pickle"
VALUES: Final = "values"
PACKAGES: Final = ".python"
PACKAGE: Final = Path(__file__).parents[2]
"""The pickled function and the folder of its values in the folder of a run; the folder of packages beside the pods;
the folder of Weft, which replicas import in environments of their own.
"""
_OWN_PREFIXES: Final = ("WEFT_", "PET_", "PADDLE_", "DMLC_", "OMPI_", "PMIX_", "COORDINATOR_", "JAX_")
_OWN: Final = frozenset(
    [
        "HOSTNAME",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NUM_PROCESSES",
        "PROCESS_ID",
        "RANK",
        "TF_CONFIG",
        "WORKER_ADDRS",
        "WORKER_PORT",
        "WORLD_SIZE",
    ]
)
"""Variables that tell a process its place in a job: those of the user's shell must not reach a replica."""
_WRITTEN: Final = frozenset({"empty", "memory", "claim", "host"})
"""The kinds of volumes that programs write to."""


class ReplicaHost(Protocol):
    """The run of a job on this machine, as its replicas need it."""

    @property
    def files(self) -> JobFile:
        """All documents of the job file."""
        ...

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        ...

    @property
    def records(self) -> Path:
        """The folder of the records of processes."""
        ...

    @property
    def measures(self) -> bool:
        """Whether later runs want to know what replicas use."""
        ...

    @property
    def base(self) -> Path:
        """The folder of the job file."""
        ...

    @property
    def memory(self) -> MemoryVolumes:
        """The volumes in memory of all replicas."""
        ...

    def claims_of(self, namespace: str) -> Path:
        """Return the folder of the persistent volume claims of a namespace."""
        ...

    @property
    def step(self) -> StepSurroundings | None:
        """What the step of a pipeline gives to the replicas; None outside of one."""
        ...

    def recipe(self, replica: Replica, container: Container) -> ImageRecipe:
        """Return what stands for the image of a container."""
        ...

    def environment(self, replica: Replica, container: Container) -> tuple[dict[str, str], Sequence[str]]:
        """Return the variables of a container as a cluster would give them, and the texts that its log must mask."""
        ...

    def words(
        self, replica: Replica, container: Container, words: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """Return the words of a container with `$(NAME)` replaced, and with what else this machine needs."""
        ...

    def fact(self, replica: Replica, item: FileItem) -> str:
        """Return the text of a file of the downward API."""
        ...

    def devices(self, worker: int) -> Sequence[str] | None:
        """Return the GPUs of a slot; None if no replica of the run requests any."""
        ...

    def place(self, replica: Replica) -> ReplicaPlace:
        """Return the namespaces and further mounts of a replica; called just before each start."""
        ...

    def follow(self, key: tuple[str, int], replica: Replica, places: Iterable[LogPlace]) -> None:
        """Follow the event files in the log folders of a replica that starts."""
        ...

    def collect(self, key: tuple[str, int]) -> None:
        """Read what an ended replica has left in the log folders that belong to it alone."""
        ...

    def listens_at(self, replica: Replica, port: int) -> Sequence[tuple[str, int]]:
        """Return the addresses and ports at which a replica may listen in place of a port of its own."""
        ...

    def note_usage(self, vertex: str, index: int, cpu_s: float, memory: int) -> None:
        """Take what a container of a replica has used: seconds of processor time, and the most bytes of a process."""
        ...

    def why_failed(self, replica: Replica) -> str:
        """Return why an ended replica could not use its network, "" if it could."""
        ...

    def note_ready(self, replica: Replica, why_not: str) -> None:
        """Take why a replica is not ready, "" if it is."""
        ...

    def note_event(self, replica: Replica, at: float, reason: str, message: str) -> None:
        """Take a warning about a replica for the user; `at` is in seconds since 1970."""
        ...


class Replica(Struct, frozen=True, kw_only=True):
    """One replica of a job: its names, what it runs, and `main`, the name of the container with the training."""

    name: str
    job: str
    namespace: str
    type: str
    index: int
    template: PodTemplate
    restart_policy: str
    main: str

    @property
    def main_container(self) -> Container:
        """The container with the training; the first one if none has its name."""
        containers = self.template.containers
        return next((one for one in containers if one.name == self.main), containers[0])


_hosts: dict[str, tuple[ReplicaHost, Callable[[str, str, int], Replica]]] = {}


def hold_host(run: str, host: ReplicaHost, replica_of: Callable[[str, str, int], Replica]) -> Callable[[], None]:
    """Let the replicas of a run find their host in this process; return the function that ends this."""
    _hosts[run] = host, replica_of
    return lambda: _hosts.pop(run, None) and None


def host_of(run: str) -> tuple[ReplicaHost, Callable[[str, str, int], Replica]] | None:
    """Return the host of the replicas of a run, and what makes a replica of it; None: this process holds none."""
    return _hosts.get(run)


@prepares
def run_replica(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> dict[str, Any]:
    """Run one replica to its end (style TASK); return its `CommandResult` as a dictionary.

    Parameters: `run` (the id of the run), `job` and `type`. TaskError: a container fails; `status` is its exit code.
    RunCancelledError: the replica is stopped.
    """
    held = host_of(ctx.params["run"])
    if held is None:
        raise InternalError(f"the jobs of {ctx.params['run']} are not held by this process")
    host, replica_of = held
    return ReplicaStart(ctx, host, replica_of(ctx.params["job"], ctx.params["type"], ctx.index)).run()


class ReplicaStart:
    """One start of a replica. Its files are named by the parameter `vertex` of its task, else by its vertex."""

    def __init__(self, ctx: TaskContext, host: ReplicaHost, replica: Replica) -> None:
        self.ctx, self.host, self.replica = ctx, host, replica
        self.vertex: str = ctx.params.get("vertex", ctx.vertex)
        self.places = VolumePlaces(host.claims_of(replica.namespace), host.folder / "pods" / replica.name, host.base)
        self.volumes: dict[str, str] = {}
        self._lock = threading.Lock()
        self._stops: list[StopCommand] = []
        self._ended = threading.Event()
        self._beside: list[threading.Thread] = []
        self._main_pid = 0
        self.key = self.vertex, ctx.index
        self._running: dict[str, CommandSpec] = {}
        self._unready: dict[str, str] = {}
        self._memory = MemoryPlace({})
        self._evicted = ""
        self._starts = self._free_number(self.replica.main_container)
        """How often the replica has started before, under earlier owners of the run too."""
        self.reports: OpenedReports | None = None
        """What takes what the containers open, where the step asks for it."""
        if host.step is not None and host.step.traced:
            from weft.frontends.training.opened_reports import OpenedReports  # for cached steps alone

            self.reports = OpenedReports(host.folder)
        self._boxes: dict[str, str] = {}
        """The names for the engine of the containers in isolation `container`."""

    def run(self) -> dict[str, Any]:
        """Run the replica to its end. Errors as of `run_replica`."""
        if self.ctx.cancelled():
            raise RunCancelledError(f"replica {self.replica.name} was stopped before it started")
        again = False
        try:
            self.volumes = make_volumes(
                self.replica.template, self.host.files, self.places, lambda item: self.host.fact(self.replica, item)
            )
            self._take_memory()
            pass_gate(self.ctx.gate)
            self.ctx.on_cancel(self.stop)
            result = self._watched()
            again = self.replica.restart_policy == ALWAYS
        except TaskError:
            again = self.replica.restart_policy in (ALWAYS, ON_FAILURE)
            raise
        finally:
            if not again or self.ctx.cancelled():
                self.host.collect(self.key)
                self.host.memory.give_back(self.replica.name)
                remove_volumes(self.places)
        return {"exit_code": result.exit_code, "wall_s": result.wall_s, "log_bytes": result.log_bytes}

    def _take_memory(self) -> None:
        """Have the volumes in memory made."""
        folders = {one.name: self.volumes[one.name] for one in self.replica.template.volumes if one.kind == "memory"}
        if folders:
            sandbox = self.host.place(self.replica).sandbox
            user = None if sandbox is None else sandbox.user
            self._memory = self.host.memory.take(self.replica.name, self.replica.template, folders, user)
            self.volumes |= self._memory.folders

    def _watched(self) -> CommandResult:
        """Run the containers, and end them when a volume has become larger than its limit."""
        limits = {
            one.name: one.size_limit
            for one in self.replica.template.volumes
            if one.size_limit and (one.kind == "empty" or (one.kind == "memory" and not self._memory.holder))
        }
        if not limits:
            return self._containers()
        done = threading.Event()
        thread = threading.Thread(target=self._watch_volumes, args=(limits, done), daemon=True)
        thread.start()
        try:
            return self._containers()
        finally:
            done.set()
            thread.join()

    def _watch_volumes(self, limits: Mapping[str, float], done: threading.Event) -> None:
        while not done.wait(_VOLUME_LOOK_S):
            for name, limit in limits.items():
                if used_bytes(self.volumes[name]) > limit:
                    what = f'Usage of EmptyDir volume "{name}" exceeds the limit "{shown_quantity(limit)}"'
                    self._evicted = f"Evicted: {what}"
                    self.stop(_EVICTION_GRACE_S)
                    return

    def stop(self, grace_s: float | None = None) -> None:
        """Stop the containers, now or as soon as they start; `grace_s` replaces their grace period."""
        self._ended.set()
        with self._lock:
            stops = list(self._stops)
        for stop in stops:
            stop(grace_s)

    def _stoppable(self, stop: StopCommand) -> None:
        with self._lock:
            self._stops.append(stop)
        if self._ended.is_set():
            stop()

    # --------------------------------------------------------------------------------------------- containers

    def _containers(self) -> CommandResult:
        """Run the containers; return the result of the main one."""
        for container in self.replica.template.init_containers:
            self._checked(container, self._command(container))
        main = self.replica.main_container
        beside = [one for one in self.replica.template.containers if one is not main]
        self._beside = [threading.Thread(target=self._run_beside, args=(one,), daemon=True) for one in beside]
        try:
            return self._checked(main, self._command(main))
        finally:
            if self._beside:
                self.stop()
            for thread in self._beside:
                if thread.ident is not None:
                    thread.join()

    def _run_beside(self, container: Container) -> None:
        """Run a sidecar, again after its end as the restart policy of the pod says, until the replica ends."""
        delay_s = _FIRST_DELAY_S
        policy = container.restart_policy or self.replica.restart_policy
        with suppress(Exception):  # the main container decides how the replica ends
            while not self._ended.is_set():
                result, _ = self._run(container, self._in_network(self._command(container)))
                if not (policy == ALWAYS or (policy == ON_FAILURE and result.status)):
                    return
                self._ended.wait(delay_s)
                delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    def _in_network(self, spec: CommandSpec) -> CommandSpec:
        """Return a command that shares the network of the main container, which runs."""
        if spec.sandbox is None or not self._main_pid:
            return spec
        return replace(spec, sandbox=replace(spec.sandbox, beside=self._main_pid))

    def _checked(self, container: Container, spec: CommandSpec) -> CommandResult:
        what = "" if container is self.replica.main_container else f"container {container.name} "
        try:
            result, unhealthy = self._run(container, spec)
        except TaskError as not_run:
            not_run.message = what + not_run.message.removeprefix(f"step {spec.name} ")
            raise
        if self.host.measures and container is self.replica.main_container and result.wall_s > 0:
            self.ctx.usage(cpu=result.cpu_s / result.wall_s, memory=result.memory)
        if self._evicted and not self.ctx.cancelled():
            raise DiskFullError(self._evicted, hint="Raise the sizeLimit of the volume, or write less to it.")
        if self.ctx.cancelled() or (result.cause == "cancelled" and not unhealthy):
            raise RunCancelledError(f"replica {self.replica.name} was stopped")
        if not (result.ok or (unhealthy and result.status == 0)):
            error = failure_of(spec, result, task_name(self.ctx.vertex, self.ctx.index))
            error.message = what + error.message.removeprefix(f"step {spec.name} ")
            if unhealthy:
                error.message = f"{what}was ended because {unhealthy}\n{error.message.partition(chr(10))[2]}"
            if why := self.host.why_failed(self.replica):
                error.message += f"\nIts network: {why}."
            raise error
        return result

    def _run(self, container: Container, spec: CommandSpec) -> tuple[CommandResult, str]:
        """Run a container to its end; return its result, and why it was ended for its health ("" if it was not)."""
        life = ContainerLife(container, self, spec.grace_s)

        def started(pid: int, start: str) -> None:
            if spec.prefix and (self._beside or container.post_start or container.has_probes):
                self._wait_for_engine(pid, container)
            self._running[container.name] = spec
            if container is self.replica.main_container:
                self.ctx.started()
                self._main_pid = pid
                for thread in self._beside:
                    thread.start()
            life.begin()

        def on_cancel(stop: StopCommand) -> None:
            life.take_stop(stop)
            self._stoppable(life.stop)

        try:
            run = run_guarded if self.reports is None else self.reports.run
            result = run(spec, on_started=started, on_cancel=on_cancel)
        finally:
            life.close()
            with self._lock, suppress(ValueError):  # it may not have come so far
                self._stops.remove(life.stop)
        self.host.note_usage(self.ctx.vertex, self.ctx.index, result.cpu_s, result.memory)
        return result, life.why_ended

    def _wait_for_engine(self, pid: int, container: Container) -> None:
        """Wait until the engine has started a container, or its program has ended."""
        seat = self.host.place(self.replica).seat
        assert seat is not None
        with suppress(ProcessLookupError):
            while not seat.engine.is_running(self._boxes[container.name]) and not self._ended.wait(_ENGINE_LOOK_S):
                os.kill(pid, 0)

    def beside(self, container: Container, words: Sequence[str], name: str) -> CommandSpec:
        """Return a command that runs in a running container, with a log of its own."""
        spec = self._running[container.name]
        log = self.places.replica / ".hooks" / f"{container.name}.{name}.log"
        spec = replace(spec, argv=words, record=None, log=log, timed=False, name=f"{name} of {spec.name}")
        if spec.prefix:
            return replace(spec, prefix=[spec.prefix[0], "exec", self._boxes[container.name]], end=(), undo=())
        return self._in_network(spec)

    def reach(self, container: Container, probe: ContainerProbe, take_end: TakeEnd) -> str:
        """Check a port of a running container; return why it failed, "" after a success."""
        named = {port.name: port.number for one in self.replica.template.containers for port in one.ports}
        number = probe.port if isinstance(probe.port, int) else named.get(probe.port, 0)
        if not number:
            return f"no container has a port named {probe.port}"
        from weft.worker import probing  # most containers have no probe

        why = ""
        for address, port in self.host.listens_at(self.replica, number):
            way = _way_of(probe, probe.host or address, port)
            if self._running[container.name].sandbox is not None:
                spec = self.beside(container, probing.words(*way), "probe")
                why = execute(spec, probe.timeout_s + _START_S, take_end)
                why = why.removeprefix("ended with exit code 1: ")
            else:
                why = probing.check(*way)
            if not why:
                return ""
        return why

    def note_ready(self, container: Container, why_not: str) -> None:
        """Take why a container is not ready, "" if it is."""
        with self._lock:
            self._unready[container.name] = why_not
            whole = [
                f"{name}: {why}" if name != self.replica.main else why for name, why in self._unready.items() if why
            ]
        self.host.note_ready(self.replica, "; ".join(whole))

    def note_event(self, at: float, reason: str, message: str) -> None:
        """Take a warning for the user; `at` is in seconds since 1970."""
        self.host.note_event(self.replica, at, reason, message)

    # ----------------------------------------------------------------------------------------------- commands

    def _command(self, container: Container) -> CommandSpec:
        host, replica = self.host, self.replica
        recipe = host.recipe(replica, container)
        given, masked = host.environment(replica, container)
        logs = str(host.folder / LOGS_FOLDER / loop_item(*self.key))
        env = {**_inherited(inherited_of(host.step)), LOGDIR: logs, **recipe.env, **given, **self._own_variables()}
        packages = str(host.folder / "pods" / PACKAGES)
        env |= self._devices(container, env, given)
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (packages, env.get("PYTHONPATH"))))
        words = host.words(replica, container, recipe.words(container), {**recipe.env, **given})
        place = host.place(replica)
        if place.seat is not None:
            return self._in_image(container, place, {**given, **self._own_variables()}, words, masked)
        held = bool(self._memory.holder)
        own = mounts_of(container, self.volumes, replica.template, own_memory=held)
        binds = [*recipe.binds, *own, *place.mounts]
        cwd = self._start_folder(container, recipe, binds, makes=place.sandbox is not None)
        binds = [*self._temporary(binds, recipe), *binds]
        view = self._view(binds, words)
        if container is replica.main_container:
            host.follow(self.key, replica, self._log_places(env, words, cwd, binds))
        spec = self._spec(container, env, cwd, masked)
        return replace(spec, argv=words, programs=recipe.programs, view=view, sandbox=place.sandbox, after_s=0.0)

    def _spec(self, container: Container, env: Mapping[str, str], cwd: Path, masked: Sequence[str]) -> CommandSpec:
        """Return what all commands of containers have."""
        replica, log = self.replica, self._log(container)
        return CommandSpec(
            env=env,
            cwd=cwd,
            log=log,
            grace_s=replica.template.grace_s,
            timeout_s=replica.template.deadline_s,
            record=self.host.records / log.stem,
            name=replica.name if container.name == replica.main else f"{replica.name}/{container.name}",
            masked=masked,
            timed=True,
        )

    def _in_image(
        self, container: Container, place: ReplicaPlace, env: dict[str, str], words: list[str], masked: Sequence[str]
    ) -> CommandSpec:
        """Return the command that runs a container in its image, by a container engine."""
        from secrets import token_hex  # jobs without containers need none

        from weft.operators.containers import ReplicaContainer, is_read_by_engines

        assert place.seat is not None
        folder, replica, engine = self.host.folder, self.replica, place.seat.engine
        logs = folder / LOGS_FOLDER / loop_item(*self.key)
        logs.mkdir(parents=True, exist_ok=True)
        package = folder / "pods" / PACKAGES / PACKAGE.name
        env = {LOGDIR: str(logs), **env}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(package.parent), env.get("PYTHONPATH"))))
        own = [logs, folder / "checkpoints" / replica.job, folder / FOLDER, folder / VALUES]
        own += [folder / FUNCTION_FILE] if FUNCTION in env else []
        binds = [
            *mounts_of(container, self.volumes, replica.template, own_memory=True),
            *place.mounts,
            *(BindMount(str(path), str(path)) for path in own),
            *(BindMount(path, path) for path in (() if self.host.step is None else self.host.step.folders)),
            BindMount(str(PACKAGE), str(package), read_only=True),
        ]
        name = f"weft-{replica.name[:40]}-{container.name[:40]}-{token_hex(6)}"
        beside = container in replica.template.containers and container is not replica.main_container
        entry, rest = (words[0], words[1:]) if container.command and words else ("", words)
        box = ReplicaContainer(
            name=name,
            host=replica.name,
            image=self.host.recipe(replica, container).engine_image,
            entrypoint=entry,
            workdir=container.working_dir,
            user=container.user,
            cpus=container.limits.get("cpu", 0.0),
            memory=int(container.limits.get("memory", 0)),
            beside=self._boxes.get(replica.main_container.name, "") if beside else "",
        )
        self._boxes[container.name] = name
        if container is replica.main_container:
            self.host.follow(self.key, replica, self._log_places(env, words, folder, binds))
        client = {variable: value for variable, value in env.items() if not is_read_by_engines(variable)}
        return replace(
            self._spec(container, {**os.environ, **client}, folder, masked),
            argv=rest,
            prefix=box.prefix(place.seat, env, binds),
            end=[engine.program, "kill", "--signal", "TERM", name],
            undo=[engine.program, "rm", "--force", name],
        )

    def _own_variables(self) -> dict[str, str]:
        folder, name = self.host.folder, self.replica.name
        checkpoints = folder / "checkpoints" / self.replica.job
        checkpoints.mkdir(parents=True, exist_ok=True)
        with os.scandir(checkpoints) as entries:
            resumed = any(entries)
        variables = {
            "HOSTNAME": name,
            CHECKPOINTS: str(checkpoints),
            RESTARTS: str(self._starts),
            RESUMED: "1" if resumed else "0",
            REPLICA: name,
            METRICS: str(folder / FOLDER / f"{self.vertex}.{self.ctx.index}{SUFFIX}"),
        }
        if (folder / FUNCTION_FILE).exists():
            value = folder / VALUES / f"{self.vertex}.{self.ctx.index}.pickle"
            variables |= {FUNCTION: str(folder / FUNCTION_FILE), VALUE: str(value)}
        return variables

    def _log_places(
        self, env: Mapping[str, str], words: Sequence[str], cwd: Path, binds: Sequence[BindMount]
    ) -> list[LogPlace]:
        """Return the folders of this machine in which the replica may write event files."""
        own = [str(self.places.replica), str(self.host.folder / LOGS_FOLDER)]
        kept = env[CHECKPOINTS]
        named = [env[LOGDIR], kept, *option_folders(words)]
        folders = [*(_outside(os.path.join(cwd, path), binds) for path in named), *self._volume_folders(), str(cwd)]
        return [
            LogPlace(path, own=any(path.startswith(f"{folder}{os.sep}") for folder in own), kept=path == kept)
            for path in dict.fromkeys(map(os.path.normpath, folders))
        ]

    def _volume_folders(self) -> list[str]:
        """Return the folders of the volumes that programs write to."""
        written = [one.name for one in self.replica.template.volumes if one.kind in _WRITTEN and not one.read_only]
        return [self.volumes[name] for name in written if os.path.isdir(self.volumes[name])]

    def _devices(self, container: Container, env: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with the GPUs of a container: its part of those of the replica, maybe none."""
        devices = self.host.devices(self.ctx.worker)
        if devices is None:
            return {}
        beside = [one for one in self.replica.template.containers if one is not self.replica.main_container]
        first = len(devices) - sum(map(gpus_of, beside))
        parts = {self.replica.main_container.name: devices[: max(first, 0)]}
        for one in beside:
            parts[one.name] = devices[first : first + gpus_of(one)]
            first += gpus_of(one)
        own = {name: value for name, value in env.items() if name != VISIBLE or name in given}
        return device_variables(parts.get(container.name, devices), own)  # init containers run alone

    def _start_folder(self, container: Container, recipe: ImageRecipe, binds: list[BindMount], *, makes: bool) -> Path:
        """Return the working folder of a container, and make one that is missing: by a further mount, or in a mount."""
        shown = [one.target for one in binds]
        path, is_made = start_folder(container, recipe, self.host.base, shown, makes=makes)
        if is_made:
            folder = self.places.replica / ".workdir" / container.name
            remove_folder(folder)
            folder.mkdir(parents=True)
            binds.append(BindMount(str(folder), path))
        elif not os.path.isdir(_outside(path, binds)):
            outer = max((one for one in binds if covers([one.target], path)), key=lambda one: len(one.target))
            if not outer.read_only and outer.source not in self._memory.folders.values():
                make_mount_points([(outer.source, path[len(outer.target) + 1 :], True)], self.replica.name)
        return Path(path)

    def _view(self, binds: list[BindMount], words: list[str]) -> MountNamespace | None:
        """Return the mounts of a container."""
        if not binds:
            return None
        made = plan(binds, "/", self.replica.name, words[0] if words else "sh")
        make_mount_points(made.points, self.replica.name)
        if made.view is not None and self._memory.holder:
            real = tuple(os.path.realpath(folder) for folder in self._memory.folders.values())
            made = replace(made, view=replace(made.view, holder=self._memory.holder, held=real))
        return made.view

    def _temporary(self, binds: list[BindMount], recipe: ImageRecipe) -> list[BindMount]:
        """Return a /tmp of the replica's own if a mount needs a new folder in it; folders of the run stay there."""
        real = os.path.realpath(TEMPORARY)
        below = [os.path.realpath(one.target) for one in binds]
        if not any(path.startswith(f"{real}/") and not os.path.lexists(path) for path in below) or real in below:
            return []
        folder = self.places.replica / ".tmp"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
        needed: list[str | Path] = [
            self.host.base,
            self.host.folder,
            self.places.claims,
            *recipe.programs,
            sys.prefix,
            sys.base_prefix,
            *(self.host.step.folders if self.host.step is not None else ()),
        ]
        paths = {os.path.realpath(path) for path in needed}
        kept = {path for path in paths if path.startswith(f"{real}/") and os.path.isdir(path)}
        return [BindMount(str(folder), real), *(BindMount(path, path) for path in sorted(kept))]

    def _log(self, container: Container) -> Path:
        """Return a new log for a container."""
        return self._log_path(container, self._free_number(container))

    def _free_number(self, container: Container) -> int:
        """Return the number of the next log of a container; the starts under earlier owners of the run count too."""
        number = self.ctx.attempt
        while os.path.lexists(self._log_path(container, number)):
            number += 1
        return number

    def _log_path(self, container: Container, number: int) -> Path:
        logs = self.host.folder / "logs"
        stem = f"{log_stem(self.vertex)}.{self.ctx.index}"
        if container.name != self.replica.main_container.name:
            logs, stem = logs / "containers", f"{stem}.{container.name}"
        return logs / f"{stem}.{number}.log"


def _way_of(probe: ContainerProbe, host: str, port: int) -> tuple[str, ...]:
    """Return the arguments of `probing.check`."""
    timeout = f"{probe.timeout_s:g}"
    if probe.http:
        headers = (f"{name}: {value}" for name, value in probe.headers)
        return ("http", f"{probe.scheme.lower()}://{host}:{port}{probe.http}", timeout, *headers)
    if probe.grpc is not None:
        return ("grpc", host, str(port), timeout, probe.grpc)
    return ("tcp", host, str(port), timeout)


def _outside(path: str, binds: Sequence[BindMount]) -> str:
    """Return a path of a container as this machine has it."""
    path = os.path.normpath(path)
    for bind in sorted(binds, key=lambda one: len(one.target), reverse=True):
        if path == bind.target or path.startswith(f"{bind.target}/"):
            return bind.source + path[len(bind.target) :]
    return path


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _OWN and not name.startswith(_OWN_PREFIXES)}
