"""The log folders of replicas: the event files of TensorBoard in them, and the last scalars as reports of a replica.

A file in a folder that several replicas or runs share belongs to the replica whose host name it has, else to that of
the process that its name tells, else to the first replica of the job. Files that were not written since the run began
are those of other runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.frontends.training.metrics import FOLDER as METRICS_FOLDER
from weft.frontends.training.metrics import SCALARS_SUFFIX, last_report
from weft.frontends.training.reporting import MOST_LINE_BYTES, MOST_METRICS, ReportFile, report_line
from weft.model.ids import loop_item
from weft.model.patterns import late_pattern
from weft.operators.tensorboard import FOLDER
from weft.store.state import DESCRIPTION

if TYPE_CHECKING:
    from weft.frontends.training.event_files import EventFileName, EventScalar

LOGDIR: Final = "TENSORBOARD_LOGDIR"
"""The variable with the folder for the event files of a replica."""
_LOOKS: Final = 3
"""The number of looks between two searches for new files; each further `_SEARCHED` entries of folders add one."""
_SEARCHED: Final = 500
_MOST_ENTRIES: Final = 5000
_MOST_FILES: Final = 64
_MOST_DEPTH: Final = 6
_SLACK_S: Final = 2.0
"""The coarseness of the times of files."""
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "site-packages"})
_LOG_OPTIONS: Final = late_pattern(
    r"--?(?:(?:tensorboard|tb)[-_])?(?:logs?[-_]?dir|(?:summary|summaries)[-_]?dir|tensorboard[-_]?dir)"
)

ReplicaKey = tuple[str, int]
"""A replica: its vertex and its index."""


class LogPlace(NamedTuple):
    """A folder of this machine in which a replica may write event files.

    `own`: it belongs to the replica alone. `kept`: to the run, so that all files in it are of the run.
    """

    path: str
    own: bool = False
    kept: bool = False


def option_folders(words: Sequence[str]) -> Iterator[str]:
    """Yield the values of options for log folders in a command line: `--log_dir=/logs`, `--logdir /logs`."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("-") and name.endswith("dir") and _LOG_OPTIONS.fullmatch(name):
            value = value if equals else "".join(words[at + 1 : at + 2])
            if value and not value.startswith("-"):
                yield value


class _Followed:
    """An event file, the replica that writes it, and its folder below the log folder."""

    def __init__(self, path: str, key: ReplicaKey, folder: str) -> None:
        from weft.frontends.training.event_files import EventFile  # most jobs write none

        self.file, self.key, self.folder = EventFile(path), key, folder


class LogFolders:
    """The log folders of the replicas of a run, and the lines that their scalars add to the reports.

    `run` is the folder of the run. `order` sorts the replicas, the first one of the job first.
    """

    def __init__(self, run: Path, order: Callable[[ReplicaKey], Any]) -> None:
        self.folder = run / FOLDER
        self._reports = run / METRICS_FOLDER
        self._description, self._order = run / DESCRIPTION, order
        self._lock = threading.Lock()
        self._places: dict[LogPlace, dict[ReplicaKey, str]] = {}
        self._files: dict[str, _Followed] = {}
        self._values: dict[ReplicaKey, dict[tuple[str, str], EventScalar]] = {}
        self._earlier: dict[ReplicaKey, Mapping[str, Any]] = {}
        self._lines: dict[ReplicaKey, ReportFile] = {}
        self._pause = 0

    def add(self, key: ReplicaKey, host: str, places: Iterable[LogPlace]) -> None:
        """Follow the folders of a replica that starts; `host` is its host name."""
        with self._lock:
            for place in places:
                self._places.setdefault(place, {})[key] = host

    def look(self, *, last: bool = False) -> None:
        """Search for new files from time to time, read what is new, and write the last scalars; `last`: of all."""
        with self._lock:
            self._pause -= 1
            if last or self._pause < 0:
                self._pause = _LOOKS + sum(map(self._search, list(self._places))) // _SEARCHED
            self._read(self._files.values(), whole=last)
            if last:
                for lines in self._lines.values():
                    lines.end()

    def collect(self, key: ReplicaKey) -> None:
        """Read the folders of a replica alone, before they are removed."""
        with self._lock:
            for place, keys in list(self._places.items()):
                if place.own and key in keys:
                    self._search(place)
            self._read([one for one in self._files.values() if one.key == key], whole=True)

    # -------------------------------------------------------------------------------------------------------- files

    def _search(self, place: LogPlace) -> int:
        """Follow the new files of a place; return the number of entries of its folders."""
        entries, found = _event_files(place.path)
        for path, about in found:
            key = self._owner(place, about)
            followed = self._files.get(path)
            if followed is not None or sum(one.key == key for one in self._files.values()) >= _MOST_FILES:
                continue
            with suppress(OSError):
                if place.own or place.kept or os.stat(path).st_mtime >= self._begin() - _SLACK_S:
                    folder = os.path.relpath(os.path.dirname(path), place.path)
                    self._files[path] = _Followed(path, key, folder)
                    self._link(path, key, folder)
        return entries

    def _begin(self) -> float:
        """Return the time of the begin of the run, in seconds since 1970."""
        return self._description.stat().st_mtime

    def _owner(self, place: LogPlace, about: EventFileName) -> ReplicaKey:
        keys = self._places[place]
        if len(keys) > 1:
            named = [key for key, host in keys.items() if host == about.host]
            named = named or [key for key, host in keys.items() if host == _replica_of(about.pid)]
            if named:
                return named[0]
        return min(keys, key=self._order)

    def _link(self, path: str, key: ReplicaKey, folder: str) -> None:
        """Let TensorBoard find a file that lies outside of the folder of the run."""
        if path.startswith(f"{self.folder}{os.sep}"):
            return
        with suppress(OSError):
            there = self.folder / loop_item(*key) / folder
            there.mkdir(parents=True, exist_ok=True)
            (there / os.path.basename(path)).symlink_to(path)

    # ------------------------------------------------------------------------------------------------------ scalars

    def _read(self, files: Iterable[_Followed], *, whole: bool) -> None:
        changed: dict[ReplicaKey, None] = {}
        for followed in files:
            values = self._values.setdefault(followed.key, {})
            with suppress(OSError):
                while scalars := followed.file.read():
                    for scalar in scalars:
                        known = values.get((followed.folder, scalar.tag))
                        if known is None or scalar.time >= known.time:
                            values[followed.folder, scalar.tag] = scalar
                            changed[followed.key] = None
                    if not whole:
                        break
        for key in changed:
            self._write(key, self._values[key])

    def _write(self, key: ReplicaKey, values: Mapping[tuple[str, str], EventScalar]) -> None:
        path = self._reports / f"{key[0]}.{key[1]}{SCALARS_SUFFIX}"
        if key not in self._lines:
            self._lines[key] = ReportFile(str(path))
            self._earlier[key] = last_report(path).get("metrics", {})
        newest = max(values.values(), key=lambda scalar: (scalar.time, scalar.step))
        named = {name: _shown(scalar.value) for name, scalar in _named(values).items()}
        metrics: dict[str, object] = dict(list({**self._earlier[key], **named}.items())[-MOST_METRICS:])
        at = newest.time if isfinite(newest.time) else 0.0
        while len(line := report_line(at, {"step": newest.step}, metrics)) > MOST_LINE_BYTES:
            metrics.pop(next(iter(metrics)))
        self._lines[key].add(line)


def _named(values: Mapping[tuple[str, str], EventScalar]) -> dict[str, EventScalar]:
    """Return the scalars by their tags; tags of several folders have that of the folder in front."""
    tags: dict[str, int] = {}
    for _, tag in values:
        tags[tag] = tags.get(tag, 0) + 1
    return {
        (tag if tags[tag] == 1 or folder == os.curdir else f"{os.path.basename(folder)}/{tag}"): scalar
        for (folder, tag), scalar in values.items()
    }


def _shown(value: float) -> object:
    """Return a value as JSON has it; it was a float of 32 bits."""
    return float(f"{value:.7g}") if isfinite(value) else str(value)


def _event_files(root: str) -> tuple[int, list[tuple[str, EventFileName]]]:
    """Return the event files below a folder, those of upper folders first, and the number of entries.

    Hidden folders and links are left out, and what is beyond the bounds of a search.
    """
    found: list[tuple[str, EventFileName]] = []
    waiting, count = [(root, 0)], 0
    for folder, depth in waiting:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if (count := count + 1) > _MOST_ENTRIES:
                    return count, found
                if entry.is_dir(follow_symlinks=False):
                    if depth < _MOST_DEPTH and not entry.name.startswith(".") and entry.name not in _SKIPPED:
                        waiting.append((entry.path, depth + 1))
                elif entry.is_file(follow_symlinks=False) and (about := _about(entry.name)) is not None:
                    found.append((entry.path, about))
    return count, found


def _replica_of(pid: int) -> str:
    """Return the name of the replica that a process of this machine belongs to; "" if none is known."""
    with suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(b"WEFT_REPLICA="):
                return os.fsdecode(variable.partition(b"=")[2])
    return ""


def _about(name: str) -> EventFileName | None:
    """Return what the name of an event file tells, None for another file."""
    if ".tfevents." not in name:
        return None
    from weft.frontends.training.event_files import parse_name  # most jobs write none

    return parse_name(name)
