"""Distributed steps of PaddleFlow: variables such as `PF_JOB_MODE: PS` as options of the step kind `training`.

Source: PaddleFlow 0.14, `pkg/common/schema/job.go` with the runtimes and templates of its jobs, in which volcano starts
jobs without a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.documents.problems import show
from weft.frontends.pipelines.paths import shell_body
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.frontends.pipelines.language import SourceText, Step

TRAINING: Final = "training"
"""The kind of step that runs such a step."""
MODE: Final = "PF_JOB_MODE"
TYPE: Final = "PF_JOB_TYPE"
FRAMEWORK: Final = "PF_JOB_FRAMEWORK"
PLACEMENT: Final = frozenset({"PF_JOB_PSERVER_FLAVOUR", "PF_JOB_WORKER_FLAVOUR"})
"""Variables of distributed steps that select where replicas run."""
_REPLICAS: Final = "PF_JOB_REPLICAS"
_SERVERS: Final = ("PF_JOB_PSERVER_REPLICAS", "PF_JOB_PSERVER_COMMAND")
_WORKERS: Final = ("PF_JOB_WORKER_REPLICAS", "PF_JOB_WORKER_COMMAND")
_COUNTS: Final = (_REPLICAS, _SERVERS[0], _WORKERS[0])
_RESTART: Final = "PF_JOB_RESTART_POLICY"
_PS, _COLLECTIVE, _POD = "ps", "collective", "pod"
_MODES: Final = {_PS: "PS", _COLLECTIVE: "Collective", _POD: "Pod"}
_VOLCANO: Final = ""
"""The framework of a step that names none: volcano starts its replicas."""
_PADDLE: Final = "paddle"
_FRAMEWORKS: Final = ("tensorflow", "pytorch", _PADDLE, "mpi", "xgboost")
_SINGLE: Final = frozenset({"", "single", "standalone"})
_DEFAULTS: Final[Mapping[str, tuple[int, int]]] = {_VOLCANO: (1, 2), _PADDLE: (2, 2)}
"""The numbers of servers and workers of a framework without variables for them, 1 and 1 for others."""
_COLLECTIVE_REPLICAS: Final = 2
_PORT: Final = 8001
_PADDLE_PORT: Final = 2379
_HOSTS: Final = "/etc/volcano"
_MOST: Final = 10_000
_INDEX: Final = {"field": "metadata.labels['training.kubeflow.org/replica-index']"}
_NAME: Final = {"field": "metadata.name"}


class DistributedJob(NamedTuple):
    """What kind of job the variables of a step ask for; `framework` is "" without one."""

    mode: str
    framework: str


def job_of(step: Step) -> DistributedJob | None:
    """Return the job that a step asks for; None for a step that is one command, or that `mistakes` refuses."""
    if not step.env or step.kind.value or step.is_ray_job or next(mistakes(step), None) is not None:
        return None
    return _job(step)


def trains(step: Step) -> bool:
    """Whether a step is a training job."""
    return step.kind.value == TRAINING or job_of(step) is not None


def _job(step: Step) -> DistributedJob | None:
    mode, framework = _text(step, MODE).lower(), _text(step, FRAMEWORK).lower()
    if not mode and _text(step, TYPE).lower() == "distributed":
        mode = _PS if any(name in step.env for name in _SERVERS) else _COLLECTIVE
    if mode not in (_PS, _COLLECTIVE):
        return None
    return DistributedJob(mode, _PADDLE if not framework and _text(step, TYPE).lower() == "paddlejob" else framework)


def _text(step: Step, name: str) -> str:
    found = step.env.get(name)
    return "" if found is None else found.value.strip()


# ----------------------------------------------------------------------------------------------------------- mistakes


def mistakes(step: Step) -> Iterator[tuple[SourceText, str, str]]:
    """Yield what is wrong with the variables of a distributed step: the text, the mistake, and a hint."""
    if not step.env:
        return
    for name in (MODE, TYPE, FRAMEWORK):
        if "{{" in _text(step, name):
            yield step.env[name], "cannot be a template: it decides what the step is", "write the value itself"
            return
    mode, kind, framework = (_text(step, name).lower() for name in (MODE, TYPE, FRAMEWORK))
    if mode and mode not in _MODES:
        hint = did_you_mean(step.env[MODE].value, _MODES.values(), f"use {', '.join(_MODES.values())}")
        yield step.env[MODE], f"{show(step.env[MODE].value)} is not a mode of jobs", hint
    elif mode == _POD and kind == "distributed":
        yield step.env[MODE], "a distributed job is not one pod", "use PS or Collective, or leave PF_JOB_TYPE out"
    elif (job := _job(step)) is not None:
        yield from _of_job(step, job)
    elif framework and framework not in _SINGLE and kind not in _SINGLE:
        yield from _of_framework(step, framework)


def _of_framework(step: Step, framework: str) -> Iterator[tuple[SourceText, str, str]]:
    if framework not in _FRAMEWORKS:
        known = f"there are: {', '.join(_FRAMEWORKS)}, and ray"
        hint = did_you_mean(framework, _FRAMEWORKS, known)
        yield step.env[FRAMEWORK], f"Weft cannot run distributed jobs of {show(framework)}", hint


def _of_job(step: Step, job: DistributedJob) -> Iterator[tuple[SourceText, str, str]]:
    said = step.env[MODE] if _text(step, MODE) else step.env[TYPE]
    if job.framework:
        yield from _of_framework(step, job.framework)
    elif _text(step, TYPE).lower() == "distributed":
        yield said, f"a distributed job needs {FRAMEWORK}", f"one of {', '.join(_FRAMEWORKS)}"
    if job.mode == _PS:
        if job.framework in ("mpi", "xgboost"):
            yield said, f"jobs of {job.framework} have no parameter servers", "use Collective"
        for name in (_SERVERS[1], _WORKERS[1]):
            if not _text(step, name):
                yield said, f"mode PS needs {name}", "give it the command of these replicas"
    elif not step.command.value.strip() and not step.docker_env:
        yield said, "mode Collective needs a command", "give `command` what each replica runs"
    for name in _COUNTS:
        value = _text(step, name)
        if value and "{{" not in value and _count(value) is None:
            yield step.env[name], f"{show(value)} is no number of replicas", f"use a number from 1 to {_MOST}"
        elif "PF_LOOP_ARGUMENT" in value:
            yield step.env[name], "the number of replicas cannot depend on the item of a loop", "use a parameter"


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MOST and len(text) < 9 else None


# ------------------------------------------------------------------------------------------------------------ options


def options_of(step: Step, job: DistributedJob, image: str, value_of: Callable[[str], Any]) -> dict[str, Any]:
    """Return the options of kind `training` for a distributed step, whose texts may hold templates.

    `value_of` returns the value of a variable in this run. ValueError: it is no number of replicas.
    """
    name = step.name.lower()
    made: dict[str, Any] = {"name": name, **({"image": image} if image else {})}
    servers, workers = _DEFAULTS.get(job.framework, (1, 1))
    if job.mode == _COLLECTIVE:
        number = _number(value_of, _REPLICAS, _COLLECTIVE_REPLICAS)
        command = shell_body(step.command.value)
        return {**made, **_collective(name, job.framework, number, command), **_policy(step)}
    counts = _number(value_of, _SERVERS[0], servers), _number(value_of, _WORKERS[0], workers)
    commands = [shell_body(step.env[name].value) for name in (_SERVERS[1], _WORKERS[1])]
    roles: list[dict[str, Any]] = [
        {"replicas": count, "command": command} for count, command in zip(counts, commands, strict=True)
    ]
    if job.framework == "pytorch":
        return {**made, "kind": "PyTorchJob", "replicas": {"master": roles[0], "worker": roles[1]}, **_policy(step)}
    if job.framework == "tensorflow":
        return {**made, "kind": "TFJob", "replicas": {"ps": roles[0], "worker": roles[1]}, **_policy(step)}
    hosts = [_pods(name, role, count) for role, count in zip(("ps", "worker"), counts, strict=True)]
    if job.framework == _PADDLE:
        roles[0]["env"], roles[1]["env"] = _paddle("PSERVER", *hosts), _paddle("TRAINER", *hosts)
    roles[0]["restart"] = "OnFailure"
    replicas = {"ps": roles[0], "worker": {**roles[1], **_policy(step)}}
    return {**made, "replicas": replicas, **_volcano({"ps": hosts[0], "worker": hosts[1]}, _PORT)}


def _pods(job: str, role: str, count: int) -> list[str]:
    return [f"{job}-{role}-{index}" for index in range(count)]


def _collective(name: str, framework: str, number: int, command: str) -> dict[str, Any]:
    own = {"command": command} if command.strip() else {}
    if framework in ("pytorch", "xgboost"):
        kind = {"pytorch": "PyTorchJob", "xgboost": "XGBoostJob"}[framework]
        return {"kind": kind, "replicas": {"master": 1, "worker": number - 1}, **own}
    if framework == "mpi":
        return {"kind": "MPIJob", "replicas": {"launcher": {"replicas": 1, **own}, "worker": number}}
    if framework == _VOLCANO:
        return {"replicas": {"worker": number}, **own, **_volcano({"task": _pods(name, "worker", number)})}
    kind = {"tensorflow": "TFJob", _PADDLE: "PaddleJob"}[framework]
    return {"kind": kind, "replicas": {"worker": number}, **own}


def _policy(step: Step) -> dict[str, str]:
    """Return the restart policy that a step names."""
    text = _text(step, _RESTART)
    return {"restart": text} if text else {}


def _number(value_of: Callable[[str], Any], name: str, default: int) -> int:
    value = value_of(name)
    text = "" if value is None else str(value).strip()
    found = _count(text) if text else default
    if found is None:
        raise ValueError(f"{name} is {show(text)}, which is no number of replicas from 1 to {_MOST}")
    return found


def _volcano(hosts: Mapping[str, list[str]], port: int | None = None) -> dict[str, Any]:
    """Return what volcano adds to replicas: a file with the hosts of each task, and their indices.

    The hosts are those of a cluster: each has all its ports.
    """
    return {
        "kind": "TFJob",
        "success": "AllWorkers",
        "isolation": "namespace",
        "files": {f"{_HOSTS}/{task}.host": "".join(f"{host}\n" for host in found) for task, found in hosts.items()},
        "env": {
            "VC_TASK_INDEX": _INDEX,
            "VK_TASK_INDEX": _INDEX,
            **({} if port is None else {"PF_JOB_PS_PORT": str(port)}),
        },
    }


def _paddle(role: str, servers: Sequence[str], workers: Sequence[str]) -> dict[str, Any]:
    """Return the variables that Paddle's operator gives to a replica in mode PS, with hosts in place of addresses."""
    return {
        "TRAINING_ROLE": role,
        "PADDLE_TRAINING_ROLE": role,
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"{host}:{_PADDLE_PORT}" for host in servers),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(f"{host}:{_PADDLE_PORT}" for host in workers),
        "PADDLE_TRAINERS_NUM": str(len(workers)),
        "PADDLE_TRAINER_ID": _INDEX,
        "PADDLE_PORT": str(_PADDLE_PORT),
        "POD_IP": _NAME,
    }
