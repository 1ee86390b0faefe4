"""`RunService`: the use cases of runs, without signals and without a terminal. Runs share a store and workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.admin import opened
from weft.admin.deleting import end_processes
from weft.durability.resume import Kept
from weft.engine.core import Tuning
from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.model.resources import Resources
from weft.runs.active import ActiveRun, RunEvents
from weft.runs.editing import KEPT, kept_by_edit, record_edit
from weft.runs.listing import mark_interrupted, open_catalog
from weft.runs.opening import DURABILITY, ResumableSource, open_run, plan_files, reopen_run
from weft.runs.records import read_run, tell_interruption
from weft.runtime.clock import RealClock, ResumedClock
from weft.runtime.session import BackendPlace, Session
from weft.store.blocks import BlockManager
from weft.store.folders import SPILL_NAME, is_url
from weft.store.state import RunFolder, StateRoot, owned, read_description
from weft.store.tiers import spill_tier

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weft.admin.settings import Settings
    from weft.durability.resume import Plan
    from weft.engine.policy import ManagerFactory
    from weft.engine.ports import Executor
    from weft.runs.opening import Managers, Revised, RunSource
    from weft.runs.records import RunRecord
    from weft.store.api import EvictionKey
    from weft.store.catalog import Catalog
    from weft.store.folders import RunFolders

STEP_GRACE_S: Final = 30.0
"""Seconds until a step that was told to stop is given up: its guardian needs its own grace, and time to see it end."""


class Concrete(Protocol):
    """The concrete classes that a service is given: `weft.wiring.concrete` names them."""

    @property
    def MANAGERS(self) -> Mapping[str, ManagerFactory]:  # noqa: N802
        """The vertex managers and job policies, by name."""
        ...

    @property
    def BACKENDS(self) -> Mapping[str, Any]:  # noqa: N802
        """The backends, by name."""
        ...

    def make_backend(self, name: str, place: BackendPlace) -> Executor:
        """Return a backend by its name."""
        ...

    def eviction_key(self, asked: str | EvictionKey) -> EvictionKey | None:
        """Return the key by which values are spilled."""
        ...

    def session_folders(self, name: str, spill: Path | str | None) -> RunFolders:
        """Make the folders of something that leaves nothing behind."""
        ...

    def make_session(self, backend: str, **options: Any) -> Any:
        """Return a session of a Python program."""
        ...

    def source_again(self, frontend: str, folder: Path, file: str) -> ResumableSource:
        """Return the work of a run as its folder tells it."""
        ...


class RunService:
    """Submits, resumes, cancels and deletes runs. `close` it when all have ended, or use it as a context manager.

    The store and the workers are made when the first run needs them, as the settings say, and shared by all.
    """

    def __init__(self, concrete: Concrete, settings: Settings) -> None:
        self._concrete = concrete
        self._settings = settings
        self._undo = ExitStack()
        self._lock = threading.Lock()
        self._session: Session | None = None

    # ---------------------------------------------------------------------------------------------- runs that go on

    def submit(
        self, source: RunSource, *, events: RunEvents | None = None, firing: str = "", durability: str = ""
    ) -> ActiveRun:
        """Begin a run and return it: it has an id, a folder, a row in the index and a control socket.

        `firing` is the due time of a schedule that it is for (`name@due@epoch`). Errors before it begins are raised,
        later ones are in its result. ConflictError: the schedule does not want it any more.
        """
        state = self._settings.state_root(source.base)
        state.prepare()
        mark_interrupted(state)
        events = events or RunEvents()

        def wanted(run_id: str) -> None:
            if firing:
                _claim(state, firing, run_id)

        session = self._workers(state)
        durability = durability or self._settings.durability
        managers, tuning = self._concrete.MANAGERS, session.executor.tuning
        run = open_run(state, source, tuning, managers, events, durability=durability, wanted=wanted)
        run.start(session)
        return run

    def resume(
        self,
        folder: Path,
        *,
        events: RunEvents | None = None,
        file: str | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> ActiveRun:
        """Go on with a run that failed, was cancelled or suspended, or whose owner was killed, and return it.

        Nothing that has finished is run again, unless an output of it is gone. With `file` or `overrides` it goes on
        with an edited pipeline, or with other parameters: what they change is run again, with all that comes after it.
        ConflictError: the run still goes on, or has succeeded, was made by a version that did not keep what is needed,
        or cannot go on with this edit. PipelineError, UsageError: what is wrong with the edit.
        """
        events = events or RunEvents()
        before = read_run(folder)
        refuse_resume(before, owned(folder))
        if before.of_session:
            if file is not None or overrides:
                raise UsageError(f"{folder.name} is a run of a Python program: it has no file to edit")
            return self._resume_graph(folder, events)
        state = StateRoot(folder.parent.parent)
        with ExitStack() as undo:
            try:
                return self._resume_files(state, folder, undo, events, file, overrides or {})
            except KeyboardInterrupt:
                undo.pop_all()  # whoever asks twice does not want to wait; guardians and the next start clean up
                raise

    def _resume_files(
        self,
        state: StateRoot,
        folder: Path,
        undo: ExitStack,
        events: RunEvents,
        file: str | None,
        overrides: Mapping[str, str],
    ) -> ActiveRun:
        held = undo.enter_context(RunFolder.create(state, folder.name))
        tell_interruption(held)
        before = read_run(folder)
        refuse_resume(before, alive=False)
        _end_what_is_left(folder, events.note)
        catalog = open_catalog(state)
        undo.callback(catalog.close)
        source = self._concrete.source_again(before.frontend, folder, before.file)
        again: Mapping[str, str] = {}
        if file is not None or overrides:
            described = read_description(folder)
            revised = source.revise(held, described, file, overrides, events.note)
            again = _record_revision(held, revised, before, catalog, self._concrete.MANAGERS)
            before, spec, copies_of = read_run(folder), revised.spec, revised.source
        else:
            spec = source.resume(held, read_description(folder), _done(before))
            copies_of = source
        copies = copies_of.copies(undo, events.note, fetch=file is not None)
        session = self._workers(state)
        run = reopen_run(
            held,
            catalog,
            undo.pop_all(),
            spec,
            before,
            session.executor.tuning,
            self._concrete.MANAGERS,
            events,
            durability=self._durability_again(held),
            again=again,
            copies=copies,
        )
        _reach(session, run.plan)
        run.start(session)
        return run

    def _resume_graph(self, folder: Path, events: RunEvents) -> ActiveRun:
        """Go on with a run that a session of a program began, in one like that unless a flag says otherwise."""
        said, settings = read_description(folder), self._settings
        backend: str = settings.backend
        if settings.origin("backend").kind != "flag":
            began_on = said.get("backend")
            backend = str(began_on) if began_on in self._concrete.BACKENDS else backend
        options = opened.options_of(said, settings)
        state = folder.parent.parent
        session = self._concrete.make_session(backend, spill=settings.spill, durable=state, **options)
        self._undo.callback(session.close)
        run: ActiveRun = session.reopen(folder.name, events)
        return run

    def _durability_again(self, folder: RunFolder) -> str:
        """Return what a run that goes on survives: as it was begun, unless a flag says otherwise, from then on."""
        settings = self._settings
        was = read_description(folder.path).get(DURABILITY, settings.durability)
        if settings.origin("durability").kind != "flag" or settings.durability == was:
            return str(was)
        folder.describe_again(**{DURABILITY: settings.durability})
        return settings.durability

    # ---------------------------------------------------------------------------------------------------- workers

    def _workers(self, state: StateRoot) -> Session:
        """Return the store and the workers that all runs share, made by the first of them."""
        with self._lock:
            if self._session is None:
                self._session = self._make_workers(state)
            return self._session

    def _make_workers(self, state: StateRoot) -> Session:
        settings, concrete = self._settings, self._concrete
        base = settings.spill
        if base is None or is_url(base):
            base = state.path / SPILL_NAME
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders = self._undo.enter_context(concrete.session_folders("runs", base))
        key = concrete.eviction_key(settings.eviction)
        spill = spill_tier(settings.spill, folders)
        store = BlockManager(
            settings.memory or None, shm=folders.shm, spill=spill, overflow=folders.spill, eviction=key
        )
        self._undo.callback(store.close)
        node = Resources(settings.worker_count, store.memory.budget, settings.gpus, settings.gpu_type)
        window = settings.stream_window or None
        workers = settings.worker_count
        place = BackendPlace(workers, store, folders.shm, folders.spill, STEP_GRACE_S, node, window)
        executor = concrete.make_backend(settings.backend, place)
        return self._undo.enter_context(Session(executor, store, ResumedClock(), concrete.MANAGERS))

    def close(self) -> None:
        """Cancel the runs that go on, and give up store and workers."""
        self._undo.close()

    def __enter__(self) -> RunService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ------------------------------------------------------------------------------------------------------ without workers


def refuse_resume(run: RunRecord, alive: bool) -> None:
    """Refuse a resume that can do nothing. ConflictError: the run goes on, or has succeeded."""
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


def _claim(state: StateRoot, firing: str, run: str) -> None:
    """Note that a run has taken the due time of a schedule: `name@due@epoch`. ConflictError: it is not wanted."""
    from weft.store.schedules import SCHEDULES_NAME, Schedules

    name, due, epoch = firing.split("@")
    with closing(Schedules(state.path / SCHEDULES_NAME)) as schedules:
        schedules.claim(name, float(due), int(epoch), run, RealClock().wall())


def _reach(session: Session, plan: Plan | None) -> None:
    """Have the clock of a session go on from the end of a journal."""
    if plan is not None and plan.recovered is not None and isinstance(session.loop.clock, ResumedClock):
        session.loop.clock.reach(plan.recovered.pending.now)


def _done(before: RunRecord) -> frozenset[str]:
    """Return the names of the steps of which at least one item has succeeded."""
    return frozenset(
        step.name
        for step in before.steps
        if step.state == "succeeded" or any(item.state == "succeeded" for item in step.items.values())
    )


def _end_what_is_left(folder: Path, note: Callable[[str], None]) -> None:
    """End processes and containers of an owner that was killed, and its guardians with it."""
    for name in end_processes(folder):
        note(f"ended what was left of {name}")
    by = None
    with suppress(FileNotFoundError):
        by = read_description(folder).get("containers")
    if isinstance(by, dict):
        from weft.operators.containers import ContainerEngine

        left = ContainerEngine(by["kind"], by["program"]).remove_containers(str(folder))
        if left:
            note(f"removed {left} containers that were left")


def _record_revision(
    folder: RunFolder, revised: Revised, before: RunRecord, catalog: Catalog, managers: Managers
) -> dict[str, str]:
    """Write an edit down; return the finished steps that run again, and why."""
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
    with suppress(NotFoundError):
        catalog.update_run(folder.run_id, file=about["file"], parameters=about["parameters"])
    return again


def _kept(plan: Plan, earlier: Sequence[Kept], revised: Revised) -> list[Kept]:
    """Return the finished tasks that an edit leaves as they are, of vertices that came while the run went on."""
    paths = revised.before.paths
    assert paths is not None
    known = [(id, n, vertex) for id, n in sorted(plan.restored) if (vertex := plan.vertices.get(id)) is not None]
    found = [
        Kept(id, n, vertex.step, tuple(paths(vertex, n).values()))
        for id, n, vertex in known
        if vertex.outputs is not None
    ]
    found += [one for one in earlier if (one.vertex, one.task) in plan.restored and one.vertex not in plan.vertices]
    return [one for one in found if one.vertex not in revised.spec.graph.vertices and not revised.why(one.name)]
