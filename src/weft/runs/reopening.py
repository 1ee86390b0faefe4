"""The reopening of a run: from its journal or its records, edited or not."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from weft.admin.deleting import end_processes
from weft.durability.journal import JOURNAL, FileJournal
from weft.durability.resume import FinishedTask, Plan, plan_resume
from weft.durability.values import plan_values
from weft.engine.tuning import Tuning
from weft.graph.order import reachable
from weft.model.errors import ConflictError, DiskFullError, NotFoundError, WeftError
from weft.model.ids import item_name
from weft.runs.active import JOURNAL_S, ActiveRun, RunEvents, Stack
from weft.runs.edited_files import edited_files
from weft.runs.editing import KEPT, edits_that_count, kept_by_edit, record_edit
from weft.runs.listing import index_may_be_busy, open_catalog
from weft.runs.opening import DURABILITY, final_steps, hold_mirror, make_stack, open_values, with_values
from weft.runs.reading import read_run, record_interruption
from weft.runs.records import ACTIVE
from weft.runs.sources import SourceHost
from weft.runtime.clock import RealClock, ResumedClock
from weft.store.database import WHAT_CAN_GO
from weft.store.expiry import set_expiries
from weft.store.state import (
    LEAST_ROOM,
    ROOT,
    WORKERS,
    RunFolder,
    StateRoot,
    is_copied,
    is_elsewhere,
    owned,
    owns_root,
    read_description,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from weft.admin.settings import Settings
    from weft.graph.logical import Vertex
    from weft.graph.spec import CommandFiles, RunSpec
    from weft.runs.mirroring import RunMirror
    from weft.runs.opening import Managers
    from weft.runs.reading import RunRecord, StepRecord
    from weft.runs.sources import ResumableSource, Revised
    from weft.runtime.clock import WallClock
    from weft.runtime.session import EngineSession
    from weft.store.catalog import Catalog
    from weft.store.filesystems import Copy
    from weft.store.outputs import Outputs
    from weft.store.results import ResultCache

_MOST_NAMES: Final = 3
_LEAVING_S: Final = JOURNAL_S
"""The seconds in which the process of a run leaves it after the record of its end."""
_PAUSE_S: Final = 0.02


class Host(SourceHost, Protocol):
    """The parts of a service that a resumed run uses."""

    @property
    def settings(self) -> Settings:
        """The settings of the service."""
        ...

    @property
    def clock(self) -> WallClock:
        """The clock of the service."""
        ...

    def workers(self) -> EngineSession:
        """Return the store and the workers that all runs share."""
        ...

    def results(self, note: Callable[[str], None] | None = None) -> AbstractContextManager[ResultCache]:
        """Open the cache."""
        ...


def resume_files(
    state: StateRoot,
    folder: Path,
    undo: ExitStack,
    events: RunEvents,
    file: str | None,
    overrides: Mapping[str, str],
    host: Host,
    source: ResumableSource | None = None,
) -> ActiveRun:
    """Resume a run whose steps leave files, on the workers of a host; see `RunService.resume`."""
    held = undo.enter_context(own_again(state, folder.name))
    mirror = hold_mirror(held, undo, events, host.clock)
    if mirror is not None:
        mirror.open()
    set_expiries(state.path, folder.name, ())
    record_interruption(held)
    before = read_run(folder)
    refuse_resume(before, alive=False)
    elsewhere = is_elsewhere(folder, read_description(folder))
    _take_over(held, events.note)
    catalog = open_catalog(state)
    undo.callback(catalog.close)
    setting_again(held, host.settings, WORKERS)
    session = host.workers()
    if source is None:
        source = host.source_again(before.frontend, folder, before.file)
    source = source.at(many_machines=session.executor.tuning.many_machines)
    again: Mapping[str, str] = {}
    described = read_description(folder)
    if file is None and source.is_edited(described):
        _tell_of_edited_file(before, events.note)
    if file is not None or overrides:
        revised = source.revise(held, described, file, overrides, events.note)
        again = _record_revision(held, revised, before, catalog, host.managers)
        before, spec, copies_of = read_run(folder), revised.spec, revised.source
    else:
        spec = source.resume(held, described, _done(before))
        copies_of = source
    if elsewhere:  # the warnings of its begin were those of another place
        for warning in spec.warnings:
            events.note(warning)
    named, spec = spec.named_files, replace(spec, named_files=dict)  # it holds what the run does not need
    copies = copies_of.copies(undo, events.note, fetch=file is not None)
    run = reopen_run(
        held,
        catalog,
        undo.pop_all(),
        spec,
        before,
        session.executor.tuning,
        host.managers,
        events,
        durability=str(setting_again(held, host.settings, DURABILITY)),
        again=again,
        copies=copies,
        mirror=mirror,
    )
    finished, lost = _finished(before, run, again)
    _tell_of_old_outputs(before, run, finished, events.note)
    if finished or lost:
        with host.results(events.note) as results:
            _tell_of_edited_scripts(before, finished, lost, named(), results, events.note)
    continue_clock(session, run.plan)
    run.start(session)
    return run


def _finished(before: RunRecord, run: ActiveRun, again: Collection[str]) -> tuple[list[StepRecord], list[StepRecord]]:
    """Return the steps of a resumed run that have finished, at least for an item: those that do not run again, and
    those that do since their output is gone.
    """
    plan = run.plan
    assert plan is not None
    gone = {plan.vertices[vertex].step for vertex, _ in plan.gone}
    left_out = {*again, *final_steps(run.spec.graph)}
    done = [step for step in before.steps if step.name in _done(before) and step.name not in left_out]
    return [step for step in done if step.name not in gone], [step for step in done if step.name in gone]


def _tell_of_old_outputs(
    before: RunRecord, run: ActiveRun, finished: Sequence[StepRecord], note: Callable[[str], None]
) -> None:
    """Note the finished steps after those that make an output anew: they do not run again for it."""
    plan = run.plan
    assert plan is not None
    for name in dict.fromkeys(plan.vertices[vertex].step for vertex, _ in plan.gone):
        begin = {vertex for vertex, _ in plan.gone if plan.vertices[vertex].step == name}
        after = {plan.vertices[id].step for id in reachable(plan.graph, begin, down=True) if id in plan.vertices}
        if kept := [step.name for step in finished if step.name in after]:
            keep = "keeps what it" if len(kept) == 1 else "keep what they"
            mixed = f"if the new one differs, {before.id} mixes both"
            note(
                f"{_some(kept)} {keep} made of the old output of {name}: {mixed}; "
                f"to make all of it anew: weft run {shlex.quote(shown_path(before.file))}"
            )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _tell_of_edited_scripts(
    run: RunRecord,
    steps: Sequence[StepRecord],
    lost: Sequence[StepRecord],
    named: Mapping[str, CommandFiles],
    results: ResultCache,
    note: Callable[[str], None],
) -> None:
    """Note the files that finished steps used and that have changed since: `steps` do not run again for them, and
    `lost` ones run again for another reason.
    """
    try:
        edited = edited_files(run, [*steps, *lost], named, results)
    except WeftError as error:
        note(f"whether files of finished steps have changed is not known: {error.message}")
        return
    again = {step.name for step in lost}
    for file, names in edited.items():
        if anew := [name for name in names if name in again]:
            what = "is run again with it" if len(anew) == 1 else "are run again with it"
            note(f"{shown_path(file)} has changed since {_some(anew)} used it, and {_some(anew)} {what} as it is now")
        if kept := [name for name in names if name not in again]:
            on = f"{run.id} goes on with the earlier result"
            note(
                f"{shown_path(file)} has changed since {_some(kept)} used it, and {on}; "
                f"for a new one: weft run {shlex.quote(shown_path(run.file))}"
            )


def shown_path(file: str) -> str:
    """Return a path as users type it here."""
    return os.path.relpath(file) if file.startswith(f"{os.getcwd()}/") else file


def _tell_of_edited_file(run: RunRecord, note: Callable[[str], None]) -> None:
    """Note that the file of a run has other work now than the run, which goes on with its own."""
    name = shown_path(run.file)
    # A job goes on as it was submitted; see `TrainingSource.revise`.
    words = f"for a new run of the file as it is now: weft run {shlex.quote(name)}"
    if not run.of_jobs:
        words = f"to go on with the file as it is now: weft resume {run.id} --file {shlex.quote(name)}"
    note(f"{name} has changed since {run.id} read it, and the run goes on as it was; {words}")


def refuse_resume(run: RunRecord, alive: bool) -> None:
    """Refuse a resume without effect. ConflictError: the run is active, or has succeeded. DiskFullError: it could not
    record what it does.

    `alive`: it has an owner. One that has recorded the end of the run leaves it soon, and is waited for.
    """
    if alive and not _is_left(run.folder):
        raise _still_running(run.id)
    if run.state == "succeeded":
        described = read_description(run.folder) if not run.of_session else {}
        only = described.get("only") or ", ".join(described.get("targets") or ())
        hint = f"The run was limited to {only} and its inputs; for the rest: weft run {run.file}" if only else ""
        raise ConflictError(
            f"{run.id} has succeeded: there is nothing left to do", hint=hint or f"See: weft show {run.id}"
        )
    free = shutil.disk_usage(run.folder).free
    if free < LEAST_ROOM:
        raise DiskFullError(
            f"{run.id} cannot be resumed: the disk of {run.folder} is full, {free >> 10} KiB are free",
            hint=f"Free space on this disk. {WHAT_CAN_GO} Then: weft resume {run.id}",
        )


def _is_left(folder: Path) -> bool:
    """Whether the owner of a run leaves it, since it has recorded the end; False if the run goes on."""
    clock = RealClock()
    end = clock.now() + _LEAVING_S
    while owned(folder):
        if read_run(folder).state in ACTIVE or clock.now() >= end:
            return False
        time.sleep(_PAUSE_S)
    return True


def _still_running(run: str) -> ConflictError:
    return ConflictError(f"{run} is still running", hint=f"Watch it: weft logs -f {run}. Stop it: weft cancel {run}")


def own_again(state: StateRoot, run: str) -> RunFolder:
    """Own the folder of an earlier run. ConflictError: another process has begun to resume it."""
    try:
        return RunFolder.create(state, run)
    except ConflictError:
        raise _still_running(run) from None


def setting_again(folder: RunFolder, settings: Settings, name: str) -> Any:
    """Return a setting of a resumed run: that of its start, unless a flag overrides it from now on."""
    is_now = getattr(settings, name)
    was = read_description(folder.path).get(name, is_now)
    if settings.origin(name).kind != "flag" or is_now == was:
        return was
    folder.describe_again(**{name: is_now})
    return is_now


def continue_clock(session: EngineSession, plan: Plan | None) -> None:
    """Continue the clock of a session from the end of a journal."""
    if plan is not None and plan.recovered is not None and isinstance(session.loop.clock, ResumedClock):
        session.loop.clock.reach(plan.recovered.pending.now)


def _done(before: RunRecord) -> frozenset[str]:
    """Return the names of the steps with at least one succeeded item."""
    return frozenset(
        step.name
        for step in before.steps
        if step.state == "succeeded" or any(item.state == "succeeded" for item in step.items.values())
    )


def _take_over(held: RunFolder, note: Callable[[str], None]) -> None:
    """End the processes, containers and guardians of a killed owner; of a copied run only the records are removed.

    ConflictError: the run is a copy that would change files of the original.
    """
    folder = held.path
    description: Mapping[str, Any] = {}
    with suppress(FileNotFoundError, NotFoundError):
        description = read_description(folder)
    copied = bool(description) and is_copied(folder, description)
    root = str(description.get(ROOT))
    foreign = os.path.isdir(root) and not owns_root(folder, description)
    if foreign or (copied and description.get("urls")):
        from weft.store.remote import shown

        where = f"{root}, outside of this project" if foreign else ", ".join(map(shown, description["urls"].values()))
        why = "and is a copy: the original may work there" if copied else "and another folder is there now"
        hint = f"Start a new run: weft run {description.get('file')}"
        raise ConflictError(f"{folder.name} works in {where}, {why}", hint=hint)
    for name in end_processes(folder):
        note(f"ended the remaining processes of {name}")
    if copied:
        note(f"{folder.name} was copied with its project; the original stays as it is")
        held.describe_again()
    by = None if copied else description.get("containers")
    if isinstance(by, dict):
        from weft.operators.containers import ContainerEngine

        left = ContainerEngine(by["kind"], by["program"]).remove_containers(str(folder))
        if left:
            note(f"removed {left} remaining containers")


def _record_revision(
    folder: RunFolder, revised: Revised, before: RunRecord, catalog: Catalog, managers: Managers
) -> dict[str, str]:
    """Write an edit to the folder; return the finished steps that run again, with reasons."""
    plan = plan_files(folder.path, revised.before, Tuning(), managers, before)
    about = {**revised.about, KEPT: _kept(plan, kept_by_edit(folder.path), revised)}
    again = record_edit(
        folder,
        before,
        RealClock().wall(),
        why=revised.why,
        items=revised.items,
        wider=revised.wider,
        removed=revised.removed,
        there=revised.there,
        about=about,
    )
    with suppress(NotFoundError), index_may_be_busy():
        catalog.update_run(folder.run_id, file=about["file"], parameters=about["parameters"])
    return again


def _kept(plan: Plan, earlier: Sequence[FinishedTask], revised: Revised) -> list[FinishedTask]:
    """Return the finished tasks that an edit keeps, of vertices added during the run."""
    paths = revised.before.paths
    assert paths is not None
    known = [(id, n, vertex) for id, n in sorted(plan.restored) if (vertex := plan.vertices.get(id)) is not None]
    found = [
        FinishedTask(id, n, vertex.step, tuple(paths(vertex, n).values()))
        for id, n, vertex in known
        if vertex.outputs is not None
    ]
    found += [one for one in earlier if (one.vertex, one.task) in plan.restored and one.vertex not in plan.vertices]
    return [one for one in found if one.vertex not in revised.spec.graph.vertices and not revised.why(one.name)]


def reopen_run(
    folder: RunFolder,
    catalog: Catalog,
    undo: ExitStack,
    spec: RunSpec,
    before: RunRecord,
    tuning: Tuning,
    managers: Managers,
    events: RunEvents,
    *,
    durability: str = "process",
    again: Mapping[str, str] = MappingProxyType({}),
    copies: Sequence[Copy] = (),
    mirror: RunMirror | None = None,
) -> ActiveRun:
    """Open an existing run whose folder this process owns; `before` is its record under an earlier owner.

    `again` has the reasons why an edit has steps run again. `undo` closes the open parts, and belongs to the run from
    now on.
    """
    try:
        return _reopened(
            folder, catalog, undo, spec, before, tuning, managers, events, durability, dict(again), list(copies), mirror
        )
    except KeyboardInterrupt:
        undo.pop_all()
        raise
    except BaseException:
        undo.close()
        raise


def _reopened(
    folder: RunFolder,
    catalog: Catalog,
    undo: ExitStack,
    spec: RunSpec,
    before: RunRecord,
    tuning: Tuning,
    managers: Managers,
    events: RunEvents,
    durability: str,
    again: Mapping[str, str],
    copies: Sequence[Copy],
    mirror: RunMirror | None,
) -> ActiveRun:
    values = open_values(spec, folder, undo)
    plan = _plan(folder, spec, tuning, managers, before, values)
    over = _over(plan, spec, before)
    spec = replace(spec, graph=plan.graph)
    if plan.recovered is not None and plan.recorded is not None:
        changed = tuning if plan.recorded.tuning != tuning else None
        tape = plan.recovered.tape
        found: Callable[..., FileJournal] = partial(
            FileJournal.reopen, folder.path / JOURNAL, plan.recorded, tape, tuning=changed
        )
    else:
        found = partial(FileJournal.create, folder.path / JOURNAL, plan.header)
    make = with_values(found, values, plan.graph, managers)
    stack = make_stack(folder, catalog, undo, spec, events, durability, make, values=values, over=over, mirror=mirror)
    stack.copies = copies
    if stack.cache is not None:
        stack.cache.go_on()
    if plan.ended:
        if before.state != "succeeded":
            stack.recorder.run_state("succeeded", ended=True)
    else:
        with suppress(NotFoundError), index_may_be_busy(events.note):
            catalog.update_run(folder.run_id, ended_at=None, error_code="", error_message="", pid=os.getpid())
        stack.recorder.run_state("pending")
        if values is None:
            _report_files(stack, plan, spec, before, events, over, again)
        else:
            _report_values(stack, plan, events)
    return ActiveRun(spec, stack, plan, events)


def plan_files(folder: Path, spec: RunSpec, tuning: Tuning, managers: Managers, before: RunRecord) -> Plan:
    """Plan the resume of a run whose steps leave files; see `plan_resume`."""
    paths = spec.paths
    assert paths is not None
    steps = {step.name: step for step in before.steps}
    last = final_steps(spec.graph)
    all_done = all(step.state in ("succeeded", "skipped") for name, step in steps.items() if name not in last)

    def succeeded(vertex: Vertex, index: int) -> bool:
        step = steps.get(vertex.step)
        if step is None or vertex.outputs is None or (vertex.final and not all_done):
            return False
        found = step if step.width is None else step.items.get(index)
        return found is not None and found.state == "succeeded"

    def outputs(vertex: Vertex, index: int) -> list[str] | None:
        return list(paths(vertex, index).values()) if vertex.outputs is not None else None

    return plan_resume(
        folder / JOURNAL,
        spec.graph,
        managers,
        tuning,
        succeeded=succeeded,
        outputs=outputs,
        kept=kept_by_edit(folder),
        edits=edits_that_count(folder),
    )


def _plan(
    folder: RunFolder, spec: RunSpec, tuning: Tuning, managers: Managers, before: RunRecord, values: Outputs | None
) -> Plan:
    if values is None:
        return plan_files(folder.path, spec, tuning, managers, before)
    return plan_values(folder.path, spec.graph, spec.digest, values, tuning, managers)


def _over(plan: Plan, spec: RunSpec, before: RunRecord) -> frozenset[str]:
    """Return the steps with complete records, which need no further ones."""
    if spec.paths is None:
        over = {step.name for step in before.steps if step.state in ("succeeded", "skipped")}
        over -= {vertex for vertex, _ in plan.gone}
        if plan.recovered is None:
            over -= set(spec.graph.vertices) - {vertex for vertex, _ in plan.restored}
        return frozenset(over)
    known = [plan.vertices[vertex] for vertex, _ in plan.restored if vertex in plan.vertices]
    finished = Counter(vertex.step for vertex in known)
    over = {step.name for step in before.steps if step.state == "skipped"}
    for step in before.steps:
        if step.state == "succeeded" and finished[step.name] == (1 if step.width is None else step.width):
            over.add(step.name)
    return frozenset(over)


def _report_values(stack: Stack, plan: Plan, events: RunEvents) -> None:
    """Report the finished tasks that are run again."""
    for vertex, count in Counter(vertex for vertex, _ in plan.gone).items():
        what = f"{count} finished {'task is' if count == 1 else 'tasks are'} run again: the output is gone"
        events.note(f"{vertex}: {what}")
        stack.recorder.say(vertex, what)


def _report_files(
    stack: Stack,
    plan: Plan,
    spec: RunSpec,
    before: RunRecord,
    events: RunEvents,
    over: Collection[str],
    again: Mapping[str, str],
) -> None:
    """Report for each resumed step why it is run again, or that it was resumed."""
    gone = {}
    last = final_steps(spec.graph)
    for (vertex, index), output in plan.gone.items():
        name = plan.vertices[vertex].step
        gone[name] = f"its output {Path(output).name} ({output}) is gone"
        events.note(f"{item_name(name, index)} is run again: {gone[name]}")
    for step in before.steps:
        if step.name in over or (step.name in last and step.state == "succeeded"):
            continue
        if step.name in again:
            stack.recorder.default_message(step.name, f"run again: {again[step.name]}")
            events.note(f"{step.name} is run again: {again[step.name]}")
        elif step.name in gone:
            stack.recorder.say(step.name, f"run again: {gone[step.name]}")
        elif step.state == "succeeded" and plan.why:
            stack.recorder.say(step.name, f"run again: {plan.why}")
        else:
            stack.recorder.say(step.name, "resumed" if step.attempts else "")
