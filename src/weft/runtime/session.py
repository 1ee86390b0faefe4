"""Sessions: run, watch and cancel graphs in this process.

An `EngineSession` owns one backend with its workers and one loop; its jobs share the pool. `submit` returns a `Run` at
once. `run` waits for the end, handles Ctrl-C (the first cancels cleanly, the second leaves at once), and raises the
error of the run.
"""

from __future__ import annotations

import _thread
import gc
import itertools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec import Struct

from weft.engine.commands import Complete
from weft.engine.consulting import check_controller, check_managers
from weft.engine.master import Master
from weft.engine.ports import FROZEN_S
from weft.engine.waiting import SLOTS, WORKER
from weft.graph.logical import VertexKind
from weft.graph.validate import mark_results, validate
from weft.model.errors import ConflictError, UsageError
from weft.model.wording import counted
from weft.runtime.arguments import functions, patience, rank, shown, whole
from weft.runtime.arguments import graph as check_graph
from weft.runtime.callbacks import CallbackThread
from weft.runtime.clock import RealClock
from weft.runtime.interruptible import interruptible_wait
from weft.runtime.job import JobRun, MakeMaster
from weft.runtime.kept import KeptValues, NamedValues, copied
from weft.runtime.loop import Loop
from weft.runtime.run import SPECIAL, Listener, Results, Run, no_value
from weft.runtime.unread import is_unread, tell_at_exit, tell_unread
from weft.store.api import ABSENT
from weft.store.rows import EdgeValues

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from weft.engine.policy import ManagerFactory
    from weft.engine.ports import Cache, Clock, Executor, Journal
    from weft.engine.provider import SharedSlots
    from weft.engine.replay import Pending
    from weft.graph.logical import LogicalGraph
    from weft.model.clusters import ClusterOptions
    from weft.model.resources import Resources
    from weft.runtime.durable import Durable
    from weft.runtime.history import Historian
    from weft.runtime.lent_actors import BegunActor
    from weft.store.api import ChunkStore, Column
    from weft.store.blocks import BlockManager

_SERVICE = VertexKind.SERVICE
_LOOK_S: Final = 0.5
"""The seconds between looks whether runs wait for the workers of actors."""


class BackendPlace(Struct, frozen=True):
    """The makings of a backend: the number of workers, the store with its folders, the resources of its node.

    A stopped task is abandoned after `grace_s` seconds; a streamed edge holds `window` bytes. A worker process that
    something has stopped is replaced within `frozen_s` seconds. `given`: the number of workers was asked for. `objects`
    is the URL below which the session spills, "" if it spills to a folder. `cluster` is what a session on Ray wants.
    `memory` are the bytes of values in memory that were asked for, 0 if none were.
    Tasks in other processes may take `worker_memory` bytes each, without a limit if it is 0. Worker processes of this
    machine share the modules `preload`.
    """

    workers: int
    store: BlockManager
    shm: Path
    spill: Path
    grace_s: float
    node: Resources
    window: int | None
    frozen_s: float = FROZEN_S
    given: bool = False
    objects: str = ""
    cluster: ClusterOptions | None = None
    memory: int = 0
    worker_memory: int = 0
    preload: tuple[str, ...] = ()


def _start_thread(action: Callable[[], None]) -> None:
    threading.Thread(target=action, name="weft-closing", daemon=True).start()


class EngineSession:
    """A backend, its workers and its jobs. Use it as a context manager, or `close` it.

    An open session without references is closed by the garbage collector, with a ResourceWarning.
    TypeError: it is to be pickled.
    """

    name: str | None = None
    _closed = True  # until all of it is there

    def __init__(
        self,
        executor: Executor,
        store: ChunkStore,
        clock: Clock | None = None,
        managers: Mapping[str, ManagerFactory] | None = None,
    ) -> None:
        self.executor = executor
        self.managers = managers or {}
        self.store = store
        self.loop = Loop(executor, clock or RealClock())
        self._numbers = itertools.count(1)
        self._jobs: dict[str, JobRun] = {}
        self._make_master = self._master_of  # one bound method for all jobs, as the next one
        self._on_end = self._ended
        self._abandoned: set[str] = set()
        """The jobs whose runs nothing refers to."""
        self.leaving = False
        """Whether a KeyboardInterrupt left a run behind that had not ended."""
        self._process = os.getpid()
        self._closed = False
        self._closers: list[Callable[[], None]] = []
        self.historian: Historian | None = None
        self._shelf = NamedValues(store)
        self._begun = 0
        """The number of runs that were begun."""
        self.actors: dict[str, BegunActor] = {}
        """The actors that were begun by `Session.actor` and have not ended, by the id of their run, oldest first."""
        self._refused: list[RuntimeWarning] = []
        """Warnings that a filter has made errors, on threads where nobody gets them."""
        self.callbacks = CallbackThread()
        self.task_logs = ""
        """The folder for the output of tasks, if that is kept."""

    def submit(
        self,
        graph: LogicalGraph,
        *,
        listeners: Sequence[Listener] = (),
        given: Mapping[str, KeptValues] | None = None,
        priority: int = 0,
    ) -> Run:
        """Check a graph and start it. GraphError, CapacityError: it cannot run here.

        `listeners` are called as by `Run.listen`, from the first tick on. `given` are values of vertices, by id, kept
        by this session before: their tasks do not run. Runs of a higher `priority` get idle workers first.
        """
        functions("listeners", listeners)
        graph, priority = check_graph("submit", graph), rank("priority", priority)
        run = self.start(graph, listeners=listeners, given=given, priority=priority)
        run.job.unread = True
        return run

    def put(self, values: Iterable[Any], n: int, *, copy: bool = True) -> KeptValues:
        """Put `n` values into the store, as the values of a vertex with `n` tasks in later runs.

        They are copied, so that later changes of them are not seen; an object that cannot be copied is put itself. With
        `copy=False` none is: nobody may change them then. UsageError: the number of values is not `n`. DiskFullError:
        no room is left for them.
        """
        self.check_open()
        n = whole("n", n, lo=0)
        if not isinstance(values, Iterable):
            raise UsageError(f"values is {shown(values)}; it must be an iterable of {counted(n, 'value')}")
        column = self.store.column(("given", str(next(self._numbers))), n)
        kept = self._shelf.keep(column)
        count = 0
        for count, value in enumerate(values, 1):
            if count > n:
                break
            self.store.put_range(column, count - 1, [copied(value) if copy else value])
        if count != n:
            raise UsageError(f"there are {'more' if count > n else 'fewer'} values than n, which is {n}")
        return kept

    def keep(self, job: JobRun, vertex: str, at: Sequence[int]) -> KeptValues:
        """Keep values of an ended job beyond its life."""
        if job.outcome is None:
            raise ConflictError(f"{job.id} still runs", hint="Wait for it first.")
        job.backend.columns.pop(vertex)
        name = ("kept", str(next(self._numbers)))
        return self._shelf.keep(self.store.take_cells((job.id, vertex), at, name))

    def start(
        self,
        graph: LogicalGraph,
        *,
        listeners: Sequence[Listener] = (),
        journal: Journal | None = None,
        restored: Iterable[tuple[str, int]] = (),
        recovered: tuple[Master, Pending] | None = None,
        incarnation: int = 0,
        durable: Durable | None = None,
        cache: Cache | None = None,
        given: Mapping[str, KeptValues] | None = None,
        strict: bool = False,
        shared: SharedSlots | None = None,
        history: tuple[Historian, str] | None = None,
        requests: Sequence[tuple[str, Any]] = (),
        priority: int = 0,
    ) -> Run:
        """Start a graph with recovery, durability and cache. Errors as of `submit`.

        `restored` are finished tasks (vertex, index) with a cache key: they do not run. `recovered` is a replayed
        master with its pending commands, from which the job continues. `incarnation` counts the earlier processes of
        the run. `durable` keeps the values of the run in files. `cache` is probed for all other tasks with a cache key.
        With `strict` the effects of a task's end wait until its record in the journal is durable, and a failed journal
        fails the run. With `shared` its requests for slots go there, instead of to the workers of the session.
        `history` is that of the run alone, with the fingerprint of its graph, in place of that of the session.
        `requests` reach the controller of the graph, by name and payload, before its first decision.
        """
        self.check_open()
        self._shelf.start()
        self._shelf.free_now()
        columns = self._given(graph, given or {})
        if durable is None:
            mark_results(graph)
        capacity = self.loop.pool.capacity() if shared is None else None
        validate(graph, capacity, many_machines=self.executor.tuning.many_machines)
        name = f"{graph.name}-{next(self._numbers)}" if durable is None else durable.name
        there = self._jobs.get(name)
        if there is not None and there.outcome is None:  # a run of another state folder
            name = f"{name}.{next(self._numbers)}"
        if recovered is None:
            check_managers(self.managers, graph.vertices.values(), lambda: graph)
            check_controller(self.managers, graph)
            master: Master | MakeMaster = self._make_master
            if durable is not None:
                managers = durable.managers(self.managers)
                master = partial(Master, tuning=self.executor.tuning, managers=managers, incarnation=incarnation)
            pending = None
        else:
            master, pending = recovered
        job = JobRun(name, graph.fixed(), master, journal)  # the user may change the graph meanwhile
        job.strict = strict
        job.shared = shared
        job.requests = requests
        job.priority = priority
        if self.task_logs:
            from weft.worker.task_logs import folder_of

            job.logs = folder_of(self.task_logs, name)
        job.on_end = self._on_end
        job.restored = frozenset(restored) or job.restored
        job.given = columns or job.given
        job.kept = tuple((given or {}).values())
        job.cache = cache
        job.durable = durable
        job.listeners = tuple(listeners)
        historian, known = history or (self.historian, "")
        if historian is not None:
            known, job.history = historian.read(graph, known)
            historian.follow(job, known)
        if any(vertex.kind is _SERVICE for vertex in graph.vertices.values()):
            from weft.runtime.lent_actors import lend_actors  # few graphs have some

            lend_actors(job, self.executor)
        if durable is not None:
            durable.join(job)
        self._jobs[name] = job
        self._begun += 1
        self.loop.submit(job, pending, durable.gone if durable is not None else None)
        return Run(self, job, durable)

    def _master_of(self, graph: LogicalGraph, job: str) -> Master:
        return Master(graph, job, self.executor.tuning, self.managers)

    def _given(self, graph: LogicalGraph, given: Mapping[str, KeptValues]) -> dict[str, Column]:
        """Return the columns of the given values; their vertices keep them, whatever reads them."""
        for name, kept in given.items():
            if not isinstance(kept, KeptValues):
                raise UsageError(
                    f"the value given for {shown(name)} is {shown(kept)}",
                    hint="Pass the result of put or of Results.keep.",
                )
            vertex = graph.vertices.get(name)
            if vertex is None or vertex.parallelism != len(kept):
                raise UsageError(
                    f"{len(kept)} values are given for {shown(name)}, which is no vertex with as many tasks"
                )
            if not kept.of(self.store):
                raise UsageError(f"the values given for {name!r} were kept by another session")
            vertex.keep = True
        return {name: kept.column for name, kept in given.items()}

    def show(self, graph: LogicalGraph, master: Master, durable: Durable) -> Run:
        """Return a run that succeeded before, so that its results can be read."""
        job = JobRun(durable.name, graph, master)
        durable.join(job)
        self._jobs[job.id] = job
        self.executor.open_job(job)
        for row in job.inspector.vertices:
            if row.keep and row.n > 0:
                self.executor.restore(job, row.id, 0, row.n)
        job.outcome = Complete("succeeded")
        job.finished.set()
        durable.close()
        return Run(self, job, durable)

    def check_open(self) -> None:
        """Raise ConflictError if the session is closed, or if it belongs to the parent of this process."""
        if self._closed:
            raise ConflictError("the session is closed", hint="Open another one.")
        self.check_process()

    def check_process(self) -> None:
        """Raise ConflictError if this process was forked: the threads of the session are those of its parent."""
        if os.getpid() != self._process:
            raise ConflictError(
                f"the session belongs to process {self._process}, which this one was forked from",
                hint="Open a session in the forked process, or start processes by spawn.",
            )

    def run(self, graph: LogicalGraph, *, timeout_s: float | None = None) -> Results:
        """Run a graph to its end and return its results. Ctrl-C cancels and waits; a second one leaves at once."""
        run = self.submit(graph)
        try:
            return run.result(timeout_s)
        except KeyboardInterrupt:
            run.cancel("interrupted")
            run.wait()  # a second one raises here, and leaves the run behind
            raise
        except UsageError:
            run.cancel("nobody waits for it")
            raise
        except TimeoutError:
            run.cancel(f"took longer than {timeout_s} s")
            raise

    def load(self, job: JobRun, vertex: str, column: Any, index: int) -> Any:
        """Return one value of a job. NotFoundError: the task has none."""
        value = self.store.load(column, index) if column.tracked else column.values[index]
        if value is ABSENT:
            raise no_value(job, f"{vertex}[{index}]")
        return value.returned() if type(value) is EdgeValues else value

    @staticmethod
    def load_plain(column: Column, lo: int, hi: int) -> list[Any] | None:
        """Return kept values that lie in memory as they are, None if one of them does not."""
        values = column.values[lo:hi]
        return list(values) if SPECIAL.isdisjoint(map(type, values)) else None

    def forget(self, job: JobRun) -> None:
        """Drop the results of an ended job. ConflictError: it still runs."""
        if job.outcome is None:
            raise ConflictError(f"{job.id} still runs", hint="Cancel it first.")
        if self._jobs.get(job.id) is job:
            del self._jobs[job.id]
            self.executor.close_job(job)
            if job.logs:
                import shutil  # runs that keep no logs of tasks need none

                shutil.rmtree(job.logs, ignore_errors=True)
            job.kept = ()
            job.backend = None  # else the job and its backend keep each other until the garbage collector comes

    def abandon(self, job: JobRun) -> None:
        """Drop a job, now or at its end: nothing refers to its run any more. Safe in a finalizer."""
        if self._shelf.closed:
            # Modules may have lost their names by then.
            if sys is not None and not sys.is_finalizing() and os.getpid() == self._process:
                tell_unread(job)
            return
        self._abandoned.add(job.id)
        if job.finished.is_set():
            self._shelf.later(partial(self._drop, job))

    def _ended(self, job: JobRun) -> None:
        if job.id in self._abandoned:
            self._shelf.later(partial(self._drop, job))

    def _drop(self, job: JobRun) -> None:
        try:
            tell_unread(job)
        except RuntimeWarning as refused:
            self._refused.append(refused)
        self._abandoned.discard(job.id)
        self.forget(job)
        job.dissolve()

    def on_close(self, closer: Callable[[], None]) -> None:
        """Register `closer`, called when the session is closed, last registered first."""
        self._closers.append(closer)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no run goes on, nor one that tasks or callbacks begin meanwhile. False: not within `timeout_s`.

        Actors do not count. Ctrl-C ends the wait, not the runs. UsageError as of `Run.wait`.
        """
        limit = patience("timeout_s", timeout_s)
        self.check_process()
        with self.executor.waiting():
            return self._wait(limit)

    def _wait(self, limit_s: float | None) -> bool:
        clock = RealClock()
        end = None if limit_s is None else clock.now() + limit_s
        while True:
            begun = self._begun
            for job in self._awaited_jobs():
                left = None if end is None else max(end - clock.now(), 0.0)
                # That of a durable run also waits for the thread that calls what follows its end.
                if not interruptible_wait((job.durable or job.finished).wait, left):
                    return False
            self.loop.settle()
            self.callbacks.settle()
            if self._begun == begun:
                return True

    def _awaited_jobs(self) -> list[JobRun]:
        """Return the jobs that may not have ended, without those of actors."""
        jobs = list(self._jobs.values())
        return [job for job in jobs if (job.durable or not job.finished.is_set()) and job.id not in self.actors]

    def _finish(self) -> None:
        """Wait for the runs, then let the actors answer their calls and end.

        Actors whose workers all runs wait for end first.
        """
        with self.executor.waiting():
            while not self._wait(_LOOK_S if self.actors else None):
                if self._wait_for_actors():
                    self._end_actors([actor for actor in list(self.actors.values()) if actor.has_worker])
            while self.actors:
                self._end_some_actors()

    def _end_some_actors(self) -> None:
        """End the actors, the latest first, which may call the others; those that have not begun wait for workers."""
        every = list(self.actors.values())[::-1]
        self._end_actors([actor for actor in every if actor.begun] or every)

    @staticmethod
    def _end_actors(actors: Sequence[BegunActor]) -> None:
        since = RealClock().now()
        for actor in actors:
            actor.stop(finish=True, since=since)

    def _wait_for_actors(self) -> bool:
        """Return whether nothing goes on but what waits for workers, which only actors hold."""
        if self.loop.slots.grows or not any(actor.has_worker for actor in list(self.actors.values())):
            return False
        return all(
            not job.leases and any(wait.kind in (SLOTS, WORKER) for wait in self.loop.waits(job, ""))
            for job in self._awaited_jobs()
            if not job.over
        )

    def close(self) -> None:
        """Cancel all runs, end all workers, drop all values. A second call does nothing.

        It does not wait for work that goes on: `wait` does, and the end of a `with` block without an error, which then
        also lets actors answer the calls that were made. Tasks get their grace period, unless a KeyboardInterrupt left
        a run behind: then the close does not wait for them.
        """
        self._close()
        if self._refused:
            raise self._refused.pop(0)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._process:
            return  # workers, memory and files belong to the process that this one was forked from
        live = [job for job in self._jobs.values() if job.outcome is None]
        for job in live:
            self.loop.cancel(job, "the session was closed")
        if live and self.leaving:
            self.executor.hurry()
        else:
            for job in live:
                job.finished.wait(timeout=30)
        self.callbacks.close()
        if any(is_unread(job) for job in list(self._jobs.values())):
            gc.collect()  # the run may only be a part of a cycle, as of a map that was read in part
        self._shelf.close()  # before the workers, which it tells what it frees
        for job in list(self._jobs.values()):
            self.executor.close_job(job)
        self.executor.close()
        for job in self._jobs.values():
            if job.unread:
                tell_at_exit(job)
        self.store.close()
        for closer in reversed(self._closers):
            closer()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"cannot pickle {self._label}, whose threads and workers belong to this process. Let the function take the "
            "values that it needs as params, and use the session outside of it; or use the backend 'threads'"
        )

    @property
    def _label(self) -> str:
        return f"the {type(self).__name__}{f' {self.name!r}' if self.name else ''}"

    def __del__(self) -> None:
        if self._closed or os.getpid() != self._process or sys.is_finalizing():
            return
        # Not on this thread, which may hold any lock. A thread that `threading` did not start stays in its records.
        _thread.start_new_thread(_start_thread, (self.close,))
        warnings.warn(
            f"{self._label} was dropped while it was open; its workers end now. Open it in a `with` block, or call its "
            "close()",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )

    def __enter__(self) -> EngineSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.leaving = self.leaving or issubclass(kind, KeyboardInterrupt)
            self._close()
            return
        try:
            if not self._closed and os.getpid() == self._process:
                self._finish()
        except BaseException as error:
            self.leaving = self.leaving or isinstance(error, KeyboardInterrupt)
            self._close()
            raise
        self.close()
