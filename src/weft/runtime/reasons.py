"""Why a step of a run ran, or where its result came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.model.errors import NotFoundError
from weft.runtime.cache import read_decisions

if TYPE_CHECKING:
    from weft.runtime.records import RunRecord
    from weft.store.results import ResultCache


class Reasons(Struct, frozen=True):
    """`outcome` is hit, miss, or none if the cache was not asked; `run` is the run that it was compared with."""

    step: str
    outcome: str
    reason: str
    run: str = ""
    differences: tuple[str, ...] = ()

    def line(self) -> str:
        """Return all in one line."""
        what = {"hit": "was taken from the cache", "miss": "ran"}.get(self.outcome)
        return f"{self.step}: {self.reason}" if what is None else f"{self.step} {what}: {self.reason}"


def reasons(cache: ResultCache, run: RunRecord, step: str, other: RunRecord | None = None) -> Reasons:
    """Return why a step of a run (`step-2`: item 2 of it) ran, compared with the nearest result, or with `other`.

    NotFoundError: there is no such step, or what is to be compared is not known any more.
    """
    told, item = run.task(step)
    name, index = told.name, item or 0
    said = _decision(run, name, index)
    if said is None:
        if told.started is None:
            return Reasons(step, "none", f"it did not run: it is {told.state}")
        return Reasons(
            step, "none", "the cache was not asked: it is not enabled for this step, or the run was without it"
        )
    if other is not None:
        other.step(name)
        differences = cache.differences(_leaves(cache, other, name, index), _leaves(cache, run, name, index))
        reason = f"{differences[0] if differences else 'nothing is different'}, compared with {other.id}"
        return Reasons(step, said["outcome"], reason, other.id, tuple(differences))
    return Reasons(step, said["outcome"], said["reason"], said.get("run", ""), tuple(said.get("differences", ())))


def _decision(run: RunRecord, step: str, index: int) -> dict[str, Any] | None:
    """Return the last answer that a task got."""
    answers = [said for said in read_decisions(run.folder) if said["step"] == step and said.get("task", 0) == index]
    return next((said for said in reversed(answers) if said.get("outcome") != "waiting"), None)


def _leaves(cache: ResultCache, run: RunRecord, step: str, index: int) -> Mapping[str, str]:
    said = _decision(run, step, index)
    if said is None:
        raise NotFoundError(f"the cache was not asked for {step} of {run.id}", hint="Compare with another run.")
    if isinstance(said.get("leaves"), dict):
        leaves: Mapping[str, str] = said["leaves"]
        return leaves
    entry = cache.index.entry(str(said.get("key", "")))
    if entry is None:
        raise NotFoundError(f"what {step} of {run.id} was made of is not known any more: its result was removed")
    return entry.leaves
