"""Recovery: the recorded ticks of a job bring a new master to the state of the old one.

A `Tape` stands between the master and its vertex managers. While a job runs, it records their answers; during a replay
it answers in their place, so that a decision is made only once. The commands of a replay are not carried out; those
that are still unanswered (timers, requests, probes) are returned, to be given again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import Struct

from weft.engine.commands import Acquire, Complete, MarkEnded, Probe, SetTimer, single_launches
from weft.engine.consulting import answer_of, decider_of
from weft.engine.events import Done, Event, Failed, Progress
from weft.engine.leases import attempt_of
from weft.engine.machines.vertex import ENDED
from weft.engine.policy import JobController
from weft.engine.readiness import meets_running
from weft.engine.recovery import Epoch, begin
from weft.engine.rows import PROBING
from weft.model.errors import InternalError, WeftError

if TYPE_CHECKING:
    from weft.engine.commands import Command
    from weft.engine.core import Core
    from weft.engine.master import Master
    from weft.engine.policy import ManagerFactory, VertexManager, View
    from weft.graph.logical import LogicalGraph


class Answer(Struct, frozen=True):
    """The answer of a vertex manager: decisions and its memo, or the reason why it could not decide."""

    vertex: str
    decisions: tuple[Any, ...]
    memo: Any = None
    error: str = ""


class Tick(NamedTuple):
    """One record: the events of one call of `Master.handle`, and the answers of managers during it.

    `commands` is the number of returned commands, -1 if unknown: a difference reveals a version of Weft that decides
    otherwise.
    """

    events: tuple[Event, ...]
    answers: tuple[Answer, ...] = ()
    commands: int = -1


class Tape:
    """Records the answers of managers, or answers in their place."""

    def __init__(self) -> None:
        self._noted: list[Answer] = []
        self._given: deque[Answer] | None = None

    def managers(self, factories: Mapping[str, ManagerFactory]) -> Mapping[str, ManagerFactory]:
        """Return factories whose managers answer through this tape."""
        return _TapedFactories(factories, self)

    def take(self) -> tuple[Answer, ...]:
        """Return the answers since the last call."""
        if not self._noted:
            return ()
        noted, self._noted = tuple(self._noted), []
        return noted

    def play(self, handle: Callable[[Iterable[Event]], list[Command]], tick: Tick) -> list[Command]:
        """Return the commands of `handle` for a recorded tick. InternalError: the replay differs from the record."""
        self._given = deque(tick.answers)
        try:
            commands = single_launches(handle(tick.events))
            if self._given:
                raise InternalError(f"the journal has an answer of {decider_of(self._given[0])} that nobody asked for")
        finally:
            self._given = None
        if tick.commands not in (-1, len(commands)):
            raise InternalError(
                f"the master answers {len(commands)} commands where the journal tells of {tick.commands}: "
                "another version of Weft decided"
            )
        return commands

    def decide(self, manager: VertexManager, view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        """Call a manager and record the answer, or return the recorded one."""
        if self._given is not None:
            if not self._given or self._given[0].vertex != view.vertex:
                raise InternalError(f"the journal has no answer of {decider_of(view)} where one is due")
            answer = self._given.popleft()
            if answer.error:
                raise WeftError(answer.error)
            return answer.decisions, answer.memo
        try:
            decisions, memo = answer_of(manager, view, memo)
        except WeftError as error:
            self._noted.append(Answer(view.vertex, (), None, error.message))
            raise
        self._noted.append(Answer(view.vertex, decisions, memo))
        return decisions, memo


class _TapedFactories(Mapping[str, "ManagerFactory"]):
    """Factories of managers behind a tape, of those that are registered later too."""

    def __init__(self, factories: Mapping[str, ManagerFactory], tape: Tape) -> None:
        self._factories = factories
        self._tape = tape

    def __getitem__(self, name: str) -> ManagerFactory:
        factory = self._factories[name]

        @wraps(factory, updated=())
        def make(**params: Any) -> VertexManager:
            return _Taped(factory(**params), self._tape)

        return make

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)


class _Taped(JobController):
    """A manager or a controller behind a tape."""

    def __init__(self, manager: VertexManager, tape: Tape) -> None:
        self.moments = manager.moments
        self.holds = manager.holds
        self.counts = manager.counts
        self.of_job = manager.of_job
        self._manager = manager
        self._tape = tape

    def check_graph(self, graph: LogicalGraph) -> None:
        """See `JobController.check_graph`."""
        cast("JobController", self._manager).check_graph(graph)

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        """See `VertexManager.decide`."""
        return self._tape.decide(self._manager, view, memo)


class Pending(Struct, frozen=True):
    """The rest of a replay: unanswered `commands`, and the time of the last event in seconds.

    `taken` are the leases whose reports were handled: outputs of any other lease do not count.
    """

    commands: tuple[Command, ...]
    now: float
    completed: bool
    taken: frozenset[int] = frozenset()


class Replay:
    """Feeds recorded ticks to a new master, and collects the commands to give again. `feed` may be called many
    times.
    """

    def __init__(self, master: Master, tape: Tape) -> None:
        self.master = master
        self.tape = tape
        self._timers: dict[int, SetTimer] = {}
        self._requests: dict[int, Acquire] = {}
        self._probes: dict[tuple[str, int], Probe] = {}
        self._taken: set[int] = set()
        self._completed = False

    def feed(self, records: Iterable[Tick | Epoch]) -> None:
        """Feed more records. Raises all errors of `handle`, and InternalError where record and replay differ."""
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
        """All state of the master, to be written or restored: snapshots are this state as bytes."""
        return self.master.core

    def begin(self, epoch: Epoch) -> None:
        """Begin another incarnation here."""
        begin(self.master.core, epoch)

    def pending(self) -> Pending:
        """Return the commands to give again."""
        self._forget()
        ended = [
            MarkEnded(stage.id) for stage in self.master.core.stages if stage.status in ENDED and meets_running(stage)
        ]
        commands: list[Command] = [
            *ended,
            *self._requests.values(),
            *self._timers.values(),
            *self._probes.values(),
        ]
        return Pending(tuple(commands), self.master.core.now, self._completed, frozenset(self._taken))

    def _forget(self) -> None:
        """Drop commands that are answered."""
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
        """Return the collected state, for `collect` of another replay."""
        self._forget()
        return self._timers, self._requests, self._probes, self._taken, self._completed

    def collect(self, collected: tuple[Any, ...]) -> None:
        """Continue from the collected state of another replay."""
        self._timers, self._requests, self._probes, self._taken, self._completed = collected


def replay(master: Master, tape: Tape, records: Iterable[Tick | Epoch]) -> Pending:
    """Feed recorded ticks to a new master, and return the commands to give again; errors as `Replay.feed`."""
    replayed = Replay(master, tape)
    replayed.feed(records)
    return replayed.pending()
