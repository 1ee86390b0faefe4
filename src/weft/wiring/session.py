"""`Session`, the interface of programs: a backend, a store and their folders, made and closed together."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack
from weakref import WeakSet, ref

from weft.admin.settings import Settings
from weft.engine.ports import FROZEN_S
from weft.model.errors import NotFoundError, UsageError
from weft.runs.sessions import check_options, open_history
from weft.runtime import arguments
from weft.runtime import session as runtime
from weft.runtime.waiting import picture, recorded_signals, wait_for_end
from weft.store.limits import limits_named
from weft.wiring.concrete import (
    BACKENDS,
    eviction_key,
    make_backend,
    policies_of,
    projection_of,
    session_folders,
)

if TYPE_CHECKING:
    import os

    from weft.engine.ports import Executor
    from weft.graph.logical import LogicalGraph
    from weft.model.clusters import ClusterOptions
    from weft.runs.active import ActiveRun, RunEvents
    from weft.runs.records import Record
    from weft.runtime.actors import ActorFields
    from weft.runtime.kept import KeptValues
    from weft.runtime.mapping import MapOptions, Mapped
    from weft.runtime.run import Listener, Results, Run
    from weft.store.api import EvictionKey
    from weft.store.folders import RunFolders
    from weft.worker.actors import ActorHandle


GRACE_S: Final = 3.0
"""The seconds until a task that was asked to stop is abandoned."""
_IN_PROCESSES: Final = ("processes", "ray")
"""The backends whose tasks run in processes of their own."""
_open: WeakSet[Any] = WeakSet()
_SETTLE_S: Final = 60.0
"""The seconds that `close` waits until the ends of durable runs are on disk."""


class Session(runtime.EngineSession):
    """Workers and a store, shared by jobs. A context manager, or call `close`.

    A `with` block that ends without an error waits for the runs that were begun in it, whoever reads them, and lets
    actors answer their calls; then it closes the session. One that ends by an exception cancels them, as `close` does.

    `backend` is "threads" (for work that releases the GIL; the default), "processes", "ray" (worker processes at the
    machines of a Ray cluster, see docs/clusters.md), "simulator" (tasks compute one after another, and take one virtual
    second each), or an executor. `workers` is the number of tasks that run at a
    time (default: the number of cores). `memory` bounds the values in memory and shared memory, in bytes or as "4GiB"
    (default: half of the machine's memory); further values go to `spill`, a folder or a URL such as
    "s3://bucket/prefix" (default: the folder for temporary files). `name` is a label. A task that was asked to stop is
    abandoned after `grace_s` seconds. With "processes", a worker that something has stopped (SIGSTOP) is killed within
    `frozen_s` seconds, and its tasks run elsewhere. `eviction` is the order of spilling: "furthest" (the last to be
    read first; the default), "lru" (least recently used), "largest", or a key function of `weft.store.api.ChunkInfo`.
    `stream_window` is the number of bytes that an edge between streaming tasks may hold (default: 64 MiB, or a
    sixteenth of the memory if that is less). `gpus` of this machine, all of `gpu_type`, are assigned to tasks that
    request them. With `backups`, a task that takes far too long gets a speculative attempt on an idle worker, and the
    first attempt to end counts (default: only with "processes", where the tasks of a dead process are run again in any
    case). A mapping has the parameters of `weft.policies.stragglers.Stragglers`, and `looks_s`, the shortest and
    longest seconds between two checks. A closed session leaves no files; the next session sweeps those of a killed one.
    The garbage collector closes an open session that nothing refers to, and issues a ResourceWarning.

    With `whole_process`, `memory` bounds the whole process, as far as tasks declare their memory: the memory in use at
    the start is subtracted, but at most half of the bound. Workers in other processes are not counted.

    With `durable`, each run has a folder like a run of the command line, in the named state folder, or with True in the
    one that `weft` would use here. Its values are files in that folder, and its decisions are in a journal, so that
    `weft resume RUN`, or `resume` of another session, continues the run after the process was killed.

    With `history`, the durations of the vertices of a succeeded run are kept in a state folder, for control vertices of
    later runs of the same graph: in the named one, or with True in that of the durable session, else in the one that
    `weft` would use here. Without it, no history is read or kept.

    With "processes" and "ray", a task may take `worker_memory` (bytes or "4GiB") of memory of its process, or what it
    declares if that is more; then it fails with OutOfMemoryError, after retries with more memory (Linux).

    Workers and nodes on which many tasks fail for other reasons than their code are excluded for a while. `exclusion`
    is a mapping of parameters of `weft.policies.blame.NodeExclusion`, or False for no exclusions.

    With `task_logs`, `Run.logs(vertex, index)` returns what a task has printed and logged.

    With "ray", `cluster` has the address of the cluster, and the packages and the folder that the program needs there.

    UsageError: an invalid argument. MissingExtraError: a package of the backend is not installed.
    """

    preload: ClassVar[tuple[str, ...]] = ()
    """The modules that worker processes on this machine share: they are loaded once, before the workers are forked."""

    def __init__(
        self,
        backend: str | Executor = "threads",
        workers: int | None = None,
        memory: int | str | None = None,
        spill: str | os.PathLike[str] | None = None,
        name: str | None = None,
        grace_s: float = GRACE_S,
        *,
        frozen_s: float = FROZEN_S,
        backups: bool | Mapping[str, Any] | None = None,
        eviction: str | EvictionKey = "furthest",
        stream_window: int | str | None = None,
        durable: bool | str | os.PathLike[str] = False,
        gpus: int = 0,
        gpu_type: str = "",
        history: bool | str | os.PathLike[str] = False,
        whole_process: bool = False,
        cluster: ClusterOptions | None = None,
        worker_memory: int | str | None = None,
        exclusion: bool | Mapping[str, Any] = True,
        task_logs: bool = False,
    ) -> None:
        given = not isinstance(backend, str)
        if given and not hasattr(backend, "launch"):
            raise arguments.wrong("backend", backend, f"one of {', '.join(BACKENDS)}, or an executor")
        options = check_options(
            name=name,
            workers=workers,
            memory=memory,
            spill=spill,
            grace_s=grace_s,
            frozen_s=frozen_s,
            backups=backups,
            eviction=eviction,
            stream_window=stream_window,
            durable=durable,
            gpus=gpus,
            gpu_type=gpu_type,
            history=history,
            whole_process=whole_process,
            cluster=cluster,
            worker_memory=worker_memory,
            exclusion=exclusion,
            task_logs=task_logs,
        )
        if options.task_logs and backend == "ray":
            raise UsageError(
                "task_logs keeps the output of tasks on this machine, and those of 'ray' run on others",
                hint="See the logs of Ray, or open a Session('processes', task_logs=True).",
            )
        check_cluster(cluster, backend)
        if worker_memory is not None and backend not in _IN_PROCESSES:
            raise UsageError(
                f"worker_memory limits worker processes, and the backend {backend!r} has none",
                hint="Open a Session('processes', ...).",
            )
        managers = policies_of(options.stragglers, options.exclusion)
        self.name, self._state = options.name, options.state
        with limits_named(), ExitStack() as undo:
            folders = undo.enter_context(session_folders(options.name, options.spill))
            store = options.store(folders, eviction_key(eviction), threads=backend == "threads")
            undo.callback(store.close)
            place = partial(options.place, store, folders, self.preload)
            made = make_backend(backend, place()) if isinstance(backend, str) else backend
            clock = options.clock(made)
            made.tuning = options.tuning(made.tuning, processes=backend == "processes")
            self._about = options.about(made, given=given)
            super().__init__(made, store, clock, managers)
            undo.pop_all()
        if options.task_logs:
            self._keep_logs(folders)
        if options.history is not None:
            self.historian = open_history(options.history)
            self.on_close(self.historian.close)
        self.on_close(folders.close)
        if not options.whole_process:
            _open.add(self)
            self.on_close(lambda: _open.discard(self))
        at_exit = partial(_close_if_there, ref(self))  # `atexit` would hold a session that its user has dropped
        self.on_close(lambda: atexit.unregister(at_exit))
        atexit.register(at_exit)

    def stand_aside(self) -> None:
        """Count as no session that the user has opened for graphs: it is a part of something else."""
        _open.discard(self)

    def _keep_logs(self, folders: RunFolders) -> None:
        """Keep the output of tasks in the folders of this session, until it is closed."""
        from weft.worker import task_logs

        self.task_logs = str(folders.spill / "task-logs")
        task_logs.install()
        self.on_close(task_logs.uninstall)

    def submit(
        self,
        graph: LogicalGraph,
        *,
        listeners: Sequence[Listener] = (),
        given: Mapping[str, KeptValues] | None = None,
        priority: int = 0,
    ) -> Run:
        """Check a graph and start it. GraphError, CapacityError: it cannot run here.

        A durable session makes the folder of the run first. ProgramError: a part of the graph cannot be pickled.
        `listeners` are called as by `Run.listen`, from the first tick on. `given` maps vertex ids to values that this
        session kept earlier: the tasks of these vertices are not run. UsageError: `given` in a durable session.
        An idle worker goes to the run with ready tasks that has the highest `priority`, and among equal ones to the run
        that holds the fewest workers. Running tasks are not interrupted.
        """
        if self._state is None:
            return super().submit(graph, listeners=listeners, given=given, priority=priority)
        if given:
            raise UsageError(
                "a durable session takes no values from memory, since a resumed run would not have them",
                hint="Give them to a vertex as items, or open the session without durable=.",
            )
        from weft.runs.graphs import GraphSource, begin_graph

        self.check_open()
        arguments.graph("submit", graph)
        arguments.functions("listeners", listeners)
        source = GraphSource(graph, projection_of(graph.frontend), Settings().user_name, self._about)
        priority = arguments.rank("priority", priority)
        run = self._settled_at_close(begin_graph(self._state, source, self, listeners)).run
        run.job.unread = True
        if priority:
            run.priority = priority
        return run

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

    def reopen(self, run_id: str, events: RunEvents, *, unfinished: bool = False) -> ActiveRun:
        """Resume the durable run of an id, as `resume`; `events` takes its records and notes.

        ConflictError: see `resume`, or the run has succeeded and an `unfinished` one is wanted.
        """
        from weft.runs.graphs import resume_graph

        assert self._state is not None
        active = resume_graph(self._state, run_id, projection_of, self, events, unfinished=unfinished)
        return active if active.plan is not None and active.plan.ended else self._settled_at_close(active)

    def _settled_at_close(self, active: ActiveRun) -> ActiveRun:
        """Return a run whose end, if it has ended, is waited for when the session closes."""

        def settle() -> None:
            if active.run.job.finished.is_set():
                active.wait(_SETTLE_S)

        self.on_close(settle)
        return active

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
                with run.awaited() if timeout_s is None else nullcontext():
                    ended = wait_for_end(run, signals, run.cancel, timeout_s, look)
            except UsageError:
                run.cancel("nobody waits for it")
                raise
            except KeyboardInterrupt as interrupt:
                self.leaving = True
                run.tell_again(interrupt)
                raise
            if not ended:
                run.cancel(f"took longer than {timeout_s:g} s")
                raise TimeoutError(f"{graph.name} did not end within {timeout_s:g} s")
        try:
            signals.pass_on()
        except KeyboardInterrupt as interrupt:
            run.tell_again(interrupt)
            raise
        return run.result()

    def map(
        self,
        fn: Callable[..., Any] | str,
        items: Iterable[Any],
        *,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        ordered: bool = True,
        return_exceptions: bool = False,
        progress: bool = True,
        stop_when: Callable[[Any], object] | None = None,
        **options: Unpack[MapOptions],
    ) -> Mapped:
        """Call `fn(item, **params)` for each item and return the results, in the order of the items, as they come.

        Without `ordered` they come in the order in which they end. Items with a length begin at once, as one run; of
        other iterables a few blocks of items are taken ahead of the reader, by the thread that reads. `options` are
        `resources`, `placement`, `retry`, `timeout_s` (seconds for each attempt), `output_bytes` and `scratch_bytes`,
        as of a vertex. The first error of an item is raised where its result would come, names the item, and cancels
        the others; with `return_exceptions` it is the result of that item. `progress` shows bars on a terminal while
        the reader waits. After the first result for which `stop_when(result)` is true nothing more is computed, and the
        iteration ends. UsageError: a durable session got items without a length.
        """
        from weft.runtime.mapping import Mapped

        self.check_open()
        return Mapped(
            self,
            fn,
            items,
            name,
            params,
            options,
            ordered=ordered,
            return_exceptions=return_exceptions,
            progress=progress,
            durable=self._state is not None,
            stop_when=stop_when,
        )

    def actor(self, kind: type[Any], *args: Any, **options: Unpack[ActorFields]) -> ActorHandle:
        """Begin an actor: the object `kind(*args)`, whose methods tasks and this program call through the handle.

        `handle.method(...)` returns a `concurrent.futures.Future`. Pass the handle to tasks as one of their `params`.
        The options are those of `weft.runtime.actors.ActorFields`: `name`, `kwargs`, `max_concurrency`, `max_pending`,
        `restarts`, `resources` and `finish_s`. Without a core the actor runs in this process; with one it takes a
        worker. It ends with `weft.stop_actor(handle)`, with the `with` block of the handle, or with the session; after
        each of them, if there was no error, it first answers the calls that were made before. UsageError: a durable
        session, a session on another backend than "threads" and "processes", a wrong option.
        """
        from weft.runtime.actors import begin_actor

        self.check_open()
        if self._state is not None:
            raise UsageError(
                "a durable session has no actors of its own, since a resumed run would not find their state",
                hint="Open another session for the actor, or add it to the graph: weft.add_actor(graph, ...).",
            )
        return begin_actor(self, kind, args, options)

    def __enter__(self) -> Self:
        return self


def check_cluster(cluster: ClusterOptions | None, backend: object) -> None:
    """UsageError: there are options of a cluster, and the backend is another one."""
    if cluster is not None and backend != "ray":
        raise UsageError(
            f"cluster is for the backend 'ray', not {backend!r}", hint="Take the backend 'ray', or leave out cluster."
        )


def _close_if_there(session: ref[Session]) -> None:
    found = session()
    if found is not None:
        found.close()


def open_sessions() -> list[Session]:
    """Return the open sessions for graphs of this process."""
    return list(_open)
