"""The records of a run: one line of JSON in `events.jsonl` of its folder for each change of a state.

The states are the words of the front end, projected from the states of the engine (`weft.graph.projection`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from weft.store.places import kept, resolved
from weft.store.state import EVENTS, os_error

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.state import RunFolder

RUNS_ALWAYS: Final = "starts again: restartPolicy Always"
"""The message of a task that begins again after its success."""
INTERRUPTED: Final = "interrupted"
"""The state of a run (or step) whose owner died before its end."""
SUSPENDED: Final = "suspended"
"""The state of a run that its owner has released for a resume."""
DAMAGED: Final = "damaged"
"""The state of a run whose description cannot be read."""
ACTIVE: Final = frozenset({"initiating", "pending", "running", "terminating"})
"""The states of runs that have not ended."""
RUN_STATES: Final = (
    *("pending", "running", "terminating", "succeeded", "failed", "terminated"),
    *(INTERRUPTED, SUSPENDED, DAMAGED),
)
STEP_STATES: Final = (
    "pending",
    "running",
    "terminating",
    "succeeded",
    "failed",
    "terminated",
    "cancelled",
    "skipped",
    INTERRUPTED,
)
BY_USER: Final = "was cancelled: "
"""Begins the message of a task that its user has cancelled."""
_LINE_LIMIT: Final = 1 << 20
_FOLDER: Final = "\0/"
"""Stands for the path of the run's folder in messages; no path has a NUL."""


class Record(Struct, frozen=True, kw_only=True):
    """One event: the run (`step` empty), a step, or task `index` of a step is in `state` since `time`, or there is
    news in `message` (`state` empty).

    `time` is in seconds since 1970-01-01 UTC, `attempt` counts from 0, `exit` is the exit code of a command if known.
    `ended`: the state is final. `error` is the code of an error. `warned`: `message` is a warning. `items` is the
    number of tasks of a step, if not one. `outputs` maps names to the paths of outputs that were unknown before the
    run.
    """

    time: float
    step: str = ""
    state: str = ""
    message: str = ""
    index: int | None = None
    attempt: int = 0
    exit: int | None = None
    ended: bool = False
    error: str = ""
    warned: bool = False
    items: int | None = None
    outputs: dict[str, str] = field(default_factory=dict)

    def to_line(self, folder: Path) -> bytes:
        """Return the record of the run in a folder as one line of JSON, without default values."""
        fields: dict[str, Any] = {"time": self.time}
        for name, usual in _USUAL:
            if (value := getattr(self, name)) != usual:
                fields[name] = value
        if self.outputs:
            fields["outputs"] = kept(folder.parent.parent, self.outputs)
        if self.message:
            fields["message"] = self.message.replace(f"{folder}/", _FOLDER)
        return _ENCODE(fields).encode() + b"\n"


_USUAL: Final = [(name, getattr(Record(time=0.0), name)) for name in Record.__struct_fields__[1:]]
_ENCODE: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "time": (float, int),
    "step": (str,),
    "state": (str,),
    "message": (str,),
    "index": (int,),
    "attempt": (int,),
    "exit": (int,),
    "ended": (bool,),
    "error": (str,),
    "warned": (bool,),
    "items": (int,),
    "outputs": (dict,),
}


def parse_record(line: bytes, folder: Path) -> Record | None:
    """Parse one line of the run in a folder; None if it is no complete record (torn, or of a newer version)."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or "time" not in found:
        return None
    known = {name: value for name, value in found.items() if name in _KINDS}
    if any(not isinstance(value, _KINDS[name]) for name, value in known.items()):
        return None
    if "outputs" in known:
        known["outputs"] = resolved(folder.parent.parent, known["outputs"])
    if "message" in known:
        known["message"] = known["message"].replace(_FOLDER, f"{folder}/")
    return Record(**known)


def read_records(folder: Path) -> Iterator[Record]:
    """Yield the records of the run in `folder`, oldest first, without an incomplete last line."""
    try:
        with (folder / EVENTS).open("rb") as file:
            while line := file.readline(_LINE_LIMIT):
                if line.endswith(b"\n") and (record := parse_record(line, folder)) is not None:
                    yield record
    except FileNotFoundError:
        return


def follow_records(folder: Path) -> Iterator[Record | None]:
    """Yield the records of the run in `folder` without an end: None each time when no further one is there yet."""
    at = 0
    while True:
        with suppress(FileNotFoundError), (folder / EVENTS).open("rb") as file:
            file.seek(at)
            while (line := file.readline(_LINE_LIMIT)).endswith(b"\n"):
                at += len(line)
                if (record := parse_record(line, folder)) is not None:
                    yield record
        yield None


class RunTimes(Struct):
    """The start of a run, its times without an owner, and its last sign of life, in seconds since 1970.

    `since` is the time at which its present owner took over.
    """

    started: float | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)
    since: float = 0.0
    last: float = 0.0

    @property
    def paused_s(self) -> float:
        """The time without an owner, in seconds."""
        return sum(end - begin for begin, end in self.pauses)

    def add(self, record: Record) -> None:
        """Add the next record. A run becomes pending again only when another owner resumes it."""
        if not record.step and self.started is None and record.state == "running":
            self.started = record.time
        elif not record.step and self.started is not None and record.state == "pending":
            self.pauses.append((self.last, record.time))
            self.since = record.time
        self.last = record.time


def open_events(path: Path) -> int:
    """Open the file for appending, without an incomplete last line of a killed owner."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600)
        size = os.fstat(fd).st_size
        at = size
        while at > 0:
            start = max(0, at - 65_536)
            newline = os.pread(fd, at - start, start).rfind(b"\n")
            at = start if newline < 0 else start + newline + 1
            if newline >= 0:
                break
        if at != size:
            os.ftruncate(fd, at)
    except OSError as error:
        raise os_error(f"{path} cannot be opened", error) from None
    return fd


def append_records(folder: RunFolder, records: Iterable[Record]) -> None:
    """Append records in the folder of a run that this process owns, all or none of them."""
    fd = open_events(folder.events)
    before = os.fstat(fd).st_size
    try:
        data = memoryview(b"".join(record.to_line(folder.path) for record in records))
        while data:
            data = data[os.write(fd, data) :]
        os.fdatasync(fd)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(fd, before)
        raise os_error(f"{folder.events} cannot be written", error) from None
    finally:
        os.close(fd)
