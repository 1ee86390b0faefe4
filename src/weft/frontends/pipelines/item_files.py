"""The files that the command of a looping step names by its item: inputs of the item's result in the cache."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct, field, json

from weft.frontends.pipelines.templates import LOOP_ARGUMENT
from weft.store.digests import LEFT_OUT
from weft.store.places import judged_path

ITEM_TEMPLATE: Final = f"{{{{{LOOP_ARGUMENT}}}}}"
_MOST_FOUND: Final = 500
_SYSTEM: Final = (
    "/bin/",
    "/sbin/",
    "/usr/",
    "/lib/",
    "/lib64/",
    "/etc/",
    "/dev/",
    "/proc/",
    "/sys/",
    "/run/",
    f"{sys.prefix}/",
)
"""Folders of the machine, which do not count."""


class ItemFiles(Struct, frozen=True):
    """The words of a command with the item in them, as parameter of a program: the task of an item finds its files.

    `words` has the folder in which each word is read, the word, and whether it may name a folder. `roots` are the
    folders of the project, `mounts` maps mount paths to places on this machine, `left_out` are places of artifacts.
    `outside`: files outside of the project count too.
    """

    words: Sequence[tuple[str, str, bool]]
    roots: Sequence[str]
    mounts: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    outside: bool = True

    def to_json(self) -> str:
        """Return the text for `from_json`, one for all tasks of a step."""
        return json.encode(self).decode()

    @staticmethod
    @lru_cache(maxsize=64)
    def from_json(text: str) -> ItemFiles:
        """Return the words of a text made by `to_json`."""
        return json.decode(text, type=ItemFiles)

    def of(self, item: str) -> list[str]:
        """Return the absolute paths of the files and folders that the words name with the text of an item."""
        found: dict[str, None] = {}
        for folder, word, may_be_folder in self.words:
            for text in dict.fromkeys((item, *item.split())):
                path = below(folder, on_this_machine(word.replace(ITEM_TEMPLATE, text), self.mounts))
                for one in _matches(path):
                    if os.path.isfile(one) or (may_be_folder and os.path.isdir(one)):
                        found[one] = None
        return [path for path in found if self._is_input(path)]

    def _is_input(self, path: str) -> bool:
        inside = path.startswith(tuple(f"{root}/" for root in self.roots))
        return (
            (inside or (self.outside and os.path.isfile(path) and counts_outside(path)))
            and not any(root.startswith(f"{path}/") for root in self.roots)
            and not os.path.exists(f"{path}/.git")
            and is_input(path, self.left_out)
        )


def is_input(path: str, left_out: Collection[str]) -> bool:
    """Whether a path lies in none of the places that are left out, such as those of artifacts."""
    return LEFT_OUT.isdisjoint(os.fsencode(judged_path(path)).split(b"/")) and not any(
        path == place or path.startswith(f"{place}/") for place in left_out
    )


def counts_outside(path: str) -> bool:
    """Whether a file outside of the project is data that a step may read, and not a part of the system."""
    return not path.startswith(_SYSTEM)


def below(folder: str, path: str) -> str:
    """Return the absolute path of a path that is read in a folder."""
    return os.path.normpath(os.path.join(folder, path))


def on_this_machine(path: str, mounts: Mapping[str, str]) -> str:
    """Return the place on this machine of a mount path, or of a path below one; any other path as it is."""
    for at, source in mounts.items():
        if f"{path}/".startswith(f"{at}/"):
            return source + path[len(at) :]
    return path


def _matches(path: str) -> Sequence[str]:
    if "\0" in path:
        return ()
    return [path] if os.path.exists(path) or not glob.has_magic(path) else glob.glob(path)[:_MOST_FOUND]
