"""Counters of the training jobs of a project: of the runs that there are, and of those that were deleted.

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
}
"""The counters of the training operator for jobs, by name, with their help."""
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
    for counter, about in COUNTERS.items():
        lines += [f"# HELP {_PREFIX}{counter} {about}", f"# TYPE {_PREFIX}{counter} counter"]
        for (*labels, name), count in sorted(counters.items()):
            if name == counter:
                pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in zip(_LABELS, labels, strict=True))
                lines.append(f"{_PREFIX}{counter}{{{pairs}}} {count}")
    return "".join(f"{line}\n" for line in lines)


def as_rows(counters: Tally) -> list[dict[str, Any]]:
    """Return counters as JSON has them."""
    return [
        {"name": f"{_PREFIX}{name}", "labels": dict(zip(_LABELS, labels, strict=True)), "value": count}
        for (*labels, name), count in sorted(counters.items())
    ]


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
