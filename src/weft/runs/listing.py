"""The runs of a state folder: the index, corrected by the folders of the runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from weft.model.errors import NotFoundError, WeftError
from weft.runs.reading import read_run
from weft.runs.records import ACTIVE, INTERRUPTED
from weft.store.state import DESCRIPTION, StateRoot, owned

if TYPE_CHECKING:
    from weft.store.catalog import Catalog, RunRow


class Target(NamedTuple):
    """A run, or a step of it ("" for the run), or one attempt of the step, counted from 0."""

    run: str
    step: str = ""
    attempt: int | None = None


def split_target(target: str) -> Target:
    """Split `RUN/STEP@ATTEMPT`; the attempt is None if it is not named."""
    run, _, step = target.partition("/")
    head, at, last = step.rpartition("@")
    if at and last.isascii() and last.isdigit() and len(last) < 10:
        return Target(run, head, int(last))
    return Target(run, step)


def describe(folder: Path) -> RunRow | None:
    """Return the row of the index for the run in a folder; None if the folder cannot be read."""
    from weft.store.catalog import RunRow

    try:
        run = read_run(folder)
    except (WeftError, OSError):
        return None
    digits = run.id.rpartition("-")[2]
    return RunRow(
        id=run.id,
        number=run.number or (int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0),
        name=run.name,
        frontend=run.frontend,
        file=run.file,
        folder=str(folder),
        state=run.state,
        created_at=run.created,
        started_at=run.started,
        ended_at=run.ended,
        paused_s=run.paused_s,
        user=run.user,
        host=run.host,
        pid=run.pid,
        parameters=run.parameters,
        error_code=run.error_code,
        error_message=run.message,
    )


def open_catalog(root: StateRoot) -> Catalog:
    """Return the index of a state folder, rebuilt from the folders of the runs if it is missing."""
    catalog = root.catalog()
    if not catalog.exists() and root.runs.is_dir() and any(root.runs.iterdir()):
        catalog.rebuild(root.runs, describe)
    return catalog


def list_runs(
    root: StateRoot, *, limit: int | None = 20, state: str | None = None, name: str | None = None
) -> tuple[Sequence[RunRow], int]:
    """Return the newest runs of a state folder, newest first, and the number of all runs.

    Runs that the index shows as active or interrupted are read from their folders, and so are runs that are missing in
    the index.
    """
    catalog = open_catalog(root)
    unsure = [as_it_is(row) for row in catalog.list(limit=None, state=ACTIVE | {INTERRUPTED}, name=name)]
    listed = len(unsure)
    unsure += [row for row in _unlisted(root, catalog) if name is None or row.name == name]
    right = [row for row in unsure if state is None or row.state == state]
    total = len(right)
    if state not in ACTIVE | {INTERRUPTED}:
        seen = {row.id for row in unsure}
        most = None if limit is None else limit + len(seen)
        right += [row for row in catalog.list(limit=most, state=state, name=name) if row.id not in seen]
        total += catalog.count(state=state, name=name) - (listed if state is None else 0)
    return sorted(right, key=lambda row: (-row.number, row.id))[:limit], total


def find_run(root: StateRoot, name: str) -> Path:
    """Return the folder of a run by its id, a unique prefix of it, its number, @last or @failed.

    NotFoundError: no run has this name.
    """
    direct = root.runs / name
    if name.isascii() and name.replace("-", "").isalnum() and direct.is_dir():
        return direct  # the usual case needs no database
    rows: Sequence[RunRow] = ()
    if name in ("@last", "@failed"):  # as the folders of the runs have it
        rows, _ = list_runs(root, limit=1, state="failed" if name == "@failed" else None)
    try:
        row = rows[0] if rows else open_catalog(root).find(name)
    except NotFoundError as error:
        hint = "List the runs: weft ls. Those of another folder: -C FOLDER"
        raise NotFoundError(error.message.removesuffix("/weft.db"), hint=hint) from None
    return Path(row.folder or root.folder(row.id))


def as_it_is(row: RunRow) -> RunRow:
    """Return the row of an active or interrupted run, updated from its folder."""
    if not row.folder or row.state not in ACTIVE | {INTERRUPTED}:
        return row
    found = describe(Path(row.folder))
    if found is None:
        return row if owned(Path(row.folder)) else replace(row, state=INTERRUPTED)
    return replace(row, state=found.state, **{name: getattr(found, name) for name in _TOLD_BY_RECORDS})


_TOLD_BY_RECORDS: Final = ("started_at", "ended_at", "paused_s", "error_code", "error_message")


def _unlisted(root: StateRoot, catalog: Catalog) -> list[RunRow]:
    """Return the runs whose folders are missing in the index."""
    try:
        names = {
            entry.name
            for entry in os.scandir(root.runs)
            if entry.name[0] != "." and (Path(entry.path) / DESCRIPTION).exists()
        }
    except OSError:
        return []
    if len(names) == catalog.count():
        return []
    names -= {row.id for row in catalog.list(limit=None)}
    return [row for name in sorted(names) if (row := describe(root.runs / name)) is not None]


def mark_interrupted(root: StateRoot) -> list[str]:
    """Mark interrupted runs in the index and return their ids; called at a start.

    Ended runs whose end is missing in the index are corrected too.
    """
    catalog = open_catalog(root)
    rows = [row for row in map(as_it_is, catalog.list(limit=None, state=ACTIVE)) if row.state not in ACTIVE]
    for row in rows:
        with suppress(NotFoundError):
            catalog.update_run(row.id, state=row.state, **{name: getattr(row, name) for name in _TOLD_BY_RECORDS})
    return [row.id for row in rows if row.state == INTERRUPTED]
