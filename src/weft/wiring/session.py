"""`Session`: what programs use. A backend, a store and their folders, made together and closed together."""

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
from weft.wiring.waiting import noted_signals, picture, wait_for_end

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
"""How long a task that was told to stop may take before it is given up, in seconds."""
_OWN: Final = 32 << 20
"""What a session adds to the memory of its process beside values: threads, modules, tiles that tasks work in."""
_SETTLE_S: Final = 60.0
"""How long a session that is closed waits until the ends of its durable runs are on disk, in seconds."""


class Session(runtime.EngineSession):
    """Workers and a store of this machine, and the jobs that share them. A context manager, or `close` it.

    `backend` is "threads" (work that releases the GIL, the default), "processes", "simulator" (tasks compute one after
    another, and take a virtual second each), or an executor made elsewhere.
    `workers` tasks run at a time (default: one for each core). `memory` bounds the values held in memory and shared
    memory, in bytes or as "4GiB" (default: half of what the machine has); the rest goes to `spill`, a folder or a URL
    such as "s3://bucket/prefix" (default: the folder for temporary files). `name` is for people. A task that was told
    to stop is given up after `grace_s` seconds. `eviction` says what goes to disk first: "furthest" (what will be read
    last, the default), "lru" (what was not touched for longest), "largest", or a key function of
    `weft.store.api.ChunkInfo`. `stream_window` is how many bytes an edge between tasks that stream may hold (default:
    64 MiB, or a sixteenth of the memory if that is less). `gpus` of this machine, all of `gpu_type`, are handed out to
    tasks that ask for them. With `backups` what takes far too long is run a second time on an idle worker, and the
    first to end counts (default: with "processes", where what a process was at when it died is run again in any case);
    a mapping gives the parameters of `weft.policies.stragglers.Stragglers`, and with `looks_s` the shortest and longest
    seconds between two looks. Nothing of a session is left when it is closed, and what a killed one leaves is swept by
    the next.

    With `whole_process` the `memory` that is given bounds all that this process holds, as far as the tasks say what
    they work in: what it holds already is taken off, but for half of the memory. Workers that are processes of their
    own are not counted.

    With `durable` each run has a folder as those of the command line have, under the state folder that is named, or
    with True the one that `weft` would use from here. Its values are written to files there and its decisions to a
    journal, so that `weft resume RUN`, or `resume` of another session, goes on with it after the process was killed.

    With `history` what the vertices of a run that succeeds took is kept in a state folder, for control vertices of
    later runs of the same graph: in the one that is named, or with True in that of the durable session, else in the one
    that `weft` would use from here. Without it nothing is read or kept, durable or not.

    UsageError: a wrong argument. MissingExtraError: the backend needs something that is not installed.
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
        """Check a graph and start it; GraphError or CapacityError if it cannot run here.

        In a durable session the run's folder is made first. ProgramError: something of the graph cannot be pickled.
        `listeners` are called as by `Run.listen`, from the first tick on. `given` has the values of vertices, by id,
        that were kept by this session before: their tasks are not run. UsageError: a durable session was given some.
        """
        if self._state is None:
            return super().submit(graph, listeners=listeners, given=given)
        if given:
            raise UsageError(
                "a durable session takes no values of memory: whoever goes on with the run would not have them",
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
        """Go on with a durable run that failed, was cancelled, or whose process was killed; return it.

        `run` is an id or whatever else names one for `weft resume`. What has finished is not run again, unless its
        output is gone, which `Run.notes` says. Of a run that has succeeded, the results are read and nothing is run.
        `on_record` is told of every change, on a thread of its own.
        UsageError: this session keeps no journal. ConflictError: the run still goes on elsewhere, or is a pipeline.
        ProgramError: its functions cannot be loaded here.
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
        """Go on with a durable run of an id, as `resume`; `events` are told of it."""
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
        """Run a graph to its end and return its results. Ctrl-C cancels and waits; a second one leaves at once.

        `progress` shows bars on a terminal while it takes. TaskError, RunFailedError or RunCancelledError say what went
        wrong, TimeoutError that `timeout_s` seconds were not enough (the run is then cancelled).
        """
        arguments.graph("run", graph)
        timeout_s = arguments.patience("timeout_s", timeout_s)
        arguments.truth("progress", progress)
        with noted_signals(signal.SIGINT) as signals, ExitStack() as shown:
            run = self.submit(graph)
            look = picture(run, graph.name, shown) if progress else lambda: None
            try:
                ended = wait_for_end(run, signals, run.cancel, timeout_s, look)
            except KeyboardInterrupt as interrupt:
                self.leaving = True
                _tell_how_to_go_on(interrupt, run)
                raise
            if not ended:
                run.cancel(f"took longer than {timeout_s:g} s")
                raise TimeoutError(f"{graph.name} did not end within {timeout_s:g} s")
        try:
            signals.hand_on()
        except KeyboardInterrupt as interrupt:
            _tell_how_to_go_on(interrupt, run)
            raise
        return run.result()

    def __enter__(self) -> Self:
        return self


def _state(name: str, asked: bool | str | os.PathLike[str]) -> StateRoot | None:
    """Return the state folder that an argument asks for; None: it asks for none."""
    if asked is False:
        return None
    if asked is True:
        return Settings().state_root(Path.cwd())
    return StateRoot(arguments.folder(name, asked, "True, False or the path of a state folder"))


def _tell_how_to_go_on(interrupt: KeyboardInterrupt, run: Run) -> None:
    """Add to the traceback of a Ctrl-C how a durable run is gone on with."""
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


def _size(name: str, asked: int | str | None) -> int | None:
    if asked is None:
        return None
    try:
        size = parse_size(asked) if isinstance(asked, str) else asked
    except (ValueError, OverflowError):
        size = 0
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise arguments.wrong(name, asked, "a number of bytes, such as 512MiB or 4GiB")
    if size >= 1 << 63:
        raise arguments.wrong(name, asked, "less than 8 EiB, which is more than any machine has")
    return size
