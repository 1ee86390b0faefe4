"""The half of the initiator: from reports of parts and wishes of users to wishes for parts.

`coordinate` is a pure function. It starts a job in three steps: all parts accept it, all reserve their cores (all or
none), and its components run. A component starts in two: all its parts prepare, then all may go. It ends when all its
parts have ended in the same attempt; the first failure is its cause, and stops the other parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

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

SUCCESS, FAILED, CANCELED, TIMEOUT, LOST = "success", "failed", "canceled", "timeout", "lost"
WAITING, RUNNING, PASSED = "waiting", "running", "pass"
"""The last is that of a component that does not run."""
PREPARE_S: Final = 120.0
"""The seconds that parts have to prepare a component."""
RESERVE_S: Final = 30.0
"""The seconds after which a job gives its cores back if another part still waits for its own."""
PULL_S: Final = 7.0
"""The seconds after which a wish is sent again, to learn the present report: of a running job always, since a party
that stands still is noticed only when it is asked.
"""
_SLOWEST_PULL_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 60.0


class Attempt(Struct, frozen=True):
    """The present attempt of a component. `want` is what its parts are to do, `since` when that began."""

    number: int
    want: Want
    since: float
    reason: str = ""
    failure: PartFailure | None = None
    timed_out: bool = False
    ended: str = ""


class Coordination(Struct, frozen=True, kw_only=True):
    """The state of a job at its initiator.

    `runs_at` has the parts of each component, `cores` the number of cores of each part by its name, `protocols` the
    versions of messages of the modules that it runs, as this party has them. `fail_after` is the
    seconds that a party may be unreachable for the initiator, or for a part (0: any time), `timeout` those from its
    start that the job may take (0: any). `wishes` are the present documents, `reports` the newest known ones, by the
    name of the part. `statuses` are those of components in FATE's words. `unreachable` has since when a party does not
    answer the initiator, and `silent` since when it takes no values of a part, by the name of the part. `hindered` has
    in words why a party takes no messages that answers nevertheless, `gone` those to which there is no way any more.

    `waits_for` has the jobs of this party that must succeed first; no part hears of the job before. `time_limits` has
    the seconds that components may take once all their parts go. `steps` is the number of components that may still
    begin (None: all), and `held` has those that are ready and may not.
    """

    job: str
    initiator: Party
    digest: str
    runs_at: Mapping[str, Sequence[Party]]
    parts: Sequence[Party]
    cores: Mapping[str, int]
    protocols: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fail_after: float = 0.0
    timeout: float = 0.0
    time_limits: Mapping[str, float] = field(default_factory=dict)
    waits_for: Sequence[str] = ()
    steps: int | None = None
    held: Sequence[str] = ()
    epoch: int = 1
    phase: JobPhase = JobPhase.CREATE
    status: str = WAITING
    cause: PartFailure | None = None
    since: float = 0.0
    started: float | None = None
    again_at: float = 0.0
    tries: int = 0
    pulls: int = 0
    pull_at: float = 0.0
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)
    wishes: Mapping[str, Wish] = field(default_factory=dict)
    reports: Mapping[str, Report] = field(default_factory=dict)
    unreachable: Mapping[str, float] = field(default_factory=dict)
    silent: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    hindered: Mapping[str, str] = field(default_factory=dict)
    gone: Sequence[str] = ()
    settled: bool = False


_read: Final = msgspec.json.Decoder(Coordination).decode


# -------------------------------------------------------------------------------------------------------------- events


class Submitted(Struct, frozen=True):
    """The job is new, or goes on after a restart of the server."""


class Begin(Struct, frozen=True):
    """A component is to run: its next attempt begins, unless the present one still runs."""

    component: str


class Halt(Struct, frozen=True):
    """A component is to stop."""

    component: str
    reason: str


class Skipped(Struct, frozen=True):
    """A component does not run, by its trigger rule."""

    component: str


class ReportReceived(Struct, frozen=True):
    """A report has come."""

    report: Report


class Unreachable(Struct, frozen=True):
    """A party does not answer; or it does, and takes no messages, for a reason in words."""

    party: str
    why: str = ""


class Reachable(Struct, frozen=True):
    """A party answers again."""

    party: str


class FinishJob(Struct, frozen=True):
    """The job ends: all its components have, or it was stopped."""

    status: str
    reason: str = ""


class Undeliverable(Struct, frozen=True):
    """A party does not take the wish for a part."""

    part: Party
    failure: PartFailure


class PartyGone(Struct, frozen=True):
    """There is no way to a party any more: it hears of the job no more."""

    party: str
    failure: PartFailure


class Rerun(Struct, frozen=True):
    """An ended job begins its next epoch; `keep` are the statuses of components that do not run again.

    `digest` is that of its files if they have changed.
    """

    keep: Mapping[str, str]
    digest: str = ""


class JobBefore(Struct, frozen=True):
    """A job that this one waits for has ended."""

    job: str
    status: str


class GoOn(Struct, frozen=True):
    """Further components may begin: `count` of them, or all (None)."""

    count: int | None


class CoordinationTick(Struct, frozen=True):
    """Time has passed."""


CoordinationEvent = (
    Submitted
    | Begin
    | Halt
    | Skipped
    | ReportReceived
    | Unreachable
    | Reachable
    | FinishJob
    | Undeliverable
    | PartyGone
    | Rerun
    | JobBefore
    | GoOn
    | CoordinationTick
)


# ------------------------------------------------------------------------------------------------------------- effects


class SendWish(Struct, frozen=True):
    """Send the present wish to a part."""

    part: Party


class CoordinationWake(Struct, frozen=True):
    """CoordinationTick at a time."""

    at: float


class JobReady(Struct, frozen=True):
    """All parts hold their cores: components may begin."""


class ComponentEnded(Struct, frozen=True):
    """The present attempt of a component has ended at all its parts."""

    component: str
    status: str
    failure: PartFailure | None


class JobEnded(Struct, frozen=True):
    """The status of the job is final; parts may still have to hear of it."""

    status: str
    cause: PartFailure | None


class JobSettled(Struct, frozen=True):
    """All parts have ended, and the job needs no more."""


CoordinationEffect = SendWish | CoordinationWake | JobReady | ComponentEnded | JobEnded | JobSettled


# ---------------------------------------------------------------------------------------------------------------- step


def coordinate(
    state: Coordination, event: CoordinationEvent, now: float
) -> tuple[Coordination, list[CoordinationEffect]]:
    """Return the next state and the effects of an event at a time in seconds since 1970."""
    effects: list[CoordinationEffect] = []
    changed = _taken(state, event, now)
    for _ in range(8):  # a step may follow from the one before, such as reserve after create
        moved = _moved(changed, now, effects)
        if moved is changed:
            break
        changed = moved
    if changed.phase is JobPhase.END and state.phase is not JobPhase.END:
        effects += [
            ComponentEnded(name, CANCELED, changed.cause) for name, one in state.attempts.items() if not one.ended
        ]
        effects.append(JobEnded(changed.status, changed.cause))
    left = [name for name in state.held if name not in changed.held and name not in changed.attempts]
    effects += [ComponentEnded(name, CANCELED, changed.cause) for name in left]
    changed = _with_wishes(changed, effects)
    if isinstance(event, (Submitted, CoordinationTick)) and not changed.settled:
        changed = _pulled(changed, now, effects, always=isinstance(event, Submitted))
    if not changed.settled and not changed.waits_for:
        effects.append(CoordinationWake(_next_time(changed, now)))
    return changed, effects


def _taken(state: Coordination, event: CoordinationEvent, now: float) -> Coordination:
    match event:
        case ReportReceived(report):
            if report.part not in state.parts or report.job != state.job or report.epoch > state.epoch:
                return state
            if not is_newer(report, state.reports.get(str(report.part))):
                return state
            known = state.silent.get(str(report.part), {})
            silent = {party: known.get(party, now) for party in report.silent if report.epoch == state.epoch}
            return replace(
                state,
                reports={**state.reports, str(report.part): report},
                silent={**state.silent, str(report.part): silent},
                pulls=0,
                pull_at=now + PULL_S,
            )
        case Begin(component):
            return _begun(state, component, now)
        case Halt(component, reason):
            attempt = state.attempts.get(component)
            if attempt is None:
                return replace(state, held=[name for name in state.held if name != component])
            if attempt.ended:
                return state
            return _with_attempt(state, component, _stopped(attempt, reason, None, now))
        case Skipped(component):
            return replace(state, statuses={**state.statuses, component: PASSED})
        case Unreachable(party, why):
            hindered = _without(state.hindered, party) | ({party: why} if why else {})
            return replace(state, unreachable={party: now, **state.unreachable}, hindered=hindered)
        case Reachable(party):
            left, hindered = _without(state.unreachable, party), _without(state.hindered, party)
            state = _prepared_anew(state, now) if party in state.unreachable else state
            return replace(state, unreachable=left, hindered=hindered, pulls=0, pull_at=now)
        case FinishJob(status, reason):
            return _finished(state, status, PartFailure(reason, state.initiator.id) if reason else None, now)
        case Undeliverable(part, failure):
            return _finished(state, FAILED, replace(failure, party=failure.party or part.id), now)
        case PartyGone(party, failure):
            return _finished(replace(state, gone=sorted({*state.gone, party})), FAILED, failure, now)
        case Rerun():
            return _rerun(state, event, now)
        case JobBefore(job, status):
            return _after(state, job, status, now)
        case GoOn(count):
            more = None if count is None or state.steps is None else state.steps + count
            return _released(replace(state, steps=more), now)
        case Submitted():  # after a restart it is not known any more who answers
            anew = {part: dict.fromkeys(parties, now) for part, parties in state.silent.items()}
            state = _prepared_anew(state, now)
            return replace(state, since=state.since or now, unreachable={}, hindered={}, silent=anew)
        case _:
            return state


def _prepared_anew(state: Coordination, now: float) -> Coordination:
    """Give all that is being prepared its time anew: a server did not run, or was not reached, for some of it."""
    attempts = {
        name: replace(one, since=now) if one.want is Want.PREPARE and not one.ended else one
        for name, one in state.attempts.items()
    }
    return replace(state, attempts=attempts)


def _begun(state: Coordination, component: str, now: float) -> Coordination:
    attempt = state.attempts.get(component)
    if state.phase is not JobPhase.RUN or (attempt is not None and not attempt.ended):
        return state
    if attempt is None and state.steps is not None:
        if state.steps == 0:
            return state if component in state.held else replace(state, held=[*state.held, component])
        state = replace(state, steps=state.steps - 1)
    number = 0 if attempt is None else attempt.number + 1
    begun = _with_attempt(state, component, Attempt(number, Want.PREPARE, now))
    return replace(begun, statuses={**begun.statuses, component: RUNNING})


def _released(state: Coordination, now: float) -> Coordination:
    """Begin the components that were held, as far as they may."""
    while state.held and state.steps != 0:
        component, *others = state.held
        state = _begun(replace(state, held=others), component, now)
    return state


def _after(state: Coordination, job: str, status: str, now: float) -> Coordination:
    """Go on after a job that this one waits for."""
    if job not in state.waits_for or state.phase is JobPhase.END:
        return state
    if status != SUCCESS:
        message = f"job {job}, after which it runs, ended as {status}"
        return _finished(state, FAILED, PartFailure(message, state.initiator.id), now)
    return replace(state, waits_for=[one for one in state.waits_for if one != job], since=now)


def _rerun(state: Coordination, event: Rerun, now: float) -> Coordination:
    if state.phase is not JobPhase.END:
        return state
    return replace(
        state,
        digest=event.digest or state.digest,
        epoch=state.epoch + 1,
        phase=JobPhase.CREATE,
        status=WAITING,
        cause=None,
        since=now,
        started=None,
        again_at=0.0,
        tries=0,
        unreachable={},
        silent={},
        hindered={},
        gone=(),
        attempts={},
        statuses=dict(event.keep),
        waits_for=(),
        held=(),
        settled=False,
    )


def _finished(state: Coordination, status: str, cause: PartFailure | None, now: float) -> Coordination:
    """End the job, unless it has ended."""
    if state.phase is JobPhase.END:
        return state
    first = next((one.failure for one in state.attempts.values() if one.failure is not None), None)
    cause = None if status == SUCCESS else state.cause or first or cause
    left = {name: CANCELED for name, one in state.attempts.items() if not one.ended}
    return replace(
        state,
        phase=JobPhase.END,
        status=status,
        cause=cause,
        since=now,
        statuses={**state.statuses, **left},
        attempts={name: replace(one, ended=one.ended or CANCELED) for name, one in state.attempts.items()},
        held=(),
    )


# ------------------------------------------------------------------------------------------------ what follows from it


def _moved(state: Coordination, now: float, effects: list[CoordinationEffect]) -> Coordination:
    """Return the state after what follows from the reports; the same object if nothing does."""
    if state.settled:
        return state
    if state.phase is not JobPhase.END:
        ended = _ended_early(state, now)
        if ended is not None:
            return ended
    if state.phase in (JobPhase.CREATE, JobPhase.RESERVE):
        return _starting(state, now, effects)
    if state.phase is JobPhase.RUN:
        for component, attempt in state.attempts.items():
            if not attempt.ended:
                moved = _component_moved(state, component, attempt, now, effects)
                if moved is not state:
                    return moved
        return state
    unknown = bool(state.waits_for)  # no part has heard of the job
    if unknown or all(_phase(state, part) is PartPhase.ENDED or _given_up(state, part, now) for part in state.parts):
        effects.append(JobSettled())
        return replace(state, settled=True)
    return state


def _ended_early(state: Coordination, now: float) -> Coordination | None:
    """Return the ended job if a part has refused it, ended or is away for too long, or if its time is over."""
    for part in state.parts:
        report = state.reports.get(str(part))
        if (failure := _versions_differ(state, part)) is not None:
            return _finished(state, FAILED, failure, now)
        if report is not None and report.epoch == state.epoch and report.phase is PartPhase.REFUSED:
            return _finished(state, FAILED, PartFailure(f"{part} refused: {report.reason}", part.id), now)
        if report is not None and report.epoch == state.epoch and report.phase is PartPhase.ENDED:
            message = report.reason or f"{part} has ended its part"
            return _finished(state, FAILED, PartFailure(message, part.id), now)
        if _given_up(state, part, now):
            message = f"{part} did not answer for {state.fail_after:g} s{_why_not(state, part.id)}"
            return _finished(state, FAILED, PartFailure(message, part.id, "WEFT604"), now)
        for party, since in state.silent.get(str(part), {}).items():
            if state.fail_after and now >= since + state.fail_after:
                message = f"party {party} did not answer {part} for {state.fail_after:g} s{_why_not(state, party)}"
                return _finished(state, FAILED, PartFailure(message, party, "WEFT604"), now)
    if state.timeout and state.started is not None and now >= state.started + state.timeout:
        message = f"the job took longer than its timeout of {state.timeout:g} s"
        return _finished(state, TIMEOUT, PartFailure(message, state.initiator.id), now)
    return None


def _versions_differ(state: Coordination, part: Party) -> PartFailure | None:
    """Return that a part that has answered the present wish has other versions of messages than this party."""
    report, wish, own = state.reports.get(str(part)), state.wishes.get(str(part)), state.protocols.get(str(part), {})
    if report is None or wish is None or report.epoch != state.epoch or report.wish_version < wish.version:
        return None
    return version_failure(state.initiator, own, part, report.protocols) if wish.protocols == own else None


def _starting(state: Coordination, now: float, effects: list[CoordinationEffect]) -> Coordination:
    phases = [_phase(state, part) for part in state.parts]
    if state.phase is JobPhase.CREATE:
        free = all(phase is PartPhase.ACCEPTED for phase in phases)
        return replace(state, phase=JobPhase.RESERVE, since=now) if free and now >= state.again_at else state
    if all(phase is PartPhase.RESERVED for phase in phases):
        effects.append(JobReady())
        return replace(state, phase=JobPhase.RUN, status=RUNNING, since=now, started=now)
    holds = any(phase is PartPhase.RESERVED for phase in phases)
    if holds and len(phases) > 1 and now >= state.since + RESERVE_S:
        tries = state.tries + 1
        pause = min(2.0**tries, _LONGEST_PAUSE_S) * (0.5 + _share(f"{state.job}/{tries}"))
        return replace(state, phase=JobPhase.CREATE, since=now, tries=tries, again_at=now + pause)
    return state


def _component_moved(
    state: Coordination, component: str, attempt: Attempt, now: float, effects: list[CoordinationEffect]
) -> Coordination:
    parts = state.runs_at[component]
    seen = {part: _observed(state, part, component, attempt.number) for part in parts}
    if attempt.want is not Want.STOP:
        bad = next(
            ((part, one) for part, one in seen.items() if one and one.status in ENDED_STATUSES - {PartStatus.SUCCESS}),
            None,
        )
        if bad is not None:
            part, one = bad
            failure = one.failure or PartFailure(f"{component} of {part} ended as {one.status.value}", part.id)
            failure = failure if failure.party else replace(failure, party=part.id)
            reason = f"stopped because {part} failed: {failure.message}"
            lost = one.status is PartStatus.LOST
            stopped = _stopped(attempt, reason, None if lost else failure, now)
            return _with_attempt(state, component, replace(stopped, ended=""))
        if all(one is not None and one.status is PartStatus.SUCCESS for one in seen.values()):
            return _component_ended(state, component, attempt, SUCCESS, effects)
        ready = (PartStatus.PREPARED, PartStatus.RUNNING, PartStatus.SUCCESS)
        if attempt.want is Want.PREPARE and all(one is not None and one.status in ready for one in seen.values()):
            return _with_attempt(state, component, replace(attempt, want=Want.GO, since=now))
        if attempt.want is Want.PREPARE and now >= attempt.since + PREPARE_S and not state.unreachable:
            slow = [part for part, one in seen.items() if one is None or one.status not in ready]
            message = f"{', '.join(map(str, slow))} did not prepare {component} in {PREPARE_S:g} s"
            return _with_attempt(state, component, _stopped(attempt, message, PartFailure(message, slow[0].id), now))
        limit = state.time_limits.get(component, 0.0)
        if limit and attempt.want is Want.GO and now >= attempt.since + limit:
            message = f"{component} took longer than its timeout of {limit:g} s"
            failure = PartFailure(message, state.initiator.id)
            return _with_attempt(state, component, replace(_stopped(attempt, message, failure, now), timed_out=True))
        return state
    if not all(one is not None and one.status in ENDED_STATUSES for one in seen.values()):
        return state
    failed = [one for one in seen.values() if one is not None]
    status = FAILED if attempt.failure else CANCELED
    if not attempt.failure and any(one.status is PartStatus.LOST for one in failed):
        status = LOST
    if attempt.timed_out or any(one.status is PartStatus.TIMEOUT for one in failed):
        status = TIMEOUT
    return _component_ended(state, component, attempt, status, effects)


def _component_ended(
    state: Coordination, component: str, attempt: Attempt, status: str, effects: list[CoordinationEffect]
) -> Coordination:
    failure = attempt.failure
    if failure is None and status not in (SUCCESS, LOST):
        failure = PartFailure(attempt.reason or status)
    effects.append(ComponentEnded(component, status, failure))
    ended = _with_attempt(state, component, replace(attempt, ended=status))
    shown = FAILED if status == LOST else status
    return replace(ended, statuses={**ended.statuses, component: shown})


def _stopped(attempt: Attempt, reason: str, failure: PartFailure | None, now: float) -> Attempt:
    if attempt.want is Want.STOP:
        return attempt
    return replace(attempt, want=Want.STOP, since=now, reason=reason, failure=failure)


def _with_attempt(state: Coordination, component: str, attempt: Attempt) -> Coordination:
    return replace(state, attempts={**state.attempts, component: attempt})


def _phase(state: Coordination, part: Party) -> PartPhase | None:
    """Return how far a part is with the present wish."""
    report, wish = state.reports.get(str(part)), state.wishes.get(str(part))
    if report is None or wish is None or report.epoch != state.epoch or report.wish_version < wish.version:
        return None
    return report.phase if wish.phase is state.phase else None


def _observed(state: Coordination, part: Party, component: str, attempt: int) -> ObservedAttempt | None:
    report = state.reports.get(str(part))
    if report is None or report.epoch != state.epoch:
        return None
    found = report.components.get(component)
    return found if found is not None and found.attempt == attempt else None


def _without(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {one: value for one, value in values.items() if one != name}


def _why_not(state: Coordination, party: str) -> str:
    """Return what is known about a party that does not answer, behind a colon."""
    known = [state.hindered, *(one.hindered for one in state.reports.values())]
    why = next((one[party] for one in known if party in one), "")
    return f": it {why}" if why else ""


def _given_up(state: Coordination, part: Party, now: float) -> bool:
    since = state.unreachable.get(part.id)
    if part.id in state.gone:
        return True
    return bool(state.fail_after) and since is not None and now >= since + state.fail_after


# -------------------------------------------------------------------------------------------------------------- wishes


def _with_wishes(state: Coordination, effects: list[CoordinationEffect]) -> Coordination:
    """Return the state with the wishes that follow from it, and send those that have changed."""
    if state.waits_for:
        return state
    wishes = dict(state.wishes)
    for part in state.parts:
        old = wishes.get(str(part))
        wish = _wish(state, part, 0 if old is None else old.version)
        if wish != old:
            wishes[str(part)] = replace(wish, version=wish.version + 1)
            effects.append(SendWish(part))
    return replace(state, wishes=wishes) if wishes != state.wishes else state


def _wish(state: Coordination, part: Party, version: int) -> Wish:
    orders = {
        name: ComponentOrder(one.number, one.want, one.reason)
        for name, one in state.attempts.items()
        if part in state.runs_at[name] and not (one.ended and one.ended != SUCCESS and state.phase is JobPhase.END)
    }
    return Wish(
        job=state.job,
        part=part,
        initiator=state.initiator,
        digest=state.digest,
        cores=state.cores[str(part)],
        epoch=state.epoch,
        version=version,
        phase=state.phase,
        components=orders if state.phase is JobPhase.RUN else {},
        job_status=state.status,
        statuses=state.statuses,
        cause=state.cause,
        protocols=state.protocols.get(str(part), {}),
    )


def _pulled(state: Coordination, now: float, effects: list[CoordinationEffect], *, always: bool) -> Coordination:
    """Send wishes again if it is time, so that a report that was lost comes with the answer."""
    if state.waits_for or (not always and now < state.pull_at):
        return state
    sent = {one.part for one in effects if isinstance(one, SendWish)}
    effects += [SendWish(part) for part in state.parts if part not in sent]
    pulls = state.pulls + 1
    pause = PULL_S if state.status == RUNNING else min(PULL_S * 2 ** min(pulls - 1, 4), _SLOWEST_PULL_S)
    return replace(state, pulls=pulls, pull_at=now + pause)


def _next_time(state: Coordination, now: float) -> float:
    """Return when time alone may change something."""
    times = list(_times(state, now))
    return max(now, min(times))


def _times(state: Coordination, now: float) -> Iterator[float]:
    yield max(state.pull_at, now)
    if state.phase is JobPhase.CREATE and state.again_at > now:
        yield state.again_at
    if state.phase is JobPhase.RESERVE and state.since + RESERVE_S > now:
        yield state.since + RESERVE_S
    if state.timeout and state.started is not None and state.phase is JobPhase.RUN:
        yield state.started + state.timeout
    if state.fail_after:
        begun = [state.unreachable, *state.silent.values()]
        yield from (at + state.fail_after for one in begun for at in one.values() if at + state.fail_after > now)
    for name, one in state.attempts.items():
        if not one.ended and one.want is Want.PREPARE and one.since + PREPARE_S > now:
            yield one.since + PREPARE_S
        if not one.ended and one.want is Want.GO and name in state.time_limits:
            yield one.since + state.time_limits[name]


def _share(text: str) -> float:
    """Return a number from 0 to 1 that follows from a text, so that two jobs do not wait alike."""
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big") / 2**32


def read_coordination(data: bytes | str) -> Coordination:
    """Return a state of JSON."""
    return _read(data)
