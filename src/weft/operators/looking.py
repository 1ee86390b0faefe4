"""Which commands look at files without opening them, by the words in their texts.

A traced command tells what it looks at (`stat`, `access`) only if a word of its text or of its scripts asks for that:
each program looks at hundreds of files, such as Python for modules, and each of these calls waits for the guardian.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from weft.model.patterns import late_pattern

NOTHING: Final = 0
EXISTENCE: Final = 1
STATES: Final = 2
"""What counts of a file that a command only looks at: nothing, whether it is there, or its size and time of change."""

_ASKS_FOR_STATES: Final = late_pattern(
    r"""
    get[amc]time|getsize|st_size|st_[amc]time|\b[lf]?stat(?:Sync)?\(|\bstat\s+-|\bscandir\b|\bfilecmp\b
    |\bfile\.(?:info|size|mtime)\b|\bmtime(?:Ms)?\b
    |(?:\[|\btest)\s[^\n\]]*?(?:-(?:nt|ot|ef)|(?<=\s)-[sN])\s
    |\s-(?:newer|[amc]time|[amc]min|size|empty)|\bdu\s|\bls\s+-\w*[lst]|\brsync\b|\bcp\s+-\w*u|--update\b
    |(?:^|[\n;&|("'`]|\b(?:then|do|else|exec|time|env)\s)[ \t]*(?:make|gmake|ninja|cmake)(?=[\s"';&|)]|$)
    """,
    re.VERBOSE,
)
_ASKS_FOR_EXISTENCE: Final = late_pattern(
    r"""
    exists|\bis_?(?:file|dir|link|symlink|mount|fifo|socket)\b|\bsamefile\b|\baccess(?:Sync)?\(
    |(?:\[|\btest)\s[^\n\]]*?(?<=\s)-[abcdefghkprtuwxGLOS]\s
    |[(!&|]\s*-[defrwxz]\s+[$"']
    """,
    re.VERBOSE,
)
"""The words of such looks in Python, shells and their programs, Perl, R and JavaScript."""
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
        if _ASKS_FOR_STATES.search(text):
            return STATES
        if not found and _ASKS_FOR_EXISTENCE.search(text):
            found = EXISTENCE
    return found


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
