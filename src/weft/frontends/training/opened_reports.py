"""What the containers of replicas open, for the step of a pipeline whose result depends on it.

Each start of a container has a file in the folder of the run, which is empty until the container has ended and told
what it opened. So a start whose end nobody saw, such as one that was killed with its run, is known to be missing.
"""

from __future__ import annotations

import json
import os
from math import inf
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.model.records import as_dict
from weft.operators.call import CommandResult, CommandSpec, run_guarded
from weft.store.folders import remove_folder, safe_open
from weft.store.opened import OpenedFiles
from weft.store.places import judged_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from weft.operators.call import StopCommand

FOLDER: Final = "opened"
"""The folder of a run with a file for each start of a container."""
SPREAD: Final = "its replicas run at the machines of a cluster"
_SYSTEM: Final = ("/bin/", "/etc/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/nix/", "/sbin/", "/usr/")
"""Folders whose files are no inputs of a result, wherever a container sees them."""


class OpenedReports:
    """Runs the containers of a run so that each leaves a report of what it opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def run(
        self,
        spec: CommandSpec,
        *,
        on_started: Callable[[int, str], None] | None = None,
        on_cancel: Callable[[StopCommand], object] | None = None,
    ) -> CommandResult:
        """Run a command as `run_guarded` does; that of a container engine tells nothing."""
        name = f"{os.urandom(8).hex()}.json"
        self._folder.mkdir(exist_ok=True)
        with safe_open(self._folder, name, mode="wb") as file:
            began = os.fstat(file.fileno()).st_mtime
        traced = replace(spec, traced=not spec.prefix)
        result = run_guarded(traced, on_started=on_started, on_cancel=on_cancel)
        if result.opened is not None:
            with safe_open(self._folder, name, mode="wb") as file:
                file.write(json.dumps({"began": began, "opened": as_dict(result.opened)}).encode())
        return result


def opened_in(folder: Path) -> tuple[OpenedFiles | None, float]:
    """Return what all containers of a run opened, None if that of one is not known, and when the first began.

    The time is in seconds since 1970, by the clock of the file system.
    """
    began = inf
    found: dict[str, set[str]] = {name: set() for name in OpenedFiles.__struct_fields__ if name != "looked"}
    names = sorted(os.listdir(folder / FOLDER)) if (folder / FOLDER).is_dir() else []
    for name in names:
        with safe_open(folder / FOLDER, name) as file:
            text = file.read()
        if not text:
            return None, began
        report = json.loads(text)
        began = min(began, report["began"])
        for kind, paths in report["opened"].items():
            if kind in found:  # replicas do not tell what they only look at
                found[kind].update(paths)
    told: dict[str, Any] = {kind: tuple(sorted(paths)) for kind, paths in found.items()}
    return (OpenedFiles(**told) if names else None), began


def forget_opened(folder: Path) -> None:
    """Remove what is known of a run so far: nothing of its earlier containers is a part of what follows."""
    remove_folder(folder / FOLDER)


def untold(places: Iterable[str], root: str, base: str) -> str:
    """Return one of some paths whose files are no inputs of a result of the folder `root`; "" without one.

    `base` is the folder in which replicas start: below it all files are told.
    """
    if base != root and f"{root}/".startswith(_SYSTEM):
        return root
    for path in map(os.path.normpath, places):
        inside = f"{path}/".startswith(f"{root}/")
        judged = judged_path(f"{path[len(root) :] if inside else path}/")
        if "/." in judged or (not inside and judged.startswith(_SYSTEM)):
            return path
    return ""
