"""The reader of one run: `read_run` makes a `RunRecord` of the folder of a run, live or ended.

`weft.runs.listing` lists all runs of a state folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from weft.model.errors import NotFoundError
from weft.runs.records import INTERRUPTED, SUSPENDED, Going, Record, append_records, read_records
from weft.store.state import GRAPH_DIGEST, LogFile, last_sign, list_logs, os_error, owned, read_description

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.state import RunFolder


class ItemRecord(Struct, kw_only=True):
    """One item of a step that loops, as it stands; see `StepRecord`."""

    name: str = ""
    state: str = "pending"
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    exit: int | None = None
    message: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)


class StepRecord(Struct, kw_only=True):
    """One step of a run as it stands. Times in seconds since 1970; `attempts` counts those that began.

    Where several owners of the run have run it, `started` is when it began under the last of them. `paused_s` is for
    how long nobody ran the run between its start and its end, which only a dag can tell of.

    `items` are those of a step that loops which have begun, by number; `width` is how many there are in all. `outputs`
    are those that the description of the run could not name.
    """

    name: str
    width: int | None = None
    items: dict[int, ItemRecord] = field(default_factory=dict)
    state: str = "pending"
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    exit: int | None = None
    message: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    paused_s: float = 0.0
    logs: list[LogFile] = field(default_factory=list)


class RunRecord(Struct, kw_only=True):
    """One run as it stands, read from its folder. Times in seconds since 1970; in its `pauses` nobody ran it.

    `of_session`: a session of a program began it, and its folder has the graph itself.
    """

    id: str
    folder: Path
    name: str = ""
    state: str = "pending"
    number: int = 0
    frontend: str = ""
    of_session: bool = False
    file: str = ""
    user: str = ""
    host: str = ""
    pid: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    pauses: Sequence[tuple[float, float]] = ()
    error_code: str = ""
    message: str = ""
    steps: list[StepRecord] = field(default_factory=list)

    @property
    def paused_s(self) -> float:
        """For how long nobody ran it since it began, in seconds."""
        return sum(end - begin for begin, end in self.pauses)

    def step(self, name: str) -> StepRecord:
        """Return one step; NotFoundError: the run has none of that name."""
        for step in self.steps:
            if step.name == name:
                return step
        raise NotFoundError(
            f"{self.id} has no step {name!r}",
            hint=f"It has: {', '.join(step.name for step in self.steps[:20]) or 'none yet'}",
        )

    def task(self, name: str) -> tuple[StepRecord, int | None]:
        """Return a step and which item of its loop is meant: `step-2` or `step[2]`; None: all of it.

        NotFoundError: the run has no such step, or that no such item.
        """
        if any(step.name == name for step in self.steps):
            return self.step(name), None
        match = _ITEM.fullmatch(name)
        step = next((step for step in self.steps if match is not None and step.name == match["step"]), None)
        if match is None or step is None:
            return self.step(name), None
        number = int(match["dash"] or match["bracket"])
        width = step.width or 1
        if number >= width and (step.width or not self.of_session):  # a session tells widths at the end only
            last = f" to {item_name(step.name, width - 1)}" if width > 1 else ""
            hint = f"It has {width}: {step.name}{last}"
            raise NotFoundError(f"{step.name} of {self.id} has no item {number}", hint=hint)
        return step, number


_ITEM: Final = re.compile(r"(?P<step>.+?)(?:-(?P<dash>[0-9]{1,9})|\[(?P<bracket>[0-9]{1,9})\])")


def item_name(step: str, number: int) -> str:
    """Return what an item of a step is called: the first as the step, each later one with its number."""
    return f"{step}-{number}" if number else step


def read_run(folder: Path, *, alive: bool | None = None) -> RunRecord:
    """Return a run as its folder tells it, be it live, ended or interrupted.

    `alive` says whether an owner of the run lives that goes on with it (default: ask). One that was interrupted ended
    when there was a last sign of life of it: it may have gone on for longer.
    NotFoundError: no run there. ConflictError: its description is damaged, or of a newer version.
    """
    try:
        said = read_description(folder)
    except (NotFoundError, FileNotFoundError):
        if not folder.is_dir():
            raise NotFoundError(f"there is no run in {folder}", hint="List the runs: weft ls") from None
        said = {}  # it died before it was described, or is about to be
    except NotADirectoryError:
        raise NotFoundError(f"{folder} is not the folder of a run") from None
    except PermissionError as error:
        raise os_error(f"the run in {folder} cannot be read", error) from None
    run = RunRecord(
        id=folder.name,
        folder=folder,
        number=_of(said, "number", int, 0),
        created=float(_of(said, "created_at", (int, float), 0.0)),
        pid=_of(said, "pid", int, 0),
        of_session=bool(_of(said, GRAPH_DIGEST, str, "")),
        parameters=_of(said, "parameters", dict, {}),
        outputs=_of(said, "outputs", dict, {}),
        **{name: _of(said, name, str, "") for name in ("name", "frontend", "file", "user", "host")},
    )
    if alive is None:
        alive = owned(folder)  # asked first: what ends in between has then told so
    steps = {name: StepRecord(name=name) for name in _of(said, "steps", list, []) if isinstance(name, str)}
    over = False
    going = Going()
    for record in read_records(folder):
        going.add(record)
        if record.step:
            _apply(steps.setdefault(record.step, StepRecord(name=record.step)), record, going.since)
            continue
        run.state = record.state or run.state
        if record.ended:
            over, run.ended, run.error_code, run.message = True, record.time, record.error, record.message
        else:  # of a later owner, who goes on with it
            over, run.ended, run.error_code, run.message = False, None, "", ""
    run.started, run.pauses = going.started, going.pauses
    if not over and not alive:
        run.ended = going.last if run.state == INTERRUPTED else max(going.last, last_sign(folder))
        run.state = INTERRUPTED
    if not alive and run.state in (INTERRUPTED, SUSPENDED):
        for step in steps.values():
            parts: list[StepRecord | ItemRecord] = [step, *step.items.values()]
            for part in parts:
                if part.started is not None and part.ended is None:
                    part.state, part.ended = INTERRUPTED, run.ended
    for log in list_logs(folder):
        if log.step in steps:
            steps[log.step].logs.append(log)
    run.steps = list(steps.values())
    run.outputs = {**run.outputs, **dict(_outputs(run.steps))}
    return run


def tell_interruption(folder: RunFolder) -> None:
    """Write down, as the new owner of a run, when there was a last sign of life of one that was killed."""
    found = read_run(folder.path, alive=False)
    if found.state == INTERRUPTED and found.ended is not None:
        append_records(folder, [Record(time=found.ended, state=INTERRUPTED)])


def _outputs(steps: Iterable[StepRecord]) -> Iterator[tuple[str, str]]:
    """Yield the outputs that records tell of, by `step.artifact`."""
    for step in steps:
        parts: list[tuple[int, StepRecord | ItemRecord]] = [(0, step), *sorted(step.items.items())]
        for number, part in parts:
            for name, path in part.outputs.items():
                yield f"{item_name(step.name, number)}.{name}", path


def _apply(step: StepRecord, record: Record, since: float) -> None:
    part: StepRecord | ItemRecord = step
    if record.index is not None:
        part = step.items.get(record.index) or step.items.setdefault(record.index, ItemRecord())
    elif record.items is not None:
        step.width = record.items if record.items != 1 else None
        if step.width is None:  # an edit has made another step of it
            step.items.clear()
    part.state = record.state or part.state
    if record.message or record.ended:
        part.message = record.message
    part.exit = record.exit if record.exit is not None else part.exit
    part.outputs = record.outputs if record.ended else part.outputs
    if record.state == "running":
        part.started = record.time if part.started is None or part.started < since else part.started
        part.ended = None
        part.attempts = max(part.attempts, record.attempt + 1)
    elif record.state in ("pending", "skipped"):  # an owner that goes on with the run begins it again, or leaves it out
        part.started = part.ended = part.exit = None
    if record.ended:
        part.ended = record.time


def _of(said: Mapping[str, Any], key: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = said.get(key, default)
    return value if isinstance(value, kind) else default
