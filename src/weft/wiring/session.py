"""`Session`, the interface of programs: a backend, a store and their folders, made and closed together."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from weft.admin import opened
from weft.admin.settings import Settings, parse_size
from weft.graph.validate import mark_results, validate
from weft.model.errors import NotFoundError, UsageError
from weft.model.ids import is_name
from weft.model.resources import Resources
from weft.runtime import arguments
from weft.runtime import session as runtime
from weft.runtime.clock import RealClock, ResumedClock
from weft.runtime.waiting import picture, recorded_signals, wait_for_end
from weft.store.accounting import resident_bytes
from weft.store.blocks import BlockManager
from weft.store.folders import is_url
from weft.store.state import StateRoot
from weft.store.tiers import spill_tier
from weft.wiring.concrete import (
    BACKENDS,
    MANAGERS,
    eviction_key,
    looks_of,
    make_backend,
    projection_of,
    session_folders,
    straggler_managers,
)

if TYPE_CHECKING:
    import os

    from weft.engine.ports import Executor
    from weft.graph.logical import LogicalGraph
    from weft.runs.active import ActiveRun, RunEvents
    from weft.runs.records import Record
    from weft.runtime.history import Historian
    from weft.runtime.kept import KeptValues
    from weft.runtime.session import Results, Run
    from weft.store.api import EvictionKey


GRACE_S: Final = 3.0
"""The seconds until a task that was asked to stop is abandoned."""
_OWN: Final = 32 << 20
"""The bytes that a session adds to its process besides values: threads, modules, work areas of tasks."""
_SETTLE_S: Final = 60.0
"""The seconds that `close` waits until the ends of durable runs are on disk."""


class Session(runtime.EngineSession):
    """Workers and a store on this machine, shared by jobs. A context manager, or call `close`.

    `backend` is "threads" (for work that releases the GIL; the default), "processes", "simulator" (tasks compute one
    after another, and take one virtual second each), or an executor. `workers` is the number of tasks that run at a
    time (default: the number of cores). `memory` bounds the values in memory and shared memory, in bytes or as "4GiB"
    (default: half of the machine's memory); further values go to `spill`, a folder or a URL such as
    "s3://bucket/prefix" (default: the folder for temporary files). `name` is a label. A task that was asked to stop is
    abandoned after `grace_s` seconds. `eviction` is the order of spilling: "furthest" (the last to be read first; the
    default), "lru" (least recently used), "largest", or a key function of `weft.store.api.ChunkInfo`. `stream_window`
    is the number of bytes that an edge between streaming tasks may hold (default: 64 MiB, or a sixteenth of the memory
    if that is less). `gpus` of this machine, all of `gpu_type`, are assigned to tasks that request them. With
    `backups`, a task that takes far too long gets a speculative attempt on an idle worker, and the first attempt to end
    counts (default: only with "processes", where the tasks of a dead process are run again in any case). A mapping has
    the parameters of `weft.policies.stragglers.Stragglers`, and `looks_s`, the shortest and longest seconds between two
    checks. A closed session leaves no files; the next session sweeps those of a killed one.

    With `whole_process`, `memory` bounds the whole process, as far as tasks declare their memory: the memory in use at
    the start is subtracted, but at most half of the bound. Workers in other processes are not counted.

    With `durable`, each run has a folder like a run of the command line, in the named state folder, or with True in the
    one that `weft` would use here. Its values are files in that folder, and its decisions are in a journal, so that
    `weft resume RUN`, or `resume` of another session, continues the run after the process was killed.

    With `history`, the durations of the vertices of a succeeded run are kept in a state folder, for control vertices of
    later runs of the same graph: in the named one, or with True in that of the durable session, else in the one that
    `weft` would use here. Without it, no history is read or kept.

    UsageError: an invalid argument. MissingExtraError: a package of the backend is not installed.
    """

    def __init__(
        self,
        backend: str | Executor = "threads",
        workers: int | None = None,
        memory: int | str | None = None,
        spill: str | os.PathLike[str] | None = None,
        name: str | None = None,
        grace_s: float = GRACE_S,
        *,
        backups: bool | Mapping[str, Any] | None = None,
        eviction: str | EvictionKey = "furthest",
        stream_window: int | str | None = None,
        durable: bool | str | os.PathLike[str] = False,
        gpus: int = 0,
        gpu_type: str = "",
        history: bool | str | os.PathLike[str] = False,
        whole_process: bool = False,
    ) -> None:
        self.name = _session_name(name)
        count = Settings().worker_count if workers is None else arguments.whole("workers", workers, lo=1)
        budget, window = _size("memory", memory), _size("stream_window", stream_window)
        base = spill if spill is None or is_url(spill) else arguments.folder("spill", spill)
        gpus, gpu_type = arguments.whole("gpus", gpus, lo=0), arguments.text("gpu_type", gpu_type)
        grace_s = arguments.seconds("grace_s", grace_s)
        managers, looks_s = MANAGERS, None
        if isinstance(backups, Mapping):
            parameters = dict(backups)
            looks_s = parameters.pop("looks_s", None)
            managers, backups = straggler_managers(parameters), True
        backups = arguments.truth("backups", backups, unset=True)
        self._state = _state("durable", durable)
        kept = self._state if history is True and self._state is not None else _state("history", history)
        with ExitStack() as undo:
            folders = undo.enter_context(session_folders(self.name, base))
            whole = arguments.truth("whole_process", whole_process) and budget is not None and backend == "threads"
            room = max(budget - resident_bytes() - _OWN, budget // 2) if whole and budget else budget
            store = BlockManager(
                room,
                shm=folders.shm,
                spill=spill_tier(base, folders),
                overflow=folders.spill,
                eviction=eviction_key(eviction),
                ceiling=budget if whole else None,
            )
            undo.callback(store.close)
            twice = backend == "processes" if backups is None else backups
            if isinstance(backend, str):
                node = Resources(cpu=count, memory=store.memory.budget, gpu=gpus, gpu_type=gpu_type)
                backend = make_backend(
                    backend, runtime.BackendPlace(count, store, folders.shm, folders.spill, grace_s, node, window)
                )
            elif hasattr(backend, "launch"):
                workers = sum(len(node.workers) for node in backend.provider.nodes())
            else:
                raise arguments.wrong("backend", backend, f"one of {', '.join(BACKENDS)}, or an executor")
            clock = backend.clock
            if clock is not None and self._state is not None:
                raise UsageError("a simulated session cannot be durable: its time is not that of any clock")
            clock = clock or (ResumedClock() if self._state is not None else None)
            options: dict[str, Any] = {"workers": workers, "memory": budget, "gpus": gpus, "gpu_type": gpu_type}
            options |= {"grace_s": grace_s, "backups": backups, "eviction": eviction, "stream_window": window}
            options["whole_process"] = whole_process
            options["history"] = kept is not None and str(kept.path)
            self._about = {"backend": backend.name, opened.KEY: opened.kept(options)}
            if twice:
                backend.tuning = replace(backend.tuning, backups=True)
            if looks_s is not None:
                backend.tuning = replace(backend.tuning, looks_s=looks_of(looks_s))
            super().__init__(backend, store, clock, managers)
            undo.pop_all()
        if kept is not None:
            self.historian = _historian(kept)
            self.on_close(self.historian.close)
        self.on_close(folders.close)
        self.on_close(lambda: atexit.unregister(self.close))
        atexit.register(self.close)

    def submit(
        self,
        graph: LogicalGraph,
        *,
        listeners: Sequence[runtime.Listener] = (),
        given: Mapping[str, KeptValues] | None = None,
    ) -> Run:
        """Check a graph and start it. GraphError, CapacityError: it cannot run here.

        A durable session makes the folder of the run first. ProgramError: a part of the graph cannot be pickled.
        `listeners` are called as by `Run.listen`, from the first tick on. `given` maps vertex ids to values that this
        session kept earlier: the tasks of these vertices are not run. UsageError: `given` in a durable session.
        """
        if self._state is None:
            return super().submit(graph, listeners=listeners, given=given)
        if given:
            raise UsageError(
                "a durable session takes no values from memory, since a resumed run would not have them",
                hint="Give them to a vertex as items, or open the session without durable=.",
            )
        from weft.runs.active import RunEvents
        from weft.runs.graphs import GraphSource
        from weft.runs.opening import open_run

        self.check_open()
        arguments.graph("submit", graph)
        arguments.functions("listeners", listeners)
        mark_results(graph)
        validate(graph, self.loop.pool.capacity())
        source = GraphSource(graph, projection_of(graph.frontend), Settings().user_name, self._about)
        active = open_run(self._state, source, self.executor.tuning, self.managers, RunEvents(records=False))
        try:
            return self._start(active, listeners)
        except BaseException:
            active.discard()
            raise

    def resume(self, run: str, *, on_record: Callable[[Record], None] | None = None) -> Run:
        """Resume a durable run that failed, was cancelled, or whose process was killed; return it.

        `run` is an id or another name for `weft resume`. Finished tasks are not run again unless their output is gone;
        `Run.notes` lists these. Of a succeeded run, the results are read and nothing runs. `on_record` is called with
        each record, on a thread of its own. UsageError: this session keeps no journal. ConflictError: the run is active
        elsewhere, or is a pipeline. ProgramError: its functions cannot be loaded here.
        """
        if self._state is None:
            raise UsageError(
                f"this session keeps no journal, so there is nothing of {arguments.shown(run)} to resume",
                hint="Open it with durable=True, before the run is begun and to go on with it.",
            )
        from weft.runs.active import RunEvents
        from weft.runs.listing import find_run

        self.check_open()
        arguments.text("run", run)
        if on_record is not None:
            arguments.functions("on_record", [on_record])
        try:
            run_id = find_run(self._state, run).name
        except NotFoundError as error:
            error.hint = f"List the runs: weft ls --state-dir {self._state.path}"
            raise
        return self.reopen(run_id, RunEvents(on_record, records=False)).run

    def reopen(self, run_id: str, events: RunEvents) -> ActiveRun:
        """Resume the durable run of an id, as `resume`; `events` takes its records and notes."""
        from weft.runs.graphs import reopen_graph

        assert self._state is not None
        active = reopen_graph(self._state, run_id, projection_of, self.executor.tuning, self.managers, events)
        plan = active.plan
        if plan is not None and plan.recovered is not None:
            if isinstance(self.loop.clock, ResumedClock):
                self.loop.clock.reach(plan.recovered.pending.now)
            if plan.ended:
                active.run = self.show(plan.graph, plan.recovered.master, active)
                return active
        self._start(active)
        return active

    def _start(self, active: ActiveRun, listeners: Sequence[runtime.Listener] = ()) -> Run:
        run = active.start(self, listeners)

        def settle() -> None:
            if run.job.finished.is_set():
                active.wait(_SETTLE_S)

        self.on_close(settle)
        return run

    def run(self, graph: LogicalGraph, *, timeout_s: float | None = None, progress: bool = True) -> Results:
        """Run a graph to its end and return its results. Ctrl-C cancels and waits; a second Ctrl-C leaves at once.

        `progress` shows bars on a terminal. TaskError, RunFailedError, RunCancelledError: the run did not succeed.
        TimeoutError: `timeout_s` seconds have passed; the run is cancelled.
        """
        arguments.graph("run", graph)
        timeout_s = arguments.patience("timeout_s", timeout_s)
        arguments.truth("progress", progress)
        with recorded_signals(signal.SIGINT) as signals, ExitStack() as shown:
            run = self.submit(graph)
            look = picture(run, graph.name, shown) if progress else lambda: None
            try:
                ended = wait_for_end(run, signals, run.cancel, timeout_s, look)
            except KeyboardInterrupt as interrupt:
                self.leaving = True
                _add_resume_command(interrupt, run)
                raise
            if not ended:
                run.cancel(f"took longer than {timeout_s:g} s")
                raise TimeoutError(f"{graph.name} did not end within {timeout_s:g} s")
        try:
            signals.pass_on()
        except KeyboardInterrupt as interrupt:
            _add_resume_command(interrupt, run)
            raise
        return run.result()

    def __enter__(self) -> Self:
        return self


def _state(name: str, value: bool | str | os.PathLike[str]) -> StateRoot | None:
    """Return the state folder of an argument, or None."""
    if value is False:
        return None
    if value is True:
        return Settings().state_root(Path.cwd())
    return StateRoot(arguments.folder(name, value, "True, False or the path of a state folder"))


def _add_resume_command(interrupt: KeyboardInterrupt, run: Run) -> None:
    """Add the command that resumes a durable run to the traceback of a Ctrl-C."""
    if run.again and run.status != "succeeded":
        interrupt.add_note(f"{run.id} can be resumed: {run.again}")


def _historian(state: StateRoot) -> Historian:
    from weft.runtime.history import Historian

    state.prepare()
    return Historian(state.catalog(), RealClock())


def _session_name(name: str | None) -> str:
    if name is None:
        return "session"
    if not is_name(name) or "/" in name or len(name) > 80:
        raise UsageError(f"{name!r} cannot name a session", hint="Use 1 to 80 letters, digits and _ - .")
    return name


def _size(name: str, value: int | str | None) -> int | None:
    if value is None:
        return None
    try:
        size = parse_size(value) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        size = 0
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise arguments.wrong(name, value, "a number of bytes, such as 512MiB or 4GiB")
    if size >= 1 << 63:
        raise arguments.wrong(name, value, "less than 8 EiB, which is more than any machine has")
    return size
