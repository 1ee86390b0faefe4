"""What every vertex manager must do: call each of `CHECKS` with the trial of a graph that names it (`try_graph`).

The trial runs the graph on simulated workers, which compute the values of its tasks. Each call of a manager is made
twice, the second time to a new manager with a copy of the memo.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.backends.simulated_bodies import SimulatedBodies
from weft.durability.encoding import Reader, encode
from weft.durability.pickles import to_pickle
from weft.engine.master import Master
from weft.engine.notes import NoteKind
from weft.engine.policy import REGISTERED, ManagerFactory, VertexManager
from weft.engine.replay import Answer, Tape, Tick, replay
from weft.graph.validate import mark_results
from weft.runtime.session import EngineSession
from weft.store.blocks import BlockManager
from weft.testing.fakes import MemoryJournal

if TYPE_CHECKING:
    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.graph.logical import LogicalGraph
    from weft.runtime.run import Run

DEADLINE_S = 60
_MEMORY = 1 << 28


class ManagerCall(NamedTuple):
    """The answers of a manager and of a new one to the same view and memo, as records of a journal."""

    vertex: str
    answer: bytes
    again: bytes


class ManagerTrial(NamedTuple):
    """A run of `graph`, its `ticks` as a journal has them, and the `calls` of its managers."""

    graph: Callable[[], LogicalGraph]
    run: Run
    ticks: Sequence[bytes]
    calls: Sequence[ManagerCall]


class _Twice(VertexManager):
    def __init__(self, make: Callable[[], VertexManager], calls: list[ManagerCall]) -> None:
        self._make = make
        self._manager = make()
        self._calls = calls
        self.moments, self.holds, self.counts = self._manager.moments, self._manager.holds, self._manager.counts

    def decide(self, view: Any, memo: Any) -> tuple[Sequence[Any], Any]:
        """Ask the manager, then a new one."""
        kept = copy.deepcopy(memo)
        answer = self._manager.decide(view, memo)
        again = self._make().decide(view, kept)
        self._calls.append(ManagerCall(view.vertex, _written(view.vertex, answer), _written(view.vertex, again)))
        return answer


def _written(vertex: str, answer: tuple[Sequence[Any], Any]) -> bytes:
    return encode(Tick((), (Answer(vertex, tuple(answer[0]), answer[1]),)), to_pickle)


class _Journal(MemoryJournal):
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.ticks: list[bytes] = []
        self._tape = tape

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """See `Journal.append`."""
        super().append(events, commands)
        self.ticks.append(encode(Tick(tuple(events), self._tape.take(), len(commands)), to_pickle))


def try_graph(graph: Callable[[], LogicalGraph], workers: int = 3) -> ManagerTrial:
    """Run `graph()`, some of whose vertices name registered managers, to its end. Errors as of `Run.result`."""
    calls: list[ManagerCall] = []
    tape = Tape()

    def twice(factory: ManagerFactory) -> ManagerFactory:
        return lambda **params: _Twice(lambda: factory(**params), calls)

    store = BlockManager(_MEMORY)
    managers = {name: twice(factory) for name, factory in REGISTERED.items()}
    journal = _Journal(tape)
    executor = SimulatedBodies(workers, store, driven=True)
    with EngineSession(executor, store, executor.clock, tape.managers(managers)) as session:
        run = session.start(graph(), journal=journal)
        run.result(DEADLINE_S)
    return ManagerTrial(graph, run, journal.ticks, calls)


def it_is_asked(trial: ManagerTrial) -> None:
    """A graph without a call of a manager shows nothing."""
    assert trial.calls


def it_answers_from_its_arguments_alone(trial: ManagerTrial) -> None:
    """The same view and memo have the same answer: state lies in the memo, and the memo is not changed in place."""
    for call in trial.calls:
        assert call.answer == call.again, f"the manager of {call.vertex} answers otherwise when it is made anew"


def its_memo_is_data(trial: ManagerTrial) -> None:
    """Decisions and memo can be written to a journal, and are the same when they are read."""
    for call in trial.calls:
        read: Any = Reader(trusted=True).read(call.answer)
        (answer,) = read.answers
        assert _written(answer.vertex, (answer.decisions, answer.memo)) == call.answer


def its_decisions_are_accepted(trial: ManagerTrial) -> None:
    """No decision comes too late or names what there is not, and the vertex is not left to go on without it."""
    unwanted = {kind.word for kind in (NoteKind.DECISION_REJECTED, NoteKind.MANAGER_SILENT, NoteKind.MANAGER_HOLDS)}
    assert not [change for change in trial.run.explained().changes if change.kind in unwanted]


def it_is_replayed(trial: ManagerTrial) -> None:
    """A resumed run has the state of the run before, from the recorded answers alone."""
    graph, tape = trial.graph(), Tape()
    mark_results(graph)
    before = trial.run._job
    master = Master(graph, before.id, before.master.core.tuning, tape.managers(REGISTERED))
    reader = Reader(trusted=True)
    replay(master, tape, [reader.read(tick) for tick in trial.ticks])
    master.retire()  # as the one of the run before
    assert master.inspector.digest() == before.inspector.digest()


CHECKS = [
    it_is_asked,
    it_answers_from_its_arguments_alone,
    its_memo_is_data,
    its_decisions_are_accepted,
    it_is_replayed,
]
