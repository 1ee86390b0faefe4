"""The files that a command names and that are known only when its task is looked up in the cache: inputs of its result.

The command of a looping step names some by its item, and earlier steps of the run make others.
"""

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
_MOST_IN_FOLDER: Final = 10_000
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


class NamedFiles(Struct, frozen=True):
    """The words of a command that name such files, as parameter of a program: each task finds its files.

    `words` has the folder in which each word is read, the word, perhaps with the item in it, and whether it may name a
    folder. `roots` are the folders of the project, `mounts` maps mount paths to places on this machine, `left_out` are
    places that do not count, or count already. `outside`: files outside of the project count too.
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
    def from_json(text: str) -> NamedFiles:
        """Return the words of a text made by `to_json`."""
        return json.decode(text, type=NamedFiles)

    def of(self, item: str) -> list[str]:
        """Return the absolute paths of the files and folders there that the words name with the text of an item."""
        found: dict[str, None] = {}
        texts = tuple(dict.fromkeys((item, *item.split())))
        for folder, word, may_be_folder in self.words:
            for text in texts if ITEM_TEMPLATE in word else ("",):
                path = below(folder, on_this_machine(word.replace(ITEM_TEMPLATE, text), self.mounts))
                for one in _matches(path):
                    if os.path.isfile(one) or (may_be_folder and os.path.isdir(one) and not is_large(one)):
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


def is_large(folder: str) -> bool:
    """Whether a folder has more files and folders than a look at each step may cost."""
    count = 0
    for _, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > _MOST_IN_FOLDER:
            return True
    return False


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
    return [path] if not glob.has_magic(path) or os.path.exists(path) else glob.glob(path)[:_MOST_FOUND]
