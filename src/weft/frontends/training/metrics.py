"""The reports of replicas as the run reads them: the last lines of two files for each replica.

One has what the program reports, the other the scalars of its event files (`log_folders`). A program in any language
may append lines to the first, so each value is checked here.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.training.reporting import MOST_LINE_BYTES, MOST_METRICS
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "metrics"
"""The folder of a run with the reports: VERTEX.INDEX.jsonl, and VERTEX.INDEX.tensorboard.jsonl for scalars."""
SUFFIX: Final = ".jsonl"
SCALARS_SUFFIX: Final = ".tensorboard.jsonl"
LOOK_S: Final = 0.5
"""The seconds between two looks at the reports of a run."""
_FILE: Final = late_pattern(rf"(.+)\.([0-9]{{1,9}})({re.escape(SCALARS_SUFFIX)}|{re.escape(SUFFIX)})")
_MOST_NAME: Final = 200
_MOST_INTEGER: Final = 1 << 63
_FIELDS: Final = ("time", "step", "epoch", "progress", "restarts")


class MetricsReader:
    """Reads the last report of each replica of a run; a file that did not grow is not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._sizes: dict[str, int] = {}
        self._found: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
        self.latest: dict[tuple[str, int], dict[str, Any]] = {}
        """The last reports by vertex and index; what the program reports goes before the scalars."""

    def look(self) -> bool:
        """Read what is new; return whether anything is."""
        changed = False
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                match = _FILE.fullmatch(entry.name)
                if match is None or not entry.is_file(follow_symlinks=False):
                    continue
                size = entry.stat(follow_symlinks=False).st_size
                if self._sizes.get(entry.name) == size:
                    continue
                self._sizes[entry.name] = size
                if report := last_report(entry.path):
                    key = match[1], int(match[2])
                    found = self._found.setdefault(key, {})
                    found[match[3]] = report
                    self.latest[key] = _merged(found.get(SCALARS_SUFFIX, {}), found.get(SUFFIX, {}))
                    changed = True
        return changed


def _merged(scalars: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {**scalars.get("metrics", {}), **report.get("metrics", {})}
    return {**scalars, **report, "metrics": metrics}


def last_report(path: str | Path) -> dict[str, Any]:
    """Return the last whole report of a file; {} without one."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 2 * MOST_LINE_BYTES))
        for line in reversed(file.read(2 * MOST_LINE_BYTES).split(b"\n")):
            if report := _report(line):
                return report
    return {}


def reports_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole reports of a file, oldest first. OSError: it cannot be read."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n") and (report := _report(line)):
                yield report


def _report(line: bytes) -> dict[str, Any] | None:
    """Return the report of a line; None for another line."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("metrics"), dict):
        return None
    numbers = {name: number for name in _FIELDS if isinstance(number := _value(found.get(name)), int | float)}
    if "progress" in numbers:
        numbers["progress"] = min(max(numbers["progress"], 0.0), 1.0)
    values = {str(name)[:_MOST_NAME]: _value(value) for name, value in list(found["metrics"].items())[:MOST_METRICS]}
    return {**numbers, "metrics": {name: value for name, value in values.items() if value is not None}}


def _value(value: object) -> int | float | str | None:
    """Return a value of a report as JSON may have it: texts for numbers that are not finite; None for no value."""
    if isinstance(value, str):
        return value[:_MOST_NAME]
    if isinstance(value, int) and abs(value) >= _MOST_INTEGER:
        try:
            return float(value)
        except OverflowError:
            return "inf" if value > 0 else "-inf"
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, int | float) else None


def trainer_status(reports: Mapping[str, Mapping[str, Any]], started_at: float | None) -> dict[str, Any]:
    """Return `trainerStatus` of a TrainJob from the last reports of its replicas; {} without a report.

    `reports` are in the order of the replicas. The first replica with a report speaks for the job. `started_at` is
    the start of the job in seconds since 1970.
    """
    if not reports:
        return {}
    report = next(iter(reports.values()))
    status: dict[str, Any] = {
        "metrics": [{"name": name, "value": str(value)} for name, value in report["metrics"].items()],
        "lastUpdatedTime": report.get("time", 0),
    }
    if (progress := report.get("progress")) is not None:
        status["progressPercentage"] = int(progress * 100)
        if started_at is not None and progress > 0:
            elapsed = max(report.get("time", started_at) - started_at, 0.0)
            status["estimatedRemainingSeconds"] = int(elapsed * (1 - progress) / progress)
    return status


class MetricsWatch:
    """A thread that calls `look` until it is closed, and `changed` when that returns that replicas have reported."""

    def __init__(self, look: Callable[[], bool], changed: Callable[[], None]) -> None:
        self._look, self._changed = look, changed
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reports of replicas", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._end.wait(LOOK_S):
            with suppress(OSError):
                if self._look():
                    self._changed()

    def close(self) -> None:
        """Look a last time, and end the thread."""
        self._end.set()
        self._thread.join()
        with suppress(OSError):
            if self._look():
                self._changed()
