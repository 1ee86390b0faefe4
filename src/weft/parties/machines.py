"""The machines of the loop: a coordination or a part with its documents, and what follows from each effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft.frontends.federated.coordination.coordinator import (
    ComponentEnded,
    Coordination,
    CoordinationTick,
    CoordinationWake,
    JobEnded,
    JobReady,
    JobSettled,
    ReportReceived,
    SendWish,
    coordinate,
)
from weft.frontends.federated.coordination.participant import (
    AskApproval,
    GoProcess,
    LookAt,
    Looked,
    Participation,
    PartOver,
    ReturnCores,
    SendReport,
    StartProcess,
    StopProcess,
    TakeCores,
    WishReceived,
    participate,
)
from weft.frontends.federated.coordination.records import write_document
from weft.parties.ledger import REPORT, WISH, DocumentEntry, LedgerWrite
from weft.parties.loop import LoopStep, Subject
from weft.parties.outbox import Letter

if TYPE_CHECKING:
    from weft.frontends.federated.schema import Party

_encode = msgspec.json.Encoder().encode


class MachineCalls(NamedTuple):
    """What machines ask of their server.

    `post` and `post_at` reach the loop, `send` the outbox. The others are the effects of coordination and of parts.
    """

    me: str
    post: Callable[[Subject, Any], None]
    post_at: Callable[[float, Subject, Any], None]
    send: Callable[[str, Letter], None]
    ready: Callable[[str], None]
    component_ended: Callable[[str, ComponentEnded], None]
    job_ended: Callable[[str, JobEnded], None]
    settled: Callable[[str], None]
    ask: Callable[[Participation], None]
    take: Callable[[Participation, int], None]
    give_back: Callable[[Participation], None]
    start: Callable[[Participation, StartProcess], None]
    go: Callable[[Participation, GoProcess], None]
    stop: Callable[[Participation, StopProcess], None]
    over: Callable[[Participation], None]


class CoordinationMachine:
    """A job at its initiator."""

    def __init__(self, state: Coordination, calls: MachineCalls) -> None:
        self.state, self._calls = state, calls

    def step(self, event: Any, now: float) -> LoopStep | None:
        """See `SteppedMachine.step`."""
        state, effects = coordinate(self.state, event, now)
        changed = state != self.state
        self.state = state
        sent = [effect.part for effect in effects if isinstance(effect, SendWish)]
        if not changed and not effects:
            return None

        def write(ledger: LedgerWrite) -> None:
            for part in sent:
                wish = state.wishes[str(part)]
                if part.id != self._calls.me:
                    ledger.set_document(_entry(WISH, part, part.id, wish))
            if changed:
                started, ended = state.started, None
                ledger.set_job(state.job, status=state.status, started=started, ended=ended or _ended(state, now))

        return LoopStep(_encode(state).decode(), not state.settled, write, lambda: self._after(state, effects))

    def _after(self, state: Coordination, effects: list[Any]) -> None:
        calls, subject = self._calls, Subject(state.job)
        for effect in effects:
            match effect:
                case SendWish(part):
                    wish = state.wishes[str(part)]
                    if part.id == calls.me:
                        calls.post(Subject(state.job, part), WishReceived(wish))
                    else:
                        body = write_document(wish)
                        calls.send(part.id, Letter(state.job, part, WISH, wish.version, body))
                case CoordinationWake(at):
                    calls.post_at(at, subject, CoordinationTick())
                case JobReady():
                    calls.ready(state.job)
                case ComponentEnded():
                    calls.component_ended(state.job, effect)
                case JobEnded():
                    calls.job_ended(state.job, effect)
                case JobSettled():
                    calls.settled(state.job)


class PartMachine:
    """A part of this party."""

    def __init__(self, state: Participation, calls: MachineCalls) -> None:
        self.state, self._calls = state, calls

    def step(self, event: Any, now: float) -> LoopStep | None:
        """See `SteppedMachine.step`."""
        state, effects = participate(self.state, event, now)
        changed = state != self.state
        self.state = state
        remote = state.initiator.id != self._calls.me
        asked = not remote and isinstance(event, WishReceived) and state.report is not None
        if asked and not any(isinstance(one, SendReport) for one in effects):
            effects.append(SendReport())  # like the answer of another party: an earlier one may have been lost
        if not changed and not effects:
            return None

        def write(ledger: LedgerWrite) -> None:
            if remote and state.report is not None and any(isinstance(one, SendReport) for one in effects):
                ledger.set_document(_entry(REPORT, state.part, state.initiator.id, state.report))
            if remote and state.wish is not None:
                ledger.set_job(state.job, status=state.wish.job_status, started=state.started, ended=state.ended)

        return LoopStep(_encode(state).decode(), not state.over, write, lambda: self._after(state, effects))

    def _after(self, state: Participation, effects: list[Any]) -> None:
        calls, subject = self._calls, Subject(state.job, state.part)
        for effect in effects:
            match effect:
                case SendReport():
                    assert state.report is not None
                    if state.initiator.id == calls.me:
                        calls.post(Subject(state.job), ReportReceived(state.report))
                    else:
                        body = write_document(state.report)
                        letter = Letter(state.job, state.part, REPORT, state.report.version, body)
                        calls.send(state.initiator.id, letter)
                case LookAt(at):
                    calls.post_at(at, subject, Looked())
                case AskApproval():
                    calls.ask(state)
                case TakeCores(cores):
                    calls.take(state, cores)
                case ReturnCores():
                    calls.give_back(state)
                case StartProcess():
                    calls.start(state, effect)
                case GoProcess():
                    calls.go(state, effect)
                case StopProcess():
                    calls.stop(state, effect)
                case PartOver():
                    calls.over(state)


def _entry(kind: str, part: Party, receiver: str, document: Any) -> DocumentEntry:
    body = write_document(document).decode()
    return DocumentEntry(document.job, part.role, part.id, kind, receiver, document.epoch, document.version, 0, body)


def _ended(state: Coordination, now: float) -> float | None:
    return state.since if state.cause is not None or state.status not in ("waiting", "running") else None
