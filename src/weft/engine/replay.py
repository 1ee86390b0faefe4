"""Recovery: the recorded ticks of a job bring a new master to the state that the old one was in.

A `Tape` stands between the master and its vertex managers. While a job runs it notes what they answer; at a replay it
answers in their place, so that a decision that was taken once stays taken. The commands of a replay are not carried
out; those that somebody still waits for (timers, requests, probes) are returned, to be given again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.engine.commands import Acquire, Complete, Probe, SetTimer
from weft.engine.events import Done, Event, Failed, Progress
from weft.engine.leases import attempt_of
from weft.engine.recovery import Epoch, begin
from weft.engine.rows import PROBING
from weft.model.errors import InternalError, WeftError

if TYPE_CHECKING:
    from weft.engine.commands import Command
    from weft.engine.core import Core
    from weft.engine.master import Master
    from weft.engine.policy import ManagerFactory, Moment, VertexManager, View


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

    @property
    def whole_state(self) -> Core:
        """All that the master knows, to be written down or filled in: for snapshots, which are that state as bytes."""
        return self.master.core

    def begin(self, epoch: Epoch) -> None:
        """Another incarnation goes on from here."""
        begin(self.master.core, epoch)

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
