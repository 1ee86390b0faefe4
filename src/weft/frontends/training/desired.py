"""The operator of training jobs as one pure function: a job and what is observed in, actions and a status out.

Source: `ReconcileJobs` of the training operator 1.9 (`pkg/controller.v1/common`). It is called after each change and at
the time of `Wake`; actions that were taken are observed at the next call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from weft.frontends.training.census import RETRYING, Census, restarts_whole, take_census
from weft.frontends.training.compat import Compat
from weft.frontends.training.conditions import FALSE, TRUE, has_finished, has_succeeded, is_true, with_condition
from weft.frontends.training.gang import gang_of
from weft.frontends.training.kinds import KINDS, pod_name
from weft.frontends.training.labels import JOB_NAME, OPERATOR_NAME, REPLICA_TYPE
from weft.frontends.training.observed import (
    CREATED,
    FAILED,
    PENDING,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    Action,
    Condition,
    Count,
    CreatePod,
    CreateService,
    DeleteGang,
    DeleteJob,
    DeletePod,
    DeleteService,
    Desired,
    JobEvent,
    Observed,
    Pod,
    ReplicaStatus,
    Wake,
)
from weft.frontends.training.rules import (
    RULES,
    Verdict,
    launcher_done,
    outcome,
    permanent,
    restarting,
    runs,
    upstream_verdicts,
)
from weft.frontends.training.schema import EXIT_CODE, TrainingJob
from weft.model.failures import BACKOFF_LIMIT

if TYPE_CHECKING:
    from collections.abc import Container

_OURS: Final = "kubeflow.org/training-operator"
_OURS_V2: Final = "trainer.kubeflow.org/trainjob-controller"
"""The controllers of `managedBy` whose jobs are run here; a job without one is too."""
_COUNTERS: Final = {FAILED: "jobs_failed_total", RESTARTING: "jobs_restarted_total", CREATED: "jobs_created_total"}


def desired(job: TrainingJob, observed: Observed, now: float, compat: Compat = Compat.FIXED) -> Desired:
    """Return what to do for a job now, and the status to write. `job` is defaulted and valid."""
    if not is_ours(job):
        return Desired((), observed.status)
    step = _Pass(job, observed, now, compat)
    if observed.deleted:
        step.delete_all("the job is deleted")
        step.delete_gang()
        return step.answer()
    step.find(Verdict(CREATED, f"{job.kind} {job.name} is created."))
    if has_finished(step.conditions):
        step.clean_up()
    elif job.policy.suspend:
        step.suspend()
    else:
        step.go_on()
    return step.answer()


def is_ours(job: TrainingJob) -> bool:
    """Whether no other controller manages a job (`managedBy`)."""
    return job.policy.managed_by in (None, _OURS, _OURS_V2)


def lingers(
    job: TrainingJob, conditions: tuple[Condition, ...], completed_at: float | None, compat: Compat = Compat.FIXED
) -> float:
    """Return until when the replicas of a job that has succeeded may end by themselves; 0: its policy decides."""
    chosen = job.policy.clean_pod_policy is not None or Compat.LEFT_RUNNING in compat
    if chosen or completed_at is None or not has_succeeded(conditions):
        return 0.0
    return completed_at + KINDS[job.kind].linger_s


def leaves_running(job: TrainingJob, conditions: tuple[Condition, ...]) -> bool:
    """Whether the replicas of a job that has succeeded run to their own end: `cleanPodPolicy: None` says so."""
    return job.policy.clean_pod_policy == "None" and has_succeeded(conditions)


def _lives(pod: Pod) -> bool:
    """Whether a pod may still end by itself: it runs, or is about to."""
    return pod.phase in (RUNNING, PENDING) and not pod.deleting


class _Pass:
    """One call of `desired`: what it has found and decided so far."""

    def __init__(self, job: TrainingJob, observed: Observed, now: float, compat: Compat) -> None:
        self.job = job
        self.kind = KINDS[job.kind]
        self.observed = observed
        self.now = now
        self.compat = compat
        status = observed.status
        self.conditions = status.conditions
        self.replicas = dict(status.replicas)
        self.started_at = status.started_at
        self.completed_at = status.completed_at
        self.reconciled_at = status.reconciled_at
        self.recreated = status.recreated
        self.actions: list[Action] = []
        self.counts: dict[str, int] = {}
        self.has_services = job.kind not in ("MPIJob", "TrainJob")
        self.services = {type: set(indices) for type, indices in observed.services.items()}

    # ------------------------------------------------------------------------------------------------------- notes

    def count(self, name: str) -> None:
        """Let a counter of the operator go up."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def tell(self, reason: str, message: str, kind: str = "Normal") -> None:
        """Note an event for the user."""
        self.actions.append(JobEvent(kind=kind, reason=reason, message=message))

    def find(self, verdict: Verdict, status: str = TRUE) -> None:
        """Note a condition; the end of the job gets its time, a condition that is new its event and its counter."""
        type = verdict.condition
        if (
            self.job.kind == "TrainJob"
            and Compat.SUCCEEDED_AND_FAILED in self.compat
            and type in (CREATED, RUNNING, RESTARTING)
        ):
            return
        reason = verdict.reason or self.job.kind + type
        new = Condition(
            type=type,
            status=status,
            reason=reason,
            message=verdict.message,
            updated_at=self.now,
            changed_at=self.now,
        )
        before, self.conditions = self.conditions, with_condition(self.conditions, new)
        if type in (RULES[self.job.kind].success, FAILED) and self.completed_at is None:
            self.completed_at = self.now
        if before is self.conditions or status == FALSE:
            return
        if type not in (CREATED, RUNNING):
            self.tell(reason, verdict.message, "Warning" if type == RESTARTING else "Normal")
        if type == RULES[self.job.kind].success:
            self.count("jobs_successful_total")
        elif type in _COUNTERS:
            self.count(_COUNTERS[type])

    def answer(self) -> Desired:
        """Return the actions and the status; the status that was there if nothing of it changed."""
        actions = (*self.actions, *(Count(name, by) for name, by in self.counts.items()))
        status = replace(
            self.observed.status,
            conditions=self.conditions,
            replicas=self.replicas,
            started_at=self.started_at,
            completed_at=self.completed_at,
            reconciled_at=self.reconciled_at,
            recreated=self.recreated,
        )
        return Desired(actions, self.observed.status if status == self.observed.status else status)

    # --------------------------------------------------------------------------------------------- pods, services

    def create_pod(self, type: str, index: int) -> None:
        """Create the pod of a replica."""
        self.actions.append(CreatePod(type, index))
        self.tell("SuccessfulCreatePod", f"Created pod: {pod_name(self.job, type, index)}")
        self.count("created_pods_total")
        if self.job.replicas[type].template.restart_policy and self.kind.name != "TrainJob":
            message = "Restart policy in pod template will be overwritten by restart policy in replica spec"
            self.tell("SetPodTemplateRestartPolicy", message, "Warning")

    def delete_pod(self, pod: Pod, reason: str) -> None:
        """Delete a pod that is not being deleted yet."""
        if pod.deleting:
            return
        self.actions.append(DeletePod(pod.type, pod.index, reason))
        self.tell("SuccessfulDeletePod", f"Deleted pod: {pod_name(self.job, pod.type, pod.index)}")
        self.count("deleted_pods_total")

    def create_service(self, type: str, index: int) -> None:
        """Create the service of a replica."""
        self.actions.append(CreateService(type, index))
        self.tell("SuccessfulCreateService", f"Created service: {pod_name(self.job, type, index)}")
        self.count("succeeded_service_creation_total")

    def delete_service(self, type: str, index: int) -> None:
        """Delete the service of a replica if there is one."""
        if index in self.services.get(type, ()):
            self.services[type].discard(index)
            self.actions.append(DeleteService(type, index))
            self.tell("SuccessfulDeleteService", f"Deleted service: {pod_name(self.job, type, index)}")

    def delete_all(self, reason: str) -> None:
        """Delete all pods, and the services of those (strict) or all services."""
        for pod in self.observed.pods:
            self.delete_pod(pod, reason)
            self.delete_service(pod.type, pod.index)
        if Compat.LEFT_SERVICES not in self.compat:
            self.delete_services(())

    def delete_services(self, kept: Container[tuple[str, int]]) -> None:
        """Delete the services but those of the replicas that are kept."""
        for type, indices in self.services.items():
            for index in sorted(indices):
                if (type, index) not in kept:
                    self.delete_service(type, index)

    def delete_gang(self) -> None:
        """Give back the places of the gang."""
        if self.observed.asked is None:
            return
        self.tell("JobTerminated", "Job has been terminated. Deleting PodGroup")
        self.actions.append(DeleteGang())
        self.tell("SuccessfulDeletePodGroup", f"Deleted PodGroup: {self.job.name}")
        self.count("deleted_pod_groups_total")

    # --------------------------------------------------------------------------------------------------- the ends

    def clean_up(self) -> None:
        """Remove what a finished job leaves, as its cleanPodPolicy says, and the job itself after its time to live."""
        policy = self.job.policy.clean_pod_policy
        if policy is None:
            policy = "None" if Compat.LEFT_RUNNING in self.compat else "Running"
            until = lingers(self.job, self.conditions, self.completed_at, self.compat)
            if until > self.now and any(_lives(pod) for pod in self.observed.pods):
                self.actions.append(Wake(until))
                return
        if policy == "All":
            self.delete_all("the job has ended")
        elif policy == "Running":
            kept = set()
            for pod in self.observed.pods:
                if pod.phase in (RUNNING, PENDING):
                    self.delete_pod(pod, "the job has ended")
                    self.delete_service(pod.type, pod.index)
                else:
                    kept.add((pod.type, pod.index))
            if Compat.LEFT_SERVICES not in self.compat:
                self.delete_services(kept)
        self.delete_gang()
        succeeded = has_succeeded(self.conditions)
        if succeeded or (policy != "None" and Compat.LEFT_RUNNING not in self.compat):
            for type, one in self.replicas.items():
                if one.active:
                    more = one.active if succeeded else 0
                    self.replicas[type] = replace(one, succeeded=one.succeeded + more, active=0)
        self.expire()

    def expire(self) -> None:
        """Delete the finished job when its time to live is over; a suspended job stays."""
        policy = self.job.policy
        if policy.ttl_s is None or policy.suspend or self.completed_at is None or self.observed.expired:
            return
        end = self.completed_at + policy.ttl_s
        if self.now < end:
            self.actions.append(Wake(end))
            return
        self.actions.append(DeleteJob())
        self.tell("SuccessfulDeleteJob", f"Deleted job: {self.job.name}")
        self.count("jobs_deleted_total")

    def end(self, verdict: Verdict) -> None:
        """End the job at once."""
        self.find(verdict)
        self.clean_up()

    def suspend(self) -> None:
        """Remove all pods and services, whatever the policy, until the job is resumed; retries stay counted."""
        self.recreated += sum(pod.restarts for pod in self.observed.pods if not pod.deleting)
        self.delete_all("the job is suspended")
        self.delete_gang()
        for type, one in self.replicas.items():
            if one.active:
                self.replicas[type] = replace(one, active=0)
        found = self.suspension("suspended", SUSPENDED)
        if is_true(self.conditions, RUNNING):
            self.find(replace(found, condition=RUNNING), FALSE)
        self.find(found)

    def suspension(self, word: str, reason: str) -> Verdict:
        """Return the condition Suspended with its message; a TrainJob names neither itself nor its kind in it."""
        if self.job.kind == "TrainJob":
            return Verdict(SUSPENDED, f"TrainJob is {word}", reason)
        return Verdict(SUSPENDED, f"{self.job.kind} {self.job.name} is {word}.", self.job.kind + reason)

    # --------------------------------------------------------------------------------------------------- the course

    def go_on(self) -> None:
        """Bring the pods and services of a job that runs to its replicas, and its status to them."""
        if is_true(self.conditions, SUSPENDED):
            found = self.suspension("resumed", "Resumed")
            self.find(found, FALSE)
            self.tell(found.reason, found.message)
            self.started_at = self.now
        census = take_census(self.job, self.observed.pods, self.compat)
        strict = Compat.SUCCEEDED_AND_FAILED in self.compat and self.job.kind != "TrainJob"
        if not strict and (ended := outcome(self.job, census)) is not None:
            self.note_replicas(census)
            self.tell_exits(census)
            self.start()
            self.end(ended)
            return
        if (failure := self.limit(census)) is not None:
            self.end(failure)
            return
        if not self.gang():
            return
        remembered = next((one for one in self.conditions if one.type == RESTARTING), None)
        self.note_replicas(census)
        busy = self.retry(census)
        self.create(census, busy)
        remembered = next((one for one in self.conditions if one.type == RESTARTING), remembered)
        self.start()
        self.judge(census, remembered)

    def start(self) -> None:
        """Note when the job started."""
        if self.started_at is None:
            self.started_at = self.now

    def limit(self, census: dict[str, Census]) -> Verdict | None:
        """Return the failure of a job that has restarted too often or run too long."""
        policy = self.job.policy
        if policy.backoff_limit is not None and self.past_backoff(census, policy.backoff_limit):
            message = f"Job {self.job.name} has failed because {BACKOFF_LIMIT}"
            return Verdict(FAILED, message)
        if policy.deadline_s is None or self.started_at is None or self.now < self.started_at + policy.deadline_s:
            return None
        if self.job.kind == "TrainJob":
            return Verdict(FAILED, "TrainJob exceeded its active deadline", "DeadlineExceeded")
        return Verdict(FAILED, f"Job {self.job.name} has failed because it was active longer than specified deadline")

    def past_backoff(self, census: dict[str, Census], limit: int) -> bool:
        """Whether the limit forbids another retry (strict: whether as many restarts have been seen)."""
        counted = [one for one in census.values() if self.job.replicas[one.type].restart_policy in RETRYING]
        if Compat.UNCOUNTED_RECREATION not in self.compat:
            used = self.recreated + sum(one.restarts for one in counted)
            failed = sum(len(one.retried) for one in census.values())
            return used + (min(failed, 1) if self.whole else failed) > limit
        types = {one.type for one in counted}
        used = sum(pod.restarts for pod in self.observed.pods if pod.phase == RUNNING and pod.type in types)
        if limit:
            return used >= limit
        ended = (SUCCEEDED, FAILED)
        active = sum(pod.phase not in ended and not pod.deleting for pod in self.observed.pods)
        failed = sum(pod.phase == FAILED for pod in self.observed.pods)
        known = sum(one.failed for one in self.observed.status.replicas.values())
        return used > 0 or (failed > known and active != sum(one.replicas for one in census.values()))

    @property
    def whole(self) -> bool:
        """Whether one failed replica starts all of them again."""
        return restarts_whole(self.job)

    def gang(self) -> bool:
        """Ask for the places of the gang; return whether pods may be created."""
        if self.observed.gang is None:
            return True
        wanted = gang_of(self.job, self.observed.asked)
        if wanted != self.observed.asked:
            self.actions.append(wanted)
            if self.observed.asked is None:
                self.count("created_pod_groups_total")
        if not self.observed.gang and self.reconciled_at is None:
            self.reconciled_at = self.now
        return self.observed.gang

    def tell_exits(self, census: dict[str, Census]) -> None:
        """Note how the failed replicas ended."""
        for one in census.values():
            for pod in (*one.retried, *one.lost):
                self.tell_exit(pod)

    def tell_exit(self, pod: Pod) -> None:
        """Note how a failed replica ended."""
        self.count("failed_pods_total")
        if pod.exit_code is not None:
            name = f"{self.job.namespace}.{pod_name(self.job, pod.type, pod.index)}"
            self.tell("ExitedWithCode", f"Pod: {name} exited with code {pod.exit_code}")

    def retry(self, census: dict[str, Census]) -> bool:
        """Delete the failed pods that are to run again; return whether nothing may be created before they are gone."""
        if self.job.kind == "MPIJob" and Compat.SUCCEEDED_AND_FAILED in self.compat:
            return launcher_done(census)
        failed = [one for one in census.values() if one.retried]
        for one in failed:
            for pod in one.retried:
                self.tell_exit(pod)
            if not self.whole:
                for pod in one.retried:
                    self.recreated += 1 + pod.restarts
                    self.delete_pod(pod, "its replica failed and is started again")
            self.find(restarting(self.job, one.type))
        if Compat.SUCCEEDED_AND_FAILED in self.compat:
            for one in census.values():
                if one.lost and self.job.replicas[one.type].restart_policy == EXIT_CODE:
                    completed = self.completed_at
                    self.find(permanent(self.job, one.type))
                    self.completed_at = completed  # upstream leaves the time of the end out here
        if not self.whole:
            return False
        if failed:
            self.recreated += 1 + sum(one.restarts for one in census.values())
            for pod in self.observed.pods:
                self.delete_pod(pod, "a replica failed and the whole job is started again")
        return bool(failed) or any(one.deleting for one in census.values())

    def create(self, census: dict[str, Census], busy: bool) -> None:
        """Create the pods and services that are missing, delete those beyond the replicas."""
        strays = Compat.STRAY_PODS in self.compat and self.job.kind != "MPIJob"
        for one in census.values():
            for pod in one.strays:
                self.delete_pod(pod, "the job has fewer replicas")
            missing = one.missing
            if strays:
                top = max((pod.index for pod in one.strays), default=0) + 1
                missing = missing + sorted(set(range(one.replicas, top)) - {pod.index for pod in one.strays})
            if not busy and not self.waits(one.type, census):
                for index in missing:
                    self.create_pod(one.type, index)
            if self.has_services:
                self.reconcile_services(one)

    def waits(self, type: str, census: dict[str, Census]) -> bool:
        """Whether a type starts only after others: the nodes of a TrainJob after its initializers."""
        initializer = "-initializer"
        return (
            self.job.kind == "TrainJob"
            and not type.endswith(initializer)
            and any(one.succeeded < one.replicas for one in census.values() if one.type.endswith(initializer))
        )

    def reconcile_services(self, census: Census) -> None:
        """Create the services that are missing, delete those beyond the replicas."""
        type = census.type
        wanted = set(range(census.replicas))
        there = self.services.get(type, set())
        for index in sorted(wanted - there):
            self.create_service(type, index)
        for index in sorted(there - wanted):
            self.delete_service(type, index)

    def note_replicas(self, census: dict[str, Census]) -> None:
        """Write the numbers of the replicas."""
        for type, one in census.items():
            selector = ""
            if self.job.kind in ("PyTorchJob", "PaddleJob", "JAXJob"):
                labels = (
                    (JOB_NAME, self.job.name),
                    (OPERATOR_NAME, f"{self.job.kind.lower()}-controller"),
                    (REPLICA_TYPE, type.lower()),
                )
                selector = ",".join(f"{key}={value}" for key, value in labels)
            self.replicas[type] = ReplicaStatus(
                active=one.active, succeeded=one.succeeded, failed=one.failed, selector=selector
            )

    def judge(self, census: dict[str, Census], remembered: Condition | None) -> None:
        """Write the conditions of a job that goes on (strict: those that upstream sets), and when to look again."""
        if Compat.SUCCEEDED_AND_FAILED in self.compat and self.job.kind != "TrainJob":
            if self.job.kind == "MPIJob" and launcher_done(census):
                census["Worker"] = Census(type="Worker", replicas=-1, slots=[])
            verdicts = list(upstream_verdicts(self.job, census, remembered))
            for position, verdict in enumerate(verdicts, start=1):
                replaced = any(later.condition == RESTARTING for later in verdicts[position:])
                if verdict.condition != RUNNING or not replaced:  # else events come again at each call
                    self.find(verdict)
            if has_finished(self.conditions):
                self.actions.append(Wake(self.now))
                return
        elif not self.restarts(census) and (running := runs(self.job, census)) is not None:
            self.find(running)
        deadline = self.job.policy.deadline_s
        if deadline is not None and self.started_at is not None and Compat.UNTIMED_DEADLINE not in self.compat:
            self.actions.append(Wake(self.started_at + deadline))

    def restarts(self, census: dict[str, Census]) -> bool:
        """Whether replicas that were started again do not run yet."""
        return is_true(self.conditions, RESTARTING) and any(
            one.present + len(one.lost) < one.replicas for one in census.values()
        )
