"""The texts of scripts, as far as they are read: their beginnings, and with their own folders in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft.frontends.pipelines.named_files import below
from weft.frontends.pipelines.shell_functions import EXPANDABLE, Argument
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from weft.frontends.pipelines.shell_text import ShellWord

_OWN_PATH: Final = r"""\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})"""
_OWN_FOLDER: Final = late_pattern(
    rf"""\$\(\s*dirname\s+(?:--\s+)?(?:"{_OWN_PATH}"|{_OWN_PATH})\s*\)|\$\{{(?:0|BASH_SOURCE)%/\*\}}"""
)
"""The folder of a shell script, as the script writes it."""
_ENTERED: Final = late_pattern(
    r"""\$\(\s*cd\s+(?:--\s+)?"?([^"$`()&;]+?)"?\s*(?:>\s*/dev/null\s*)?(?:&&|;)\s*pwd(?:\s+-P)?\s*\)"""
)
"""The absolute path of a folder, as a shell script finds it."""
_MOST_BYTES: Final = 1 << 20


def placed(text: str, path: str) -> str:
    """Return the text of a shell script with its own folder."""
    folder = os.path.dirname(path)
    if not EXPANDABLE.fullmatch(folder):
        return text
    return _ENTERED.sub(lambda found: below(folder, found[1]), _OWN_FOLDER.sub(lambda _: folder, text))


def text_of(path: str) -> str:
    """Return the text of a file, or its beginning; "" for one that cannot be read."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace")
    return ""


def beginning(path: str) -> bytes:
    """Return the line after `#!` of a file, empty without one."""
    with suppress(OSError), open(path, "rb") as file:
        first = file.readline(200)
        return first[2:].strip() if first.startswith(b"#!") else b""
    return b""


def arguments_of(script: ShellWord, words: Sequence[ShellWord]) -> list[Argument]:
    """Return the arguments of a script; `words` are the command."""
    return [word.text for word in words[words.index(script) + 1 :]] if script in words else []
