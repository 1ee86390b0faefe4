"""Runs that nobody needs any more: their outputs, their rows in the indexes, and their folders go.

Outputs go first, so that a full disk has room for the rest. The folder goes last and is moved away at once, so that a
run which was half deleted when the process was killed is still listed, and deleting it again ends the work. Results in
the cache are not the run's: they stay.
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
    """See that nobody owns a run. ConflictError: somebody does."""
    if owned(folder):
        raise ConflictError(f"{folder.name} still goes on", hint=f"Stop it first: weft cancel {folder.name}")


def delete_runs(root: StateRoot, folders: Iterable[Path]) -> Iterator[str]:
    """Delete runs as `delete_run` does; yield the id of each that is gone.

    What a full disk has no room to write down is tried again once the others have made some.
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
            said = f"the files of {folder.name} are gone, and that cannot be written down: {error.message}"
            hint = f"Make room on this disk, such as with `weft cache gc --max-size 0`; then: weft delete {folder.name}"
            raise DiskFullError(said, hint=hint) from None
        yield folder.name


def delete_run(root: StateRoot, folder: Path) -> None:
    """Delete a run that does not go on: what it left running, its rows, its outputs, and its folder.

    Results of the cache stay, pinned or not. ConflictError: the run goes on, or an index is damaged. ForbiddenError:
    something may not be removed; deleting again goes on from there. DiskFullError: its files are gone, and the disk has
    no room to write that down.
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
    except FileNotFoundError:  # removed by hand: only the indexes still know it
        _forget(root, folder.name)
    except OSError as error:
        raise os_error(f"{error.filename or folder} cannot be removed", error) from None


def _see_indexes(root: StateRoot, run: str) -> None:
    """Read what will be changed in the indexes, so that nothing is removed where one is damaged."""
    with (
        closing(root.catalog()) as catalog,
        closing(CacheIndex(cache_place(root.path))) as cache,
        suppress(NotFoundError),
    ):
        cache.claims_of(run)
        catalog.find(run)


def end_processes(folder: Path) -> list[str]:
    """End the processes that the steps of a run have left; return the names of those that were there."""
    records = folder / "processes"
    return [record.name for record in sorted(records.iterdir()) if end_recorded(record)] if records.is_dir() else []


def _forget(root: StateRoot, run: str) -> None:
    with closing(root.catalog()) as catalog, closing(CacheIndex(cache_place(root.path))) as cache:
        if catalog.exists():
            with suppress(NotFoundError):
                catalog.remove(run)
        cache.forget_run(run)


def _remove_outputs(folder: Path) -> None:
    """Remove the folder that a run made for its outputs on the main file system."""
    try:
        said = read_description(folder)
    except (FileNotFoundError, NotFoundError, ConflictError):  # it died before it began, or nobody can tell
        return
    base, place = said.get("root"), said.get(PLACE)
    if not isinstance(base, str) or not isinstance(place, list):
        return
    with suppress(FileNotFoundError):
        parent = make_folders(base, [str(name) for name in place], make=False)
        try:
            remove_at(folder.name, parent)
        finally:
            os.close(parent)
