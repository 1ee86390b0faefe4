"""Sweeps: one run of a pipeline for each point of a grid of parameters, on the workers and the cache of one service.

The runs of a sweep have the tags `sweep` and `point`, so the state of a sweep is that of its runs, and an interrupted
sweep goes on from them.
"""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.model.errors import ConflictError, WeftError
from weft.model.suggestions import did_you_mean
from weft.model.wording import number_text
from weft.runs.grids import Halving, StopCondition, metric_value, plain_point
from weft.runs.listing import list_runs
from weft.runs.reading import read_run
from weft.runs.records import ACTIVE
from weft.runs.reports.facts import metrics_of
from weft.runs.sweep_files import digest_of_file
from weft.store.labels import SWEEP, RunLabels, change_labels, parse_tags, read_labels

if TYPE_CHECKING:
    from weft.admin.settings import Settings
    from weft.runs.active import ActiveRun, RunEvents
    from weft.runs.reports.facts import MetricFact
    from weft.runs.requests import RunRequest
    from weft.runs.sources import PlannableSource
    from weft.runs.sweep_files import SweepPlan
    from weft.store.folders import OwnerLock
    from weft.store.state import StateRoot

POINT: Final = "point"
DROPPED: Final = "dropped"
"""More tags of the runs of sweeps: the number of the point, and the rung at which it was dropped."""
NOT_STARTED: Final = "not started"
_MOST_NAMED: Final = 10
_LOOK_S: Final = 0.2


class SweepHost(Protocol):
    """The use cases that a sweep needs, of one state folder."""

    @property
    def state(self) -> StateRoot:
        """The state folder."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings of the runs."""
        ...

    def load(self, request: RunRequest) -> PlannableSource:
        """Return the source of a run."""
        ...

    def submit(self, source: PlannableSource, *, events: RunEvents, labels: RunLabels) -> ActiveRun:
        """Begin a run."""
        ...

    def resume(self, run: str, *, events: RunEvents) -> ActiveRun:
        """Go on with a run."""
        ...


class SweepPoint(Struct, kw_only=True):
    """A point of a sweep: its run ("" before the first), the state of that, its metrics and its time in seconds.

    `dropped` is the rung at which halving has ended it, None if it has not.
    """

    number: int
    parameters: Mapping[str, str]
    run: str = ""
    state: str = NOT_STARTED
    metric: float | None = None
    seconds: float | None = None
    dropped: int | None = None
    message: str = ""


class Sweep:
    """A sweep in this process: `drive` starts its runs and waits for them; `points` has what they have come to.

    `say` is called with a line for each point that begins or ends.
    """

    def __init__(self, service: SweepHost, plan: SweepPlan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.points = [SweepPoint(number=at, parameters=point) for at, point in enumerate(plan.points)]
        self.stopped = ""
        """Why it ended before all points had run; "" if it did not."""
        self.satisfied = False
        """Whether a run has met the condition."""
        self.warnings: Sequence[str] = ()
        """Warnings for the user, before the first run."""
        self.remarks: list[str] = []
        """What the user should know at the end: warnings of later points, and names of metrics that no run has."""
        self.lock: OwnerLock | None = None
        """The lock of the sweep, which `release` releases; None before it has a file."""
        self._service, self._say = service, say
        self._condition = StopCondition(plan.stop_when) if plan.stop_when else None
        self._halving = Halving(maximize=plan.maximize)
        self._active: dict[int, ActiveRun] = {}
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        named = (plan.metric, plan.halve, self._condition.metric if self._condition else "")
        self._unseen = {name for name in named if name}
        self._warned: set[str] = set()
        self._find_runs()

    @property
    def at_a_time(self) -> int:
        """The number of runs at a time."""
        return self.plan.at_a_time or self._service.settings.worker_count

    def check(self) -> None:
        """Load the pipeline with the parameters of all points that have no run, and take the warnings of the first.

        PipelineError, UsageError: one of them is not possible. ConflictError: the file has changed since the begin.
        """
        left = [point for point in self.points if not point.run]
        if left and self._has_changed() and os.path.exists(self.plan.request.file):
            name = os.path.basename(self.plan.request.file)
            raise ConflictError(
                f"{self._changed()}: the points that are left would be runs of another text",
                hint=f"Restore the text, or begin a new sweep: weft sweep {name} -p NAME=VALUE,VALUE",
            )
        for point in left:
            loaded = self._service.load(self._request(point))
            if point is left[0]:
                loaded.check_begin(self._service.state.runs)
                self.warnings = [*loaded.warnings, *loaded.warnings_here()]

    def release(self) -> None:
        """Let another process go on with the sweep. A second call does nothing."""
        if self.lock is not None:
            self.lock.release()

    def _has_changed(self) -> bool:
        return self.plan.digest not in ("", digest_of_file(self.plan.request.file))

    def _changed(self) -> str:
        return f"{self.plan.request.file} has changed since the sweep began"

    def drive(self, interrupted: Callable[[], str]) -> None:
        """Run all points that have not succeeded. `interrupted` returns why all runs are to be cancelled, or ""."""
        self._warned.update(self.warnings)
        todo = deque(point for point in self.points if point.state != "succeeded" and point.dropped is None)
        for point in self.points:
            self._judge(point)
        while True:
            if not self.stopped and (reason := interrupted()):
                self._stop(reason)
            while todo and not self.stopped and len(self._active) < self.at_a_time:
                self._begin(todo.popleft())
            if not self._active:
                return
            try:
                number = self._ended.get(timeout=_LOOK_S)
            except queue.Empty:
                for number in list(self._active):
                    self._watch(self.points[number])
            else:
                self._end(self.points[number])

    def ranking(self) -> list[SweepPoint]:
        """Return the points, the best metric first; without one, in their order."""
        sign = -1.0 if self.plan.maximize else 1.0
        return sorted(
            self.points,
            key=lambda point: (point.metric is None, sign * (point.metric or 0.0), point.number),
        )

    # ------------------------------------------------------------------------------------------------------ its runs

    def _find_runs(self) -> None:
        """Find the runs of an earlier owner of the sweep, by their tags."""
        root = self._service.state
        if not self.plan.id or not root.runs.is_dir():
            return
        rows, _ = list_runs(root, limit=None)
        for row in rows:
            tags = read_labels(root.folder(row.id)).tags
            number = tags.get(POINT, "")
            if tags.get(SWEEP) != self.plan.id or not number.isdigit() or int(number) >= len(self.points):
                continue
            point = self.points[int(number)]
            if not point.run:
                point.run = row.id
                point.dropped = int(tags[DROPPED]) if tags.get(DROPPED, "").isdigit() else None
                self._read(point)

    def _request(self, point: SweepPoint) -> RunRequest:
        return replace(self.plan.request, parameters=point.parameters)

    def _begin(self, point: SweepPoint) -> None:
        """Begin or resume the run of a point; what makes this impossible is the result of the point."""
        from weft.runs.active import RunEvents

        number, events = point.number, RunEvents(records=False)
        try:
            if point.run:
                run = self._service.resume(point.run, events=events)
            else:
                request = self._request(point)
                source = self._service.load(request)
                if self._has_changed():  # those that run have the old text, so they go on
                    self.stopped = self._changed()
                    self._say(f"no more points begin: {self.stopped}")
                    return
                tags = {**parse_tags(request.tags), SWEEP: self.plan.id, POINT: str(number)}
                labels = RunLabels(tags, request.note)
                run = self._service.submit(source, events=events, labels=labels)
                self._warn(run.spec.warnings)
        except WeftError as error:
            point.state, point.message = "failed", error.message
            self._tell(point)
            return
        point.run, point.state = run.name, "running"
        self._active[number] = run
        self._tell(point)
        run.when_settled(lambda: self._ended.put(number))

    def _warn(self, warnings: Sequence[str]) -> None:
        """Say the warnings of a run that no point had before."""
        for text in warnings:
            if text not in self._warned:
                self._warned.add(text)
                self.remarks.append(text)
                self._say(f"warning: {text}")

    def _watch(self, point: SweepPoint) -> None:
        """Look at what a running point has reported so far."""
        metrics = self._metrics(point, live=True)
        if metrics:
            self._see(metrics)
            self._judge(point, metrics)
            self._halve(point, metrics)

    def _end(self, point: SweepPoint) -> None:
        run = self._active.pop(point.number)
        result = run.result()
        self._read(point)
        point.state = result.state
        metrics = self._metrics(point, live=False)
        self._halve(point, metrics)
        self._tell(point)
        self._remark(point, metrics)
        self._judge(point)

    def _read(self, point: SweepPoint) -> None:
        """Take the state, the metric and the time of the run of a point."""
        try:
            run = read_run(self._service.state.folder(point.run))
        except WeftError:
            point.run, point.state = "", NOT_STARTED
            return
        point.state = run.state
        if point.dropped is not None:
            point.message = self._why_dropped(point.dropped)
        else:
            point.message = "" if run.state == "succeeded" else run.message.partition("\n")[0]
        if run.started is not None and run.ended is not None:
            point.seconds = round(run.ended - run.started - run.paused_s, 3)
        if self.plan.metric:
            point.metric = metric_value(metrics_of(run), self.plan.metric)

    def _metrics(self, point: SweepPoint, *, live: bool) -> list[MetricFact]:
        try:
            return metrics_of(read_run(self._service.state.folder(point.run)), live=live)
        except WeftError:
            return []

    def _remark(self, point: SweepPoint, metrics: Sequence[MetricFact]) -> None:
        """Say which named metrics the first run that has succeeded does not have: their names may be wrong."""
        self._see(metrics)
        if point.state != "succeeded":
            return
        for name in sorted(self._unseen):
            known = sorted({one.name for one in metrics})
            listed = f"it has: {', '.join(known[:_MOST_NAMED])}" if known else "it has none"
            self.remarks.append(f"{point.run} has no metric {name}; {did_you_mean(name, known, listed)}")
            self._say(self.remarks[-1])
        self._unseen.clear()

    def _see(self, metrics: Sequence[MetricFact]) -> None:
        self._unseen -= {name for name in self._unseen if metric_value(metrics, name) is not None}

    def _judge(self, point: SweepPoint, metrics: Sequence[MetricFact] | None = None) -> None:
        """Stop the sweep if a point meets its condition."""
        if self._condition is None or self.stopped or not point.run:
            return
        if self._condition.holds(self._metrics(point, live=False) if metrics is None else metrics):
            self.satisfied = True
            self._stop(f"{point.run} meets the condition {self._condition.text}", spared=point.number)

    def _halve(self, point: SweepPoint, metrics: Sequence[MetricFact]) -> None:
        """Drop a running point that is not among the better half at a rung."""
        if not self.plan.halve:
            return
        progress = metric_value(metrics, self.plan.halve)
        value = metric_value(metrics, self.plan.metric)
        if progress is None or value is None:
            return
        rung = self._halving.drops(point.number, progress, value)
        run = self._active.get(point.number)
        if rung is None or run is None or point.dropped is not None:
            return
        point.dropped = rung
        point.message = self._why_dropped(rung)
        with suppress(WeftError):
            change_labels(run.folder, tags={DROPPED: str(rung)})
        with suppress(WeftError):  # it is just ending
            run.cancel(point.message)

    def _why_dropped(self, rung: int) -> str:
        return f"dropped at {self.plan.halve} {rung}"

    def _stop(self, reason: str, spared: int | None = None) -> None:
        """Begin no more runs, and cancel those that go on, except that of one point."""
        self.stopped = reason
        self._say(f"the sweep ends: {reason}")
        for number, run in self._active.items():
            if number != spared:
                with suppress(WeftError):  # it is just ending
                    run.interrupt(reason)

    def _tell(self, point: SweepPoint) -> None:
        shown = f"point {point.number + 1} of {len(self.points)} ({plain_point(point.parameters, self.plan.varied)})"
        parts = [f"{shown}: {point.run} {point.state}".replace(":  ", ": ")]
        if point.metric is not None and point.state not in ACTIVE:
            parts.append(f"{self.plan.metric} {number_text(point.metric)}")
        if point.message:
            parts.append(point.message)
        self._say(", ".join(parts))


def sweep_document(sweep: Sweep) -> dict[str, Any]:
    """Return a sweep as a JSON document: its points, the best first, and the run of the best."""
    plan, points = sweep.plan, sweep.ranking()
    best = points[0].run if points and points[0].metric is not None else None
    return {
        "sweep": plan.id,
        "file": plan.request.file,
        "seed": plan.seed,
        "metric": plan.metric or None,
        "maximize": plan.maximize,
        "stopped": sweep.stopped or None,
        "best": best,
        "points": [{**msgspec.structs.asdict(point), "run": point.run or None} for point in points],
    }
