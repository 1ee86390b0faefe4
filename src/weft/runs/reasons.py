"""The reason why a step waits or ran, the origin of a cached result, and the logs of its origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.errors import ConflictError, NotFoundError, WeftError
from weft.model.ids import item_name, loop_item
from weft.runs.reading import read_run
from weft.runs.records import INTERRUPTED, SUSPENDED
from weft.runtime.cache import read_decisions
from weft.store.state import read_description

if TYPE_CHECKING:
    from pathlib import Path

    from weft.engine.waiting import Wait
    from weft.runs.reading import ItemRecord, RunRecord, StepRecord
    from weft.store.results import ResultCache
    from weft.store.state import LogFile


class Reasons(Struct, frozen=True):
    """The answer of the cache: `outcome` is hit, miss, or none if it was not consulted; `run` is the compared run.

    Of a loop whose items have several answers, `outcome` is mixed and `items` has each answer, with the names of its
    `tasks` items as `step`. Of a run, `items` are the steps that wait for its resume. `waits` are the reasons why tasks
    of the step have not started. `state` is that of a step that runs, or has ended without success. `remark` is what
    else a user needs to know.
    """

    step: str
    outcome: str
    reason: str
    run: str = ""
    differences: tuple[str, ...] = ()
    waits: tuple[Wait, ...] = ()
    state: str = ""
    items: tuple[Reasons, ...] = ()
    tasks: int = 1
    remark: str = ""

    def lines(self) -> list[str]:
        """Return the answer as lines of text."""
        return [*self._lines(), *([self.remark] if self.remark else [])]

    def _lines(self) -> list[str]:
        held = [wait.line() for wait in self.waits]
        if held and self.outcome == "none":
            return held + [line for each in self.items for line in each.lines()]
        held += [f"{self.step} {self.state}"] if self.state else []
        if self.items:
            return held + [line for each in self.items for line in each.lines()]
        what = {"hit": f"{'was' if self.tasks == 1 else 'were'} taken from the cache", "miss": "ran"}.get(self.outcome)
        line = f"{self.step}: {self.reason}" if what is None else f"{self.step} {what}: {self.reason}"
        return [*held, line, *(f"  also {each}" for each in self.differences[1:] if each not in self.reason)]


def reasons(
    cache: ResultCache, run: RunRecord, step: str, other: RunRecord | None, note: Callable[[str], None]
) -> Reasons:
    """Return why a step of a run (`step-2`: item 2 of it) ran, compared with the nearest result, or with `other`.

    With an unusable index of the cache it is the recorded reason, and `note` reports that nothing was compared.
    NotFoundError: the step does not exist, or its inputs are no longer known.
    """
    record, item = run.task(step)
    asked = _decisions(run).get(record.name, {})
    compared = {} if other is None else _decisions(other).get(other.step(record.name).name, {})
    without = _without_cache(run)

    def answer(part: StepRecord | ItemRecord, number: int) -> Reasons:
        decision = asked.get(number)
        if decision is not None and other is not None and (item is not None or number in compared or not compared):
            try:
                differences = cache.differences(
                    _leaves(cache, other, step, compared.get(number)), _leaves(cache, run, step, decision)
                )
            except ConflictError as error:
                note(f"{step} cannot be compared with {other.id}: {error.message}")
            else:
                reason = f"{differences[0] if differences else 'nothing is different'}, compared with {other.id}"
                return Reasons(step, decision["outcome"], reason, other.id, tuple(differences))
        return _recorded(run, step, part, decision, without)

    return answer(record.items.get(item, record), item) if item is not None else _of_step(record, answer)


def recorded_reasons(run: RunRecord) -> dict[str, Reasons]:
    """Return why each step of a run ran, waited or was reused, as its records tell it: nothing is compared."""
    asked, without = _decisions(run), _without_cache(run)
    found = {}
    for record in run.steps:
        own = asked.get(record.name, {})

        def answer(
            part: StepRecord | ItemRecord,
            number: int,
            name: str = record.name,
            own: Mapping[int, dict[str, Any]] = own,
        ) -> Reasons:
            return _recorded(run, name, part, own.get(number), without)

        found[record.name] = replace(_of_step(record, answer), state=_state_of(run, record))
    return found


def _recorded(
    run: RunRecord, step: str, part: StepRecord | ItemRecord, decision: dict[str, Any] | None, without: str
) -> Reasons:
    """Return the recorded answer of the cache to a task, or why it was not asked."""
    if decision is None:
        return Reasons(step, "none", without if part.started is not None else _not_run(run, part))
    differences = decision.get("differences", ())
    return Reasons(step, decision["outcome"], decision["reason"], decision.get("run", ""), tuple(differences))


def _of_step(record: StepRecord, answer: Callable[[StepRecord | ItemRecord, int], Reasons]) -> Reasons:
    """Return the answer for a whole step: that of its task, or those of its items."""
    groups: dict[Reasons, list[int]] = {}
    for number, part in sorted(record.items.items()):
        if part.state != "pending":
            groups.setdefault(answer(part, number), []).append(number)
    if len(groups) < 2:
        return next(iter(groups), None) or answer(record, 0)
    items = tuple(replace(each, step=_listed(record, numbers), tasks=len(numbers)) for each, numbers in groups.items())
    return Reasons(next(iter(groups)).step, "mixed", "its items have several reasons", items=items)


def _listed(record: StepRecord, numbers: Sequence[int]) -> str:
    """Return the name of an item, or the number of several items with the first names."""
    names = [loop_item(record.name, number) for number in numbers]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    listed = f"{len(names)} of {record.width} items ({', '.join(names[:_MOST_NAMED])}{more})"
    return names[0] if len(names) == 1 else listed


_MOST_NAMED: Final = 5


def state_of(run: RunRecord, step: str) -> str:
    """Return the state of a step or an item that runs, or that ended without success, with its reason; else ""."""
    record, item = run.task(step)
    return _state_of(run, record if item is None else record.items.get(item, record))


def _state_of(run: RunRecord, part: StepRecord | ItemRecord) -> str:
    if part.started is None:
        return ""
    if part.state == "running":
        begun = datetime.fromtimestamp(part.started, UTC).astimezone().replace(tzinfo=None)
        news = f": {part.message}" if part.message else ""
        return f"is running since {begun.isoformat(' ', 'seconds')}{news}"
    if part.state == INTERRUPTED:
        why = "suspended" if run.state == SUSPENDED else "interrupted"
        return f"was interrupted: the run was {why}; it goes on with: weft resume {run.id}"
    if part.state not in ("failed", "terminated", "cancelled"):
        return ""
    reason = part.message.partition("\n")[0]
    return f"{part.state}: {reason}" if reason else part.state


def not_started(run: RunRecord) -> tuple[Reasons, ...]:
    """Return why the steps of a run that is suspended or interrupted have not started, or were cut off."""
    if run.state not in (SUSPENDED, INTERRUPTED):
        return ()
    open_ = [step for step in run.steps if step.state in ("pending", INTERRUPTED)]
    return tuple(Reasons(step.name, "none", state_of(run, step.name) or _not_run(run, step)) for step in open_)


def _without_cache(run: RunRecord) -> str:
    """Return why a step ran that was not looked up in the cache."""
    with suppress(NotFoundError):  # its owner died before the description
        if read_description(run.folder).get("cache_off"):
            return "it ran because the run used no cache (--no-cache)"
    return "it runs in every run, because its cache is not enabled"


def _not_run(run: RunRecord, part: StepRecord | ItemRecord) -> str:
    """Return why a step or an item has not started."""
    if part.state == "pending":
        goes_on = f"; it goes on with: weft resume {run.id}" if run.state in (SUSPENDED, INTERRUPTED) else ""
        return f"it has not started: the run is {run.state}{goes_on}"
    return f"{part.state}: {part.message or 'the records of the run do not have the reason'}"


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


def _decisions(run: RunRecord) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the last answer of the cache to each task of each step."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for decision in read_decisions(run.folder):
        if decision.get("outcome") != "waiting":
            found.setdefault(decision["step"], {})[decision.get("task", 0)] = decision
    return found


def _leaves(cache: ResultCache, run: RunRecord, step: str, decision: dict[str, Any] | None) -> Mapping[str, str]:
    if decision is None:
        raise NotFoundError(f"{step} of {run.id} was not looked up in the cache", hint="Compare with another run.")
    if isinstance(decision.get("leaves"), dict):
        leaves: Mapping[str, str] = decision["leaves"]
        return leaves
    entry = cache.index.entry(str(decision.get("key", "")))
    if entry is None:
        raise NotFoundError(f"the inputs of {step} of {run.id} are no longer known: its result was removed")
    return entry.leaves
