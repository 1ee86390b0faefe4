"""When a job runs, has succeeded and has failed: one rule for each kind.

Source: `UpdateJobStatus` of the controllers of the training operator 1.9, and the JobSets of Trainer v2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from weft.frontends.training.census import EVICTED, Census
from weft.frontends.training.conditions import COMPLETE
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.observed import FAILED, RESTARTING, RUNNING, SUCCEEDED, Condition, Pod
from weft.frontends.training.schema import EXIT_CODE, NEVER, TrainingJob

_ALL_WORKERS: Final = "AllWorkers"


class StatusRule(Struct, frozen=True, kw_only=True):
    """How the status of one kind follows from its replicas.

    `workers` decide when the job has no replica of the master types; the success of the first is enough with
    `first_worker`, that of any in an elastic job with `any_elastic`. `needs_workers`: it runs when they run too.
    `remembers`: upstream keeps Restarting where it was, `retries`: it says Restarting for a failed replica under each
    restart policy but Never. `success` is the word for success, `spaced` whether messages name the namespace even if
    masters decide, `failed` the verb of their failure.
    """

    workers: str = "Worker"
    first_worker: bool = False
    any_elastic: bool = False
    needs_workers: bool = False
    remembers: bool = False
    retries: bool = False
    success: str = SUCCEEDED
    spaced: bool = False
    failed: str = "is failed"


RULES: Final[dict[str, StatusRule]] = {
    "TFJob": StatusRule(first_worker=True, remembers=True, spaced=True, failed="has failed"),
    "PyTorchJob": StatusRule(any_elastic=True, retries=True),
    "PaddleJob": StatusRule(retries=True),
    "JAXJob": StatusRule(retries=True),
    "XGBoostJob": StatusRule(),
    "MPIJob": StatusRule(needs_workers=True),
    "TrainJob": StatusRule(workers="node", success=COMPLETE),
}


class Verdict(Struct, frozen=True):
    """A condition that a rule finds true. Without a reason it is the kind with the condition."""

    condition: str
    message: str
    reason: str = ""


Replicas = Mapping[str, Census]


def _ordered(job: TrainingJob, replicas: Replicas) -> list[Census]:
    known = [replicas[type] for type in KINDS[job.kind].types if type in replicas]
    return known + [one for type, one in replicas.items() if type not in KINDS[job.kind].types]


def _running(job: TrainingJob, master: bool) -> Verdict:
    return Verdict(RUNNING, f"{job.kind} {_subject(job, master)} is running.")


def _succeeded(job: TrainingJob, master: bool) -> Verdict:
    if job.kind == "TrainJob":
        return Verdict(COMPLETE, "jobset completed successfully", "AllJobsCompleted")
    verb = "is successfully" if master and not RULES[job.kind].spaced else "successfully"
    return Verdict(SUCCEEDED, f"{job.kind} {_subject(job, master)} {verb} completed.")


def _failed(job: TrainingJob, type: str, number: int) -> Verdict:
    if job.kind == "TrainJob":
        return Verdict(FAILED, "jobset failed due to one or more job failures", "FailedJobs")
    rule = RULES[job.kind]
    subject = _subject(job, master=True)
    return Verdict(FAILED, f"{job.kind} {subject} {rule.failed} because {number} {type} replica(s) failed.")


def _subject(job: TrainingJob, master: bool) -> str:
    return job.name if master and not RULES[job.kind].spaced else f"{job.namespace}/{job.name}"


def first_done(worker: Census | None) -> bool:
    """Whether the first replica of a type has ended well, by its phase and its exit code."""
    pod = worker.slots[0] if worker is not None and worker.slots else None
    return pod is not None and pod.phase == SUCCEEDED and pod.exit_code == 0


# ------------------------------------------------------------------------------------------------------------ fixed


def outcome(job: TrainingJob, replicas: Replicas) -> Verdict | None:
    """Return how the job has ended, None if it goes on. Success of the deciding replicas comes before failures."""
    deciders = _deciders(job, replicas)
    rule = RULES[job.kind]
    masters = deciders[0].type in KINDS[job.kind].masters if deciders else False
    enough = all(one.succeeded >= one.replicas or _settled(job, one) for one in deciders)
    if deciders and not masters and deciders[0].type == rule.workers:
        worker = deciders[0]
        enough = enough or (rule.first_worker and job.success_policy != _ALL_WORKERS and first_done(worker))
        enough = enough or (rule.any_elastic and job.elastic is not None and worker.succeeded > 0)
    if enough:
        return _succeeded(job, masters)
    return next((_failure(job, one) for one in _ordered(job, replicas) if len(one.lost) > _tolerated(job, one)), None)


def _deciders(job: TrainingJob, replicas: Replicas) -> list[Census]:
    """Return the replicas whose end is that of the job; types without replicas decide nothing."""
    present = [one for one in _ordered(job, replicas) if one.replicas]
    masters = [one for one in present if one.type in KINDS[job.kind].masters]
    if masters or job.kind == "TrainJob":
        return masters or present
    return [one for one in present if one.type == RULES[job.kind].workers] or present


def _tolerated(job: TrainingJob, census: Census) -> int:
    """Return how many replicas of a type may be lost while the job goes on."""
    if census.type != RULES[job.kind].workers:
        return 0
    if job.dynamic_workers:
        return max(census.replicas - 1, 0)
    if job.elastic is not None and job.elastic.min_replicas is not None:
        return max(census.replicas - job.elastic.min_replicas, 0)
    return 0


def _settled(job: TrainingJob, census: Census) -> bool:
    """Whether all replicas of a type have ended, some well, and no more were lost than may be."""
    lost = len(census.lost)
    ended = census.succeeded + lost >= census.replicas
    return census.succeeded > 0 and ended and lost <= _tolerated(job, census)


def _failure(job: TrainingJob, census: Census) -> Verdict:
    evicted = [pod for pod in census.lost if pod.reason == EVICTED]
    if job.kind == "MPIJob" and evicted:
        if census.type in KINDS[job.kind].masters:
            return Verdict(FAILED, f"MPIJob {job.namespace}/{job.name} has failed", "MPIJobEvicted")
        return Verdict(FAILED, f"{len(evicted)}/{census.replicas} workers are evicted", "MPIJobEvicted")
    if job.replicas[census.type].restart_policy == EXIT_CODE:
        return permanent(job, census.type)
    return _failed(job, census.type, len(census.lost))


def permanent(job: TrainingJob, type: str) -> Verdict:
    """Return the failure of a job by an exit code that restart policy ExitCode does not retry."""
    return Verdict(FAILED, f'job "{job.name}" is failing because "{type}" replica(s) failed.')


def restarting(job: TrainingJob, type: str) -> Verdict:
    """Return that replicas of a type are started again."""
    return Verdict(RESTARTING, f"job {job.name} is restarting because {type} replica(s) failed.")


def runs(job: TrainingJob, replicas: Replicas) -> Verdict | None:
    """Return that the job runs, None if no deciding replica does."""
    deciders = _deciders(job, replicas)
    active = any(one.active for one in deciders)
    if RULES[job.kind].needs_workers:
        active = active and all(one.active == one.replicas for one in replicas.values())
    return _running(job, deciders[0].type in KINDS[job.kind].masters) if active else None


# ----------------------------------------------------------------------------------------------------------- strict


def upstream_verdicts(job: TrainingJob, replicas: Replicas, remembered: Condition | None) -> Iterator[Verdict]:
    """Yield the conditions that upstream's controller of this kind sets, in its order.

    `remembered` is the Restarting condition that there was before.
    """
    rule, kind = RULES[job.kind], KINDS[job.kind]
    has_master = any(type in kind.masters for type in job.replicas)
    for one in (replicas[type] for type in kind.types if type in replicas):
        master = one.type in kind.masters
        if master or (one.type == rule.workers and not has_master and job.kind not in ("XGBoostJob", "MPIJob")):
            done = one.replicas == one.succeeded
            if not master:
                done = done or (
                    rule.first_worker and job.success_policy != _ALL_WORKERS and first_done(replicas.get(rule.workers))
                )
                done = done or (rule.any_elastic and job.elastic is not None and one.succeeded > 0)
            if one.active and (master or not done):
                yield _running(job, master)
            if done:
                yield _succeeded(job, master)
                if master and not rule.remembers:
                    return
        yield from _upstream_failure(job, one, remembered)


def _upstream_failure(job: TrainingJob, one: Census, remembered: Condition | None) -> Iterator[Verdict]:
    rule = RULES[job.kind]
    if not one.failed or (rule.retries and one.replicas <= one.present):
        return
    policy = job.replicas[one.type].restart_policy
    if job.kind == "XGBoostJob":
        yield _running(job, master=True)
    if rule.remembers:
        if remembered is not None:
            yield Verdict(RESTARTING, remembered.message, remembered.reason)
        elif not (job.dynamic_workers and one.type == rule.workers):
            yield _failed(job, one.type, one.failed)
    elif policy == EXIT_CODE or (rule.retries and policy != NEVER):
        message = f"{job.kind} {job.name} is restarting because {one.failed} {one.type} replica(s) failed."
        yield Verdict(RESTARTING, message)
    elif job.kind == "MPIJob":
        yield Verdict(FAILED, _failed(job, one.type, one.failed).message, "MPIJobMPIJobFailed")
    else:
        yield _failed(job, one.type, one.failed)


def launcher_done(replicas: Replicas) -> bool:
    """Whether the launcher of an MPIJob has ended."""
    launcher = replicas.get("Launcher")
    pod: Pod | None = launcher.slots[0] if launcher is not None and launcher.slots else None
    return pod is not None and pod.phase in (SUCCEEDED, FAILED)
