"""Runs of training jobs from Python: `TrainingRun` while it goes on, `TrainingResult` at its end."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path  # noqa: TC003 - msgspec reads it
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from weft import wiring
from weft.admin.settings import BACKENDS, load_settings
from weft.frontends.training.replica import VALUES
from weft.model.errors import NotFoundError, UsageError, WeftError
from weft.model.ids import loop_item
from weft.model.suggestions import did_you_mean
from weft.runs.active import RunEvents
from weft.runs.job_reasons import failed_beside
from weft.runs.orders import refuse_ended
from weft.runs.reading import read_run
from weft.runs.records import SUSPENDED
from weft.runs.service import RunService
from weft.store.state import list_logs, read_status, read_trusted

if TYPE_CHECKING:
    from weft.frontends.training.schema import JobFile
    from weft.runs.active import ActiveRun, RunResult
    from weft.runs.sources import PlannableSource
    from weft.runtime.session import EngineSession


class ReplicaResult(Struct, frozen=True):
    """A replica at the end of a run, or now. `exit_code` is that of its last end, None before one.

    `logs` are the files of its output, one for each start, `report` is its last report.
    """

    state: str
    exit_code: int | None = None
    starts: int = 0
    message: str = ""
    logs: tuple[Path, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> str:
        """The output of all starts."""
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in self.logs)


class TrainingResult(Struct, frozen=True):
    """The end of a run of training jobs.

    `state` is `succeeded`, `failed`, `terminated` or `suspended`. `conditions` maps the name of each job to its
    conditions by type ("True" or "False"). `replicas` and `values`, what a Python function returned, are by the name of
    the replica, such as "worker-0". `checkpoints` maps jobs to their folders. `error` is None if the run succeeded.
    """

    run_id: str
    state: str
    folder: Path
    conditions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    replicas: Mapping[str, ReplicaResult] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    error: WeftError | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the run succeeded."""
        return self.error is None and self.state == "succeeded"


class TrainingRun:
    """A run of training jobs in this process; made by `JobTemplate.submit`."""

    def __init__(self, service: RunService, active: ActiveRun) -> None:
        self._service, self._active = service, active
        self.id = active.name
        self.folder = active.folder

    def __repr__(self) -> str:
        return f"<run {self.id}: {self.state}>"

    @property
    def state(self) -> str:
        """The state of the run."""
        return read_run(self.folder).state

    @property
    def conditions(self) -> Mapping[str, Mapping[str, str]]:
        """The conditions of each job, as `TrainingResult.conditions`."""
        return _conditions(self.folder)

    @property
    def replicas(self) -> Mapping[str, ReplicaResult]:
        """The replicas that have begun, by name."""
        return _replicas(self.folder)

    def wait(self, timeout_s: float | None = None, *, check: bool = True) -> TrainingResult:
        """Wait for the end and return the result; errors as of `JobTemplate.run`.

        TimeoutError: `timeout_s` seconds have passed; the run continues.
        """
        if not self._active.wait(timeout_s):
            raise TimeoutError(f"{self.id} did not end within {timeout_s:g} s")
        ended = self._active.result()
        if ended.state != SUSPENDED:
            self._service.close()
        return _result(ended, check=check, callers=1)

    def suspend(self) -> None:
        """End all replicas and release the machine; `resume` continues.

        ConflictError: the run has ended, or is suspended.
        """
        refuse_ended(read_run(self.folder))
        self._active.suspend()

    def resume(self) -> None:
        """Continue a suspended or failed run. ConflictError: it goes on, or it has succeeded."""
        self._active.wait()
        self._active = self._service.resume(self.id, events=RunEvents(records=False))

    def scale(self, **counts: int) -> None:
        """Change the numbers of replicas: `scale(worker=4)`.

        UsageError: a type or number that is not possible. CapacityError: there is never room for so many.
        ConflictError: the run has ended, or is suspended.
        """
        refuse_ended(read_run(self.folder))
        self._active.scale(",".join(f"{name}={count}" for name, count in counts.items()))

    def cancel(self, reason: str = "cancelled") -> None:
        """End all replicas and the run."""
        self._active.cancel(reason)

    def logs(self, replica: str) -> str:
        """Return the output of a replica such as "worker-0" so far. NotFoundError: it has not begun."""
        found = self.replicas
        if replica not in found:
            hint = did_you_mean(replica, found, f"There are: {', '.join(found) or 'none yet'}")
            raise NotFoundError(f"{self.id} has no replica {replica!r}", hint=hint)
        return found[replica].log


def backend_of(backend: str | None, session: EngineSession | None) -> str | None:
    """Return the backend of a run, None for that of the settings. UsageError: it differs from that of the session."""
    if session is None:
        return backend
    if not hasattr(session, "executor"):
        raise UsageError(f"session is {session!r}, which is no weft.Session", hint='Open one: weft.Session("ray").')
    own = session.executor.name
    if backend not in (None, own):
        raise UsageError(f"backend is {backend!r}, and the session has {own!r}", hint="Leave one of them out.")
    return own if own in BACKENDS else None


def run_jobs(
    files: JobFile,
    file: Path,
    function: bytes,
    flags: Mapping[str, object],
    *,
    check: bool,
    session: EngineSession | None = None,
) -> TrainingResult:
    """Run jobs to their end; see `JobTemplate.run`."""
    service, source = _source(files, file, function, flags, session)
    return _result(wiring.run_pipeline(source, service.settings, quiet=True, session=session), check=check, callers=2)


def begin_jobs(
    files: JobFile, file: Path, function: bytes, flags: Mapping[str, object], *, session: EngineSession | None = None
) -> TrainingRun:
    """Begin a run of jobs; see `JobTemplate.submit`."""
    service, source = _source(files, file, function, flags, session)
    try:
        return TrainingRun(service, service.submit(source, events=RunEvents(records=False)))
    except BaseException:
        service.close()
        raise


def _source(
    files: JobFile, file: Path, function: bytes, flags: Mapping[str, object], session: EngineSession | None
) -> tuple[RunService, PlannableSource]:
    base = file if file.is_dir() else file.parent
    settings = load_settings(flags, start=base)
    state = settings.state_root(base)
    state.warn_diverted()
    source = wiring.source_of_jobs(files, file, settings, state, function=function)
    return RunService(wiring, settings, state, session=session), source


def _result(ended: RunResult, *, check: bool, callers: int) -> TrainingResult:
    """Return the result of a run; a warning stands for a line of the program, so many `callers` above."""
    if check and ended.error is not None:
        raise ended.error
    folder = ended.folder
    if check and (beside := failed_beside(read_run(folder))):
        warnings.warn(f"{ended.run_id}: {beside}", RuntimeWarning, stacklevel=callers + 2)
    checkpoints = folder / "checkpoints"
    return TrainingResult(
        ended.run_id,
        ended.state,
        folder,
        _conditions(folder),
        _replicas(folder),
        _values(folder),
        {path.name: path for path in sorted(checkpoints.iterdir())} if checkpoints.is_dir() else {},
        ended.error,
    )


def _conditions(folder: Path) -> dict[str, dict[str, str]]:
    return {
        job["name"]: {one["type"]: one["status"] for one in job["status"].get("conditions", ())}
        for job in read_status(folder)
    }


def _replicas(folder: Path) -> dict[str, ReplicaResult]:
    reports = {name: report for job in read_status(folder) for name, report in job["reports"].items()}
    logs: dict[tuple[str, int | None], list[Path]] = {}
    for log in list_logs(folder):
        logs.setdefault((log.step, log.index), []).append(log.path)
    found = {}
    for step in read_run(folder).steps:
        for number, item in sorted(step.items.items()):
            name = loop_item(step.name, number)
            own: Sequence[Path] = logs.get((step.name, number), ())
            code = 0 if item.exit is None and item.state == "succeeded" else item.exit
            found[name] = ReplicaResult(
                item.state, code, item.attempts, item.message, tuple(own), reports.get(name, {})
            )
    return found


def _values(folder: Path) -> dict[str, Any]:
    found = {}
    places = folder / VALUES
    for path in sorted(places.glob("*.pickle")) if places.is_dir() else ():
        vertex, number, _ = path.name.rsplit(".", 2)
        found[loop_item(vertex, int(number))] = pickle.loads(read_trusted(places, path.name))
    return dict(sorted(found.items()))
