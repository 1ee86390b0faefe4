"""The reason why a step waits or ran, the origin of a cached result, and the logs of its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.model.errors import NotFoundError, WeftError
from weft.model.ids import item_name
from weft.runs.reading import read_run
from weft.runtime.cache import read_decisions

if TYPE_CHECKING:
    from pathlib import Path

    from weft.engine.waiting import Wait
    from weft.runs.reading import RunRecord
    from weft.store.results import ResultCache
    from weft.store.state import LogFile


class Reasons(Struct, frozen=True):
    """The answer of the cache: `outcome` is hit, miss, or none if it was not consulted; `run` is the compared run.

    `waits` are the reasons why tasks of the step have not started.
    """

    step: str
    outcome: str
    reason: str
    run: str = ""
    differences: tuple[str, ...] = ()
    waits: tuple[Wait, ...] = ()

    def lines(self) -> list[str]:
        """Return the answer as lines of text."""
        held = [wait.line() for wait in self.waits]
        if held and self.outcome == "none":
            return held
        what = {"hit": "was taken from the cache", "miss": "ran"}.get(self.outcome)
        line = f"{self.step}: {self.reason}" if what is None else f"{self.step} {what}: {self.reason}"
        return [*held, line, *(f"  also {difference}" for difference in self.differences[1:])]


def reasons(cache: ResultCache, run: RunRecord, step: str, other: RunRecord | None = None) -> Reasons:
    """Return why a step of a run (`step-2`: item 2 of it) ran, compared with the nearest result, or with `other`.

    NotFoundError: the step does not exist, or its inputs are no longer known.
    """
    record, item = run.task(step)
    name, index = record.name, item or 0
    decision = _decision(run, name, index)
    if decision is None:
        if record.started is None:
            return Reasons(step, "none", f"it did not run: it is {record.state}")
        return Reasons(
            step, "none", "the cache was not asked: it is not enabled for this step, or the run was without it"
        )
    if other is not None:
        other.step(name)
        differences = cache.differences(_leaves(cache, other, name, index), _leaves(cache, run, name, index))
        reason = f"{differences[0] if differences else 'nothing is different'}, compared with {other.id}"
        return Reasons(step, decision["outcome"], reason, other.id, tuple(differences))
    return Reasons(
        step, decision["outcome"], decision["reason"], decision.get("run", ""), tuple(decision.get("differences", ()))
    )


class Taken(Struct, frozen=True):
    """A task whose result came from a task of another run; `logs` are those of the attempt that made it.

    `gone`: the other run does not exist any more.
    """

    run: str
    step: str = ""
    logs: Sequence[LogFile] = ()
    gone: bool = False


def taken(run: RunRecord, step: str = "", item: int | None = None) -> list[Taken]:
    """Return the origins of the cached results of a run, of one step of it, or of one item."""
    answers = {
        (decision["step"], decision.get("task", 0)): decision
        for decision in read_decisions(run.folder)
        if step in ("", decision["step"]) and item in (None, decision.get("task", 0))
    }
    made: dict[str, dict[str, dict[str, Any]]] = {}
    found = []
    for decision in answers.values():
        if decision["outcome"] != "hit":
            continue
        folder = run.folder.parent / str(decision.get("run"))
        if folder.name not in made:
            made[folder.name] = {one.get("key", ""): one for one in read_decisions(folder) if one["outcome"] == "miss"}
        by = made[folder.name].get(decision.get("key", ""))
        try:
            found.append(Taken(folder.name, gone=True) if by is None else _maker(folder, by["step"], by.get("task", 0)))
        except WeftError:
            found.append(Taken(folder.name, gone=True))
    return found


def _maker(folder: Path, name: str, task: int) -> Taken:
    step = read_run(folder).step(name)
    logs = [log for log in step.logs if (log.index or 0) == task]
    return Taken(folder.name, item_name(name, task), logs[-1:])


def _decision(run: RunRecord, step: str, index: int) -> dict[str, Any] | None:
    """Return the last answer of the cache to a task."""
    answers = [
        decision
        for decision in read_decisions(run.folder)
        if decision["step"] == step and decision.get("task", 0) == index
    ]
    return next((decision for decision in reversed(answers) if decision.get("outcome") != "waiting"), None)


def _leaves(cache: ResultCache, run: RunRecord, step: str, index: int) -> Mapping[str, str]:
    decision = _decision(run, step, index)
    if decision is None:
        raise NotFoundError(f"{step} of {run.id} was not looked up in the cache", hint="Compare with another run.")
    if isinstance(decision.get("leaves"), dict):
        leaves: Mapping[str, str] = decision["leaves"]
        return leaves
    entry = cache.index.entry(str(decision.get("key", "")))
    if entry is None:
        raise NotFoundError(f"the inputs of {step} of {run.id} are no longer known: its result was removed")
    return entry.leaves
