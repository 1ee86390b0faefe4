"""Quantities of Kubernetes: numbers with a suffix, such as `500m`, `2`, `1.5Gi` or `1e3`.

Source: `apimachinery/pkg/api/resource/quantity.go`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from weft.model.patterns import late_pattern

_QUANTITY: Final = late_pattern(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
_LETTERS: Final = 40
_FACTORS: Final[dict[str, Decimal]] = {
    "": Decimal(1),
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    **{
        suffix: Decimal(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
}
_MEANT: Final = late_pattern(r"([0-9.]+)\s*([kKmMgGtT])i?[bB]?")
QUANTITY_HINT: Final = "write CPUs as 2 or 500m, sizes as 512Mi, 4Gi or 1G"


def quantity(text: str) -> float:
    """Return the number that a quantity stands for: cores, bytes or a count. ValueError: it is no quantity."""
    found = _QUANTITY.fullmatch(text) if len(text) <= _LETTERS else None
    if found is None:
        raise ValueError("is not a quantity")
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        return float(number.scaleb(int(suffix[1:])))
    return float(number * _FACTORS[suffix])


def quantity_hint(text: str) -> str:
    """Return the hint for a text that is no quantity: the one that is probably meant, or the forms that there are."""
    near = _MEANT.fullmatch(text[:_LETTERS])
    if near is None:
        return QUANTITY_HINT
    return f"Did you mean {near[1]}{near[2].upper()}i? ({QUANTITY_HINT})"


def shown_quantity(value: float) -> str:
    """Return a quantity with the largest binary suffix that keeps it whole."""
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        if value >= _FACTORS[suffix] and value % float(_FACTORS[suffix]) == 0:
            return f"{value / float(_FACTORS[suffix]):.0f}{suffix}"
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"
