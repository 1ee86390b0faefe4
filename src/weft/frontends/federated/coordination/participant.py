"""The half of a party: from wishes of the initiator and events of its own processes to orders, and a report.

`participate` is a pure function for one part of one job. At most one process of a component lives at a time, and no
attempt runs twice in one epoch. Cores are held from the wish to reserve until the end, and given back once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from weft.frontends.federated.coordination.records import (
    ENDED_STATUSES,
    ComponentOrder,
    JobPhase,
    ObservedAttempt,
    PartFailure,
    PartPhase,
    PartStatus,
    Report,
    Want,
    Wish,
    is_newer,
    version_failure,
)
from weft.frontends.federated.schema import Party  # noqa: TC001 - fields of records are read at run time

LEASE_S: Final = 600.0
"""The seconds without a word of the initiator after which a part without processes gives its cores back."""


PROBE_S: Final = 90.0
"""The seconds without a word of the initiator after which a part of another party sends its report again.

An initiator that does not know the party any more answers that, and says nothing by itself. Others say something at
least every minute.
"""


class LocalProcess(Struct, frozen=True):
    """A process of a component that lives, of which epoch and attempt it is, and whether it was told to stop."""

    epoch: int
    attempt: int
    stopping: bool = False


class Participation(Struct, frozen=True, kw_only=True):
    """The state of a part. `holds` says whether it has cores, `asked` whether it has asked for them.

    `started` and `ended` are when the part has heard that the job runs in this epoch, and has ended, in seconds since
    1970. `silent` has the parties that do not take values of a component, by component, and `hindered` in words why
    some of them do not. `protocols` has the versions of messages of this party, by the module that the part runs.
    """

    job: str
    part: Party
    initiator: Party
    wish: Wish | None = None
    approved: bool = False
    refused: str = ""
    holds: bool = False
    asked: bool = False
    waits_for: str = ""
    heard: float = 0.0
    started: float | None = None
    ended: float | None = None
    over: bool = False
    components: Mapping[str, ObservedAttempt] = field(default_factory=dict)
    processes: Mapping[str, LocalProcess] = field(default_factory=dict)
    silent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hindered: Mapping[str, str] = field(default_factory=dict)
    report: Report | None = None
    protocols: Mapping[str, int] = field(default_factory=dict)


_read: Final = msgspec.json.Decoder(Participation).decode


# -------------------------------------------------------------------------------------------------------------- events


class WishReceived(Struct, frozen=True):
    """A wish has come."""

    wish: Wish


class Approved(Struct, frozen=True):
    """The people of the party, or its policy, let the job run."""


class Declined(Struct, frozen=True):
    """They do not, or the job is not possible here."""

    reason: str


class CoresGranted(Struct, frozen=True):
    """The cores of the job are held."""


class CoresQueued(Struct, frozen=True):
    """The cores are not free yet; the reason says what the job waits for."""

    reason: str


class ProcessPrepared(Struct, frozen=True):
    """A process is ready to go."""

    component: str
    epoch: int
    attempt: int


class ProcessEnded(Struct, frozen=True):
    """A process has ended."""

    component: str
    epoch: int
    attempt: int
    status: PartStatus
    failure: PartFailure | None = None


class PartnerSilent(Struct, frozen=True):
    """A party does not take the values of a process, for a reason in words if it is known, or takes them again."""

    component: str
    party: str
    answers: bool = False
    why: str = ""


class InitiatorGone(Struct, frozen=True):
    """There is no way to the initiator any more, so the part ends."""

    failure: PartFailure


class Restarted(Struct, frozen=True):
    """The server of the party was started again: no process of before lives."""


class Looked(Struct, frozen=True):
    """Time has passed."""


ParticipationEvent = (
    WishReceived
    | Approved
    | Declined
    | CoresGranted
    | CoresQueued
    | ProcessPrepared
    | ProcessEnded
    | PartnerSilent
    | InitiatorGone
    | Restarted
    | Looked
)


# ------------------------------------------------------------------------------------------------------------- effects


class AskApproval(Struct, frozen=True):
    """Ask whether the job may run; `Approved` or `Declined` follows."""


class TakeCores(Struct, frozen=True):
    """Ask for cores; `CoresGranted`, `CoresQueued` or `Declined` follows."""

    cores: int


class ReturnCores(Struct, frozen=True):
    """Give the cores back, or the request for them."""


class StartProcess(Struct, frozen=True):
    """Start the process of an attempt, which prepares."""

    component: str
    epoch: int
    attempt: int


class GoProcess(Struct, frozen=True):
    """Let a prepared process work."""

    component: str
    epoch: int
    attempt: int


class StopProcess(Struct, frozen=True):
    """Stop a process."""

    component: str
    epoch: int
    attempt: int
    reason: str


class SendReport(Struct, frozen=True):
    """Send the present report to the initiator."""


class LookAt(Struct, frozen=True):
    """Look again at a time."""

    at: float


class PartOver(Struct, frozen=True):
    """The part has ended: what it holds besides outputs can go."""


ParticipationEffect = (
    AskApproval | TakeCores | ReturnCores | StartProcess | GoProcess | StopProcess | SendReport | LookAt | PartOver
)


# ---------------------------------------------------------------------------------------------------------------- step


def participate(
    state: Participation, event: ParticipationEvent, now: float
) -> tuple[Participation, list[ParticipationEffect]]:
    """Return the next state and the effects of an event at a time in seconds since 1970."""
    effects: list[ParticipationEffect] = []
    state = _taken(state, event, now, effects)
    if state.wish is not None:
        state = _followed(state, state.wish, now, effects)
        assert state.wish is not None
        state = _reported(state, state.wish, effects)
        _probe(state, event, now, effects)
    return state, effects


def _probe(state: Participation, event: ParticipationEvent, now: float, effects: list[ParticipationEffect]) -> None:
    """Send the report again if the initiator was not heard of for long."""
    if state.wish is None or state.wish.phase is JobPhase.END or state.refused or state.initiator.id == state.part.id:
        return
    silent = now >= state.heard + PROBE_S
    if silent and isinstance(event, Looked) and not any(isinstance(one, SendReport) for one in effects):
        effects.append(SendReport())
    effects.append(LookAt((now if silent else state.heard) + PROBE_S))


def _taken(
    state: Participation, event: ParticipationEvent, now: float, effects: list[ParticipationEffect]
) -> Participation:
    match event:
        case WishReceived(wish):
            if wish.part != state.part or wish.initiator != state.initiator:
                return state
            state = replace(state, heard=now)
            if not is_newer(wish, state.wish) or _comes_late(wish, state.wish):
                return state
            if state.wish is None or wish.epoch > state.wish.epoch:
                # Each epoch is asked for anew: grants and approvals may have been taken back since the last one.
                state = replace(state, approved=False, refused="", over=False, started=None, ended=None)
                failure = version_failure(state.part, state.protocols, wish.initiator, wish.protocols)
                if failure is None:
                    effects.append(AskApproval())
                else:
                    state = replace(state, refused=f"{failure.message}. {failure.hint}")
            started = now if wish.phase is JobPhase.RUN and state.started is None else state.started
            ended = now if wish.phase is JobPhase.END and state.ended is None else state.ended
            return replace(state, wish=wish, started=started, ended=ended)
        case Approved():
            return replace(state, approved=True)
        case Declined(reason):
            return replace(state, refused=reason)
        case CoresGranted():
            if not state.asked:  # the wish has changed meanwhile
                return state
            return replace(state, holds=True, asked=False, waits_for="")
        case CoresQueued(reason):
            return replace(state, waits_for=reason) if state.asked else state
        case ProcessPrepared(component, epoch, attempt):
            if state.processes.get(component) != LocalProcess(epoch, attempt):
                return state
            return _observe(state, component, epoch, attempt, PartStatus.PREPARED)
        case ProcessEnded(component, epoch, attempt, status, failure):
            process = state.processes.get(component)
            if process is None or (process.epoch, process.attempt) != (epoch, attempt):
                return state
            left = {name: one for name, one in state.processes.items() if name != component}
            silent = {name: one for name, one in state.silent.items() if name != component}
            state = replace(state, processes=left, silent=silent)
            return _observe(state, component, epoch, attempt, status, failure, ended=now)
        case PartnerSilent(component, party, answers, why):
            if component not in state.processes:
                return state
            others = {*state.silent.get(component, ())} - {party}
            silent = {**state.silent, component: sorted(others if answers else others | {party})}
            return replace(state, silent=silent, hindered={**state.hindered, party: why} if why else state.hindered)
        case InitiatorGone(failure):
            if state.wish is None or state.wish.phase is JobPhase.END:
                return state
            last = replace(state.wish, phase=JobPhase.END, job_status="failed", cause=failure)
            return replace(state, wish=last, ended=now)
        case Restarted():
            if state.wish is not None and not state.approved and not state.refused:
                effects.append(AskApproval())
            return _restarted(state, now)
        case _:
            return state


def _comes_late(wish: Wish, known: Wish | None) -> bool:
    """Whether a wish was on its way when the part ended without its initiator. An end is final in its epoch."""
    ended = known is not None and known.phase is JobPhase.END and known.epoch == wish.epoch
    return ended and wish.phase is not JobPhase.END


def _restarted(state: Participation, now: float) -> Participation:
    """Forget what has ended with the server: processes, cores and requests for them."""
    failure = PartFailure("the server of the party was restarted", state.part.id, "WEFT604")
    for component, process in state.processes.items():
        state = _observe(state, component, process.epoch, process.attempt, PartStatus.LOST, failure, ended=now)
    return replace(state, processes={}, silent={}, hindered={}, holds=False, asked=False, waits_for="", heard=now)


def _observe(
    state: Participation,
    component: str,
    epoch: int,
    attempt: int,
    status: PartStatus,
    failure: PartFailure | None = None,
    *,
    ended: float | None = None,
) -> Participation:
    """Keep the status of the present attempt of this epoch; anything else is of no interest any more."""
    known = state.components.get(component)
    if state.wish is None or epoch != state.wish.epoch or known is None or known.attempt != attempt:
        return state
    if known.status in ENDED_STATUSES:
        return state
    seen = replace(known, status=status, failure=failure, ended=ended)
    return replace(state, components={**state.components, component: seen})


# ------------------------------------------------------------------------------------------------- following the wish


def _followed(state: Participation, wish: Wish, now: float, effects: list[ParticipationEffect]) -> Participation:
    """Return the state after the orders that follow from the wish."""
    if state.report is not None and state.report.epoch < wish.epoch:
        state = replace(state, components={})
    if any(one.epoch < wish.epoch for one in state.processes.values()):
        return _all_stopped(state, "the job begins again", effects, before=wish.epoch)
    if state.refused or wish.phase is JobPhase.END:
        reason = state.refused or (wish.cause.message if wish.cause else f"the job ended as {wish.job_status}")
        state = _all_stopped(state, reason, effects)
        if not state.processes:
            state = _returned(state, effects)
            if not state.over and wish.phase is JobPhase.END:
                effects.append(PartOver())
                state = replace(state, over=True)
        return state
    if not state.approved:
        return state
    if wish.phase is JobPhase.CREATE:
        state = _all_stopped(state, "the job gives its cores back", effects)
        return state if state.processes else _returned(state, effects)
    if not state.holds and not state.asked:
        if now >= state.heard + LEASE_S:
            return state
        effects.append(TakeCores(wish.cores))
        state = replace(state, asked=True)
    if state.holds or state.asked:
        if not state.processes and now >= state.heard + LEASE_S:
            return _returned(state, effects)
        effects.append(LookAt(max(now, state.heard + LEASE_S)))
    if state.holds and wish.phase is JobPhase.RUN:
        for component, order in wish.components.items():
            state = _ordered(state, wish, component, order, now, effects)
    return state


def _ordered(
    state: Participation,
    wish: Wish,
    component: str,
    order: ComponentOrder,
    now: float,
    effects: list[ParticipationEffect],
) -> Participation:
    known, process = state.components.get(component), state.processes.get(component)
    if known is not None and known.attempt > order.attempt:
        return state
    if process is not None and process.attempt < order.attempt:
        return _stop(state, component, "another attempt begins", effects)
    if known is None or known.attempt < order.attempt:
        return _first(state, wish, component, order, now, effects)
    if known.status in ENDED_STATUSES or process is None:
        return state
    if order.want is Want.STOP:
        return _stop(state, component, order.reason, effects)
    if order.want is Want.GO and known.status is PartStatus.PREPARED:
        effects.append(GoProcess(component, wish.epoch, order.attempt))
        running = replace(known, status=PartStatus.RUNNING, started=now)
        return replace(state, components={**state.components, component: running})
    return state


def _first(
    state: Participation,
    wish: Wish,
    component: str,
    order: ComponentOrder,
    now: float,
    effects: list[ParticipationEffect],
) -> Participation:
    """Take the first order about an attempt."""
    seen = ObservedAttempt(order.attempt, PartStatus.STARTING)
    processes = state.processes
    if order.want is Want.PREPARE:
        effects.append(StartProcess(component, wish.epoch, order.attempt))
        processes = {**processes, component: LocalProcess(wish.epoch, order.attempt)}
    elif order.want is Want.STOP:
        seen = ObservedAttempt(order.attempt, PartStatus.CANCELED, PartFailure(order.reason, state.part.id), None, now)
    else:  # it was prepared by a process that nobody knows of any more
        failure = PartFailure(f"{state.part} has lost attempt {order.attempt} of {component}", state.part.id)
        seen = ObservedAttempt(order.attempt, PartStatus.LOST, failure, None, now)
    return replace(state, components={**state.components, component: seen}, processes=processes)


def _stop(state: Participation, component: str, reason: str, effects: list[ParticipationEffect]) -> Participation:
    process = state.processes[component]
    if process.stopping:
        return state
    effects.append(StopProcess(component, process.epoch, process.attempt, reason))
    known = state.components.get(component)
    components = state.components
    if known is not None and known.attempt == process.attempt and known.status not in ENDED_STATUSES:
        components = {**components, component: replace(known, status=PartStatus.STOPPING)}
    return replace(
        state, components=components, processes={**state.processes, component: replace(process, stopping=True)}
    )


def _all_stopped(
    state: Participation, reason: str, effects: list[ParticipationEffect], *, before: int | None = None
) -> Participation:
    for component, process in state.processes.items():
        if before is None or process.epoch < before:
            state = _stop(state, component, reason, effects)
    return state


def _returned(state: Participation, effects: list[ParticipationEffect]) -> Participation:
    if not state.holds and not state.asked:
        return state
    effects.append(ReturnCores())
    return replace(state, holds=False, asked=False, waits_for="")


# -------------------------------------------------------------------------------------------------------------- report


def _reported(state: Participation, wish: Wish, effects: list[ParticipationEffect]) -> Participation:
    """Return the state with the report that follows from it, and send it if it has changed."""
    if any(one.epoch < wish.epoch for one in state.processes.values()):
        return state  # the new epoch begins when nothing of the old one is left
    old = state.report
    silent = sorted({party for parties in state.silent.values() for party in parties})
    report = Report(
        job=state.job,
        part=state.part,
        epoch=wish.epoch,
        version=0 if old is None else old.version,
        wish_version=wish.version,
        phase=_phase(state, wish),
        reason=state.refused or state.waits_for or _why_ended(wish),
        silent=silent,
        hindered={party: why for party, why in state.hindered.items() if party in silent},
        components=state.components,
        protocols=state.protocols,
    )
    if report == old:
        return state
    effects.append(SendReport())
    return replace(state, report=replace(report, version=report.version + 1))


def _why_ended(wish: Wish) -> str:
    return wish.cause.message if wish.phase is JobPhase.END and wish.cause is not None else ""


def _phase(state: Participation, wish: Wish) -> PartPhase:
    if wish.phase is JobPhase.END and not state.processes:
        return PartPhase.ENDED
    if state.refused:
        return PartPhase.REFUSED
    if not state.approved:
        return PartPhase.AWAITING
    if state.holds:
        return PartPhase.RESERVED
    return PartPhase.QUEUED if state.asked else PartPhase.ACCEPTED


def read_participation(data: bytes | str) -> Participation:
    """Return a state of JSON."""
    return _read(data)
