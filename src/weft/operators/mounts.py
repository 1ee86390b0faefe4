"""What must be done so that a command finds folders at the paths where it looks for them.

A mount path may be anywhere and need not exist. Where it does, the folder is bound over it. Where it does not, it
cannot be made on the machine itself, where it would stay: instead the nearest folder above it is *copied* for the
command, as `weft.worker.mounting` tells. A copy shows what is there and takes nothing new, so a folder in which the
command may work is never copied: a person is then asked to make the mount point. One that is missing in what is mounted
itself is made there, where it stays, as container runtimes do it.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct

from weft.model.errors import TaskError

MOST_ENTRIES: Final = 4096
"""A folder with more things in it is not copied: each of them is a mount."""
SHELL: Final = "sh"
"""The program of a command, unless another is named."""
_LIBRARY: Final = ("ld-", "libc.so", "libc-")


class Mount(Struct, frozen=True):
    """A file or folder of this machine, and the absolute path at which a command looks for it.

    Without an `optional` one a command can do: what it needs of it, it is told by another path as well.
    """

    source: str
    target: str
    read_only: bool = False
    optional: bool = False


class View(NamedTuple):
    """What `weft.worker.mounting.enter` is to do; `optional` says that the command may be started without."""

    copies: tuple[str, ...]
    made: tuple[tuple[str, bool], ...]
    binds: tuple[tuple[str, str, bool], ...]
    optional: bool = False

    def encoded(self) -> tuple[Any, ...]:
        """Return the three lists with paths as bytes, as they travel to the guardian."""
        return (
            tuple(os.fsencode(folder) for folder in self.copies),
            tuple((os.fsencode(path), is_folder) for path, is_folder in self.made),
            tuple((os.fsencode(source), os.fsencode(target), only) for source, target, only in self.binds),
        )


class Planned(NamedTuple):
    """The view that a command needs, None if it needs none, and which optional mounts it does without, and why.

    `points` are to be made first: folders that are mounted, with the mount points that are missing in them, and whether
    each is a folder.
    """

    view: View | None
    left_out: tuple[str, ...] = ()
    points: tuple[tuple[str, str, bool], ...] = ()


def plan(mounts: Sequence[Mount], cwd: str, name: str, program: str = SHELL) -> Planned:
    """Return the view in which a command, which works in folder `cwd`, finds these mounts.

    Of two at the same path the first counts. One whose source is there already, under its very path, needs nothing.
    TaskError: a source is missing, a mount path can neither be used nor made, or what is mounted would hide the folder
    or the `program` of the command; `name` is what messages call the command.
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
        return Planned(None, tuple(left_out))
    optional = all(needed[target].optional for _, target, _ in work.binds)
    copies = sorted(work.copies, key=lambda path: path.split("/"))
    view = View(tuple(copies), tuple(work.made.items()), tuple(work.binds), optional)
    return Planned(view, tuple(left_out), tuple((*where, is_folder) for where, is_folder in work.points.items()))


def hopeless(
    mounts: Sequence[Mount], cwd: str, name: str, program: str = SHELL, *, first: bool = False
) -> TaskError | None:
    """Return why a command cannot have these mounts, as far as that is known before those above it have run.

    What is missing may be made until then, unless the command is `first`: nothing runs before it; that a mount hides
    what must be seen, or is a file in the place of a folder, stays so. That one is left out which the command can do
    without is no reason, unless it would lie in another mount: then the mount paths do not go together.
    """
    work = _Plan(cwd, [mount.source for mount in mounts], name, program)
    for target, mount in _by_target(mounts).items():
        try:
            (work.add if first and os.path.lexists(mount.source) else work.look)(mount, target)
        except TaskError as error:
            if not mount.optional or work.is_inside(target):
                return error
    return None


def _by_target(mounts: Sequence[Mount]) -> dict[str, Mount]:
    """Return the mounts by where they will lie, those above first."""
    found: dict[str, Mount] = {}
    for mount in mounts:
        found.setdefault(os.path.realpath(mount.target), mount)
    return {target: found[target] for target in sorted(found, key=lambda path: path.split("/"))}


@lru_cache(maxsize=4)
def _needed(program: str) -> tuple[str, ...]:
    """Return the files without which a program cannot start: its own, and the C library that is loaded for all."""
    found = []
    path = shutil.which(program)
    if path is not None:
        found += [os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)), os.path.realpath(path)]
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        mapped = {line.rstrip("\n").partition("/")[2] for line in file}
        found += sorted(f"/{path}" for path in mapped if path.rpartition("/")[2].startswith(_LIBRARY))
    return tuple(found)


class _Plan:
    """What is planned so far; paths are as the command will see them, with all links on the way followed."""

    def __init__(self, cwd: str, sources: Sequence[str], name: str, program: str) -> None:
        self.copies: set[str] = set()
        self.made: dict[str, bool] = {}
        self.points: dict[tuple[str, str], bool] = {}
        self.binds: list[tuple[str, str, bool]] = []
        self._mounted: list[tuple[str, str, bool]] = []  # what is there already under its own path included
        self._name = name
        self._cwd = os.path.realpath(cwd)
        self._needed = _needed(program)
        own = (self._cwd, str(Path.home()), *sources)
        self._own = {path for path in map(os.path.realpath, own) if path != "/"}

    def add(self, mount: Mount, target: str) -> None:
        """Plan one more mount; none above it may follow."""
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

    def look(self, mount: Mount, target: str) -> None:
        """See that a mount hides nothing that must be seen, and is of the kind of what it hides."""
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

    def _make(self, target: str, is_folder: bool, mount: Mount) -> None:
        """Plan to make a mount point, and what is missing above it."""
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
        """Whether a path lies in what is mounted already."""
        return self._behind(target) != target

    def _is_made(self, path: str) -> bool:
        """Whether a folder is made for the command, and what is mounted does not hide that."""
        return path in self.made and not self.is_inside(path)

    def _not_copied(self, folder: str) -> str:
        """Return why a folder that lacks a mount point must not be copied, or ""."""
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
        """Return where on this machine that lies which the command will see at a path."""
        outer = self._outer(path)
        return path if outer is None else outer[0] + path[len(outer[1]) :]

    def _outer(self, path: str) -> tuple[str, str, bool] | None:
        """Return what is mounted at a path or above it, the nearest: source, target, and whether it is read only."""
        return next((one for one in reversed(self._mounted) if _holds(one[1], path)), None)

    def _wrong(self, message: str, hint: str) -> TaskError:
        return TaskError(f"step {self._name} cannot start: {message}", task=self._name, hint=hint)


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
