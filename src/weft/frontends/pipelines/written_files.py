"""The files that the commands of a step write, in the order of their text: which of them are inputs all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from weft.frontends.pipelines.shell_programs import APPENDING, REMOVERS, TESTS, name_of
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from weft.frontends.pipelines.shell_text import ShellCommand, ShellWord

_DIAGNOSTICS: Final = late_pattern(r"2>>")
_LOG: Final = late_pattern(r"(?i)(?:.*[._-])?logs?(?:\.txt)?")
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

    def note(
        self,
        command: ShellCommand,
        program: Sequence[ShellWord],
        place: Callable[[str], str],
        was_read: Callable[[str], bool],
    ) -> None:
        """Note the files that the redirections of a command, and the program in it, write.

        `place` returns the absolute path of a word, `was_read` is whether a command has read a path before.
        """
        for word, redirect in command.made:
            if word.text and ">>" in redirect:
                self.append(place(word.text), was_read, redirect)
            elif word.text:
                self.replace(place(word.text), was_read)
        name = name_of(program[0].text or "") if program else ""
        paths = [place(word.text) for word in program[1:] if word.text and word.text[0] != "-"]
        if name in TESTS:
            self.tested.update(paths)
        elif name in REMOVERS:
            for path in paths:
                self.remove(path, was_read)
        elif name == "tee":
            write = self.append if any(word.text in APPENDING for word in program) else self.replace
            for path in paths:
                write(path, was_read)

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
