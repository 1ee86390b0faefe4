"""The files of sweeps in the folder `sweeps` of the state folder: one for each, written once, and locks of owners."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from weft.model.errors import ConflictError, NotFoundError, UsageError, WeftError
from weft.runs.requests import RunRequest  # noqa: TC001 - fields of records are read at run time
from weft.store.folders import OwnerLock, safe_open
from weft.store.labels import SWEEP
from weft.store.places import StatePaths
from weft.store.state import os_error, safe_exclusive

if TYPE_CHECKING:
    from weft.store.state import StateRoot

FOLDER: Final = "sweeps"
_ID: Final = re.compile(r"sweep-([0-9]{6,9})\.json")
_OWNER: Final = "owner"
"""The name of the file that says who owns a sweep."""
_SHOWN: Final = 10
"""The number of sweeps that a message names."""


class SweepPlan(Struct, frozen=True, kw_only=True):
    """A sweep as its file has it: the request without parameters, and the parameters of each point.

    `varied` are the names of the parameters with several values, `flags` the settings of the command line for its runs.
    `digest` is the SHA-256 of the file of the pipeline in hexadecimal digits, "" if it is not known. In the file of the
    sweep the paths of the project are relative to the state folder.
    """

    id: str = ""
    request: RunRequest
    points: Sequence[Mapping[str, str]]
    varied: Sequence[str]
    seed: int = 0
    metric: str = ""
    maximize: bool = False
    at_a_time: int = 0
    stop_when: str = ""
    halve: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""


def save_plan(root: StateRoot, plan: SweepPlan) -> SweepPlan:
    """Write a sweep to a file of its own; return it with its id. ForbiddenError, DiskFullError: not possible."""
    root.prepare()
    folder = root.path / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        number = max((int(match[1]) for name in os.listdir(folder) if (match := _ID.fullmatch(name))), default=0)
        while True:
            number += 1
            plan = replace(plan, id=f"sweep-{number:06d}")
            with suppress(FileExistsError), safe_exclusive(folder / f"{plan.id}.json") as file:
                file.write(msgspec.json.encode(_with_paths(plan, StatePaths(root.path).keep)))
                return plan
    except OSError as error:
        raise os_error(f"the sweep cannot be recorded in {folder}", error) from None


def read_plan(root: StateRoot, name: str) -> SweepPlan:
    """Return a sweep by its id, or the newest by @last. NotFoundError: there is none. ConflictError: it is damaged."""
    folder = root.path / FOLDER
    known: list[str] = []
    with suppress(FileNotFoundError):
        known = sorted(file.removesuffix(".json") for file in os.listdir(folder) if _ID.fullmatch(file))
    name = known[-1] if name == "@last" and known else name
    if name not in known:
        last = known[-_SHOWN:]
        which = "There are" if len(last) == len(known) else f"The last {len(last)} of {len(known)} are"
        listed = f"{which}: {', '.join(last)}" if known else "Begin one: weft sweep FILE -p NAME=VALUE,VALUE"
        raise NotFoundError(f"there is no sweep {name[:60]!r} in {root.path}", hint=listed)
    with safe_open(folder, f"{name}.json", mode="rb") as file:
        try:
            plan = msgspec.json.decode(file.read(), type=SweepPlan)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise UsageError(f"{folder / name}.json is damaged: {error}", hint="Begin a new sweep.") from None
    return _with_paths(plan, StatePaths(root.path).resolve)


def _with_paths(plan: SweepPlan, change: Callable[[str], str]) -> SweepPlan:
    """Return a sweep with its paths in another form."""
    request = plan.request
    pairs = [pair.partition("=") for pair in request.fs]
    fs = [f"{name}{equals}{change(folder)}" for name, equals, folder in pairs]
    flags = {name: change(value) for name, value in plan.flags.items()}
    return replace(plan, request=replace(request, file=change(request.file), fs=fs), flags=flags)


def own_sweep(root: StateRoot, sweep: str) -> OwnerLock:
    """Become the owner of a sweep until its release, or the end of this process.

    ConflictError: another process owns it. ForbiddenError, DiskFullError: its folder cannot be made.
    """
    folder = root.path / FOLDER / sweep
    try:
        lock = OwnerLock(folder)
    except ConflictError:
        by = ""
        with suppress(WeftError, OSError), safe_open(folder, _OWNER, mode="rb") as file:
            by = f" by {file.read(100).decode(errors='replace')}"
        hint = f"See its runs: weft ls --tag {SWEEP}={sweep}"
        raise ConflictError(f"{sweep} is still run{by}", hint=hint) from None
    except OSError as error:
        raise os_error(f"the folder of the sweep, {folder}, cannot be made", error) from None
    try:
        (folder / _OWNER).unlink(missing_ok=True)  # of an earlier owner
        with safe_exclusive(folder / _OWNER) as file:
            file.write(f"process {os.getpid()} of {os.uname().nodename}".encode())
    except OSError as error:
        lock.release()
        raise os_error(f"the owner of the sweep cannot be recorded in {folder}", error) from None
    return lock


def digest_of_file(path: str) -> str:
    """Return the SHA-256 of a file in hexadecimal digits, "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
