"""The removal of runs: delete and prune."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.admin.deleting import delete_runs, refuse_away, refuse_live, why_away
from weft.model.errors import UsageError, WeftError
from weft.runs.listing import by_end, end_of, is_part, list_runs, open_catalog
from weft.runs.records import INTERRUPTED, SUSPENDED
from weft.store.labels import KEEP, SWEEP, read_labels
from weft.store.last_links import leads_to
from weft.store.state import PLACE, ROOT, owned, read_description

if TYPE_CHECKING:
    from weft.store.catalog import RunRow
    from weft.store.state import StateRoot

RESUMABLE: Final = (INTERRUPTED, SUSPENDED)
ENDED: Final = ("succeeded", "failed", "terminated", *RESUMABLE)
"""The states of prunable runs; the last two only on request, because such runs can be resumed."""


def delete_all(
    root: StateRoot, folders: Iterable[Path], note: Callable[[str], None], *, force: bool = False
) -> Iterator[str]:
    """Delete ended runs, and yield the id of each; `note` reports what stays.

    ConflictError: one is active, or the outputs of one are not in their place and `force` is not given; none is
    deleted.
    """
    wanted = list(dict.fromkeys(folders))
    for folder in wanted:
        refuse_live(folder)
        if not force:
            refuse_away(folder)
    open_catalog(root).list(limit=None)  # a damaged index is made again
    return delete_runs(root, wanted, note)


def prune(root: StateRoot, rows: Iterable[RunRow], note: Callable[[str], None]) -> Iterator[RunRow]:
    """Delete the runs of rows, and yield each deleted one; `note` reports what stays."""
    known = {row.id: row for row in rows}
    for run in delete_runs(root, [root.folder(run) for run in known], note):
        yield known[run]


def in_place(root: StateRoot, rows: Iterable[RunRow], note: Callable[[str], None]) -> list[RunRow]:
    """Return the rows of the runs whose outputs are in their place; `note` reports the others."""
    found, away = [], defaultdict(list)
    for row in rows:
        if why := why_away(root.folder(row.id)):
            away[why].append(row.id)
        else:
            found.append(row)
    for why, runs in away.items():
        note(
            f"{', '.join(runs)} cannot be deleted, because the outputs are not in their place: {why}. Mount the disk "
            f"with them again. If they are gone: weft delete --force {' '.join(runs)}"
        )
    return found


def prunable(
    root: StateRoot,
    now: float,
    *,
    older_than_s: float | None = None,
    keep: int | None = None,
    keep_last: int | None = None,
    name: str | None = None,
    state: str | None = None,
    spared: str = "",
) -> list[RunRow]:
    """Return the prunable runs, those that ended last first, without the newest `keep` and those that ended too lately.

    `now` is in seconds since 1970. Of each pipeline the `keep_last` that ended last stay, the last whole one that has
    succeeded, and the one that the link to the last outputs leads to; points of sweeps do not count, and stay unless
    another option bounds them. Runs with the tag `keep` stay, and the run `spared`. Interrupted runs are included only
    if `state` requests them, active runs never. UsageError: no option bounds age or number.
    """
    if older_than_s is None and keep is None and keep_last is None:
        raise UsageError(
            "no runs are selected: give their age, or how many to keep", hint="For example: --older-than 30d"
        )
    for option, number in (("--keep", keep), ("--keep-last", keep_last)):
        if number is not None and number < 0:
            raise UsageError(f"{option} is {number}; it must be 0 or more")
    if state is not None and state not in ENDED:
        raise UsageError(f"--state is {state[:40]!r}", hint=f"There are: {', '.join(ENDED)}")
    rows, _ = list_runs(root, limit=None, state=state, name=name)
    ended = by_end(row for row in rows if row.state in ((state,) if state else ENDED[: -len(RESUMABLE)]))
    last = {spared}
    if keep_last is not None:
        last |= _last_of_each(root, ended, keep_last, points=older_than_s is None and keep is None)
    old = [row for row in ended[keep or 0 :] if older_than_s is None or end_of(row) < now - older_than_s]
    going = [row for row in old if row.id not in last and not owned(root.folder(row.id))]
    return [row for row in going if KEEP not in read_labels(root.folder(row.id)).tags]


def _last_of_each(root: StateRoot, rows: Iterable[RunRow], number: int, *, points: bool) -> set[str]:
    """Return the ids of the last runs of each pipeline, its last whole one that has succeeded, and the linked one.

    `rows` are in the order of their ends, the last first. Points of sweeps do not count; with `points` they are among
    the ids.
    """
    seen: Counter[str] = Counter()
    whole = set()
    found = set()
    for row in rows:
        folder = root.folder(row.id)
        if SWEEP in read_labels(folder).tags:
            found |= {row.id} if points else set()
            continue
        succeeded = row.state == "succeeded" and row.name not in whole and not is_part(folder)
        if seen[row.name] < number or succeeded or _is_linked(folder):
            found.add(row.id)
        seen[row.name] += 1
        whole |= {row.name} if succeeded else set()
    return found


def _is_linked(folder: Path) -> bool:
    """Whether the link to the last outputs of its pipeline leads to those of a run."""
    try:
        description = read_description(folder)
    except WeftError:
        return False
    base, place = description.get(ROOT), description.get(PLACE)
    if not isinstance(base, str) or not isinstance(place, list):
        return False
    return leads_to(Path(base, *map(str, place)), folder.name, str(description.get("name")))
