"""Results that are declared: the outputs of an earlier run become the results of steps as their pipeline is now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.errors import ConflictError, WeftError
from weft.store.entries import Claim
from weft.store.locks import LOCKS, locks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from weft.store.locks import Locks
    from weft.store.planning import PlannedTask
    from weft.store.results import Recipe, ResultCache

RECORDED: Final = "recorded"
KNOWN: Final = "known"
LEFT: Final = "left"
_LEASE_S: Final = 600.0


class TouchedStep(Struct, frozen=True):
    """What became of a step: `recorded` as a result, `known` already, or `left` out for a reason."""

    step: str
    outcome: str
    reason: str


def touch(
    results: ResultCache,
    state: Path,
    tasks: Sequence[PlannedTask],
    run: str,
    times: Mapping[str, float],
    items: Mapping[str, Sequence[Any]],
) -> list[TouchedStep]:
    """Record the outputs that an earlier run has left as results of tasks, in an order of dependency.

    The recipes of the tasks name the paths of that run; `times` are the starts of its steps, in seconds since 1970, and
    `items` those of its loops. A path has the number of an item, so tasks for other items than those are left out.
    Content is copied or linked into the cache under the digests of what is there now. ConflictError: an output is
    missing; then nothing is recorded.
    """
    tasks = [_with_its_item(task, run, items) if task.loop else task for task in tasks]
    usable = [(task, task.recipe) for task in tasks if task.recipe is not None and not task.skipped]
    missing = [
        f"{task.step} has no {name}"
        for task, recipe in usable
        for name, path in recipe.outputs.items()
        if not os.path.lexists(path)
    ]
    if missing:
        more = f" (and {len(missing) - 3} more)" if len(missing) > 3 else ""
        raise ConflictError(
            f"outputs of {run} are missing: {', '.join(missing[:3])}{more}; nothing is recorded",
            hint="Name another run (--touch=RUN), or choose the steps whose outputs are there with --target.",
        )
    locks = locks_of(results.index.database, state / LOCKS)
    try:
        return [_touch(results, locks, task, run, times) for task in tasks]
    finally:
        locks.close()


def _with_its_item(task: PlannedTask, run: str, items: Mapping[str, Sequence[Any]]) -> PlannedTask:
    """Return the task of an item, left out if an earlier run had another item of its number, or none."""
    before = items.get(task.loop, ())
    if task.skipped or (task.number < len(before) and before[task.number] == task.item):
        return task
    had = "another item" if task.number < len(before) else "no item"
    return replace(task, skipped=f"{run} had {had} of this number")


def _touch(results: ResultCache, locks: Locks, task: PlannedTask, run: str, times: Mapping[str, float]) -> TouchedStep:
    recipe = task.recipe
    if task.skipped or task.depends or recipe is None:
        why = task.skipped or (f"it depends {task.depends}" if task.depends else task.uncached)
        return TouchedStep(task.step, LEFT, why)
    try:
        key = results.key(recipe)
        found = results.find(key.key, recipe.expires_s, recipe.root)
        if found.entry is not None:
            return TouchedStep(task.step, KNOWN, f"result of {found.entry.run}")
        if not locks.try_lock(key.key):
            return TouchedStep(task.step, LEFT, "another run is making its result")
        _claim(results, recipe, key.key, key.leaves)
        reason = results.keep(recipe, times.get(task.step, results.wall()))
    except WeftError as error:
        reason = error.message
    return TouchedStep(task.step, LEFT, reason) if reason else TouchedStep(task.step, RECORDED, f"outputs of {run}")


def _claim(results: ResultCache, recipe: Recipe, key: str, leaves: Mapping[str, str]) -> None:
    now = results.wall()
    results.index.claim(
        Claim(
            key=key,
            epoch=0,
            run=recipe.run,
            step=recipe.step,
            task=recipe.task,
            host=os.uname().nodename,
            pid=os.getpid(),
            since=now,
            lease_until=now + _LEASE_S,
            leaves=leaves,
        )
    )
