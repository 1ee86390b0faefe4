"""Bind mounts of a command: the folders, mount points and copies that make its paths exist.

A mount path may be anywhere and need not exist. An existing path is covered by a bind mount. A missing path is not
created on the machine, because it would remain there: the nearest existing folder above it is *copied* in the mount
namespace of the command (see `weft.worker.mounting`). A copy shows the content of the folder and is read-only, so the
working folder of a command is never copied: the error asks the user to create the mount point. A mount point that is
missing inside a mounted folder is created there and remains, as with container runtimes.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

from msgspec import Struct

from weft.model.errors import TaskError
from weft.store.folders import make_folders

MOST_ENTRIES: Final = 4096
"""The largest number of entries of a copied folder: each entry is one mount."""
SHELL: Final = "sh"
"""The default program of a command."""
_LIBRARY: Final = (b"ld-", b"libc.so", b"libc-")
_looking = threading.Lock()
"""For the commands that begin together: the first alone looks for the files that they need."""


class BindMount(Struct, frozen=True):
    """A file or folder of this machine and the absolute path at which a command expects it.

    A command can run without an `optional` mount: another path to the same content is in its environment.
    """

    source: str
    target: str
    read_only: bool = False
    optional: bool = False


class MountNamespace(Struct, frozen=True):
    """The mounts that `weft.worker.mounting.enter` makes; `optional`: the command may start without them.

    Sources at or below the folders `held` are seen in the mount namespace of the process `holder`.
    """

    copies: tuple[str, ...]
    made: tuple[tuple[str, bool], ...]
    binds: tuple[tuple[str, str, bool], ...]
    optional: bool = False
    holder: int = 0
    held: tuple[str, ...] = ()

    def encoded(self) -> tuple[Any, ...]:
        """Return the lists with paths as bytes, the holder and its folders, for the guardian."""
        return (
            tuple(os.fsencode(folder) for folder in self.copies),
            tuple((os.fsencode(path), is_folder) for path, is_folder in self.made),
            tuple((os.fsencode(source), os.fsencode(target), only) for source, target, only in self.binds),
            self.holder,
            tuple(os.fsencode(folder) for folder in self.held),
        )


class MountPlan(Struct, frozen=True):
    """The mount namespace of a command, None if it needs none, and the optional mounts left out with the reasons.

    `points` are mount points to create first: the mounted folder, the missing path in it, and whether it is a folder.
    """

    view: MountNamespace | None
    left_out: tuple[str, ...] = ()
    points: tuple[tuple[str, str, bool], ...] = ()


def plan(mounts: Sequence[BindMount], cwd: str, name: str, program: str = SHELL) -> MountPlan:
    """Return the mounts of a command with working folder `cwd`.

    The first of two mounts at one path counts. A source at its own path needs no mount. `name` is the command in
    messages. TaskError: a source is missing, a mount path can neither be used nor created, or a mount would hide the
    working folder or the `program` of the command.
    """
    work = _Plan(cwd, [mount.source for mount in mounts], name, program)
    left_out = []
    needed = _by_target(mounts)
    for target, mount in needed.items():
        try:
            work.add(mount, target)
        except TaskError as error:
            if not mount.optional:
                raise
            left_out.append(f"{error.message.partition(': ')[2]}; {error.hint}" if error.hint else error.message)
    if not work.binds:
        return MountPlan(None, tuple(left_out))
    optional = all(needed[target].optional for _, target, _ in work.binds)
    copies = sorted(work.copies, key=lambda path: path.split("/"))
    view = MountNamespace(tuple(copies), tuple(work.made.items()), tuple(work.binds), optional)
    return MountPlan(view, tuple(left_out), tuple((*where, is_folder) for where, is_folder in work.points.items()))


def make_mount_points(points: Sequence[tuple[str, str, bool]], name: str) -> None:
    """Create the mount points of a plan inside mounted folders; links on the way are not followed.

    TaskError: one cannot be made.
    """
    for folder, path, is_folder in points:
        *above, last = PurePosixPath(path).parts
        try:
            inside = make_folders(folder, [*above, last] if is_folder else above)
            try:
                if not is_folder:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                    os.close(os.open(last, flags, 0o666, dir_fd=inside))
            finally:
                os.close(inside)
        except OSError as error:
            message = f"step {name} cannot start: the mount point {folder}/{path} cannot be made: {error.strerror}"
            raise TaskError(
                message, task=name, hint="Check your write permission there, and that no folder on the path is a link."
            ) from None


def impossible_mount(
    mounts: Sequence[BindMount], cwd: str, name: str, program: str = SHELL, *, first: bool = False
) -> TaskError | None:
    """Return the error of mounts that can never work, as far as it is known before earlier steps have run.

    Earlier steps may still create a missing source, unless the command is `first`. A mount that hides required files,
    or a file in the place of a folder, is an error at once. An optional mount is an error only inside another mount,
    because the mount paths then contradict each other.
    """
    work = _Plan(cwd, [mount.source for mount in mounts], name, program)
    for target, mount in _by_target(mounts).items():
        try:
            (work.add if first and os.path.lexists(mount.source) else work.look)(mount, target)
        except TaskError as error:
            if not mount.optional or work.is_inside(target):
                return error
    return None


def _by_target(mounts: Sequence[BindMount]) -> dict[str, BindMount]:
    """Return the mounts by target, outer targets first."""
    found: dict[str, BindMount] = {}
    for mount in mounts:
        found.setdefault(os.path.realpath(mount.target), mount)
    return {target: found[target] for target in sorted(found, key=lambda path: path.split("/"))}


def _places(program: str, folders: Sequence[str]) -> list[str]:
    return [program] if "/" in program else [os.path.join(folder, program) for folder in folders]


def _is_program(path: str) -> bool:
    # As `shutil.which`, whose module loads all formats of archives; each job with namespaces comes here.
    return os.path.isfile(path) and os.access(path, os.X_OK)


@lru_cache(maxsize=4)
def _needed(program: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files that a program, looked for in `folders`, needs to start: the program and the C library."""
    found = []
    path = next(filter(_is_program, _places(program, folders)), None)
    if path is not None:
        found += [os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)), os.path.realpath(path)]
    with suppress(OSError), open("/proc/self/maps", "rb") as file:
        lines = [line for line in file.read().split(b"\n") if b"/ld-" in line or b"/libc" in line]
        mapped = {b"/" + line.partition(b"/")[2] for line in lines}
        found += sorted(os.fsdecode(path) for path in mapped if os.path.basename(path).startswith(_LIBRARY))
    return tuple(found)


class _Plan:
    """The mounts planned so far; paths are as the command sees them, with all links followed."""

    def __init__(self, cwd: str, sources: Sequence[str], name: str, program: str) -> None:
        self.copies: set[str] = set()
        self.made: dict[str, bool] = {}
        self.points: dict[tuple[str, str], bool] = {}
        self.binds: list[tuple[str, str, bool]] = []
        self._mounted: list[tuple[str, str, bool]] = []  # also a source at its own path
        self._name = name
        self._cwd = os.path.realpath(cwd)
        with _looking:
            self._needed = _needed(program, tuple(os.get_exec_path()))
        own = (self._cwd, str(Path.home()), *sources)
        self._own = {path for path in map(os.path.realpath, own) if path != "/"}

    def add(self, mount: BindMount, target: str) -> None:
        """Plan one more mount; outer mounts come first."""
        source = os.path.realpath(mount.source)
        try:
            is_folder = stat.S_ISDIR(os.stat(source).st_mode)
        except OSError as error:
            hint = "Make it, or name another folder: -f NAME=FOLDER"
            message = f"nothing to mount at {mount.target}: {error.strerror}: {mount.source}"
            raise self._wrong(message, hint) from None
        there = self._behind(target)
        if there == source and not mount.read_only:
            self._mounted.append((source, target, False))
            return
        self.look(mount, target)
        if target not in self.made and not os.path.lexists(there):
            self._make(target, is_folder, mount)
        self.binds.append((source, target, mount.read_only))
        self._mounted.append(self.binds[-1])

    def look(self, mount: BindMount, target: str) -> None:
        """Check that a mount hides no required file and covers a path of its own kind."""
        source, there = os.path.realpath(mount.source), self._behind(target)
        if there == source:
            return
        change = "Choose another mount_path"
        if _holds(target, self._cwd):
            message = f"a mount at {mount.target} would hide the folder that it works in, {self._cwd}"
            raise self._wrong(message, f"{change}, or work elsewhere.")
        hidden = next((file for file in self._needed if _holds(target, file)), None)
        if hidden is not None and not os.path.exists(source + hidden[len(target) :]):
            message = f"a mount at {mount.target} would hide {hidden}, without which nothing can run"
            raise self._wrong(message, f"{change}.")
        if target not in self.made and os.path.lexists(there) and os.path.lexists(source):
            kinds = [("a file", "a folder")[os.path.isdir(path)] for path in (there, source)]
            if kinds[0] != kinds[1]:
                message = f"the mount path {mount.target} is {kinds[0]}, what goes there {kinds[1]}: {mount.source}"
                raise self._wrong(message, f"{change}.")

    def _make(self, target: str, is_folder: bool, mount: BindMount) -> None:
        """Plan the creation of a mount point and its missing parents."""
        missing = [target]
        above = os.path.dirname(target)
        while not self._is_made(above) and not os.path.lexists(self._behind(above)):
            missing.append(above)
            above = os.path.dirname(above)
        outer = self._outer(above)
        if outer is not None and not outer[2] and os.access(self._behind(above), os.W_OK):
            self.points[outer[0], target[len(outer[1]) + 1 :]] = is_folder
            return
        if not self._is_made(above) and above not in self.copies:
            why = self._not_copied(above)
            if why:
                message = f"there is no {mount.target} to mount at: {mount.source}"
                raise self._wrong(message, f"Make it ({above} {why}): mkdir -p {self._behind(target)}")
            self.copies.add(above)
        self.made |= dict.fromkeys(reversed(missing), True)
        self.made[target] = is_folder

    def is_inside(self, target: str) -> bool:
        """Whether a path lies in a planned mount."""
        return self._behind(target) != target

    def _is_made(self, path: str) -> bool:
        """Whether a folder is created for the command and not hidden by a mount."""
        return path in self.made and not self.is_inside(path)

    def _not_copied(self, folder: str) -> str:
        """Return the reason why a folder without a mount point must not be copied, or ""."""
        outer = self._outer(folder)
        if outer is not None:
            return "is mounted itself, read only" if outer[2] else "is mounted itself, and you may not write there"
        if any(_holds(own, folder) for own in self._own):
            return "lies where steps may write"
        if not os.path.isdir(folder):
            return "is no folder"
        if not os.access(folder, os.R_OK | os.X_OK):
            return "cannot be read"
        if folder != "/" and os.stat(folder).st_mode & stat.S_IWOTH:
            return "is one that everybody writes to"
        if len(os.listdir(folder)) > MOST_ENTRIES:
            return f"holds more than {MOST_ENTRIES:,} things"
        return ""

    def _behind(self, path: str) -> str:
        """Return the path on this machine behind a path of the command."""
        outer = self._outer(path)
        return path if outer is None else outer[0] + path[len(outer[1]) :]

    def _outer(self, path: str) -> tuple[str, str, bool] | None:
        """Return the nearest mount at or above a path: source, target, and whether it is read-only."""
        return next((one for one in reversed(self._mounted) if _holds(one[1], path)), None)

    def _wrong(self, message: str, hint: str) -> TaskError:
        return TaskError(f"step {self._name} cannot start: {message}", task=self._name, hint=hint)


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
