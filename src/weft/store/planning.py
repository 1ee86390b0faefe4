"""The plan of a pipeline: the answers of the cache, before anything runs.

A step whose inputs come from other steps can be foreseen as long as those are hits, because their results have the
content of the inputs. After a step that will run, the content is unknown: it may be the same as before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.errors import WeftError
from weft.store.opened import LOOKED, READ, files_written

if TYPE_CHECKING:
    from weft.store.entries import CachedOutput, Entry
    from weft.store.results import Recipe, ResultCache

HIT: Final = "hit"
RUN: Final = "run"
DEPENDS: Final = "depends"
SKIPPED: Final = "skipped"


class PlannedTask(Struct, frozen=True, kw_only=True):
    """A task to be foreseen: `recipe` is None if it has no cache, `makes` are the paths of its outputs.

    `skipped` is the reason why it will not run. With `refresh`, it is not looked up. `depends` is the unknown that it
    depends on. `uncached` is the reason why it has no cache. `how` tells what else its file says about its run, such as
    retries. A task for an `item` of a loop has its number in the step `loop`.
    """

    step: str
    recipe: Recipe | None
    makes: Sequence[str] = ()
    skipped: str = ""
    refresh: bool = False
    depends: str = ""
    uncached: str = "its cache is not enabled"
    how: str = ""
    loop: str = ""
    number: int = 0
    item: Any = None


class Foreseen(Struct, frozen=True):
    """The plan of a step: `hit`, `run`, `depends` (on an earlier step) or `skipped`, with a reason.

    `how` is that of its task.
    """

    step: str
    outcome: str
    reason: str
    how: str = ""


def foresee(results: ResultCache, tasks: Sequence[PlannedTask]) -> list[Foreseen]:
    """Return the plan of steps in an order of dependency; nothing is written."""
    known: dict[str, CachedOutput] = {}
    unknown: dict[str, str] = {}
    rewritten = _RewrittenFiles(results)
    foreseen = (_foresee(results, one, known, unknown, rewritten) for one in tasks)
    return [replace(one, how=task.how) if task.how else one for one, task in zip(foreseen, tasks, strict=True)]


def _foresee(
    results: ResultCache,
    task: PlannedTask,
    known: dict[str, CachedOutput],
    unknown: dict[str, str],
    rewritten: _RewrittenFiles,
) -> Foreseen:
    recipe = task.recipe
    if task.skipped:
        return Foreseen(task.step, SKIPPED, task.skipped)
    answer = Foreseen(task.step, RUN, task.uncached)
    if task.depends:
        answer = Foreseen(task.step, DEPENDS, task.depends)
    elif recipe is not None:
        above = next((unknown[path] for paths in recipe.inputs.values() for path in paths if path in unknown), None)
        if task.refresh:
            answer = Foreseen(task.step, RUN, "it was asked to run again")
        elif above is not None:
            answer = Foreseen(task.step, DEPENDS, f"on what {above} makes")
        else:
            answer = _look(results, task.step, recipe, known, rewritten)
    if answer.outcome != HIT:
        unknown.update(dict.fromkeys(task.makes, task.step))
        if recipe is not None:
            rewritten.add(recipe, task.step)
    return answer


def _look(
    results: ResultCache, step: str, recipe: Recipe, known: dict[str, CachedOutput], rewritten: _RewrittenFiles
) -> Foreseen:
    try:
        key = results.key(recipe, known)
        found = results.find(key.key, recipe.expires_s, recipe.root)
        if found.entry is None:
            return Foreseen(step, RUN, found.reason or results.why(recipe, key.leaves).reason)
        if changes := rewritten.read_by(found.entry, recipe):
            return Foreseen(step, DEPENDS, changes)
    except WeftError as error:
        return Foreseen(step, RUN, error.message)
    made: Mapping[str, CachedOutput] = found.entry.outputs
    known.update({path: made[name] for name, path in recipe.outputs.items() if name in made})
    return Foreseen(step, HIT, f"result of {found.entry.run}")


class _RewrittenFiles:
    """The files that steps which will run wrote the last time, and left without having them as outputs."""

    def __init__(self, results: ResultCache) -> None:
        self._results = results
        self._steps: dict[tuple[str, str, str], str] = {}
        self._writers: dict[str, tuple[str, str]] = {}

    def add(self, recipe: Recipe, step: str) -> None:
        """Add a step that will run; its files are looked up when a result may depend on them."""
        self._steps.setdefault((recipe.pipeline, recipe.step, recipe.root), step)

    def read_by(self, entry: Entry, recipe: Recipe) -> str:
        """Return which of the files a result depends on, "" for none."""
        named = [path.rstrip("/") for _, path in recipe.scopes]
        opened = {
            os.path.join(recipe.root, name.partition(" ")[2])
            for name in entry.leaves
            if name.startswith((READ, LOOKED))
        }
        written = set(files_written(entry.leaves, recipe.root))
        if not named and not opened and not written:
            return ""
        self._look_up()
        for path, (writer, step) in self._writers.items():
            is_read = path in opened or any(path == one or path.startswith(f"{one}/") for one in named)
            if is_read or (path in written and step != recipe.step):
                return f"on {os.path.relpath(path, recipe.root)}, which {writer} writes: it runs again if that changes"
        return ""

    def _look_up(self) -> None:
        for (pipeline, name, root), step in self._steps.items():
            for entry in self._results.index.near(pipeline, name):
                for path in files_written(entry.leaves, root):
                    self._writers.setdefault(path, (step, name))
        self._steps.clear()
