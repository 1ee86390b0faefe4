"""The removal of runs: delete and prune."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from weft.admin.deleting import delete_runs, refuse_live
from weft.model.errors import UsageError
from weft.runs.listing import list_runs, open_catalog
from weft.runs.records import INTERRUPTED, SUSPENDED
from weft.store.labels import KEEP, read_labels
from weft.store.state import owned

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.catalog import RunRow
    from weft.store.state import StateRoot

RESUMABLE: Final = (INTERRUPTED, SUSPENDED)
ENDED: Final = ("succeeded", "failed", "terminated", *RESUMABLE)
"""The states of prunable runs; the last two only on request, because such runs can be resumed."""


def delete_all(root: StateRoot, folders: Iterable[Path], note: Callable[[str], None]) -> Iterator[str]:
    """Delete ended runs, and yield the id of each; `note` reports what stays.

    ConflictError: one is active, and none is deleted.
    """
    wanted = list(dict.fromkeys(folders))
    for folder in wanted:
        refuse_live(folder)
    open_catalog(root).list(limit=None)  # a damaged index is made again
    return delete_runs(root, wanted, note)


def prune(root: StateRoot, rows: Iterable[RunRow], note: Callable[[str], None]) -> Iterator[RunRow]:
    """Delete the runs of rows, and yield each deleted one; `note` reports what stays."""
    known = {row.id: row for row in rows}
    for run in delete_runs(root, [root.folder(run) for run in known], note):
        yield known[run]


def prunable(
    root: StateRoot,
    now: float,
    *,
    older_than_s: float | None = None,
    keep: int | None = None,
    keep_last: int | None = None,
    name: str | None = None,
    state: str | None = None,
) -> list[RunRow]:
    """Return the prunable runs, newest first, without the newest `keep` and those that ended too lately.

    `now` is in seconds since 1970. Of each pipeline the newest `keep_last` stay, and the newest that has succeeded; so
    do runs with the tag `keep`. Interrupted runs are included only if `state` requests them, active runs never.
    UsageError: no option bounds age or number.
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
    ended = [row for row in rows if row.state in ((state,) if state else ENDED[: -len(RESUMABLE)])]
    last = set() if keep_last is None else _last_of_each(ended, keep_last)
    old = [row for row in ended[keep or 0 :] if older_than_s is None or _end(row) < now - older_than_s]
    going = [row for row in old if row.id not in last and not owned(root.folder(row.id))]
    return [row for row in going if KEEP not in read_labels(root.folder(row.id)).tags]


def _last_of_each(rows: Iterable[RunRow], number: int) -> set[str]:
    """Return the ids of the newest runs of each pipeline, and of its newest that has succeeded.

    `rows` are newest first.
    """
    seen: Counter[tuple[str, str]] = Counter()
    found = set()
    for row in rows:
        name, succeeded = (row.name, ""), (row.name, row.state)
        first = row.state == "succeeded" and not seen[succeeded]
        if seen[name] < number or first:
            found.add(row.id)
        seen[name] += 1
        seen[succeeded] += 1
    return found


def _end(row: RunRow) -> float:
    """Return the end of a run, in seconds since 1970; for a run without an end, its creation."""
    return row.ended_at or row.started_at or row.created_at
