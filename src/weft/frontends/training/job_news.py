"""What a run tells its user about its jobs, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.training.conditions import COMPLETE
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.observed import CREATED, RUNNING, SUCCEEDED, SUSPENDED

if TYPE_CHECKING:
    from weft.frontends.training.schema import TrainingJob


PREEMPTED: Final = " It was "
NO_LIMIT: Final = "no runPolicy.backoffLimit"


def condition_news(job: TrainingJob, condition: Mapping[str, Any]) -> str:
    """Return a new condition as one line, "" if it tells nothing new."""
    type = condition["type"]
    if condition["status"] != "True":
        return f"{job.kind} {job.name} resumed" if type == SUSPENDED else ""
    about = "" if type in (CREATED, RUNNING, SUCCEEDED, COMPLETE, SUSPENDED) else f": {condition['message']}"
    if type == SUSPENDED and PREEMPTED in condition["message"]:
        about = f": {condition['message'].partition(PREEMPTED)[2].removesuffix('.')}"
    return f"{job.kind} {job.name} {type.lower()}{about}"


def preempted_text(by: str) -> str:
    """Return the end of the message of a suspended job for which run it makes room."""
    return f"{PREEMPTED}preempted by {by}, and goes on when there is room."


def restart_text(name: str, count: int) -> str:
    """Return that a replica starts again for so manieth time, and that nothing limits it."""
    return f"restart {count} of {name}; {NO_LIMIT}: it starts again for good; set one, or end the run: weft cancel"


def linger_text(job: TrainingJob) -> str:
    """Return why replicas of a job that has succeeded still run."""
    if job.policy.clean_pod_policy == "None":
        return "workers and evaluators that still run go on to their own end (cleanPodPolicy: None), then the run ends"
    linger_s = f"{KINDS[job.kind].linger_s:g} s"
    return f"replicas that still run have {linger_s} to end by themselves; cleanPodPolicy: Running stops them at once"
