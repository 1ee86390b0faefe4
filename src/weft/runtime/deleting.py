"""Runs that nobody needs any more: their outputs, their rows in the indexes, and their folders go.

The folder goes last and is moved away at once, so that a run which was half deleted when the process was killed is
still listed, and deleting it again ends the work. Results in the cache are not the run's: they stay.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.model.errors import ConflictError, NotFoundError
from weft.runtime.state import PLACE, os_error, owned, read_description
from weft.store.entries import CACHE_NAME, CacheIndex
from weft.store.folders import make_folders, remove_at, remove_folder, sweep_trash, unowned
from weft.worker.group import end_recorded

if TYPE_CHECKING:
    from pathlib import Path

    from weft.runtime.state import StateRoot


def refuse_live(folder: Path) -> None:
    """See that nobody owns a run. ConflictError: somebody does."""
    if owned(folder):
        raise ConflictError(f"{folder.name} still goes on", hint=f"Stop it first: weft cancel {folder.name}")


def delete_run(root: StateRoot, folder: Path) -> None:
    """Delete a run that does not go on: what it left running, its rows, its outputs, and its folder.

    Results of the cache stay, pinned or not. ConflictError: the run goes on, or an index is damaged. ForbiddenError:
    something may not be removed; deleting again goes on from there.
    """
    sweep_trash(root.runs)
    try:
        with unowned(folder):
            _end_processes(folder)
            _forget(root, folder.name)
            _remove_outputs(folder)
            remove_folder(folder)
    except FileNotFoundError:  # removed by hand: only the indexes still know it
        _forget(root, folder.name)
    except OSError as error:
        raise os_error(f"{error.filename or folder} cannot be removed", error) from None


def _end_processes(folder: Path) -> None:
    records = folder / "processes"
    for record in sorted(records.iterdir()) if records.is_dir() else ():
        end_recorded(record)


def _forget(root: StateRoot, run: str) -> None:
    catalog = root.catalog()
    try:
        if catalog.exists():
            with suppress(NotFoundError):
                catalog.remove(run)
    finally:
        catalog.close()
    cache = CacheIndex(root.path / CACHE_NAME)
    try:
        cache.forget_run(run)
    finally:
        cache.close()


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
