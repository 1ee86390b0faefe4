"""One job as the people of a party see it: each part, each component, what it waits for, and what has left the site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.frontends.federated.components.messages import message_words
from weft.frontends.federated.coordination.records import JobPhase, PartPhase, PartStatus, Want
from weft.frontends.federated.crypto.keys import asks_for_plain
from weft.frontends.federated.schema import Party
from weft.model.errors import NotFoundError
from weft.parties.fate_metrics import is_single
from weft.parties.inputs import tables_of
from weft.parties.tracking import BINNING
from weft.parties.traffic import KindExchange, exchanges
from weft.parties.values import Traffic

if TYPE_CHECKING:
    from weft.frontends.federated.coordination.coordinator import Coordination
    from weft.frontends.federated.coordination.participant import Participation
    from weft.frontends.federated.coordination.records import PartFailure, Report
    from weft.frontends.federated.schema import FederatedJob
    from weft.graph.party_plan import PartyPlan
    from weft.parties.http.ports import ModelRow, TaskRow
    from weft.parties.ledger import JobEntry
    from weft.parties.part_folders import PartFolders
    from weft.parties.tracking import SiteTracking
    from weft.parties.work import PartyWork

ENDED: Final = frozenset({"success", "failed", "canceled", "timeout"})
_PHASES: Final[Mapping[PartPhase, str]] = {
    PartPhase.AWAITING: "waits for approval",
    PartPhase.ACCEPTED: "has accepted",
    PartPhase.REFUSED: "has refused",
    PartPhase.QUEUED: "waits for cores",
    PartPhase.RESERVED: "holds its cores",
    PartPhase.ENDED: "has ended",
}
_RUNS: Final = "runs"
_EVALUATION: Final = "Evaluation"
_NOT_HEARD: Final = "has not answered yet"
_ELSEWHERE: Final = "known to its party and to the initiator"


class PartyViewSources(NamedTuple):
    """What the views of jobs are made of. `me` is the id of the party, `name` what its people call it."""

    me: str
    name: str
    work: PartyWork
    folders: PartFolders
    tracking: SiteTracking


class ViewedJob(NamedTuple):
    """A job with the states of its coordination (at the initiator alone) and of the parts of this party."""

    entry: JobEntry
    job: FederatedJob
    coordination: Coordination | None
    own: Mapping[Party, Participation]

    @property
    def cause(self) -> PartFailure | None:
        """The first failure of the job, None if there is none."""
        if self.coordination is not None:
            return self.coordination.cause
        return next((one.wish.cause for one in self.own.values() if one.wish is not None), None)

    @property
    def runs(self) -> bool:
        """Whether components may run."""
        if self.coordination is not None:
            return self.coordination.phase is JobPhase.RUN
        return any(one.wish is not None and one.wish.phase is JobPhase.RUN for one in self.own.values())

    def report(self, part: Party) -> Report | None:
        """Return the newest report of a part in this epoch, as far as it is known here."""
        if part in self.own:
            return self.own[part].report
        found = None if self.coordination is None else self.coordination.reports.get(str(part))
        return found if found is not None and self.coordination and found.epoch == self.coordination.epoch else None


def state_of(work: PartyWork, id: str) -> ViewedJob:
    """Return a job with its states. NotFoundError: there is none."""
    entry, job = work.entry(id), work.job(id)
    state = work.coordination(id) if entry.mine else None
    return ViewedJob(entry, job, state, {one.part: one for one in work.participations(id)})


def job_view(sources: PartyViewSources, state: ViewedJob, tasks: Sequence[TaskRow]) -> dict[str, Any]:
    """Return what a job is at a party, as JSON; times are in seconds since 1970, sizes in bytes."""
    entry, job = state.entry, state.job
    moved = [
        one
        for plan in own_parts(sources.me, job)
        for name in job.dsl.order
        for one in exchanges(sources.folders, sources.work.hub, entry.job, Party(plan.role, plan.id), name)
    ]
    components = [_component(state, name, tasks, moved) for name in job.dsl.order]
    figures: dict[str, float] = {}
    for plan in own_parts(sources.me, job):
        for name in job.dsl.order:
            if job.dsl.components[name].module in BINNING:
                continue  # it has a figure for each column
            found = sources.tracking.figures(entry.job, Party(plan.role, plan.id), name)
            figures |= {f"{name} {key}": value for key, value in found.items()}
    warnings = [
        f"{name} of {plan.name}: {one}"
        for plan in own_parts(sources.me, job)
        for name in job.dsl.order
        for one in sources.tracking.warnings(entry.job, Party(plan.role, plan.id), name)
    ]
    cause = state.cause
    return {
        "job": entry.job,
        "status": entry.status,
        "party": sources.me,
        "initiator": f"{entry.initiator_role} {entry.initiator}",
        "created": entry.created,
        "started": entry.started,
        "ended": entry.ended,
        "cause": None
        if cause is None
        else {"message": cause.message, "party": cause.party, "code": cause.code, "hint": cause.hint},
        "notes": [*job.notes, *warnings],
        "tables": list(_tables(sources.me, job)),
        "parts": [part_view(sources.me, state, plan, moved) for plan in job.parts],
        "waits": list(_waits(sources, state)) or list(_unacknowledged(sources, state)),
        "components": components,
        "left": [_left(job, one) for one in _by_size(moved) if one.traffic.values_out],
        "metrics": figures,
    }


def _tables(me: str, job: FederatedJob) -> Iterator[dict[str, str]]:
    """Yield the tables of this party that a job reads, with the part and the component that reads each."""
    for plan in own_parts(me, job):
        for name, component in job.dsl.components.items():
            for namespace, table in tables_of(component, plan) if plan.components[name].runs else ():
                yield {"namespace": namespace, "name": table, "part": plan.name, "component": name}


def own_parts(me: str, job: FederatedJob) -> list[PartyPlan]:
    """Return the plans of the parts of a party."""
    return [one for one in job.parts if one.id == me]


# --------------------------------------------------------------------------------------------------------------- parts


def part_view(me: str, state: ViewedJob, plan: PartyPlan, moved: Sequence[KindExchange]) -> dict[str, Any]:
    """Return a part: who it is, how far it is, and what this party has exchanged with it."""
    part = Party(plan.role, plan.id)
    total = Traffic()
    for one in moved:
        if one.other == part:
            total.add(one.traffic)
    return {
        "part": plan.name,
        "role": plan.role,
        "party": plan.id,
        "here": plan.id == me,
        "state": _part_state(state, plan),
        "sent": total.bytes_out,
        "received": total.bytes_in,
    }


def _part_state(state: ViewedJob, plan: PartyPlan) -> str:
    part = Party(plan.role, plan.id)
    if not any(one.runs for one in plan.components.values()):
        return "takes no part"
    if state.coordination is None and part not in state.own:
        return "has ended" if state.entry.status in ENDED else _ELSEWHERE
    report = state.report(part)
    if report is None:
        return _NOT_HEARD if state.entry.status not in ENDED else "has not heard of the end"
    if report.phase is PartPhase.REFUSED and report.reason:
        return f"has refused: {report.reason}"
    if report.phase is PartPhase.RESERVED and state.runs:
        return _RUNS
    if state.entry.status in ENDED and report.phase is not PartPhase.ENDED:
        return "has not heard of the end"
    return _PHASES[report.phase]


# --------------------------------------------------------------------------------------------------------------- waits


def _waits(sources: PartyViewSources, state: ViewedJob) -> Iterator[dict[str, Any]]:
    """Yield what a job waits for: approvals, cores, parties that do not answer, documents, other parts."""
    unreachable = dict(sources.work.mail.unreachable())
    if state.coordination is not None:
        unreachable |= state.coordination.unreachable
    hindered = sources.work.mail.hindered()
    yield from _unheard(sources, state, unreachable, hindered)
    if state.entry.status in ENDED:
        return
    if problem := sources.work.problem():
        yield _wait(f"this party cannot write its records: {problem}", None, sources.me)
    if state.coordination is not None:
        for earlier in state.coordination.waits_for if state.entry.status == "waiting" else ():
            yield _wait(f"job {earlier} has not ended, and this one comes after it", None)
        if state.coordination.held:
            before = ", ".join(state.coordination.held)
            yield _wait(f"the job pauses before {before}: weft party step {state.entry.job}", None)
    yield from _cut_links(state, hindered)
    for plan in state.job.parts:
        part = Party(plan.role, plan.id)
        report, own = state.report(part), state.own.get(part)
        if own is not None and own.wish is not None and not own.approved and not own.refused:
            yield _wait(f"{part} waits for approval: weft party approve {state.entry.job}", part)
        elif own is not None and own.waits_for:
            yield _wait(f"{part} {own.waits_for}", part)
        elif report is not None and own is None and report.phase is PartPhase.AWAITING:
            yield _wait(f"{part} waits for the approval of party {part.id}", part)
        elif report is not None and own is None and report.phase is PartPhase.QUEUED:
            yield _wait(f"{part} {report.reason or 'waits for cores'}", part)
    for name, parts in _unprepared(state).items():
        yield _wait(f"{name} waits until it is prepared by {', '.join(map(str, parts))}", parts[0])


def _waiting_for(sources: PartyViewSources, state: ViewedJob) -> set[str]:
    """Return the parties that have not acknowledged the latest document about a part."""
    documents = sources.work.ledger.documents(state.entry.job)
    return {one.receiver for one in documents if one.acknowledged < one.version}


def silence(party: str, hindered: Mapping[str, str], part: object = "") -> str:
    """Return in words that a party takes no messages, or no values of a part."""
    if party in hindered:
        return f"party {party} {hindered[party]}" + (f", and takes no values of {part}" if part else "")
    return f"party {party} does not answer {part}".rstrip()


def _unheard(
    sources: PartyViewSources, state: ViewedJob, unreachable: Mapping[str, float], hindered: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the parties of a job that do not answer, if it needs them."""
    waiting = _waiting_for(sources, state)
    for party in sorted({plan.id for plan in state.job.parts} - {sources.me}):
        if party in unreachable and (party in waiting or state.entry.status not in ENDED):
            told = "; it has not acknowledged the latest message" if party in waiting else ""
            yield _wait(f"{silence(party, hindered)}{told}", None, party, unreachable[party])


def _unacknowledged(sources: PartyViewSources, state: ViewedJob) -> Iterator[dict[str, Any]]:
    """Yield the parties with a message on its way, which is told only where nothing else is."""
    for party in sorted(_waiting_for(sources, state) - {sources.me}):
        yield _wait(f"party {party} has not acknowledged the latest message yet", None, party)


def _cut_links(state: ViewedJob, hindered: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the parties that take no values of a part, though others may reach them."""
    if state.coordination is not None:
        for part, parties in state.coordination.silent.items():
            for party, since in parties.items():
                yield _wait(silence(party, hindered, part), None, party, since)
        return
    for own, one in state.own.items():
        for party in sorted({party for parties in one.silent.values() for party in parties}):
            yield _wait(silence(party, hindered, own), None, party)


def _unprepared(state: ViewedJob) -> dict[str, list[Party]]:
    """Return the parts that have not prepared a component, for which its other parts wait."""
    found = {}
    for name, attempt in () if state.coordination is None else state.coordination.attempts.items():
        if attempt.want is not Want.PREPARE or attempt.ended or state.coordination is None:
            continue
        late = []
        for part in state.coordination.runs_at[name]:
            report = state.report(part)
            seen = None if report is None else report.components.get(name)
            if seen is None or seen.attempt != attempt.number or seen.status is PartStatus.STARTING:
                late.append(part)
        if late and len(late) < len(state.coordination.runs_at[name]):
            found[name] = late
    return found


def _wait(what: str, part: Party | None, party: str = "", since: float | None = None) -> dict[str, Any]:
    return {"what": what, "party": party or (part.id if part else ""), "since": since}


# ---------------------------------------------------------------------------------------------------------- components


def _component(state: ViewedJob, name: str, tasks: Sequence[TaskRow], moved: Sequence[KindExchange]) -> dict[str, Any]:
    """Return a component: its status at each part (None: not known here), its times here, and the bytes by partner."""
    own = [row for row in tasks if row.component == name]
    begun = [row.started_at for row in own if row.started_at is not None and row.run_here]
    done = [row.ended_at for row in own if row.ended_at is not None and row.run_here]
    runs = bool(begun) and len(done) < len(begun)
    partners: dict[Party, Traffic] = {}
    for one in moved:
        if one.component == name:
            partners.setdefault(one.other, Traffic()).add(one.traffic)
    status = own[0].status if own else "success"
    runs_here = any(row.run_here for row in own)
    above = state.job.dsl.upstream[name]
    ended = {row.component for row in tasks if row.status in {*ENDED, "pass"}}
    return {
        "name": name,
        "module": state.job.dsl.components[name].module,
        "status": status,
        "parts": {
            plan.name: next((row.party_status for row in own if (row.role, row.party_id) == (plan.role, plan.id)), None)
            for plan in state.job.parts
            if plan.components[name].runs
        },
        "attempt": max((row.version for row in own), default=0),
        "kept": status == "success" and runs_here and not begun and state.entry.started is not None,
        "upstream": list(above),
        "waits_for": [one for one in above if one not in ended] if status == "waiting" else [],
        "started": min(begun) if begun else None,
        "ended": max(done) if done and not runs else None,
        "seconds": max(done) - min(begun) if begun and done and not runs else None,
        "sent": sum(one.bytes_out for one in partners.values()),
        "received": sum(one.bytes_in for one in partners.values()),
        "partners": [
            {"part": str(other), "sent": one.bytes_out, "received": one.bytes_in} for other, one in partners.items()
        ],
        "reason": next((row.error for row in own if row.error), ""),
    }


# ------------------------------------------------------------------------------------------------------------- metrics


def components_of(job: FederatedJob, name: str) -> Sequence[str]:
    """Return the names of all components of a job, or of one. NotFoundError: there is none of this name."""
    if name and name not in job.dsl.components:
        raise NotFoundError(f"the job has no component {name!r}", hint=f"It has {', '.join(job.dsl.order)}.")
    return [name] if name else job.dsl.order


def metrics_view(sources: PartyViewSources, id: str, job: FederatedJob, component: str) -> Iterator[dict[str, Any]]:
    """Yield what the components of a job have kept at each part of this party. NotFoundError: no such component."""
    for name in components_of(job, component):
        for plan in own_parts(sources.me, job):
            part = Party(plan.role, plan.id)
            series = sources.tracking.series(id, part, name)
            bins = sources.tracking.bins(id, part, name)
            module = job.dsl.components[name].module
            if series or bins:
                yield {
                    "component": name,
                    "module": module,
                    "part": plan.name,
                    "bins": bins,
                    "confusion": sources.tracking.confusions(id, part, name) if module == _EVALUATION else [],
                    "series": [
                        {
                            "namespace": one.namespace,
                            "name": one.name,
                            "kind": one.about.get("metric_type", ""),
                            "single": is_single(one),
                            "points": [list(point) for point in one.points],
                        }
                        for one in series
                        if not (bins and one.namespace.partition("/")[0] in ("iv", "woe"))
                    ],
                }


def model_view(sources: PartyViewSources, row: ModelRow) -> dict[str, Any]:
    """Return a version of a model, with what the evaluations of its training job have measured at this party."""
    trained = row.parent_version or row.model_version
    metrics: dict[str, float] = {}
    with suppress(NotFoundError):  # an imported model has no job here
        job = sources.work.job(trained)
        for name in job.dsl.order:
            if job.dsl.components[name].module == _EVALUATION:
                found = sources.tracking.figures(trained, Party(row.role, row.party_id), name)
                metrics |= {f"{name} {key}": value for key, value in found.items()}
    kind = "imported" if row.detail.get("imported") else "trained"
    return {
        "version": row.model_version,
        "kind": kind if row.parent else "deployed",
        "job": trained,
        "model_id": row.model_id,
        "role": row.role,
        "party": row.party_id,
        "parties": {role: list(ids) for role, ids in row.roles.items()},
        "created": row.created_at,
        "bytes": row.nbytes,
        "components": list(row.detail.get("components", ())),
        "tags": list(row.tags),
        "services": list(row.services),
        "metrics": metrics,
    }


# ------------------------------------------------------------------------------------------------------------- traffic


def _by_size(moved: Sequence[KindExchange]) -> list[KindExchange]:
    return sorted(moved, key=lambda one: -one.traffic.bytes_out)


def _left(job: FederatedJob, one: KindExchange) -> dict[str, Any]:
    """Return what has left this party, of one kind."""
    component = job.dsl.components[one.component]
    plan = next(plan for plan in job.parts if (plan.role, plan.id) == one.part)
    plain = asks_for_plain(plan.components[one.component].parameters)
    return {
        "component": one.component,
        "from": str(one.part),
        "to": str(one.other),
        "kind": one.kind,
        "what": message_words(component.module, one.kind, plain=plain),
        "messages": one.traffic.values_out,
        "bytes": one.traffic.bytes_out,
    }
