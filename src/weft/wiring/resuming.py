"""Runs that go on: of pipelines, edited or not, and of sessions of programs."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.admin import opened
from weft.admin.filesystems import STAGE, file_systems
from weft.engine.core import Tuning
from weft.frontends.pipelines.caching import code_of
from weft.frontends.pipelines.compiler import outputs_of
from weft.frontends.pipelines.kinds import PYTHON
from weft.frontends.pipelines.resolve import make_pipeline, unknown_parameters
from weft.model.errors import ConflictError, NotFoundError, RunCancelledError, UsageError
from weft.runtime.clock import RealClock
from weft.store.state import RunFolder, StateRoot, owned, read_description
from weft.wiring.concrete import BACKENDS, projection_of
from weft.wiring.loading import (
    Loaded,
    loaded_again,
    made_for,
    made_ready,
    main_elsewhere,
    make_loaded,
    nodes_at_the_end,
    origin_of,
    place_of,
)
from weft.wiring.places import CODE, about_run, hold_copies, make_place, place_of_outputs
from weft.wiring.running import RunResult, Tell, error_of, execute, plan_again
from weft.wiring.session import Session
from weft.wiring.waiting import Signals, noted_signals, wait_for_end
from weft.worker.group import end_recorded

if TYPE_CHECKING:
    from weft.admin.settings import Settings
    from weft.durability.resume import Kept, Plan
    from weft.frontends.pipelines.compiler import Origin
    from weft.frontends.pipelines.edits import Edit
    from weft.graph.logical import LogicalGraph
    from weft.runs.records import Record, RunRecord
    from weft.store.catalog import Catalog


def resume_run(
    folder: Path,
    settings: Settings,
    *,
    file: str | None = None,
    overrides: Mapping[str, str] | None = None,
    on_record: Callable[[Record], None] | None = None,
    on_note: Callable[[str], None] = lambda _: None,
    on_interrupt: Callable[[], None] = lambda: None,
    on_begin: Callable[[Path], None] = lambda _: None,
    quiet: bool = False,
) -> RunResult:
    """Go on with a run that failed, was cancelled or whose owner was killed, in this process, and say how it ended.

    What has finished is not run again, unless an output of it is gone; that, and whatever else a person should know,
    is told to `on_note`. Otherwise as `run_pipeline`. With `file` or `overrides` it goes on with an edited pipeline, or
    with other parameters: what they change is run again, with all that comes after it.
    ConflictError: the run still goes on, or has succeeded, was made by a version that did not keep what is needed, or
    cannot go on with this edit. PipelineError, UsageError: what is wrong with the edit.
    """
    from weft.runs.listing import open_catalog
    from weft.runs.records import read_run, tell_interruption

    state = StateRoot(folder.parent.parent)
    with noted_signals(signal.SIGINT, signal.SIGTERM) as signals, ExitStack() as undo:
        _may_resume(read_run(folder), owned(folder))
        if read_run(folder).of_session:
            tell = Tell(None if quiet else on_record, on_note, on_interrupt, on_begin)
            if file is not None or overrides:
                raise UsageError(f"{folder.name} is a run of a Python program: it has no file to edit")
            result = _resume_graph(state, folder, settings, undo, signals, tell)
            if not isinstance(result.error, RunCancelledError):
                signals.hand_on()
            return result
        held = undo.enter_context(RunFolder.create(state, folder.name))
        tell_interruption(held)
        before = read_run(folder)
        _may_resume(before, alive=False)
        processes = folder / "processes"
        for record in sorted(processes.iterdir()) if processes.is_dir() else ():
            if end_recorded(record):
                on_note(f"ended what was left of {record.name}")
        _remove_containers(folder, on_note)
        catalog = open_catalog(state)
        undo.callback(catalog.close)
        with suppress(NotFoundError):
            catalog.update_run(held.run_id, ended_at=None, error_code="", error_message="", pid=os.getpid())
        loaded = loaded_again(folder, before.file)
        again: dict[str, str] = {}
        if file is not None or overrides:
            loaded, again = _edited(loaded, before, held, catalog, file, overrides or {}, on_note)
            before = read_run(folder)
        else:
            _note_code(loaded, before, held)
        try:
            tell = Tell(None if quiet else on_record, on_note, on_interrupt, on_begin)
            graph = made_for(loaded, held)[1]
            copies = hold_copies(loaded, undo, tell.note, fetch=file is not None)
            result = execute(loaded, graph, settings, catalog, held, undo, signals, tell, before, again)
            for copy in copies:
                copy.give_back(tell.note)
        except KeyboardInterrupt:
            undo.pop_all()
            raise
    if not isinstance(result.error, RunCancelledError):
        signals.hand_on()
    return result


def _resume_graph(
    state: StateRoot, folder: Path, settings: Settings, undo: ExitStack, signals: Signals, tell: Tell
) -> RunResult:
    """Go on with a run that a session of a program began, in one like that unless a flag says otherwise."""
    said, backend = read_description(folder), settings.backend
    if settings.origin("backend").kind != "flag":
        began_on = said.get("backend")
        backend = began_on if began_on in BACKENDS else backend
    options = opened.options_of(said, settings)
    undo.enter_context(_printing_aside())
    session = undo.enter_context(Session(backend, spill_dir=settings.spill_dir, durable=state.path, **options))
    run = session.resume(folder.name, on_record=tell.record)
    for note in run.notes:
        tell.note(note)
    told = len(run.notes)
    tell.begin(folder)
    wait_for_end(run, signals, on_interrupt=tell.interrupt)
    for note in run.notes[told:]:
        tell.note(note)
    return RunResult(run.id, projection_of(run.frontend).run(run.status), folder, {}, error_of(run))


@contextmanager
def _printing_aside() -> Iterator[None]:
    """Have what tasks print, and processes that they start, go to stderr: stdout is for what the command answers."""
    try:
        sys.stdout.flush()
        out = os.dup(1)
    except (OSError, ValueError):  # it is closed
        yield
        return
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(out, 1)
        os.close(out)


def _may_resume(run: RunRecord, alive: bool) -> None:
    if alive:
        raise ConflictError(
            f"{run.id} still goes on", hint=f"Watch it: weft logs -f {run.id}. Stop it: weft cancel {run.id}"
        )
    if run.state == "succeeded":
        only = read_description(run.folder).get("only") if not run.of_session else ""
        hint = f"Only {only} and what it needs was asked for; for the rest: weft run {run.file}" if only else ""
        raise ConflictError(
            f"{run.id} has succeeded: there is nothing left to do", hint=hint or f"See: weft show {run.id}"
        )


def _remove_containers(folder: Path, note: Callable[[str], None]) -> None:
    """Remove what an owner that was killed, and its guardians with it, has left of containers."""
    by = None
    with suppress(FileNotFoundError):
        by = read_description(folder).get("containers")
    if isinstance(by, dict):
        from weft.operators.containers import ContainerEngine

        left = ContainerEngine(by["kind"], by["program"]).remove_containers(str(folder))
        if left:
            note(f"removed {left} containers that were left")


def _edited(
    loaded: Loaded,
    before: RunRecord,
    folder: RunFolder,
    catalog: Catalog,
    file: str | None,
    overrides: Mapping[str, str],
    note: Callable[[str], None],
) -> tuple[Loaded, dict[str, str]]:
    """Put an edited pipeline in the place of that of a run; return it, and why which finished steps run again."""
    from weft.frontends.pipelines.edits import compare, refusal
    from weft.runs.editing import KEPT, kept_by_edit, record_edit

    own = loaded.origin
    if file is None:
        origin = replace(own, overrides={**own.overrides, **overrides})
    else:
        given = own.built_with if PYTHON.search(file) and own.built_with else own.overrides
        origin = replace(origin_of(file, {**given, **overrides}, None), renamed=own.renamed, main_fs=own.main_fs)
        origin = _without_what_is_gone(origin, overrides, note)
    pipeline = make_pipeline(origin.text, origin.file, origin.overrides, origin.renamed, origin.kinds, origin.main_fs)
    why = refusal(loaded.pipeline, pipeline)
    if why:
        hint = f"Start a new run: weft run {origin.file}. Steps with a cache are not run again."
        raise ConflictError(f"{folder.run_id} cannot go on with this: {why}", hint=hint)
    bound = file_systems(Path(origin.file).absolute().parent, {}, folder.path.parent.parent / STAGE)
    folders = {**{name: str(one.folder) for name, one in bound.items()}, **loaded.file_systems}
    urls = {name: one.url for name, one in bound.items() if one.url and name not in loaded.file_systems}
    urls |= loaded.urls
    elsewhere = main_elsewhere(pipeline, loaded.root, urls)
    place = place_of(folder.path, loaded.caching, loaded.around, elsewhere, loaded.containers)
    new = make_loaded(
        pipeline,
        origin,
        folder.run_id,
        place,
        loaded.root,
        loaded.user,
        folders,
        loaded.caching,
        loaded.around,
        urls,
    )
    new = made_ready(new, lambda _: None)
    where = place_of_outputs(new)
    if where is not None and place_of_outputs(loaded) is None:
        make_place(new, where, folder.run_id)
    nodes, graph = made_for(new, folder)
    nodes = [*nodes, *nodes_at_the_end(new, folder)]
    old_nodes, old_graph = made_for(loaded, folder)
    old_nodes = [*old_nodes, *nodes_at_the_end(loaded, folder)]
    about = about_run(new, nodes)
    code = ({} if file is None else read_description(folder.path).get(CODE, {}), about[CODE])
    edit = compare((loaded.pipeline, old_nodes), (pipeline, nodes), graph, code)
    kept = _kept(plan_again(folder, old_graph, Tuning(), before), kept_by_edit(folder.path), graph, edit)
    about[KEPT] = kept
    again = record_edit(
        folder,
        before,
        RealClock().wall(),
        why=edit.why,
        items=edit.items,
        wider=edit.wider,
        removed=edit.removed,
        there={node.name for node in nodes},
        about=about,
    )
    with suppress(NotFoundError):
        catalog.update_run(folder.run_id, file=about["file"], parameters=about["parameters"])
    return new, again


def _without_what_is_gone(origin: Origin, given: Mapping[str, str], note: Callable[[str], None]) -> Origin:
    """Drop what earlier commands set and the file no longer has; parameters `given` now are left to be refused."""
    plain = make_pipeline(origin.text, origin.file, {}, origin.renamed, origin.kinds, origin.main_fs)
    gone = [name for name in unknown_parameters(plain, origin.overrides) if name not in given]
    for name in gone:
        note(f"the file has no parameter {name} any more: its value, {origin.overrides[name]}, is dropped")
    overrides, built_with = (
        {name: value for name, value in values.items() if name not in gone}
        for values in (origin.overrides, origin.built_with)
    )
    return replace(origin, overrides=overrides, built_with=built_with)


def _note_code(loaded: Loaded, before: RunRecord, folder: RunFolder) -> None:
    """Put down of what code the steps are that run now; of those that have done something it is that of then."""
    nodes = [*made_for(loaded, folder)[0], *nodes_at_the_end(loaded, folder)]
    now = code_of(loaded.pipeline, nodes, str(loaded.file.absolute().parent))
    was = read_description(folder.path).get(CODE, {})
    done = {
        step.name
        for step in before.steps
        if step.state == "succeeded" or any(item.state == "succeeded" for item in step.items.values())
    }
    kept = {
        name: leaves
        for name, leaves in was.items()
        if name in done or any(re.match(rf"{re.escape(name)}(-\d+)?\.", step) for step in done)
    }
    if {**now, **kept} != was:
        folder.describe_again(**{CODE: {**now, **kept}})


def _kept(plan: Plan, earlier: list[Kept], graph: LogicalGraph, edit: Edit) -> list[Kept]:
    """Return the finished tasks that an edit leaves as they are, of vertices that came while the run went on."""
    from weft.durability.resume import Kept

    known = [(id, n, vertex) for id, n in sorted(plan.finished) if (vertex := plan.vertices.get(id)) is not None]
    found = [
        Kept(id, n, vertex.step, tuple(outputs_of(vertex, n).values()))
        for id, n, vertex in known
        if vertex.outputs is not None
    ]
    found += [one for one in earlier if (one.vertex, one.task) in plan.finished and one.vertex not in plan.vertices]
    return [one for one in found if one.vertex not in graph.vertices and not edit.why(one.name)]
