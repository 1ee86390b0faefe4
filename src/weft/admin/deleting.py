"""The removal of ended runs: their outputs, their rows in the indexes, and their folders.

Outputs are removed first, so that a full disk has room for the rest. The folder is last and is moved away at once, so
that a half-deleted run of a killed process is still listed, and a second deletion completes the first. Results in the
cache do not belong to the run and stay.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from weft.model.errors import ConflictError, DiskFullError, NotFoundError
from weft.store.entries import CacheIndex, cache_place
from weft.store.folders import make_folders, remove_at, remove_folder, sweep_trash, unowned
from weft.store.state import PLACE, os_error, owned, read_description
from weft.worker.group import end_recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from weft.store.state import StateRoot


def refuse_live(folder: Path) -> None:
    """Require that a run has no owner. ConflictError: it has one."""
    if owned(folder):
        raise ConflictError(f"{folder.name} is still running", hint=f"Stop it first: weft cancel {folder.name}")


def delete_runs(root: StateRoot, folders: Iterable[Path]) -> Iterator[str]:
    """Delete runs as `delete_run` does; yield the id of each deleted run.

    Rows that a full disk could not take are written again when later deletions have freed space.
    """
    again = []
    for folder in folders:
        try:
            delete_run(root, folder)
        except DiskFullError:
            again.append(folder)
        else:
            yield folder.name
    for folder in again:
        try:
            delete_run(root, folder)
        except DiskFullError as error:
            message = f"the files of {folder.name} are removed, but the removal cannot be recorded: {error.message}"
            hint = (
                f"Free space on this disk, such as with `weft cache gc --max-size 0`; then: weft delete {folder.name}"
            )
            raise DiskFullError(message, hint=hint) from None
        yield folder.name


def delete_run(root: StateRoot, folder: Path) -> None:
    """Delete an ended run: its leftover processes, its rows, its outputs, and its folder.

    Results in the cache stay, pinned or not. ConflictError: the run is active, or an index is damaged. ForbiddenError:
    a file may not be removed; a second deletion continues. DiskFullError: the files are gone, but the disk has no room
    to record that.
    """
    sweep_trash(root.runs)
    try:
        with unowned(folder):
            _see_indexes(root, folder.name)
            end_processes(folder)
            _remove_outputs(folder)
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


def _see_indexes(root: StateRoot, run: str) -> None:
    """Read the indexes, so that nothing is removed if one is damaged."""
    with (
        closing(root.catalog()) as catalog,
        closing(CacheIndex(cache_place(root.path))) as cache,
        suppress(NotFoundError),
    ):
        cache.claims_of(run)
        catalog.find(run)


def end_processes(folder: Path) -> list[str]:
    """End the leftover processes of the steps of a run; return the names of those that were found."""
    records = folder / "processes"
    return [record.name for record in sorted(records.iterdir()) if end_recorded(record)] if records.is_dir() else []


def _forget(root: StateRoot, run: str) -> None:
    with closing(root.catalog()) as catalog, closing(CacheIndex(cache_place(root.path))) as cache:
        if catalog.exists():
            with suppress(NotFoundError):
                catalog.remove(run)
        cache.forget_run(run)


def _remove_outputs(folder: Path) -> None:
    """Remove the folder of the outputs of a run on the main file system."""
    try:
        description = read_description(folder)
    except (
        FileNotFoundError,
        NotFoundError,
        ConflictError,
    ):  # the run died before it began, or its description is unreadable
        return
    base, place = description.get("root"), description.get(PLACE)
    if not isinstance(base, str) or not isinstance(place, list):
        return
    with suppress(FileNotFoundError):
        parent = make_folders(base, [str(name) for name in place], make=False)
        try:
            remove_at(folder.name, parent)
        finally:
            os.close(parent)
