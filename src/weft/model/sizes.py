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


_WITHOUT_UNIT: Final = 1 << 20
"""A smaller number in a text without a unit is taken for one whose unit was forgotten."""


def unit_missing(value: object) -> str:
    """Return what to write in place of a text such as `512`, whose unit was forgotten; empty for any other value."""
    if not isinstance(value, str) or not value.strip().isdecimal() or not 0 < int(value.strip()[:9]) < _WITHOUT_UNIT:
        return ""
    return f"A number without a unit counts bytes: write {value.strip()}MiB, or {value.strip()}B."


def parse_size(text: str) -> int:
    """Parse a number of bytes: `512`, `64 MB`, `1.5GiB`. ValueError: any other text."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()]) if match[2] or "." in match[1] else int(match[1])
