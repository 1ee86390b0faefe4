"""The files that the commands of a step write, in the order of their text: which of them are inputs all the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct, field

_DIAGNOSTICS: Final = re.compile(r"2>>")
_LOG: Final = re.compile(r"(?i)(?:.*[._-])?logs?(?:\.txt)?")
"""Names of logs, which nobody expects to grow when a step does not run."""


class WrittenFiles(Struct):
    """Absolute paths that redirections and programs write, as far as the text of the commands tells.

    `replaced` have new content before any command reads them, so that they are no inputs. `changed` were read before,
    and `appended` have been added to without. `written` are all of them.
    """

    replaced: set[str] = field(default_factory=set)
    changed: dict[str, None] = field(default_factory=dict)
    appended: dict[str, None] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    """Folders that are made if they are not there."""
    tested: set[str] = field(default_factory=set)
    """Paths whose existence decides, perhaps, whether they are written: what is there may be read."""

    def replace(self, path: str, was_read: Callable[[str], bool]) -> None:
        """Note that a command writes a file anew."""
        self.written.add(path)
        if self.is_new(path):
            return
        if was_read(path):
            self.changed[path] = None
        elif path not in self.tested and path not in self.appended:
            self.replaced.add(path)

    def append(self, path: str, was_read: Callable[[str], bool], redirect: str = ">>") -> None:
        """Note that a command adds to a file, by a redirection such as `2>>`."""
        self.written.add(path)
        if self.is_new(path):
            return
        if was_read(path):
            self.changed[path] = None
        elif not (_DIAGNOSTICS.fullmatch(redirect) or _LOG.fullmatch(path.rpartition("/")[2])):
            self.appended[path] = None

    def remove(self, path: str, was_read: Callable[[str], bool]) -> None:
        """Note that a command removes a file, or a folder with all that is in it."""
        self.written.add(path)
        if not was_read(path) and path not in self.appended:
            self.replaced.add(path)

    def is_new(self, path: str) -> bool:
        """Whether a path, or a folder above it, has been written anew or removed."""
        return path in self.replaced or any(path.startswith(f"{one}/") for one in self.replaced)
