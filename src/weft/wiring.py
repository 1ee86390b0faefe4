"""The composition root: the one file that names concrete classes.

`Session` is what programs use: a backend, a store and their folders, made together and closed together. `load_pipeline`
and `run_pipeline` are what the command line uses: a file in, a run with its folder, its records and its end out.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import secrets
import shutil
import signal
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from weft.engine.policy import BLAME, STRAGGLERS
from weft.frontends.pipelines.body import NOT_RUN, WARNING
from weft.frontends.pipelines.caching import CachePlace, recipe_of
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.compiler import (
    Origin,
    RunPlace,
    compile_run,
    is_step,
    main_root,
    notes,
    outputs_of,
    planned_outputs,
)
from weft.frontends.pipelines.paths import ENTRY_POINTS, POST_PROCESS
from weft.frontends.pipelines.resolve import ResolvedStep, make_pipeline
from weft.frontends.pipelines.resolve import Run as RunOf
from weft.frontends.pipelines.states import WORDS, PipelineWords, worst
from weft.graph.validate import mark_results, validate
from weft.model.errors import (
    ConflictError,
    DefinitionError,
    ForbiddenError,
    InputLimitError,
    MissingExtraError,
    NotFoundError,
    ProgramError,
    RunCancelledError,
    TaskError,
    UsageError,
    WeftError,
)
from weft.model.ids import is_name
from weft.model.resources import Resources
from weft.policies.blame import Blame
from weft.policies.choices import Conditional
from weft.policies.eviction import furthest, largest
from weft.policies.pruning import Pruning
from weft.policies.shuffle import Shuffle
from weft.policies.stragglers import Stragglers
from weft.policies.waves import Waves
from weft.runtime import session as runtime
from weft.runtime.clock import RealClock, ResumedClock
from weft.runtime.progress import PATIENCE_S, bars
from weft.runtime.settings import Settings, parse_size
from weft.runtime.state import PROJECT_FILE, RunFolder, StateRoot, find_project, os_error, owned, read_description
from weft.store.entries import CACHE_NAME
from weft.store.folders import SPILL_NAME, RunFolders, make_folders, shm_root, sweep, sweep_runs, user_root
from weft.store.keeper import Keeper
from weft.store.locks import LOCKS
from weft.store.results import close_cache, open_cache
from weft.worker.group import end_recorded

if TYPE_CHECKING:
    from weft.engine.explain import Explained
    from weft.engine.policy import ManagerFactory
    from weft.engine.ports import Executor
    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.resolve import Node
    from weft.graph.logical import LogicalGraph, Vertex
    from weft.runtime.cache import StepCache
    from weft.runtime.durable import DurableRun
    from weft.runtime.history import Historian
    from weft.runtime.planning import Foreseen
    from weft.runtime.progress import Bars
    from weft.runtime.records import Record, RunRecord
    from weft.runtime.resume import Plan
    from weft.runtime.session import Results, Run
    from weft.store.api import EvictionKey
    from weft.store.catalog import Catalog

MANAGERS: Final[dict[str, ManagerFactory]] = {
    "shuffle": Shuffle,
    "waves": Waves,
    "pruning": Pruning,
    "conditional": Conditional,
    STRAGGLERS: Stragglers,
    BLAME: Blame,
}
"""The vertex managers that a graph may name, and the policies of whole jobs."""

EVICTION: Final[Mapping[str, EvictionKey | None]] = {"furthest": furthest, "largest": largest, "lru": None}
"""What a session may be told to spill first; None is the order that the store keeps by itself."""
GRACE_S: Final = 3.0
"""How long a task that was told to stop may take before it is given up, in seconds."""
PIPELINE_GRACE_S: Final = 30.0
"""The same for steps: their guardian needs its own grace, and time to see the last process go."""
FIRST_RUN: Final = "run-000000"
"""Stands for the id in a pipeline that is looked at and not run."""
_MAX_FILE: Final = 1 << 20
_POLL_S: Final = 0.1
_OUTPUTS: Final = ".pipeline"
_JOURNAL_S: Final = 10.0
_SETTLE_S: Final = 60.0
"""How long a session that is closed waits until the ends of its durable runs are on disk, in seconds."""


# ------------------------------------------------------------------------------------------------------------- sessions


class Session(runtime.Session):
    """Workers and a store of this machine, and the jobs that share them. A context manager, or `close` it.

    `backend` is "threads" (work that releases the GIL, the default), "processes", "simulator" (tasks compute one after
    another, and take a virtual second each), or an executor made elsewhere.
    `workers` tasks run at a time (default: one for each core). `memory` bounds the values held in memory and shared
    memory, in bytes or as "4GiB" (default: half of what the machine has); what is over goes to `spill_dir` (default:
    the folder for temporary files). `name` is for people. A task that was told to stop is given up after `grace_s`
    seconds. `eviction` says what goes to disk first: "furthest" (what will be read last, the default), "lru" (what was
    not touched for longest), "largest", or a key function of `weft.store.api.ChunkInfo`. `gpus` of this machine, all of
    `gpu_type`, are handed out to tasks that ask for them. With `backups` what takes far too long is run a second time
    on an idle worker, and the first to end counts (default: with "processes", where what a process was at when it died
    is run again in any case). Nothing of a session is left when it is closed, and what a killed one leaves is swept by
    the next.

    With `durable` each run has a folder as those of the command line have, under the state folder that is named, or
    with True the one that `weft` would use from here. Its values are written to files there and its decisions to a
    journal, so that `weft resume RUN`, or `resume` of another session, goes on with it after the process was killed.

    `history` names a state folder (that of a durable session is taken by itself): what the vertices of a run that
    succeeds took is kept there, for control vertices of later runs of the same graph.

    UsageError: a wrong argument. MissingExtraError: the backend needs something that is not installed.
    """

    def __init__(
        self,
        backend: str | Executor = "threads",
        workers: int | None = None,
        memory: int | str | None = None,
        spill_dir: str | os.PathLike[str] | None = None,
        name: str | None = None,
        grace_s: float = GRACE_S,
        *,
        backups: bool | None = None,
        eviction: str | EvictionKey = "furthest",
        durable: bool | str | os.PathLike[str] = False,
        gpus: int = 0,
        gpu_type: str = "",
        history: str | os.PathLike[str] | None = None,
    ) -> None:
        self.name = _session_name(name)
        self._state = _durable_state(durable)
        self._about = {"backend": backend if isinstance(backend, str) else type(backend).__name__.lower()}
        if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
            raise UsageError(f"gpus is {gpus!r}; it must be a whole number from 0 on")
        count, budget = _count(workers), _size(memory)
        with ExitStack() as undo:
            folders = undo.enter_context(_folders(self.name, spill_dir))
            store = Keeper(budget, shm=folders.shm, spill=folders.spill, eviction=_eviction(eviction))
            undo.callback(store.close)
            twice = backend == "processes" if backups is None else backups
            if isinstance(backend, str):
                node = Resources(cpu=count, memory=store.budget, gpu=gpus, gpu_type=gpu_type)
                backend = _backend(backend, count, store, folders.shm, folders.spill, grace_s, node)
            clock = getattr(backend, "clock", None)
            if clock is not None and self._state is not None:
                raise UsageError("a simulated session cannot be durable: its time is not that of any clock")
            clock = clock or (ResumedClock() if self._state is not None else None)
            if twice:
                backend.tuning = replace(backend.tuning, backups=True)
            super().__init__(backend, store, clock, MANAGERS)
            undo.pop_all()
        kept = self._state if history is None else StateRoot(Path(history).absolute())
        if kept is not None:
            self.historian = _historian(kept)
            self.on_close(self.historian.close)
        self.on_close(folders.close)
        self.on_close(lambda: atexit.unregister(self.close))
        atexit.register(self.close)

    def submit(self, graph: LogicalGraph, **options: Any) -> Run:
        """Check a graph and start it; GraphError or CapacityError if it cannot run here.

        In a durable session the run's folder is made first. ProgramError: something of the graph cannot be pickled.
        """
        if self._state is None:
            return super().submit(graph, **options)
        from weft.runtime.durable import begin

        self.check_open()
        mark_results(graph)
        validate(graph, self.loop.pool.capacity())
        user = Settings().user_name
        tuning = self.executor.tuning
        durable, plain = begin(
            self._state, graph, tuning, self.managers, projection=PipelineWords(), user=user, about=self._about
        )
        return self._start(durable, plain, **options)

    def resume(self, run: str, *, on_record: Callable[[Record], None] | None = None) -> Run:
        """Go on with a durable run that failed, was cancelled, or whose process was killed; return it.

        `run` is an id or whatever else names one for `weft resume`. What has finished is not run again, unless its
        output is gone, which `Run.notes` says. Of a run that has succeeded, the results are read and nothing is run.
        `on_record` is told of every change, on a thread of its own.
        UsageError: this session keeps no journal. ConflictError: the run still goes on elsewhere, or is a pipeline.
        ProgramError: its functions cannot be loaded here.
        """
        if self._state is None:
            return super().resume(run, on_record=on_record)
        from weft.runtime.durable import reopen
        from weft.runtime.records import find_run

        self.check_open()
        run_id = find_run(self._state, run).name
        tuning = self.executor.tuning
        found = reopen(self._state, run_id, tuning, self.managers, projection=PipelineWords(), on_record=on_record)
        if isinstance(self.loop.clock, ResumedClock):
            self.loop.clock.reach(found.now)
        if found.ended and found.recovered is not None:
            return self.show(found.graph, found.recovered[0], found.run)
        return self._start(
            found.run,
            found.graph,
            restored=found.restored,
            recovered=found.recovered,
            incarnation=found.incarnation,
        )

    def _start(self, durable: DurableRun, graph: LogicalGraph, **options: Any) -> Run:
        try:
            run = super().submit(graph, journal=durable.journal, durable=durable, **options)
        except BaseException as error:
            if isinstance(error, WeftError):
                durable.recorder.run_state("failed", error=error, ended=True)
            durable.close()
            raise
        durable.serve(_orders(run), run.job)

        def settle() -> None:
            if run.job.finished.is_set():
                durable.settled.wait(_SETTLE_S)

        self.on_close(settle)
        return run

    def run(self, graph: LogicalGraph, *, timeout_s: float | None = None, progress: bool = True) -> Results:
        """Run a graph to its end and return its results. Ctrl-C cancels and waits; a second one leaves at once.

        `progress` shows bars on a terminal while it takes. TaskError, RunFailedError or RunCancelledError say what went
        wrong, TimeoutError that `timeout_s` seconds were not enough (the run is then cancelled).
        """
        with _signals(signal.SIGINT) as signals, ExitStack() as shown:
            run = self.submit(graph)
            look = _picture(run, graph.name, shown) if progress else lambda: None
            try:
                ended = _wait(run, signals, timeout_s, look)
            except KeyboardInterrupt:
                self.leaving = True
                raise
            if not ended:
                run.cancel(f"took longer than {timeout_s:g} s")
                raise TimeoutError(f"{graph.name} did not end within {timeout_s:g} s")
        signals.hand_on()
        return run.result()

    def hurry(self) -> None:
        """Have the executor wait for no task any more: processes are killed, threads left to themselves."""
        from weft.backends.local import LocalBackend

        if isinstance(self.executor, LocalBackend):
            self.executor.grace_s = 0.0

    def __enter__(self) -> Self:
        return self


def _durable_state(durable: bool | str | os.PathLike[str]) -> StateRoot | None:
    if durable is False:
        return None
    if durable is True:
        return Settings().state_root(Path.cwd())
    if not isinstance(durable, (str, os.PathLike)):
        raise UsageError(f"durable is {durable!r}; it must be True, False or the path of a state folder")
    return StateRoot(Path(durable).absolute())


def _orders(run: Run) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """Return what a run can be told, and asked, through its control socket."""
    return {
        "cancel": lambda order: run.cancel(str(order.get("reason") or "cancelled")),
        "story": lambda order: list(run.story(str(order.get("subject") or ""))),
        "explain": lambda _: run.explained()._replace(state=WORDS[run.status].run).to_json(),
    }


def _historian(state: StateRoot) -> Historian:
    from weft.runtime.history import Historian

    state.prepare()
    return Historian(state.catalog(), RealClock())


def _folders(name: str, spill_dir: str | os.PathLike[str] | None) -> RunFolders:
    """Make the folders of something that leaves nothing behind, and sweep what killed ones left."""
    base = Path(tempfile.gettempdir() if spill_dir is None else spill_dir)
    try:
        root = user_root(base)
    except OSError as error:
        raise UsageError(f"no folder can be made in {base}: {error.strerror}", hint="Name one that exists.") from None
    shared = shm_root()
    sweep(shared)
    sweep_runs(root, lambda _: False)
    return RunFolders(f"{name}-{os.getpid()}-{secrets.token_hex(4)}", shared, root)


def _threads(
    workers: int, store: Keeper, shm: Path, spill: Path, grace_s: float, node: Resources | None = None
) -> Executor:
    from weft.backends.threads import Threads

    return Threads(workers, store, resources=node, grace_s=grace_s)


def _processes(
    workers: int, store: Keeper, shm: Path, spill: Path, grace_s: float, node: Resources | None = None
) -> Executor:
    from weft.backends.processes import Processes

    return Processes(workers, store, shm, spill=spill, resources=node, grace_s=grace_s)


def _simulator(
    workers: int, store: Keeper, shm: Path, spill: Path, grace_s: float, node: Resources | None = None
) -> Executor:
    from weft.backends.simulated_bodies import SimulatedBodies

    return SimulatedBodies(workers, store, driven=True, capacity=node)


BACKENDS: Final = {"threads": _threads, "processes": _processes, "simulator": _simulator}
"""What settings and `Session` may name; each is loaded when it is first asked for."""


def _backend(
    name: str, workers: int, store: Keeper, shm: Path, spill: Path, grace_s: float, node: Resources | None = None
) -> Executor:
    if name not in BACKENDS:
        raise UsageError(f"there is no backend {name!r}", hint=f"There are: {', '.join(BACKENDS)}")
    try:
        return BACKENDS[name](workers, store, shm, spill, grace_s, node)
    except ModuleNotFoundError as error:
        message = f"the {name} backend needs {error.name}, which is not installed"
        raise MissingExtraError(message, hint=f"Install it: pip install 'weft[{name}]'") from None


def _eviction(asked: str | EvictionKey) -> EvictionKey | None:
    if callable(asked):
        return asked
    if not isinstance(asked, str) or asked not in EVICTION:
        raise UsageError(f"there is no eviction policy {asked!r}", hint=f"There are: {', '.join(EVICTION)}")
    return EVICTION[asked]


def _session_name(name: str | None) -> str:
    if name is None:
        return "session"
    if not is_name(name) or "/" in name or len(name) > 80:
        raise UsageError(f"{name!r} cannot name a session", hint="Use 1 to 80 letters, digits and _ - .")
    return name


def _count(workers: int | None) -> int:
    if workers is None:
        return Settings().worker_count
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise UsageError(f"workers is {workers!r}; it must be a whole number from 1 on")
    return workers


def _size(memory: int | str | None) -> int | None:
    if memory is None:
        return None
    try:
        size = parse_size(memory) if isinstance(memory, str) else memory
    except (ValueError, OverflowError):
        size = 0
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UsageError(f"memory is {memory!r}; it must be a number of bytes, such as 512MiB or 4GiB")
    return size


# -------------------------------------------------------------------------------------------------------------- signals


class _Signals:
    """Signals that came. The first is for whoever waits, a second goes to the handler that was there before."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.before: dict[int, Any] = {}

    def __call__(self, number: int, frame: Any) -> None:
        self.numbers.append(number)
        if len(self.numbers) > 1:
            self.hand_on()

    def hand_on(self) -> None:
        """Give the last signal to the handler that was there before, which raises KeyboardInterrupt; none: return."""
        if self.numbers:
            before = self.before.get(self.numbers[-1])
            if callable(before):
                before(self.numbers[-1], None)
            raise KeyboardInterrupt


@contextmanager
def _signals(*numbers: signal.Signals) -> Iterator[_Signals]:
    """Note signals instead of raising in the middle of a tick; other threads than the main one get none anyway."""
    signals = _Signals()
    if threading.current_thread() is threading.main_thread():
        wanted = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        signals.before = {number: signal.signal(number, signals) for number in wanted}
    try:
        yield signals
    finally:
        for number, before in signals.before.items():
            signal.signal(number, before)


def _wait(
    run: Run,
    signals: _Signals,
    timeout_s: float | None = None,
    look: Callable[[], None] = lambda: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> bool:
    """Wait for the end of a run and `look` at it meanwhile; the first signal cancels it, and `on_interrupt` is called.

    A signal that came before asks nothing any more. False: `timeout_s` seconds were not enough.
    """
    clock = RealClock()
    end = None if timeout_s is None else clock.now() + timeout_s
    asked = bool(signals.numbers)
    while not run.wait(_POLL_S if end is None else min(_POLL_S, max(end - clock.now(), 0))):
        if signals.numbers and not asked:
            asked = True
            on_interrupt()
            run.cancel(f"interrupted by {signal.Signals(signals.numbers[0]).name}")
        if end is not None and clock.now() >= end and not asked:
            return run.done
        look()
    return True


def _picture(run: Run, name: str, undo: ExitStack) -> Callable[[], None]:
    """Return what shows how far a run is, once it takes long; on a terminal only."""
    clock = RealClock()
    begin = clock.now() + PATIENCE_S
    shown: list[Bars | None] = []

    def look() -> None:
        if not shown and clock.now() >= begin:
            shown.append(bars(name))
            if shown[0] is not None:
                undo.enter_context(shown[0])
        if shown and shown[0] is not None:
            shown[0].update(run.view())

    return look


# ------------------------------------------------------------------------------------------------------------ pipelines


@dataclass(frozen=True, slots=True)
class Caching:
    """What a run was asked to do about the cache, in names of steps.

    `off`: nothing at all. The steps in `refresh`, and `start` with all that depends on it, are not looked up. `only`:
    nothing runs but this step and what it needs.
    """

    off: bool = False
    refresh: frozenset[str] = frozenset()
    start: str = ""
    only: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pipeline that could run: read, checked, with its parameters.

    `graph` is what would run, under the id of no run; `steps` are in order; `warnings` are lines for people.
    """

    pipeline_name: str
    graph: LogicalGraph
    steps: list[str]
    warnings: list[str]
    file: Path
    root: Path
    user: str
    pipeline: Pipeline
    origin: Origin
    file_systems: Mapping[str, str]
    caching: Caching


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `outputs` maps `step.artifact` to a path that exists; `error` is None if it succeeded."""

    run_id: str
    state: str
    folder: Path
    outputs: dict[str, str]
    error: WeftError | None


@dataclass(frozen=True, slots=True)
class _Tell:
    """Whom to tell of records, of what else a person should know, and of the first signal."""

    record: Callable[[Record], None] | None
    note: Callable[[str], None]
    interrupt: Callable[[], None]


def load_pipeline(
    path: str,
    *,
    overrides: Mapping[str, str] | None = None,
    user: str | None = None,
    name: str | None = None,
    caching: Caching | None = None,
) -> Loaded:
    """Read and check a pipeline file; nothing is started or written.

    `overrides` maps `parameter` or `step.parameter` to a value; `name` replaces the name of the pipeline; `caching`
    says what to do about the cache.
    NotFoundError, ForbiddenError: the file cannot be read. PipelineError lists every mistake. UsageError: a wrong
    override or name.
    """
    file = Path(path)
    text = _read_text(file)
    origin = Origin(text, path, dict(overrides or {}), None if name is None else _pipeline_name(name))
    bound = _file_systems(file.absolute().parent)
    pipeline = make_pipeline(origin.text, origin.file, origin.overrides, origin.renamed)
    root = main_root(pipeline, file, bound)
    names = {name: str(folder) for name, folder in bound.items()}
    place = RunPlace(Path("logs"), Path("processes"))
    return _loaded(
        pipeline, origin, FIRST_RUN, place, root, Settings(user=user or "").user_name, names, caching or Caching()
    )


def _loaded(
    pipeline: Pipeline,
    origin: Origin,
    run_id: str,
    place: RunPlace,
    root: Path,
    user: str,
    file_systems: Mapping[str, str],
    caching: Caching,
) -> Loaded:
    """Return a pipeline with the graph of one run of it."""
    run = RunOf(run_id, user, str(root), file_systems)
    nodes, graph = compile_run(pipeline, run, place, origin)
    if not caching.only:
        nodes = [*nodes, *compile_run(pipeline, run, place, origin, POST_PROCESS)[0]]
    _refreshed(graph, caching)  # a wrong name is said at once
    graph = _only(graph, caching)
    last = pipeline.post_process
    names = [
        node.name
        for node in nodes
        if isinstance(node, ResolvedStep) and (node.id in graph.vertices or node.name in last)
    ]
    return Loaded(
        pipeline.name,
        graph,
        names,
        notes(nodes),
        Path(origin.file),
        root,
        user,
        pipeline,
        origin,
        file_systems,
        caching,
    )


def plan_pipeline(loaded: Loaded, settings: Settings) -> list[Foreseen]:
    """Say for each step what will become of it: a hit, a run, or what depends on a step above. Nothing is written."""
    from weft.runtime.planning import Asked, foresee
    from weft.runtime.records import item_name

    state = settings.state_root(loaded.file.absolute().parent)
    cache = None if loaded.caching.off else CachePlace(state.path / CACHE_NAME, FIRST_RUN)
    run = RunOf(FIRST_RUN, loaded.user, str(loaded.root), loaded.file_systems)
    place = RunPlace(Path("logs"), Path("processes"), cache)
    nodes, graph = compile_run(loaded.pipeline, run, place, loaded.origin)
    refreshed = _refreshed(loaded.graph, loaded.caching)
    asked = []
    for node in nodes:
        if not isinstance(node, ResolvedStep) or node.id not in loaded.graph.vertices:
            continue
        vertex = graph.vertices[node.id]
        depends = "on the list that it loops over" if node.lister else "on a loop above" if node.delivered else ""
        items = vertex.program.items or (None,)
        for number in range(len(items)):
            one = Asked(
                step=item_name(node.name, number),
                recipe=None if depends else recipe_of(vertex.program.params, number, items[number]),
                makes=() if node.lister else tuple(outputs_of(vertex, number).values()),
                skipped=node.skipped,
                refresh=node.id in refreshed,
                depends=depends,
            )
            asked.append(one)
    results = open_cache(state.path / CACHE_NAME, RealClock().wall)
    try:
        return foresee(results, asked)
    finally:
        results.index.database.close()


def run_pipeline(
    loaded: Loaded,
    settings: Settings,
    *,
    on_record: Callable[[Record], None] | None = None,
    on_note: Callable[[str], None] = lambda _: None,
    on_interrupt: Callable[[], None] = lambda: None,
    quiet: bool = False,
) -> RunResult:
    """Run a pipeline to its end in this process, and say how it ended.

    The run gets an id, a folder that this process owns, a row in the index, and a control socket. `on_record` is told
    of every change, on a thread of its own, unless `quiet`; `on_note` of what else a person should know. The first
    SIGINT or SIGTERM calls `on_interrupt` and cancels, which the result says when nothing runs any more; a second one
    raises KeyboardInterrupt at once. Errors before the first step starts are raised, later ones are in the result.
    """
    from weft.runtime.records import mark_interrupted

    state = settings.state_root(loaded.file.absolute().parent)
    state.prepare()
    with _signals(signal.SIGINT, signal.SIGTERM) as signals, ExitStack() as undo:
        catalog = state.catalog()
        undo.callback(catalog.close)
        for interrupted in mark_interrupted(state):
            shutil.rmtree(state.folder(interrupted) / SPILL_NAME, ignore_errors=True)
        try:
            tell = _Tell(None if quiet else on_record, on_note, on_interrupt)
            result = _run(loaded, settings, state, catalog, undo, signals, tell)
        except KeyboardInterrupt:
            undo.pop_all()  # whoever asks twice does not want to wait; guardians and the next start clean up
            raise
    if not isinstance(result.error, RunCancelledError):
        signals.hand_on()
    return result


def resume_run(
    folder: Path,
    settings: Settings,
    *,
    on_record: Callable[[Record], None] | None = None,
    on_note: Callable[[str], None] = lambda _: None,
    on_interrupt: Callable[[], None] = lambda: None,
    quiet: bool = False,
) -> RunResult:
    """Go on with a run that failed, was cancelled or whose owner was killed, in this process, and say how it ended.

    What has finished is not run again, unless an output of it is gone; that, and whatever else a person should know,
    is told to `on_note`. Otherwise as `run_pipeline`. ConflictError: the run still goes on, or has succeeded, or was
    made by a version that did not keep what is needed.
    """
    from weft.runtime.durable import FRONTEND
    from weft.runtime.records import open_catalog, read_run

    state = StateRoot(folder.parent.parent)
    with _signals(signal.SIGINT, signal.SIGTERM) as signals, ExitStack() as undo:
        _may_resume(read_run(folder), owned(folder))
        if read_run(folder).frontend == FRONTEND:
            tell = _Tell(None if quiet else on_record, on_note, on_interrupt)
            result = _resume_graph(state, folder, settings, undo, signals, tell)
            if not isinstance(result.error, RunCancelledError):
                signals.hand_on()
            return result
        held = undo.enter_context(RunFolder.create(state, folder.name))
        before = read_run(folder)
        _may_resume(before, alive=False)
        processes = folder / "processes"
        for record in sorted(processes.iterdir()) if processes.is_dir() else ():
            if end_recorded(record):
                on_note(f"ended what was left of {record.name}")
        catalog = open_catalog(state)
        undo.callback(catalog.close)
        with suppress(NotFoundError):
            catalog.update_run(held.run_id, ended_at=None, error_code="", error_message="", pid=os.getpid())
        loaded = _loaded_again(folder, before.file)
        try:
            tell = _Tell(None if quiet else on_record, on_note, on_interrupt)
            graph = _made(loaded, held)[1]
            result = _execute(loaded, graph, settings, catalog, held, undo, signals, tell, before)
        except KeyboardInterrupt:
            undo.pop_all()
            raise
    if not isinstance(result.error, RunCancelledError):
        signals.hand_on()
    return result


def explain_run(folder: Path) -> Explained:
    """Return what was planned and what was executed of the run in a folder, whose owner is gone.

    NotFoundError: there is no run. ConflictError: its description is damaged, or of a newer version.
    """
    from weft.runtime.durable import FRONTEND, load_graph
    from weft.runtime.explaining import explain_run as explain
    from weft.runtime.records import read_run

    run = read_run(folder)
    if run.frontend == FRONTEND:
        graph, digest = load_graph(folder)
        return explain(run, graph, MANAGERS, digest)
    try:
        made = _loaded_again(folder, run.file).graph
    except (ConflictError, NotFoundError, DefinitionError):
        made = None
    return explain(run, made, MANAGERS)


def story_run(folder: Path, subject: str = "") -> tuple[str, ...]:
    """Return what the journal of a session's run tells of a vertex, a task or (with "") the run; nothing if it cannot.

    The owner of the run is gone. ForbiddenError: others could have written to what would be loaded.
    """
    from weft.engine.story import story
    from weft.runtime.durable import FRONTEND, load_graph
    from weft.runtime.explaining import replayed
    from weft.runtime.records import read_run

    if read_run(folder).frontend != FRONTEND:
        return ()
    try:
        graph, digest = load_graph(folder)
        return story(replayed(folder, graph, MANAGERS, digest), subject)
    except (ConflictError, NotFoundError, ProgramError):
        return ()


def _resume_graph(
    state: StateRoot, folder: Path, settings: Settings, undo: ExitStack, signals: _Signals, tell: _Tell
) -> RunResult:
    """Go on with a run that a session of a program began, on the backend that it had unless another one is named."""
    backend = settings.backend
    if settings.origin("backend").kind == "default":
        began_on = read_description(folder).get("backend")
        backend = began_on if began_on in BACKENDS else backend
    spill, memory = settings.spill_dir, settings.memory or None
    session = undo.enter_context(Session(backend, settings.worker_count, memory, spill, durable=state.path))
    run = session.resume(folder.name, on_record=tell.record)
    for note in run.notes:
        tell.note(note)
    told = len(run.notes)
    _wait(run, signals, on_interrupt=tell.interrupt)
    for note in run.notes[told:]:
        tell.note(note)
    return RunResult(run.id, WORDS[run.status].run, folder, {}, _error(run))


def _may_resume(run: RunRecord, alive: bool) -> None:
    if alive:
        raise ConflictError(
            f"{run.id} still goes on", hint=f"Watch it: weft logs -f {run.id}. Stop it: weft cancel {run.id}"
        )
    if run.state == "succeeded":
        raise ConflictError(f"{run.id} has succeeded: there is nothing left to do", hint=f"See: weft show {run.id}")


def _loaded_again(folder: Path, file: str) -> Loaded:
    """Return what a run was made of, as its folder tells it: the file may have changed meanwhile, or be gone."""
    try:
        said = read_description(folder)
    except FileNotFoundError:
        said = {}
    text, root, user = said.get("text"), said.get("root"), said.get("user")
    overrides, renamed = said.get("overrides"), said.get("renamed")
    if not (isinstance(text, str) and isinstance(root, str) and isinstance(user, str) and isinstance(overrides, dict)):
        raise ConflictError(
            f"{folder.name} did not keep what a resume needs: it died too early, or an older version made it",
            hint="Start a new run.",
        )
    if not Path(root).is_dir():
        raise NotFoundError(f"the folder {root} that {folder.name} works in is gone", hint="Start a new run.")
    origin = Origin(text, file, overrides, renamed)
    pipeline = make_pipeline(text, file, overrides, renamed)
    bound = said.get("file_systems")
    names = bound if isinstance(bound, dict) else {}
    caching = Caching(off=bool(said.get("cache_off")), only=str(said.get("only") or ""))
    return _loaded(pipeline, origin, folder.name, _place(folder, caching), Path(root), user, names, caching)


def _run(
    loaded: Loaded,
    settings: Settings,
    state: StateRoot,
    catalog: Catalog,
    undo: ExitStack,
    signals: _Signals,
    tell: _Tell,
) -> RunResult:
    number, run_id = _take_id(catalog, loaded)
    folder = undo.enter_context(RunFolder.create(state, run_id))
    nodes, graph = _made(loaded, folder)
    _index(catalog, loaded, folder, number, [*nodes, *_nodes_at_the_end(loaded, folder)])
    return _execute(loaded, graph, settings, catalog, folder, undo, signals, tell)


def _nodes_at_the_end(loaded: Loaded, folder: RunFolder) -> list[Node]:
    return _made(loaded, folder, POST_PROCESS)[0] if loaded.pipeline.post_process and not loaded.caching.only else []


def _execute(
    loaded: Loaded,
    graph: LogicalGraph,
    settings: Settings,
    catalog: Catalog,
    folder: RunFolder,
    undo: ExitStack,
    signals: _Signals,
    tell: _Tell,
    before: RunRecord | None = None,
) -> RunResult:
    """Run, or go on with, the pipeline whose folder this process owns; `graph` is that of its entry points."""
    from weft.runtime.control import ControlServer
    from weft.runtime.journal import JOURNAL, FileJournal, Header, graph_digest
    from weft.runtime.records import RunRecorder, item_name

    run_id = folder.run_id
    cache = _open_cache(loaded, graph, folder, undo, tell, lambda step, message: recorder.say(step, message))
    # Not the run's own name: another state folder may have a run of the same id.
    folders = undo.enter_context(_folders(run_id, settings.spill_dir))
    spill = folders.spill
    if settings.spill_dir is None:
        spill = folder.path / SPILL_NAME
        shutil.rmtree(spill, ignore_errors=True)  # of an owner that was killed
        spill.mkdir(mode=0o700)
        undo.callback(shutil.rmtree, spill, ignore_errors=True)
    store = Keeper(settings.memory or None, shm=folders.shm, spill=spill)
    undo.callback(store.close)
    executor = _backend(settings.backend, settings.worker_count, store, folders.shm, spill, PIPELINE_GRACE_S)
    plan = None if before is None else _plan(folder, graph, executor, before)
    restored = frozenset() if plan is None else plan.finished
    over = frozenset() if plan is None or before is None else _told_already(plan, before)
    last = _runs_at_the_end(loaded, before, over)
    recorder = RunRecorder(
        folder,
        RealClock(),
        catalog=catalog,
        projection=PipelineWords(),
        goes_on=last is not None,
        over=over,
        items=True,
        restored=restored,
        on_record=tell.record,
        warning=WARNING,
        not_run=NOT_RUN,
    )
    undo.callback(recorder.close)
    clock = RealClock()
    path = folder.path / JOURNAL
    recovered = None
    if plan is None:
        journal = FileJournal.create(path, Header(graph=graph_digest(graph), tuning=executor.tuning))
    else:
        graph = plan.graph
        if plan.recovered is not None and plan.recorded is not None:
            journal = FileJournal.reopen(path, plan.recorded, plan.recovered.tape)
            recovered = plan.recovered.master, plan.recovered.pending
            clock = ResumedClock(plan.recovered.pending.now)
        else:
            header = Header(
                graph=plan.digest,
                tuning=executor.tuning,
                incarnation=plan.incarnation,
                restored=tuple(sorted(restored)),
            )
            journal = FileJournal.create(path, header)
    undo.callback(journal.join, _JOURNAL_S)
    undo.callback(journal.close)
    managers = journal.managers(MANAGERS)
    session = undo.enter_context(runtime.Session(executor, store, clock, managers))
    recorder.run_state("pending")
    if plan is not None:
        gone = {}
        for (vertex, index), output in plan.gone.items():
            name = PipelineWords().subject(plan.vertices[vertex])[0]
            gone[name] = output
            tell.note(f"{item_name(name, index)} is run again: its output {output} is gone")
        for told in before.steps if before is not None else ():
            if told.name not in over and (told.name != last or told.state != "succeeded"):
                again = gone.get(told.name)
                said = f"run again: its output {again} is gone" if again else "resumed" if told.started else ""
                recorder.say(told.name, said)
    run = session.submit(
        graph,
        listeners=[recorder] if cache is None else [recorder, cache.watch],
        cache=cache,
        journal=journal,
        restored=restored,
        recovered=recovered,
        incarnation=0 if plan is None else plan.incarnation,
    )
    current = _Current(run)
    with ControlServer(folder.path, {**_orders(run), "cancel": current.cancel}):
        _wait(run, signals, on_interrupt=tell.interrupt)
        recorder.finish(run.job)
        if last is not None and not current.forced:
            _, end = _made(loaded, folder, POST_PROCESS)
            recorder.next_job()
            current.run, current.last = session.submit(end, listeners=[recorder]), True
            _wait(current.run, signals)
            recorder.finish(current.run.job)
        elif last is not None:
            recorder.end_now()
    runs = [run] if current.run is run else [run, current.run]
    error = next((found for one in runs if (found := _error(one)) is not None), None)
    if journal.error is not None:
        tell.note(f"{journal.error.message}; a resume would begin from the records alone")
    recorder.flush()
    for problem in dict.fromkeys(error.message for error in recorder.problems if isinstance(error, WeftError)):
        lost = "" if recorder.complete else "; `weft show` and `weft ls` do not know how this run ended"
        tell.note(f"{problem}{lost}")
    state = worst(WORDS[one.status].run for one in runs)
    outputs = {name: path for one in runs for name, path in _made_outputs(one).items()}
    return RunResult(run_id, state, folder.path, outputs, error)


def _open_cache(
    loaded: Loaded,
    graph: LogicalGraph,
    folder: RunFolder,
    undo: ExitStack,
    tell: _Tell,
    say: Callable[[str, str], None],
) -> StepCache | None:
    """Return the cache of a run, None if no step of it asks for one. `say` notes something about a step."""
    general = loaded.pipeline.cache
    asked = any(step.cache.over(general).enable for step in loaded.pipeline.steps.values())
    if loaded.caching.off or not asked:
        return None
    from weft.runtime.cache import DECISIONS, StepCache

    index = folder.path.parent.parent / CACHE_NAME
    results = open_cache(index, RealClock().wall)
    undo.callback(close_cache, results)
    log, refresh = folder.path / DECISIONS, _refreshed(graph, loaded.caching)
    try:
        cache = StepCache(results, index.with_name(LOCKS), folder.run_id, log, recipe_of, refresh=refresh, say=say)
    except WeftError as error:
        tell.note(f"steps run without the cache: {error}")
        return None

    def close() -> None:
        cache.close()
        for problem in dict.fromkeys(cache.problems):
            tell.note(problem)

    undo.callback(close)
    return cache


def _refreshed(graph: LogicalGraph, caching: Caching) -> frozenset[str]:
    """Return the vertices that are not looked up. UsageError: there is no such step."""
    below = _reachable(graph, _vertices(graph, caching.start), down=True) if caching.start else set()
    return frozenset(id for name in caching.refresh for id in _vertices(graph, name)) | below


def _only(graph: LogicalGraph, caching: Caching) -> LogicalGraph:
    """Return the part of a graph that was asked for. UsageError: there is no such step."""
    if not caching.only:
        return graph
    wanted = _reachable(graph, _vertices(graph, caching.only), down=False)
    choices = [
        replace(choice, branches={name: tuple(v for v in of if v in wanted) for name, of in choice.branches.items()})
        for choice in graph.choices
        if choice.decider in wanted
    ]
    return replace(
        graph,
        vertices={id: vertex for id, vertex in graph.vertices.items() if id in wanted},
        edges=[edge for edge in graph.edges if edge.dst in wanted],
        choices=choices,
    )


def _reachable(graph: LogicalGraph, begin: set[str], *, down: bool) -> set[str]:
    """Return what depends on some vertices, or what they depend on, and themselves."""
    near: dict[str, list[str]] = {}
    for edge in graph.edges:
        near.setdefault(edge.src if down else edge.dst, []).append(edge.dst if down else edge.src)
    todo, found = list(begin), set(begin)
    while todo:
        for other in near.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def _vertices(graph: LogicalGraph, step: str) -> set[str]:
    """Return the vertices of a step, or of all that a dag has inside. UsageError: there is no such step."""
    words = PipelineWords()
    names = {id: words.subject(vertex)[0] for id, vertex in graph.vertices.items()}
    found = {id for id, name in names.items() if name and (name == step or name.startswith(f"{step}."))}
    if not found:
        known = [name for name in dict.fromkeys(names.values()) if name]
        near = get_close_matches(step, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known[:20])}"
        raise UsageError(f"{graph.name} has no step {step[:100]!r}", hint=hint)
    return found


def _place(folder: Path, caching: Caching) -> RunPlace:
    cache = None if caching.off else CachePlace(folder.parent.parent / CACHE_NAME, folder.name)
    return RunPlace(folder / "logs", folder / "processes", cache)


@dataclass(slots=True)
class _Current:
    """What goes on of a run: its entry points, then its post_process."""

    run: Run
    last: bool = False
    forced: bool = False

    def cancel(self, order: Mapping[str, Any]) -> None:
        """Cancel it; with `force` nothing comes after it. ConflictError: what comes after it is all that runs."""
        self.forced = self.forced or bool(order.get("force"))
        if self.last and not self.forced:
            raise ConflictError("only post_process runs, which a cancel does not end", hint="Add --force to end it.")
        self.run.cancel(str(order.get("reason") or "cancelled"))


def _made(loaded: Loaded, folder: RunFolder, part: str = ENTRY_POINTS) -> tuple[list[Node], LogicalGraph]:
    """Return the nodes and the graph of one part of a run that has a folder."""
    run = RunOf(folder.run_id, loaded.user, str(loaded.root), loaded.file_systems)
    nodes, graph = compile_run(loaded.pipeline, run, _place(folder.path, loaded.caching), loaded.origin, part)
    return nodes, _only(graph, loaded.caching) if part == ENTRY_POINTS else graph


def _runs_at_the_end(loaded: Loaded, before: RunRecord | None, over: frozenset[str]) -> str | None:
    """Return the step of post_process if it is to run: not if all was done and it was the last thing that was."""
    last = None if loaded.caching.only else next(iter(loaded.pipeline.post_process), None)
    if last is None or before is None:
        return last
    done = all(step.name in over for step in before.steps if step.name != last)
    return None if done and before.step(last).state == "succeeded" else last


def _plan(folder: RunFolder, graph: LogicalGraph, executor: Executor, before: RunRecord) -> Plan:
    from weft.runtime.journal import JOURNAL
    from weft.runtime.resume import plan_resume

    words = PipelineWords()
    steps = {step.name: step for step in before.steps}

    def told(vertex: Vertex, index: int) -> bool:
        step = steps.get(words.subject(vertex)[0])
        if step is None or not is_step(vertex):
            return False
        found = step if step.width is None else step.items.get(index)
        return found is not None and found.state == "succeeded"

    def outputs(vertex: Vertex, index: int) -> list[str] | None:
        return list(outputs_of(vertex, index).values()) if is_step(vertex) else None

    return plan_resume(folder.path / JOURNAL, graph, MANAGERS, executor.tuning, told=told, outputs=outputs)


def _told_already(plan: Plan, before: RunRecord) -> frozenset[str]:
    """Return the steps of which the records tell everything, so that nothing more is to be told."""
    words = PipelineWords()
    finished = Counter(words.subject(plan.vertices[vertex])[0] for vertex, _ in plan.finished)
    over = {step.name for step in before.steps if step.state == "skipped"}
    for step in before.steps:
        if step.state == "succeeded" and finished[step.name] == (1 if step.width is None else step.width):
            over.add(step.name)
    return frozenset(over)


def _take_id(catalog: Catalog, loaded: Loaded) -> tuple[int, str]:
    """Take the next run id whose place for outputs is free: the main file system may know runs of another index."""
    sub_path = loaded.pipeline.main_fs.sub_path if loaded.pipeline.main_fs else ""
    place = [*Path(sub_path).parts, _OUTPUTS]
    while True:
        run_id, number = catalog.next_run_id()
        if not any(step.outputs for step in loaded.pipeline.steps.values()):
            if sub_path:
                os.close(make_folders(loaded.root, place[:-1]))
            return number, run_id
        try:
            parent = make_folders(loaded.root, place)
            try:
                with suppress(FileExistsError):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    with os.fdopen(os.open(".gitignore", flags, 0o644, dir_fd=parent), "w") as file:
                        file.write("*\n")
                os.mkdir(run_id, dir_fd=parent)
            finally:
                os.close(parent)
        except FileExistsError:
            continue
        except OSError as error:
            raise os_error(f"the folder for outputs, {loaded.root.joinpath(*place)}, cannot be made", error) from None
        return number, run_id


def _index(catalog: Catalog, loaded: Loaded, folder: RunFolder, number: int, nodes: list[Node]) -> None:
    """Write what the run is into its folder and into the index."""
    from weft.store.catalog import RunRow

    steps = [node for node in nodes if isinstance(node, ResolvedStep)]
    about: dict[str, Any] = {
        "number": number,
        "name": loaded.pipeline_name,
        "frontend": "pipelines",
        "file": str(loaded.file.absolute()),
        "user": loaded.user,
        "host": platform.node(),
        "pid": os.getpid(),
        "created_at": RealClock().wall(),
        "parameters": {f"{step.name}.{name}": value for step in steps for name, value in step.parameters.items()},
    }
    origin = loaded.origin
    again = {  # what a resume needs
        "text": origin.text,
        "overrides": dict(origin.overrides),
        "renamed": origin.renamed,
        "root": str(loaded.root),
        "file_systems": dict(loaded.file_systems),
        "cache_off": loaded.caching.off,
        "only": loaded.caching.only,
    }
    folder.describe(**about, steps=loaded.steps, outputs=planned_outputs(nodes), **again)
    catalog.add_run(RunRow(id=folder.run_id, folder=str(folder.path), **about))


def _made_outputs(run: Run) -> dict[str, str]:
    """Return what is there of the outputs of a run, by `step.artifact`."""
    words = PipelineWords()
    found = {}
    for stage in run.job.master.core.stages:
        name, _ = words.subject(stage.vertex)
        for index in range(max(stage.n, 0)):
            item = f"{name}-{index}" if index else name
            for output, path in outputs_of(stage.vertex, index).items():
                found[f"{item}.{output}"] = path
    return {name: path for name, path in found.items() if os.path.lexists(path)}


def _error(run: Run) -> WeftError | None:
    """Return what went wrong; of a failed step its own words, which name it already."""
    error = run.error()
    if isinstance(error, TaskError):
        own = error.message.removeprefix(f"{error.task} failed: ")
        return TaskError(own, task=error.task, traceback_text=error.traceback_text, hint=error.hint)
    return error


def _read_text(file: Path) -> str:
    try:
        with file.open("rb") as source:
            data = source.read(_MAX_FILE + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {file}", hint="Name the YAML file of a pipeline.") from None
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise ForbiddenError(message, hint="Name the YAML file of a pipeline.") from None
    if len(data) > _MAX_FILE:
        raise InputLimitError(f"{file} is larger than {_MAX_FILE >> 20} MiB", hint="Pass large data as files.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{file} is not UTF-8 text (byte {error.start})", hint="Save it as UTF-8.") from None


def _pipeline_name(name: str) -> str:
    """Check a name that was given beside the file, by the rules of the file."""
    try:
        return parse_pipeline(json.dumps({"name": name, "entry_points": {"step": {}}}), "name").name
    except DefinitionError as error:
        raise UsageError(f"{name[:60]!r} cannot name a pipeline", hint=error.hint) from None


def _file_systems(start: Path) -> dict[str, Path]:
    """Return the folders that the table `fs` of `weft.toml` gives for names of file systems."""
    project = find_project(start)
    if project is None:
        return {}
    file = project / PROJECT_FILE
    try:
        table = tomllib.loads(_read_text(file)).get("fs", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not TOML: {error}", hint='Write lines such as: backend = "threads"') from None
    if not isinstance(table, dict):
        raise UsageError(f"{file}: fs must be a table of names to folders", hint='Write: fs = { data = "./data" }')
    found = {}
    for name, folder in table.items():
        path = project / folder if isinstance(folder, str) else None
        if path is None or not path.is_dir():
            raise UsageError(f"{file}: fs.{name} is {folder!r}; it must be an existing folder")
        found[name] = path.resolve()
    return found
