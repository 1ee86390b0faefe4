"""Paths that configuration files name, and variables that files of a shell set; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weft.model.patterns import late_pattern

SUFFIXES: Final = (".cfg", ".conf", ".env", ".ini", ".json", ".properties", ".toml", ".yaml", ".yml")
_TOKEN: Final = late_pattern(r""""((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|(?<!\S)[#;][^\n]*|([^\s"',=:\[\]{}()<>]+)""")
"""A text, with or without quotes, or a comment."""
_OUTPUT: Final = late_pattern(
    r"(?i)(?:\w+[-_.])*(?:cache|checkpoints?|ckpts?|dest|destination|logs?|out|outputs?|results?|saved?|target|temp|tmp|work)"
    r"(?:[-_]?(?:dir|directory|file|folder|path|to))?"
)
"""Names of settings that hold a file or folder to write."""
_MOST_PATHS: Final = 10_000
_SOURCED: Final = late_pattern(
    r"""(?:^|[;&|({\n]|\bthen|\bdo)\s*(?:\.|source)\s+["']?([\w./+@%-]+)["']?"""
    r"""|\bexport\s+\$\(\s*(?:cat|grep\b[^()|]*?)\s+([\w./+@%-]+)\s*[|)]"""
)
"""A file whose assignments the text of a shell takes over: `. FILE` or `export $(cat FILE)`."""


def config_paths(text: str) -> list[str]:
    """Return the values of a file of JSON, YAML, TOML, INI or assignments that may be paths and are no outputs."""
    found: dict[str, None] = {}
    key = ""
    for match in _TOKEN.finditer(text):
        value = match[1] or match[2] or match[3]
        if value and text[match.end() : match.end() + 20].lstrip()[:1] in ("=", ":"):
            key = value
        elif value and _may_be_path(value) and not _OUTPUT.fullmatch(key):
            found[value] = None
            if len(found) >= _MOST_PATHS:
                break
    return list(found)


def _may_be_path(text: str) -> bool:
    return ("." in text or "/" in text) and any(map(str.isalpha, text)) and len(text) <= 200 and "\0" not in text


def sourced(text: str) -> Iterator[str]:
    """Yield the files whose assignments the text of a shell takes over, as it names them."""
    for first, second in _SOURCED.findall(text):
        yield first or second
