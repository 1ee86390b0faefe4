"""Counters of the training jobs of a project, their pods, services and pod groups: of present and of deleted runs.

The status of each job has its own counters. When a run is deleted they are added to a file of the state folder, so
that no counter ever goes down.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import NotFoundError
from weft.store.folders import safe_open
from weft.store.state import read_status

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.state import StateRoot

TALLIES: Final = "metrics.json"
"""The file of the state folder with the counters of deleted runs, and the runs whose removal has begun."""
_LOCK: Final = "metrics.lock"
DELETED: Final = "jobs_deleted_total"
COUNTERS: Final[Mapping[str, str]] = {
    "jobs_created_total": "Number of jobs created.",
    "jobs_successful_total": "Number of jobs that succeeded.",
    "jobs_failed_total": "Number of jobs that failed.",
    "jobs_restarted_total": "Number of restarts of jobs: a replica failed and was started again.",
    DELETED: "Number of jobs deleted.",
    "created_pods_total": "The total number of created pods.",
    "deleted_pods_total": "The total number of deleted pods.",
    "failed_pods_total": "The total number of failed pods.",
    "created_pod_groups_total": "The total number of created pod groups.",
    "deleted_pod_groups_total": "The total number of deleted pod groups.",
    "succeeded_service_creation_total": "The total number of services created.",
}
"""The counters of the training operator, by name, with their help: those of jobs, and those of what jobs create."""
_OF_JOBS: Final = "jobs_"
"""How the names of counters begin that have a prefix and labels; the others have neither."""
_PREFIX: Final = "training_operator_"
_LABELS: Final = ("job_namespace", "framework")

Tally = dict[tuple[str, str, str], int]
"""Counts by namespace, framework and counter."""


def job_counters(root: StateRoot) -> Tally:
    """Return the counters of the jobs of a state folder."""
    found, removed = _read(root.path)
    for folder in sorted(root.runs.iterdir()) if root.runs.is_dir() else ():
        if folder.name not in removed and not folder.name.startswith("."):
            _add(found, _of_run(folder))
    return found


@contextmanager
def counted_removal(root: Path, folder: Path) -> Iterator[None]:
    """Keep the counters of a run whose folder the block removes; a removal that is begun again counts once."""
    counts = _of_run(folder)
    if not counts:
        yield
        return
    for namespace, framework, name in list(counts):
        if name == "jobs_created_total":
            counts[namespace, framework, DELETED] = counts[namespace, framework, name]
    with _changed(root) as (found, removed):
        if folder.name not in removed:
            removed.append(folder.name)
            _add(found, counts)
    yield
    with _changed(root) as (_, removed):
        if folder.name in removed:
            removed.remove(folder.name)


def as_text(counters: Tally) -> str:
    """Return counters in the text form of Prometheus; those of which nothing is known yet have no samples."""
    lines = []
    samples = list(_samples(counters))
    for counter, about in COUNTERS.items():
        shown = _shown(counter)
        lines += [f"# HELP {shown} {about}", f"# TYPE {shown} counter"]
        for name, labels, count in samples:
            if name == shown:
                pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
                lines.append(f"{name}{{{pairs}}} {count}" if pairs else f"{name} {count}")
    return "".join(f"{line}\n" for line in lines)


def as_rows(counters: Tally) -> list[dict[str, Any]]:
    """Return counters as JSON has them."""
    return [{"name": name, "labels": labels, "value": count} for name, labels, count in _samples(counters)]


def _samples(counters: Tally) -> Iterator[tuple[str, dict[str, str], int]]:
    """Yield counters as they are shown: name, labels and value."""
    plain: dict[str, int] = {}
    for (namespace, framework, name), count in sorted(counters.items()):
        if name.startswith(_OF_JOBS):
            yield _shown(name), dict(zip(_LABELS, (namespace, framework), strict=True)), count
        else:
            plain[name] = plain.get(name, 0) + count
    for name, count in plain.items():
        yield name, {}, count


def _shown(counter: str) -> str:
    return _PREFIX + counter if counter.startswith(_OF_JOBS) else counter


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _of_run(folder: Path) -> Tally:
    found: Tally = {}
    for job in read_status(folder):
        own = {name: count for name, count in job.get("counters", {}).items() if name in COUNTERS}
        _add(found, {(job["namespace"], job.get("framework", ""), name): count for name, count in own.items()})
    return found


def _add(found: Tally, more: Mapping[tuple[str, str, str], int]) -> None:
    for key, count in more.items():
        found[key] = found.get(key, 0) + count


def _read(root: Path) -> tuple[Tally, list[str]]:
    """Return the counters of deleted runs, and the runs among them whose folders may still be there."""
    try:
        with safe_open(root, TALLIES, mode="rb") as file:
            content = json.loads(file.read())
        rows, removed = content["counters"], [str(run) for run in content["removed"]]
        return {(str(a), str(b), str(name)): int(count) for a, b, name, count in rows}, removed
    except (NotFoundError, FileNotFoundError):
        return {}, []
    except (ValueError, KeyError, TypeError):
        return {}, []  # damaged: counting begins anew, as after a restart of the operator


@contextmanager
def _changed(root: Path) -> Iterator[tuple[Tally, list[str]]]:
    """Read the file, and write what the block makes of it, alone among all processes."""
    with safe_open(root, _LOCK, mode="wb") as lock:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        found, removed = _read(root)
        yield found, removed
        new = root / f".{TALLIES}"
        with safe_open(root, new.name, mode="wb") as file:
            rows = [[*key, count] for key, count in sorted(found.items())]
            file.write(json.dumps({"counters": rows, "removed": removed}).encode())
        new.replace(root / TALLIES)
