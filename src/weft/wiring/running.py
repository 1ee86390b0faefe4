"""Pipelines run: a loaded one in, a run with its folder, its records and its end out."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.frontends.pipelines.caching import recipe_of
from weft.frontends.pipelines.compiler import outputs_of
from weft.frontends.pipelines.paths import POST_PROCESS
from weft.frontends.pipelines.states import PROJECTION
from weft.model.errors import ConflictError, RunCancelledError, RunFailedError, TaskError, WeftError
from weft.model.resources import Resources
from weft.runtime import session as runtime
from weft.runtime.clock import RealClock, ResumedClock
from weft.store.blocks import BlockManager
from weft.store.entries import CACHE_NAME
from weft.store.folders import SPILL_NAME, remove_folder
from weft.store.locks import LOCKS
from weft.store.results import close_cache, open_cache
from weft.store.state import RunFolder, StateRoot, os_error, read_description
from weft.wiring.asked import refreshed_vertices
from weft.wiring.concrete import MANAGERS, BackendPlace, eviction_key, make_backend, session_folders
from weft.wiring.loading import Loaded, made_for, made_ready, main_elsewhere, nodes_at_the_end
from weft.wiring.places import DURABILITY, hold_copies, index_run, place_of_outputs, take_id
from weft.wiring.waiting import Signals, noted_signals, orders_of, wait_for_end

if TYPE_CHECKING:
    from weft.admin.settings import Settings
    from weft.durability.left import Left
    from weft.durability.resume import Plan
    from weft.engine.core import Tuning
    from weft.graph.logical import LogicalGraph, Vertex
    from weft.runs.records import Record, RunRecord
    from weft.runtime.cache import StepCache
    from weft.runtime.session import Run
    from weft.store.catalog import Catalog
    from weft.store.disk import FileSystems


PIPELINE_GRACE_S: Final = 30.0
"""The same for steps: their guardian needs its own grace, and time to see the last process go."""
_JOURNAL_S: Final = 10.0


class RunResult(Struct, frozen=True):
    """How a run ended. `outputs` maps `step.artifact` to a path that exists; `error` is None if it succeeded."""

    run_id: str
    state: str
    folder: Path
    outputs: dict[str, str]
    error: WeftError | None


class Tell(Struct, frozen=True):
    """Whom to tell of records, of what else a person should know, of the first signal, and of the beginning."""

    record: Callable[[Record], None] | None
    note: Callable[[str], None]
    interrupt: Callable[[], None]
    begin: Callable[[Path], None]


def run_pipeline(
    loaded: Loaded,
    settings: Settings,
    *,
    on_record: Callable[[Record], None] | None = None,
    on_note: Callable[[str], None] = lambda _: None,
    on_interrupt: Callable[[], None] = lambda: None,
    on_begin: Callable[[Path], None] = lambda _: None,
    on_id: Callable[[str], None] = lambda _: None,
    quiet: bool = False,
) -> RunResult:
    """Run a pipeline to its end in this process, and say how it ended.

    The run gets an id, a folder that this process owns, a row in the index, and a control socket. `on_record` is told
    of every change, on a thread of its own, unless `quiet`; `on_note` of what else a person should know; `on_begin` of
    the run's folder, once it has begun and takes orders; `on_id` of its id before that, and what it raises ends it.
    The first SIGINT or SIGTERM calls `on_interrupt` and cancels, which the result says when nothing runs any more; a
    second one raises KeyboardInterrupt at once. Errors before the first step starts are raised, later ones are in the
    result.
    """
    from weft.runs.listing import mark_interrupted

    state = settings.state_root(loaded.file.absolute().parent)
    state.prepare()
    with noted_signals(signal.SIGINT, signal.SIGTERM) as signals, ExitStack() as undo:
        catalog = state.catalog()
        undo.callback(catalog.close)
        for interrupted in mark_interrupted(state):
            shutil.rmtree(state.folder(interrupted) / SPILL_NAME, ignore_errors=True)
        try:
            tell = Tell(None if quiet else on_record, on_note, on_interrupt, on_begin)
            result = _run(loaded, settings, state, catalog, undo, signals, tell, on_id)
        except KeyboardInterrupt:
            undo.pop_all()  # whoever asks twice does not want to wait; guardians and the next start clean up
            raise
    if not isinstance(result.error, RunCancelledError):
        signals.hand_on()
    return result


def _run(
    loaded: Loaded,
    settings: Settings,
    state: StateRoot,
    catalog: Catalog,
    undo: ExitStack,
    signals: Signals,
    tell: Tell,
    on_id: Callable[[str], None],
) -> RunResult:
    loaded = made_ready(loaded, tell.note)
    copies = hold_copies(loaded, undo, tell.note)
    number, run_id = take_id(catalog, loaded, copies)
    folder = undo.enter_context(RunFolder.create(state, run_id))
    try:
        on_id(run_id)
    except WeftError:
        remove_folder(folder.path)
        raise
    nodes, graph = made_for(loaded, folder)
    all_nodes = [*nodes, *nodes_at_the_end(loaded, folder)]
    index_run(catalog, loaded, folder, number, all_nodes, settings.durability)
    result = execute(loaded, graph, settings, catalog, folder, undo, signals, tell)
    for copy in copies:
        copy.give_back(tell.note)
    return result


def execute(
    loaded: Loaded,
    graph: LogicalGraph,
    settings: Settings,
    catalog: Catalog,
    folder: RunFolder,
    undo: ExitStack,
    signals: Signals,
    tell: Tell,
    before: RunRecord | None = None,
    again: Mapping[str, str] = MappingProxyType({}),
) -> RunResult:
    """Run, or go on with, the pipeline whose folder this process owns; `graph` is that of its entry points.

    `before` is what its records tell of an earlier owner, `again` why an edit has steps run again.
    """
    from weft.admin.control import ControlServer
    from weft.durability.journal import JOURNAL, FileJournal, Header, graph_digest
    from weft.runs.records import RunRecorder, item_name

    run_id = folder.run_id
    cache = _open_cache(loaded, graph, folder, undo, tell, lambda step, message: recorder.say(step, message))
    # Not the run's own name: another state folder may have a run of the same id.
    folders = undo.enter_context(session_folders(run_id, settings.spill_dir))
    spill = folders.spill
    if settings.spill_dir is None:
        spill = folder.path / SPILL_NAME
        shutil.rmtree(spill, ignore_errors=True)  # of an owner that was killed
        spill.mkdir(mode=0o700)
        undo.callback(shutil.rmtree, spill, ignore_errors=True)
    store = BlockManager(
        settings.memory or None, shm=folders.shm, spill=spill, eviction=eviction_key(settings.eviction)
    )
    undo.callback(store.close)
    node = Resources(settings.worker_count, store.memory.budget, settings.gpus, settings.gpu_type)
    window = settings.stream_window or None
    place = BackendPlace(settings.worker_count, store, folders.shm, spill, PIPELINE_GRACE_S, node, window)
    executor = make_backend(settings.backend, place)
    durability = settings.durability if before is None else _durability_again(settings, folder)
    steps = _Outputs()
    systems = files = None
    if durability == "power":
        from weft.durability.left import LeftFiles

        systems = _files_of(loaded, folder, undo)
        files = LeftFiles(systems, steps.of)
    plan = None if before is None else plan_again(folder, graph, executor.tuning, before)
    restored = frozenset() if plan is None else plan.finished
    over = frozenset() if plan is None or before is None else _told_already(plan, before)
    last = _runs_at_the_end(loaded, before, over)
    recorder = RunRecorder(
        folder,
        RealClock(),
        catalog=catalog,
        projection=PROJECTION,
        goes_on=last is not None,
        over=over,
        items=True,
        on_record=tell.record,
        outputs=unforeseen_outputs(read_description(folder.path)["outputs"]),
    )
    undo.callback(recorder.close)
    clock = RealClock()
    path = folder.path / JOURNAL
    recovered = None
    if plan is None:
        header = Header(graph=graph_digest(graph), tuning=executor.tuning)
        journal = FileJournal.create(path, header, files=files)
    else:
        graph = plan.graph
        if plan.recovered is not None and plan.recorded is not None:
            journal = FileJournal.reopen(path, plan.recorded, plan.recovered.tape, files=files)
            recovered = plan.recovered.master, plan.recovered.pending
            clock = ResumedClock(plan.recovered.pending.now)
        else:
            header = Header(
                graph=plan.digest,
                tuning=executor.tuning,
                incarnation=plan.incarnation,
                restored=tuple(sorted(restored)),
            )
            journal = FileJournal.create(path, header, files=files)
    undo.callback(journal.join, _JOURNAL_S)
    undo.callback(journal.close)
    if cache is not None and plan is not None:
        cache.go_on()
    managers = journal.managers(MANAGERS)
    session = undo.enter_context(runtime.Session(executor, store, clock, managers))
    if systems is not None:
        recorder.wait_for(journal, systems)
    recorder.run_state("pending")
    if plan is not None:
        gone = {}
        for (vertex, index), output in plan.gone.items():
            name = plan.vertices[vertex].step
            gone[name] = output
            tell.note(f"{item_name(name, index)} is run again: its output {_of_path(output)} is gone")
        for told in before.steps if before is not None else ():
            if told.name not in over and (told.name != last or told.state != "succeeded"):
                if told.name in again:
                    why = again[told.name]
                    recorder.keep_saying(told.name, f"run again: {why}")
                    tell.note(f"{told.name} is run again: {why}")
                elif told.name in gone:
                    recorder.say(told.name, f"run again: its output {_of_path(gone[told.name])} is gone")
                else:
                    recorder.say(told.name, "resumed" if told.attempts else "")
    run = session.start(
        graph,
        listeners=[recorder] if cache is None else [recorder, cache.watch],
        cache=cache,
        journal=journal,
        restored=restored,
        recovered=recovered,
        incarnation=0 if plan is None else plan.incarnation,
        strict=files is not None,
    )
    steps.run = run
    current = _Current(run)
    with ControlServer(folder.path, {**orders_of(run, PROJECTION), "cancel": current.cancel}):
        tell.begin(folder.path)
        wait_for_end(run, signals, on_interrupt=tell.interrupt)
        recorder.finish(run.job)
        if last is not None and not current.forced:
            _, end = made_for(loaded, folder, POST_PROCESS)
            recorder.next_job()
            current.run, current.last = session.submit(end, listeners=[recorder]), True
            wait_for_end(current.run, signals, heeded=True)
            recorder.finish(current.run.job)
        elif last is not None:
            recorder.end_now(last)
    runs = [run] if current.run is run else [run, current.run]
    error = next((found for one in runs if (found := error_of(one)) is not None), None)
    if journal.error is not None and files is None:
        tell.note(f"{journal.error.message}; a resume would begin from the records alone")
    recorder.flush()
    for problem in dict.fromkeys(error.message for error in recorder.problems if isinstance(error, WeftError)):
        lost = "" if recorder.complete else "; `weft show` and `weft ls` do not know how this run ended"
        tell.note(f"{problem}{lost}")
    state = _worst([PROJECTION.run(one.status) for one in runs])
    if files is not None and not recorder.complete and error is None:
        state, error = "failed", RunFailedError(f"{folder.run_id} ended, but not on the disk: see its notes")
    outputs = {name: path for one in runs for name, path in _made_outputs(one).items()}
    return RunResult(run_id, state, folder.path, outputs, error)


def _durability_again(settings: Settings, folder: RunFolder) -> str:
    """Return what a run that goes on survives: what it was begun with, unless a flag says otherwise, from then on."""
    was = read_description(folder.path).get(DURABILITY, settings.durability)
    if settings.origin("durability").kind != "flag" or settings.durability == was:
        return str(was)
    folder.describe_again(**{DURABILITY: settings.durability})
    return settings.durability


def _files_of(loaded: Loaded, folder: RunFolder, undo: ExitStack) -> FileSystems:
    """Return the file systems of a run's folder and of its outputs, with what is there by now made durable."""
    from weft.store.disk import FileSystems

    outputs = loaded.root.joinpath(*(place_of_outputs(loaded) or ()))
    try:
        files = FileSystems([folder.path, outputs])
        undo.callback(files.close)
        files.sync()
    except OSError as error:
        raise os_error(f"{folder.path} and {outputs} cannot be made safe from a loss of power", error) from None
    return files


def _of_path(output: str) -> str:
    """Name an output for people by its path, with what matters first."""
    return f"{Path(output).name} ({output})"


def _open_cache(
    loaded: Loaded,
    graph: LogicalGraph,
    folder: RunFolder,
    undo: ExitStack,
    tell: Tell,
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
    log, refresh = folder.path / DECISIONS, refreshed_vertices(graph, loaded.caching)
    try:
        cache = StepCache(
            results,
            index.with_name(LOCKS),
            folder.run_id,
            log,
            recipe_of,
            refresh=refresh,
            say=say,
            placed=_publisher(loaded),
        )
    except WeftError as error:
        tell.note(f"steps run without the cache: {error}")
        return None

    def close() -> None:
        cache.close()
        for problem in dict.fromkeys(cache.problems):
            tell.note(problem)

    undo.callback(close)
    return cache


def _publisher(loaded: Loaded) -> Callable[[Iterable[str]], None]:
    """Return what is to become of outputs that the cache has put in place: they are sent to where others are sent."""
    elsewhere = main_elsewhere(loaded.pipeline, loaded.root, loaded.urls)
    if elsewhere is None:
        return lambda _: None
    from weft.store.remote import Remote

    remote = Remote(elsewhere[0], Path(elsewhere[1]))

    def publish(paths: Iterable[str]) -> None:
        remote.publish(paths)

    return publish


class _Current(Struct):
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


class _Outputs:
    """Where the steps of a run leave their outputs; nobody knows before it has begun."""

    def __init__(self) -> None:
        self.run: Run | None = None

    def of(self, vertex: str, index: int) -> Left:
        """Return the paths of a task's outputs; None for a step that names none, and may have left anything."""
        stage = None if self.run is None else self.run.job.master.core.by_id.get(vertex)
        if stage is None:
            return None
        return list(outputs_of(stage.vertex, index).values()) or (() if stage.vertex.outputs is None else None)


def _runs_at_the_end(loaded: Loaded, before: RunRecord | None, over: frozenset[str]) -> str | None:
    """Return the step of post_process if it is to run: not if all was done and it was the last thing that was."""
    last = None if loaded.caching.only else next(iter(loaded.pipeline.post_process), None)
    if last is None or before is None:
        return last
    done = all(step.name in over for step in before.steps if step.name != last)
    return None if done and before.step(last).state == "succeeded" else last


def plan_again(folder: RunFolder, graph: LogicalGraph, tuning: Tuning, before: RunRecord) -> Plan:
    """Find out how a run goes on whose records tell what came `before`; see `plan_resume`."""
    from weft.durability.journal import JOURNAL
    from weft.durability.resume import plan_resume
    from weft.runs.editing import edits_that_count, kept_by_edit

    steps = {step.name: step for step in before.steps}

    def told(vertex: Vertex, index: int) -> bool:
        step = steps.get(vertex.step)
        if step is None or vertex.outputs is None:
            return False
        found = step if step.width is None else step.items.get(index)
        return found is not None and found.state == "succeeded"

    def outputs(vertex: Vertex, index: int) -> list[str] | None:
        return list(outputs_of(vertex, index).values()) if vertex.outputs is not None else None

    journal, kept, edits = folder.path / JOURNAL, kept_by_edit(folder.path), edits_that_count(folder.path)
    return plan_resume(journal, graph, MANAGERS, tuning, told=told, outputs=outputs, kept=kept, edits=edits)


def _told_already(plan: Plan, before: RunRecord) -> frozenset[str]:
    """Return the steps of which the records tell everything, so that nothing more is to be told."""
    known = [plan.vertices[vertex] for vertex, _ in plan.finished if vertex in plan.vertices]
    finished = Counter(vertex.step for vertex in known)
    over = {step.name for step in before.steps if step.state == "skipped"}
    for step in before.steps:
        if step.state == "succeeded" and finished[step.name] == (1 if step.width is None else step.width):
            over.add(step.name)
    return frozenset(over)


def unforeseen_outputs(planned: Collection[str]) -> Callable[[Vertex, int], dict[str, str]]:
    """Return what tells where the outputs of a task lie, by name, but for those `planned` before the run."""
    from weft.runs.records import item_name

    def outputs(vertex: Vertex, index: int) -> dict[str, str]:
        step = item_name(vertex.step, index)
        if all(f"{step}.{name}" in planned for name in vertex.outputs or ()):
            return {}
        return {name: path for name, path in outputs_of(vertex, index).items() if f"{step}.{name}" not in planned}

    return outputs


def _made_outputs(run: Run) -> dict[str, str]:
    """Return what is there of the outputs of a run, by `step.artifact`."""
    found = {}
    for stage in run.job.master.core.stages:
        name = stage.vertex.step
        for index in range(max(stage.n, 0)):
            item = f"{name}-{index}" if index else name
            for output, path in outputs_of(stage.vertex, index).items():
                found[f"{item}.{output}"] = path
    return {name: path for name, path in found.items() if os.path.lexists(path)}


def _worst(states: Sequence[str]) -> str:
    """Return the word for a run from those for its parts: failed if one is, else terminated if one is."""
    return next((word for word in ("failed", "terminated") if word in states), states[0])


def error_of(run: Run) -> WeftError | None:
    """Return what went wrong; of a failed step its own words, which name it already."""
    error = run.error()
    if isinstance(error, TaskError):
        own = error.message.removeprefix(f"{error.task} failed: ")
        return type(error)(
            own, task=error.task, traceback_text=error.traceback_text, raised=error.raised, hint=error.hint
        )
    return error
