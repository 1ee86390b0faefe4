"""Regular expressions that are compiled at their first use.

Compiling one takes 0.02 to 0.4 ms, and a command loads fifty of which it uses ten.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


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
