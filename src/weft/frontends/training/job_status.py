"""The status of the jobs of a run: what its controller says, what its replicas report, and what is told of both."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.training.census import restarts_unlimited
from weft.frontends.training.compiler import as_json, requests_of
from weft.frontends.training.conditions import has_finished, is_true, with_end
from weft.frontends.training.controller import SCALE_REFUSED, TUNED_EVENT, is_told
from weft.frontends.training.desired import is_ours
from weft.frontends.training.job_news import condition_news, linger_text, restart_text
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.metrics import MetricsReader, trainer_status
from weft.frontends.training.observed import CANCELLED, FAILED, SUSPENDED, JobStatus
from weft.model.ids import loop_item
from weft.model.records import converter
from weft.store.expiry import Expiry
from weft.store.state import read_status, write_status

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.training.compiler import ReplicaGroup
    from weft.frontends.training.schema import TrainingJob

_LAST_EVENTS: Final = 200
"""The number of events about replicas that are kept."""
_ENDS: Final[Mapping[str, tuple[str, str]]] = {
    "terminated": (CANCELLED, "was cancelled"),
    "failed": (FAILED, "has failed"),
}
"""The condition of jobs that have not ended, and its words, by the state in which their run ends."""

_status_of: Final = converter(JobStatus)


class JobStatusFile:
    """The file with the status of each job of a run, in the folder of the run; any thread may add to it.

    `groups` are the replicas by job and type; they change when a job is tuned.
    """

    def __init__(
        self, folder: Path, jobs: Sequence[TrainingJob], groups: Mapping[tuple[str, str], ReplicaGroup]
    ) -> None:
        self._folder, self._jobs, self._groups = folder, jobs, groups
        self.reader = MetricsReader(folder)
        self._memo: Any = None
        self._written = ""
        self._writing = threading.Lock()
        self._told: dict[str, float] = {}
        self._told_tuned: set[str] = set()
        self._told_lingering: set[str] = set()
        self._told_refused: dict[str, float] = {}
        self._restarts: dict[str, tuple[int, tuple[float, ...]]] = {}
        """By replica, its last restart, and how far its program had come when the restarts were told last."""
        self._usage: dict[str, dict[str, float]] = {}
        """What ended replicas have used, by name: `cpu_s` and `memory`."""
        self._scaled: dict[str, int] = {}
        """By vertex, the last number of replicas that users asked for and that differed from that of the file."""
        self._unready: dict[tuple[str, int], str] = {}
        self._events: deque[tuple[float, str, str, str, str]] = deque(maxlen=_LAST_EVENTS)

    def open(self) -> None:
        """Take what an earlier process of the run has written."""
        before = read_status(self._folder)
        self._told = {job["name"]: _last_change(job["status"]) for job in before}
        self._told_refused = {job["name"]: max((event[0] for event in job["events"]), default=0.0) for job in before}
        self._usage |= {name: used for job in before for name, used in job.get("usage", {}).items()}
        self._scaled |= {vertex: count for job in before for vertex, count in job.get("scaled", {}).items()}

    # ------------------------------------------------------------------------------------- what the controller says

    def take(self, memo: Any) -> list[str]:
        """Write the status of each job and the last events; return new conditions."""
        self._memo = memo
        self._scaled |= self._scaled_by(memo)
        self.write()
        news: list[str] = []
        for job in self._jobs:
            news += self._tuning_news(job, memo["events"])
            news += self._refused_news(job, memo["events"])
            conditions = memo["statuses"].get(job.name, {}).get("conditions", ())
            since = self._told.get(job.name, 0.0)
            news += [line for one in conditions if one["updated_at"] > since and (line := condition_news(job, one))]
            self._told[job.name] = max(since, _last_change({"conditions": conditions}))
            if job.name in memo.get("lingering", ()) and job.name not in self._told_lingering:
                self._told_lingering.add(job.name)
                news.append(f"{job.kind} {job.name}: {linger_text(job)}")
        return [*news, *self._restart_news(memo)]

    def _scaled_by(self, memo: Mapping[str, Any]) -> dict[str, int]:
        asked = memo.get("scale", {})
        specs = {group.vertex: group.spec for group in self._groups.values() if group.vertex in asked} if asked else {}
        return {
            vertex: asked[vertex]
            for vertex, spec in specs.items()
            if asked[vertex] != (1 if spec.replicas is None else spec.replicas)
        }

    def _restart_news(self, memo: Mapping[str, Any]) -> Iterator[str]:
        """Yield which replicas start again and again without a limit, and have come no further meanwhile."""
        for vertex, own in memo.get("restarts", {}).items():
            for index, count in own.items():
                name = loop_item(vertex, int(index))
                report = self.reader.latest.get((vertex, int(index)), {})
                reached = tuple(float(report.get(field, -1)) for field in ("epoch", "step", "progress"))
                known, before = self._restarts.get(name, (0, reached))
                told = is_told(count, known)
                self._restarts[name] = count, reached if told else before
                if told and reached <= before:
                    yield restart_text(name, count)

    def _tuning_news(self, job: TrainingJob, events: Sequence[Sequence[Any]]) -> list[str]:
        """Return what the control vertex of a job has decided, once."""
        if job.tuning is None or job.name in self._told_tuned:
            return []
        found = [event[4] for event in events if event[1] == job.name and event[3] == TUNED_EVENT]
        self._told_tuned.update([job.name] if found else [])
        return [f"{job.kind} {job.name} tuned: {text}" for text in found]

    def _refused_news(self, job: TrainingJob, events: Sequence[Sequence[Any]]) -> list[str]:
        """Return which scales of a job were undone, each once."""
        since = self._told_refused.get(job.name, 0.0)
        found = [event for event in events if event[1] == job.name and event[3] == SCALE_REFUSED and event[0] > since]
        self._told_refused[job.name] = max((event[0] for event in found), default=since)
        return [f"{job.kind} {job.name}: {event[4]}" for event in found]

    def rests(self, memo: Any) -> bool:
        """Whether all jobs that have not ended are suspended by their file, and no one has resumed them yet."""
        if memo["suspended"] is not None or memo["preempted"]:
            return False
        found = [_status_of(one).conditions for one in memo["statuses"].values()]
        going = [conditions for conditions in found if not has_finished(conditions)]
        return bool(going) and all(is_true(conditions, SUSPENDED) for conditions in going)

    def failures(self) -> str:
        """Return which jobs have failed, in words; "" if none has."""
        statuses = {} if self._memo is None else self._memo["statuses"]
        failed = [
            f"{job.kind} {job.name}"
            for job in self._jobs
            if job.name in statuses and is_true(_status_of(statuses[job.name]).conditions, FAILED)
        ]
        return f"{', '.join(failed)} {'has' if len(failed) == 1 else 'have'} failed" if failed else ""

    def is_suspended(self, job: str) -> bool:
        """Whether no replica of a job is to run now."""
        statuses = self._memo["statuses"] if self._memo is not None else {}
        return any(
            one["type"] == SUSPENDED and one["status"] == "True" for one in statuses.get(job, {}).get("conditions", ())
        )

    def end(self, state: str, reason: str, at: float) -> list[Expiry]:
        """Write the end of the jobs that a cancel or a failure of the run has ended; return when ended jobs expire."""
        memo = self._memo or {"statuses": {}, "events": ()}
        statuses = {name: _status_of(one) for name, one in memo["statuses"].items()}
        if state in _ENDS:
            type, word = _ENDS[state]
            for job in filter(is_ours, self._jobs):
                text = f"{job.kind} {job.namespace}/{job.name} {word}: {reason or 'without a reason'}"
                status = statuses.get(job.name, JobStatus())
                statuses[job.name] = with_end(status, type, job.kind + type, text, at)
            with self._writing:
                self._memo = {**memo, "statuses": as_json(statuses), "queued": {}}
        self.write()
        return list(self._expiries(statuses))

    def _expiries(self, statuses: Mapping[str, JobStatus]) -> Iterator[Expiry]:
        """Yield when the logs of ended jobs with a time to live are removed; a cancelled job is to be resumed."""
        for job in self._jobs:
            ttl, status = job.policy.ttl_s, statuses.get(job.name, JobStatus())
            if ttl is None or status.completed_at is None or is_true(status.conditions, CANCELLED):
                continue
            own = tuple(group.vertex for group in self._groups.values() if group.job.name == job.name)
            yield Expiry(job.name, status.completed_at + ttl, own)

    def write(self) -> None:
        """Write the status of each job, once the controller has said one."""
        with self._writing:
            if self._memo is not None:
                found = [self._status(job, self._memo) for job in self._jobs]
                self._written = write_status(self._folder, found, self._written)  # few ticks of a run change it

    def _status(self, job: TrainingJob, memo: Mapping[str, Any]) -> dict[str, Any]:
        told = sorted((*memo["events"], *self._events), key=lambda event: float(event[0]))
        events = [[event[0], *event[2:]] for event in told if event[1] == job.name]
        about: dict[str, Any] = {"kind": job.kind, "name": job.name, "namespace": job.namespace}
        about |= {"framework": KINDS[job.kind].framework, "counters": memo.get("counters", {}).get(job.name, {})}
        if not is_ours(job):
            about["managed_by"] = job.policy.managed_by or ""
        if reason := memo.get("queued", {}).get(job.name):
            about["queued"] = reason
        if job.name in memo.get("lingering", ()):
            about["lingering"] = linger_text(job)
        status = memo["statuses"].get(job.name, {})
        if unlimited := self._unlimited(job, memo) if status.get("completed_at") is None else {}:
            about["unlimited_restarts"] = unlimited
        own = {group.vertex for group in self._groups.values() if group.job.name == job.name}
        if scale := {vertex: count for vertex, count in memo.get("scale", {}).items() if vertex in own}:
            about["scale"] = scale
        latest = sorted(self.reader.latest.copy().items())
        reports = {loop_item(vertex, index): report for (vertex, index), report in latest if vertex in own}
        if job.kind == "TrainJob" and reports:
            status = {**status, "trainerStatus": trainer_status(reports, status.get("started_at"))}
        unready = {
            loop_item(vertex, index): why
            for (vertex, index), why in sorted(self._unready.copy().items())
            if vertex in own and why
        }
        if scaled := {vertex: count for vertex, count in self._scaled.items() if vertex in own}:
            about["scaled"] = scaled
        usage = {name: used for name, used in self._usage.items() if name.rpartition("-")[0] in own}
        requests = {
            group.vertex: requests_of(group.spec.template).amounts
            for group in self._groups.values()
            if group.vertex in own
        }
        return {
            **about,
            "status": status,
            "events": events,
            "reports": reports,
            "unready": unready,
            "usage": usage,
            "requests": requests,
        }

    def _unlimited(self, job: TrainingJob, memo: Mapping[str, Any]) -> dict[str, int]:
        """Return how often replicas of a job have started again in a row, of those whose restarts nothing limits."""
        vertices = [self._groups[job.name, type].vertex for type in job.replicas if type in restarts_unlimited(job)]
        return {
            loop_item(vertex, int(index)): count
            for vertex in vertices
            for index, count in memo.get("restarts", {}).get(vertex, {}).items()
            if count
        }

    # --------------------------------------------------------------------------------------- what replicas report

    def note_ready(self, vertex: str, index: int, why_not: str) -> None:
        """Take why a replica is not ready, "" if it is."""
        if self._unready.get((vertex, index), "") != why_not:
            self._unready[vertex, index] = why_not
            self.write()

    def note_event(self, job: str, at: float, reason: str, message: str) -> None:
        """Take a warning about a job for the user; `at` is in seconds since 1970."""
        with self._writing:
            self._events.append((at, job, "Warning", reason, message))
        self.write()

    def note_usage(self, vertex: str, index: int, cpu_s: float, memory: int) -> None:
        """Add what a container of a replica has used to that of its earlier containers and starts."""
        with self._writing:
            known = self._usage.get(loop_item(vertex, index), {"cpu_s": 0.0, "memory": 0})
            used = {"cpu_s": round(known["cpu_s"] + cpu_s, 3), "memory": max(known["memory"], memory)}
            self._usage[loop_item(vertex, index)] = used


def _last_change(status: Mapping[str, Any]) -> float:
    return max((one["updated_at"] for one in status.get("conditions", ())), default=0.0)
