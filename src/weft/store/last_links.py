"""The links to the outputs of the last succeeded run of each pipeline, beside the outputs.

::

    .pipeline/
    ├── last/words                  -> ../run-000002/.last
    └── run-000002/
        ├── .last/fetch/pages       -> ../../words/fetch-0-.../pages
        └── words/fetch-0-.../pages

All links are relative, so a copy of the folder leads to its own outputs. One rename changes all outputs of a pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft.store.folders import make_folders
from weft.store.places import LAST

if TYPE_CHECKING:
    from pathlib import Path

_LINKS: Final = ".last"


def link_last(outputs: Path, run_id: str, name: str, made: Mapping[str, str]) -> None:
    """Let `last/NAME` in a folder of outputs lead to those that a run has `made`: paths by `step.artifact`.

    OSError: not possible.
    """
    own = outputs / run_id
    for title, path in made.items():
        step, _, artifact = title.rpartition(".")
        if not os.path.lexists(path) or not path.startswith(f"{own}/"):
            continue
        folder = make_folders(outputs, [run_id, _LINKS, step])
        try:
            _link(os.path.relpath(path, own / _LINKS / step), artifact, folder)
        finally:
            os.close(folder)
    folder = make_folders(outputs, [run_id, _LINKS])
    os.close(folder)
    folder = make_folders(outputs, [LAST])
    try:
        _link(f"../{run_id}/{_LINKS}", name, folder)
    finally:
        os.close(folder)


def unlink_last(outputs: Path, run_id: str, names: Iterable[str]) -> None:
    """Remove the links that lead to a run that is removed. OSError: not possible."""
    with suppress(FileNotFoundError):
        folder = make_folders(outputs, [LAST], make=False)
        try:
            for name in names:
                with suppress(FileNotFoundError, OSError):
                    if os.readlink(name, dir_fd=folder) == f"../{run_id}/{_LINKS}":
                        os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)


def _link(to: str, name: str, folder: int) -> None:
    """Make a link, or replace one at once; a file or folder of that name stays, which is an OSError."""
    draft = f".{name}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)
    os.symlink(to, draft, dir_fd=folder)
    try:
        with suppress(FileNotFoundError):
            os.readlink(name, dir_fd=folder)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        raise
