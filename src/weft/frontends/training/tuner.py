"""The control vertex of a job that asks for tuning: it decides before the replicas start, and says why.

It reads what the replicas of earlier runs used, or patches in trials: the replicas of a candidate as vertices of their
own, which run for a short time. Their checkpoints, volumes and reports lie apart. What it decides goes to the engine
(resources) and to the controller of the job (numbers of replicas).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.frontends.training.census import take_census
from weft.frontends.training.compat import Compat
from weft.frontends.training.compiler import TUNED, gang_name, groups_of, requests_of
from weft.frontends.training.controller import TUNE
from weft.frontends.training.metrics import FOLDER, SUFFIX, reports_of
from weft.frontends.training.observed import FAILED, RUNNING, SUCCEEDED, Pod
from weft.frontends.training.replica import Replica, ReplicaStart, host_of
from weft.frontends.training.rules import outcome
from weft.frontends.training.tuning import (
    TrialMeasure,
    TuningChoice,
    best_of,
    from_history,
    rate_of,
    tuned,
    why_too_large,
    words_of,
)
from weft.graph.logical import CONCURRENT, NONE, Bubble, Edge, Patch, Role, Storage, Vertex
from weft.graph.task import prepares
from weft.model.errors import InternalError, RunCancelledError, WeftError
from weft.model.program import Program, Style

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.training.schema import Candidate, JobFile, TrainingJob
    from weft.graph.task import TaskContext, TaskInput

TRIAL_BODY: Final = "weft.frontends.training.tuner:run_trial_replica"
CANDIDATE: Final = "candidate"
"""The usage of the control vertex: the number of the candidate that it has taken, from 1 on."""
_UNKNOWN: Final = "no earlier run of this job is known: the file decides"
_LOOK_S: Final = 0.05


class TrialHost(Protocol):
    """A trial on this machine: a run of a job in a folder of its own."""

    @property
    def folder(self) -> Path:
        """The folder of the trial."""
        ...

    def replica(self, job: str, type: str, index: int) -> Replica:
        """Return a replica of the trial."""
        ...

    def end_trial(self) -> None:
        """Remove what the trial leaves, except logs and reports."""
        ...


class TunerHost(Protocol):
    """The run of a job on this machine, as its control vertex needs it."""

    files: JobFile
    room: Sequence[float]
    """Cores, bytes of memory and GPUs of the machine."""

    def choice_of(self, job: str) -> TuningChoice | None:
        """Return what an earlier process of the run has decided for a job."""
        ...

    def choose(self, job: str, choice: TuningChoice) -> None:
        """Run a job by a choice from now on, also in later processes of the run."""
        ...

    def is_suspended(self, job: str) -> bool:
        """Whether no replica of a job is to run now."""
        ...

    def open_trial(self, job: TrainingJob) -> tuple[str, Any]:
        """Make a trial of a job; return its name and its host."""
        ...


class DryRun:
    """One trial: how its replicas have ended, and the way to stop them."""

    def __init__(self, host: TrialHost, job: TrainingJob) -> None:
        self.host, self.job = host, job
        self.pods: dict[tuple[str, int], Pod] = {}
        self.failure = ""
        self.started_at = 0.0
        self.over = 0
        self._lock = threading.Lock()
        self._stopped = False
        self._runs: list[ReplicaStart] = []
        self._seen: dict[tuple[str, int], list[float]] = {}

    @property
    def size(self) -> int:
        """The number of its replicas."""
        return sum(spec.replicas or 0 for spec in self.job.replicas.values())

    def run(self, ctx: TaskContext, type: str, index: int) -> None:
        """Run a replica until it ends or the trial is stopped. RunCancelledError: the run is."""
        run = ReplicaStart(ctx, self.host, self.host.replica(self.job.name, type, index))  # type: ignore[arg-type]
        with self._lock:
            self._runs.append(run)
            self.started_at = self.started_at or time.monotonic()
            if self._stopped:
                run.stop()
        phase, message = SUCCEEDED, ""
        self.pods[type, index] = Pod(type=type, index=index, phase=RUNNING)
        try:
            run.run()
        except RunCancelledError:
            phase = RUNNING
            if ctx.cancelled():
                raise
        except WeftError as error:
            phase, message = FAILED, f"{run.replica.name} failed: {error.message.splitlines()[0]}"
        finally:
            with self._lock:
                self.over += 1
                self.failure = self.failure or message
                code = 0 if phase == SUCCEEDED else None
                self.pods[type, index] = Pod(type=type, index=index, phase=phase, exit_code=code)

    def timed(self, pod: tuple[str, int], lines: Sequence[dict[str, Any]], now: float) -> list[dict[str, Any]]:
        """Return the reports of a replica so far; those without a time have that of the first look that saw them."""
        seen = self._seen.setdefault(pod, [])
        seen += [now] * (len(lines) - len(seen))
        return [{"time": at, **line} for at, line in zip(seen, lines, strict=False)]

    def stop(self) -> None:
        """Stop all replicas, also those that have not begun."""
        with self._lock:
            self._stopped = True
            runs = list(self._runs)
        for run in runs:
            run.stop()

    @property
    def has_succeeded(self) -> bool:
        """Whether the replicas that decide about the job have ended well."""
        found = outcome(self.job, take_census(self.job, tuple(self.pods.values()), Compat.FIXED))
        return found is not None and found.condition != FAILED


_trials: dict[tuple[str, str], DryRun] = {}
"""The trials of this process by run and name."""


@prepares
def run_trial_replica(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> None:
    """Run one replica of a trial (style TASK); a trial of an earlier process does nothing."""
    trial = _trials.get((ctx.params["run"], ctx.params["trial"]))
    if trial is not None:
        trial.run(ctx, ctx.params["type"], ctx.index)


def run_tuner(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> None:
    """Decide about a job (style TASK), and let its replicas start; parameters are `run` and `job`."""
    held = host_of(ctx.params["run"])
    if held is None:
        raise InternalError(f"the jobs of {ctx.params['run']} are not held by this process")
    host: Any = held[0]
    job = next(one for one in host.files.jobs if one.name == ctx.params["job"])
    _Tuner(ctx, host, job).run()


class _Tuner:
    """The control vertex of one job."""

    def __init__(self, ctx: TaskContext, host: TunerHost, job: TrainingJob) -> None:
        self.ctx, self.host, self.job = ctx, host, job
        self.vertices = {group.type: group.vertex for group in groups_of(host.files) if group.job.name == job.name}
        assert job.tuning is not None
        self.tuning = job.tuning

    def run(self) -> None:
        """Decide, and carry it out."""
        choice = self.host.choice_of(self.job.name)
        if choice is None:
            try:
                choice = self._decide()
            except RunCancelledError:
                raise
            except WeftError as error:
                choice = TuningChoice(because=f"the file decides: {error.message}")
            self.host.choose(self.job.name, choice)
        job = tuned(self.job, choice.replicas, choice.requests)
        for type in choice.requests:
            needs = requests_of(job.replicas[type].template)
            self.ctx.set_resources(self.vertices[type], needs, because=choice.reasons.get(type, choice.because))
        counts = {self.vertices[type]: count for type, count in choice.replicas.items()}
        payload = {"job": self.job.name, "replicas": counts, "because": choice.because}
        if reason := self.ctx.request(TUNE, payload, because=choice.because):
            raise InternalError(f"the controller of the job took no choice: {reason}")
        self.ctx.emit(TUNED)

    def _decide(self) -> TuningChoice:
        """Return the choice: of the candidates by the last run or by trials, and requests by history."""
        learned = self._learned() if self.tuning.history else TuningChoice()
        if not self.tuning.candidates:
            return learned if learned.because else TuningChoice(because=_UNKNOWN)
        found = self._remembered() or self._tried()
        if not learned.requests:
            return found
        requests = {type: {**learned.requests.get(type, {}), **found.requests.get(type, {})} for type in self.vertices}
        both = TuningChoice(
            replicas=found.replicas,
            requests={type: amounts for type, amounts in requests.items() if amounts},
            because=f"{found.because}; {learned.because}",
            reasons={type: learned.reasons[type] for type in learned.reasons if type not in found.requests},
        )
        return self._fitting(both, found)

    # ------------------------------------------------------------------------------------------------------ history

    def _learned(self) -> TuningChoice:
        """Return what follows from the usage of earlier runs; nothing that the machine cannot hold."""
        runs, usage = 0, {}
        for type, vertex in self.vertices.items():
            past = self.ctx.history(vertex)
            runs = max(runs, len(past))
            most: dict[str, float] = {}
            for one in past:
                for name, value in one.usage.items():
                    most[name] = max(value, most.get(name, value))
            usage[type] = most
        found = from_history(self.job, usage, runs)
        too_much = f"{found.because}: too much for this machine, the file decides"
        return self._fitting(found, TuningChoice(because=too_much)) if found.requests else found

    def _fitting(self, choice: TuningChoice, otherwise: TuningChoice) -> TuningChoice:
        """Return a choice if this machine can hold all replicas at once."""
        return otherwise if why_too_large(tuned(self.job, choice.replicas, choice.requests), self.host.room) else choice

    def _remembered(self) -> TuningChoice | None:
        """Return the candidate that the last run has taken, None if no run is known."""
        if not self.tuning.history:
            return None
        for past in self.ctx.history(self.ctx.vertex):
            number = int(past.usage.get(CANDIDATE, 0))
            if 1 <= number <= len(self.tuning.candidates):
                one = self.tuning.candidates[number - 1]
                self.ctx.usage(**{CANDIDATE: number})
                because = f"{words_of(one)} as in the last run, by its trials"
                return TuningChoice(replicas=one.replicas, requests=one.requests, because=because)
        return None

    # ------------------------------------------------------------------------------------------------------- trials

    def _tried(self) -> TuningChoice:
        """Return the best of the candidates by a trial of each."""
        while self.host.is_suspended(self.job.name):
            self._pause()
        measured = [self._try(at, one) for at, one in enumerate(self.tuning.candidates, 1)]
        choice = best_of(measured)
        for at, one in enumerate(self.tuning.candidates, 1):
            if choice.replicas == one.replicas and choice.requests == one.requests:
                self.ctx.usage(**{CANDIDATE: at})
                break
        return choice

    def _try(self, number: int, candidate: Candidate) -> TrialMeasure:
        """Run a trial of a candidate."""
        job = tuned(self.job, candidate.replicas, candidate.requests)
        if reason := why_too_large(job, self.host.room):
            return TrialMeasure(candidate, None, failure=f"too large, it needs {reason}")
        name, host = self.host.open_trial(job)
        key = self.ctx.params["run"], name
        trial = _trials[key] = DryRun(host, job)
        try:
            because = f"candidate {number} of {len(self.tuning.candidates)}: {words_of(candidate)}"
            if reason := self.ctx.patch(self._vertices_of(name, job), because):
                return TrialMeasure(candidate, None, failure=reason)
            seconds = self._wait_for(trial)
            return self._measured(candidate, trial, seconds)
        finally:
            trial.stop()
            while trial.over < trial.size and not self.ctx.cancelled():
                time.sleep(_LOOK_S)
            del _trials[key]
            host.end_trial()

    def _vertices_of(self, name: str, job: TrainingJob) -> Patch:
        """Return the replicas of a trial as vertices, which get their slots together."""
        vertices = []
        for type, spec in job.replicas.items():
            if spec.replicas:
                params = {"run": self.ctx.params["run"], "trial": name, "type": type, "vertex": self.vertices[type]}
                vertices.append(
                    Vertex(
                        f"{self.ctx.vertex}/{name}.{type.lower()}",
                        Program(TRIAL_BODY, params, style=Style.TASK),
                        parallelism=spec.replicas,
                        resources=(requests_of(spec.template),),
                        role=Role.HELPER,
                    )
                )
        edges = tuple(Edge(self.ctx.vertex, one.id, NONE, CONCURRENT, Storage.NONE) for one in vertices)
        heavy = tuple(one.id for one in vertices if not one.resources[0].light)
        gang = (Bubble(gang_name(f"{self.ctx.vertex}/{name}"), heavy),) if heavy else ()
        return Patch(tuple(vertices), edges, bubbles=gang)

    def _wait_for(self, trial: DryRun) -> float | None:
        """Wait for the end of a trial; return its seconds if it has ended by itself and well."""
        while True:
            elapsed = time.monotonic() - trial.started_at if trial.started_at else 0.0
            if trial.failure:
                return None
            if trial.has_succeeded:
                return elapsed
            if elapsed >= self.tuning.seconds or self._has_enough(trial):
                return None
            self._pause()

    def _has_enough(self, trial: DryRun) -> bool:
        """Whether each replica that reports has come as many steps as a trial takes."""
        reports = self._reports(trial)  # at each look: lines without a time get that of the look
        if self.tuning.steps is None:
            return False
        every = [[line["step"] for line in lines if "step" in line] for lines in reports.values()]
        steps = [one[-1] - one[0] for one in every if one]
        return bool(steps) and min(steps) >= self.tuning.steps

    def _reports(self, trial: DryRun) -> dict[tuple[str, int], list[dict[str, Any]]]:
        folder = trial.host.folder / FOLDER
        found = {}
        for type, index in list(trial.pods):
            with suppress(OSError):
                lines = list(reports_of(folder / f"{self.vertices[type]}.{index}{SUFFIX}"))
                found[type, index] = trial.timed((type, index), lines, time.time())
        return found

    def _measured(self, candidate: Candidate, trial: DryRun, seconds: float | None) -> TrialMeasure:
        if trial.failure:
            return TrialMeasure(candidate, None, failure=trial.failure)
        rate, unit = rate_of(self._reports(trial), self.tuning.measure)
        if rate is not None:
            return TrialMeasure(candidate, rate, unit)
        if self.tuning.measure:
            return TrialMeasure(candidate, None, failure=f"no replica reported {self.tuning.measure}")
        if seconds is None:
            failure = f"no replica reported two steps, or ended, within {self.tuning.seconds:g} s"
            return TrialMeasure(candidate, None, failure=failure)
        return TrialMeasure(candidate, 1 / max(seconds, 1e-3), "runs/s")

    def _pause(self) -> None:
        if self.ctx.cancelled():
            raise RunCancelledError("the job ends before it was tuned")
        time.sleep(_LOOK_S)
