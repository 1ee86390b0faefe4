"""Why a step of a run ran, or where its result came from, and what was printed there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.model.errors import NotFoundError, WeftError
from weft.runs.reading import item_name, read_run
from weft.runtime.cache import read_decisions

if TYPE_CHECKING:
    from pathlib import Path

    from weft.runs.reading import RunRecord
    from weft.store.results import ResultCache
    from weft.store.state import LogFile


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


class Taken(Struct, frozen=True):
    """A task whose result was taken from a task of another run; `logs` are those of the attempt that made it.

    `gone` says that nothing is known of that run any more.
    """

    run: str
    step: str = ""
    logs: Sequence[LogFile] = ()
    gone: bool = False


def taken(run: RunRecord, step: str = "", item: int | None = None) -> list[Taken]:
    """Return where what the cache gave to a run, to one step of it, or to one item, was made."""
    answers = {
        (said["step"], said.get("task", 0)): said
        for said in read_decisions(run.folder)
        if step in ("", said["step"]) and item in (None, said.get("task", 0))
    }
    made: dict[str, dict[str, dict[str, Any]]] = {}
    found = []
    for said in answers.values():
        if said["outcome"] != "hit":
            continue
        folder = run.folder.parent / str(said.get("run"))
        if folder.name not in made:
            made[folder.name] = {one.get("key", ""): one for one in read_decisions(folder) if one["outcome"] == "miss"}
        by = made[folder.name].get(said.get("key", ""))
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
