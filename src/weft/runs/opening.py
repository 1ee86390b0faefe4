"""The opening of a run: its folder, its description, its journal and its records, made or taken up again."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from weft.durability import snapshot
from weft.durability.journal import JOURNAL, FileJournal, Header, graph_digest, replay_journal
from weft.durability.programs import PROGRAM, load_graph, pickle_graph, write_file
from weft.durability.resume import Plan, plan_resume
from weft.durability.values import plan_values
from weft.graph.spec import RunSpec
from weft.graph.validate import mark_results
from weft.model.errors import ConflictError, NotFoundError, WeftError
from weft.runs.active import JOURNAL_S, ActiveRun, LeftBySteps, RunEvents, Stack, unforeseen_outputs
from weft.runs.editing import edits_that_count, kept_by_edit
from weft.runs.listing import open_catalog
from weft.runs.records import RunRecorder, item_name, read_run, tell_interruption
from weft.runtime.clock import RealClock
from weft.store.entries import CACHE_NAME
from weft.store.folders import remove_folder
from weft.store.locks import LOCKS
from weft.store.outputs import FOLDER, Outputs
from weft.store.results import close_cache, open_cache
from weft.store.state import GRAPH_DIGEST, RunFolder, os_error, read_description

if TYPE_CHECKING:
    from weft.durability.journal import Recorded
    from weft.engine.core import Tuning
    from weft.engine.policy import ManagerFactory
    from weft.graph.logical import LogicalGraph, Vertex
    from weft.graph.projection import Projection
    from weft.runs.records import RunRecord
    from weft.runtime.cache import StepCache
    from weft.store.catalog import Catalog
    from weft.store.disk import FileSystems
    from weft.store.filesystems import Copy
    from weft.store.state import StateRoot

DURABILITY: Final = "durability"
"""The key of `run.json` for the setting that says what a told end of a step survives."""
Note = Callable[[str], None]
Managers = Mapping[str, "ManagerFactory"]


class RunSource(Protocol):
    """The work of a front end before it has a run id."""

    @property
    def base(self) -> Path:
        """The folder from which the state folder is looked for."""
        ...

    def prepare(self, note: Callable[[str], None]) -> Self:
        """Return it with what its steps need around them; errors where that is not there."""
        ...

    def copies(self, undo: ExitStack, note: Callable[[str], None], *, fetch: bool = True) -> list[Copy]:
        """Hold the copies of file systems that lie elsewhere until `undo` lets go of them."""
        ...

    def claim(self, run_id: str, folder: Path, copies: Sequence[Copy]) -> RunSpec | None:
        """Return the run of that id in that folder, with a place for its outputs; None: the id is taken elsewhere."""
        ...


class Revised(Protocol):
    """A run with an edited pipeline in the place of the one that it began with."""

    @property
    def source(self) -> ResumableSource:
        """The edited work."""
        ...

    @property
    def spec(self) -> RunSpec:
        """The run."""
        ...

    @property
    def before(self) -> RunSpec:
        """The run as it was."""
        ...

    @property
    def why(self) -> Callable[[str], str]:
        """The function that says why a step runs again; "" if it does not."""
        ...

    @property
    def items(self) -> Mapping[tuple[str, int], str]:
        """The same for items of loops."""
        ...

    @property
    def wider(self) -> Mapping[str, str]:
        """The same for loops of another length."""
        ...

    @property
    def removed(self) -> Sequence[str]:
        """The steps that are no longer there."""
        ...

    @property
    def there(self) -> Collection[str]:
        """The names of all that is there."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """The fields of the description that change."""
        ...


class ResumableSource(RunSource, Protocol):
    """The work of a front end whose runs go on from files."""

    def resume(self, folder: RunFolder, described: Mapping[str, Any], done: frozenset[str]) -> RunSpec:
        """Return the run of a folder again; `done` names the steps and items that have finished."""
        ...

    def revise(
        self,
        folder: RunFolder,
        described: Mapping[str, Any],
        file: str | None,
        overrides: Mapping[str, str],
        note: Note,
    ) -> Revised:
        """Return the run with another file or other parameters. ConflictError: it cannot go on with that."""
        ...


class GraphSource(Struct):
    """A graph of a Python program; `about` goes into the description of its run."""

    graph: LogicalGraph
    projection: Projection
    user: str
    about: Mapping[str, Any]
    base: Path = Path()
    data: bytes = b""

    def prepare(self, note: Callable[[str], None]) -> Self:
        """Return it with its pickle. ProgramError: a function or an item cannot be pickled."""
        mark_results(self.graph)
        self.graph = self.graph.copy()  # no builder, which has more
        self.data = pickle_graph(self.graph)
        return self

    def copies(self, undo: ExitStack, note: Callable[[str], None], *, fetch: bool = True) -> list[Copy]:
        """Return nothing: its tasks work in no file system that Weft holds."""
        return []

    def claim(self, run_id: str, folder: Path, copies: Sequence[Copy]) -> RunSpec | None:
        """Return the run; None where an index that was lost has known a run of this id."""
        if (folder / PROGRAM).exists():
            return None
        script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
        file = str(script.absolute()) if script.is_file() else ""
        paths = [str(Path(path).absolute()) for path in sys.path]
        digest = sha256(self.data).hexdigest()
        about = {"paths": paths, GRAPH_DIGEST: digest, **self.about}
        steps = list(self.graph.vertices)
        return RunSpec(
            self.graph,
            self.projection,
            self.user,
            file=file,
            steps=steps,
            about=about,
            program=self.data,
            digest=digest,
        )


# ------------------------------------------------------------------------------------------------------------- new runs


def open_run(
    state: StateRoot,
    source: RunSource,
    tuning: Tuning,
    managers: Managers,
    events: RunEvents,
    *,
    durability: str = "process",
    wanted: Callable[[str], None] = lambda _: None,
) -> ActiveRun:
    """Make a run: an id, a folder that this process owns, a row in the index. `ActiveRun.start` starts it.

    `wanted` is called with the id before anything is written: its WeftError ends the run. Errors of the source, and
    ForbiddenError, DiskFullError: the folder cannot be made.
    """
    state.prepare()
    undo = ExitStack()
    try:
        catalog = open_catalog(state)
        undo.callback(catalog.close)
        source = source.prepare(events.note)
        copies = source.copies(undo, events.note)
        spec = None
        while spec is None:
            run_id, number = catalog.next_run_id()
            spec = source.claim(run_id, state.folder(run_id), copies)
        events.announce(run_id, spec)
        folder = undo.enter_context(RunFolder.create(state, run_id))
        try:
            wanted(run_id)
        except WeftError:
            remove_folder(folder.path)
            raise
        _describe(catalog, folder, spec, number, durability)
        values = _open_values(spec, folder, undo)
        digest = spec.digest or graph_digest(spec.graph)
        mark_results(spec.graph)
        create = partial(FileJournal.create, folder.path / JOURNAL, Header(graph=digest, tuning=tuning))
        make = _with_values(create, values, spec.graph, managers)
        stack = _make_stack(folder, catalog, undo, spec, events, durability, make, values=values)
        stack.copies = copies
        stack.recorder.run_state("pending")
        return ActiveRun(spec, stack, None, events)
    except KeyboardInterrupt:
        undo.pop_all()  # whoever asks twice does not want to wait; guardians and the next start clean up
        raise
    except BaseException:
        undo.close()
        raise


def _describe(catalog: Catalog, folder: RunFolder, spec: RunSpec, number: int, durability: str) -> None:
    """Write what the run is into its folder and into the index."""
    from weft.store.catalog import RunRow

    told: dict[str, Any] = {
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
        write_file(folder.path / PROGRAM, spec.program)
    folder.describe(**{"steps": list(spec.steps), **told, **spec.about, DURABILITY: durability})
    catalog.add_run(RunRow(id=folder.run_id, folder=str(folder.path), parameters=spec.parameters, **told))


def final_steps(graph: LogicalGraph) -> frozenset[str]:
    """Return the names of the steps that run whatever happened."""
    return frozenset(vertex.step for vertex in graph.vertices.values() if vertex.final)


# ------------------------------------------------------------------------------------------------------- the durability


def _open_values(spec: RunSpec, folder: RunFolder, undo: ExitStack) -> Outputs | None:
    """Return the files of the values of a run; None where its steps leave files themselves."""
    if spec.paths is not None:
        return None
    values = Outputs(folder.path / FOLDER)
    undo.callback(values.close)
    return values


def _make_stack(
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
) -> Stack:
    """Return the parts of a run on disk; `make` makes its journal. `over` names steps of which everything is told."""
    cache = None
    if spec.cache is not None:
        cache = _open_cache(spec, folder, undo, events, lambda step, message: recorder.say(step, message))
    strict = durability == "power" and spec.paths is not None
    left = LeftBySteps(spec)
    if strict:
        from weft.durability.left import LeftFiles

        systems = _file_systems(spec, folder, undo)
        make = partial(make, files=LeftFiles(systems, left.of))
    recorder = RunRecorder(
        folder,
        RealClock(),
        catalog=catalog,
        projection=spec.projection,
        over=over,
        items=spec.paths is not None,
        on_record=events.on_record,
        outputs=unforeseen_outputs(spec, read_description(folder.path).get("outputs") or ()),
    )
    undo.callback(recorder.close)
    journal = make()
    undo.callback(journal.join, JOURNAL_S)
    undo.callback(journal.close)
    if strict:
        recorder.wait_for(journal)
    return Stack(folder, catalog, undo, journal, recorder, values, cache, left, strict=strict)


def _with_values(
    make: Callable[..., FileJournal], values: Outputs | None, graph: LogicalGraph, managers: Managers
) -> Callable[..., FileJournal]:
    """Return what makes a journal that writes the values of tasks too, and is cut by snapshots."""
    if values is None:
        return make
    return partial(make, outputs=values, cutter=partial(_snapshot, graph, managers))


def _snapshot(graph: LogicalGraph, managers: Managers, recorded: Recorded) -> bytes:
    return snapshot.dump(graph, replay_journal(graph, recorded, managers))


def _file_systems(spec: RunSpec, folder: RunFolder, undo: ExitStack) -> FileSystems:
    """Return the file systems of a run's folder and of its outputs, with what is there by now made durable."""
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
    """Return the cache of a run, None where it cannot be used. `say` notes something about a step."""
    from weft.runtime.cache import DECISIONS, StepCache

    use = spec.cache
    assert use is not None
    index = folder.path.parent.parent / CACHE_NAME
    results = open_cache(index, RealClock().wall)
    undo.callback(close_cache, results)
    try:
        cache = StepCache(
            results,
            index.with_name(LOCKS),
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


# ------------------------------------------------------------------------------------------------- runs that go on


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
) -> ActiveRun:
    """Take up a run whose folder this process owns; `before` is what its records tell of an earlier owner.

    `again` says why an edit has steps run again. `undo` closes what was opened, and is the run's from here on.
    """
    try:
        return _reopened(
            folder, catalog, undo, spec, before, tuning, managers, events, durability, dict(again), list(copies)
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
) -> ActiveRun:
    values = _open_values(spec, folder, undo)
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
    make = _with_values(found, values, plan.graph, managers)
    stack = _make_stack(folder, catalog, undo, spec, events, durability, make, values=values, over=over)
    stack.copies = copies
    if stack.cache is not None:
        stack.cache.go_on()
    if plan.ended:
        if before.state != "succeeded":
            stack.recorder.run_state("succeeded", ended=True)
    else:
        with suppress(NotFoundError):
            catalog.update_run(folder.run_id, ended_at=None, error_code="", error_message="", pid=os.getpid())
        stack.recorder.run_state("pending")
        if values is None:
            _tell_files(stack, plan, spec, before, events, over, again)
        else:
            _tell_values(stack, plan, events)
    return ActiveRun(spec, stack, plan, events)


def plan_files(folder: Path, spec: RunSpec, tuning: Tuning, managers: Managers, before: RunRecord) -> Plan:
    """Find out how a run whose steps leave files goes on; see `plan_resume`."""
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
        told=succeeded,
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
    """Return the steps of which the records tell everything, so that nothing more is to be told."""
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


def _tell_values(stack: Stack, plan: Plan, events: RunEvents) -> None:
    """Say which tasks are run again though they had finished."""
    for vertex, count in Counter(vertex for vertex, _ in plan.gone).items():
        what = f"{count} finished {'task is' if count == 1 else 'tasks are'} run again: the output is gone"
        events.note(f"{vertex}: {what}")
        stack.recorder.say(vertex, what)


def _tell_files(
    stack: Stack,
    plan: Plan,
    spec: RunSpec,
    before: RunRecord,
    events: RunEvents,
    over: Collection[str],
    again: Mapping[str, str],
) -> None:
    """Say of each step that goes on why it is run again, or that it was resumed."""
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
            stack.recorder.keep_saying(step.name, f"run again: {again[step.name]}")
            events.note(f"{step.name} is run again: {again[step.name]}")
        elif step.name in gone:
            stack.recorder.say(step.name, f"run again: {gone[step.name]}")
        else:
            stack.recorder.say(step.name, "resumed" if step.attempts else "")


def reopen_graph(
    state: StateRoot,
    run_id: str,
    words: Callable[[str], Projection],
    tuning: Tuning,
    managers: Managers,
    events: RunEvents,
) -> ActiveRun:
    """Take up a run of a Python program that this or another process began; `words` returns the words of a front end.

    ConflictError: it still goes on somewhere, or is no durable run of a graph. NotFoundError: no such run.
    ForbiddenError: others may write to what would be unpickled. ProgramError: its functions cannot be loaded.
    """
    path = state.folder(run_id)
    before = read_run(path)
    if not before.of_session:
        raise ConflictError(
            f"{run_id} is a run of {before.frontend or 'something'} that no session can go on with",
            hint=f"Go on with it from the command line: weft resume {run_id}",
        )
    with ExitStack() as undo:
        folder = undo.enter_context(RunFolder.create(state, run_id))
        catalog = open_catalog(state)
        undo.callback(catalog.close)
        tell_interruption(folder)
        before = read_run(path)
        graph, digest = load_graph(path)
        spec = RunSpec(graph, words(graph.frontend), "", steps=[step.name for step in before.steps], digest=digest)
        return reopen_run(folder, catalog, undo.pop_all(), spec, before, tuning, managers, events)
