"""The trials of tuned jobs and the questions of their control vertices, in the process that owns the run.

A trial is a run of one job in a folder of its own. Its replicas are tasks of the run, here or at the machines of a
cluster; they ask by the name of their trial, and tell it how they have ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct, to_builtins

from weft.frontends.training.answers import AnsweringHost, RemoteAnswers
from weft.frontends.training.census import take_census
from weft.frontends.training.compat import Compat
from weft.frontends.training.compiler import placed, requests_of
from weft.frontends.training.metrics import FOLDER, SUFFIX, reports_of
from weft.frontends.training.observed import FAILED, RUNNING, SUCCEEDED, Pod
from weft.frontends.training.replica import ReplicaStart, host_of
from weft.frontends.training.rules import outcome
from weft.frontends.training.schema import TrainingJob  # noqa: TC001 - fields of records are read at run time
from weft.frontends.training.tuning import TuningChoice, tuned
from weft.graph.task import prepares
from weft.model.errors import InternalError, RunCancelledError, WeftError
from weft.model.records import converter

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.training.schema import JobFile
    from weft.graph.spec import MachineAddress, RunFacts, Wants
    from weft.graph.task import TaskContext, TaskInput

TRIAL: Final = "trial"
"""The question of a replica in a trial: the name of the trial, and what the replica asks."""
QUESTIONS: Final = frozenset({TRIAL, "tuning", "choose", "suspended", "refusal", "open", "look", "stop", "close"})
"""What `JobTrials` answers."""
_LOOK_S: Final = 0.05
_OVER: Final = "the trial is over"
ReplicaName = tuple[str, int]
"""A replica of a trial: its type and its index."""


class TunedJob(Struct, frozen=True, kw_only=True):
    """What a control vertex is told of its job: the vertices by replica type, and what was decided before, if anything.

    `spread`: its replicas run at the machines of a cluster.
    """

    job: TrainingJob
    vertices: Mapping[str, str]
    choice: TuningChoice | None = None
    spread: bool = False


class TrialLook(Struct, frozen=True, kw_only=True):
    """What is known of a trial: the seconds since its replicas have begun (0 before), why it has failed, and whether it
    has succeeded. `over`: none of its replicas runs. `reports` are those of each replica, each with its time.
    """

    elapsed_s: float = 0.0
    failure: str = ""
    succeeded: bool = False
    over: bool = False
    reports: Sequence[Sequence[Mapping[str, Any]]] = ()


class TrialHost(AnsweringHost, Protocol):
    """A trial: a run of a job in a folder of its own."""

    def end_trial(self) -> None:
        """Remove what the trial leaves, except logs and reports."""
        ...


class TunedHost(Protocol):
    """The jobs of a run as their control vertices need them."""

    spread: bool
    """Whether the replicas run at the machines of a cluster."""

    @property
    def files(self) -> JobFile:
        """All documents of the job file."""
        ...

    def vertices_of(self, job: str) -> dict[str, str]:
        """Return the vertices of a job by replica type."""
        ...

    def choice_of(self, job: str) -> TuningChoice | None:
        """Return what an earlier process of the run has decided for a job."""
        ...

    def choose(self, job: str, choice: TuningChoice) -> None:
        """Run a job by a choice from now on, also in later processes of the run."""
        ...

    def is_suspended(self, job: str) -> bool:
        """Whether no replica of a job is to run now."""
        ...

    def open_trial(self, job: TrainingJob) -> tuple[str, TrialHost]:
        """Make a trial of a job; return its name and its host."""
        ...


class DryRun:
    """One trial: how its replicas have ended, and what they ask. `tasks` are their vertices by that of their type."""

    def __init__(self, host: TrialHost, job: TrainingJob, folder: Path, tasks: Mapping[str, str]) -> None:
        self.host, self.job = host, job
        self.pods: dict[ReplicaName, Pod] = {}
        self._folder, self._tasks = folder, dict(tasks)
        self._types = dict(zip(job.replicas, tasks, strict=True))
        self._answers = RemoteAnswers(host)
        self._failure, self._started_at, self._stopped = "", 0.0, False
        self._ended: set[ReplicaName] = set()
        self._seen: dict[ReplicaName, list[float]] = {}
        self._lock = threading.Lock()

    def answer(self, question: Sequence[Any], machine: MachineAddress, run: RunFacts) -> Any:
        """Answer a replica of the trial. RunCancelledError: one wants to begin, and the trial is over."""
        verb, *given = question
        if verb == "ended":
            return self._take_end(*given)
        if verb == "again":
            return _OVER if self._stopped else ""
        if verb in ("begin", "arrive", "addresses") and self._stopped:
            raise RunCancelledError(_OVER)
        if verb == "begin":
            return self._begin(*given)
        found = self._answers.answer(question, machine, TrialFacts(run, self._tasks))
        if verb == "addresses" and found is not None:
            vertex, index = given
            self._begin(next(type for type, own in self._types.items() if own == vertex), index)
        return found

    def _begin(self, type: str, index: int) -> None:
        with self._lock:
            self._started_at = self._started_at or time.monotonic()
            self.pods[type, index] = Pod(type=type, index=index, phase=RUNNING)

    def _take_end(self, type: str, index: int, phase: str, message: str) -> None:
        with self._lock:
            self._ended.add((type, index))
            self._failure = self._failure or message
            code = 0 if phase == SUCCEEDED else None
            self.pods[type, index] = Pod(type=type, index=index, phase=phase, exit_code=code)

    def look(self, run: RunFacts) -> TrialLook:
        """Return what is known of the trial."""
        lost = {
            (type, index)
            for type, vertex in self._types.items()
            for index, (start, _) in run.starts(self._tasks[vertex]).items()
            if start > 1
        }
        size = sum(spec.replicas or 0 for spec in self.job.replicas.values())
        reports = tuple(self._reports())
        with self._lock:
            for type, index in sorted(lost)[:1] if not (self._failure or self._stopped) else ():
                name = self.host.replica(self.job.name, type, index).name
                self._failure = f"{name} was lost with its machine or process"
            pods = tuple(self.pods.values())
            return TrialLook(
                elapsed_s=time.monotonic() - self._started_at if self._started_at else 0.0,
                failure=self._failure,
                succeeded=self._has_succeeded(pods),
                over=len(self._ended | lost) >= size,
                reports=reports,
            )

    def _has_succeeded(self, pods: tuple[Pod, ...]) -> bool:
        """Whether the replicas that decide about the job have ended well."""
        found = outcome(self.job, take_census(self.job, pods, Compat.FIXED))
        return found is not None and found.condition != FAILED

    def _reports(self) -> Iterator[Sequence[Mapping[str, Any]]]:
        for type, index in list(self.pods):
            with suppress(OSError):
                lines = list(reports_of(self._folder / FOLDER / f"{self._types[type]}.{index}{SUFFIX}"))
                yield self.timed((type, index), lines, time.time())

    def timed(self, pod: ReplicaName, lines: Sequence[dict[str, Any]], now: float) -> list[dict[str, Any]]:
        """Return the reports of a replica so far; those without a time have that of the first look that saw them."""
        seen = self._seen.setdefault(pod, [])
        seen += [now] * (len(lines) - len(seen))
        return [{"time": at, **line} for at, line in zip(seen, lines, strict=False)]

    def stop(self) -> None:
        """Let all replicas end, also those that have not begun."""
        self._stopped = True


class TrialFacts:
    """See `RunFacts`: a run as a trial in it sees it, whose vertices are those of its job."""

    def __init__(self, run: RunFacts, tasks: Mapping[str, str]) -> None:
        self._run, self._tasks = run, tasks

    def starts(self, vertex: str) -> Mapping[int, tuple[int, str]]:
        """See `RunFacts.starts`."""
        return self._run.starts(self._tasks[vertex])

    def refusal(self, wants: Wants) -> str:
        """See `RunFacts.refusal`."""
        return self._run.refusal(wants)


_choice_of: Final = converter(TuningChoice)


class JobTrials:
    """The trials of the jobs of a run, and the answers to their control vertices."""

    def __init__(self, host: TunedHost) -> None:
        self._host = host
        self._trials: dict[str, DryRun] = {}

    def answer(self, question: Sequence[Any], machine: MachineAddress, run: RunFacts) -> Any:
        """Answer one of `QUESTIONS`. RunCancelledError: a replica asks whose trial is over."""
        verb, name, *given = question
        if verb == TRIAL:
            trial = self._trials.get(name)
            if trial is None:  # of an earlier process
                raise RunCancelledError(_OVER)
            return trial.answer(given, machine, run)
        if verb == "tuning":
            return to_builtins(
                TunedJob(
                    job=self._job(name),
                    vertices=self._host.vertices_of(name),
                    choice=self._host.choice_of(name),
                    spread=self._host.spread,
                )
            )
        if verb == "choose":
            return self._host.choose(name, _choice_of(given[0]))
        if verb == "suspended":
            return self._host.is_suspended(name)
        if verb == "refusal":
            return run.refusal(self._wants(self._tuned(name, given[0])))
        if verb == "open":
            return self._open(self._tuned(name, given[0]), given[1])
        if verb == "look":
            return to_builtins(self._trials[name].look(run))
        if verb == "stop":
            return self._trials[name].stop()
        if verb == "close":
            return self._trials.pop(name).host.end_trial()
        raise InternalError(f"a control vertex asks {verb!r}, which nobody answers")

    def _job(self, name: str) -> TrainingJob:
        return next(one for one in self._host.files.jobs if one.name == name)

    def _tuned(self, name: str, choice: Mapping[str, Any]) -> TrainingJob:
        found = _choice_of(choice)
        return tuned(self._job(name), found.replicas, found.requests)

    def _wants(self, job: TrainingJob) -> Wants:
        """Return the slots of all replicas of a job."""
        vertices = self._host.vertices_of(job.name)
        found = []
        for type, spec in job.replicas.items():
            needs = placed(requests_of(spec.template), spread=self._host.spread)
            count = 1 if spec.replicas is None else spec.replicas
            if count and not needs.light:
                found.append((vertices[type], count, (needs,), None))
        return tuple(found)

    def _open(self, job: TrainingJob, control: str) -> str:
        """Make a trial for a control vertex, which adds its vertices; return its name."""
        name, host = self._host.open_trial(job)
        vertices = self._host.vertices_of(job.name)
        tasks = {vertices[type]: task_vertex(control, name, type) for type in job.replicas}
        self._trials[name] = DryRun(host, job, host.folder, tasks)
        return name


def task_vertex(control: str, trial: str, type: str) -> str:
    """Return the vertex of the replicas of a type in a trial."""
    return f"{control}/{trial}.{type.lower()}"


def key_of(run: str, trial: str) -> str:
    """Return the name by which the replicas of a trial on this machine find its host."""
    return f"{run}/trials/{trial}"


# ------------------------------------------------------------------------------------------------------- its replicas


@prepares
def run_trial_replica(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> None:
    """Run one replica of a trial on this machine (style TASK); a trial of an earlier process does nothing."""
    held = host_of(key_of(ctx.params["run"], ctx.params["trial"]))
    if held is None:
        return
    host, replica_of = held
    replica = replica_of(ctx.params["job"], ctx.params["type"], ctx.index)

    def run() -> None:
        ask = asking(ctx)
        ask("begin", replica.type, replica.index)
        start = ReplicaStart(ctx, host, replica)
        with watched(lambda: bool(ask("again")), start.stop, _LOOK_S):
            start.run()

    run_told(ctx, replica.name, run)


def asking(ctx: TaskContext) -> Callable[..., Any]:
    """Return the function by which a replica asks its run, or its trial if it is in one."""
    trial = ctx.params.get("trial")
    return ctx.ask_run if trial is None else partial(ctx.ask_run, TRIAL, trial)


def run_told(ctx: TaskContext, name: str, run: Callable[[], Any]) -> None:
    """Run a replica of a trial by a function, and tell the trial how it has ended."""
    phase, message = SUCCEEDED, ""
    try:
        run()
    except RunCancelledError:
        if ctx.cancelled():
            raise
        phase = RUNNING
    except WeftError as error:
        phase, message = FAILED, f"{name} failed: {error.message.splitlines()[0]}"
    with suppress(RunCancelledError):  # nobody waits for it any more
        asking(ctx)("ended", ctx.params["type"], ctx.index, phase, message)


@contextmanager
def watched(over: Callable[[], bool], stop: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call `stop` as soon as `over` says so, which is asked at times."""
    left = threading.Event()

    def watch() -> None:
        while not left.wait(every_s):
            try:
                ends = over()
            except RunCancelledError:  # nobody answers any more
                ends = True
            if ends:
                stop()
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
