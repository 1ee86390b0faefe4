"""Problems of a file or a folder: collected while it is read, reported together."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.model.errors import DocumentError

MAX_PROBLEMS = 50
"""The most problems that are reported; reading stops at this number."""

_PLAIN_KEY = late_pattern(r"[A-Za-z0-9_-]{1,60}")
_SHOWN = 60


class FilePosition(Struct, frozen=True, order=True, gc=False):
    """A position in a file; both numbers count from 1. `file` is empty for the file that is being read.

    For what stands in no file, `file` says what it is, and both numbers are 0.
    """

    line: int
    column: int
    file: str = ""


class FileKind(Struct, frozen=True):
    """What messages say about one kind of file: its error, its name, and the least that such a file needs.

    `yaml_1_1`: `yes`, `on`, `017` and `1_000` are truth values and numbers, as in Kubernetes; else YAML 1.2 holds.
    """

    error: type[DocumentError]
    name: str
    least: str
    yaml_1_1: bool = False


class Problem(Struct, frozen=True):
    """One mistake: its position, the path of its field, the fault, and the right form."""

    mark: FilePosition
    path: str
    message: str
    hint: str = ""


class Problems:
    """The problems of one file, or of the files of one folder, in the order of discovery.

    `file` is "" for a text that is no file of the user: its places are not told.
    """

    def __init__(self, file: str, kind: FileKind) -> None:
        self.file = file
        self.kind = kind
        self.found: list[Problem] = []
        self._known: set[Problem] = set()

    def add(self, mark: FilePosition, path: str, message: str, hint: str = "") -> None:
        """Add a problem once. DocumentError: there are too many to be of use."""
        problem = Problem(mark, path, message, hint)
        if problem in self._known:
            return
        self._known.add(problem)
        self.found.append(problem)
        if len(self.found) >= MAX_PROBLEMS:
            self._report("; reading stopped there")

    def raise_if_any(self) -> None:
        """Raise one error with all problems in file order, at the position of the first; return if none."""
        if self.found:
            self._report("")

    def _report(self, ending: str) -> NoReturn:
        first, *others = sorted(self.found, key=_place)
        message, hint = first.message, first.hint
        if others:
            lines = [message, *_indented(hint)]
            for problem in others:
                file = problem.mark.file or self.file
                place = f":{problem.mark.line}:{problem.mark.column}" if problem.mark.line else ""
                where = f"{file}{place}: " if file else ""
                at = f"{problem.path}: " if problem.path else ""
                lines += [f"{where}{at}{problem.message}", *_indented(problem.hint)]
            message = "\n".join(lines)
            hint = f"{len(self.found)} mistakes in {self.file or f'the {self.kind.name}'}{ending}"
        raise self.kind.error(
            message,
            file=first.mark.file or self.file,
            line=first.mark.line,
            column=first.mark.column,
            path=first.path,
            hint=hint,
        )


def _place(problem: Problem) -> tuple[str, FilePosition]:
    return problem.mark.file, problem.mark


def _indented(hint: str) -> list[str]:
    return [f"    {hint}"] if hint else []


def join(path: str, key: str) -> str:
    """Return the path of a field with one more key; an unusual key is quoted, so that a path is always one line."""
    return f"{path}.{_part(key)}" if path else _part(key)


@lru_cache(1024)
def _part(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else show(key)


def show(text: str) -> str:
    """Quote user text for a message: one line, no control characters, at most 60 characters."""
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return "`" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut) + "`"


def choices(known: Iterable[str], limit: int = 20) -> str:
    """Return the known words as a list for a hint, cut after `limit` of them; "none" if there are none."""
    words = list(known)
    listed = ", ".join(words[:limit]) or "none"
    return f"{listed}, and {len(words) - limit} more" if len(words) > limit else listed
