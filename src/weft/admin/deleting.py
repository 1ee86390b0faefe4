"""The removal of ended runs: their outputs, their rows in the indexes, and their folders.

Outputs are removed first, so that a full disk has room for the rest. The folder is last and is moved away at once, so
that a half-deleted run of a killed process is still listed, and a second deletion completes the first. Results in the
cache do not belong to the run and stay.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft.model.errors import ConflictError, DiskFullError, ForbiddenError, NotFoundError, WeftError
from weft.runtime.clock import RealClock
from weft.store.database import BUSY, obstacle
from weft.store.entries import index_of
from weft.store.folders import make_folders, remove_at, remove_folder, sweep_trash, unowned
from weft.store.last_links import unlink_last
from weft.store.places import why_no_outputs
from weft.store.state import (
    PLACE,
    ROOT,
    STORAGE,
    followed_file,
    is_copied,
    is_first_root,
    list_inner_runs,
    os_error,
    owned,
    owns_root,
    read_description,
)
from weft.store.tallies import counted_removal
from weft.worker.group import end_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from weft.store.state import StateRoot


def refuse_live(folder: Path) -> None:
    """Require that a run has no owner. ConflictError: it has one."""
    if owned(folder):
        raise ConflictError(f"{folder.name} is still running", hint=f"Stop it first: weft cancel {folder.name}")


def why_away(folder: Path) -> str:
    """Return why the outputs of a run are not where it has left them, though nobody has deleted them; "" if they are
    there, were removed one by one, are another run's, or the run makes none.

    A disk that is not mounted leaves a folder that is missing, is another one, or has no outputs of any run.
    """
    try:
        description = read_description(folder)
    except (FileNotFoundError, NotFoundError, ConflictError):
        return ""
    base, place = description.get(ROOT), description.get(PLACE)
    if not isinstance(base, str) or not isinstance(place, list) or description.get(STORAGE):
        return ""
    outputs = os.path.join(base, *map(str, place))
    if is_copied(folder, description) or os.path.lexists(os.path.join(outputs, folder.name)):
        return ""
    if not os.path.isdir(base):
        return f"{base} is missing"
    if not is_first_root(description):
        return f"{base} is another folder than the one that the run began with"
    return "" if os.path.lexists(outputs) else f"{outputs} is missing"


def refuse_away(folder: Path) -> None:
    """Require that the outputs of a run can be removed with it. ConflictError: the disk with them is not there."""
    if why := why_away(folder):
        hint = f"Mount the disk with them again. If they are gone: weft delete --force {folder.name}"
        raise ConflictError(f"the outputs of {folder.name} are not in their place: {why}", hint=hint)


def delete_runs(
    root: StateRoot, folders: Iterable[Path], note: Callable[[str], None] = lambda _: None
) -> Iterator[str]:
    """Delete runs as `delete_run` does; yield the id of each deleted run.

    Rows that a full disk could not take are written again when later deletions have freed space.
    """
    again = []
    for folder in folders:
        try:
            delete_run(root, folder, note)
        except DiskFullError:
            again.append(folder)
        else:
            yield folder.name
    for folder in again:
        try:
            delete_run(root, folder, note)
        except DiskFullError as error:
            message = f"the files of {folder.name} are removed, but the removal cannot be recorded: {error.message}"
            hint = (
                f"Free space on this disk, such as with `weft cache gc --max-size 0`; then: weft delete {folder.name}"
            )
            raise DiskFullError(message, hint=hint) from None
        yield folder.name


def delete_run(root: StateRoot, folder: Path, note: Callable[[str], None] = lambda _: None) -> None:
    """Delete an ended run: its leftover processes, its rows, its outputs, and its folder.

    Results in the cache stay, pinned or not. So do outputs that belong to another run, of which this one is a copy:
    `note` reports them. ConflictError: the run is active, or an index is damaged. ForbiddenError: a file may not be
    removed; a second deletion continues. DiskFullError: the files are gone, but the disk has no room to record that.
    """
    sweep_trash(root.runs)
    try:
        with unowned(folder), counted_removal(root.path, folder):
            _see_indexes(root, folder.name, note)
            end_processes(folder)
            _remove_objects(folder, note)
            _remove_outputs(folder, note)
            try:
                _forget(root, folder.name)
            except DiskFullError:
                remove_folder(folder)
                _forget(root, folder.name)
            else:
                remove_folder(folder)
    except FileNotFoundError:  # removed by hand: only the indexes still have it
        _forget(root, folder.name)
    except OSError as error:
        raise os_error(f"{error.filename or folder} cannot be removed", error) from None


def _see_indexes(root: StateRoot, run: str, note: Callable[[str], None]) -> None:
    """Read the indexes, so that nothing is removed if that of the runs is damaged; that of the cache is made anew."""
    with (
        closing(root.catalog()) as catalog,
        closing(index_of(root.path)) as cache,
        suppress(NotFoundError),
    ):
        if damage := cache.set_aside_damage():
            note(damage)
        catalog.find(run)


def end_processes(folder: Path) -> list[str]:
    """End the leftover processes of the steps of a run, and of runs that they began; return the names of those found.

    The processes that a copied folder records belong to the original: only their records are removed.
    """
    records = sorted((folder / "processes").iterdir()) if (folder / "processes").is_dir() else []
    try:
        copied = bool(records) and is_copied(folder, read_description(folder))
    except (FileNotFoundError, NotFoundError, ConflictError):
        copied = True  # nothing says that it is not
    if copied:
        for record in records:
            record.unlink()
        return []
    inner = [name for one in list_inner_runs(folder) for name in end_processes(one.folder)]
    return [*(record.name for record in records if end_recorded(record)), *inner]


def _remove_objects(folder: Path, note: Callable[[str], None]) -> None:
    """Remove what a run has left at the URL of its storage; `note` tells if something stays.

    ConflictError: a driver of the run may live.
    """
    try:
        description = read_description(folder)
    except (FileNotFoundError, NotFoundError, ConflictError):
        return
    stored = description.get(STORAGE)
    if isinstance(stored, dict) and not is_copied(folder, description):
        from weft.store.run_log import read_owner, remove_run

        owner = None if stored.get("keep") else read_owner(folder).token
        try:
            remove_run(stored["url"], stored["key"], owner, RealClock().wall)
        except ConflictError:
            raise
        except WeftError as error:
            note(f"the objects of {folder.name} stay: {error.message}")
    for file in (followed_file(folder), followed_file(folder).with_suffix(".lock")):
        file.unlink(missing_ok=True)


def _forget(root: StateRoot, run: str) -> None:
    with closing(root.catalog()) as catalog, closing(index_of(root.path)) as cache:
        for forget in (catalog.remove if catalog.exists() else None, cache.forget_run):
            try:
                if forget is not None:
                    forget(run)
            except NotFoundError:
                pass
            except ConflictError as error:  # rows without a folder are not shown, and a later start removes them
                if obstacle(error) != BUSY:
                    raise


def _remove_outputs(folder: Path, note: Callable[[str], None]) -> None:
    """Remove the folder of the outputs of a run on the main file system."""
    try:
        description = read_description(folder)
    except (NotFoundError, ConflictError) as error:
        note(f"the outputs of {folder.name}, if any, stay: {error.message}")
        return
    base, place = description.get(ROOT), description.get(PLACE)
    if not isinstance(base, str) or not isinstance(place, list):
        return
    outputs = os.path.join(base, *map(str, place), folder.name)
    if not owns_root(folder, description):
        if os.path.lexists(outputs):
            note(f"{outputs} stays: it belongs to the run that {folder.name} is a copy of")
        return
    if why := why_no_outputs(Path(base), map(str, place)):
        hint = f"Put the folder back there, or remove the name to keep the outputs. Then: weft delete {folder.name}"
        raise ForbiddenError(why, hint=hint)
    with suppress(FileNotFoundError):
        unlink_last(Path(base, *map(str, place)), folder.name, str(description.get("name")))
        parent = make_folders(base, [str(name) for name in place], make=False)
        try:
            remove_at(folder.name, parent)
        finally:
            os.close(parent)
