"""The names in a folder that end alike: what an execution that listed the folder seems to have looked for."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final

from weft.model.patterns import late_pattern

ALIKE: Final = "e"
"""The first letter of a digest of the names in a folder with some endings, which follow it: `e.csv .json HASH`.

A folder is one of these names if it has a file whose path ends so: `e/sales.csv HASH`.
"""
TICK_S: Final = 0.05
"""By how much the clock of a file system, which moves in ticks, may be behind that of programs."""
LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/node_modules/", "/__pycache__/")
CODE: Final = (".py", ".pyc", ".so")
_NAME: Final = late_pattern(r"\.?[\w-]+(?:\.[\w-]+)*")
"""A name of a file, or another word, as a program writes it."""


class ScriptTexts:
    """The scripts of the project that an execution read."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)

    @cached_property
    def _text(self) -> str:
        texts = []
        for path in self._paths:
            with suppress(OSError):
                texts.append(os.fsdecode(Path(path).read_bytes()))
        return "\n".join(texts)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(_NAME.findall(self._text))

    def name(self, path: str) -> bool:
        """Whether one of them has the name of a file in its text, and not as a part of a longer word."""
        name = os.path.basename(path)
        return name in (self._words if _NAME.fullmatch(name) else self._text)


def endings_in(folder: str, found: Iterable[str], gone: Collection[str], scripts: ScriptTexts) -> list[str]:
    """Return the endings of the files that an execution found in a folder that it listed, and that no script names.

    Those `gone` it has removed or renamed. Programs list a folder for other reasons, too, such as Python where it looks
    for modules.
    """
    endings = set()
    for path in found:
        ending = os.path.splitext(path)[1]
        is_candidate = os.path.dirname(path) == folder and ending not in endings
        was_there = is_candidate and " " not in ending and (path in gone or os.path.isfile(path))
        if was_there and not scripts.name(path):
            endings.add(ending)
    return sorted(endings)


def endings_below(folder: str, found: Iterable[str], gone: Collection[str], scripts: ScriptTexts) -> list[str]:
    """Return how paths end of files that an execution found in folders which it found in a folder that it listed.

    No script names these folders. What a script does name below them stands as it is, all else as a pattern: of
    `store_a/sales.csv` it is `/sales.csv` for a script with that name, else `/*.csv`.
    """
    endings = set()
    for path in found:
        top, *parts = path[len(folder) :].strip("/").split("/")
        is_hidden = any(part[:1] == "." for part in (top, *parts))
        if not parts or is_hidden or path.endswith(CODE) or scripts.name(top):
            continue
        *between, last = parts
        pattern = [part if scripts.name(part) else "*" for part in between]
        pattern.append(last if scripts.name(last) else "*" + os.path.splitext(last)[1])
        ending = "/" + "/".join(pattern)
        if " " not in ending and ending not in endings and (path in gone or os.path.isfile(path)):
            endings.add(ending)
    return sorted(endings)


def late_folders(folder: str, endings: Iterable[str], started: float, known: Iterable[str]) -> set[str]:
    """Return the folders with such files in a folder that others may have changed while an execution ran.

    The changes of those on the way to `known` paths are its own, or it has seen what is there.
    """
    late: set[str] = set()
    below = tuple(ending for ending in endings if ending[:1] == "/")
    if not below:
        return late
    seen = {path[len(folder) :].strip("/").partition("/")[0] for path in known if path.startswith(f"{folder}/")}
    for name in set(os.listdir(folder)).difference(seen):
        path = os.path.join(folder, name)
        with suppress(OSError):
            if os.stat(path).st_ctime >= started - TICK_S and _has_alike(path, below):
                late.add(name)
    return late


def _has_alike(path: str, endings: Iterable[str]) -> bool:
    """Whether a path is a folder with a file whose path ends as one of those below a folder; see `endings_below`."""
    if f"/{os.path.basename(path)}/" in LIBRARIES:
        return False
    return any(next(glob.iglob(glob.escape(path) + ending), "") for ending in endings)


def late_names(folder: str, found: os.stat_result, started: float, written: Collection[str]) -> set[str]:
    """Return the names that others may have added to a folder while an execution ran, and that it may not have seen."""
    late: set[str] = set()
    if found.st_mtime >= started - TICK_S:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with suppress(OSError):
                if path not in written and os.lstat(path).st_ctime >= started - TICK_S:
                    late.add(name)
    return late


def digest_of_alike(folder: str, endings: Sequence[str], left_out: Collection[str] = ()) -> str:
    """Return the digest of the names in a folder with some endings, or with such files below them.

    OSError: the folder is gone.
    """
    below = tuple(ending for ending in endings if ending[:1] == "/")
    names = [
        os.fsencode(name)
        for name in sorted(os.listdir(folder))
        if name[:1] != "."
        and name not in left_out
        and (os.path.splitext(name)[1] in endings or _has_alike(os.path.join(folder, name), below))
    ]
    digest = hashlib.sha256(b"\0".join(names)).hexdigest()
    return f"{ALIKE}{' '.join(endings)} {digest}"


def endings_of(digest: str) -> list[str]:
    """Return the endings of the paths that a digest of `opened_leaves` is of; none: it is of something else."""
    return digest[1:].split(" ")[:-1] if digest[:1] == ALIKE else []
