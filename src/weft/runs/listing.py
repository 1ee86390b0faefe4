"""The runs of a state folder: the index, corrected by the folders of the runs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.errors import ConflictError, NotFoundError, WeftError
from weft.runs.reading import read_run
from weft.runs.records import ACTIVE, DAMAGED, INTERRUPTED
from weft.store.database import BUSY, obstacle
from weft.store.places import STATE_NAME
from weft.store.state import DESCRIPTION, EVENTS, StateRoot, is_run, is_whole, owned, read_description

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.catalog import Catalog, RunRow


_MOST_SEARCHED: Final = 2000
_MOST_FOUND: Final = 10
_DEEPEST: Final = 4
_LONGEST_ID: Final = 128
_NO_PROJECTS: Final = frozenset({"node_modules", "__pycache__", "site-packages"})


class Target(Struct, frozen=True):
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
    """Return the row of the index for the run in a folder; None if it is no run's, or one that begins.

    A run whose description cannot be read has the state `damaged`, with the reason and the next step as its message.
    """
    from weft.store.catalog import RunRow, run_number

    if not is_run(folder):
        return None
    number = run_number(folder.name)
    try:
        run = read_run(folder)
    except WeftError as error:
        if owned(folder):
            return None
        reason = str(error)
        return RunRow(id=folder.name, number=number, state=DAMAGED, error_code=error.code, error_message=reason)
    except OSError:
        return None
    return RunRow(
        id=run.id,
        number=run.number or number,
        name=run.name,
        frontend=run.frontend,
        file=run.file,
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


def _intact(folder: Path) -> RunRow | None:
    """Return the row for the index; a damaged run is read from its folder each time, since it may be mended."""
    row = describe(folder)
    return None if row is None or row.state == DAMAGED else row


def outcome_of(root: StateRoot, run: str) -> str:
    """Return how a run ended, with the first line of its reason; "" while it goes on."""
    found = describe(root.folder(run))
    if found is None:
        return "its run was deleted"
    if found.state in ACTIVE:
        return ""
    reason = found.error_message.partition("\n")[0]
    return f"{found.state}: {reason}" if reason else found.state


def open_catalog(root: StateRoot) -> Catalog:
    """Return the index of a state folder; a missing, empty or damaged one is rebuilt from the folders of the runs."""
    catalog = root.catalog()
    catalog.restore = partial(catalog.rebuild, root.runs, _intact)
    if not catalog.has_tables() and root.is_writable and root.runs.is_dir() and any(root.runs.iterdir()):
        with index_may_be_busy():
            catalog.restore()
    return catalog


@contextmanager
def index_may_be_busy(note: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Leave out a change of the index while another process holds its lock: later starts correct the index."""
    try:
        yield
    except ConflictError as error:
        if obstacle(error) != BUSY:
            raise
        note(f"the index of runs is not up to date: {error.message}")


def next_run_id(root: StateRoot, catalog: Catalog) -> tuple[str, int]:
    """Return a fresh run id and its number, above those of all folders.

    While another process holds the lock of the index, the folder of the run is made here: it claims the id.
    """
    from weft.store.catalog import run_id, run_number

    def highest() -> int:
        return max((run_number(path.name) for path in root.runs.glob("[!.]*")), default=0)

    try:
        id, number = catalog.next_run_id()
        if root.folder(id).exists():  # the index is younger than the folders
            id, number = catalog.next_run_id(highest())
        return id, number
    except ConflictError as error:
        if obstacle(error) != BUSY:
            raise
    number = max(highest(), catalog.last_number())
    while True:
        number += 1
        with suppress(FileExistsError):
            root.folder(run_id(number)).mkdir(mode=0o700, parents=True)
            return run_id(number), number


def list_runs(
    root: StateRoot, *, limit: int | None = 20, state: str | None = None, name: str | None = None
) -> tuple[Sequence[RunRow], int]:
    """Return the newest runs of a state folder, newest first, and the number of all runs.

    Runs that the index shows as active or interrupted are read from their folders, and so are runs that are missing in
    the index, or whose description is damaged. Rows without a folder are left out.
    """
    catalog = open_catalog(root)
    unlisted, gone = _compared(root, catalog)
    listed = catalog.list(limit=None, state=ACTIVE | {INTERRUPTED}, name=name)
    unsure = [as_it_is(root, row) for row in listed if row.id not in gone]
    unsure += [row for row in _rows(root, unlisted) if name is None or row.name == name]
    right = [row for row in unsure if state is None or row.state == state]
    total = len(right)
    if state not in ACTIVE | {INTERRUPTED}:
        seen = {row.id for row in unsure}
        most = None if limit is None or gone else limit + len(seen)
        others = [row for row in catalog.list(limit=most, state=state, name=name) if row.id not in seen | gone]
        right += others
        total += len(others) if gone else catalog.count(state=state, name=name) - (len(listed) if state is None else 0)
    newest = sorted(right, key=lambda row: (-row.number, row.id))[:limit]
    return [_as_described(root, row) for row in newest], total


def end_of(row: RunRow) -> float:
    """Return the end of a run, in seconds since 1970; for a run without an end, its creation."""
    return row.ended_at or row.started_at or row.created_at


def by_end(rows: Iterable[RunRow]) -> list[RunRow]:
    """Return runs in the order of their ends, the last first: an old run that was resumed may end after newer ones."""
    return sorted(rows, key=lambda row: (-end_of(row), -row.number, row.id))


def is_part(folder: Path) -> bool:
    """Whether a run was limited to some steps of its pipeline."""
    try:
        description = read_description(folder)
    except WeftError:
        return False
    return bool(description.get("only") or description.get("targets"))


def find_run(root: StateRoot, name: str) -> Path:
    """Return the folder of a run by its id, a unique prefix of it, its number, @last or @failed.

    NotFoundError: no run has this name.
    """
    direct = root.runs / name
    if (
        name.isascii()
        and name.replace("-", "").isalnum()
        and len(name) <= _LONGEST_ID
        and direct.is_dir()
        and is_run(direct)
    ):
        return direct  # the usual case needs no database
    rows: Sequence[RunRow] = ()
    if name in ("@last", "@failed"):  # as the folders of the runs have it
        rows, _ = list_runs(root, limit=1, state="failed" if name == "@failed" else None)
    catalog = open_catalog(root)
    try:
        row = rows[0] if rows else catalog.find(name)
    except NotFoundError as error:
        numbered = name.isascii() and name.isdigit()
        unlisted = [row for row in _rows(root, _compared(root, catalog)[0]) if name]
        found = [row for row in unlisted if (row.number == int(name) if numbered else row.id.startswith(name))]
        if len(found) == 1:
            return root.folder(found[0].id)
        hint = f"List the runs: weft ls. Those of another folder: -C {_folder_with(root, name)}"
        raise NotFoundError(error.message.removesuffix("/weft.db"), hint=hint) from None
    return root.folder(row.id)


def projects_below(folder: Path) -> list[Path]:
    """Return the folders below one that have runs of their own, the nearest first, within limits."""
    found: list[Path] = []
    todo = deque([(folder, 0)])
    for _ in range(_MOST_SEARCHED):
        if not todo or len(found) >= _MOST_FOUND:
            break
        above, depth = todo.popleft()
        with suppress(OSError), os.scandir(above) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.name.startswith(".") or entry.name in _NO_PROJECTS or not entry.is_dir(follow_symlinks=False):
                    continue
                place = above / entry.name
                with suppress(OSError):
                    if any((place / STATE_NAME / "runs").iterdir()):
                        found.append(place)
                if depth < _DEEPEST:
                    todo.append((place, depth + 1))
    return found


def _folder_with(root: StateRoot, name: str) -> str:
    """Return a folder below that of a state folder that may have a run of this name."""
    below = projects_below(root.path.parent) if root.path.name == STATE_NAME else []
    by_id = name.isascii() and name.startswith("run-") and len(name) <= _LONGEST_ID
    found = [one for one in below if not by_id or (one / STATE_NAME / "runs" / name).is_dir()]
    return os.path.relpath(found[0]) if found else "FOLDER"


def as_it_is(root: StateRoot, row: RunRow) -> RunRow:
    """Return the row of an active or interrupted run, updated from its folder."""
    if row.state not in ACTIVE | {INTERRUPTED}:
        return row
    folder = root.folder(row.id)
    found = describe(folder)
    if found is None or found.state == DAMAGED:
        return row if owned(folder) else replace(row, state=INTERRUPTED)
    return replace(row, state=found.state, **{name: getattr(found, name) for name in _TOLD_BY_RECORDS})


def _as_described(root: StateRoot, row: RunRow) -> RunRow:
    """Return the row of a run, as a damaged one if its description is not whole."""
    if is_whole(root.folder(row.id)) or (found := describe(root.folder(row.id))) is None or found.state != DAMAGED:
        return row
    return replace(row, state=DAMAGED, error_code=found.error_code, error_message=found.error_message)


_TOLD_BY_RECORDS: Final = ("started_at", "ended_at", "paused_s", "error_code", "error_message")


def _compared(root: StateRoot, catalog: Catalog) -> tuple[set[str], set[str]]:
    """Return the ids of the folders of runs that are missing in the index, and of the rows without a folder."""
    listed = catalog.ids()
    try:
        names = {entry.name for entry in os.scandir(root.runs) if entry.name[0] != "."}
    except FileNotFoundError:
        names = set()
    except OSError:
        return set(), set()
    described = (DESCRIPTION, EVENTS)
    unlisted = {id for id in names - listed if any((root.runs / id / name).exists() for name in described)}
    return unlisted, listed - names


def _rows(root: StateRoot, ids: Iterable[str]) -> Iterator[RunRow]:
    """Yield the rows of runs as their folders have them."""
    return (row for id in sorted(ids) if (row := describe(root.folder(id))) is not None)


def mark_interrupted(root: StateRoot) -> list[str]:
    """Mark interrupted runs in the index and return their ids; called at a start.

    Ended runs whose end is missing in the index are corrected too. Runs without a row get one, and rows without a
    folder go.
    """
    catalog = open_catalog(root)
    unlisted, gone = _compared(root, catalog)
    for row in _rows(root, (id for id in unlisted if not owned(root.folder(id)))):
        if row.state != DAMAGED:
            catalog.add_run(row)
    for id in gone:
        with suppress(NotFoundError):
            catalog.remove(id)
    seen = (as_it_is(root, row) for row in catalog.list(limit=None, state=ACTIVE))
    rows = [row for row in seen if row.state not in ACTIVE]
    for row in rows:
        with suppress(NotFoundError):
            catalog.update_run(row.id, state=row.state, **{name: getattr(row, name) for name in _TOLD_BY_RECORDS})
    return [row.id for row in rows if row.state == INTERRUPTED]
