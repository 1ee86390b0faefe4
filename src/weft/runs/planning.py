"""What the cache will answer: said before anything runs.

A step whose inputs are made by steps above it can be foreseen as long as those are hits, since their results say what
they hold. Below a step that will run nobody knows yet: it may make what it made before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from weft.model.errors import WeftError

if TYPE_CHECKING:
    from weft.store.entries import CachedOutput
    from weft.store.results import Recipe, ResultCache

HIT: Final = "hit"
RUN: Final = "run"
DEPENDS: Final = "depends"
SKIPPED: Final = "skipped"


class PlannedTask(Struct, frozen=True, kw_only=True):
    """A task to be foreseen: `recipe` is None if it has no cache, `makes` are the paths of its outputs.

    `skipped` says why it will not run, `refresh`: it is not looked up. `depends` says on what it depends that nobody
    knows yet. `uncached` says why it has no cache.
    """

    step: str
    recipe: Recipe | None
    makes: Sequence[str] = ()
    skipped: str = ""
    refresh: bool = False
    depends: str = ""
    uncached: str = "its cache is not enabled"


class Foreseen(Struct, frozen=True):
    """What will become of a step: `hit`, `run`, `depends` (on a step above) or `skipped`, and why."""

    step: str
    outcome: str
    reason: str


def foresee(results: ResultCache, asked: Sequence[PlannedTask]) -> list[Foreseen]:
    """Return what will become of the steps, which come in an order in which they could run; nothing is written."""
    known: dict[str, CachedOutput] = {}
    unknown: dict[str, str] = {}
    return [_foresee(results, one, known, unknown) for one in asked]


def _foresee(
    results: ResultCache, asked: PlannedTask, known: dict[str, CachedOutput], unknown: dict[str, str]
) -> Foreseen:
    recipe = asked.recipe
    if asked.skipped:
        return Foreseen(asked.step, SKIPPED, asked.skipped)
    if asked.depends:
        return Foreseen(asked.step, DEPENDS, asked.depends)
    answer = Foreseen(asked.step, RUN, asked.uncached)
    if recipe is not None:
        above = next((unknown[path] for paths in recipe.inputs.values() for path in paths if path in unknown), None)
        if asked.refresh:
            answer = Foreseen(asked.step, RUN, "it was asked to run again")
        elif above is not None:
            answer = Foreseen(asked.step, DEPENDS, f"on what {above} makes")
        else:
            answer = _look(results, asked.step, recipe, known)
    if answer.outcome != HIT:
        unknown.update(dict.fromkeys(asked.makes, asked.step))
    return answer


def _look(results: ResultCache, step: str, recipe: Recipe, known: dict[str, CachedOutput]) -> Foreseen:
    try:
        key = results.key(recipe, known)
        found = results.find(key.key)
    except WeftError as error:
        return Foreseen(step, RUN, error.message)
    if found.entry is None:
        return Foreseen(step, RUN, found.reason or results.why(recipe, key.leaves).reason)
    made: Mapping[str, CachedOutput] = found.entry.outputs
    known.update({path: made[name] for name, path in recipe.outputs.items() if name in made})
    return Foreseen(step, HIT, f"result of {found.entry.run}")
