"""Times to live: what ended training jobs leave is removed when its time is over, whichever process comes by.

The folder `expiring` of the state folder has a file for each run with such jobs, so that a look costs nothing where
there are none.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, convert, to_builtins

from weft.model.errors import ConflictError, WeftError
from weft.store.folders import safe_open, unowned
from weft.store.state import list_container_logs, list_logs, read_status, write_status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weft.store.state import StateRoot

FOLDER: Final = "expiring"
EXPIRED_AT: Final = "expired_at"
"""The key of the status of a job for the time at which its logs were removed."""


class Expiry(Struct, frozen=True):
    """The logs of `steps`, the replicas of a job, are removed at `due`, in seconds since 1970."""

    job: str
    due: float
    steps: tuple[str, ...]


def set_expiries(state: Path, run: str, expiries: Sequence[Expiry]) -> None:
    """Replace the times to live of a run; without any, nothing of it expires."""
    if not expiries:
        with suppress(FileNotFoundError):
            (state / FOLDER / run).unlink()
        return
    with safe_open(state, FOLDER, run, mode="w", make_folders=True) as file:
        json.dump([to_builtins(one) for one in expiries], file)


def expire(root: StateRoot, now: float) -> list[str]:
    """Remove the logs whose time is over; return the names of their jobs. Runs with an owner keep them for now."""
    try:
        runs = sorted(entry.name for entry in os.scandir(root.path / FOLDER))
    except OSError:
        return []
    found = []
    for run in runs:
        expiries = _read(root.path, run)
        due = [one for one in expiries if one.due <= now]
        if not due and expiries:
            continue
        with suppress(ConflictError, OSError, WeftError):  # it has an owner, or is not ours: another time
            folder = root.folder(run)
            if folder.is_dir():
                with unowned(folder):
                    _remove(folder, due, now)
            set_expiries(root.path, run, [one for one in expiries if one not in due])
            found += [f"{run}/{one.job}" for one in due]
    return found


def _read(state: Path, run: str) -> list[Expiry]:
    try:
        with safe_open(state, FOLDER, run) as file:
            return convert(json.load(file), list[Expiry])
    except (WeftError, ValueError):  # a damaged file is removed
        return []


def _remove(folder: Path, due: Sequence[Expiry], now: float) -> None:
    steps = {step for one in due for step in one.steps}
    for log in (*list_logs(folder), *list_container_logs(folder)):
        if log.step in steps:
            for path in (log.path, log.times):
                path.unlink(missing_ok=True)
    jobs: list[dict[str, Any]] = read_status(folder)
    gone = {one.job for one in due}
    write_status(folder, [{**job, EXPIRED_AT: now} if job["name"] in gone else job for job in jobs])
