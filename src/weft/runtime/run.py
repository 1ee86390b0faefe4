"""Runs: one submitted graph each, to wait for, to watch, to cancel and to read."""

from __future__ import annotations

import itertools
import queue
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from weft.engine.commands import Command
from weft.engine.events import Event
from weft.engine.machines.job import JobState
from weft.engine.machines.task import TaskState
from weft.engine.machines.vertex import VertexState
from weft.graph.logical import VertexKind
from weft.model.chunks import ChunkRef
from weft.model.errors import (
    CapacityError,
    GraphError,
    InternalError,
    NotFoundError,
    RunCancelledError,
    RunFailedError,
    TaskError,
    UsageError,
    WeftError,
)
from weft.model.failures import error_of
from weft.model.ids import parse_task
from weft.model.raised import as_raised
from weft.model.suggestions import did_you_mean
from weft.model.wording import counted
from weft.runtime.arguments import functions, patience, rank, shown, text, truth, whole
from weft.runtime.callbacks import call_back
from weft.runtime.clock import RealClock
from weft.runtime.interruptible import interruptible_get, interruptible_wait
from weft.runtime.job import JobRun
from weft.runtime.watching import EndedTasks, TaskFailure
from weft.store.api import ABSENT
from weft.store.rows import EdgeValues
from weft.worker.context import check_payload

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from weft.engine.explain import Explained
    from weft.engine.inspector import VertexRow
    from weft.engine.ports import Executor
    from weft.engine.view import JobView
    from weft.engine.waiting import Wait
    from weft.graph.spec import Wants
    from weft.runtime.asynchronous import EventStream, RunEvent
    from weft.runtime.callbacks import CallbackThread
    from weft.runtime.durable import Durable
    from weft.runtime.kept import KeptValues
    from weft.runtime.loop import Loop
    from weft.store.api import Column

SPECIAL = frozenset({ChunkRef, type(ABSENT), EdgeValues})
"""The types of cells that hold a reference in place of the value."""

Listener = Callable[[JobRun, Sequence[Event], Sequence[Command]], None]


class RunOwner(Protocol):
    """What a run needs of the session that runs it."""

    @property
    def loop(self) -> Loop:
        """The loop of the session's jobs."""
        ...

    @property
    def executor(self) -> Executor:
        """The backend."""
        ...

    @property
    def callbacks(self) -> CallbackThread:
        """The thread that calls the callbacks of users."""
        ...

    def check_process(self) -> None:
        """Raise ConflictError if this process was forked."""
        ...

    def abandon(self, job: JobRun) -> None:
        """Drop a job, now or at its end: nothing refers to its run any more. Safe in a finalizer."""
        ...

    def load(self, job: JobRun, vertex: str, column: Any, index: int) -> Any:
        """Return one value of a job. NotFoundError: the task has none."""
        ...

    def keep(self, job: JobRun, vertex: str, at: Sequence[int]) -> KeptValues:
        """Keep values of an ended job beyond its life."""
        ...

    def forget(self, job: JobRun) -> None:
        """Drop the results of an ended job. ConflictError: it still runs."""
        ...


class Run:
    """One submitted graph: wait for it, watch it, cancel it, read its results.

    The session drops an ended run with the last reference to its `Run` and `Results`. A run without references goes on
    to its end. A run that has failed is a RuntimeWarning when its last reference goes and nobody has read its result,
    error or status, or registered a done callback.
    """

    __slots__ = ("__weakref__", "_durable", "_job", "_session")

    def __init__(self, session: RunOwner, job: JobRun, durable: Durable | None = None) -> None:
        self._session = session
        self._job = job
        self._durable = durable

    def __del__(self) -> None:  # a weak reference would be one more object of each run for the garbage collector
        if hasattr(self, "_durable"):  # else it was not made to the end, as by a copy that fails
            self._session.abandon(self._job)

    def __copy__(self) -> Run:
        """Return the run itself: the session drops it with its last reference, and a copy would be another one."""
        return self

    def __repr__(self) -> str:
        return f"<run {self.id} of {self._job.graph.name}: {self._state()}>"

    @property
    def id(self) -> str:
        """The id within the session; for a durable run, the id that `weft resume` takes."""
        return self._job.id

    @property
    def session(self) -> RunOwner:
        """The session that runs it."""
        return self._session

    @property
    def job(self) -> JobRun:
        """The job of the loop, for recorders."""
        return self._job

    @property
    def status(self) -> str:
        """new, running, failing, cancelling, concluding, ending, succeeded, failed or cancelled."""
        if self._job.outcome is not None:
            self._job.unread = False
        return self._state()

    def _state(self) -> str:
        return self._job.inspector.status.value if not self._job.given_up else "failed"

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self._job.over

    @property
    def frontend(self) -> str:
        """The name of the front end of the graph."""
        return self._job.graph.frontend

    @property
    def again(self) -> str:
        """The command that resumes a durable run that was cut off, failed or was cancelled; "" otherwise."""
        return "" if self._durable is None else self._durable.again

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about records that a durable run could not write or work that it repeated; empty for other runs."""
        return () if self._durable is None else tuple(self._durable.notes)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end. Return False after `timeout_s` seconds without it.

        Ctrl-C ends the wait, not the run. UsageError: a task of the session waits, and no other worker is left for the
        run.
        """
        if not self.done:
            self._session.check_process()
        ended = self._job.finished if self._durable is None else self._durable
        limit = patience("timeout_s", timeout_s)
        try:
            if limit is not None or self.done:
                return interruptible_wait(ended.wait, limit)
            with self.awaited():
                return interruptible_wait(ended.wait)
        except KeyboardInterrupt as interrupt:
            self.tell_again(interrupt)
            raise

    def tell_again(self, interrupt: KeyboardInterrupt) -> None:
        """Add the command that resumes a durable run, once, to the traceback of a Ctrl-C during a wait for it."""
        note = f"{self.id} can be resumed: {self.again}"
        if self.again and self.status != "succeeded" and note not in getattr(interrupt, "__notes__", ()):
            interrupt.add_note(note)

    def awaited(self) -> AbstractContextManager[None]:
        """Return the context of a wait without a limit by the current thread; UsageError as of `wait`."""
        return self._session.executor.waiting()

    def cancel(self, reason: str = "cancelled", *, force: bool = False) -> None:
        """Request a cancellation, which is complete when `wait` returns.

        Final vertices still run, unless the run is cancelled a second time or with `force`. A run that is being
        suspended is cancelled instead.
        """
        self._session.loop.cancel_for_user(self._job, text("reason", reason), force=bool(truth("force", force)))

    def cancel_task(self, node: Any, index: int, reason: str = "cancelled by its user") -> None:
        """Request the cancellation of one task; `index` counts from 0.

        A task that has not begun does not begin; a running one is stopped, and is not tried again. It counts as failed,
        under `on_failure=FAIL_FAST` too without effect on tasks that do not need its value: the run goes on, and ends
        as failed with RunCancelledError, unless another task fails. A task that has ended keeps its value.

        NotFoundError: the run has no such vertex or task. UsageError: its number of tasks is not known yet, or its
        controller starts and stops its tasks.
        """
        row = self._task_row(node)
        index = whole("index", index, lo=0, hi=None)
        self._check_cancels(row)
        if index >= max(row.n, 0):
            raise NotFoundError(f"{row.id} has {counted(max(row.n, 0), 'task')}, and no task {index}")
        self._session.loop.cancel_tasks(self._job, row.id, index, index + 1, text("reason", reason))

    def cancel_tasks(self, node: Any, reason: str = "cancelled by its user") -> None:
        """Request the cancellation of all tasks of a vertex that have not ended, each as by `cancel_task`.

        NotFoundError: the run has no such vertex. UsageError: as of `cancel_task`.
        """
        row = self._task_row(node)
        self._check_cancels(row)
        self._session.loop.cancel_tasks(self._job, row.id, 0, max(row.n, 0), text("reason", reason))

    def _check_cancels(self, row: VertexRow) -> None:
        if row.vertex.controlled:
            raise UsageError(
                f"the tasks of {row.id} are started and stopped by the controller of the run",
                hint="Ask the controller: run.request(name, payload).",
            )
        if row.n < 0 and self._job.outcome is None:
            raise UsageError(f"the number of tasks of {row.id} is not known yet", hint="Wait for it: run.view()")

    def stop(self, node: Any = None, reason: str = "stopped by its user") -> None:
        """Request the early end of a vertex as a success: what is finished is its value. Without a node, of the run.

        Its running tasks are stopped, and the others do not start. Tasks that read the vertex get the values of its
        finished tasks, as after an early end by a manager. Without a node all vertices end so; final ones still run,
        and the run ends as succeeded, if no task of it has failed before. `Results.finished` has the values.

        NotFoundError: the run has no such vertex. UsageError: it is a service, or its controller ends it.
        """
        vertex = ""
        if node is not None:
            row = self._task_row(node)
            vertex = row.id
            if row.vertex.controlled or row.vertex.kind is VertexKind.SERVICE:
                whose = "the controller of the run" if row.vertex.controlled else "the end of its last consumer"
                raise UsageError(f"{vertex} is ended by {whose}", hint="Without a vertex, stop() ends the whole run.")
        self._session.loop.finish(self._job, vertex, text("reason", reason))

    def _task_row(self, node: Any) -> VertexRow:
        """Return the record of a vertex. NotFoundError: there is none. GraphError: it is of another graph."""
        self.check_own(node)
        name = text("node", getattr(node, "id", node))
        row = self._job.inspector.vertex(name)
        if row is None:
            names = [row.id for row in self._job.inspector.vertices]
            hint = did_you_mean(name, names, f"It has: {', '.join(names[:10])}")
            raise NotFoundError(f"{self._job.graph.name} has no vertex {name[:100]!r}", hint=hint)
        return row

    def check_own(self, node: Any) -> None:
        """Check that a node is of the graph of this run, or of one with its name. GraphError: it is not."""
        graph = getattr(node, "graph", None)
        if graph is not None and graph.name != self._job.graph.name:
            raise GraphError(
                f"vertex {node.id!r} belongs to graph {graph.name!r}, and this is a run of {self._job.graph.name!r}",
                subject=node.id,
                rule="foreign-node",
            )

    @property
    def priority(self) -> int:
        """The priority: an idle worker goes to the run with ready tasks that has the highest one."""
        return self._job.priority

    @priority.setter
    def priority(self, priority: int) -> None:
        self._session.loop.set_priority(self._job, rank("priority", priority))

    def request(self, name: str, payload: Any = None) -> None:
        """Request something of the controller of the run; `payload` is JSON of at most 64 KiB.

        UsageError: it is not, or the graph has no controller. A run that has ended ignores it.
        """
        check_payload(f"request {text('name', name)!r}", payload)
        self._session.loop.request(self._job, name, payload)

    def refusal(self, wants: Wants) -> str:
        """Return why tasks of the run can never get their slots together, as a clause; "" if they can."""
        return self._session.loop.refusal(self._job, wants)

    def suspend(self, *, drain: bool) -> None:
        """Start no more work of the run. It ends with the last running task, or without `drain` at once; it can be
        recovered.
        """
        self._session.loop.suspend(self._job, drain=drain)

    def view(self) -> JobView:
        """Return a snapshot of the job: state and counts of every vertex."""
        return self._job.inspector.view()

    def story(self, subject: Any = "") -> tuple[str, ...]:
        """Return the history, with reasons, of a vertex, a task (`vertex[3]`) or, with "", the whole run.

        A worker (`worker 2`) and a bubble have a history too; a node stands for its vertex. NotFoundError: the run has
        no such subject.
        """
        subject = text("subject", getattr(subject, "id", subject))
        lines = self._job.inspector.story(subject)
        if not lines and not self._known(subject):
            names = list(dict.fromkeys(row.vertex.step for row in self._job.inspector.vertices if row.vertex.step))
            some = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            hint = did_you_mean(subject.partition("[")[0], names, f"It has: {some or 'none yet'}")
            raise NotFoundError(f"{self._job.graph.name} has no vertex {subject[:100]!r}", hint=hint)
        return lines

    def waits(self, subject: Any = "") -> tuple[Wait, ...]:
        """Return why tasks of a vertex, a task or, with "", the whole run have not started; errors as `story`."""
        subject = text("subject", getattr(subject, "id", subject))
        found = self._session.loop.waits(self._job, subject)
        if not found:
            self.story(subject)
        return found

    def logs(self, node: Any, index: int = 0) -> str:
        """Return what a task has printed and logged so far: of each task the first 64 KiB, of all of its attempts.

        UsageError: the session does not keep it. NotFoundError: the run has no such vertex or task.
        """
        if not self._job.logs:
            raise UsageError(
                "the session does not keep the output of tasks", hint="Open it with task_logs=True, before the run."
            )
        row = self._task_row(node)
        if whole("index", index, lo=0, hi=None) >= max(row.n, 0):
            raise NotFoundError(f"{row.id} has {counted(max(row.n, 0), 'task')}, and no task {index}")
        from weft.worker.task_logs import log_of

        return log_of(self._job.logs, row.id, index)

    def _known(self, subject: str) -> bool:
        inspector = self._job.inspector
        if subject.startswith("worker ") or subject in inspector.bubbles:
            return True
        try:
            name = parse_task(subject)[0]
            return inspector.plans(name) or any(row.vertex.label == name for row in inspector.vertices)
        except ValueError:
            return False

    def _expands(self, task: str) -> bool:
        row = self._job.inspector.vertex(parse_task(task)[0])
        return row is not None and row.vertex.expands

    def explain(self) -> tuple[str, ...]:
        """Return the plan and the execution, with every change of the plan and its cause, as lines of text."""
        return tuple(self.explained().lines())

    def explained(self) -> Explained:
        """Return `explain` as data."""
        return self._job.inspector.explain()

    def error(self) -> WeftError | None:
        """Return the error of the run; None while it runs or if it succeeded."""
        job = self._job
        outcome = job.outcome
        if outcome is None:
            return None
        job.unread = False
        if outcome.state == "succeeded":
            return None
        hint = f"Go on with it: {self.again}" if self.again else ""
        if isinstance(job.crash, UsageError | CapacityError):
            return job.crash
        if job.crash is not None:
            error: WeftError = InternalError(
                f"{job.graph.name}: {job.crash}", hint="Please report this with the history of the run."
            )
            error.__cause__ = job.crash
            return error
        if outcome.state == "cancelled":
            return RunCancelledError(f"{job.graph.name} was cancelled: {outcome.message}", hint=hint)
        kind = error_of(outcome.kind)
        if issubclass(kind, TaskError | RunCancelledError):
            return TaskFailure.of(outcome).error(outcome.task, hint=hint, origin=job.origins.get(outcome.task))
        if kind is not RunFailedError:
            if kind is CapacityError and self._expands(outcome.task):  # the task is not too large: its expansion is
                message, _, advice = outcome.message.partition("\n")
                return CapacityError(message, hint="\n".join(filter(None, (advice, hint))))
            return kind(f"{outcome.task} failed: {outcome.message}", hint=hint)
        at = f" at {outcome.task}" if outcome.task else ""
        return RunFailedError(f"{job.graph.name} failed{at}: {outcome.message}", hint=hint)

    def result(self, timeout_s: float | None = None, *, progress: bool = False) -> Results:
        """Wait for the end and return the results. `progress` shows bars on a terminal or in a notebook meanwhile.

        TaskError, RunFailedError, RunCancelledError, ...: the run did not succeed. A TaskError is also an instance of
        the class that the task's code raised, and its cause is the traceback of the task. TimeoutError: the run did not
        end in time.
        """
        ended = self._wait_and_show(timeout_s) if truth("progress", progress) else self.wait(timeout_s)
        if not ended:
            raise TimeoutError(f"{self._job.graph.name} did not end within {timeout_s:g} s")
        self._check()
        return Results(self)

    def _wait_and_show(self, timeout_s: float | None) -> bool:
        """Wait as `wait`, with bars."""
        from weft.runtime.waiting import Signals, picture, wait_for_end

        limit = patience("timeout_s", timeout_s)
        with ExitStack() as shown:
            if limit is None and not self.done:
                shown.enter_context(self.awaited())
            look = picture(self, self._job.graph.name, shown)
            return wait_for_end(self, Signals(), self.cancel, limit, look)

    def __await__(self) -> Generator[Any, None, Results]:
        """Wait in a coroutine, as `async_result`."""
        return self.async_result().__await__()

    async def async_result(self, *, cancel_run: bool = False) -> Results:
        """Wait for the end in a coroutine, without a thread, and return the results; errors as of `result`.

        With `cancel_run`, a cancel of the awaiting task also cancels the run, whose end is not waited for.
        """
        from weft.runtime.asynchronous import wait_for_end

        truth("cancel_run", cancel_run)
        if not self.done:
            self._session.check_process()
            with self.awaited():  # a task of the session that waits needs another worker
                pass
            cancel = partial(self.cancel, "the task that awaits it was cancelled") if cancel_run else None
            await wait_for_end(self.when_done, cancel)
        self._check()
        return Results(self)

    def events(self) -> AsyncIterator[RunEvent]:
        """Return what happens in the run, for one reader: `async for event in run.events()` in a coroutine.

        Events come in the order in which they happened, first those of tasks that have ended already. Each end of a
        task comes once, in ranges; the last event is the end of the run. UsageError: no event loop of asyncio runs.
        """
        from weft.runtime.asynchronous import EventStream

        self._session.check_process()
        job, stream = self._job, EventStream(self._session.loop.clock)
        job.unread = False
        self._attach(stream)
        self.when_done(lambda: stream.end(job.outcome.state if job.outcome is not None else "failed"))
        return stream

    def _check(self) -> None:
        """Raise the error of the ended run, if it has one."""
        error = self.error()
        if error is not None:
            raise as_raised(error) if isinstance(error, TaskError) else error

    def results(self) -> Results:
        """Return the kept values, at once and whatever the end of the run.

        While the run goes on, and after success or failure, these are all finished kept values. A cancelled run keeps
        none.
        """
        return Results(self)

    def when_done(self, action: Callable[[], None]) -> None:
        """Call an action as soon as the run is `done`, at once if it is. The action must return at once, and call
        nothing that waits: the session may hold its lock.
        """
        if self._durable is None:
            self._job.when_ended(action)
        else:
            self._durable.when_settled(action)

    def add_done_callback(self, callback: Callable[[Run], object]) -> None:
        """Call `callback(run)` when the run is `done`, on a thread of the session; of a closed session, at once.

        Callbacks of a session are called one after another, in the order in which their moments came; they may wait.
        An exception of one is a RuntimeWarning.
        """
        functions("callback", [callback])
        self._job.unread = False
        if not self._session.callbacks.start() and self.done:
            call_back(callback, self)
            return
        self.when_done(partial(self._session.callbacks.put, partial(call_back, callback, self)))

    def as_completed(self, node: Any, timeout_s: float | None = None) -> Iterator[tuple[int, Any]]:
        """Yield (index, value) of each task of a vertex as soon as it has finished; earlier ones come first.

        The iterator ends with the last task of the vertex, whatever the rest of the run does. NotFoundError: the run
        has no such vertex, or does not keep its values. TimeoutError: `timeout_s` seconds after the call a task has not
        finished. If the run ends without all of them, its error is raised, as by `result`. UsageError as of `wait`.
        """
        limit = patience("timeout_s", timeout_s)
        row = Results(self).row(node)
        news: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        ended = EndedTasks(row.id, lambda lo, hi: news.put((lo, hi)))
        self._attach(ended)
        self.when_done(lambda: news.put(None))
        return self._completed(row, ended, news, limit)

    def _completed(
        self,
        row: VertexRow,
        ended: EndedTasks,
        news: queue.SimpleQueue[tuple[int, int] | None],
        limit: float | None,
    ) -> Iterator[tuple[int, Any]]:
        clock = RealClock()
        end = None if limit is None else clock.now() + limit
        count = 0
        try:
            while row.n < 0 or count < row.n:
                try:
                    found = news.get_nowait()
                except queue.Empty:
                    found = self._next(news, end, clock, row.id)
                if found is None:
                    self._check()
                    return
                for index in range(*found):
                    if ended.finished(index):
                        value = self._ended_value(ended, index)
                        if value is not ABSENT:
                            yield index, value
                            count += 1
        finally:
            ended.stop()

    def _next(
        self, news: queue.SimpleQueue[tuple[int, int] | None], end: float | None, clock: RealClock, vertex: str
    ) -> tuple[int, int] | None:
        if end is None:
            with self.awaited():
                return interruptible_get(news)
        try:
            return interruptible_get(news, max(end - clock.now(), 0.0))
        except queue.Empty:
            raise TimeoutError(f"not all tasks of {vertex} have finished in time") from None

    def _attach(self, listener: EndedTasks | EventStream) -> None:
        """Report what happens from now on, and what has happened before."""

        def begin() -> None:
            listener.begin(self._job)
            self._job.listen(listener)

        self._session.loop.between_ticks(begin)

    def _ended_value(self, ended: EndedTasks, index: int) -> Any:
        """Return the value of a finished task; ABSENT if it was lost: it is reported again once there is another."""
        try:
            return self._session.load(self._job, ended.vertex, Results(self).column(ended.vertex), index)
        except NotFoundError:
            if self._job.outcome is None:
                self._session.loop.between_ticks(partial(ended.again, self._job, index))
            return ABSENT

    def add_result_callback(self, node: Any, callback: Callable[[int, Any], object]) -> None:
        """Call `callback(index, value)` for each task of a vertex as soon as it has finished, also for earlier ones.

        Called as by `add_done_callback`, and before the done callbacks. NotFoundError as of `as_completed`.
        """
        functions("callback", [callback])
        row = Results(self).row(node)
        calls = self._session.callbacks

        def call(lo: int, hi: int) -> None:
            for index in range(lo, hi):
                if ended.finished(index):
                    value = self._ended_value(ended, index)
                    if value is not ABSENT:
                        call_back(callback, index, value)

        def leave() -> None:  # else the job would keep its run
            self._job.unlisten(ended)

        ended = EndedTasks(row.id, lambda lo, hi: calls.put(partial(call, lo, hi)))
        calls.start()
        self._attach(ended)
        self.when_done(partial(calls.put, leave))

    def listen(self, listener: Listener) -> None:
        """Register `listener(job, events, commands)`, called after every tick of the job under the loop's lock: it
        must return at once, and call nothing that waits. An exception of it fails the run.
        """
        self._job.listen(listener)

    def forget(self) -> None:
        """Drop the results at once, whoever holds them. ConflictError: the run has not ended."""
        self._session.forget(self._job)


class Results:
    """The kept values of a run, by node or vertex id."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"<results of {self._run!r}: {', '.join(itertools.islice(self, 10)) or 'none'}>"

    @property
    def run(self) -> Run:
        """The run that made them."""
        return self._run

    def __getitem__(self, node: Any) -> list[Any]:
        """Return the values of a vertex, one for each task. NotFoundError: they were not kept."""
        vertex, column = self._column(node)
        values = column.values
        if column.readable or SPECIAL.isdisjoint(map(type, values)):
            return list(values)
        return [self._load(vertex, column, index) for index in range(len(column))]

    def finished(self, node: Any) -> dict[int, Any]:
        """Return the values of the tasks of a vertex that have finished so far, by index: also of a vertex that was
        ended early, or some of whose tasks have failed. NotFoundError: they were not kept.
        """
        vertex, column = self._column(node)
        row = self.row(node)
        return {i: self._load(vertex, column, i) for i in range(max(row.n, 0)) if row.state[i] == TaskState.FINISHED}

    def value(self, node: Any = None) -> Any:
        """Return the value of a vertex with one task; without a node, the only result. NotFoundError: there is not one
        value.
        """
        if node is None:
            names = list(self)
            if len(names) != 1:
                raise NotFoundError(
                    f"the run has {counted(len(names), 'result')} ({', '.join(names) or 'none'}), not one",
                    hint="Pass a node or a vertex id.",
                )
            node = names[0]
        vertex, column = self._column(node)
        if len(column) != 1:
            raise NotFoundError(
                f"{vertex} has {counted(len(column), 'value')}, not one",
                hint="Use results[node] for the list of values.",
            )
        return self._load(vertex, column, 0)

    def keep(self, node: Any, at: Sequence[int] | None = None) -> KeptValues:
        """Return the values of a vertex, or of its tasks `at`, as a sequence that outlives the run.

        They stay after `forget`. NotFoundError: the values were not kept.
        """
        vertex, column = self._column(node)
        return self._run._session.keep(self._run._job, vertex, range(len(column)) if at is None else at)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the vertices whose values are kept."""
        rows = self._run._job.inspector.vertices
        return iter([row.id for row in rows if row.keep and row.status is not VertexState.SKIPPED])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def column(self, node: Any) -> Column:
        """Return the values of a vertex as they lie in the store. NotFoundError: they are not kept."""
        return self._column(node)[1]

    def _column(self, node: Any) -> tuple[str, Column]:
        row = self.row(node)
        job = self._run._job
        return row.id, job.backend.column(row.id, *job.inspector.column(row.id))

    def row(self, node: Any) -> VertexRow:
        """Return the record of a vertex whose values are kept.

        NotFoundError: they are not kept. GraphError: the node is of another graph.
        """
        self._run.check_own(node)
        name = getattr(node, "id", node)
        if not isinstance(name, str):
            raise UsageError(f"a result is named by a node or a vertex id, not by {shown(name)}")
        job = self._run._job
        row = job.inspector.vertex(name)
        if row is None:
            hint = did_you_mean(name, self, f"Results: {', '.join(itertools.islice(self, 10)) or 'none'}")
            raise NotFoundError(f"{job.graph.name} has no vertex {name[:100]!r}", hint=hint)
        if job.backend is None or job.backend.closed:
            hint = "Read them before run.forget() and before the session is closed."
            raise NotFoundError(f"the results of {job.graph.name} were dropped", hint=hint)
        if not row.keep:
            raise NotFoundError(
                f"the values of {name!r} were not kept",
                hint="Call .keep() on the node, or pass keep=True, before running.",
            )
        return row

    def _load(self, vertex: str, column: Any, index: int) -> Any:
        return self._run._session.load(self._run._job, vertex, column, index)


def no_value(job: JobRun, task: str) -> NotFoundError:
    """Return the error for a missing value, with the reason."""
    state = job.inspector.status
    if job.outcome is None:
        return NotFoundError(f"{task} has no value yet", hint="Wait for the run, or see: run.view()")
    if state is JobState.CANCELLED:
        return NotFoundError(
            f"{task} has no value: {job.graph.name} was cancelled, and a cancelled run keeps none",
            hint="Read results before the cancel, or run again.",
        )
    if state is JobState.FAILED:
        job.unread = False
        return NotFoundError(
            f"{task} has no value: {job.graph.name} failed before it was made",
            hint="See run.error() and run.story(). With on_failure=OnFailure.CONTINUE independent tasks still run.",
        )
    return NotFoundError(
        f"{task} has no value: it was not run",
        hint="See why: run.story(). Values that there are: results.finished(node).",
    )
