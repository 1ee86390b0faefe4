"""Numbers of bytes as users write them."""

from __future__ import annotations

import re
from typing import Final

from weft.model.patterns import late_pattern

_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12} | {
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
    "p": 10**15,
    "pi": 2**50,
}
_SIZE: Final = late_pattern(r"(\d+(?:\.\d+)?)\s*([kmgtp]i?)?b?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Parse a number of bytes: `512`, `64 MB`, `1.5GiB`. ValueError: any other text."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()]) if match[2] or "." in match[1] else int(match[1])
