"""The control vertex of a job that asks for tuning: it decides before the replicas start, and says why.

It reads what the replicas of earlier runs used, or patches in trials: the replicas of a candidate as vertices of their
own, which run for a short time. Their checkpoints, volumes and reports lie apart. What it decides goes to the engine
(resources) and to the controller of the job (numbers of replicas). `trials.py` answers it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from weft.frontends.training.compiler import (
    REMOTE_TRIAL_BODY,
    TRIAL_BODY,
    TUNED,
    gang_name,
    placed,
    requests_of,
)
from weft.frontends.training.controller import TUNE
from weft.frontends.training.trials import TrialLook, TunedJob, task_vertex
from weft.frontends.training.tuning import (
    TrialMeasure,
    TuningChoice,
    best_of,
    from_history,
    rate_of,
    tuned,
    words_of,
)
from weft.graph.logical import CONCURRENT, NONE, Bubble, Edge, Patch, Role, Storage, Vertex
from weft.model.errors import InternalError, RunCancelledError, WeftError
from weft.model.program import Program, Style
from weft.model.records import converter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.frontends.training.schema import Candidate, TrainingJob
    from weft.graph.task import TaskContext, TaskInput
    from weft.model.resources import Resources

CANDIDATE: Final = "candidate"
"""The usage of the control vertex: the number of the candidate that it has taken, from 1 on."""
_UNKNOWN: Final = "no earlier run of this job is known: the file decides"
_LOOK_S: Final = 0.05
_told: Final = converter(TunedJob)
_look_of: Final = converter(TrialLook)


def run_tuner(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> None:
    """Decide about a job (style TASK), and let its replicas start; parameters are `run` and `job`."""
    JobTuner(ctx, _told(ctx.ask_run("tuning", ctx.params["job"]))).run()


class JobTuner:
    """The control vertex of one job, which was `told` about that."""

    def __init__(self, ctx: TaskContext, told: TunedJob) -> None:
        self.ctx, self.told, self.job, self.vertices = ctx, told, told.job, told.vertices
        assert told.job.tuning is not None
        self.tuning = told.job.tuning

    def run(self) -> None:
        """Decide, and carry it out."""
        choice = self.told.choice
        if choice is None:
            try:
                choice = self._decide()
            except RunCancelledError:
                raise
            except WeftError as error:
                choice = TuningChoice(because=f"the file decides: {error.message}")
            self._ask("choose", to_builtins(choice))
        job = tuned(self.job, choice.replicas, choice.requests)
        for type in choice.requests:
            needs = self._needs(job, type)
            self.ctx.set_resources(self.vertices[type], needs, because=choice.reasons.get(type, choice.because))
        counts = {self.vertices[type]: count for type, count in choice.replicas.items()}
        payload = {"job": self.job.name, "replicas": counts, "because": choice.because}
        if reason := self.ctx.request(TUNE, payload, because=choice.because):
            raise InternalError(f"the controller of the job took no choice: {reason}")
        self.ctx.emit(TUNED)

    def _ask(self, verb: str, *given: Any) -> Any:
        """Return the answer to a question about the job."""
        return self.ctx.ask_run(verb, self.job.name, *given)

    def _needs(self, job: TrainingJob, type: str) -> Resources:
        """Return what a replica takes."""
        return placed(requests_of(job.replicas[type].template), spread=self.told.spread)

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
        """Return what follows from the usage of earlier runs; nothing for which there is no room."""
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
        where = "the cluster" if self.told.spread else "this machine"
        too_much = f"{found.because}: too much for {where}, the file decides"
        return self._fitting(found, TuningChoice(because=too_much)) if found.requests else found

    def _fitting(self, choice: TuningChoice, otherwise: TuningChoice) -> TuningChoice:
        """Return a choice if all replicas can run at once."""
        return otherwise if self._ask("refusal", to_builtins(choice)) else choice

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
        while self._ask("suspended"):
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
        choice = TuningChoice(replicas=candidate.replicas, requests=candidate.requests)
        if reason := self._ask("refusal", to_builtins(choice)):
            return TrialMeasure(candidate, None, failure=f"too large, {reason}")
        job = tuned(self.job, choice.replicas, choice.requests)
        name = self._ask("open", to_builtins(choice), self.ctx.vertex)
        try:
            because = f"candidate {number} of {len(self.tuning.candidates)}: {words_of(candidate)}"
            if reason := self.ctx.patch(self._vertices_of(name, job), because):
                return TrialMeasure(candidate, None, failure=reason)
            try:
                return self._measured(candidate, self._wait_for(name))
            finally:
                self.ctx.ask_run("stop", name)
                while not (self.ctx.cancelled() or self._look(name).over):
                    time.sleep(_LOOK_S)
        finally:
            self.ctx.ask_run("close", name)

    def _vertices_of(self, name: str, job: TrainingJob) -> Patch:
        """Return the replicas of a trial as vertices, which get their slots together."""
        vertices = []
        for type, spec in job.replicas.items():
            if spec.replicas:
                params = {**self.ctx.params, "trial": name, "type": type, "vertex": self.vertices[type]}
                vertices.append(
                    Vertex(
                        task_vertex(self.ctx.vertex, name, type),
                        Program(REMOTE_TRIAL_BODY if self.told.spread else TRIAL_BODY, params, style=Style.TASK),
                        parallelism=spec.replicas,
                        resources=(self._needs(job, type),),
                        role=Role.HELPER,
                    )
                )
        edges = tuple(Edge(self.ctx.vertex, one.id, NONE, CONCURRENT, Storage.NONE) for one in vertices)
        heavy = tuple(one.id for one in vertices if not one.resources[0].light)
        gang = (Bubble(gang_name(f"{self.ctx.vertex}/{name}"), heavy, whole=True),) if heavy else ()
        return Patch(tuple(vertices), edges, bubbles=gang)

    def _look(self, name: str) -> TrialLook:
        found: TrialLook = _look_of(self.ctx.ask_run("look", name))
        return found

    def _wait_for(self, name: str) -> TrialLook:
        """Wait for the end of a trial; return the last look at it."""
        while True:
            look = self._look(name)
            if look.failure or look.succeeded or look.elapsed_s >= self.tuning.seconds or self._has_enough(look):
                return look
            self._pause()

    def _has_enough(self, look: TrialLook) -> bool:
        """Whether each replica that reports has come as many steps as a trial takes."""
        if self.tuning.steps is None:
            return False
        every = [[line["step"] for line in lines if "step" in line] for lines in look.reports]
        steps = [one[-1] - one[0] for one in every if one]
        return bool(steps) and min(steps) >= self.tuning.steps

    def _measured(self, candidate: Candidate, look: TrialLook) -> TrialMeasure:
        if look.failure:
            return TrialMeasure(candidate, None, failure=look.failure)
        rate, unit = rate_of(look.reports, self.tuning.measure)
        if rate is not None:
            return TrialMeasure(candidate, rate, unit)
        if self.tuning.measure:
            return TrialMeasure(candidate, None, failure=f"no replica reported {self.tuning.measure}")
        if not look.succeeded:
            failure = f"no replica reported two steps, or ended, within {self.tuning.seconds:g} s"
            return TrialMeasure(candidate, None, failure=failure)
        return TrialMeasure(candidate, 1 / max(look.elapsed_s, 1e-3), "runs/s")

    def _pause(self) -> None:
        if self.ctx.cancelled():
            raise RunCancelledError("the job ends before it was tuned")
        time.sleep(_LOOK_S)
