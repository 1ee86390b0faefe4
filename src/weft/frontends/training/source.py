"""`TrainingSource`: the jobs of a file or folder, from which runs are made and resumed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.frontends.training.compiler import as_json, compile_jobs, groups_of, without_gpus
from weft.frontends.training.conditions import has_succeeded
from weft.frontends.training.controller import RESUME, SCALED_BEFORE, SUCCEEDED_BEFORE
from weft.frontends.training.desired import is_ours
from weft.frontends.training.images import ImageResolver, leaves_of_image, project_images
from weft.frontends.training.kinds import replica_counts, total_replicas
from weft.frontends.training.observed import JobStatus
from weft.frontends.training.reading import read_files
from weft.frontends.training.running import AUTO, LocalJobs
from weft.frontends.training.schema import JobFile, KeyValues
from weft.frontends.training.sharing import devices_for, room_of, sharing_of, unknown_classes, unknown_queues
from weft.frontends.training.states import PROJECTION
from weft.frontends.training.tuning import fingerprint_of
from weft.graph.spec import RunSpec
from weft.model.errors import ConflictError, NotFoundError, UsageError, WeftError
from weft.model.records import converter
from weft.operators.devices import NvidiaDevices
from weft.operators.guardians import expect_commands
from weft.operators.network import Isolation, begin_probe
from weft.store.state import StateRoot, current_user, read_description, read_status

if TYPE_CHECKING:
    from contextlib import ExitStack

    from weft.frontends.training.images import ImageMap
    from weft.frontends.training.schema import TrainingJob
    from weft.frontends.training.surroundings import StepSurroundings
    from weft.graph.job_plan import JobPlan
    from weft.graph.logical import LogicalGraph
    from weft.graph.spec import SharingSpec, StepInputs
    from weft.store.filesystems import Copy
    from weft.store.planning import PlannedTask
    from weft.store.state import RunFolder

FIRST_RUN: Final = "run-000000"
_status_of: Final = converter(JobStatus)
_FILES: Final = "jobs"
_OPTIONS: Final = "training"
_IS_READ: Final = "is_read"
STEP: Final = "step"
"""The keys of `run.json` with the jobs, without the data of secrets, with the options of the run, with whether the jobs
were read from its file, and with the digest of the step that runs the jobs.
"""


class TrainingOptions(Struct, frozen=True, kw_only=True):
    """The wishes for a run of jobs; see the settings of these names."""

    compat: str = "fixed"
    tensorboard: str = "off"
    isolation: str = "auto"
    outer_network: bool = False
    workers: int = 0
    gpus: int = 0
    without_gpus: bool = False
    priority: int | None = None
    queue: str = ""
    count_requests: bool = True
    spread: bool = False
    """Whether the replicas run at the machines of a cluster."""


_jobs_of: Final = converter(JobFile)
_options_of: Final = converter(TrainingOptions)


class TrainingSource(Struct, frozen=True, dict=True):
    """Checked jobs from which runs are made. `maps` is the user's map of images."""

    files: JobFile
    file: Path
    user: str
    state: StateRoot
    options: TrainingOptions = TrainingOptions()
    maps: tuple[ImageMap, ...] = ()
    name: str = ""
    function: bytes = b""
    """The pickled call of a Python function that the replicas run."""
    step: StepSurroundings | None = None
    """The step of a pipeline that runs the jobs."""
    is_read: bool = False
    """Whether the jobs are those of `file` as they stand in it."""

    @property
    def base(self) -> Path:
        """The absolute path of the folder of the file."""
        path = Path(os.path.abspath(self.file))
        return path if path.is_dir() else path.parent

    @property
    def pipeline_name(self) -> str:
        """The name of the run: that of the job, or of the file with several."""
        return self.name or (self.files.jobs[0].name if len(self.files.jobs) == 1 else self.file.stem)

    @cached_property
    def graph(self) -> LogicalGraph:
        """The graph of a run that never starts."""
        return self._compile(FIRST_RUN)

    @property
    def steps(self) -> list[str]:
        """The names of the replica groups, in order."""
        return [group.vertex for group in groups_of(self.files)]

    @property
    def parameters(self) -> Mapping[str, Any]:
        """None: what is in a file of jobs has no parameters."""
        return {}

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the user before a run."""
        late = [job.name for job in self.files.jobs if self.options.spread and _whole_gang(job) is not job]
        apart = [f"minAvailable of {', '.join(late)} has no effect on a cluster: all replicas start together"]
        queues = unknown_queues(self.files, self.base, self.options.queue)
        return [*self.files.warnings, *unknown_classes(self.files), *queues, *(apart if late else ())]

    def at(self, *, many_machines: bool) -> TrainingSource:
        """Return the source for workers at one machine, or at many. UsageError: its jobs need one machine."""
        if many_machines:
            refuse_spread(self.files, self.options.isolation, str(self.file))
        if many_machines == self.options.spread:
            return self
        return replace(self, options=replace(self.options, spread=many_machines))

    def prepare(self, note: Callable[[str], None]) -> TrainingSource:
        """Return the source itself: replicas find their environment when they start."""
        return self

    def copies(self, undo: ExitStack, note: Callable[[str], None], *, fetch: bool = True) -> list[Copy]:
        """Return no copies: jobs mount folders of this machine alone."""
        return []

    def claim(self, run_id: str, folder: Path, copies: Sequence[Copy]) -> RunSpec | None:
        """Return the run of an id. NotFoundError: an image is unknown; CapacityError: no isolation is possible;
        ConflictError: other controllers manage all jobs.
        """
        if self.files.jobs and not any(map(is_ours, self.files.jobs)):
            raise ConflictError(
                f"{self.file}: {_left(self.files.jobs)}, and Weft starts only what it manages itself",
                hint="To run it here, remove managedBy.",
            )
        return self._spec(run_id, folder)

    def check_begin(self, runs: Path) -> None:
        """Check nothing: what jobs need is looked up when their replicas start."""

    def planned(self, runs: Path, run: str = "") -> Sequence[PlannedTask]:
        """Return no tasks: jobs have no results to use again."""
        return []

    def jobs_planned(self) -> Sequence[JobPlan]:
        """Return what a run would start here."""
        from weft.frontends.training.planning import plan_jobs  # runs need no plan

        held = {job.name: _suspended(job) for job in self.files.jobs if job.policy.suspend}
        held |= {job.name: _left([job]) for job in self.files.jobs if not is_ours(job)}
        return plan_jobs(self._host(FIRST_RUN, self.state.folder(FIRST_RUN)), self._sharing(self._devices[0]), held)

    def warnings_here(self) -> Sequence[str]:
        """Return (): the plans of jobs tell whether they fit."""
        return ()

    def compiled(self, folder: Path) -> LogicalGraph:
        """Return the graph of the run in a folder, as it was submitted."""
        return self._compile(folder.name)

    def given(self, folder: Path) -> Mapping[str, StepInputs]:
        """Return {}: replicas have no results that depend on leaves."""
        return {}

    def is_edited(self, described: Mapping[str, Any]) -> bool:
        """Return whether the jobs were read from a file that has others now, or mistakes; secrets are read again."""
        if not self.is_read:
            return False
        try:
            now = _equal_to_recorded(read_files(str(self.file)), self.options)
        except NotFoundError:
            return False
        except WeftError:
            return True
        return now.secrets.keys() != self.files.secrets.keys() or replace(now, secrets=self.files.secrets) != self.files

    def resume(self, folder: RunFolder, described: Mapping[str, Any], done: frozenset[str]) -> RunSpec:
        """Return the run of a folder again; jobs that have succeeded stay so, as do numbers that users have set."""
        before = read_status(folder.path)
        ended = {job["name"]: job["status"] for job in before if _has_succeeded(job["status"])}
        scaled = {vertex: count for job in before for vertex, count in job.get("scale", {}).items()}
        known = ((SUCCEEDED_BEFORE, ended), (SCALED_BEFORE, scaled))
        return self._spec(folder.run_id, folder.path, ((RESUME, None), *(one for one in known if one[1])))

    def revise(
        self,
        folder: RunFolder,
        described: Mapping[str, Any],
        file: str | None,
        overrides: Mapping[str, str],
        note: Callable[[str], None],
    ) -> Any:
        """Refuse: a job goes on as it was submitted. ConflictError: always."""
        raise ConflictError(
            f"{folder.run_id} is a run of training jobs, which continue as they were submitted",
            hint="Change the number of replicas: weft scale RUN worker=4. For other changes start a new run.",
        )

    def _compile(self, run_id: str) -> LogicalGraph:
        key = run_id if self.step is None else f"{self.step.name}/{run_id}"
        wishes = self.options
        files = self.files
        if wishes.spread:
            files = replace(files, jobs=tuple(map(_whole_gang, files.jobs)))
        return compile_jobs(
            files,
            self.pipeline_name,
            key,
            {"compat": wishes.compat},
            count_requests=wishes.count_requests,
            spread=wishes.spread,
        )

    @cached_property
    def _devices(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the GPUs of this machine for the jobs, and notes about them."""
        if self.options.spread:
            return (), ()
        return devices_for(self.files, self.options.gpus, NvidiaDevices())

    def _sharing(self, devices: Sequence[str]) -> SharingSpec | None:
        wishes = self.options
        if not wishes.count_requests or wishes.spread:
            return None  # a cluster has slots of its own
        shared = sharing_of(
            self.files,
            self.base,
            self.user,
            workers=wishes.workers,
            devices=devices,
            priority=wishes.priority,
            queue=wishes.queue,
        )
        return shared if shared is None or self.step is None else replace(shared, name=self.step.name)

    def examine(self) -> list[str]:
        """Look for what replicas need before there is a run; return warnings. Errors are those of `claim`."""
        warnings, _ = self._host(FIRST_RUN, self.state.folder(FIRST_RUN)).check()
        return [*self.warnings, *warnings]

    def unseen(self, root: str) -> str:
        """Return why it cannot be told what the replicas open that counts for the folder `root`, "" if it can.

        Errors are those of `claim`.
        """
        if self.options.spread:
            from weft.frontends.training.opened_reports import SPREAD  # for cached steps alone

            return SPREAD
        return self._host(FIRST_RUN, self.state.folder(FIRST_RUN)).unseen(root)

    @property
    def _room(self) -> Sequence[float]:
        """What this machine has; nothing for a cluster, whose machines come and go."""
        return () if self.options.spread else room_of(self.options.workers, len(self._devices[0]))

    def _host(self, run_id: str, folder: Path, *, resumed: bool = False) -> LocalJobs:
        return LocalJobs(
            run_id,
            folder,
            self.base,
            self.state.path,
            self.files,
            self.maps,
            isolation=self.options.isolation,
            outer=self.options.outer_network,
            function=self.function,
            tensorboard=self.options.tensorboard,
            resumed=resumed,
            step=self.step,
            spread=self.options.spread,
        )

    def _spec(self, run_id: str, folder: Path, requests: Sequence[tuple[str, Any]] = ()) -> RunSpec:
        host = self._host(run_id, folder, resumed=bool(requests))
        warnings, notes = host.check()
        devices, about_devices = self._devices
        if left := [job for job in self.files.jobs if not is_ours(job)]:
            warnings.append(f"{_left(left)}: it is not started here")
        if not requests:
            notes += [
                f"{_suspended(job)}; its replicas start with: weft resume {run_id}"
                for job in filter(is_ours, self.files.jobs)
                if job.policy.suspend
            ]
        hidden = {name: KeyValues(name=name, namespace=one.namespace) for name, one in self.files.secrets.items()}
        return RunSpec(
            self._compile(run_id),
            PROJECTION,
            self.user,
            file=os.path.abspath(self.file),
            steps=self.steps,
            about={
                "file": os.path.abspath(self.file),
                _FILES: as_json(replace(self.files, secrets=hidden)),
                _OPTIONS: as_json(self.options),
                **({} if self.step is None else {STEP: self.step.digest}),
                _IS_READ: self.is_read,
                "containers": None if host.engine is None else as_json(host.engine),
            },
            warnings=[*self.warnings, *warnings],
            notes=[*notes, *about_devices],
            paths=lambda vertex, index: {},
            host=host,
            sharing=self._sharing(devices),
            requests=requests,
            history=fingerprint_of(self.files, self._room),
        )


def _left(jobs: Sequence[TrainingJob]) -> str:
    """Return which controllers manage jobs, in words."""
    return ", ".join(f"{job.kind} {job.name} is managed by {job.policy.managed_by} (managedBy)" for job in jobs)


def _has_succeeded(status: Mapping[str, Any]) -> bool:
    return has_succeeded(_status_of(status).conditions)


def _suspended(job: TrainingJob) -> str:
    where = "spec.suspend" if job.kind == "TrainJob" else "spec.runPolicy.suspend"
    return f"{job.kind} {job.name} is suspended by its file ({where}: true)"


def refuse_spread(files: JobFile, isolation: str, file: str) -> None:
    """Require that jobs can run at several machines. UsageError: one cannot, or the isolation is that of one."""
    if isolation not in (AUTO, Isolation.PORTS.value):
        raise UsageError(
            f"isolation {isolation} is that of one machine, and the backend runs replicas at several",
            hint="Leave it out: replicas have the addresses of their machines, and free ports.",
        )


def _whole_gang(job: TrainingJob) -> TrainingJob:
    """Return a job whose replicas start together: those that start first need the addresses of all."""
    policy = job.policy.scheduling
    if policy is None or policy.min_available is None:
        return job
    return replace(job, policy=replace(job.policy, scheduling=replace(policy, min_available=None)))


def image_leaves(files: JobFile, file: Path, root: str) -> dict[str, str]:
    """Return what stands for the images of jobs, as parts of a key; paths are relative to the folder `root`.

    Errors are those of `ImageResolver.resolve`, and as of `project_images`.
    """
    base = file if file.is_dir() else file.parent
    resolver = ImageResolver(base, project_images(base), None)
    found: dict[str, str] = {}
    for group in groups_of(files):
        for one in (*group.spec.template.init_containers, *group.spec.template.containers):
            found |= leaves_of_image(resolver.resolve(one, starts=False), root)
    return found


def load_jobs(
    path: str,
    *,
    user: str = "",
    name: str | None = None,
    state: StateRoot,
    options: TrainingOptions = TrainingOptions(),  # noqa: B008 - frozen
) -> TrainingSource:
    """Read and check the jobs of a file or folder; nothing is started.

    Errors are those of `read_files`. UsageError: the map of images in `weft.toml` is wrong.
    """
    source = source_of(read_files(path), Path(path), user=user, name=name, state=state, options=options)
    return replace(source, is_read=True)


def source_of(
    files: JobFile,
    file: Path,
    *,
    user: str = "",
    name: str | None = None,
    state: StateRoot,
    options: TrainingOptions = TrainingOptions(),  # noqa: B008 - frozen
    function: bytes = b"",
    step: StepSurroundings | None = None,
) -> TrainingSource:
    """Return the source of checked jobs; `file` is theirs, or a path in the folder from which they run.

    UsageError: the map of images in `weft.toml` is wrong.
    """
    if options.isolation == AUTO and not options.spread:
        begin_probe()
    if not options.spread:
        expect_commands(sum(total_replicas(replica_counts(job)) for job in files.jobs if is_ours(job)))
    if options.spread:
        refuse_spread(files, options.isolation, str(file))
    files = _equal_to_recorded(files, options)
    source = TrainingSource(
        files, file, user or current_user(), state, options, name=name or "", function=function, step=step
    )
    return replace(source, maps=project_images(source.base))


def _equal_to_recorded(files: JobFile, options: TrainingOptions) -> JobFile:
    """Return the files of a run as a resume reads them: it must make an equal graph from its records."""
    recorded: JobFile = _jobs_of(as_json(without_gpus(files) if options.without_gpus else files))
    return recorded


def jobs_again(folder: Path, file: str) -> TrainingSource:
    """Load the jobs of a run from its folder; the data of secrets comes from the file. ConflictError: no records."""
    description = read_description(folder)
    if _FILES not in description:
        raise ConflictError(
            f"{folder.name} lacks the records for a resume: it ended too early", hint="Start a new run."
        )
    files = _jobs_of(description[_FILES])
    if files.secrets:
        try:
            files = replace(files, secrets=read_files(file).secrets)
        except NotFoundError as error:
            hint = f"The jobs need their secrets ({', '.join(files.secrets)}): put the file back, and resume again."
            raise NotFoundError(error.message, hint=hint) from None
    options = _options_of(description[_OPTIONS])
    state = StateRoot(folder.parent.parent)
    user, name, is_read = str(description["user"]), str(description["name"]), description.get(_IS_READ) is True
    source = TrainingSource(files, Path(file), user, state, options, name=name, is_read=is_read)
    return replace(source, maps=project_images(source.base))
