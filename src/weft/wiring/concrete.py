"""The concrete classes by the names of graphs, pipelines and settings, and their factories."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from weft.engine.policy import BLAME, REGISTERED, STRAGGLERS, ManagerFactory, register_manager
from weft.graph.projection import GRAPHS
from weft.model.errors import ConflictError, GraphError, MissingExtraError, UsageError
from weft.policies.blame import NodeExclusion
from weft.policies.choices import BroadcastChoice
from weft.policies.eviction import furthest, largest
from weft.policies.pruning import PartitionPruning
from weft.policies.reconcile import Reconciler
from weft.policies.shuffle import ShuffleManager
from weft.policies.stragglers import Stragglers
from weft.policies.waves import ShuffleWaves, WaveManager
from weft.store.folders import RunFolders, is_url, shm_root, sweep, sweep_runs, temporary_folder, user_root

if TYPE_CHECKING:
    from weft.admin.settings import Settings
    from weft.backends.ray import ClusterToTry
    from weft.engine.ports import Executor
    from weft.frontends.training.schema import JobFile
    from weft.frontends.training.source import TrainingOptions, TrainingSource
    from weft.frontends.training.surroundings import StepSurroundings
    from weft.graph.party_plan import FederatedPlan
    from weft.graph.projection import Projection
    from weft.runs.background import StartedRun
    from weft.runs.sources import PlannableSource, ResumableSource
    from weft.runtime.session import BackendPlace
    from weft.store.api import EvictionKey
    from weft.store.state import StateRoot


for _name, _manager in {
    "shuffle": ShuffleManager,
    "waves": WaveManager,
    "shuffle_waves": ShuffleWaves,
    "pruning": PartitionPruning,
    "conditional": BroadcastChoice,
}.items():
    register_manager(_name)(_manager)
MANAGERS: Final[ChainMap[str, ManagerFactory]] = ChainMap(
    {STRAGGLERS: Stragglers, BLAME: NodeExclusion, "reconcile": Reconciler}, REGISTERED
)
"""The job policies and the controller of front ends, and the vertex managers by the names in graphs."""
FRONTENDS: Final[Mapping[str, str]] = {
    "pipelines": "weft.frontends.pipelines.states:PROJECTION",
    "training": "weft.frontends.training.states:PROJECTION",
}
"""The front ends with projections of their own, and the modules of these."""
EVICTION: Final[Mapping[str, EvictionKey | None]] = {"furthest": furthest, "largest": largest, "lru": None}
"""The eviction orders by name; None is the order of the store itself."""


def policies_of(
    stragglers: Mapping[str, Any] | None, exclusion: bool | Mapping[str, Any]
) -> Mapping[str, ManagerFactory]:
    """Return the managers with other parameters of the job policies. UsageError: a parameter that a policy does not
    take.
    """
    found = MANAGERS
    if stragglers is not None:
        looks = " and looks_s, the shortest and longest seconds between two looks"
        found = found | {STRAGGLERS: _policy("backups", Stragglers, stragglers, looks)}
    if isinstance(exclusion, Mapping):
        return found | {BLAME: _policy("exclusion", NodeExclusion, exclusion)}
    if exclusion:
        return found
    own = {name: factory for name, factory in found.maps[0].items() if name != BLAME}
    return ChainMap(own, *found.maps[1:])


def _policy(argument: str, kind: Callable[..., Any], parameters: Mapping[str, Any], more: str = "") -> ManagerFactory:
    """Return a policy with other parameters. UsageError: it does not take them."""
    from inspect import signature  # takes long to load
    from math import isfinite

    known = signature(kind).parameters
    takes = ", ".join(f"{one.name} (default: {one.default})" for one in known.values())
    hint = f"It takes {takes}{more}."
    if unknown := [name for name in parameters if name not in known]:
        raise UsageError(f"{argument} has no parameter {', '.join(map(repr, unknown))}", hint=hint)
    for name, value in parameters.items():
        whole = isinstance(known[name].default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not isfinite(value):
            number = "a whole number" if whole else "a number"
            raise UsageError(f"{name} of {argument} is {value!r}; it must be {number}", hint=hint)
    factory = partial(kind, **parameters)
    try:
        factory()
    except (TypeError, GraphError) as error:
        raise UsageError(f"{argument} is {dict(parameters)!r}: {error}", hint=hint) from error
    return factory


def projection_of(frontend: str) -> Projection:
    """Return the projection of a front end."""
    module, _, name = FRONTENDS.get(frontend, "").partition(":")
    if not module:
        return GRAPHS
    found: Projection = getattr(import_module(module), name)
    return found


def source_again(frontend: str, folder: Path, file: str) -> ResumableSource:
    """Return the source of a run, read from its folder. ConflictError: no front end can read it."""
    if frontend == "training":
        from weft.frontends.training.source import jobs_again

        return jobs_again(folder, file)
    if frontend != "pipelines":
        raise ConflictError(f"{folder.name} is a run of {frontend or 'something'} that cannot be resumed here")
    from weft.frontends.pipelines.loading import loaded_again

    return loaded_again(folder, file)


def is_job_file(path: str) -> bool:
    """Return whether a file or folder has training jobs."""
    from weft.frontends.training.sniffing import has_jobs

    return has_jobs(path)


def load_jobs(path: str, settings: Settings, state: StateRoot, *, name: str | None) -> PlannableSource:
    """Return the source of the training jobs of a file or folder."""
    from weft.frontends.training import source

    options = _training_options(settings)
    return source.load_jobs(path, user=settings.user_name, name=name, state=state, options=options)


def plan_federated(conf: str, dsl: str) -> FederatedPlan:
    """Return the plan of a federated job, by the paths of its conf and its DSL."""
    from weft.frontends.federated import planning

    return planning.plan_federated(conf, dsl)


def source_of_jobs(
    files: JobFile,
    file: Path,
    settings: Settings,
    state: StateRoot,
    *,
    function: bytes = b"",
    step: StepSurroundings | None = None,
) -> TrainingSource:
    """Return the source of checked training jobs; `file` is theirs, or a path in the folder from which they run.

    `function` is the pickled call of a Python function that their replicas run, `step` the step of a pipeline that runs
    the jobs.
    """
    from weft.frontends.training import source

    options = _training_options(settings)
    return source.source_of(
        files, file, user=settings.user_name, state=state, options=options, function=function, step=step
    )


def _training_options(settings: Settings) -> TrainingOptions:
    from weft.frontends.training.source import TrainingOptions

    return TrainingOptions(
        compat=settings.compat,
        isolation=settings.isolation,
        outer_network=settings.outer_network,
        workers=settings.workers,
        gpus=settings.gpus,
        without_gpus=settings.without_gpus,
        tensorboard=settings.tensorboard,
        priority=settings.priority,
        queue=settings.queue,
        count_requests=settings.requests == "count",
        spread=settings.backend == "ray",
    )


def session_folders(name: str, spill: Path | str | None) -> RunFolders:
    """Make folders that are removed at the end, and sweep those of killed processes.

    The folders lie in `spill`, or in the folder for temporary files if `spill` is a URL or None.
    """
    base = temporary_folder() if spill is None or is_url(spill) else Path(spill)
    try:
        root = user_root(base)
    except OSError as error:
        raise UsageError(f"no folder can be made in {base}: {error.strerror}", hint="Name one that exists.") from None
    shared = shm_root()
    sweep(shared)
    sweep_runs(root, lambda _: False, _sweep_objects)
    return RunFolders(f"{name}-{os.getpid()}-{os.urandom(4).hex()}", shared, root)


def _sweep_objects(folder: Path) -> bool:
    from weft.store.objects import sweep as sweep_objects  # few sessions need it

    return sweep_objects(folder)


def _threads(at: BackendPlace) -> Executor:
    from weft.backends.threads import Threads

    return Threads(at.workers, at.store, resources=at.node, grace_s=at.grace_s, window=at.window)


def _processes(at: BackendPlace) -> Executor:
    from weft.backends.processes import Processes

    return Processes(
        at.workers,
        at.store,
        at.shm,
        spill=at.spill,
        resources=at.node,
        grace_s=at.grace_s,
        window=at.window,
        frozen_s=at.frozen_s,
        worker_memory=at.worker_memory,
        preload=at.preload,
    )


def _simulator(at: BackendPlace) -> Executor:
    from weft.backends.simulated_bodies import SimulatedBodies

    return SimulatedBodies(at.workers, at.store, driven=True, capacity=at.node)


def _ray(at: BackendPlace) -> Executor:
    from weft.backends.ray import RayCluster
    from weft.wiring.node import RunningNode

    workers = at.workers if at.given else None
    return RayCluster(
        at.store,
        RunningNode,
        workers=workers,
        cluster=at.cluster,
        grace_s=at.grace_s,
        window=at.window,
        options={
            "frozen_s": at.frozen_s,
            "objects": at.objects,
            "budget": at.memory or None,
            "worker_memory": at.worker_memory,
        },
    )


BACKENDS: Final = {"threads": _threads, "processes": _processes, "ray": _ray, "simulator": _simulator}
"""The backends by the names of settings and `Session`; each is loaded at its first use."""


def check_backend(name: str) -> None:
    """Raise UsageError if there is no backend of a name."""
    if name not in tuple(BACKENDS):
        raise UsageError(f"there is no backend {name!r}", hint=f"There are: {', '.join(BACKENDS)}")


def make_backend(name: str, place: BackendPlace) -> Executor:
    """Return a backend by its name. UsageError: an unknown name. MissingExtraError: a package is not installed.

    A cluster may have to be waited for, for hours: the first signal ends that.
    """
    from weft.runtime.waiting import signals_at_once

    check_backend(name)
    with _installed(f"the {name} backend", name), signals_at_once() if name == "ray" else nullcontext():
        return BACKENDS[name](place)


@contextmanager
def local_cluster(nodes: int, cpus: int) -> Iterator[ClusterToTry]:
    """Run a Ray cluster of `nodes` nodes with `cpus` cores each on this machine; see `run_cluster`.

    UsageError: a number below 1. MissingExtraError: Ray is not installed. CapacityError: Ray does not start it.
    """
    with _installed("a Ray cluster"):
        from weft.backends.ray import run_cluster
    with run_cluster(nodes, cpus) as cluster:
        yield cluster


def start_driver(
    begin: Callable[[Sequence[str], Path, Mapping[str, str], Callable[[], None]], StartedRun],
    words: Sequence[str],
    again: Sequence[str],
    cwd: Path,
    environ: Mapping[str, str],
    state: Path,
    address: str | None,
    log: tuple[str, str] | None = None,
) -> StartedRun:
    """Start a command line of `weft` in the Ray cluster at an address, and return when its run has begun.

    `begin` starts the process there, with `environ` added to the environment of that machine; it calls its last
    argument meanwhile, whose error ends the process. `again` are the words
    that resume the run after the loss of the machine, without its id. A run with a `log`, its URL and key, is resumed
    there at once, in a folder of that machine. UsageError: there is no cluster. CapacityError:
    nothing can be started there. MissingExtraError: Ray is not installed.
    """
    with _installed("a Ray cluster"):
        from weft.backends.ray_driver import DriverRequest, Helpers, start_driver

    from weft.admin.control import send
    from weft.runs.handing import leave, settle

    name = f"driver-{os.urandom(8).hex()}"
    request = DriverRequest(name, words, again, str(cwd), dict(environ), str(state), log)
    helpers = Helpers(begin, send, is_interrupted, settle, leave)
    return cast("StartedRun", start_driver(helpers, request, address))


def is_interrupted(folder: Path) -> bool:
    """Return whether the process of a run has died before the end of the run."""
    from weft.runs.reading import read_run
    from weft.runs.records import INTERRUPTED

    return read_run(folder).state == INTERRUPTED


def order_driver(folder: Path, message: Mapping[str, Any]) -> Any:
    """Send an order to the owner of a run that a Ray cluster drives, and return the answer.

    ConflictError: it does not answer. MissingExtraError: Ray is not installed.
    """
    with _installed("a Ray cluster"):
        from weft.backends.ray_driver import order_driver
    return order_driver(folder, message)


def driver_lives(folder: Path) -> bool:
    """Return whether the cluster of a run has its driver; without Ray nobody knows of one."""
    try:
        from weft.backends.ray_driver import driver_lives
    except ImportError:
        return False
    return driver_lives(folder)


@contextmanager
def _installed(what: str, extra: str = "ray") -> Iterator[None]:
    """Raise MissingExtraError for a package that `what` lacks."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{what} needs {error.name}, which is not installed"
        raise MissingExtraError(message, hint=f"Install it: pip install 'weft[{extra}]'") from None


def make_ready(backend: str) -> None:
    """Begin to start the processes for a run of commands, so that they are ready when the other modules are loaded."""
    if backend == "threads":
        from weft.operators.guardians import open_guardian_pool

        open_guardian_pool()


def eviction_key(choice: str | EvictionKey) -> EvictionKey | None:
    """Return the key of an eviction order, None for the order of the store. UsageError: an unknown name."""
    if callable(choice):
        return choice
    if not isinstance(choice, str) or choice not in EVICTION:
        raise UsageError(f"there is no eviction policy {choice!r}", hint=f"There are: {', '.join(EVICTION)}")
    return EVICTION[choice]
