"""The removal of runs: delete and prune."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from weft.admin.deleting import delete_runs, refuse_live
from weft.model.errors import UsageError
from weft.runs.listing import list_runs, open_catalog
from weft.runs.records import INTERRUPTED, SUSPENDED
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
    root: StateRoot, now: float, *, older_than_s: float | None = None, keep: int | None = None, state: str | None = None
) -> list[RunRow]:
    """Return the prunable runs, newest first, without the newest `keep` and those that ended too lately.

    `now` is in seconds since 1970. Interrupted runs are included only if `state` requests them, active runs never.
    UsageError: no option bounds age or number.
    """
    if older_than_s is None and keep is None:
        raise UsageError(
            "no runs are selected: give their age, or how many to keep", hint="For example: --older-than 30d"
        )
    if keep is not None and keep < 0:
        raise UsageError(f"--keep is {keep}; it must be 0 or more")
    if state is not None and state not in ENDED:
        raise UsageError(f"--state is {state[:40]!r}", hint=f"There are: {', '.join(ENDED)}")
    rows, _ = list_runs(root, limit=None, state=state)
    ended = [row for row in rows if row.state in ((state,) if state else ENDED[: -len(RESUMABLE)])]
    old = [row for row in ended[keep or 0 :] if older_than_s is None or _end(row) < now - older_than_s]
    return [row for row in old if not owned(root.folder(row.id))]


def _end(row: RunRow) -> float:
    """Return the end of a run, in seconds since 1970; for a run without an end, its creation."""
    return row.ended_at or row.started_at or row.created_at
