"""How a run of training jobs shares its machine: its priority, its queue, and what there is of the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.training.compiler import GPU_SUFFIX, groups_of, requests_of
from weft.frontends.training.quantities import QUANTITY_HINT, quantity
from weft.graph.spec import SharingSpec
from weft.model.errors import UsageError
from weft.model.suggestions import did_you_mean
from weft.store.folders import safe_open
from weft.store.places import PROJECT_FILE
from weft.store.state import find_project

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.training.schema import JobFile
    from weft.operators.devices import DeviceInspector

DEFAULT_QUEUE: Final = "default"
SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
"""The priority classes of every cluster."""
_LIMITS: Final = ("cpu", "memory", "gpus")
_KEYS: Final = (*_LIMITS, "weight")
_MOST_BYTES: Final = 1 << 20


def sharing_of(
    files: JobFile,
    base: Path,
    user: str,
    *,
    workers: int = 0,
    devices: Sequence[str] = (),
    priority: int | None = None,
    queue: str = "",
) -> SharingSpec | None:
    """Return how the jobs of a file share the machine; None if no replica requests anything, or may later.

    `workers` above the number of cores stands for the cores, and `devices` are the GPUs. `priority` and `queue` go
    before those of the file.
    UsageError: the queues of `weft.toml` are wrong.
    """
    light = all(requests_of(group.spec.template).light for group in groups_of(files))
    if light and all(job.tuning is None for job in files.jobs):
        return None
    named = (job.policy.scheduling.queue for job in files.jobs if job.policy.scheduling is not None)
    queue = queue or next(filter(None, named), DEFAULT_QUEUE)
    limit, weight = project_queues(base).get(queue, (None, 1.0))
    return SharingSpec(
        room=room_of(workers, len(devices)),
        devices=tuple(devices),
        user=user,
        queue=queue,
        limit=limit,
        weight=weight,
        priority=priority_of(files) if priority is None else priority,
        preemptible=True,
    )


def room_of(workers: int = 0, gpus: int = 0) -> tuple[float, float, float]:
    """Return the cores, the bytes of memory and the GPUs of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cores, workers), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), gpus


def devices_for(files: JobFile, count: int, inspector: DeviceInspector) -> tuple[tuple[str, ...], list[str]]:
    """Return the GPUs for the jobs of a file, and notes about them; none if no replica requests GPUs.

    `count` above 0 is the number of GPUs as the user knows it: of more that are found the first, and of less further
    numbers.
    """
    tuned = (
        amounts
        for job in files.jobs
        if job.tuning
        for one in job.tuning.candidates
        for amounts in one.requests.values()
    )
    asked = any(name.endswith(GPU_SUFFIX) for amounts in tuned for name in amounts)
    if not asked and not any(requests_of(group.spec.template).gpu for group in groups_of(files)):
        return (), []
    found = inspector.look()
    names = [one.id for one in found.devices[: count or None]]
    further = (str(number) for number in range(count + len(names)) if str(number) not in names)
    names += islice(further, max(0, count - len(names)))
    models = ", ".join(dict.fromkeys(one.model for one in found.devices if one.model))
    notes = [f"GPUs {', '.join(names)}{f' ({models})' if models else ''}"] if names else []
    if found.problem:
        notes.append(f"not all GPUs may be used: {found.problem}")
    return tuple(names), notes


def priority_of(files: JobFile) -> int:
    """Return the highest priority of the jobs of a file: of their scheduling policies, else of their pods."""
    known = {**SYSTEM_CLASSES, **files.priority_classes}
    found = []
    for job in files.jobs:
        own = job.policy.scheduling.priority_class if job.policy.scheduling is not None else ""
        pods = [spec.template.priority_class for spec in job.replicas.values()]
        found.append(max((known.get(name, 0) for name in ([own] if own else pods)), default=0))
    return max(found, default=0)


def unknown_classes(files: JobFile) -> list[str]:
    """Return warnings of priority classes that the file does not have."""
    known = {**SYSTEM_CLASSES, **files.priority_classes, "": 0}
    named = [
        name
        for job in files.jobs
        for name in (
            job.policy.scheduling.priority_class if job.policy.scheduling is not None else "",
            *(spec.template.priority_class for spec in job.replicas.values()),
        )
    ]
    return [
        f"the priority class {name} is in none of the files: its priority is 0" + did_you_mean(name, known)
        for name in dict.fromkeys(named)
        if name not in known
    ]


def unknown_queues(files: JobFile, base: Path, queue: str = "") -> list[str]:
    """Return warnings of queues that `weft.toml` does not have: of `queue`, which goes before those of the file, or of
    these. UsageError: the queues of `weft.toml` are wrong.
    """
    policies = (job.policy.scheduling for job in files.jobs)
    named = [queue] if queue else [one.queue for one in policies if one is not None]
    asked = [name for name in dict.fromkeys(named) if name not in ("", DEFAULT_QUEUE)]
    if not asked:
        return []
    known = project_queues(base)
    there = f"the queues of {PROJECT_FILE} are {', '.join(known)}" if known else f"{PROJECT_FILE} has no queues"
    return [
        f"the queue {name} is unknown, so it has no capacity, and weight 1: {there}. "
        f"{did_you_mean(name, known, f'To add it, write there: [queues.{name}] and then cpu = 4')}"
        for name in asked
        if name not in known
    ]


def project_queues(base: Path) -> dict[str, tuple[tuple[float, float, float] | None, float]]:
    """Return limit and weight of each queue in the `weft.toml` above a folder. UsageError: a wrong entry."""
    project = find_project(base)
    if project is None:
        return {}
    import tomllib

    file = project / PROJECT_FILE
    try:
        with safe_open(project, PROJECT_FILE, mode="rb") as source:
            table = tomllib.loads(source.read(_MOST_BYTES).decode()).get("queues", {})
    except ValueError as error:
        raise UsageError(f"{file} is not TOML: {error}") from None
    if not isinstance(table, dict) or not all(isinstance(one, dict) for one in table.values()):
        raise UsageError(f"{file}: queues is no table of queues", hint="Write: [queues.NAME] and then cpu = 4")
    return {name: _queue(f"{file}: queues.{name}", one) for name, one in table.items()}


def _queue(place: str, table: Mapping[str, Any]) -> tuple[tuple[float, float, float] | None, float]:
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{place}.{key} does not exist", hint=did_you_mean(key, _KEYS, f"There are: {_KEYS}"))
    found = {key: _number(f"{place}.{key}", value) for key, value in table.items()}
    weight = found.pop("weight", 1.0)
    if weight <= 0:
        raise UsageError(f"{place}.weight is {weight:g}; it must be more than 0")
    limit = found.get("cpu", inf), found.get("memory", inf), found.get("gpus", inf)
    return limit if found else None, weight


def _number(place: str, value: object) -> float:
    try:
        number = quantity(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not (isfinite(number) and number >= 0):
        raise UsageError(f"{place} is {value!r}, which is no amount", hint=QUANTITY_HINT)
    return float(number)
