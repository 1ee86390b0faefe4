"""The variables of the machine that the code of an execution names, and that were not set when it ran.

Code may have a default in place of such a variable: `${DATA:-/data/a}`, `os.environ.get("DATA", "/data/a")`. So its
result is valid while they are not set.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from weft.model.patterns import late_pattern
from weft.store.opened import UNSET, is_of_machine, is_of_session, is_of_weft, source_of

_LARGEST_BYTES: Final = 256 * 1024
"""A larger file is data, not code."""
_DATA: Final = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".xml", ".html", ".md", ".log")
"""The endings of files that name variables only in templates, such as `${DATA}`."""
_TEMPLATE: Final = late_pattern(r"\$\{(?:[\w.]+:)?([A-Za-z_]\w*)")
_NAMES: Final = (
    _TEMPLATE,
    late_pattern(r"\$\(?([A-Za-z_]\w*)"),
    late_pattern(r"""["']([A-Z_][A-Z0-9_]*)["']"""),
    late_pattern(r"""(?:getenv|environ(?:\.(?:get|pop|setdefault))?)\s*[\[(]\s*["'](\w+)["']"""),
    late_pattern(r"process\.env\.(\w+)"),
    late_pattern(r"\$?ENV\{['\"]?(\w+)"),
)
"""How code names a variable: in shells, as a text of capitals, and in calls of Python, C, R, JavaScript and Perl."""


def unset_leaf(
    texts: Iterable[str], paths: Iterable[str], environ: Mapping[str, str], declared: Collection[str]
) -> dict[str, str]:
    """Return the leaf of the variables that are not set in `environ`, and that some texts or files at paths name.

    Those `declared` have leaves of their own. Variables of machines and sessions do not count.
    """
    named: set[str] = set()
    for text in texts:
        named.update(_names_in(text, is_data=False))
    for path in {source_of(path) for path in paths}:
        with suppress(OSError):
            found = os.stat(path)
            if found.st_size <= _LARGEST_BYTES and not is_of_weft(path):
                named.update(_names_in_file(path, found.st_mtime_ns, found.st_size))
    named.difference_update(environ, declared)
    names = sorted(name for name in named if not (is_of_session(name) or is_of_machine(name)))
    return {UNSET: " ".join(names)} if names else {}


@lru_cache(maxsize=1024)
def _names_in_file(path: str, _changed: int, _size: int) -> frozenset[str]:
    """Return the variables that a file names; the items of a loop open the same ones. OSError: it cannot be read."""
    data = Path(path).read_bytes() if os.path.isfile(path) else b"\0"
    return frozenset() if b"\0" in data else _names_in(os.fsdecode(data), is_data=path.endswith(_DATA))


def _names_in(text: str, *, is_data: bool) -> frozenset[str]:
    patterns = (_TEMPLATE,) if is_data else _NAMES
    return frozenset(name for pattern in patterns for name in pattern.findall(text))
