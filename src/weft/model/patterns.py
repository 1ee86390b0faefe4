"""Regular expressions that are compiled at their first use.

Compiling one takes 0.02 to 0.4 ms, and a command loads fifty of which it uses ten. Those of other libraries take longer
still: one of PyYAML, which only its slow reader uses, takes 7 ms.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, AnyStr, cast

if TYPE_CHECKING:
    from collections.abc import Iterator


class _LatePattern:
    """Has the methods of a compiled expression; each is kept once it was used."""

    def __init__(self, text: Any, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def late_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return an expression whose methods compile it; re.error comes from the first call."""
    return cast("re.Pattern[AnyStr]", _LatePattern(text, flags))


@contextmanager
def late_patterns() -> Iterator[None]:
    """Have the modules that are loaded meanwhile compile their expressions at the first use.

    For libraries that use their expressions by methods alone, in a process that has no other thread yet.
    """
    compile_now = re.compile
    re.compile = cast("Any", late_pattern)
    try:
        yield
    finally:
        re.compile = compile_now
