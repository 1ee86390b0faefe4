"""The call scheduler of a session: decides which remote calls are ready, and gives them slots.

A slot belongs to a task of the session's engine (`slots.py`). Calls whose arguments are small use any slot, one after
another; a call with large arguments has a task of its own, which gets them from the store, and so has one with
resources, at each time that it begins or goes on. The latest ready call comes first: a tree of calls is walked in
depth, and few functions wait at once.

`_lock` guards all state, and private methods expect it to be held, unless they say otherwise. It is never held while a
message is sent or the engine is called. The scheduler's own thread calls the engine.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.engine.commands import Complete
from weft.frontends.tensors.arrays.executables import Watch, compute, here
from weft.graph.builder import Graph
from weft.model.errors import (
    ConflictError,
    InputLimitError,
    InternalError,
    RunCancelledError,
    TaskError,
    WeftError,
)
from weft.model.ids import as_name
from weft.model.raised import origin_of
from weft.model.resources import ONE_SLOT_ONLY
from weft.remote.bridge import WorkerBridge, hold_slot_in_worker
from weft.remote.calls import RETRIES, RemoteCall
from weft.remote.requested import CallBatch, CallOutcome, CallPlan, FunctionHost, ScheduledCall, SlotTask, planned
from weft.remote.slots import OWN_FILES, LocalFunctions, failed
from weft.runtime.interruptible import interruptible_wait
from weft.worker.run import described

if TYPE_CHECKING:
    from weft.runtime.kept import KeptValues
    from weft.tensor.sessions import TensorSession

AHEAD: Final = 2
"""Tasks submitted for each worker, so that no worker waits for the scheduler."""
NESTED_MAX: Final = 10
"""The most functions on one thread; each takes about ten frames of the interpreter's recursion limit."""
SLICE_S: Final = 0.1
"""The seconds after which a task gives its slot back for other work of the session, as soon as a function ends."""
LARGE_MAX: Final = 20_000
"""The most large results that one call takes."""
_lock = threading.Lock()


def supplied_value(*_: Any) -> Any:
    """Task body of an input whose value exists before the job."""
    raise AssertionError("a supplied value was computed")


class _Turn(NamedTuple):
    """The next function of a slot, and whether it starts or continues."""

    call_state: ScheduledCall
    fresh: bool


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
        self._now = session.engine.loop.clock.now
        self._bridge = WorkerBridge(self) if session.apart else None
        self._here = LocalFunctions(self)
        self._lock = threading.Lock()
        self._pending: dict[int, ScheduledCall] = {}
        self._light: list[ScheduledCall] = []
        """Ready functions that need a slot, the next one last."""
        self._heavy: list[ScheduledCall] = []
        """Ready calls with large arguments, the next one last."""
        self._claiming: list[ScheduledCall] = []
        """Ready functions that need resources, the next one last."""
        self._slots: dict[int, SlotTask] = {}
        self._numbers = itertools.count(1)
        self._out = 0
        """The tasks that hold a slot or wait for one, but for those with resources."""
        self._claims = 0
        """The tasks that hold resources for a function or wait for them."""
        self._asked = 0
        """Those that wait for one, without a call of their own."""
        self._closed = False
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="weft-call-scheduler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; callers that wait get a ConflictError."""
        with self._lock:
            self._closed = True
            self._fail_all(_closed())
        self._todo.put(None)
        if self._bridge is not None:
            self._bridge.close()

    def _work(self) -> None:
        """Carry out what needs the engine (without the lock)."""
        while (todo := self._todo.get()) is not None:
            try:
                todo()
            except Exception as error:  # noqa: BLE001 - callers must not wait for a thread that has ended
                self._crashed(error)

    def _crashed(self, error: Exception) -> None:
        """Fail all calls by a fault of Weft (without the lock)."""
        internal = InternalError(f"{type(error).__name__}: {error}", hint="Please report this.")
        internal.__cause__ = error
        with self._lock:
            self._fail_all(internal)

    # ------------------------------------------------------------------------------------------- requests of callers

    def run(self, calls: Sequence[RemoteCall], watch: Watch) -> None:
        """Run calls and wait for them. TaskError, RunFailedError, RunCancelledError: the first failure."""
        self._engine.check_open()
        plan = planned(calls)
        compute(plan.arrays, self.session, watch)
        parent: ScheduledCall | None = getattr(here, "call_state", None)
        batch = CallBatch(calls, parent)
        watch.began(partial(self.stop, batch), batch.share)
        if parent is not None:
            if self.suspend(parent, batch, plan):
                self._here.wait(parent)
        else:
            with self._lock:
                self._begin(batch, plan)
                self._want_slots()
            try:
                interruptible_wait(batch.over.wait)
            except KeyboardInterrupt:
                self.stop(batch)
                interruptible_wait(batch.over.wait)
                raise
        if batch.error is not None:
            raise batch.error

    def stop(self, batch: CallBatch) -> None:
        """Stop the calls of a batch that no other batch waits for."""
        with self._lock:
            self._stop(batch)
            self._want_slots()

    def spawned(self, call_state: ScheduledCall, calls: Sequence[RemoteCall]) -> None:
        """See `FunctionScheduler.spawned`."""
        batch = CallBatch(calls, call_state)
        try:
            plan = planned(calls)
        except WeftError as error:
            batch.error = error
            plan = CallPlan({}, [])
        if plan.arrays:
            self.suspend(call_state)
            threading.Thread(target=self._compute, args=(call_state, batch, plan), daemon=True).start()
            return
        if not self.suspend(call_state, batch, plan) and call_state.host is not None:
            call_state.host.resume(call_state)

    def _compute(self, call_state: ScheduledCall, batch: CallBatch, plan: CallPlan) -> None:
        """Compute the arrays that a batch needs, then begin it (without the lock)."""
        try:
            compute(plan.arrays, self.session, Watch())
        except Exception as error:  # noqa: BLE001 - sent to the function that waits
            batch.error = error
            plan = CallPlan({}, [])
        with self._lock:
            call_state.batch = batch
            self._begin(batch, plan)
            self._want_slots()

    # -------------------------------------------------------------------------------------------- news of functions

    def arrived(self, slot: SlotTask, host: FunctionHost) -> None:
        """See `FunctionScheduler.arrived`."""
        with self._lock:
            if slot.host is not None:
                self._bind(slot)
            elif slot.first is None:
                self._asked -= 1
            slot.host, slot.began = host, self._now()
            first = slot.first
            ready = first is not None and first.due and not first.ended
            turn = self._take(slot, first) if first is not None and ready else self._next_for(slot)
        self._dispatch(slot, turn)

    def ended(
        self, call_state: ScheduledCall, outcome: CallOutcome, *, own_thread: bool = False
    ) -> ScheduledCall | None:
        """See `FunctionScheduler.ended`."""
        try:
            with self._lock:
                slot, call_state.slot = call_state.slot, None
                self._leave(call_state)
                if not call_state.ended:
                    self._settle(call_state, outcome)
                turn = self._next_for(slot)
            if own_thread and turn is not None and turn.fresh and turn.call_state.inside is None:
                return turn.call_state
            self._dispatch(slot, turn)
        except Exception as error:  # noqa: BLE001 - callers must not wait for a thread that has ended
            self._crashed(error)
        return None

    def suspend(self, call_state: ScheduledCall, batch: CallBatch | None = None, plan: CallPlan | None = None) -> bool:
        """Begin the batch that a function waits for, if it waits for one, and pass its slot on; return False if the
        batch is over at once.
        """
        with self._lock:
            call_state.batch = batch
            call_state.inbox = call_state.inbox or queue.SimpleQueue()
            if batch is not None and plan is not None:
                self._begin(batch, plan)
                if batch.over.is_set():
                    self._want_slots()
                    return False
            call_state.waits = True
            slot, call_state.slot = call_state.slot, None
            turn = self._next_for(slot)
        self._dispatch(slot, turn)
        return True

    def proceed(self, call_state: ScheduledCall) -> None:
        """See `FunctionScheduler.proceed`."""
        with self._lock:
            self._resume(call_state)
            self._want_slots()
        self._here.wait(call_state)

    def returns(self, call_state: ScheduledCall, host: FunctionHost) -> SlotTask | None:
        """See `FunctionScheduler.returns`."""
        with self._lock:
            slot = call_state.slot
            if slot is None or slot.host is not host or slot.ended or call_state.ended:
                return None
            slot.returns = call_state
            self._end_slot(slot)
            return slot

    def lost(self, host: FunctionHost, call_states: Sequence[ScheduledCall]) -> None:
        """See `FunctionScheduler.lost`."""
        turns = []
        with self._lock:
            there = [one for one in reversed(call_states) if one.host is host]  # callers after what they wait for
            killed = any(one.stopped for one in there)
            waiting = {one for one in there if one.waits}
            for call_state in waiting:
                call_state.waits = False
            self._light = [one for one in self._light if one not in waiting]
            self._claiming = [one for one in self._claiming if one not in waiting]
            for slot in self._slots.values():
                if slot.host is host:
                    self._bind(slot)
            for call_state in there:
                if call_state.host is host:
                    slot_elsewhere, call_state.slot = call_state.slot, None
                    self._leave(call_state)
                    batch = call_state.batch
                    if killed and call_state in waiting and batch is not None and batch.error is not None:
                        self._failed(call_state, _raised_in(call_state, batch.error))
                    else:
                        self._restart(call_state, killed=killed)
                    turns.append((slot_elsewhere, self._next_for(slot_elsewhere)))
            self._want_slots()
        for one, turn in turns:
            self._dispatch(one, turn)

    def _bind(self, slot: SlotTask) -> None:
        """Leave the running function of a lost process to the task that held its slot there.

        The engine runs the task again, or gives it up with the reason.
        """
        call_state, slot.user = slot.user, None
        if call_state is None:
            return
        call_state.slot = None
        if call_state.host is slot.host:
            self._leave(call_state)
            if call_state.stopped:  # its task was cancelled, and does not run again
                self._finish(call_state, _cancelled(call_state))
                return
            self._stop_children(call_state)
            call_state.reset()
            call_state.due = True
            slot.first = call_state

    def slot(self, number: int) -> SlotTask | None:
        """See `FunctionScheduler.slot`."""
        return self._slots.get(number)

    def keep(self, value: Any) -> KeptValues:
        """See `FunctionScheduler.keep`."""
        return self._engine.put([value], 1, copy=False)

    # ------------------------------------------------------------------------------------------------------- slots

    def _want_slots(self) -> None:
        """Ask the engine for as many slots as there are functions for them."""
        workers = self.session.workers
        while self._claiming and self._claims < AHEAD * workers:
            first = self._claiming.pop()
            if not first.ended:
                self._ask(first)
        while self._heavy and self._out < AHEAD * workers:
            first = self._heavy.pop()
            if not first.ended:
                self._ask(first)
        while self._asked < len(self._light) and self._out < workers:
            self._asked += 1
            self._ask(None)

    def _ask(self, first: ScheduledCall | None) -> None:
        slot = SlotTask(next(self._numbers), first)
        self._count(slot, 1)
        self._slots[slot.number] = slot
        self._todo.put(partial(self._submit, slot))

    def _take(self, slot: SlotTask, call_state: ScheduledCall) -> _Turn:
        fresh = not call_state.begun
        call_state.due = False
        slot.user = slot.last = call_state
        call_state.slot = slot
        if fresh:
            call_state.begun, call_state.host = True, slot.host
            self._enter(call_state)
        return _Turn(call_state, fresh)

    def _enter(self, call_state: ScheduledCall) -> None:
        """Choose the thread for a function: that of one that waits for it, if possible, else a new one."""
        call_state.level = 0
        for batch in call_state.batches:
            parent = batch.parent
            if (
                parent is not None
                and parent.host is call_state.host
                and parent.waits
                and parent.batch is batch
                and parent.nested is None
                and parent.level < NESTED_MAX
            ):
                call_state.inside, parent.nested = parent, call_state
                call_state.level = parent.level + 1
                return

    def _leave(self, call_state: ScheduledCall) -> None:
        """Take note that a function has left its thread."""
        inside, call_state.inside = call_state.inside, None
        if inside is not None:
            inside.nested = None

    def _next_for(self, slot: SlotTask | None) -> _Turn | None:
        """Give a slot to the next function, or end it."""
        if slot is None or slot.ended:
            self._want_slots()
            return None
        slot.user = None
        if not slot.closing and self._now() - slot.began < SLICE_S and not self._closed:
            while self._light:
                call_state = self._light.pop()
                if not call_state.ended:
                    turn = self._take(slot, call_state)
                    self._want_slots()
                    return turn
        self._end_slot(slot)
        return None

    def _end_slot(self, slot: SlotTask) -> None:
        slot.ended = True
        self._count(slot, -1)
        self._want_slots()

    def _count(self, slot: SlotTask, change: int) -> None:
        if slot.claims:
            self._claims += change
        else:
            self._out += change

    def _dispatch(self, slot: SlotTask | None, turn: _Turn | None) -> None:
        """Start or resume the function that has a slot, or end the slot's task (without the lock)."""
        while slot is not None:
            if turn is None:
                if slot.host is not None:
                    slot.host.free(slot)
                return
            call_state, fresh = turn
            assert call_state.host is not None
            try:
                (call_state.host.start if fresh else call_state.host.resume)(call_state)
                return
            except WeftError as error:
                with self._lock:
                    call_state.slot = None
                    self._failed(call_state, error)
                    turn = self._next_for(slot)

    def _submit(self, slot: SlotTask) -> None:
        """Submit the task of a slot (without the lock)."""
        first = slot.first
        name = "spawn" if first is None else as_name(first.call.name)
        graph = Graph(name, frontend="remote")
        kept: dict[str, KeptValues] = {}

        def ended(job: Any, _: Any, commands: Sequence[Any]) -> None:
            if any(type(command) is Complete for command in commands):
                self._todo.put(partial(self._run_ended, slot))

        try:
            inputs = []
            for source, value in enumerate([] if first is None or first.begun else self._large_values(first)):
                inputs.append(graph.add(supplied_value, n=1, name=f"given-{source}"))
                kept[f"given-{source}"] = value
            resources = (first.call.resources if first is not None else ()) or ONE_SLOT_ONLY
            if self._bridge is None:
                vertex = graph.task(partial(self._here.hold, slot), *inputs, name=name, resources=resources)
            else:
                params = self._bridge.params(slot)
                vertex = graph.task(hold_slot_in_worker, *inputs, name=name, params=params, resources=resources)
            vertex.keep()
            slot.vertex = vertex.id
            slot.run = self._engine.submit(graph, listeners=[ended], given=kept)
        except WeftError as error:
            self._run_failed(slot, error)

    def _large_values(self, call_state: ScheduledCall) -> list[KeptValues]:
        """Return the large arguments of a call in the store of this session (without the lock). InputLimitError: there
        are too many.
        """
        if len(call_state.large) > LARGE_MAX:
            raise InputLimitError(
                f"{call_state.call.name} takes {len(call_state.large):,} results of 1 KB and more; at most "
                f"{LARGE_MAX:,} are allowed",
                hint="Join them in steps: each of some calls takes a part, and another call takes their results.",
            )
        needs = {one.number: one for one in call_state.needs}
        found = [needs[number].kept for number in call_state.large]
        return [kept for kept in found if kept is not None]

    def _run_ended(self, slot: SlotTask) -> None:
        """Take note of the end of a task that held a slot (without the lock)."""
        run, slot.run = slot.run, None
        if run is None:
            return
        run.wait()
        try:
            error = run.error()
            call_state = slot.returns
            if error is not None:
                self._run_failed(slot, error)
            elif call_state is not None:
                kept = run.results().keep(slot.vertex)
                with self._lock:
                    self._settle(call_state, CallOutcome(kept=kept))
                    self._want_slots()
        finally:
            run.forget()
        with self._lock:
            self._slots.pop(slot.number, None)

    def _run_failed(self, slot: SlotTask, error: WeftError) -> None:
        """Fail the call for which a task held a slot, or run it again (without the lock)."""
        task, _, reason = error.message.partition(": ")
        with self._lock:
            self._slots.pop(slot.number, None)
            if not slot.ended:
                if slot.host is None and slot.first is None:
                    self._asked -= 1
                self._end_slot(slot)
                found = [slot.user, slot.first, slot.last, *reversed(self._light)]
            else:
                found = [slot.returns]
            call_state = next((one for one in found if one is not None and not one.ended), None)
            if call_state is not None and (slot.returns is not None or not isinstance(error, RunCancelledError)):
                call_state.slot = None
                if slot.vertex and f"{slot.vertex}[0]" in task:
                    error.message = f"{call_state.call.name} failed: {reason}"
                self._failed(call_state, error)
                if call_state.waits:
                    self._resume(call_state)
            elif slot.user is not None and not slot.user.ended:
                self._finish(slot.user, _cancelled(slot.user))
            self._want_slots()

    def _cancel(self, slot: SlotTask) -> None:
        """Cancel the task of a slot, which ends with the running function or after the grace period (without the
        lock).
        """
        if slot.run is not None:
            slot.run.cancel()

    # ------------------------------------------------------------------------------------------------------- calls

    def _begin(self, batch: CallBatch, plan: CallPlan) -> None:
        parent = batch.parent
        if self._closed:
            batch.error = _closed()
        elif parent is not None and (parent.stopped or parent.ended):
            batch.error = _cancelled(parent)
        if batch.error is not None:
            self._end_batch(batch)
            return
        fresh: list[ScheduledCall] = []
        only = (batch,)
        for call, needs in plan.calls.items():
            call_state = self._pending.get(call.number)
            if call_state is None:
                if call.done:
                    continue
                call_state = self._pending[call.number] = ScheduledCall(call, needs)
                fresh.append(call_state)
            call_state.batches = (*call_state.batches, batch) if call_state.batches else only
            batch.left.add(call_state)
        batch.n = len(batch.left)
        if parent is not None:
            parent.children |= {batch}
        for call_state in fresh:
            alone = (call_state,)
            for one in call_state.needs:
                if not one.done:
                    self._pending[one.number].read_by(alone)
                    call_state.missing += 1
        for call_state in reversed(fresh):
            if not call_state.missing:
                self._queue(call_state)
        if not batch.left:
            self._end_batch(batch)

    def _queue(self, call_state: ScheduledCall) -> None:
        """Make a function ready."""
        call_state.due = True
        if not call_state.begun and call_state.needs:
            store = self._engine.store
            large = [one.number for one in call_state.needs if one.kept is not None and one.kept.of(store)]
            call_state.large = {number: position for position, number in enumerate(large)}
        if call_state.call.resources:
            self._claiming.append(call_state)
        elif call_state.large and not call_state.begun:
            self._heavy.append(call_state)
        else:
            self._light.append(call_state)

    def _resume(self, call_state: ScheduledCall) -> None:
        """Make a function that waits ready; a call that has ended otherwise goes on without a slot."""
        if call_state.ended or self._closed:
            if call_state.host is not None:
                self._todo.put(partial(call_state.host.resume, call_state))
        else:
            self._queue(call_state)

    def _settle(self, call_state: ScheduledCall, outcome: CallOutcome) -> None:
        """Take the end of a function."""
        if outcome.error is not None:
            self._failed(call_state, outcome.error)
        elif call_state.stopped:
            self._finish(call_state, _cancelled(call_state))
        else:
            if outcome.kept is not None:
                call_state.call.keep(outcome.kept)
            else:
                call_state.call.settle(outcome.value)
            self._finish(call_state, None)

    def _failed(self, call_state: ScheduledCall, error: WeftError) -> None:
        if call_state.ended:
            return
        if call_state.stopped:
            error = _cancelled(call_state)
        if isinstance(error, TaskError) and call_state.tries < call_state.call.retries:
            call_state.tries += 1
            self._again(call_state)
        else:
            self._finish(call_state, error)

    def _restart(self, call_state: ScheduledCall, *, killed: bool) -> None:
        """Run a call from its beginning, since its process was lost, or was killed because of another call."""
        if call_state.ended:
            return
        call_state.lost += not killed
        if call_state.stopped:
            self._finish(call_state, _cancelled(call_state))
        elif call_state.lost > RETRIES:
            name = call_state.call.name
            self._finish(
                call_state, RunCancelledError(f"{name} was lost with its worker process {call_state.lost} times")
            )
        else:
            self._again(call_state)

    def _again(self, call_state: ScheduledCall) -> None:
        self._stop_children(call_state)
        call_state.reset()
        self._queue(call_state)

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
                    self._queue(reader)
            one.readers = ()
            for batch in one.batches:
                batch.left.discard(one)
                if error is not None and batch.error is None:
                    batch.error = error
                    self._stop(batch)
                if not batch.left:
                    self._end_batch(batch)

    def _end_batch(self, batch: CallBatch) -> None:
        if batch.over.is_set():
            return
        batch.over.set()
        parent = batch.parent
        if parent is not None:
            parent.children -= {batch}
            if parent.waits and parent.batch is batch:
                self._resume(parent)

    def _stop(self, batch: CallBatch) -> None:
        if batch.over.is_set():
            return
        if batch.error is None:
            batch.error = RunCancelledError("the computation was cancelled")
        for call_state in list(batch.left):
            if len(call_state.batches) > 1:
                call_state.batches = tuple([one for one in call_state.batches if one is not batch])
                batch.left.discard(call_state)
            else:
                self._stop_call(call_state)
        if not batch.left:
            self._end_batch(batch)

    def _stop_call(self, call_state: ScheduledCall) -> None:
        """Stop a call: one that has begun ends with its function or its task."""
        if call_state.stopped or call_state.ended:
            return
        call_state.stopped = True
        slot = call_state.slot
        if slot is not None:
            slot.closing = True
            self._todo.put(partial(self._cancel, slot))
        children = bool(call_state.children)
        self._stop_children(call_state)
        if slot is None and not children:
            self._finish(call_state, _cancelled(call_state))

    def _stop_children(self, call_state: ScheduledCall) -> None:
        children, call_state.children = call_state.children, frozenset()
        for batch in children:
            self._stop(batch)

    def _fail_all(self, error: WeftError) -> None:
        self._light.clear()
        self._heavy.clear()
        self._claiming.clear()
        for call_state in list(self._pending.values()):
            call_state.stopped = True
            self._finish(call_state, error)


def _closed() -> ConflictError:
    return ConflictError("the session is closed", hint="Open a new session.")


def _raised_in(call_state: ScheduledCall, error: BaseException) -> WeftError:
    """Return the error of a function that cannot catch the error of its calls any more."""
    outcome = failed(call_state.call.name, described(error, OWN_FILES), origin_of(error))
    assert outcome.error is not None
    return outcome.error


def _cancelled(call_state: ScheduledCall) -> RunCancelledError:
    return RunCancelledError(f"{call_state.call.name} was cancelled")
