"""The reader of one run: `read_run` makes a `RunRecord` of the folder of a run, live or ended.

`weft.runs.listing` lists all runs of a state folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from weft.admin.settings import BACKENDS
from weft.model.errors import NotFoundError
from weft.model.ids import item_name, loop_item
from weft.model.patterns import late_pattern
from weft.model.suggestions import did_you_mean
from weft.runs.records import INTERRUPTED, SUSPENDED, Record, RunTimes, append_records, read_records
from weft.store.labels import read_labels
from weft.store.state import (
    BACKEND,
    EVENTS,
    GRAPH_DIGEST,
    PROFILE_OF_RUN,
    STORAGE,
    LogFile,
    last_sign,
    list_inner_runs,
    list_logs,
    os_error,
    owned,
    read_description,
    read_status,
)

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.state import RunFolder


TRAINING: Final = "training"
"""The front end whose steps are groups of replicas."""


class ItemRecord(Struct, kw_only=True):
    """The current state of one item of a step that loops; see `StepRecord`."""

    name: str = ""
    state: str = "pending"
    started: float | None = None
    ended: float | None = None
    open_end: bool = False
    attempts: int = 0
    exit: int | None = None
    message: str = ""
    warned: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict)


class StepRecord(Struct, kw_only=True):
    """The current state of one step. Times are in seconds since 1970; `attempts` counts those that began.

    If several owners of the run have run the step, `started` is its start under the last of them. `paused_s` is the
    time without an owner between start and end; only dags have one. With `open_end` it may have run longer than until
    `ended`, because its owner was killed.

    `items` are the items of a loop that have begun, by number; `width` is the number of all items. `outputs` are those
    that are not in the description of the run. `warned`: the message is a warning.
    """

    name: str
    width: int | None = None
    items: dict[int, ItemRecord] = field(default_factory=dict)
    state: str = "pending"
    started: float | None = None
    ended: float | None = None
    open_end: bool = False
    attempts: int = 0
    exit: int | None = None
    message: str = ""
    warned: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict)
    paused_s: float = 0.0
    logs: list[LogFile] = field(default_factory=list)


class RunRecord(Struct, kw_only=True):
    """The current state of one run, read from its folder. Times are in seconds since 1970.

    `pauses` are the times without an owner. `of_session`: a session of a program began the run, and its folder has the
    graph.
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
    profile: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    pauses: Sequence[tuple[float, float]] = ()
    error_code: str = ""
    message: str = ""
    steps: list[StepRecord] = field(default_factory=list)
    tags: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    jobs: Sequence[Mapping[str, Any]] = ()
    """The training jobs of the run: kind, name, namespace, condition, status and events of each, and the step."""

    @property
    def of_jobs(self) -> bool:
        """Whether its steps are groups of replicas of training jobs."""
        return self.frontend == TRAINING

    @property
    def why_stopped(self) -> str:
        """Why a replica of its jobs was ended from outside, in words."""
        return "stopped" if self.ended is None else "stopped with its job"

    @property
    def paused_s(self) -> float:
        """The time without an owner since the start, in seconds."""
        return sum(end - begin for begin, end in self.pauses)

    def step(self, name: str) -> StepRecord:
        """Return one step. NotFoundError: no step has this name."""
        for step in self.steps:
            if step.name == name:
                return step
        self._refuse_dag(name)
        raise NotFoundError(
            f"{self.id} has no step {name!r}",
            hint=f"It has: {', '.join(step.name for step in self.steps[:20]) or 'none yet'}",
        )

    def _refuse_dag(self, name: str) -> None:
        if inside := self.dag(name):
            listed = ", ".join(step.name for step in inside[:20])
            raise NotFoundError(f"{name} of {self.id} is a dag", hint=f"Its steps: {listed}")

    def dag(self, name: str) -> list[StepRecord]:
        """Return the steps inside a dag; [] if no dag has this name."""
        return [step for step in self.steps if step.name.startswith(f"{name}.")]

    def task(self, name: str) -> tuple[StepRecord, int | None]:
        """Return a step and the number of the named item (`step-2` or `step[2]`), None for the whole step.

        NotFoundError: the run has no such step, it is a dag with steps, or the step has no such item.
        """
        if not (self.of_jobs or self.of_session):  # also one that loops, which has a record for the list that it reads
            self._refuse_dag(name)
        if any(step.name == name for step in self.steps):
            return self.step(name), None
        if self.of_jobs:
            return self._replica(name)
        match = _ITEM.fullmatch(name)
        step = next((step for step in self.steps if match is not None and step.name == match["step"]), None)
        if match is None or step is None:
            return self.step(name), None
        number = int(match["dash"] or match["bracket"])
        width = step.width or 1
        if number >= width and (
            step.width or not self.of_session
        ):  # the records of a session have widths only at the end
            last = f" to {item_name(step.name, width - 1)}" if width > 1 else ""
            hint = f"See: weft show {self.id}" if self.dag(step.name) else f"It has {width}: {step.name}{last}"
            raise NotFoundError(f"{step.name} of {self.id} has no item {number}", hint=hint)
        return step, number

    def _replica(self, name: str) -> tuple[StepRecord, int | None]:
        """Return a replica type and the number of a replica, by its short name or that of its pod."""
        known = {step.name: step for step in self.steps}
        names = [name.lower()]
        for job in self.jobs:
            prefix = f"{job['name']}-"
            if name.startswith(prefix):
                short = name.removeprefix(prefix)
                names += [short, f"{job['name']}.{short}"]
        for one in names:
            if one in known:
                return known[one], None
            match = _ITEM.fullmatch(one)
            step = None if match is None else known.get(match["step"])
            if match is None or step is None:
                continue
            number = int(match["dash"] or match["bracket"])
            if number < (step.width or 0) or (not step.items and self.ended is None):  # it may wait for its start
                return step, number
            there = ", ".join(loop_item(step.name, n) for n in range(min(step.width or 0, _MOST_NAMED)))
            more = f" and {step.width - _MOST_NAMED} more" if step.width and step.width > _MOST_NAMED else ""
            hint = f"There are: {there}{more}" if there else f"None of its replicas has begun. See: weft show {self.id}"
            raise NotFoundError(f"{self.id} has no replica {name[:100]!r}", hint=hint)
        hint = did_you_mean(name, known, f"Its replica types: {', '.join(known)}")
        raise NotFoundError(f"{self.id} has no replica {name[:100]!r}", hint=hint)


_MOST_NAMED: Final = 8
_ITEM: Final = late_pattern(r"(?P<step>.+?)(?:-(?P<dash>[0-9]{1,9})|\[(?P<bracket>[0-9]{1,9})\])")


def _description_of(folder: Path) -> Mapping[str, Any]:
    """Return the description of a run. Errors are those of `read_run`."""
    try:
        return read_description(folder)
    except (NotFoundError, FileNotFoundError):
        if not folder.is_dir():
            raise NotFoundError(f"there is no run in {folder}", hint="List the runs: weft ls") from None
        if os.path.exists(folder / EVENTS) and not owned(folder):
            raise
        return {}  # its owner died before the description, or has yet to write it
    except NotADirectoryError:
        raise NotFoundError(f"{folder} is not the folder of a run") from None
    except PermissionError as error:
        raise os_error(f"the run in {folder} cannot be read", error) from None


def read_run(folder: Path, *, alive: bool | None = None) -> RunRecord:
    """Return a run read from its folder: live, ended or interrupted.

    `alive` is whether the run has a live owner (default: checked here). An interrupted run ended at its last sign of
    life, but may have run longer. NotFoundError: no run is there. ConflictError: its description is damaged, or of a
    newer version.
    """
    description = _description_of(folder)
    labels = read_labels(folder)
    run = RunRecord(
        id=folder.name,
        folder=folder,
        number=_of(description, "number", int, 0),
        created=float(_of(description, "created_at", (int, float), 0.0)),
        pid=_of(description, "pid", int, 0),
        of_session=bool(_of(description, GRAPH_DIGEST, str, "")),
        parameters=_of(description, "parameters", dict, {}),
        profile=_of(_of(description, PROFILE_OF_RUN, dict, {}), "name", str, ""),
        outputs=_of(description, "outputs", dict, {}),
        tags=labels.tags,
        note=labels.note,
        **{name: _of(description, name, str, "") for name in ("name", "frontend", "file", "user", "host")},
    )
    if alive is None:
        alive = owned(folder)  # checked first: an end in between is then in the records
    steps = {name: StepRecord(name=name) for name in _of(description, "steps", list, []) if isinstance(name, str)}
    over = False
    times = RunTimes()
    for record in read_records(folder):
        times.add(record)
        if record.step:
            _apply(steps.setdefault(record.step, StepRecord(name=record.step)), record, times.since)
            continue
        if not record.state:  # news about the run
            continue
        run.state = record.state
        if record.ended:
            over, run.ended, run.error_code, run.message = True, record.time, record.error, record.message
        else:  # the record of a later owner, who resumed the run
            over, run.ended, run.error_code, run.message = False, None, "", ""
    run.started, run.pauses = times.started, times.pauses
    if not over and not alive:
        run.ended = times.last if run.state == INTERRUPTED else max(times.last, last_sign(folder))
        run.state = INTERRUPTED
    if not alive and run.state in (INTERRUPTED, SUSPENDED):
        for step in steps.values():
            parts: list[StepRecord | ItemRecord] = [step, *step.items.values()]
            for part in parts:
                if part.started is not None and part.ended is None:
                    part.state, part.ended, part.open_end = INTERRUPTED, run.ended, run.state == INTERRUPTED
    for step in steps.values():
        if step.state == "pending" and step.items:
            step.state = _state_of(step.items.values())
    for log in list_logs(folder):
        if log.step in steps:
            steps[log.step].logs.append(log)
    run.steps = list(steps.values())
    if "training" in description:
        run.jobs = [{**job, "condition": condition_of(job, run.state)} for job in read_status(folder)]
    else:
        run.jobs = [{**job, "step": one.name} for one in list_inner_runs(folder) for job in read_run(one.folder).jobs]
    made = {name for step in run.steps for name in _succeeded(step)}
    planned = {name: path for name, path in run.outputs.items() if name.rpartition(".")[0] in made}
    run.outputs = {**planned, **dict(_outputs(run.steps))}
    return run


QUEUED: Final = "Queued"
"""The word for a job that waits for its places, which has no condition of upstream."""
_GOING: Final = frozenset({"Pending", QUEUED, "Created", "Running", "Restarting"})
"""The words for jobs that have not ended and are not suspended."""


def condition_of(job: Mapping[str, Any], state: str) -> str:
    """Return the present condition of a training job, whose run is in `state`: the last one of its status.

    A job of another controller is Unmanaged, one that waits for its places Queued, and one of a killed run Interrupted.
    """
    if "managed_by" in job:
        return "Unmanaged"
    conditions = job["status"].get("conditions", ())
    held = (one["type"] for one in reversed(conditions) if one["status"] == "True")
    found: str = next(held, "Pending")
    if found in ("Pending", "Created") and job.get("queued"):
        found = QUEUED
    return "Interrupted" if state == INTERRUPTED and found in _GOING else found


def conditions_of(folder: Path, state: str) -> list[tuple[str, str]]:
    """Return the name and the present condition of each training job of a run in `state`."""
    return [(job["name"], condition_of(job, state)) for job in read_status(folder)]


def _state_of(items: Collection[ItemRecord]) -> str:
    """Return the state of a step of which only the tasks have records."""
    states = {item.state for item in items}
    return next((state for state in ("running", "failed", INTERRUPTED, "terminated") if state in states), "succeeded")


def record_interruption(folder: RunFolder) -> None:
    """Record, as the new owner of a run, the last sign of life of a killed owner."""
    found = read_run(folder.path, alive=False)
    if found.state == INTERRUPTED and found.ended is not None and found.started is not None:
        append_records(folder, [Record(time=found.ended, state=INTERRUPTED)])


def _succeeded(step: StepRecord) -> Iterator[str]:
    """Yield the name of a step, or the names of its items, as far as they have succeeded."""
    if step.width is None:
        if step.state == "succeeded":
            yield step.name
        return
    for number, item in step.items.items():
        if item.state == "succeeded":
            yield item_name(step.name, number)


def _outputs(steps: Iterable[StepRecord]) -> Iterator[tuple[str, str]]:
    """Yield the outputs in records, by `step.artifact`."""
    for step in steps:
        parts: list[tuple[int, StepRecord | ItemRecord]] = [(0, step), *sorted(step.items.items())]
        for number, part in parts:
            for name, path in part.outputs.items():
                yield f"{item_name(step.name, number)}.{name}", path


def _apply(step: StepRecord, record: Record, since: float) -> None:
    part: StepRecord | ItemRecord = step
    if record.index is not None:
        part = step.items.get(record.index) or step.items.setdefault(record.index, ItemRecord())
        step.width = max(step.width or 0, record.index + 1)
    elif record.items is not None:
        step.width = record.items if record.items != 1 else None
        if step.width is None:  # an edit has changed the step
            step.items.clear()
    taken_back = record.state == part.state  # a record without a new state is about its message alone
    part.state = record.state or part.state
    if record.message or record.ended or taken_back:
        part.message, part.warned = record.message, record.warned
    part.outputs = record.outputs if record.ended else part.outputs
    if record.state == "running":
        part.exit = None
        part.started = record.time if part.started is None or part.started < since else part.started
        part.ended = None
        part.attempts = max(part.attempts, record.attempt + 1)
    elif record.state in (
        "pending",
        "skipped",
    ):  # an owner that resumes the run starts the step again, or leaves it out
        part.started = part.ended = part.exit = None
    part.exit = record.exit if record.exit is not None else part.exit
    if record.ended:
        part.ended = record.time
        if part.started is not None and part.started < since:  # this owner took the result without a start
            part.started = None


def _of(description: Mapping[str, Any], key: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = description.get(key, default)
    return value if isinstance(value, kind) else default


def began_on(folder: Path) -> str | None:
    """Return the backend on which a run began, None if that is not one of the settings."""
    found = read_description(folder).get(BACKEND)
    return found if found in BACKENDS else None


def has_storage(folder: Path) -> bool:
    """Whether the files of a run travel by a URL."""
    return STORAGE in read_description(folder)


def stays_at_url(folder: Path) -> bool:
    """Whether the outputs of a run stay at the URL of its storage."""
    stored = read_description(folder).get(STORAGE)
    return isinstance(stored, dict) and bool(stored.get("keep"))


def profile_settings(folder: Path) -> Mapping[str, Any]:
    """Return the settings of the profile of a run; empty without one."""
    values = _of(_of(read_description(folder), PROFILE_OF_RUN, dict, {}), "values", dict, {})
    found: dict[str, Any] = _of(values, "settings", dict, {})
    return found
