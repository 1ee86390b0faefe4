"""The files that finished steps of a resumed run used and that have changed since: it goes on with what they made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.store.opened import changed_since, files_written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.graph.spec import CommandFiles
    from weft.runs.reading import ItemRecord, RunRecord, StepRecord
    from weft.store.entries import Entry
    from weft.store.results import ResultCache


class _Used(NamedTuple):
    """The files that a finished step used: whether their content is another one, those written, the end of the step."""

    changed: Mapping[str, bool]
    written: frozenset[str]
    ended: float


def edited_files(
    run: RunRecord, steps: Iterable[StepRecord], named: Mapping[str, CommandFiles], results: ResultCache
) -> dict[str, list[str]]:
    """Return the files that have changed since finished `steps` of a run used them, each with the names of these steps.

    `named` has the files that the commands of all steps name. A step with a kept result has used those that it read,
    too, and they count by their content; other files count by the time of their change. What steps wrote does not
    count. Errors as of `Digester.of`.
    """
    entries: dict[str, list[Entry]] = {}
    for entry in results.index.of_run(run.name, run.id):
        entries.setdefault(entry.step, []).append(entry)
    used = {
        step.name: _used(entries.get(step.name, ()), run.id, ended, named[step.name], results)
        for step, ended in _ended(steps, named)
    }
    written = {path for files in named.values() for path in files.written}
    written.update(path for one in used.values() for path in one.written)
    found: dict[str, list[str]] = {}
    for name, one in used.items():
        by_time = [path for path in named[name].paths if path not in one.changed]
        late = [file for path in by_time if (file := changed_since([path], one.ended, written))]
        for path in [*(path for path, changed in one.changed.items() if changed), *late]:
            if path not in written:
                found.setdefault(path, []).append(name)
    return found


def _ended(steps: Iterable[StepRecord], named: Mapping[str, CommandFiles]) -> list[tuple[StepRecord, float]]:
    """Return the steps of which something has succeeded, each with the time since which its result counts."""
    found = []
    for step in steps:
        parts: list[StepRecord | ItemRecord] = [*step.items.values()] if step.width is not None else [step]
        ends = [part.ended for part in parts if part.state == "succeeded" and part.ended is not None]
        if ends and step.name in named:
            found.append((step, min(ends)))
    return found


def _used(entries: Iterable[Entry], run: str, ended: float, files: CommandFiles, results: ResultCache) -> _Used:
    # A run of another project may have the same name.
    own = [entry for entry in entries if entry.run != run or entry.store.startswith(f"{files.root}/")]
    written = {path for entry in own for path in files_written(entry.leaves, files.root)}
    return _Used(results.changed_content(own, files.root), frozenset(written), ended)
