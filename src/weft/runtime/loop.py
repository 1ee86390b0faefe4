"""The loop: drain events, call the master, carry out its commands. Each session has one, for all jobs and any backend.

Three drivers share it, and `Master.handle` depends on none of them: *combining* (threads: the thread with a report
tries the lock and drains all queues), *poll* (processes, Ray: one thread reads the pipes), *heap* (the simulator: the
next event in time). Nothing blocks under the lock: the backends' methods return at once, and results of slow work come
back as events.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from weft.engine.commands import (
    DURABLE_FIRST,
    Acquire,
    Command,
    Complete,
    Free,
    FreeParts,
    Launch,
    LaunchEach,
    MarkEnded,
    Probe,
    Publish,
    Release,
    Reply,
    Restart,
    SetTimer,
    Shrink,
    Stop,
    Weigh,
    Withdraw,
    single_launches,
)
from weft.engine.events import (
    CancelRequested,
    ClockSet,
    Done,
    Event,
    Failed,
    FinishRequested,
    IdleTick,
    JobSubmitted,
    Miss,
    Offered,
    OutputLost,
    Requested,
    TaskCancelRequested,
    WorkerLost,
    ends_tasks,
    single_reports,
)
from weft.engine.rows import FINISHED
from weft.model.errors import CapacityError, UsageError
from weft.model.failures import Failure, kind_of
from weft.model.ranges import runs
from weft.runtime.allocation import Allocation
from weft.runtime.estimates import Estimates
from weft.runtime.job import NOTHING, Held, JobRun, waits_for_workers
from weft.runtime.pool import AVOID_S, KEEP_BACK_S
from weft.runtime.turns import Turns

if TYPE_CHECKING:
    from weft.engine.ports import Clock, Executor, WhenDurable, WorkerSpec
    from weft.engine.provider import NodeSpec
    from weft.engine.replay import Pending
    from weft.engine.waiting import Wait
    from weft.graph.spec import Wants


class TickBarrier:
    """The `CommitBarrier` of one tick; it opens once, when the record of the tick is durable or cannot be written."""

    def __init__(self) -> None:
        self._shut = threading.Lock()
        self._shut.acquire()
        self.is_open = False

    def open(self, *, passable: bool) -> None:
        """End all waits; unless `passable` the waiters stop."""
        self.is_open = passable
        self._shut.release()

    def wait(self) -> bool:
        """Wait for `open`. Return whether the waiter may continue."""
        with self._shut:
            return self.is_open


class _Durable(Struct, frozen=True):
    """The record of a tick is durable: its delayed commands may be carried out."""

    commands: list[Command]


_STARTS = frozenset({Launch, LaunchEach, Probe, Acquire})
"""Commands that start work; a suspended job drops them."""
NO_TIMER = -1
"""A timer without a meaning for the master: it only makes a tick."""


def _never_started(starts: Sequence[Command], now: float, reason: str) -> Iterator[Event]:
    """Yield the events that answer commands which nobody has carried out, after a cancel."""
    for command in single_launches([*starts]):
        if isinstance(command, Launch):
            yield Failed(now, command.lease, command.lo, command.vertex, command.lo, Failure.STOPPED, reason)
        elif isinstance(command, Probe):
            yield Miss(now, command.vertex, command.index)


def _listener_error(listener: object, error: Exception) -> UsageError:
    found = UsageError(
        f"the listener {getattr(listener, '__qualname__', type(listener).__name__)} raised "
        f"{type(error).__name__}: {error}",
        hint="Catch its exceptions: the loop of the session calls it.",
    )
    found.__cause__ = error
    return found


class Loop:
    """Events in, commands out, for all jobs of a session."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self.executor = executor
        self.clock = clock
        self.slots = Allocation(executor.provider, clock)
        self.pool = self.slots.pool
        self.jobs: dict[str, JobRun] = {}
        self._queue: deque[tuple[str, tuple[Event, ...]]] = deque()
        self._lock = threading.Lock()
        self._do: dict[type[Any], Callable[[JobRun, Any], None]] = {
            Free: lambda job, c: executor.free(job, c.vertex, c.lo, c.hi),
            FreeParts: lambda job, c: executor.free_parts(job, c.vertex, c.parts),
            Complete: self._complete,
            Acquire: self._acquire,
            Withdraw: self._withdraw,
            Release: self._release,
            SetTimer: lambda job, c: executor.set_timer(job, c.at, c.timer),
            Shrink: lambda job, c: executor.shrink(job, c.lease),
            Weigh: executor.weigh,
            Stop: lambda job, c: executor.stop(job, c.lease, c.reason),
            Publish: executor.publish,
            Restart: executor.restart,
            MarkEnded: executor.mark_ended,
            Probe: self._probe,
            Reply: executor.reply,
        }
        self._first = self._first_events  # one bound method for all jobs
        self._turns = Turns()  # only while there are several jobs
        self._alone = True
        self._submitted = 0
        self._estimates = Estimates()
        self._again: list[tuple[JobRun, Event]] = []
        self._released = False
        executor.attach(self)

    # ------------------------------------------------------------------------------------------------ jobs

    def submit(
        self, job: JobRun, pending: Pending | None = None, gone: Mapping[str, Iterable[int]] | None = None
    ) -> None:
        """Add a job. It begins at once, or continues with the `pending` commands of a replay.

        `gone` are finished tasks, by vertex, whose outputs are lost.
        """
        now = self.clock.now()
        may_wait = bool(self.jobs) and not job.built and waits_for_workers(job)
        if not may_wait:
            job.master  # noqa: B018 - a wrong policy is an error of the submission
        self.executor.open_job(job)
        if pending is not None and job.outputs is not None:
            for row in job.inspector.vertices:
                for lo, hi in runs(i for i in range(max(row.n, 0)) if row.state[i] == FINISHED):
                    self.executor.restore(job, row.id, lo, hi)
        with self._lock:
            self.jobs[job.id] = job
            self._submitted += 1
            job.number = self._submitted
            self.slots.join(job.id, job.shared)
            if job.priority:
                self.pool.priorities[job.id] = job.priority
            if may_wait and len(self.jobs) > 1 and not self.pool.idle and not self.slots.grows:
                self._wait_for_turn(job, now)
            else:
                self._begin(job, now, pending, gone or {})
        self.drain()  # of the reports too that came meanwhile: their threads do not wait for the lock

    def _begin(self, job: JobRun, now: float, pending: Pending | None, gone: Mapping[str, Iterable[int]]) -> None:
        """Queue the first events of a job, and carry out its pending commands."""
        if job.shared is not None:
            job.shared.begin(self, job)
        if job.graph.controller is not None:
            self._queue.append((job.id, (ClockSet(now, self.clock.wall()),)))
        if pending is not None:
            self._queue.append((job.id, tuple(job.inspector.losses(now))))
            for vertex, indices in gone.items():
                for lo, hi in runs(indices):
                    self._queue.append((job.id, (OutputLost(now, vertex, lo, hi, "its file is gone"),)))
        self._queue.append((job.id, tuple(self.slots.joined())))
        asked = [Requested(now, name, payload) for name, payload in job.requests]
        if pending is None:
            known = self._estimates.of(job.graph.vertices)
            self._queue.append((job.id, (JobSubmitted(now, tuple(job.given), known), *asked)))
            return
        self._queue.append((job.id, tuple(asked)))
        for command in pending.commands:
            if type(command) is SetTimer:
                command = SetTimer(now + max(0.0, command.at - pending.now), command.timer)
            self._do[type(command)](job, command)

    def _wait_for_turn(self, job: JobRun, now: float) -> None:
        """Put a job behind those that wait for workers, without a master."""
        job.submitted_at = now
        job.first = self._first
        if not self._alone:
            self._rank(job)

    def _first_events(self, job: JobRun) -> list[Event]:
        known = self._estimates.of(job.graph.vertices)
        return [*self.slots.joined(), JobSubmitted(job.submitted_at, (), known)]

    def cancel(self, job: JobRun, reason: str, *, force: bool = False) -> None:
        """Request the cancellation of a job; with `force` its final vertices do not run either."""
        self.post(job.id, CancelRequested(self.clock.now(), reason, force))

    def cancel_for_user(self, job: JobRun, reason: str, *, force: bool = False) -> None:
        """Cancel a job as `cancel` does; one that is being suspended is cancelled instead.

        What its master has ordered since the suspension has never started, and counts as stopped.
        """
        with self._lock:
            now = self.clock.now()
            events: list[Event] = [CancelRequested(now, reason, force)]
            if job.outcome is None and job.draining:
                events += _never_started(job.dropped, now, reason)
                job.draining, job.dropped = False, ()
                if not self._alone:
                    self._rank(job)
            self._queue.append((job.id, tuple(events)))
        self.drain()

    def cancel_tasks(self, job: JobRun, vertex: str, lo: int, hi: int, reason: str) -> None:
        """Request the cancellation of tasks `lo:hi` of a vertex."""
        self.post(job.id, TaskCancelRequested(self.clock.now(), vertex, lo, hi, reason))

    def finish(self, job: JobRun, vertex: str, reason: str) -> None:
        """Request the early end of a vertex, or with "" of a job, as a success."""
        self.post(job.id, FinishRequested(self.clock.now(), vertex, reason))

    def set_priority(self, job: JobRun, priority: int) -> None:
        """Let a job have workers before or after others from now on."""
        with self._lock:
            job.priority = priority
            if job.id in self.jobs:
                self.pool.priorities[job.id] = priority
                if not self._alone:
                    self._rank(job)
        self.drain()

    def request(self, job: JobRun, name: str, payload: Any) -> None:
        """Request something of the controller of a job. UsageError: the job has none."""
        if job.graph.controller is None:
            raise UsageError(
                f"{job.graph.name} has no controller that could take the request {name!r}",
                hint="Only runs with a controller take requests.",
            )
        self.post(job.id, Requested(self.clock.now(), name, payload))

    def suspend(self, job: JobRun, *, drain: bool) -> None:
        """Start no more work of a job and end it: with its last lease, or without `drain` now, its leases stopped.

        Its journal ends before that end, so that a recovery of the job continues from there.
        """
        with self._lock:
            if job.outcome is None:
                job.draining = True
                if not (drain and job.leases):
                    self._end_suspended(job)
        self.drain()

    def _end_suspended(self, job: JobRun) -> None:
        self._fail(job, Complete("cancelled", "", "suspended"))
        job.end()

    def waits(self, job: JobRun, subject: str) -> tuple[Wait, ...]:
        """Return why tasks of a vertex, a task or (with "") a job have not started: see `engine.waiting.waits`."""
        with self._lock:
            found = job.inspector.waits(subject, self.clock.now())
            if job.draining:
                found = tuple(replace(each, text=f"{each.text}; the run is being suspended") for each in found)
            elif job.outcome is None:
                found = self.slots.explained(job.id, job.graph.name, found)
        self.drain()  # of events that came meanwhile
        return found

    def refusal(self, job: Any, wants: Wants) -> str:
        """See `Shell.refusal`."""
        with self._lock:
            found = self.slots.refusal(job.id, wants)
        self.drain()  # of events that came meanwhile
        return found

    def between_ticks(self, action: Callable[[], None]) -> None:
        """Call an action while no tick runs; it must return at once, and call nothing that waits."""
        with self._lock:
            action()
        self.drain()  # of events that came meanwhile

    # ---------------------------------------------------------------------------------------------- events

    def post(self, job: str, event: Event) -> None:
        """Queue an event and process the queue, on this thread or on the one that drains already."""
        self._queue.append((job, (event,)))
        self.drain()

    def post_later(self, job: str, *events: Event) -> None:
        """Queue an event without processing it; a `drain` follows."""
        self._queue.append((job, events))

    def drain(self, going_on: Callable[[], None] | None = None) -> None:
        """Process the queue, unless another thread drains it already; that thread then takes this event too.

        `going_on` is called before each tick but the first.
        """
        while self._queue:
            if not self._lock.acquire(blocking=False):
                return
            try:
                while self._queue:
                    self._tick()
                    if going_on is not None and self._queue:
                        going_on()
            finally:
                self._lock.release()

    def settle(self) -> None:
        """Wait until no thread drains the queue, and the queue is empty."""
        with self._lock:
            pass
        self.drain()  # of what came while this thread had the lock

    def _tick(self) -> None:
        queue = self._queue
        slots = self.slots
        if len(self.jobs) == 1:
            self._alone = True
            name, job = next(iter(self.jobs.items()))
            events: list[Event] = []
            while queue:
                owner, posted = queue.popleft()
                if owner == name or not owner:
                    events += posted
                elif slots.orphans:
                    for event in posted:
                        self._end_orphan(owner, event)
            self._step(job, events)
            while self._again or self._released:
                again, self._again = self._again, []
                self._released = False
                self._step(job, [event for _, event in again])
        else:
            if self._alone:
                self._alone = False
                self._turns.clear()
                for job in self.jobs.values():
                    self._rank(job)
            by_job: dict[str, list[Event]] = {}
            while queue:
                owner, posted = queue.popleft()
                for event in posted if slots.orphans else ():
                    self._end_orphan(owner, event)
                for name in (owner,) if owner else [name for name, job in self.jobs.items() if job.built]:
                    by_job.setdefault(name, []).extend(posted)
            for name, events in by_job.items():
                found = self.jobs.get(name)
                if found is not None:
                    self._turn(found, events)
            self._share()
            while self._again or self._released:
                again, self._again = self._again, []
                self._released = False
                for found, event in again:
                    self._turn(found, [event])
                self._share()
        pool = self.pool
        if pool.left or pool.empty or pool.returned:
            lost = slots.release_to_provider()
            if lost:
                queue.append(("", tuple(lost)))
        if slots.grows and not pool.idle:
            alone = self._alone
            slots.ask_for_any(
                [job.id for job in self.jobs.values() if job.master.wants_workers] if alone else self._turns
            )

    def _end_orphan(self, owner: str, event: Event) -> None:
        """Handle a lease that ended after its job."""
        self.slots.end_orphan(owner, event)

    def _step(self, job: JobRun, events: list[Event], *, offers: bool = True) -> None:
        """Run one tick of one job: free the slots of ended leases, call the master, take the slots of launched
        leases.
        """
        if job.outcome is not None:
            return
        if job.journal is not None and self._carry_out_durable(job, events):
            return
        begins = job.first is not None
        if begins and job.built:
            events[:0] = self.slots.joined()  # those of the time of the first question may be outdated
        if job.journal is not None:
            events = single_reports(events)
        self.slots.end(job.leases, events)
        if offers and not job.draining:
            now = self.clock.now()
            idle = self.pool.offer(now)
            if idle:
                events.append(Offered(now, idle))
        try:
            before, first = job.begin() if begins else ((), ())
            ahead = commands = job.master.handle(events)
            if before:
                events, ahead = [*before, *events], [*first, *commands]
                commands = ahead
            if job.journal is not None:
                ahead = commands = single_launches(commands)
                when_durable = job.journal.append(events, commands)
                if when_durable is not None:
                    ahead = self._hold_back(job, events, commands, when_durable)
        except Exception as error:  # noqa: BLE001
            self._crashed(job, error)
            return
        if job.draining:
            job.dropped = [*job.dropped, *(command for command in ahead if type(command) in _STARTS)]
            ahead, commands = (
                [command for command in some if type(command) not in _STARTS] for some in (ahead, commands)
            )
        try:
            self._carry_out(job, ahead)
        except CapacityError as error:  # of the system: no thread is left
            self._crashed(job, error)
            return
        if job.listeners:
            events, commands = single_reports(events), single_launches(commands)
        for listener in job.listeners:
            try:
                listener(job, events, commands)
            except Exception as error:  # noqa: BLE001
                wrong = _listener_error(listener, error)
                if job.outcome is None:
                    self._crashed(job, wrong)
                    return
                warnings.warn(wrong.message, RuntimeWarning, stacklevel=1)  # the job has ended
        if job.draining and not job.leases and job.outcome is None:
            self._end_suspended(job)
        if job.outcome is not None:
            job.end()
        if self.pool.waiting:
            self._serve()

    def _carry_out(self, job: JobRun, commands: Sequence[Command]) -> None:
        """Carry out the commands of the master on the backend, the pool and the session."""
        launches = [command for command in commands if isinstance(command, Launch | LaunchEach)]
        if launches:
            self.slots.begin(job.id, job.leases, launches)
        do = self._do
        launch: Callable[[JobRun, Launch], None] = self._launch_answered if job.answers else self.executor.launch
        for command in commands:
            if type(command) is Launch:  # by far the most frequent
                launch(job, command)
            elif type(command) is LaunchEach:
                if job.answers:
                    for each in command.each():
                        launch(job, each)
                else:
                    self.executor.launch_each(job, command)
            else:
                do[type(command)](job, command)

    # ---------------------------------------------------------------------------------------------- journal

    def _hold_back(
        self, job: JobRun, events: Sequence[Event], commands: list[Command], when_durable: WhenDurable
    ) -> list[Command]:
        """Return the commands that may precede their record; the others come back as an event of the loop.

        No command overtakes the release of an output: leases and probes that would make the output again wait, and so
        do all later commands. In a strict job the end of a task waits too, except that leases may be prepared behind a
        commit barrier. Stops of launched leases never wait.
        """
        held = job.held = job.held or Held()
        held.ended = held.ended or (job.strict and ends_tasks(events))
        gate: TickBarrier | None = None
        late: list[Command] = []
        ahead: list[Command] = []
        for command in commands:
            if isinstance(command, Launch | Probe) and held.freeing and not held.blocked:
                cone = command.cone if isinstance(command, Launch) else None
                held.blocked = not held.freeing.isdisjoint(
                    (command.vertex, *(cone.members if cone is not None else ()))
                )
            if type(command) is Stop and command.lease not in held.leases:
                ahead.append(command)
                continue
            if held.ended and not held.blocked and type(command) not in DURABLE_FIRST:
                if isinstance(command, Launch) and command.worker < 0 and self.executor.gated and not job.answers:
                    gate = gate or TickBarrier()
                    job.gates = job.gates or {}
                    job.gates[command.lease] = gate
                else:
                    held.blocked = True
            if not held.blocked and type(command) not in DURABLE_FIRST:
                ahead.append(command)
                continue
            late.append(command)
            if isinstance(command, Free | FreeParts):
                held.freeing.add(command.vertex)
            elif isinstance(command, Launch):
                held.leases.add(command.lease)
                job.leases[command.lease] = command
                if command.worker >= 0:
                    self.pool.take((command.worker,), job.id)
        if not late and gate is None:
            return commands
        held.ticks += 1

        def carry_out() -> None:
            failed = job.journal is not None and job.journal.error is not None
            self._queue.append((job.id, (_Durable(late),)))  # type: ignore[arg-type]
            if gate is not None:
                gate.open(passable=not failed)
            if late or failed:  # else it has time until the next event
                self.drain()

        when_durable(carry_out)
        return ahead

    def _carry_out_durable(self, job: JobRun, events: list[Any]) -> bool:
        """Carry out commands whose record is durable. Return whether no delayed commands remain."""
        due = [event for event in events if isinstance(event, _Durable)]
        if not due:
            return False
        events[:] = [event for event in events if not isinstance(event, _Durable)]
        if job.strict and job.journal is not None and job.journal.error is not None:
            self._fail(job, Complete("failed", "", str(job.journal.error), kind=Failure.JOURNAL.value))
            due = []
        for late in due:
            assert job.held is not None
            job.held.ticks -= 1
            for command in late.commands:
                if not isinstance(command, Launch):
                    self._do[type(command)](job, command)
                elif command.lease in job.leases:
                    (self._launch_answered if job.answers else self.executor.launch)(job, command)
        if job.held is not None and not job.held.ticks:
            job.held = None
        if job.outcome is not None:
            for event in events:
                self._end_orphan(job.id, event)
            job.end()
        return job.outcome is not None or not events

    def _turn(self, job: JobRun, events: list[Event]) -> None:
        """Run one tick of one of several jobs."""
        self._step(job, events, offers=False)
        self._rank(job)

    def _rank(self, job: JobRun) -> None:
        """Give a job its place among the jobs that wait for workers."""
        if job.outcome is None and not job.draining and (job.first is not None or job.master.wants_workers):
            self._turns.put(job.id, job.number, self.pool.held.get(job.id, 0), job.priority)
        else:
            self._turns.discard(job.id)

    def _share(self) -> None:
        """Offer idle workers one by one to the job with plain work that holds the fewest."""
        unserved: list[JobRun] = []
        while self.pool.offer(self.clock.now()):
            name = self._turns.first()
            if name is None:
                break
            job = self.jobs.get(name)
            if job is None or job.draining or not self._takes_one(job):
                self._turns.discard(name)
                if job is not None:
                    unserved.append(job)
        for job in unserved:
            self._rank(job)

    def _takes_one(self, job: JobRun) -> bool:
        """Offer a job idle workers, one after another. Return whether it took one."""
        if job.first is not None:
            self._turn(job, [])
            if job.outcome is not None or not job.master.wants_workers:
                return False
        before = self.pool.idle
        for worker in job.master.choice(self.pool.offer(self.clock.now())):
            self._turn(job, [Offered(self.clock.now(), [worker])])
            if self.pool.idle < before:
                return True
            if job.outcome is not None or not job.master.wants_workers:
                break
        return False

    # ---------------------------------------------------------------------------------------------- commands

    def _acquire(self, job: JobRun, acquire: Acquire) -> None:
        refused = self.slots.acquire(job.id, acquire)
        now = self.clock.now()
        self.executor.set_timer(job, now + KEEP_BACK_S, NO_TIMER)  # a tick must follow the end of the reservation
        if acquire.avoid:
            self.executor.set_timer(job, now + AVOID_S, NO_TIMER)
        if refused is not None:
            self._again.append((job, refused))

    def _withdraw(self, job: JobRun, command: Withdraw) -> None:
        self.slots.withdraw(job.id, command.request)
        self._released = True  # idle workers were reserved for it

    def _release(self, job: JobRun, release: Release) -> None:
        self.slots.release(job.id, release)
        self._released = True  # slots came back after this tick's offer was made

    def _serve(self) -> None:
        """Grant requests, or ask the provider for them."""
        self._queue_again(self.slots.serve())

    def _queue_again(self, events: Iterable[tuple[str, Event]]) -> None:
        self._again += [(self.jobs[owner], event) for owner, event in events if owner in self.jobs]

    def _probe(self, job: JobRun, probe: Probe) -> None:
        from weft.engine.events import Hit, Miss

        if (probe.vertex, probe.index) in job.restored:
            if job.outputs is not None:
                self.executor.restore(job, probe.vertex, probe.index, probe.index + 1)
            self._again.append((job, Hit(self.clock.now(), probe.vertex, probe.index, before=True)))
            return
        if job.cache is not None:
            job.cache.probe(self, job, probe)
            return
        self._again.append((job, Miss(self.clock.now(), probe.vertex, probe.index, "this session has no cache")))

    def _launch_answered(self, job: JobRun, lease: Launch) -> None:
        """Launch a lease, unless an earlier process recorded the answers of its tasks."""
        if lease.vertex not in job.answers:
            self.executor.launch(job, lease)
            return
        values = job.answers[lease.vertex][lease.lo : lease.hi]
        self.executor.restore(job, lease.vertex, lease.lo, lease.hi)
        self._queue.append((job.id, (Done(self.clock.now(), lease.lease, lease.hi, values=values),)))

    def _complete(self, job: JobRun, outcome: Complete) -> None:
        job.outcome = outcome
        self._estimates.learn(job.inspector.vertices)
        self.slots.leave(job.id, job.leases.values())
        job.leases = NOTHING
        self.jobs.pop(job.id, None)
        self.executor.retire_job(job)
        if job.journal is not None:
            job.journal.close()
        self._serve()

    def _crashed(self, job: JobRun, error: Exception) -> None:
        job.crash = error
        kind = kind_of(error, Failure.INTERNAL)
        said = str(error) if kind is Failure.CAPACITY else f"internal error: {error}"
        self._fail(job, Complete("failed", "", said, kind=kind.value))
        job.end()

    def _fail(self, job: JobRun, outcome: Complete) -> None:
        """End a job whose master has failed."""
        job.given_up = True
        for lease in list(job.leases):
            self.executor.stop(job, lease, outcome.message)
        self._complete(job, outcome)

    # ----------------------------------------------------------------------------------------------- workers

    def worker_joined(self, spec: WorkerSpec) -> None:
        """Add a worker of a node (a replacement)."""
        with self._lock:
            event = self.slots.add_worker(spec)
        self.post("", event)

    def worker_lost(
        self,
        worker: int,
        reason: str,
        *,
        node_lost: bool = False,
        unit: int = -1,
        crashed: bool = False,
        traceback: str = "",
        replaced: bool = False,
    ) -> None:
        """Remove a worker."""
        with self._lock:
            self.slots.lose_worker(worker, [job.leases for job in self.jobs.values()], replaced=replaced)
        self.post("", WorkerLost(self.clock.now(), worker, reason, node_lost, unit, crashed, traceback))

    def node_joined(self, spec: NodeSpec) -> None:
        """Add a node with its workers, memory and GPUs."""
        with self._lock:
            event = self.slots.add_node(spec)
        self.post("", event)

    def node_draining(self, node: int, reason: str) -> None:
        """Close a node to new work. Its workers leave one by one; the provider is notified after the last."""
        with self._lock:
            event, refused = self.slots.drain_node(node, reason)
            self._post_later(event, refused)
        self.drain()

    def node_lost(self, node: int, reason: str, *, emptied: bool = False) -> None:
        """Remove a node with its workers and, unless they lie elsewhere by now (`emptied`), its outputs."""
        with self._lock:
            leases = [job.leases for job in self.jobs.values()]
            events, refused = self.slots.lose_node(node, reason, leases, emptied=emptied)
            for event in events:
                self._post_later(event, ())
            self._queue.extend((owner, (event,)) for owner, event in refused)
        self.drain()

    def _post_later(self, event: Event, refused: Iterable[tuple[str, Event]]) -> None:
        self._queue.append(("", (event,)))
        self._queue.extend((owner, (event,)) for owner, event in refused)

    def idle_tick(self) -> None:
        """Halve long leases if workers are idle. Drivers call this after a while without events."""
        if self.pool.idle and self._lock.acquire(blocking=False):  # otherwise a tick runs: there is no quiet
            try:
                now = self.clock.now()
                for name, job in self.jobs.items():
                    if any(lease.hi - lease.lo > 1 for lease in job.leases.values()):
                        self._queue.append((name, (IdleTick(now),)))
            finally:
                self._lock.release()
            self.drain()
