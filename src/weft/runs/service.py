"""`RunService`: the use cases of runs, without signals and without a terminal. Runs share a store and workers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.model.errors import UsageError
from weft.model.resources import Resources
from weft.runs.active import ActiveRun, RunEvents
from weft.runs.listing import mark_interrupted
from weft.runs.opening import open_run
from weft.runs.reading import read_run
from weft.runtime.clock import RealClock, ResumedClock
from weft.runtime.session import BackendPlace, EngineSession
from weft.store.blocks import BlockManager
from weft.store.folders import SPILL_NAME, is_url
from weft.store.state import StateRoot, owned, read_description
from weft.store.tiers import spill_tier

if TYPE_CHECKING:
    from pathlib import Path

    from weft.admin.settings import Settings
    from weft.engine.policy import ManagerFactory
    from weft.engine.ports import Executor
    from weft.runs.opening import Managers
    from weft.runs.sources import ResumableSource, RunSource
    from weft.store.api import EvictionKey
    from weft.store.folders import RunFolders

STEP_GRACE_S: Final = 30.0
"""The seconds until a step that was asked to stop is abandoned: those of its guardian, and time to see the end."""


class Concrete(Protocol):
    """The concrete classes of a service; `weft.wiring.concrete` has them."""

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

    def eviction_key(self, choice: str | EvictionKey) -> EvictionKey | None:
        """Return the key of an eviction order."""
        ...

    def session_folders(self, name: str, spill: Path | str | None) -> RunFolders:
        """Make folders that are removed at the end."""
        ...

    def make_session(self, backend: str, **options: Any) -> Any:
        """Return a session of a Python program."""
        ...

    def source_again(self, frontend: str, folder: Path, file: str) -> ResumableSource:
        """Return the source of a run, read from its folder."""
        ...


class RunService:
    """Submits, resumes, cancels and deletes runs. A context manager, or call `close` when all runs have ended.

    The first run makes the store and the workers from the settings; all runs share them.
    """

    def __init__(self, concrete: Concrete, settings: Settings) -> None:
        self._concrete = concrete
        self.settings = settings
        self._undo = ExitStack()
        self._lock = threading.Lock()
        self._session: EngineSession | None = None

    @property
    def managers(self) -> Managers:
        """The vertex managers and job policies, by name."""
        return self._concrete.MANAGERS

    def source_again(self, frontend: str, folder: Path, file: str) -> ResumableSource:
        """Return the source of a run, read from its folder."""
        return self._concrete.source_again(frontend, folder, file)

    # ---------------------------------------------------------------------------------------------- runs that go on

    def submit(
        self, source: RunSource, *, events: RunEvents | None = None, firing: str = "", durability: str = ""
    ) -> ActiveRun:
        """Begin a run and return it, with an id, a folder, a row in the index and a control socket.

        `firing` is the due time of the schedule that started the run (`name@due@epoch`). Errors before the run begins
        are raised, later errors are in its result. ConflictError: the schedule no longer wants the run.
        """
        state = self.settings.state_root(source.base)
        state.prepare()
        mark_interrupted(state)
        events = events or RunEvents()

        def wanted(run_id: str) -> None:
            if firing:
                _claim(state, firing, run_id)

        session = self.workers(state)
        durability = durability or self.settings.durability
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
        """Resume a run that failed, was cancelled or suspended, or whose owner was killed, and return it.

        Finished tasks are not run again unless an output of them is gone. With `file` or `overrides`, the run continues
        with an edited pipeline or other parameters: changed steps run again, with all later steps. ConflictError: the
        run is active, has succeeded, was made by a version that did not keep the necessary files, or cannot continue
        with this edit. PipelineError, UsageError: the edit is invalid.
        """
        from weft.runs.reopening import refuse_resume, resume_files  # most runs are new

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
                return resume_files(state, folder, undo, events, file, overrides or {}, self)
            except KeyboardInterrupt:
                undo.pop_all()  # a second signal leaves at once; guardians and the next start clean up
                raise

    def _resume_graph(self, folder: Path, events: RunEvents) -> ActiveRun:
        """Resume a run of a program's session, in a session with the same options unless a flag overrides one."""
        from weft.admin import opened

        description, settings = read_description(folder), self.settings
        backend: str = settings.backend
        if settings.origin("backend").kind != "flag":
            began_on = description.get("backend")
            backend = str(began_on) if began_on in self._concrete.BACKENDS else backend
        options = opened.options_of(description, settings)
        state = folder.parent.parent
        session = self._concrete.make_session(backend, spill=settings.spill, durable=state, **options)
        self._undo.callback(session.close)
        run: ActiveRun = session.reopen(folder.name, events)
        return run

    # ---------------------------------------------------------------------------------------------------- workers

    def workers(self, state: StateRoot) -> EngineSession:
        """Return the store and the workers that all runs share; the first call makes them."""
        with self._lock:
            if self._session is None:
                self._session = self._make_workers(state)
            return self._session

    def _make_workers(self, state: StateRoot) -> EngineSession:
        settings, concrete = self.settings, self._concrete
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
        return self._undo.enter_context(EngineSession(executor, store, ResumedClock(), concrete.MANAGERS))

    def close(self) -> None:
        """Cancel active runs, and close store and workers."""
        self._undo.close()

    def __enter__(self) -> RunService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ------------------------------------------------------------------------------------------------------ without workers


def _claim(state: StateRoot, firing: str, run: str) -> None:
    """Record that a run has taken the due time of a schedule: `name@due@epoch`. ConflictError: it is not wanted."""
    from weft.store.schedules import SCHEDULES_NAME, Schedules

    name, due, epoch = firing.split("@")
    with closing(Schedules(state.path / SCHEDULES_NAME)) as schedules:
        schedules.claim(name, float(due), int(epoch), run, RealClock().wall())
