"""The call scheduler of a session: decides which remote calls are ready and submits them as jobs.

A call is a job of one task in the session's engine; a function that continues after a wait is another job. The inputs
of a call are values that the session keeps. The scheduler knows the dependencies between calls and submits a few jobs
at a time, the latest call first: a tree of calls is walked in depth, and few functions wait at once.

Only the scheduler's own thread changes its state; other threads send it requests.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.engine.commands import Complete
from weft.frontends.tensors.arrays.executables import Watch, compute, here, waiting
from weft.frontends.tensors.arrays.runners import using
from weft.graph.builder import Graph
from weft.model.errors import ConflictError, InternalError, RunCancelledError, TaskError, WeftError
from weft.remote.bridge import WorkerBridge, call_in_worker, hold_slot_in_worker
from weft.remote.calls import RETRIES, RemoteCall, substitute_values
from weft.remote.coroutines import CoroutineThread, SlotHandover, Suspended

if TYPE_CHECKING:
    from weft.runtime.kept import KeptValues
    from weft.runtime.session import Run
    from weft.tensor.sessions import TensorSession

AHEAD = 2
"""Jobs submitted for each worker, so that no worker waits for the scheduler."""
_lock = threading.Lock()


def supplied_value(*_: Any) -> Any:
    """Task body of an input whose value exists before the job."""
    raise AssertionError("a supplied value was computed")


class ScheduledCall:
    """A requested call until its end: the calls that it waits for, its readers, and its job."""

    def __init__(self, call: RemoteCall) -> None:
        self.call = call
        self.missing = 0
        self.readers: list[ScheduledCall] = []
        self.batches: set[CallBatch] = set()
        self.children: set[CallBatch] = set()
        self.run: Run | None = None
        self.submitted = False
        self.stopped = False
        self.ended = False
        self.tries = 0
        self.lost = 0


class CallBatch:
    """Calls that one caller waits for, with all their dependencies."""

    def __init__(self, calls: Sequence[RemoteCall]) -> None:
        self.calls = calls
        self.left: set[ScheduledCall] = set()
        self.n = 0
        self.error: BaseException | None = None
        self.over = threading.Event()

    def share(self) -> float:
        """Return the fraction of ended calls, 0 to 1."""
        return 1.0 - len(self.left) / self.n if self.n else 0.0


def call_scheduler(session: TensorSession) -> CallScheduler:
    """Return the call scheduler of a session; the first request makes it."""
    with _lock:
        found: CallScheduler | None = session.call_scheduler
        if found is None:
            found = session.call_scheduler = CallScheduler(session)
            session.engine.on_close(found.close)
        return found


class CallScheduler:
    """Runs remote calls in a session."""

    def __init__(self, session: TensorSession) -> None:
        self.session = session
        self._engine = session.engine
        self._bridge = WorkerBridge(self) if session.apart else None
        self._pending: dict[int, ScheduledCall] = {}
        self._ready: list[Callable[[], None]] = []
        self._out = 0
        self._closing = threading.Lock()
        self._closed = False
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="weft-call-scheduler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; callers that wait get a ConflictError."""
        with self._closing:
            self._closed = True
            self._todo.put(partial(self._fail_all, _closed()))
            self._todo.put(None)
        if self._bridge is not None:
            self._bridge.close()

    # ------------------------------------------------------------------------------------- requests of other threads

    def run(self, calls: Sequence[RemoteCall], watch: Watch, parent: ScheduledCall | None = None) -> None:
        """Run calls and wait for them. TaskError, RunFailedError, RunCancelledError: the first failure."""
        self._engine.check_open()
        parent = parent or getattr(here, "call_state", None)
        compute(_arrays(calls), self.session, watch)
        batch = CallBatch(calls)
        watch.began(partial(self._todo.put, partial(self._stop, batch)), batch.share)
        with waiting():
            self._enqueue(partial(self._begin, batch, parent))
            try:
                batch.over.wait()
            except KeyboardInterrupt:
                self._todo.put(partial(self._stop, batch))
                batch.over.wait()
                raise
        if batch.error is not None:
            raise batch.error

    def request_slot(self, call_state: ScheduledCall, handover: SlotHandover) -> None:
        """Request a slot for a function that can continue. ConflictError: the session is closed."""
        self._enqueue(partial(self._queue_hold, call_state, handover))

    def lost(self, call_state: ScheduledCall) -> None:
        """Run a call request_slot whose process was lost while it waited."""
        self._todo.put(partial(self._restart, call_state))

    def _enqueue(self, todo: Callable[[], None]) -> None:
        """Run `todo` on the scheduler's thread. ConflictError: the scheduler is closed."""
        with self._closing:
            if self._closed:
                raise _closed()
            self._todo.put(todo)

    def find(self, number: int) -> ScheduledCall | None:
        """Return the call with this number, None once it has ended."""
        return self._pending.get(number)

    # ---------------------------------------------------------------------------------- on the scheduler's thread

    def _work(self) -> None:
        while (todo := self._todo.get()) is not None:
            try:
                todo()
                while self._ready and self._out < AHEAD * self.session.workers:
                    self._ready.pop()()
            except Exception as error:  # noqa: BLE001 - callers must not wait for a thread that has ended
                internal = InternalError(f"{type(error).__name__}: {error}", hint="Please report this.")
                internal.__cause__ = error
                self._fail_all(internal)

    def _begin(self, batch: CallBatch, parent: ScheduledCall | None) -> None:
        if parent is not None and (parent.stopped or parent.ended):
            self._end_batch(batch, RunCancelledError(f"{parent.call.name} was cancelled"))
            return
        if parent is not None:
            parent.children.add(batch)
        fresh: list[ScheduledCall] = []
        for call_state in self._closure(batch.calls, fresh):
            call_state.batches.add(batch)
            batch.left.add(call_state)
        batch.n = len(batch.left)
        for call_state in reversed(fresh):
            if not call_state.missing:
                self._ready.append(partial(self._start, call_state))
        if not batch.left:
            self._end_batch(batch, None)

    def _closure(self, calls: Sequence[RemoteCall], fresh: list[ScheduledCall]) -> Iterable[ScheduledCall]:
        """Return calls and all their dependencies that have no value yet; append the new ones to `fresh`."""
        seen: dict[int, ScheduledCall] = {}
        stack = [call for call in reversed(calls) if not call.done]
        while stack:
            call = stack.pop()
            if call.number in seen:
                continue
            call_state = self._pending.get(call.number)
            if call_state is None:
                call_state = self._pending[call.number] = ScheduledCall(call)
                fresh.append(call_state)
            seen[call.number] = call_state
            stack.extend(one for one in reversed(call.needs()) if isinstance(one, RemoteCall) and not one.done)
        for call_state in fresh:
            for one in call_state.call.needs():
                if isinstance(one, RemoteCall) and not one.done:
                    self._pending[one.number].readers.append(call_state)
                    call_state.missing += 1
        return seen.values()

    def _start(self, call_state: ScheduledCall) -> None:
        """Submit the job of a call."""
        if call_state.ended:
            return
        call = call_state.call
        needs = [one for one in call.needs() if isinstance(one, RemoteCall)]
        try:
            args, kwargs = call.bound({one.number: index for index, one in enumerate(needs)})
            if self._bridge is None:
                body: Any = partial(self._call_here, call_state, args, kwargs)
                params: dict[str, Any] = {}
            else:
                body, params = call_in_worker, self._bridge.params(call, args, kwargs)
            values = [self._kept(one) for one in needs]
        except WeftError as error:
            self._finish(call_state, error)
        else:
            self._submit(call_state, None, body, params, values)

    def _queue_hold(self, call_state: ScheduledCall, handover: SlotHandover) -> None:
        if call_state.stopped or call_state.ended:
            handover.run_without_slot()
            self._finish(call_state, RunCancelledError(f"{call_state.call.name} was cancelled"))
            return
        self._ready.append(partial(self._hold, call_state, handover))

    def _hold(self, call_state: ScheduledCall, handover: SlotHandover) -> None:
        """Submit the job that holds a slot for a function that continues."""
        if call_state.stopped or call_state.ended:
            self._queue_hold(call_state, handover)
        elif self._bridge is None:
            self._submit(call_state, handover, partial(_held_here, handover), {}, [])
        else:
            self._submit(call_state, handover, hold_slot_in_worker, self._bridge.hold_params(handover), [])

    def _submit(
        self,
        call_state: ScheduledCall,
        handover: SlotHandover | None,
        body: Any,
        params: Any,
        values: Sequence[KeptValues],
    ) -> None:
        name = re.sub(r"[^A-Za-z0-9_]+", "_", call_state.call.name).strip("_")[:100] or "call"
        graph = Graph(name, frontend="remote")
        kept: dict[str, KeptValues] = {}
        inputs = []
        for index, value in enumerate(values):
            source = f"given-{index}"
            inputs.append(graph.add(supplied_value, n=1, name=source))
            kept[source] = value
        vertex = graph.task(body, *inputs, name=name, params=params)
        vertex.keep()

        def ended(job: Any, _: Any, commands: Sequence[Any]) -> None:
            if any(type(command) is Complete for command in commands):
                self._todo.put(partial(self._ended, call_state, handover, run_of, vertex))

        run_of: list[Run] = []
        try:
            call_state.run = self._engine.submit(graph, listeners=[ended], given=kept)
        except WeftError as error:
            if handover is not None:
                handover.run_without_slot()
            self._finish(call_state, error)
            return
        run_of.append(call_state.run)
        call_state.submitted = True
        self._out += 1
        if call_state.stopped:
            call_state.run.cancel()

    def _kept(self, call: RemoteCall) -> KeptValues:
        """Return the value of a call in the store of this session."""
        if call.kept is not None and call.kept.of(self._engine.store):
            return call.kept
        return self._engine.put([call.value], 1)

    def _ended(self, call_state: ScheduledCall, handover: SlotHandover | None, run_of: list[Run], vertex: Any) -> None:
        (run,) = run_of
        self._out -= 1
        call_state.submitted = False
        run.wait()
        if call_state.run is run:
            call_state.run = None
        try:
            results = run.result()
            value = results.value(vertex)
            kept = None if isinstance(value, Suspended) else results.keep(vertex)
        except WeftError as error:
            self._failed(call_state, handover, error)
        else:
            if kept is not None and not call_state.ended:
                call_state.call.keep(kept)
                self._finish(call_state, None)
        finally:
            run.forget()

    def _failed(self, call_state: ScheduledCall, handover: SlotHandover | None, error: WeftError) -> None:
        if handover is not None:
            handover.run_without_slot()
        if call_state.ended:
            return
        if handover is not None and handover.lost:
            self._restart(call_state)
        elif isinstance(error, TaskError) and call_state.tries < call_state.call.retries and not call_state.stopped:
            call_state.tries += 1
            self._stop_children(call_state)
            self._ready.append(partial(self._start, call_state))
        else:
            self._finish(call_state, error)

    def _restart(self, call_state: ScheduledCall) -> None:
        """Run a call from its beginning, since its process was lost."""
        if call_state.ended or call_state.submitted:
            return
        call_state.lost += 1
        self._stop_children(call_state)
        if call_state.lost > RETRIES or call_state.stopped:
            self._finish(
                call_state,
                RunCancelledError(f"{call_state.call.name} was lost with its worker process {call_state.lost} times"),
            )
        else:
            self._ready.append(partial(self._start, call_state))

    def _finish(self, call_state: ScheduledCall, error: BaseException | None) -> None:
        """End a call: its readers become ready, or fail with its error."""
        todo = [call_state]
        while todo:
            one = todo.pop()
            if one.ended:
                continue
            one.ended = True
            self._pending.pop(one.call.number, None)
            if error is not None:
                self._stop_children(one)
                todo.extend(one.readers)
            for reader in one.readers:
                reader.missing -= 1
                if error is None and not reader.missing and not reader.ended:
                    self._ready.append(partial(self._start, reader))
            for batch in list(one.batches):
                batch.left.discard(one)
                if error is not None and batch.error is None:
                    batch.error = error
                    self._stop(batch)
                if not batch.left:
                    self._end_batch(batch, batch.error)

    def _end_batch(self, batch: CallBatch, error: BaseException | None) -> None:
        batch.error = error
        batch.over.set()

    def _stop(self, batch: CallBatch) -> None:
        """Stop the calls of a batch that no other batch waits for."""
        if batch.over.is_set():
            return
        if batch.error is None:
            batch.error = RunCancelledError("the computation was cancelled")
        for call_state in list(batch.left):
            call_state.batches.discard(batch)
            if call_state.batches:
                batch.left.discard(call_state)
            else:
                call_state.batches.add(batch)
                self._stop_entry(call_state)
        if not batch.left:
            self._end_batch(batch, batch.error)

    def _stop_entry(self, call_state: ScheduledCall) -> None:
        if call_state.stopped or call_state.ended:
            return
        call_state.stopped = True
        if call_state.submitted and call_state.run is not None:
            call_state.run.cancel()
        children = bool(call_state.children)
        self._stop_children(call_state)
        if not call_state.submitted and not children:
            self._finish(call_state, RunCancelledError(f"{call_state.call.name} was cancelled"))

    def _stop_children(self, call_state: ScheduledCall) -> None:
        children, call_state.children = call_state.children, set()
        for batch in children:
            self._stop(batch)

    def _fail_all(self, error: WeftError) -> None:
        while self._ready:
            self._ready.pop()
        for call_state in list(self._pending.values()):
            call_state.stopped = True
            self._finish(call_state, error)

    # ----------------------------------------------------------------------------------------- in worker threads

    def _call_here(self, call_state: ScheduledCall, args: Any, kwargs: Any, ctx: Any, inputs: Any) -> Any:
        values = [one.all()[0] for one in inputs.values()]

        def work() -> Any:
            here.call_state = call_state
            with using(self.session):
                given_args, given_kwargs = substitute_values((args, kwargs), values)
                return call_state.call.checked(call_state.call.function(*given_args, **given_kwargs))

        return CoroutineThread(work, partial(self.request_slot, call_state)).start()


def _closed() -> ConflictError:
    return ConflictError("the session is closed", hint="Open a new session.")


def _held_here(handover: SlotHandover, ctx: Any, inputs: Any) -> Any:
    return handover.hold()


def _arrays(calls: Sequence[RemoteCall]) -> list[Any]:
    """Return the arrays among the arguments of calls and of all their dependencies."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    stack = list(calls)
    while stack:
        call = stack.pop()
        if call.number in seen or call.done:
            continue
        seen.add(call.number)
        for one in call.needs():
            if isinstance(one, RemoteCall):
                stack.append(one)
            else:
                found[id(one)] = one
    return list(found.values())
