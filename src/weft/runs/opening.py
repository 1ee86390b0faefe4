"""The opening of a run: its folder, description, journal and records, new or existing."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.durability.journal import JOURNAL, FileJournal, Header, graph_digest, replay_journal
from weft.graph.validate import mark_results
from weft.model.errors import NotFoundError, WeftError
from weft.runs.active import JOURNAL_S, ActiveRun, RunEvents, Stack, TaskOutputPaths, unforeseen_outputs
from weft.runs.listing import index_may_be_busy, next_run_id, open_catalog
from weft.runs.recorder import RunRecorder
from weft.runtime.clock import RealClock
from weft.store.folders import remove_folder
from weft.store.locks import LOCKS
from weft.store.state import BACKEND, STORAGE, RunFolder, os_error, read_description

if TYPE_CHECKING:
    from pathlib import Path

    from weft.durability.journal import Recorded
    from weft.engine.policy import ManagerFactory
    from weft.engine.tuning import Tuning
    from weft.graph.logical import LogicalGraph
    from weft.graph.spec import RunSpec
    from weft.runs.mirroring import RunMirror
    from weft.runs.sources import RunSource
    from weft.runtime.cache import StepCache
    from weft.runtime.clock import WallClock
    from weft.store.catalog import Catalog
    from weft.store.disk import FileSystems
    from weft.store.labels import RunLabels
    from weft.store.outputs import Outputs
    from weft.store.state import StateRoot

DURABILITY: Final = "durability"
"""The key of `run.json` for the durability setting."""
Managers = Mapping[str, "ManagerFactory"]


# ------------------------------------------------------------------------------------------------------------- new runs


def open_run(
    state: StateRoot,
    source: RunSource,
    tuning: Tuning,
    managers: Managers,
    events: RunEvents,
    *,
    durability: str = "process",
    backend: str = "",
    wanted: Callable[[str], None] = lambda _: None,
) -> ActiveRun:
    """Make a run: an id, a folder that this process owns, a row in the index. `ActiveRun.start` starts it.

    `backend` is the name of that on which the run begins, and is resumed; "" if the source describes it. `wanted` is
    called with the id before anything is written; a WeftError of it cancels the opening. Errors of the
    source are raised. ForbiddenError, DiskFullError: the folder cannot be made.
    """
    state.prepare()
    undo = ExitStack()
    try:
        catalog = open_catalog(state)
        undo.callback(catalog.close)
        source = source.at(many_machines=tuning.many_machines).prepare(events.note)
        copies = source.copies(undo, events.note)
        spec = None
        while spec is None:
            run_id, number = next_run_id(state, catalog)
            try:
                spec = source.claim(run_id, state.folder(run_id), copies)
            except WeftError:
                with suppress(WeftError):  # the refusal is what the user needs to know
                    catalog.give_back(number)
                raise
        if backend:
            spec = replace(spec, about={**spec.about, BACKEND: backend})
        events.announce(run_id, spec)
        folder = undo.enter_context(RunFolder.create(state, run_id))
        try:
            wanted(run_id)
        except WeftError:
            remove_folder(folder.path)
            raise
        _describe(catalog, folder, spec, number, durability, events)
        values = open_values(spec, folder, undo)
        digest = spec.digest or graph_digest(spec.graph)
        mark_results(spec.graph)
        create = partial(FileJournal.create, folder.path / JOURNAL, Header(graph=digest, tuning=tuning))
        make = with_values(create, values, spec.graph, managers)
        mirror = hold_mirror(folder, undo, events)
        stack = make_stack(folder, catalog, undo, spec, events, durability, make, values=values, mirror=mirror)
        stack.copies = copies
        stack.recorder.run_state("pending")
        return ActiveRun(spec, stack, None, events)
    except KeyboardInterrupt:
        undo.pop_all()  # a second signal leaves at once; guardians and the next start clean up
        raise
    except BaseException:
        undo.close()
        raise


def give_labels(folder: Path, labels: RunLabels | None) -> None:
    """Give a new run its tags and its note."""
    if labels is not None and (labels.tags or labels.note):
        from weft.store.labels import change_labels

        change_labels(folder, tags=labels.tags, note=labels.note)


def hold_mirror(
    folder: RunFolder, undo: ExitStack, events: RunEvents, clock: WallClock | None = None
) -> RunMirror | None:
    """Return the mirror of a run whose files travel by a URL, to be opened; `undo` closes it. None: there is none."""
    stored: Any = None
    with suppress(NotFoundError):
        stored = read_description(folder.path).get(STORAGE)
    if not isinstance(stored, dict):
        return None
    from weft.runs.mirroring import RunMirror  # few runs have one

    now = (clock or RealClock()).wall
    url, key = str(stored["url"]), str(stored["key"])
    mirror = RunMirror(folder, url, key, events.note, now, keep=bool(stored.get("keep")))
    undo.callback(mirror.close)
    return mirror


def _describe(
    catalog: Catalog, folder: RunFolder, spec: RunSpec, number: int, durability: str, events: RunEvents
) -> None:
    """Write the description of the run to its folder and to the index."""
    from weft.store.catalog import RunRow

    common: dict[str, Any] = {
        "number": number,
        "name": spec.graph.name,
        "frontend": spec.graph.frontend,
        "file": spec.file,
        "user": spec.user,
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "created_at": RealClock().wall(),
    }
    if spec.program:
        from weft.durability.programs import PROGRAM, write_file  # few runs have one

        write_file(folder.path / PROGRAM, spec.program)
    folder.describe(**{"steps": list(spec.steps), **common, **spec.about, DURABILITY: durability})
    with index_may_be_busy(events.note):
        catalog.add_run(RunRow(id=folder.run_id, parameters=spec.parameters, **common))


def final_steps(graph: LogicalGraph) -> frozenset[str]:
    """Return the names of the steps that run at the end of any run."""
    return frozenset(vertex.step for vertex in graph.vertices.values() if vertex.final)


# ------------------------------------------------------------------------------------------------------- the durability


def open_values(spec: RunSpec, folder: RunFolder, undo: ExitStack) -> Outputs | None:
    """Return the files of the values of a run; None if its steps leave files themselves."""
    if spec.paths is not None:
        return None
    from weft.store.outputs import FOLDER, Outputs  # steps of pipelines leave files

    values = Outputs(folder.path / FOLDER)
    undo.callback(values.close)
    return values


def make_stack(
    folder: RunFolder,
    catalog: Catalog,
    undo: ExitStack,
    spec: RunSpec,
    events: RunEvents,
    durability: str,
    make: Callable[..., FileJournal],
    *,
    values: Outputs | None,
    over: Collection[str] = (),
    mirror: RunMirror | None = None,
) -> Stack:
    """Return the parts of a run on disk; `make` makes its journal. `over` names the steps with complete records."""
    cache = None
    if spec.cache is not None:
        cache = _open_cache(spec, folder, undo, events, lambda step, message: recorder.say(step, message))
    strict = durability == "power" and spec.paths is not None
    side_outputs = TaskOutputPaths(spec)
    if strict:
        from weft.durability.side_outputs import SideOutputs

        systems = _file_systems(spec, folder, undo)
        make = partial(make, files=SideOutputs(systems, side_outputs.of))
    recorder = RunRecorder(
        folder,
        RealClock(),
        catalog=catalog,
        projection=spec.projection,
        over=over,
        items=spec.paths is not None,
        on_record=events.on_record,
        outputs=unforeseen_outputs(spec, read_description(folder.path).get("outputs") or ()),
        mirror=(lambda: None) if mirror is None else mirror.send,
    )
    undo.callback(recorder.close)
    journal = make()
    undo.callback(journal.join, JOURNAL_S)
    undo.callback(journal.close)
    recorder.wait_for(journal, durable=strict)
    return Stack(folder, catalog, undo, journal, recorder, values, cache, side_outputs, strict=strict, mirror=mirror)


def with_values(
    make: Callable[..., FileJournal], values: Outputs | None, graph: LogicalGraph, managers: Managers
) -> Callable[..., FileJournal]:
    """Return a factory of journals that write the values of tasks too and are truncated at snapshots."""
    if values is None:
        return make
    return partial(make, outputs=values, cutter=partial(_snapshot, graph, managers))


def _snapshot(graph: LogicalGraph, managers: Managers, recorded: Recorded) -> bytes:
    from weft.durability import snapshot  # only long journals are truncated

    return snapshot.dump(graph, replay_journal(graph, recorded, managers))


def _file_systems(spec: RunSpec, folder: RunFolder, undo: ExitStack) -> FileSystems:
    """Return the file systems of the folder of a run and of its outputs, with their present content made durable."""
    from weft.store.disk import FileSystems

    try:
        systems = FileSystems([folder.path, *spec.roots])
        undo.callback(systems.close)
        systems.sync()
    except OSError as error:
        places = " and ".join(str(path) for path in (folder.path, *spec.roots))
        raise os_error(f"{places} cannot be made safe from a loss of power", error) from None
    return systems


def _open_cache(
    spec: RunSpec, folder: RunFolder, undo: ExitStack, events: RunEvents, say: Callable[[str, str], None]
) -> StepCache | None:
    """Return the cache of a run, or None if it is unusable. `say` adds a note about a step."""
    from weft.runtime.cache import DECISIONS, StepCache
    from weft.store.results import close_cache, open_cache

    use = spec.cache
    assert use is not None
    state = folder.path.parent.parent
    results = open_cache(state, RealClock().wall)
    undo.callback(close_cache, results)
    try:
        if damage := results.index.set_aside_damage():
            events.note(damage)
        cache = StepCache(
            results,
            state / LOCKS,
            folder.run_id,
            folder.path / DECISIONS,
            use.recipe_of,
            refresh=use.refresh,
            say=say,
            placed=use.placed,
        )
    except WeftError as error:
        events.note(f"steps run without the cache: {error}")
        return None

    def close() -> None:
        cache.close()
        for problem in dict.fromkeys(cache.problems):
            events.note(problem)

    undo.callback(close)
    return cache
