"""The checks of `weft doctor`: whether the files of Weft are intact, and the next step if they are not."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from weft.model.errors import NotFoundError, WeftError
from weft.model.wording import counted
from weft.operators.call import why_not_mounted
from weft.runs.listing import list_runs
from weft.store.database import DAMAGED_END, WHAT_CAN_GO
from weft.store.entries import CACHE_NAME, CacheIndex
from weft.store.places import ENVIRONMENTS, OUTPUTS, STATE_NAME, why_no_outputs
from weft.store.schedules import SCHEDULES_NAME, Schedules
from weft.store.state import LEAST_ROOM, is_run, owned, read_description
from weft.worker import mounting

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.results import ResultCache
    from weft.store.state import StateRoot

_PATIENCE_S: Final = 30.0


class Finding(Struct, frozen=True):
    """The result of one check; `problem` is "" if all is well, `hint` is the next step.

    A finding with a hint and no problem is only for information.
    """

    what: str
    problem: str = ""
    hint: str = ""


def examine(root: StateRoot, cache: ResultCache, *, full: bool = False) -> Iterator[Finding]:
    """Check a state folder and its cache; with `full` every file of the cache is read again.

    Nothing changes, except that damaged results are removed from the cache, and damaged environments are forgotten.
    """
    yield _mounts()
    if not root.path.is_dir():
        yield Finding(f"the state folder {root.path}", "", "")
        return
    writable = os.access(root.path, os.W_OK | os.X_OK)
    yield Finding(
        f"the state folder {root.path}",
        "" if writable else "you may not write there",
        "" if writable else f"chmod u+rwx {root.path}",
    )
    yield _room(root.path)
    damage = root.catalog().database.damage().partition("\n")[0]
    yield Finding("the index of runs", damage, "Make it again from the folders of the runs: weft ls" if damage else "")
    damage = cache.index.database.damage().partition("\n")[0]
    file = root.path / CACHE_NAME
    hint = f"Move it away: mv {file} {file}{DAMAGED_END}. Weft makes it anew."
    yield Finding("the index of the cache", damage, hint if damage else "")
    schedules = Schedules(root.path / SCHEDULES_NAME)
    damage = schedules.database.damage()
    if schedules.database.exists():
        yield Finding(
            "the list of schedules",
            damage.partition("\n")[0],
            f"Move it away: mv {root.path / SCHEDULES_NAME} {SCHEDULES_NAME}.damaged. Then create them again."
            if damage
            else "",
        )
    schedules.close()
    if root.path.name == STATE_NAME and (why := why_no_outputs(root.path.parent, (OUTPUTS,))):
        hint = "Give the main file system of pipelines another folder: -f NAME=FOLDER, or [fs] in weft.toml"
        yield Finding("the folder for outputs", why, hint)
    if (root.path / ENVIRONMENTS).is_dir():
        yield _environments(root.path)
    yield _descriptions(root)
    try:
        runs, _ = list_runs(root, limit=None, state="interrupted")
        names = ", ".join(run.id for run in runs[:5]) + (", ..." if len(runs) > 5 else "")
        yield Finding("interrupted runs", names and f"not ended: {names}", names and f"weft resume {runs[0].id}")
    except WeftError as error:
        yield Finding("the runs", error.message, error.hint)
    try:
        yield from _results(cache.index, cache, full)
    except WeftError as error:
        yield Finding("kept results", error.message, error.hint)


_PROBE: Final = """
import runpy, sys
try:
    runpy.run_path(sys.argv[1])["enter"]((), (), ())
except OSError as error:
    print(error.errno)
"""


def _mounts() -> Finding:
    """Test whether a step can have its own view of the file system here."""
    argv = [sys.executable, "-I", "-c", _PROBE, mounting.__file__]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=_PATIENCE_S, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        answer = str(errno.EIO)
    if not answer:
        return Finding("steps can have mounts")
    hint = "Only steps with extra_fs, and commands that name a mount_path, need them."
    return Finding(f"steps cannot have mounts: {why_not_mounted(int(answer))}", "", hint)


def _room(folder: Path) -> Finding:
    """Check the free space of the disk for the files that a run writes besides its outputs."""
    free = shutil.disk_usage(folder).free
    if free >= LEAST_ROOM:
        return Finding("the disk of the state folder")
    return Finding("the disk of the state folder", f"it is full: {free >> 10} KiB are free", WHAT_CAN_GO)


def _environments(state: Path) -> Finding:
    """Check the environments of steps; those with missing files are forgotten."""
    from weft.operators.environments import examine  # most projects have none

    number, damaged = examine(state)
    shown = _some_of({name: f"{name}: {problem}" for name, problem in damaged.items()})
    hint = "They were forgotten; the next steps that need them make them anew." if damaged else ""
    return Finding(counted(number, "environment of steps", "environments of steps"), shown, hint)


def _some_of(broken: dict[str, str]) -> str:
    return "; ".join([*broken.values()][:3]) + ("; ..." if len(broken) > 3 else "")


def _descriptions(root: StateRoot) -> Finding:
    """Read the description of each run; no other command can show a run without one."""
    broken = {}
    for folder in sorted(root.runs.iterdir()) if root.runs.is_dir() else ():
        if folder.name.startswith(".") or not folder.is_dir() or not is_run(folder):
            continue
        try:
            read_description(folder)
        except FileNotFoundError:  # it was removed meanwhile
            continue
        except NotFoundError as error:
            if not owned(folder):  # else the run is being made
                broken[folder.name] = error.message
        except (WeftError, OSError) as error:
            broken[folder.name] = error.message if isinstance(error, WeftError) else f"{folder}: {error.strerror}"
    shown = _some_of(broken)
    hint = f"Such a run cannot be shown. Remove it: weft delete {next(iter(broken))}" if broken else ""
    return Finding("the descriptions of runs", shown, hint)


def _results(index: CacheIndex, cache: ResultCache, full: bool) -> Iterator[Finding]:
    broken: dict[str, str] = {}
    entries = index.entries()
    for entry in entries:
        if full:
            cache.distrust(entry)
        if problem := cache.find(entry.key).reason:
            broken[entry.key] = f"{entry.pipeline}/{entry.step}: {problem}"
    if broken:
        index.remove(broken)
    shown = _some_of(broken)
    kept = f"{len(entries):,} kept {'result' if len(entries) == 1 else 'results'}"
    yield Finding(kept, shown, "They were forgotten; the steps run again." if broken else "")
