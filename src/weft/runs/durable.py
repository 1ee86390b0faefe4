"""Durable runs of graphs: what is written so that another process can go on, and how one does.

The folder of such a run holds, beside what every run has, `graph.pickle` (the graph with its functions: those of
modules by name, those of scripts and lambdas by value), `journal`, and `values/` (`weft.store.outputs`). Reading a
pickle runs the code in it, so these files are read only where they, and their folder, belong to this user and nobody
else may write to them.

`begin` makes a run, `reopen` takes over one that has not succeeded. Both give a `DurableRun`: hand it to
`Session.submit`. A thread of its own writes the end of the run down and gives the folder up.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from weft.admin.control import ControlServer
from weft.durability import snapshot
from weft.durability.facts import answers_asking, asking, restorable
from weft.durability.journal import JOURNAL, FileJournal, Header, read_journal, recover, replay_journal
from weft.engine.events import JobSubmitted
from weft.engine.machines.job import JobState
from weft.engine.master import Master
from weft.engine.replay import may_go_on
from weft.engine.rows import FINISHED, FREED
from weft.graph.logical import LogicalGraph
from weft.graph.validate import mark_results
from weft.model.chunks import ChunkRef
from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, ProgramError, WeftError
from weft.runs.listing import open_catalog
from weft.runs.records import GRAPH_DIGEST, RunRecorder, read_run, tell_interruption
from weft.runtime.clock import RealClock
from weft.store import codec, disk, tiers
from weft.store.outputs import FOLDER, Outputs
from weft.store.state import RunFolder, check_trusted, os_error, read_description, read_trusted

if TYPE_CHECKING:
    from weft.durability.journal import Recorded, Recovered
    from weft.engine.core import Core, Tuning
    from weft.engine.policy import ManagerFactory
    from weft.engine.replay import Pending
    from weft.graph.projection import Projection
    from weft.runs.records import Record, RunRecord
    from weft.runtime.loop import JobRun
    from weft.store.catalog import Catalog
    from weft.store.state import StateRoot

PROGRAM: Final = "graph.pickle"
_ANOTHER: Final = "It cannot go on: start a new run."
_IDS: Final = 40
_JOURNAL_S: Final = 30.0


class DurableRun:
    """A run whose folder this process owns, until its end is written."""

    def __init__(
        self,
        folder: RunFolder,
        outputs: Outputs,
        journal: FileJournal,
        recorder: RunRecorder,
        catalog: Catalog,
        gone: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.name = folder.run_id
        self.again = f"weft resume {self.name} --state-dir {shlex.quote(str(folder.path.parent.parent))}"
        self.folder = folder
        self.journal = journal
        self.recorder = recorder
        self.gone: Mapping[str, Sequence[int]] = gone or {}
        self.notes: list[str] = []
        self.settled = threading.Event()
        self.answers: Mapping[str, Sequence[Any]] = {}
        self._outputs = outputs
        self._catalog = catalog
        self._control: ControlServer | None = None

    def managers(self, factories: Mapping[str, ManagerFactory]) -> Mapping[str, ManagerFactory]:
        """See `weft.runtime.session.Durable`."""
        return self.journal.managers(factories)

    def join(self, job: JobRun) -> None:
        """See `weft.runtime.session.Durable`."""
        job.outputs = self._outputs
        job.answers = self.answers
        job.listeners.append(self.recorder)

    def serve(self, orders: Mapping[str, Callable[[Mapping[str, Any]], Any]], job: JobRun) -> None:
        """Take orders for the job, and see to its end on a thread."""
        self._control = ControlServer(self.folder.path, orders)
        threading.Thread(target=self._see_to_end, args=(job,), name=f"end of {self.name}", daemon=True).start()

    def _see_to_end(self, job: JobRun) -> None:
        job.finished.wait()
        try:
            self.recorder.finish(job)
            self.recorder.flush()
            if job.crash is None and job.master.core.status is JobState.SUCCEEDED:
                for stage in job.master.core.stages:
                    if not stage.keep:
                        self._outputs.free(stage.id, 0, max(stage.n, 0))
        finally:
            self.close()

    def close(self) -> None:
        """Give the run up; what is written stays."""
        try:
            if self._control is not None:
                self._control.close()
            self.journal.close()
            self.journal.join(_JOURNAL_S)
            if self.journal.error is not None:
                self.notes.append(f"{self.journal.error.message}; what came after that would be run again by a resume")
            self.notes += dict.fromkeys(e.message for e in self.recorder.problems if isinstance(e, WeftError))
            self.recorder.close()
            self._outputs.close()
            self._catalog.close()
        finally:
            self.folder.release()
            self.settled.set()

    def discard(self) -> None:
        """Remove a run that was never started, so that nothing of it is left."""
        self.close()
        shutil.rmtree(self.folder.path, ignore_errors=True)
        with suppress(WeftError):
            self._catalog.remove(self.name)
        self._catalog.close()


# ---------------------------------------------------------------------------------------------------------- beginning


def begin(
    state: StateRoot,
    graph: LogicalGraph,
    tuning: Tuning,
    managers: Mapping[str, ManagerFactory],
    *,
    projection: Projection,
    user: str,
    about: Mapping[str, Any],
    on_record: Callable[[Record], None] | None = None,
) -> tuple[DurableRun, LogicalGraph]:
    """Make a run of `graph`, and return it with the graph to submit, whose results are marked.

    `about` goes into the description of the run. ProgramError: a function or an item cannot be pickled. ForbiddenError,
    DiskFullError: the folder cannot be made.
    """
    from weft.store.catalog import RunRow

    mark_results(graph)
    plain = graph.copy()  # no builder, which has more
    data = _pickled(plain)
    state.prepare()
    catalog = open_catalog(state)
    folder: RunFolder | None = None
    try:
        while folder is None or (folder.path / PROGRAM).exists():  # of another index, which was lost
            run_id, number = catalog.next_run_id()
            folder = RunFolder.create(state, run_id)
        _write_file(folder.path / PROGRAM, data)
        told: dict[str, Any] = {
            "number": number,
            "name": graph.name,
            "frontend": graph.frontend,
            "file": _script(),
            "user": user,
            "host": os.uname().nodename,
            "pid": os.getpid(),
            "created_at": RealClock().wall(),
        }
        digest, paths = sha256(data).hexdigest(), [str(Path(path).absolute()) for path in sys.path]
        folder.describe(**told, steps=list(graph.vertices), paths=paths, **{GRAPH_DIGEST: digest}, **about)
        catalog.add_run(RunRow(id=run_id, folder=str(folder.path), **told))
        outputs = Outputs(folder.path / FOLDER)
        header = Header(graph=digest, tuning=tuning)
        cutter = partial(_snapshot, plain, managers)
        journal = FileJournal.create(folder.path / JOURNAL, header, outputs=outputs, cutter=cutter)
        recorder = RunRecorder(folder, RealClock(), catalog=catalog, projection=projection, on_record=on_record)
    except BaseException:
        catalog.close()
        if folder is not None:
            folder.release()
        raise
    recorder.run_state("pending")
    return DurableRun(folder, outputs, journal, recorder, catalog), plain


def _snapshot(graph: LogicalGraph, managers: Mapping[str, ManagerFactory], recorded: Recorded) -> bytes:
    return snapshot.dump(graph, replay_journal(graph, recorded, managers))


def _pickled(graph: LogicalGraph) -> bytes:
    try:
        return codec.to_pickle(graph)
    except ProgramError as error:
        for vertex in graph.vertices.values():
            try:
                codec.to_pickle(vertex)
            except ProgramError as inner:
                cause = inner.__cause__ or inner
                raise ProgramError(
                    f"vertex {vertex.id!r} cannot be written down for a resume: {type(cause).__name__}: {cause}",
                    hint="Its function, what that closes over, its params and items must be picklable; "
                    "or open the session without durable.",
                ) from error
        raise


def _script() -> str:
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    return str(script.absolute()) if script.is_file() else ""


def _write_file(path: Path, data: bytes) -> None:
    """Write a new file, closed to others, complete or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        draft.replace(path)
        disk.sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise os_error(f"{path} cannot be written", error) from None


# ----------------------------------------------------------------------------------------------------------- going on


class Reopened(Struct):
    """A run to go on with: what to hand to `Session.submit`.

    `ended`: it had succeeded, so that nothing is to be done but to read its results. `why` says what kept the journal
    from being replayed.
    """

    run: DurableRun
    graph: LogicalGraph
    recovered: tuple[Master, Pending] | None = None
    restored: Collection[tuple[str, int]] = ()
    incarnation: int = 0
    ended: bool = False
    now: float = 0.0
    why: str = ""


class _Plan(Struct):
    graph: LogicalGraph
    header: Header
    recorded: Recorded | None = None
    recovered: Recovered | None = None
    gone: dict[str, list[int]] = field(default_factory=dict)
    restored: frozenset[tuple[str, int]] = frozenset()
    answers: dict[str, list[Any]] = field(default_factory=dict)
    why: str = ""
    ended: bool = False


def reopen(
    state: StateRoot,
    run_id: str,
    tuning: Tuning,
    managers: Mapping[str, ManagerFactory],
    *,
    words: Callable[[str], Projection],
    on_record: Callable[[Record], None] | None = None,
) -> Reopened:
    """Own a run that this or another process began, and find out how it goes on.

    `words` returns the projection of a front end.

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
    folder = RunFolder.create(state, run_id)
    catalog = open_catalog(state)
    try:
        tell_interruption(folder)
        before = read_run(path)
        graph, digest = load_graph(path)
        outputs = Outputs(path / FOLDER)
        plan = _plan(path, graph, digest, outputs, tuning, managers)
        changed = tuning if plan.recorded is None or plan.recorded.tuning != tuning else None
        cutter = partial(_snapshot, plan.graph, managers)
        if plan.recovered is not None and plan.recorded is not None:
            tape = plan.recovered.tape
            journal = FileJournal.reopen(
                path / JOURNAL, plan.recorded, tape, outputs=outputs, tuning=changed, cutter=cutter
            )
        else:
            journal = FileJournal.create(path / JOURNAL, plan.header, outputs=outputs, cutter=cutter)
        over = {step.name for step in before.steps if step.state in ("succeeded", "skipped")} - plan.gone.keys()
        if plan.recovered is None:
            over -= {vertex.id for vertex in graph.vertices.values()} - {v for v, _ in plan.restored}
        recorder = RunRecorder(
            folder,
            RealClock(),
            catalog=catalog,
            projection=words(graph.frontend),
            over=over,
            on_record=on_record,
        )
    except BaseException:
        catalog.close()
        folder.release()
        raise
    run = DurableRun(folder, outputs, journal, recorder, catalog, plan.gone)
    run.answers = plan.answers
    _tell(run, plan, before, catalog)
    found = plan.recovered
    return Reopened(
        run,
        plan.graph,
        None if found is None else (found.master, found.pending),
        plan.restored,
        plan.header.incarnation,
        plan.ended,
        0.0 if found is None else found.pending.now,
        plan.why,
    )


def _tell(run: DurableRun, plan: _Plan, before: RunRecord, catalog: Catalog) -> None:
    """Say what goes on, and what is run again though it had finished."""
    if plan.ended:
        if before.state != "succeeded":
            run.recorder.run_state("succeeded", ended=True)
        return
    with suppress(NotFoundError):
        catalog.update_run(run.name, ended_at=None, error_code="", error_message="", pid=os.getpid())
    run.recorder.run_state("pending")
    for vertex, tasks in plan.gone.items():
        what = f"{len(tasks)} finished {'task is' if len(tasks) == 1 else 'tasks are'} run again: the output is gone"
        run.notes.append(f"{vertex}: {what}")
        run.recorder.say(vertex, what)


def _plan(
    path: Path,
    graph: LogicalGraph,
    digest: str,
    outputs: Outputs,
    tuning: Tuning,
    managers: Mapping[str, ManagerFactory],
) -> _Plan:
    """Find out how a run goes on; nothing is changed but that outputs which do not count are removed."""
    plan = _Plan(graph, Header(graph=digest, tuning=tuning))
    try:
        check_trusted(path, JOURNAL)
        recorded = plan.recorded = read_journal(path / JOURNAL, trusted=True)
        header = recorded.header
        again = asking(graph, {vertex for vertex, _ in header.restored})
        wanted = None if recorded.tuning == tuning else tuning
        found = recover(again, recorded, managers, digest, tuning=wanted)
    except NotFoundError:
        plan.why = "there is no journal"
    except ForbiddenError:
        raise
    except WeftError as error:
        plan.why = error.message
    else:
        core = found.master.core
        outputs.find(found.pending.taken | set(header.taken))
        plan.ended = core.status is JobState.SUCCEEDED
        if not plan.ended and not may_go_on(core):
            plan.why = "something had failed, or it was cancelled"
        elif not plan.ended and not _fits(recorded.tuning, tuning):
            plan.why = "another backend runs it now"
        if not plan.why:
            _go_on(plan, again, found, outputs)
            return plan
        _begin_again(plan, core, outputs, found.pending.taken | set(header.taken), known=True)
        return plan
    outputs.find()
    master = Master(graph, graph.name, tuning, managers)
    master.handle([JobSubmitted(0.0)])
    _begin_again(plan, master.core, outputs, None, known=False)
    return plan


def _fits(old: Tuning, new: Tuning) -> bool:
    """Whether a job may simply go on with another tuning: sizes may differ, what its graph was made for may not."""
    same = replace(
        old,
        target_s=new.target_s,
        growth=new.growth,
        cone_steps=new.cone_steps,
        realign=new.realign,
        lease_bytes=new.lease_bytes,
        backups=new.backups,
    )
    return same == new


def _go_on(plan: _Plan, graph: LogicalGraph, found: Recovered, outputs: Outputs) -> None:
    """The journal is replayed: outputs of finished tasks are looked for, the others are removed."""
    core = found.master.core
    plan.graph, plan.recovered = graph, found
    header = plan.header if plan.recorded is None else plan.recorded.header
    hit = plan.restored = frozenset(header.restored)
    kept: dict[str, tuple[int, Collection[int]]] = {}
    for vertex in dict.fromkeys((*core.by_id, *outputs.vertices())):
        stage = core.by_id.get(vertex)
        there = outputs.has(vertex)
        state: Sequence[int] = b"" if stage is None else stage.state
        if vertex in header.answered and FINISHED not in state and FREED not in state:  # not yet given again
            with suppress(WeftError):
                plan.answers[vertex] = answers_asking(_values(outputs, vertex, len(there)), {v for v, _ in hit})
        n = max(len(state), max(there, default=-1) + 1)
        finished = [i for i in range(len(state)) if state[i] == FINISHED]
        waiting = [i for i in there if (vertex, i) in hit or vertex in plan.answers]
        kept[vertex] = (
            n,
            {i for i in finished if i in there} | {i for i in waiting if i >= len(state) or state[i] != FREED},
        )
        gone = [i for i in finished if i not in there and (vertex, i) not in hit]
        if gone and not plan.ended:
            plan.gone[vertex] = gone
    outputs.settle(kept)


def _begin_again(plan: _Plan, core: Core, outputs: Outputs, taken: Collection[int] | None, *, known: bool) -> None:
    """The job begins again, and what is known to have finished is not run again."""
    answers: dict[str, list[Any]] = {}
    for stage in core.stages:
        if stage.vertex.expands and 0 < stage.n == len(set(outputs.has(stage.id))):
            with suppress(WeftError):
                answers[stage.id] = _values(outputs, stage.id, stage.n)
    back, gone = restorable(core, outputs.has, answers, known=known)
    plan.answers = {vertex: answers_asking(values, back.keys()) for vertex, values in answers.items()}
    plan.gone = {vertex: sorted(tasks) for vertex, tasks in gone.items()}
    plan.restored = frozenset((vertex, index) for vertex, tasks in back.items() for index in tasks)
    plan.graph = asking(plan.graph, back)
    kept: dict[str, tuple[int, Collection[int]]] = {}
    for stage in core.stages:
        kept[stage.id] = max(stage.n, 0), range(stage.n) if stage.id in answers else back.get(stage.id, ())
    outputs.settle(kept)
    leases = outputs.leases()
    incarnation = max((lease >> _IDS for lease in leases), default=0) + 1
    if plan.recorded is not None:
        incarnation = max(incarnation, plan.recorded.incarnation + 1)
    plan.header = replace(
        plan.header,
        incarnation=incarnation,
        restored=tuple(sorted(plan.restored)),
        answered=tuple(sorted(answers)),
        taken=tuple(sorted(leases if taken is None else leases.intersection(taken))),
    )


def _values(outputs: Outputs, vertex: str, n: int) -> list[Any]:
    values = []
    for _, cells in outputs.cells(vertex, range(n)):
        values += [codec.decode(tiers.read(cell)) if type(cell) is ChunkRef else cell for cell in cells]
    if len(values) != n:
        raise NotFoundError(f"answers of {vertex} are missing")
    return values


def load_graph(folder: Path) -> tuple[LogicalGraph, str]:
    """Return the graph of a run and its digest; what its program could import, this process can too from now on.

    NotFoundError: it is not there. ForbiddenError: others could have written it. ProgramError: a function of it cannot
    be imported here. ConflictError: it is no graph.
    """
    try:
        data = read_trusted(folder, PROGRAM)
    except NotFoundError as error:
        raise NotFoundError(f"the graph of {folder.name} is gone: {error.message}", hint=_ANOTHER) from None
    try:
        said = read_description(folder)
    except FileNotFoundError:
        said = {}
    digest, paths = sha256(data).hexdigest(), said.get("paths", [])
    if said.get(GRAPH_DIGEST, digest) != digest:
        raise ConflictError(f"{folder / PROGRAM} is damaged: it is not what was written there", hint=_ANOTHER)
    sys.path += [path for path in paths if isinstance(path, str) and path not in sys.path and Path(path).is_dir()]
    try:
        graph = codec.from_pickle(data)
    except WeftError as error:
        why = error.message.removeprefix("a value cannot be read back: ")
        raise ProgramError(
            f"the functions of {folder.name} cannot be loaded: {why}", hint=_way_out(error.__cause__)
        ) from None
    if not isinstance(graph, LogicalGraph):
        raise ConflictError(f"{folder / PROGRAM} holds no graph", hint=_ANOTHER)
    return graph, digest


def _way_out(cause: BaseException | None) -> str:
    """Return what to do about what kept functions from being loaded."""
    if isinstance(cause, ImportError):
        return "Modules that it imports must be where they were when it began, or on PYTHONPATH."
    if isinstance(cause, AttributeError):
        return "Functions and classes must have the names that they had when it began: name it so again."
    if isinstance(cause, SyntaxError):
        return f"Mend {cause.filename or 'the module'}, and resume again: modules are imported as they are now."
    if cause is None:
        return _ANOTHER
    place = next((frame for frame in reversed(traceback.extract_tb(cause.__traceback__)) if _of_user(frame)), None)
    where = f"{place.filename}, line {place.lineno}, raised it when it was imported. " if place is not None else ""
    return f"{where}Mend that, and resume again: modules are imported as they are now."


def _of_user(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith("<") and Path(__file__).parents[1] not in Path(frame.filename).parents
