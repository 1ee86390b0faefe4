"""Recovery: the recorded ticks of a job bring a new master to the state that the old one was in.

A `Tape` stands between the master and its vertex managers. While a job runs it notes what they answer; at a replay it
answers in their place, so that a decision that was taken once stays taken. The commands of a replay are not carried
out; those that somebody still waits for (timers, requests, probes) are returned, to be given again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.engine.commands import Acquire, Complete, Probe, SetTimer
from weft.engine.events import Done, Event, Failed, GaveBack, Progress, Unanswered, WorkerLost
from weft.engine.leases import attempt_of
from weft.engine.machines.job import JobState
from weft.engine.machines.lease import ACTIVE
from weft.engine.machines.vertex import VertexState
from weft.engine.rows import PROBING
from weft.model.errors import InternalError, WeftError
from weft.model.failures import Failure

if TYPE_CHECKING:
    from weft.engine.commands import Command
    from weft.engine.core import Core, Tuning
    from weft.engine.master import Master
    from weft.engine.policy import ManagerFactory, Moment, VertexManager, View

_IDS = 40
"""Bits of the numbers that one incarnation may hand out: leases of two incarnations never share one."""


class Answer(NamedTuple):
    """What a vertex manager answered: decisions and its memo, or why it could not decide."""

    vertex: str
    decisions: tuple[Any, ...]
    memo: Any = None
    error: str = ""


class Tick(NamedTuple):
    """One record: the events that one call of `Master.handle` took, and what managers answered meanwhile.

    `commands` counts the commands that it answered, -1 if that is not known: a version of Weft that decides otherwise
    is found out by it.
    """

    events: tuple[Event, ...]
    answers: tuple[Answer, ...] = ()
    commands: int = -1


class Epoch(NamedTuple):
    """From here on another process goes on with the job, with another tuning if one is named.

    The first one is incarnation 0.
    """

    incarnation: int
    tuning: Tuning | None = None


class Tape:
    """Notes what managers answer, or answers in their place."""

    def __init__(self) -> None:
        self._noted: list[Answer] = []
        self._given: deque[Answer] | None = None

    def managers(self, factories: Mapping[str, ManagerFactory]) -> dict[str, ManagerFactory]:
        """Return factories whose managers speak through this tape."""
        return {name: self._factory(factory) for name, factory in factories.items()}

    def _factory(self, factory: ManagerFactory) -> ManagerFactory:
        return lambda **params: _Taped(factory(**params), self)

    def take(self) -> tuple[Answer, ...]:
        """Return what was answered since the last call."""
        if not self._noted:
            return ()
        noted, self._noted = tuple(self._noted), []
        return noted

    def play(self, handle: Callable[[Iterable[Event]], list[Command]], tick: Tick) -> list[Command]:
        """Return what `handle` answers to a recorded tick. InternalError: it does not go as it went."""
        self._given = deque(tick.answers)
        try:
            commands = handle(tick.events)
            if self._given:
                raise InternalError(
                    f"the journal has an answer of the manager of {self._given[0].vertex} that nobody asked for"
                )
        finally:
            self._given = None
        if tick.commands not in (-1, len(commands)):
            raise InternalError(
                f"the master answers {len(commands)} commands where the journal tells of {tick.commands}: "
                "another version of Weft decided"
            )
        return commands

    def decide(self, manager: VertexManager, view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        """Ask a manager and note the answer, or give the recorded one."""
        if self._given is not None:
            if not self._given or self._given[0].vertex != view.vertex:
                raise InternalError(f"the journal has no answer of the manager of {view.vertex} where one is due")
            answer = self._given.popleft()
            if answer.error:
                raise WeftError(answer.error)
            return answer.decisions, answer.memo
        try:
            decisions, memo = manager.decide(view, memo)
        except WeftError as error:
            self._noted.append(Answer(view.vertex, (), None, error.message))
            raise
        self._noted.append(Answer(view.vertex, tuple(decisions), memo))
        return decisions, memo


class _Taped:
    """A manager that speaks through a tape."""

    def __init__(self, manager: VertexManager, tape: Tape) -> None:
        self.moments: frozenset[Moment] = manager.moments
        self.holds = manager.holds
        self.counts = manager.counts
        self._manager = manager
        self._tape = tape

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        """See `VertexManager.decide`."""
        return self._tape.decide(self._manager, view, memo)


class Pending(NamedTuple):
    """What a replay leaves to do: `commands` that somebody waits for, and the time of the last event in seconds.

    `taken` are the leases whose reports were taken: what others have made does not count.
    """

    commands: tuple[Command, ...]
    now: float
    completed: bool
    taken: frozenset[int] = frozenset()


class Replay:
    """Feeds a new master what was recorded, and collects what is left to do. Go on with it as long as records come."""

    def __init__(self, master: Master, tape: Tape) -> None:
        self.master = master
        self.tape = tape
        self._timers: dict[int, SetTimer] = {}
        self._requests: dict[int, Acquire] = {}
        self._probes: dict[tuple[str, int], Probe] = {}
        self._taken: set[int] = set()
        self._completed = False

    def feed(self, records: Iterable[Tick | Epoch]) -> None:
        """Take more records. Raises what `handle` raises, and InternalError where the two differ."""
        master, core = self.master, self.master.core
        for record in records:
            if isinstance(record, Epoch):
                begin(core, record)
                continue
            for event in record.events:
                if isinstance(event, Done | Failed | Progress) and attempt_of(core, event.lease) is not None:
                    self._taken.add(event.lease)
            for command in self.tape.play(master.handle, record):
                if type(command) is SetTimer:
                    self._timers[command.timer] = command
                elif type(command) is Acquire:
                    self._requests[command.request] = command
                elif type(command) is Probe:
                    self._probes[command.vertex, command.index] = command
                elif type(command) is Complete:
                    self._completed = True

    def pending(self) -> Pending:
        """Return what is left to do."""
        self._forget()
        commands: list[Command] = [*self._requests.values(), *self._timers.values(), *self._probes.values()]
        return Pending(tuple(commands), self.master.core.now, self._completed, frozenset(self._taken))

    def _forget(self) -> None:
        """Drop what nobody waits for any more."""
        core = self.master.core
        rows, stages = core.requests, core.by_id
        self._requests = {n: c for n, c in self._requests.items() if (row := rows.get(n)) and not row.granted}
        self._timers = {timer: command for timer, command in self._timers.items() if timer in core.timers}
        self._probes = {
            (vertex, index): command
            for (vertex, index), command in self._probes.items()
            if vertex in stages and index < stages[vertex].n and stages[vertex].state[index] == PROBING
        }

    def collected(self) -> tuple[Any, ...]:
        """Return what was collected, for `collect` of another replay."""
        self._forget()
        return self._timers, self._requests, self._probes, self._taken, self._completed

    def collect(self, collected: tuple[Any, ...]) -> None:
        """Go on from what another replay has collected."""
        self._timers, self._requests, self._probes, self._taken, self._completed = collected


def replay(master: Master, tape: Tape, records: Iterable[Tick | Epoch]) -> Pending:
    """Feed a new master what was recorded, and return what is left to do; errors as `Replay.feed`."""
    replayed = Replay(master, tape)
    replayed.feed(records)
    return replayed.pending()


def begin(core: Core, epoch: Epoch) -> None:
    """A new incarnation begins: its leases, requests and timers have other numbers than any before."""
    core.counter = max(core.counter, epoch.incarnation << _IDS)
    if epoch.tuning is not None:
        core.tuning = epoch.tuning


def losses(core: Core, now: float, reason: str = "the process that ran it is gone") -> list[Event]:
    """Return the events that tell a master, at `now`, that all workers and all that they were at are gone.

    What was at work goes back as if it had never begun, and no failure is counted; what streams begins again with its
    whole region. What it had claimed of the cache others may have made meanwhile, so that is asked again.
    """
    events: list[Event] = [Unanswered(now)] if any(stage.probed for stage in core.stages) else []
    events += [
        Failed(now, lease.id, lease.lo, lease.stage.id, lease.lo, Failure.STOPPED, reason)
        for lease in core.speculative.values()
        if lease.id not in core.leases
    ]
    for lease in core.leases.values():
        stage, mult = lease.members[0]
        if lease.state not in ACTIVE or stage.status is VertexState.DRAINING:  # nobody waits for it any more
            events.append(Failed(now, lease.id, lease.lo, stage.id, lease.lo * mult, Failure.STOPPED, reason))
        elif any(member.region >= 0 for member, _ in lease.members):
            events.append(Failed(now, lease.id, lease.lo, stage.id, lease.lo * mult, Failure.INFRASTRUCTURE, reason))
        else:
            events += (GaveBack(now, lease.id, lease.lo), Done(now, lease.id, lease.lo))
    events.extend(WorkerLost(now, worker, reason) for worker in core.workers)
    return events


def may_go_on(core: Core) -> bool:
    """Whether a job runs and nothing of it has failed, so that it may simply go on."""
    bad = (VertexState.FAILED, VertexState.CANCELLED)
    return (
        core.status is JobState.RUNNING and core.cause is None and all(stage.status not in bad for stage in core.stages)
    )


def digest(core: Core) -> str:
    """Return a digest of the state of a job: equal for two masters that would decide alike."""
    known: list[Any] = [
        core.status.value,
        core.now,
        core.counter,
        core.unended,
        core.cause,
        core.cancel_reason,
        sorted(core.tokens.items()),
        sorted(core.emitted),
        sorted(core.answered),
        sorted((name, row.taken) for name, row in core.choices.items()),
        sorted((edge, [int(size) for size in sums]) for edge, sums in core.stats.items()),
        sorted((number, row.node) for number, row in core.workers.items()),
        sorted((node, heap) for node, heap in core.heaps.items()),
        sorted((number, row.bubble, row.index, row.granted) for number, row in core.requests.items()),
        sorted(core.timers.items()),
        [(row.index, row.state.value, row.request, sorted(row.slots.items())) for row in core.bubbles],
        [(lease.id, lease.lo, lease.hi, lease.worker, lease.live, lease.state.value) for lease in core.leases.values()],
        sorted((id, other.id, other.worker, other.state.value) for id, other in core.speculative.items()),
        sorted((id, lease.worker, lease.state.value) for id, lease in core.cancelled.items()),
        (list(core.faults), sorted(core.avoided.items()), sorted(core.forgiven.items()), list(core.shy.items())),
        (core.backups_wanted, sorted(core.weights.items()), sorted(core.shrunk.items()), sorted(core.memos.items())),
    ]
    known.extend(
        (
            stage.id,
            stage.n,
            stage.status.value,
            bytes(stage.state),
            (stage.finished, stage.over, stage.executing, stage.closed, stage.released, int(stage.rows)),
            stage.ready.spans,
            None if stage.missing is None else list(stage.missing),
            None if stage.refs is None else list(stage.refs),
            sorted((stage.attempts or {}).items()),
            (float(stage.seconds), float(stage.nbytes), stage.last_width, stage.memo),
        )
        for stage in core.stages
    )
    return sha256(repr(known).encode()).hexdigest()
