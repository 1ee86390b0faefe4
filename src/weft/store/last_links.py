"""The links to the outputs of the last succeeded run of each pipeline, beside the outputs.

::

    .pipeline/
    ├── last/
    │   ├── words                               -> .words.run-000002
    │   └── .words.run-000002/fetch/pages       -> ../../../run-000002/words/fetch-0-.../pages
    └── run-000002/words/fetch-0-.../pages

All links are relative, so a copy of the folder leads to its own outputs. One rename changes all outputs of a pipeline.
The links of a run go when it is deleted, and not before, because somebody may be reading through them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.store.folders import make_folders, remove_at
from weft.store.places import LAST

if TYPE_CHECKING:
    from pathlib import Path


def link_last(outputs: Path, run_id: str, name: str, made: Mapping[str, str]) -> None:
    """Let `last/NAME` in a folder of outputs lead to those that a run has `made`: paths by `step.artifact`.

    OSError: not possible.
    """
    own = _links_of(name, run_id)
    for title, path in made.items():
        step, _, artifact = title.rpartition(".")
        if not os.path.lexists(path) or not path.startswith(f"{outputs / run_id}/"):
            continue
        folder = make_folders(outputs, [LAST, own, step])
        try:
            _link(os.path.relpath(path, outputs / LAST / own / step), artifact, folder)
        finally:
            os.close(folder)
    os.close(make_folders(outputs, [LAST, own]))
    folder = make_folders(outputs, [LAST])
    try:
        _link(own, name, folder)
    finally:
        os.close(folder)


def unlink_last(outputs: Path, run_id: str, name: str) -> None:
    """Remove the links to the outputs of a run of a pipeline. OSError: not possible."""
    own = _links_of(name, run_id)
    if "/" in own:  # the name is from a file that others may have written
        return
    try:
        folder = make_folders(outputs, [LAST], make=False)
    except FileNotFoundError:
        return
    try:
        with suppress(OSError):  # there is none, or it is no link
            if os.readlink(name, dir_fd=folder) == own:
                os.unlink(name, dir_fd=folder)
        with suppress(FileNotFoundError):
            remove_at(own, folder)
    finally:
        os.close(folder)


def leads_to(outputs: Path, run_id: str, name: str) -> bool:
    """Whether `last/NAME` in a folder of outputs leads to those of a run."""
    try:
        return os.readlink(outputs / LAST / name) == _links_of(name, run_id)
    except (OSError, ValueError):  # there is none, or it is no link
        return False


def _links_of(name: str, run_id: str) -> str:
    return f".{name}.{run_id}"


def _link(to: str, name: str, folder: int) -> None:
    """Make a link, or replace one at once; a file or folder of that name stays, which is an OSError."""
    draft = f".{name}.{os.getpid()}.new"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)
    os.symlink(to, draft, dir_fd=folder)
    try:
        with suppress(FileNotFoundError):
            os.readlink(name, dir_fd=folder)  # an OSError for what is no link
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        raise
