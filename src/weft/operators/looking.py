"""Which commands look at files without opening them, by the words in their texts.

A traced command tells what it looks at (`stat`, `access`) only if a word of its text or of its scripts asks for that:
each program looks at hundreds of files, such as Python for modules, and each of these calls waits for the guardian.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    import re

NOTHING: Final = 0
EXISTENCE: Final = 1
STATES: Final = 2
"""What counts of a file that a command only looks at: nothing, whether it is there, or its size and time of change."""

_STATE_WORDS: Final = (
    *("mtime", "getsize", "st_size", "getatime", "getctime", "st_atime", "st_ctime", "scandir", "filecmp", "statSync"),
    *("file.info", "file.size", "-newer", " -ctime", " -atime", " -mmin", " -cmin", " -amin", " -size", " -empty"),
    *("-nt ", "-ot ", "-ef ", "rsync", "--update"),
)
_STATE_PATTERNS: Final = {
    "stat": late_pattern(r"stat(?:\(|(?<!\wstat)\s+-)"),
    "ls -": late_pattern(r"ls(?<!\wls) -\w*[lst]"),
    "du ": late_pattern(r"du(?<!\wdu) +[-\w./$\"']"),
    "cp -": late_pattern(r"cp(?<!\wcp) -\w*u"),
    "[ ": late_pattern(r"\[ [^\n\]]{0,200}?(?<=\s)-[sN]\s"),
    "test ": late_pattern(r"test(?<!\wtest) [^\n\]]{0,200}?(?<=\s)-[sN]\s"),
}
_EXISTENCE_WORDS: Final = (
    *("exists", "is_file", "is_dir", "is_symlink", "is_mount", "isfile", "isdir", "islink", "ismount", "samefile"),
    *("os.access", "accessSync"),
)
_EXISTENCE_PATTERNS: Final = {
    "[ ": late_pattern(r"\[ [^\n\]]{0,200}?(?<=\s)-[abcdefghkprtuwxGLOS]\s"),
    "test ": late_pattern(r"test(?<!\wtest) [^\n\]]{0,200}?(?<=\s)-[abcdefghkprtuwxGLOS]\s"),
    "-": late_pattern(r"-(?:(?<=[(!&|]-)|(?<=[(!&|]\s-))[defrwxz]\s+[$\"']"),
}
"""The words of such looks in Python, shells and their programs, Perl, R and JavaScript.

Each pattern begins with letters that it needs, which are found much faster than a choice of beginnings.
"""
_BUILDER: Final = late_pattern(r"(?:make|ninja)(?=[\s\"';&|)]|$)")
_BEFORE_COMMAND: Final = late_pattern(
    r"""(?:^|[\n;&|("'`]|\b(?:then|do|else|exec|time|env)\s)[ \t]*(?:g|c)?$""",
)
"""A program that compares times, and what stands before it where it is run, and no word of a comment."""
_LONGEST_BEFORE: Final = 40
_CODE: Final = frozenset(
    {".awk", ".bash", ".bat", ".jl", ".js", ".ksh", ".lua", ".mjs", ".mk", ".php", ".pl", ".pm", ".py", ".r", ".rb"}
    | {".sh", ".tcl", ".ts", ".zsh"}
)
_MOST_BYTES: Final = 1 << 20
_MOST_FILES: Final = 1000


def looks_in(texts: Iterable[str]) -> int:
    """Return what counts of the files that texts of programs only look at."""
    found = NOTHING
    for text in texts:
        if _has(text, _STATE_WORDS, _STATE_PATTERNS) or _builds(text):
            return STATES
        if not found and _has(text, _EXISTENCE_WORDS, _EXISTENCE_PATTERNS):
            found = EXISTENCE
    return found


def _has(text: str, words: Iterable[str], patterns: Mapping[str, re.Pattern[str]]) -> bool:
    if any(word in text for word in words):
        return True
    return any(first in text and pattern.search(text) is not None for first, pattern in patterns.items())


def _builds(text: str) -> bool:
    return any(
        _BEFORE_COMMAND.search(text[max(0, found.start() - _LONGEST_BEFORE) : found.start()])
        for found in _BUILDER.finditer(text)
    )


def code_in(paths: Iterable[str]) -> Iterator[str]:
    """Yield the texts of the programs among some files, and below some folders as far as these have few files."""
    for path in paths:
        if not os.path.isdir(path):
            yield from _text(path)
            continue
        left = _MOST_FILES
        for folder, below, names in os.walk(path):
            below[:] = [name for name in below if name[:1] != "."]
            for name in names[:left]:
                yield from _text(os.path.join(folder, name))
            left -= len(names)
            if left <= 0:
                break


def _text(path: str) -> Iterator[str]:
    """Yield the text of a file if that is a program."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix and suffix not in _CODE:
        return
    with suppress(OSError), open(path, "rb") as file:
        if suffix or file.read(2) == b"#!":
            yield file.read(_MOST_BYTES).decode(errors="replace")
