"""The jobs of a party as its clients see them: rows of jobs and tasks, files, logs, and one view for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.frontends.federated.coordination.coordinator import PASSED
from weft.frontends.federated.coordination.records import PartStatus
from weft.frontends.federated.expansion import merged
from weft.frontends.federated.modules import modules
from weft.frontends.federated.prediction import prediction_dsl
from weft.frontends.federated.schema import FederatedJob, Party
from weft.frontends.federated.selection import selected_components
from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.parties.http.ports import (
    JobConfig,
    JobFilter,
    JobGraph,
    JobPart,
    JobRow,
    ModelFilter,
    PartyCores,
    SubmittedJob,
    TaskRow,
)
from weft.parties.inputs import plan_of
from weft.parties.job_views import (
    ENDED,
    PartyViewSources,
    components_of,
    job_view,
    metrics_view,
    model_view,
    own_parts,
    silence,
    state_of,
)
from weft.parties.models import model_id_of
from weft.parties.report import job_report
from weft.parties.tracking import SiteTracking
from weft.parties.work import said

if TYPE_CHECKING:
    from weft.frontends.federated.coordination.coordinator import Coordination
    from weft.frontends.federated.coordination.participant import Participation
    from weft.parties.ledger import JobEntry
    from weft.parties.models import SiteModels
    from weft.parties.part_folders import PartFolders
    from weft.parties.site import PartyDescription
    from weft.parties.work import PartyWork

_FATE: Final[Mapping[PartStatus, str]] = {
    PartStatus.STARTING: "running",
    PartStatus.PREPARED: "running",
    PartStatus.RUNNING: "running",
    PartStatus.STOPPING: "running",
    PartStatus.SUCCESS: "success",
    PartStatus.FAILED: "failed",
    PartStatus.CANCELED: "canceled",
    PartStatus.TIMEOUT: "timeout",
    PartStatus.LOST: "failed",
}
_MOST_LOG: Final = 4 << 20


class SiteJobs:
    """The jobs of one party."""

    def __init__(
        self,
        party: PartyDescription,
        work: PartyWork,
        folders: PartFolders,
        models: SiteModels,
        new_id: Callable[[], str],
    ) -> None:
        self._me, self._work, self._folders, self._new_id = party.id, work, folders, new_id
        self._models, self._cores = models, party.cores
        self.tracking = SiteTracking(folders, work.job, self.part)
        self._views = PartyViewSources(party.id, party.name, work, folders, self.tracking)

    # --------------------------------------------------------------------------------------------------- operations

    def submit(self, dsl: Mapping[str, Any], conf: Mapping[str, Any], user: str) -> SubmittedJob:
        """See `PartyJobs.submit`."""
        dsl, conf = self._models.complete(dsl, conf)
        id = self._new_id()
        texts = _text(dsl), _text(conf)
        job = self._work.submit(id, *texts, {"user": user})
        folder = self._folders.job(id)
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for name, text in zip(("job_dsl.json", "job_runtime_conf.json"), texts, strict=True):
            (folder / name).write_text(text)
        return SubmittedJob(
            job_id=id,
            model_id=model_id_of(job),
            model_version=id,
            logs_directory=str(folder),
            dsl_path=str(folder / "job_dsl.json"),
            conf_path=str(folder / "job_runtime_conf.json"),
        )

    def stop(self, job_id: str, status: str) -> None:
        """See `PartyJobs.stop`."""
        if self._work.entry(job_id).status not in ENDED:
            self._work.stop(job_id, status, f"stopped by a user of party {self._me}")

    def rerun(self, job_id: str, components: Sequence[str], *, force: bool) -> None:
        """See `PartyJobs.rerun`."""
        self._work.rerun(job_id, [one for one in components if one], force=force)

    def note(self, part: JobPart, notes: str) -> None:
        """See `PartyJobs.note`."""
        entry = self._work.entry(part.job_id)
        about = json.loads(entry.about) | {"notes": notes}
        with self._work.ledger.write() as write:
            write.set_job(entry.job, about=json.dumps(about))

    def update(
        self, job_id: str, job_parameters: Mapping[str, Any] | None, component_parameters: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """See `PartyJobs.update`."""
        entry = self._work.entry(job_id)
        if not job_parameters and not component_parameters:
            raise UsageError("no parameters are given", hint="Give job_parameters or component_parameters.")
        conf = json.loads(entry.conf)
        if "component_parameters" not in conf and component_parameters:
            raise UsageError("the conf of the job has version 1, which keeps parameters elsewhere")
        changes = {"job_parameters": job_parameters, "component_parameters": component_parameters}
        changed = conf | {name: merged(conf.get(name) or {}, value) for name, value in changes.items() if value}
        return {"components": self._work.change(job_id, _text(changed))}

    def clean(self, part: JobPart) -> None:
        """See `PartyJobs.clean`."""
        entry = self._work.entry(part.job_id)
        if entry.status not in ENDED:
            raise ConflictError(f"job {entry.job} has not ended", hint="Stop it first.")
        self._folders.remove(entry.job)

    def clean_queue(self) -> Mapping[str, str]:
        """See `PartyJobs.clean_queue`."""
        waiting = [one.job for one in self._work.ledger.jobs(status="waiting") if one.mine]
        for id in waiting:
            self._work.stop(id, "canceled", f"the queue of party {self._me} was cleaned")
        return dict.fromkeys(waiting, "")

    # ------------------------------------------------------------------------------------------------------------ rows

    def query(self, which: JobFilter) -> Sequence[JobRow]:
        """See `PartyJobs.query`."""
        rows = (row for entry in self._entries(which) for row in self._rows(entry) if _fits(row, which))
        return _cut(rows, which)

    def tasks(self, which: JobFilter) -> Sequence[TaskRow]:
        """See `PartyJobs.tasks`."""
        rows = (row for entry in self._entries(which) for row in self._tasks(entry))
        found = (
            row
            for row in rows
            if which.role in ("", row.role)
            and which.party_id in ("", row.party_id)
            and which.component in ("", row.component)
            and which.task_id in ("", row.task_id)
            and (not which.status or row.status in which.status)
        )
        return _cut(found, which)

    def count(self, which: JobFilter, *, tasks: bool = False) -> int:
        """See `PartyJobs.count`."""
        every = JobFilter(**{name: getattr(which, name) for name in which.__struct_fields__} | {"limit": 0, "skip": 0})
        return len(self.tasks(every) if tasks else self.query(every))

    def _entries(self, which: JobFilter) -> list[JobEntry]:
        if which.job_id:
            found = self._work.ledger.job(which.job_id)
            return [] if found is None else [found]
        return self._work.ledger.jobs()

    def _rows(self, entry: JobEntry) -> Iterator[JobRow]:
        job, about = self._work.job(entry.job), json.loads(entry.about)
        state = self._work.coordination(entry.job) if entry.mine else None
        parts = {one.part: one for one in self._work.participations(entry.job)}
        here = [Party(one.role, one.id) for one in job.parts if one.id == self._me]
        for part in here:
            own = parts.get(part)
            statuses = _statuses(state, own)
            yield JobRow(
                job_id=entry.job,
                role=part.role,
                party_id=part.id,
                status=entry.status,
                progress=_progress(job, statuses, entry.status),
                notes=str(about.get("notes", "")),
                user=str(about.get("user", "")),
                roles=job.conf.roles,
                initiator_role=entry.initiator_role,
                initiator_party_id=entry.initiator,
                is_initiator=part == job.conf.initiator,
                dsl=json.loads(entry.dsl),
                conf=json.loads(entry.conf),
                conf_on_party=json.loads(entry.conf),
                cores=own.wish.cores if own is not None and own.wish is not None else 0,
                created_at=entry.created,
                updated_at=entry.ended or entry.started or entry.created,
                started_at=entry.started,
                ended_at=entry.ended,
                reason=_reason(state, own, parts.values(), self._work.mail.hindered()),
                error=_cause(state, own),
            )

    def _tasks(self, entry: JobEntry, *, every: bool = False) -> Iterator[TaskRow]:
        """Yield the tasks that this party knows; with `every` also those of others, as far as it is told of them."""
        job = self._work.job(entry.job)
        state = self._work.coordination(entry.job) if entry.mine else None
        own = {one.part: one for one in self._work.participations(entry.job)}
        for plan in job.parts:
            part = Party(plan.role, plan.id)
            here = own.get(part)
            known = here is not None or state is not None
            if not (known or every):
                continue
            told = _statuses(state, here or next(iter(own.values()), None))
            for component in job.dsl.order:
                if plan.components[component].runs:
                    task = self._task(entry, job, part, component, here, state, told)
                    yield task if known else replace(task, party_status=_elsewhere(task.status))

    def _task(
        self,
        entry: JobEntry,
        job: FederatedJob,
        part: Party,
        component: str,
        here: Participation | None,
        state: Coordination | None,
        statuses: Mapping[str, str],
    ) -> TaskRow:
        report = here.report if here is not None else state.reports.get(str(part)) if state is not None else None
        epoch = state.epoch if state is not None else here.wish.epoch if here is not None and here.wish else 0
        seen = report.components.get(component) if report is not None and report.epoch == epoch else None
        default = "canceled" if entry.status in ENDED else "waiting"
        if component not in selected_components(job):
            default = PASSED
        kept = found if (found := statuses.get(component)) in ("success", PASSED) else default
        failure = None if seen is None or seen.failure is None else said(seen.failure)
        return TaskRow(
            job_id=entry.job,
            component=component,
            module=job.dsl.components[component].module,
            task_id=f"{entry.job}_{component}",
            version=0 if seen is None else seen.attempt,
            role=part.role,
            party_id=part.id,
            status=statuses.get(component, default),
            party_status=kept if seen is None else _FATE[seen.status],
            run_here=part.id == self._me,
            initiator_role=entry.initiator_role,
            initiator_party_id=entry.initiator,
            created_at=entry.created,
            updated_at=(seen and (seen.ended or seen.started)) or entry.created,
            started_at=None if seen is None else seen.started,
            ended_at=None if seen is None else seen.ended,
            error=failure or "",
        )

    # ------------------------------------------------------------------------------------------------- files and logs

    def config(self, part: JobPart) -> JobConfig:
        """See `PartyJobs.config`."""
        entry = self._work.entry(part.job_id)
        return JobConfig(
            job_id=entry.job,
            dsl=json.loads(entry.dsl),
            conf=json.loads(entry.conf),
            conf_on_party=json.loads(entry.conf),
            model_id=model_id_of(self._work.job(entry.job)),
            model_version=entry.job,
        )

    def log_folder(self, job_id: str) -> Path:
        """See `PartyJobs.log_folder`: a folder with the logs of all parts of this party in one file each."""
        job = self._work.job(job_id)
        folder = self._folders.job(job_id) / "logs"
        for plan in job.parts:
            if plan.id != self._me:
                continue
            target = folder / plan.role / plan.id
            target.mkdir(parents=True, exist_ok=True)
            with (target / "INFO.log").open("wb") as out:
                for one in self.logs(job_id, "", plan.role)["logs"]:
                    out.write(f"== {one['name']}\n".encode())
                    out.write(Path(one["path"]).read_bytes()[-_MOST_LOG:])
            (target / "ERROR.log").touch()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def logs(self, job_id: str, component: str, role: str) -> Mapping[str, Any]:
        """See `PartyPeople.logs`."""
        entry, job = self._work.entry(job_id), self._work.job(job_id)
        here = [one for one in own_parts(self._me, job) if role in ("", one.role)]
        found = []
        for name in components_of(job, component):
            for plan in here:
                attempts = self._folders.attempts(job_id, Party(plan.role, plan.id), name)
                (_, attempt), folder = next(reversed(attempts.items()), ((0, 0), None))
                if folder is not None and (folder / "log").is_file():
                    what = name if len(here) == 1 else f"{name}/{plan.role}"
                    found.append({"name": what, "attempt": attempt, "path": str(folder / "log")})
        return {"logs": found, "active": entry.status not in ENDED}

    def graph(self, part: JobPart) -> JobGraph:
        """See `PartyJobs.graph`."""
        job = self._work.job(part.job_id)
        here = self.part(part)
        plan = plan_of(job, here)
        dependencies = {
            name: [
                {"component_name": source, "type": "data", "up_output_info": ["data", 0]}
                for source in job.dsl.upstream[name]
            ]
            for name in job.dsl.order
        }
        return JobGraph(
            components=list(job.dsl.order),
            dependencies=dependencies,
            modules={name: one.module for name, one in job.dsl.components.items()},
            runs={name: plan.components[name].runs for name in job.dsl.order},
        )

    def cores(self) -> PartyCores:
        """See `PartyJobs.cores`."""
        held = self._work.cores.holders()
        holders = [(one.job, *_role_and_id(one.part), one.cores) for one in held]
        return PartyCores(total=self._cores, free=self._cores - sum(one.cores for one in held), holders=holders)

    def predict_dsl(self, train_dsl: Mapping[str, Any], components: Sequence[str], version: str) -> Mapping[str, Any]:
        """See `PartyJobs.predict_dsl`."""
        return prediction_dsl(train_dsl, components)

    def part(self, part: JobPart) -> Party:
        """Return the part of this party that a client means. NotFoundError: there is none."""
        job = self._work.job(part.job_id)
        if part.role or part.party_id:
            found = Party(part.role or job.conf.initiator.role, part.party_id or self._me)
            if all((one.role, one.id) != found for one in job.parts):
                raise NotFoundError(f"job {part.job_id} has no part for {found}")
            return found
        own = [Party(one.role, one.id) for one in job.parts if one.id == self._me]
        return job.conf.initiator if job.conf.initiator in own else own[0]

    # ---------------------------------------------------------------------------------------------------- for people

    def overview(self, limit: int = 0, status: str = "") -> list[dict[str, Any]]:
        """See `PartyPeople.overview`."""
        found, hindered = [], self._work.mail.hindered()
        for entry in self._work.ledger.jobs(limit=limit, status=status):
            state = self._work.coordination(entry.job) if entry.mine else None
            parts = self._work.participations(entry.job)
            own = parts[0] if parts else None
            found.append(
                {
                    "job": entry.job,
                    "status": entry.status,
                    "initiator": f"{entry.initiator_role} {entry.initiator}",
                    "created": entry.created,
                    "seconds": _seconds(entry, self._work.clock.wall()),
                    "reason": _cause(state, own) or _reason(state, own, parts, hindered),
                }
            )
        return found

    def metrics(self, job_id: str, component: str) -> list[dict[str, Any]]:
        """See `PartyPeople.metrics`."""
        return list(metrics_view(self._views, job_id, self._work.job(job_id), component))

    def models(self, which: ModelFilter) -> list[dict[str, Any]]:
        """See `PartyPeople.models`."""
        return [model_view(self._views, row) for row in self._models.query(which)]

    def report(self, id: str) -> dict[str, Any]:
        """See `PartyPeople.report`."""
        state, now = state_of(self._work, id), self._work.clock.wall()
        models = self._models.query(ModelFilter(model_version=id))
        return job_report(self._views, state, self.show(id), models, now)

    def approve(self, id: str, declined: str) -> None:
        """See `PartyPeople.approve`."""
        self._work.approve(id, declined)
        about = json.loads(self._work.entry(id).about)
        decision = {"at": self._work.clock.wall(), "declined": declined}
        about["decisions"] = [*about.get("decisions", ()), decision]
        with self._work.ledger.write() as write:
            write.set_job(id, about=json.dumps(about))

    def step(self, id: str, count: int | None) -> list[str]:
        """See `PartyPeople.step`."""
        return self._work.step(id, count)

    def show(self, id: str) -> dict[str, Any]:
        """See `PartyPeople.show`."""
        state = state_of(self._work, id)
        parts = list(state.own.values())
        return job_view(self._views, state, list(self._tasks(state.entry, every=True))) | {
            "seconds": _seconds(state.entry, self._work.clock.wall()),
            "reason": _cause(state.coordination, parts[0] if parts else None)
            or _reason(state.coordination, None, parts, self._work.mail.hindered()),
        }


def _text(document: Mapping[str, Any]) -> str:
    # Escaped, a character beyond 16 bits would become two, which are none to the reader of files.
    return json.dumps(document, indent=1, ensure_ascii=False)


def known_modules() -> list[str]:
    """Return the names of all modules of FATE."""
    return sorted(modules())


def _role_and_id(part: str) -> tuple[str, str]:
    role, _, id = part.partition(" ")
    return role, id


def _statuses(state: Coordination | None, own: Participation | None) -> Mapping[str, str]:
    if state is not None:
        return state.statuses
    return own.wish.statuses if own is not None and own.wish is not None else {}


def _elsewhere(status: str) -> str:
    """Return the status of a task at another party by that of all parties; "" where they may differ."""
    return status if status in ("success", "running", "waiting", PASSED) else ""


def _progress(job: FederatedJob, statuses: Mapping[str, str], status: str) -> int:
    if status == "success":
        return 100
    ended = sum(one in ENDED for one in statuses.values())
    return ended * 100 // max(1, len(job.dsl.order))


def _cause(state: Coordination | None, own: Participation | None) -> str:
    cause = state.cause if state is not None else own.wish.cause if own is not None and own.wish is not None else None
    return "" if cause is None else said(cause)


def _reason(state: Coordination | None, own: Participation | None, parts: Any, hindered: Mapping[str, str]) -> str:
    """Return what a job waits for."""
    if state is not None and state.waits_for and state.status == "waiting":
        return f"waits for the end of job {', '.join(state.waits_for)}"
    if state is not None and state.held and state.status == "running":
        return f"pauses before {', '.join(state.held)}: weft party step {state.job}"
    if state is not None and state.status == "waiting":
        if state.unreachable:
            return "; ".join(silence(party, hindered) for party in state.unreachable)
        for report in state.reports.values():
            if report.epoch == state.epoch and report.phase.value in ("awaiting_approval", "queued"):
                what = "waits for approval" if report.phase.value == "awaiting_approval" else report.reason
                return f"{report.part}: {what}"
        return ""
    if state is not None and state.status == "running":
        if state.unreachable:
            return "; ".join(silence(party, hindered) for party in state.unreachable)
        for part, silent in state.silent.items():
            if silent:
                return "; ".join(silence(party, hindered, part) for party in silent)
    for one in parts:
        if one.wish is not None and not one.approved and not one.refused and one.wish.job_status == "waiting":
            return f"{one.part} waits for approval: weft party approve {one.job}"
        for silent in one.silent.values():
            if silent:
                return "; ".join(silence(party, hindered, one.part) for party in silent)
        if one.waits_for:
            return f"{one.part}: {one.waits_for}"
    return ""


def _fits(row: JobRow, which: JobFilter) -> bool:
    return (
        which.role in ("", row.role)
        and which.party_id in ("", row.party_id)
        and (not which.status or row.status in which.status)
        and which.user in ("", row.user)
        and which.initiator_role in ("", row.initiator_role)
        and which.initiator_party_id in ("", row.initiator_party_id)
        and which.is_initiator in (None, row.is_initiator)
    )


def _cut(rows: Iterator[Any], which: JobFilter) -> list[Any]:
    found = list(rows)[which.skip :]
    return found[: which.limit] if which.limit else found


def _seconds(entry: JobEntry, now: float) -> float | None:
    if entry.started is None:
        return None
    return max(0.0, (entry.ended or now) - entry.started)
