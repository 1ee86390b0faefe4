"""`LocalJobs`: the jobs of one run on this machine, as their replicas need them."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from weft.frontends.training import mpi
from weft.frontends.training.compiler import POD, groups_of, requests_of
from weft.frontends.training.desired import is_ours
from weft.frontends.training.endpoints import endpoints_of, loopback_warnings
from weft.frontends.training.engine_images import EngineImages
from weft.frontends.training.environment import environment_of
from weft.frontends.training.expansion import PodFacts, expanded, expanded_words, file_value, resource_value, secrets_of
from weft.frontends.training.images import ImageResolver
from weft.frontends.training.job_addresses import JobAddresses
from weft.frontends.training.job_status import JobStatusFile
from weft.frontends.training.kinds import KINDS, pod_name
from weft.frontends.training.labels import annotations_of, labels_of
from weft.frontends.training.lacks import lacks_of
from weft.frontends.training.log_folders import LogFolders
from weft.frontends.training.memory import MemoryVolumes
from weft.frontends.training.metrics import FOLDER as METRICS_FOLDER
from weft.frontends.training.metrics import MetricsWatch
from weft.frontends.training.replica import FUNCTION_FILE, PACKAGE, PACKAGES, VALUES, Replica, hold_host
from weft.frontends.training.reporting import TRIAL
from weft.frontends.training.schema import NEVER, EnvVar
from weft.frontends.training.sharing import room_of
from weft.frontends.training.tuning import TuningChoice, tuned
from weft.frontends.training.volumes import claims_of
from weft.model.errors import DefinitionError, NotFoundError
from weft.model.masking import without_secrets, worth_masking
from weft.operators.mounts import BindMount
from weft.operators.network import (
    LOOPBACK,
    Isolation,
    NetworkSpec,
    best_isolation,
    open_network,
)
from weft.operators.ports import PORTS
from weft.operators.tensorboard import ADDRESS, OFF, TensorBoardServer, find_tensorboard, reserve_port
from weft.operators.tensorboard import FOLDER as BOARD_FOLDER
from weft.store.expiry import set_expiries
from weft.store.folders import remove_folder, safe_open
from weft.store.places import CLAIMS

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.training.answers import RemoteAnswers, RemoteDescription
    from weft.frontends.training.compiler import ReplicaGroup
    from weft.frontends.training.endpoints import Endpoints
    from weft.frontends.training.images import ImageMap, ImageRecipe
    from weft.frontends.training.log_folders import LogPlace
    from weft.frontends.training.schema import (
        Container,
        FileItem,
        JobFile,
        ReplicaSpec,
        TrainingJob,
    )
    from weft.frontends.training.surroundings import StepSurroundings
    from weft.frontends.training.trials import JobTrials
    from weft.graph.spec import MachineAddress, RunFacts
    from weft.operators.containers import ContainerEngine
    from weft.operators.network import ReplicaNetwork, ReplicaPlace

IMAGES: Final = "images"
"""The folder of the state folder with the files of Dockerfiles."""
AUTO: Final = "auto"
TENSORBOARD: Final = "TensorBoard:"
"""Begins the note about the address of TensorBoard."""
CHOICES: Final = "tuning.json"
TRIALS: Final = "trials"
"""In the folder of a run: what control vertices have decided, and a folder for each of their trials."""
MPI_FOLDER: Final = "/etc/mpi"
"""The folder with the hostfile and the agent in replicas that have mounts of their own."""


class LocalJobs:
    """The jobs of a run on this machine; see `replica.ReplicaHost`.

    `open` makes their network and lets the replicas find this object; `close` removes what is left of both. With
    `spread` the replicas run at the machines of a cluster, and ask this object by `answer`.
    """

    node_ip = LOOPBACK
    """The address of this machine."""

    def __init__(
        self,
        run: str,
        folder: Path,
        base: Path,
        state: Path,
        files: JobFile,
        maps: Sequence[ImageMap],
        *,
        isolation: str = AUTO,
        outer: bool = False,
        function: bytes = b"",
        tensorboard: str = OFF,
        resumed: bool = False,
        step: StepSurroundings | None = None,
        spread: bool = False,
    ) -> None:
        self.folder, self.base, self.files, self.step = folder, base, files, step
        self.records = folder / "processes"
        self.measures = any(job.tuning is not None and job.tuning.history for job in files.jobs)
        self._run = run if step is None else f"{step.name}/{run}"
        self.spread = spread
        self._isolation = Isolation.PORTS if spread else None if isolation == AUTO else Isolation(isolation)
        self._remote: RemoteAnswers | None = None
        self._job_trials: JobTrials | None = None
        self._outer = outer
        self._resumed = resumed
        self._groups = {(group.job.name, group.type): group for group in groups_of(files)}
        self._resolver = ImageResolver(base, maps, state / IMAGES)
        self._endpoints: dict[str, Endpoints] = {}
        self._network: ReplicaNetwork | None = None
        self._memo: Callable[[], Any] = lambda: None
        self._mpi_files: dict[str, Mapping[str, tuple[str, int]]] = {}
        self._undo = ExitStack()
        self._function, self._board = function, tensorboard
        self._board_words: list[str] = []
        self._port = 0
        self._news: list[str] = []
        self._status = JobStatusFile(folder, files.jobs, self._groups)
        self._logs = LogFolders(folder, self._order)
        self._devices: dict[int, tuple[str, ...]] = {}
        self._gives_devices = self._asks_for_devices()
        self._answering = threading.Lock()
        self.memory = MemoryVolumes()
        self._images = EngineImages(list(self._containers()))
        self._maps, self._state = maps, state
        self._choices: dict[str, TuningChoice] = {}
        self._trials = count(1)
        self._in_trial = False

    def check(self) -> tuple[list[str], list[str]]:
        """Find what stands for each image, and the isolation with what it lacks; return notes for the user.

        NotFoundError: nothing says how an image starts.
        """
        notes: list[str] = []
        try:
            images = list(self._origins())
        except NotFoundError as question:
            if self._isolation is not None:
                raise
            if why_not := self._images.why_not():
                raise NotFoundError(f"{question.message}, and {why_not}", hint=question.hint) from None
            self._isolation = Isolation.CONTAINER
            why = f"{question.message.partition(': ')[0]}, and an engine has its image"
            notes.append(f"isolation container: {why}")
        else:
            isolation, why = self.isolation()
            if self._isolation is None or self.spread:
                notes.append(f"isolation {isolation.value}: {why}")
        if self._isolation is Isolation.CONTAINER:
            images = [(image, f"{kind} runs it") for image, kind in self._images.take(notes.append)]
        said: dict[str, dict[str, None]] = {}
        for image, origin in images:
            said.setdefault(origin, {})[image] = None
        notes = [*(f"image {', '.join(names)}: {origin}" for origin, names in said.items()), *notes]
        warnings = self.warnings({group.job.name for group in self._own_groups()})
        if self._board != OFF:
            self._find_board()
            notes.append(f"{TENSORBOARD} http://{ADDRESS}:{self._port}/")
        return warnings, notes

    def claims_of(self, namespace: str) -> Path:
        """Return the folder of the persistent volume claims of a namespace."""
        return claims_of(self._state / CLAIMS, namespace)

    def unseen(self, root: str) -> str:
        """Return why it cannot be told what the replicas open that counts for a folder, "" if it can; as `check`."""
        from weft.frontends.training.opened_reports import untold  # for cached steps alone

        self.check()
        if self.isolation()[0] is Isolation.CONTAINER:
            return "its replicas run in containers of an engine"
        volumes = [(one, group.job.namespace) for group in self._own_groups() for one in group.spec.template.volumes]
        recipes = [self._resolver.resolve(one, starts=False) for _, one in self._containers()]
        places = [
            *(os.path.join(self.base, os.path.expanduser(one.source)) for one, _ in volumes if one.kind == "host"),
            *(str(self.claims_of(namespace) / one.source) for one, namespace in volumes if one.kind == "claim"),
            *(recipe.folder for recipe in recipes if recipe.folder),
        ]
        place = untold(places, root, str(self.base))
        return f"its replicas use {place}, where files are hidden or belong to the system" if place else ""

    def warnings(self, jobs: Collection[str]) -> list[str]:
        """Return what of some jobs, given by name, may not work in the isolation of the run."""
        isolation = self.isolation()[0]
        if isolation is Isolation.CONTAINER:
            return []
        users = dict.fromkeys(one.name for job, one in self._containers() if one.user and job.name in jobs)
        found = [f"runAsUser of {', '.join(users)} has an effect in isolation container only"] if users else []
        with suppress(NotFoundError):  # nothing says how an image starts, which is told as a mistake
            found += dict.fromkeys(self._lacks(jobs))
        if isolation is Isolation.PORTS:
            services = [service.name for service in self.files.services]
            for job in self.files.jobs:
                if job.name in jobs:
                    hosts = mpi.mpi_hosts(job) if mpi.uses_mpi(job) else ()
                    found += loopback_warnings(job, services, hosts, spread=self.spread)
        return found

    def _own_groups(self) -> list[ReplicaGroup]:
        """Return the groups of the jobs that this run controls; those of others never start."""
        return [group for group in self._groups.values() if is_ours(group.job)]

    def _lacks(self, jobs: Collection[str]) -> Iterator[str]:
        """Yield what the containers of some jobs name that only their images have."""
        makes = self.isolation()[0] is Isolation.NAMESPACE
        for group in self._own_groups():
            if group.job.name not in jobs:
                continue
            replica = self.replica(group.job.name, group.type, 0)
            for one in (*replica.template.init_containers, *replica.template.containers):
                if not self._serves_mpi(replica, one):
                    yield from lacks_of(one, self.recipe(replica, one), self.base, makes=makes)

    def _find_board(self) -> None:
        """Find TensorBoard and reserve its port, before the run begins."""
        replicas = [self.replica(group.job.name, group.type, 0) for group in self._own_groups()]
        recipes = [self.recipe(one, container) for one in replicas for container in one.template.containers]
        folders = dict.fromkeys(folder for recipe in recipes for folder in recipe.programs)
        self._board_words = find_tensorboard(list(folders))
        self._port = reserve_port(self._board)
        self._undo.callback(PORTS.release, self._port)

    def _open_board(self) -> None:
        logs = self.folder / BOARD_FOLDER
        logs.mkdir(exist_ok=True)
        board = TensorBoardServer(self._board_words, logs, self._port, self.folder, self._news.append)
        self._undo.callback(board.close)
        board.start()

    def isolation(self) -> tuple[Isolation, str]:
        """Return the isolation of the run, and why it is this one."""
        if self.spread:
            return Isolation.PORTS, "replicas at several machines are known by addresses and free ports"
        if self._isolation is not None:
            return self._isolation, "as it was asked for"
        return best_isolation()

    @property
    def engine(self) -> ContainerEngine | None:
        """The engine of isolation `container` after `check`, None in the other isolations."""
        return self._images.engine if self._isolation is Isolation.CONTAINER else None

    def _containers(self) -> Iterator[tuple[TrainingJob, Container]]:
        """Yield the containers of all replica types with their jobs."""
        for group in self._own_groups():
            template = group.spec.template
            yield from ((group.job, one) for one in (*template.init_containers, *template.containers))

    def _origins(self) -> Iterator[tuple[str, str]]:
        """Yield each image with what stands for it on this machine. NotFoundError: nothing says how one starts."""
        for group in self._own_groups():
            replica = self.replica(group.job.name, group.type, 0)
            for one in (*replica.template.init_containers, *replica.template.containers):
                if one.image or self._isolation is not Isolation.CONTAINER:
                    origin = self.recipe(replica, one).origin
                    if one.image:
                        yield one.image, origin

    def open(self) -> None:
        """Make the network of the jobs, and let the replicas of the run find this object.

        NotFoundError: this machine lacks something that the isolation needs.
        """
        self.records.mkdir(exist_ok=True)
        (self.folder / "pods").mkdir(exist_ok=True)
        self._undo.callback(remove_folder, self.folder / "pods")
        self._status.open()
        if (self.folder / CHOICES).exists():
            with safe_open(self.folder, CHOICES, mode="r") as file:
                for name, choice in msgspec.json.decode(file.read(), type=dict[str, TuningChoice]).items():
                    self._take(name, choice)
        self._share_package()
        self._undo.callback(self.memory.close)
        if self.spread:
            for job in self.files.jobs:
                if mpi.uses_mpi(job):
                    self._write_mpi_files(job)
        else:
            self._open_network()
        self._undo.callback(MetricsWatch(self._look, self._status.write).close)
        self._undo.callback(self._logs.look, last=True)
        if self._board != OFF:
            self._open_board()

    def _open_network(self) -> None:
        """Make the network of the jobs, and let the replicas of the run find this object."""
        addresses = self._addresses()
        namespace = next((group.job.namespace for group in self._groups.values()), "default")
        spec = NetworkSpec(
            members=tuple(addresses.members()),
            folder=self.folder / "pods" / ".network",
            services=addresses.services(),
            forwards=addresses.forwards(),
            namespace=namespace,
            namespaces={name: own for name, own in addresses.namespaces().items() if own != namespace},
            outer=self._outer,
            run=str(self.folder),
            grace_s=max((group.spec.template.grace_s for group in self._groups.values()), default=0.0),
        )
        network = self._network = open_network(spec, self._isolation)
        self._undo.callback(network.close)
        for job in self.files.jobs:
            self._endpoints[job.name] = endpoints_of(job, network, self._rows(job))
            if mpi.uses_mpi(job):
                self._write_mpi_files(job)
        self._undo.callback(hold_host(self._run, self, self.replica))

    def _share_package(self) -> None:
        """Make what replicas find of this run: the package with `report`, a folder for reports, and the function."""
        for name in (METRICS_FOLDER, VALUES):
            (self.folder / name).mkdir(exist_ok=True)
        shared = self.folder / "pods" / PACKAGES
        shared.mkdir(exist_ok=True)
        link = shared / PACKAGE.name
        with suppress(FileExistsError):
            link.symlink_to(PACKAGE)
        if self._function:
            with safe_open(self.folder, FUNCTION_FILE, mode="wb") as file:
                file.write(self._function)

    def _look(self) -> bool:
        self._logs.look()
        return self._status.reader.look()

    def _order(self, key: tuple[str, int]) -> tuple[bool, int, int]:
        """Return the place of a replica: services, such as parameter servers, come after the others."""
        vertex, index = key
        groups = list(self._groups.values())
        at = next(at for at, group in enumerate(groups) if group.vertex == vertex)
        return groups[at].is_service, at, index

    def assign(self, worker: int, devices: Sequence[str]) -> None:
        """Take the GPUs of a slot, before a replica starts there."""
        self._devices[worker] = tuple(devices)
        self._gives_devices |= bool(devices)

    def devices(self, worker: int) -> Sequence[str] | None:
        """Return the GPUs of a slot; None if no replica of the run requests any."""
        return self._devices.get(worker, ()) if self._gives_devices else None

    # ------------------------------------------------------------------------------- replicas at other machines

    def answer(self, question: Sequence[Any], machine: MachineAddress, run: RunFacts) -> Any:
        """See `RunHost.answer`: control vertices ask, and replicas at the machines of a cluster or in trials."""
        from weft.frontends.training.answers import RemoteAnswers
        from weft.frontends.training.trials import QUESTIONS, JobTrials  # most jobs of one machine ask nothing

        with self._answering:
            self._job_trials = self._job_trials or JobTrials(self)
            self._remote = self._remote or RemoteAnswers(self)
        answers = self._job_trials if question[0] in QUESTIONS else self._remote
        return answers.answer(question, machine, run)

    def describe(self, host: str, ports: Mapping[int, int]) -> RemoteDescription:
        """Return what a replica at a machine of a cluster needs; see `RemoteDescription`."""
        from weft.frontends.training.answers import RemoteDescription

        for (_, type), group in self._groups.items():
            if group.job.kind != POD and mpi.uses_mpi(group.job) and mpi.starts_processes(group.job, type):
                self._write_mpi_files(self._scaled(group, 0))
        return RemoteDescription(
            run=self._run.rpartition("/")[2],
            folder=str(self.folder),
            base=str(self.base),
            state=str(self._state),
            files=self.files,
            maps=tuple(self._maps),
            measures=self.measures,
            gives_devices=self._gives_devices,
            step=self.step,
            host=host,
            ports=ports,
            scale=self.scale,
            records=str(self.records),
            in_trial=self._in_trial,
        )

    def replica_of(self, vertex: str, index: int) -> Replica:
        """Return a replica by its vertex and index."""
        job, type = next(key for key, group in self._groups.items() if group.vertex == vertex)
        return self.replica(job, type, index)

    def vertices_beside(self, vertex: str) -> list[str]:
        """Return the vertices of the job that a vertex belongs to."""
        job = next(name for (name, _), group in self._groups.items() if group.vertex == vertex)
        return [group.vertex for (name, _), group in self._groups.items() if name == job]

    # ------------------------------------------------------------------------------------------------- its status

    def follow_controller(self, memo: Callable[[], Any]) -> None:
        """See `RunHost.follow_controller`: what replicas see of their jobs at their start is what it has decided."""
        self._memo = memo

    @property
    def scale(self) -> dict[str, int]:
        """The numbers of replicas that users have set, by vertex, as the controller knows them now."""
        memo = self._memo()
        return {} if memo is None else memo["scale"]

    def watch(self, memo: Any) -> list[str]:
        """Write the status of each job and the last events to the folder of the run; return new conditions."""
        if memo is None:
            return []
        told = self._status.take(memo)
        news, self._news[:] = list(self._news), []
        return [*news, *told]

    def rests(self, memo: Any) -> bool:
        """Whether all jobs that have not ended are suspended by their file, and no one has resumed them yet."""
        return memo is not None and not self._resumed and self._status.rests(memo)

    def failures(self) -> str:
        """Return which jobs have failed, in words; "" if none has."""
        return self._status.failures()

    def end(self, state: str, reason: str, at: float) -> None:
        """Write the end of the jobs that a cancel or a failure of the run has ended, and when ended jobs expire."""
        set_expiries(self._state, self._run, self._status.end(state, reason, at))

    def is_suspended(self, job: str) -> bool:
        """Whether no replica of a job is to run now."""
        return self._status.is_suspended(job)

    def limits(self, step: str) -> tuple[int, int, str]:
        """Return the least and the most replicas of a type, and why: see `RunHost.limits`."""
        group = next(one for one in self._groups.values() if one.vertex == step)
        job, count = group.job, 1 if group.spec.replicas is None else group.spec.replicas
        if job.kind == POD:
            return count, count, "it is a plain pod"
        about = f"{group.type} of {job.kind} {job.name}"
        if not is_ours(job):
            return count, count, f"{job.policy.managed_by} manages {job.kind} {job.name}"
        if not group.scalable:
            return count, count, f"{about} is one of a fixed number"
        if job.elastic is not None and group.type == "Worker":
            least, most = job.elastic.min_replicas, job.elastic.max_replicas
            return least or 1, most or group.most, f"minReplicas and maxReplicas of the elasticPolicy of {job.name}"
        decides = not any(type in job.replicas for type in KINDS[job.kind].masters) and group.type != "PS"
        return int(decides), group.most, f"the limits of {about}"

    def wanted(self, step: str) -> int:
        """Return the number of replicas of a type that users have asked for last: see `RunHost.wanted`."""
        spec = next(one.spec for one in self._groups.values() if one.vertex == step)
        return self.scale.get(step, 1 if spec.replicas is None else spec.replicas)

    def together(self, counts: Mapping[str, int]) -> list[Mapping[str, int]]:
        """Return the replicas of each job that is to be scaled and whose places must be had together: see
        `RunHost.together`. Those that have succeeded need none; beyond the minimum of a gang each waits for its own.
        """
        found: list[Mapping[str, int]] = []
        memo = self._memo() or {"statuses": {}}
        for job in self.files.jobs:
            vertices = self.vertices_of(job.name)
            if not any(vertex in counts for vertex in vertices.values()):
                continue
            ended = memo["statuses"].get(job.name, {}).get("replicas", {})
            wanted = {vertex: counts.get(vertex, self.wanted(vertex)) for vertex in vertices.values()}
            least = job.policy.scheduling.min_available if job.policy.scheduling is not None else None
            if least is None or self.spread or least >= sum(wanted.values()):
                left = {vertex: ended.get(type, {}).get("succeeded", 0) for type, vertex in vertices.items()}
                found.append({vertex: max(count - left[vertex], 0) for vertex, count in wanted.items()})
        return found

    def close(self) -> None:
        """Remove the network and the volumes of replicas; a second call does nothing."""
        self._undo.close()

    # ------------------------------------------------------------------------------------------------- tuning

    def choice_of(self, job: str) -> TuningChoice | None:
        """Return what an earlier process of the run has decided for a job."""
        return self._choices.get(job)

    def vertices_of(self, job: str) -> dict[str, str]:
        """Return the vertices of a job by replica type."""
        return {type: group.vertex for (name, type), group in self._groups.items() if name == job}

    def choose(self, job: str, choice: TuningChoice) -> None:
        """Run a job by a choice from now on, also in later processes of the run."""
        chosen = self._take(job, choice)
        if mpi.uses_mpi(chosen):
            self._write_mpi_files(chosen)
        with safe_open(self.folder, CHOICES, mode="wb") as file:
            file.write(msgspec.json.encode(self._choices))

    def _take(self, name: str, choice: TuningChoice) -> TrainingJob:
        self._choices[name] = choice
        job = tuned(next(one for one in self.files.jobs if one.name == name), choice.replicas, choice.requests)
        self._change(job)
        return job

    def _change(self, job: TrainingJob) -> None:
        """Let the replicas of a job be those of a changed one."""
        self.files = _with(self.files, job)
        for type, spec in job.replicas.items():
            self._groups[job.name, type] = replace(self._groups[job.name, type], job=job, spec=spec)
        self._gives_devices |= self._asks_for_devices()

    def _asks_for_devices(self) -> bool:
        return any(requests_of(group.spec.template).gpu for group in self._own_groups())

    def open_trial(self, job: TrainingJob) -> tuple[str, LocalJobs]:
        """Make a trial of a job in a folder of its own; return its name and its host."""
        from weft.frontends.training.trials import key_of

        while True:
            name = str(next(self._trials))
            folder = self.folder / TRIALS / name
            with suppress(FileExistsError):  # of an earlier process
                folder.mkdir(parents=True)
                break
        files = _with(self.files, replace(job, replicas={type: _read_only(one) for type, one in job.replicas.items()}))
        trial = LocalJobs(
            self._run.rpartition("/")[2],
            folder,
            self.base,
            self._state,
            files,
            self._maps,
            function=self._function,
            step=self.step,
            spread=self.spread,
        )
        for part in ("pods", "logs"):
            (folder / part).mkdir()
        trial.records, trial.measures, trial._in_trial = self.records, False, True
        trial._network, trial._endpoints, trial._devices = self._network, self._endpoints, self._devices
        trial._isolation, trial._images = self._isolation, self._images
        trial._share_package()
        if mpi.uses_mpi(job):
            trial._write_mpi_files(job)
        trial._undo.callback(hold_host(key_of(self._run, name), trial, trial.replica))
        return name, trial

    def end_trial(self) -> None:
        """Remove what a trial leaves, except logs and reports."""
        self._undo.close()
        self.memory.close()
        for part in ("pods", "checkpoints", VALUES):
            remove_folder(self.folder / part)
        with suppress(FileNotFoundError):
            (self.folder / FUNCTION_FILE).unlink()

    # ------------------------------------------------------------------------------------------- the network

    def _rows(self, job: TrainingJob) -> TrainingJob:
        """Return a job with as many replicas as it may get."""
        specs = {type: replace(spec, replicas=self._groups[job.name, type].most) for type, spec in job.replicas.items()}
        return replace(job, replicas=specs)

    def _addresses(self) -> JobAddresses:
        return JobAddresses([self._rows(job) for job in self.files.jobs], self.files)

    def _write_mpi_files(self, job: TrainingJob) -> None:
        """Write the files of the launcher, if they have changed: processes of MPI may read them."""
        folder = self._mpi_folder(job)
        sockets = "" if self.spread else self.sockets(job)
        files = mpi.launcher_files(job, sockets)
        if self._mpi_files.get(job.name) == files:
            return
        self._mpi_files[job.name] = files
        folder.joinpath(sockets).mkdir(parents=True, exist_ok=True)
        for name, (text, mode) in files.items():
            with safe_open(folder, name, mode="w") as file:
                os.fchmod(file.fileno(), mode | stat.S_IWUSR)
                file.write(text)

    def _mpi_folder(self, job: TrainingJob) -> Path:
        return self.folder / "pods" / f".mpi-{job.name}"

    # ------------------------------------------------------------------------------------- said to the replicas

    def recipe(self, replica: Replica, container: Container) -> ImageRecipe:
        """Return what stands for the image of a container."""
        if self._isolation is Isolation.CONTAINER:
            return self._images.recipe(container.image)
        return self._resolver.resolve(container, starts=not self._serves_mpi(replica, container))

    def _serves_mpi(self, replica: Replica, container: Container) -> bool:
        """Whether a container runs processes that MPI starts in it."""
        group = self._groups[replica.job, replica.type]
        return (
            container == replica.main_container
            and group.job.kind != POD
            and mpi.uses_mpi(group.job)
            and (replica.type, replica.index) in set(mpi.mpi_hosts(self._scaled(group, replica.index)))
        )

    def environment(self, replica: Replica, container: Container) -> tuple[dict[str, str], Sequence[str]]:
        """Return the variables of a container as a cluster would give them, and the texts that its log must mask."""
        group = self._groups[replica.job, replica.type]
        added: tuple[EnvVar, ...] = ()
        if replica.job in self._endpoints:
            job = self._scaled(group, replica.index)
            if mpi.uses_mpi(job) and mpi.starts_processes(job, replica.type) and not self.spread:
                self._write_mpi_files(job)
            added = environment_of(job, replica.type, replica.index, container, self._endpoints[replica.job])
            loopback = self._network is not None and self._network.isolation is Isolation.PORTS
            folder = str(self._mpi_folder(job)) if loopback else MPI_FOLDER
            added += tuple(mpi.local_variables(job, replica.type, folder, loopback=loopback and not self.spread))
            added += self.variables_beside(replica, job)
            if self._in_trial:
                added += (EnvVar(TRIAL, "1"),)
        own = container.env if self.step is None else self.step.over(container.env)
        services = () if self._network is None else self._addresses().variables(self._network)
        made = expanded((*services, *own, *added), container.env_from, self._facts(replica, container), self.files)
        steps = () if self.step is None else self.step.masked
        masked = {*made.secrets, *secrets_of(replica.template, self.files), *steps}
        return dict(made.values), worth_masking(masked)

    def planned_environment(
        self, replica: Replica, container: Container, endpoints: Endpoints | None
    ) -> Mapping[str, str]:
        """Return the variables of a container as far as they are known before a run, with those that follow from
        `endpoints`. Values with secrets are masked.
        """
        job = self._groups[replica.job, replica.type].job
        added: tuple[EnvVar, ...] = ()
        if endpoints is not None:
            added = environment_of(job, replica.type, replica.index, container, endpoints)
            added += tuple(mpi.local_variables(job, replica.type, MPI_FOLDER, loopback=False))
        facts = replace(self._facts(replica, container), ip="<status.podIP>", uid="<metadata.uid>")
        made = expanded((*container.env, *added), container.env_from, facts, self.files)
        secrets = {*made.secrets, *secrets_of(replica.template, self.files)}
        masked = worth_masking(secrets)
        return {
            name: "***" if value in secrets or without_secrets(value, masked) != value else value
            for name, value in made.values.items()
        }

    def words(
        self, replica: Replica, container: Container, words: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """Return the words of a container with `$(NAME)` replaced; the main ones of MPI serve their sockets too."""
        if not self._serves_mpi(replica, container):
            return expanded_words(words, environment)
        job = self._scaled(self._groups[replica.job, replica.type], replica.index)
        made = expanded_words(words, environment) if container.command else []
        return mpi.replica_words(job, replica.type, replica.index, made, self.sockets(job))

    def sockets(self, job: TrainingJob) -> str:
        """Return the folder with the sockets by which replicas of a job are entered."""
        return str(self._mpi_folder(job) / "sockets")

    def variables_beside(self, replica: Replica, job: TrainingJob) -> tuple[EnvVar, ...]:
        """Return the variables that a replica at a machine of a cluster gets beside those of one here."""
        return ()

    def fact(self, replica: Replica, item: FileItem) -> str:
        """Return the text of a file of the downward API: a field of the pod or a resource of a container."""
        if not item.container:
            return file_value(item.key, self._facts(replica, replica.main_container))
        containers = (*replica.template.containers, *replica.template.init_containers)
        one = next((one for one in containers if one.name == item.container), None)
        if one is None:
            raise DefinitionError(
                f"resourceFieldRef: the pod has no container {item.container!r}",
                hint=f"Its containers are {', '.join(one.name for one in containers)}.",
            )
        return resource_value(item.key, item.divisor, self._facts(replica, one))

    def place(self, replica: Replica) -> ReplicaPlace:
        """Return the namespaces and further mounts of a replica."""
        assert self._network is not None
        place = self._network.place(replica.name)
        if self.step is not None:
            place = replace(place, mounts=(*place.mounts, *self.step.mounts))
        job = self._groups[replica.job, replica.type].job
        if job.kind == POD or not mpi.uses_mpi(job):
            return place
        # Without namespaces the variables of the launcher name the folder itself, so only commands miss the mount.
        own = BindMount(str(self._mpi_folder(job)), MPI_FOLDER, optional=place.sandbox is None)
        return replace(place, mounts=(*place.mounts, own))

    def follow(self, key: tuple[str, int], replica: Replica, places: Iterable[LogPlace]) -> None:
        """Follow the event files in the log folders of a replica that starts."""
        self._logs.add(key, replica.name, places)

    def collect(self, key: tuple[str, int]) -> None:
        """Read what an ended replica has left in the log folders that belong to it alone."""
        self._logs.collect(key)

    def listens_at(self, replica: Replica, port: int) -> Sequence[tuple[str, int]]:
        """Return the addresses and ports at which a replica may listen in place of a port of its own.

        With one address for all replicas, programs that were not told their port listen at the declared one.
        """
        assert self._network is not None
        address = self._network.ip(replica.name)
        return [(address, one) for one in dict.fromkeys((self._network.port(replica.name, port), port))]

    def note_ready(self, replica: Replica, why_not: str) -> None:
        """Take why a replica is not ready, "" if it is."""
        self._status.note_ready(self._groups[replica.job, replica.type].vertex, replica.index, why_not)

    def note_event(self, replica: Replica, at: float, reason: str, message: str) -> None:
        """Take a warning about a replica for the user; `at` is in seconds since 1970."""
        self._status.note_event(replica.job, at, reason, f"{replica.name}: {message}")

    def note_usage(self, vertex: str, index: int, cpu_s: float, memory: int) -> None:
        """Add what a container of a replica has used to that of its earlier containers and starts."""
        self._status.note_usage(vertex, index, cpu_s, memory)

    def why_failed(self, replica: Replica) -> str:
        """Return why an ended replica could not use its network, "" if it could."""
        return "" if self._network is None else self._network.why_failed(replica.name)

    def _scaled(self, group: ReplicaGroup, index: int) -> TrainingJob:
        """Return the job of a group with the numbers of replicas that users have set; they include this replica."""
        specs, scale = dict(group.job.replicas), self.scale
        for type, spec in specs.items():
            count = scale.get(self._groups[group.job.name, type].vertex, spec.replicas)
            least = index + 1 if type == group.type else 0
            specs[type] = replace(spec, replicas=max(1 if count is None else count, least))
        return replace(group.job, replicas=specs)

    def replica(self, job: str, type: str, index: int) -> Replica:
        """Return a replica by the name of its job, its type and its index."""
        group = self._groups[job, type]
        return Replica(
            name=_name_of(group, index),
            job=job,
            namespace=group.job.namespace,
            type=type,
            index=index,
            template=group.spec.template,
            restart_policy=group.spec.restart_policy or NEVER,
            main=group.job.main_container or (KINDS[group.job.kind].container if group.job.kind in KINDS else ""),
        )

    def _facts(self, replica: Replica, container: Container) -> PodFacts:
        group = self._groups[replica.job, replica.type]
        of_job = group.job.kind != POD
        labels = labels_of(group.job, replica.type, replica.index) if of_job else dict(replica.template.labels)
        notes = annotations_of(group.job, replica.type, replica.index) if of_job else dict(replica.template.annotations)
        return PodFacts(
            name=replica.name,
            namespace=replica.namespace,
            uid=f"{self._run}-{replica.name}",
            ip="" if self._network is None else self._network.ip(replica.name),
            node=os.uname().nodename,
            node_ip=self.node_ip,
            labels=labels,
            annotations=notes,
            requests=container.requests,
            limits=container.limits,
            allocatable=dict(zip(("cpu", "memory"), room_of()[:2], strict=True)),
        )


def _with(files: JobFile, job: TrainingJob) -> JobFile:
    """Return files with a job in place of the one of its name."""
    return replace(files, jobs=tuple(job if one.name == job.name else one for one in files.jobs))


def _read_only(spec: ReplicaSpec) -> ReplicaSpec:
    """Return replicas that change nothing outside of a trial in their volumes."""
    volumes = tuple(
        replace(one, read_only=True) if one.kind in ("claim", "host") else one for one in spec.template.volumes
    )
    return replace(spec, template=replace(spec.template, volumes=volumes))


def _name_of(group: ReplicaGroup, index: int) -> str:
    return pod_name(group.job, group.type, index) if group.job.kind in KINDS else group.job.name
