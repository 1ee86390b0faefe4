"""Templates `{{name}}` and `{{step.name}}`: find them, and replace them by values.

There is no expression, filter or escape, so there is nothing to inject: one regular expression finds the names, and
each field of a step has its own short list of valid names (`check.py` checks them, `resolve.py` has the values). Other
text in braces stays as it is, and inserted text is never searched again.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator

ParameterValue: TypeAlias = "str | int | float | tuple[ParameterValue, ...]"

RUN_ID = "PF_RUN_ID"
STEP_NAME = "PF_STEP_NAME"
USER_NAME = "PF_USER_NAME"
LOOP_ARGUMENT = "PF_LOOP_ARGUMENT"
SYSTEM_VARIABLES = (RUN_ID, STEP_NAME, USER_NAME, LOOP_ARGUMENT)
"""The names that every step may use without a declaration; they win over parameters of the same name."""

PARENT = "PF_PARENT"
"""The name of the enclosing dag in a dotted template."""

_BLANKS = r"[ \t\r\n\f]*"
_TEMPLATE = late_pattern(r"\{\{" + _BLANKS + r"(?:([A-Za-z0-9_-]*)\.)?([A-Za-z0-9_]+)" + _BLANKS + r"\}\}")


class Template(Struct, frozen=True):
    """One template: `step` is empty for a bare name; `text` is its text in the file."""

    step: str
    name: str
    text: str


def find(text: str) -> Iterator[Template]:
    """Yield the templates of `text` in order."""
    return (_template(match) for match in _TEMPLATE.finditer(text))


def whole(text: str) -> Template | None:
    """Return the template that is the whole text; None if there is any other text."""
    match = _TEMPLATE.fullmatch(text)
    return None if match is None else _template(match)


def fill(text: str, value_of: Callable[[Template], ParameterValue]) -> str:
    """Replace every template by the text of its value."""
    return _TEMPLATE.sub(lambda match: as_text(value_of(_template(match))), text)


def pieces(text: str) -> Iterator[str | Template]:
    """Yield the texts between the templates of `text`, and the templates, in order; no empty texts."""
    at = 0
    for match in _TEMPLATE.finditer(text):
        if match.start() > at:
            yield text[at : match.start()]
        yield _template(match)
        at = match.end()
    if at < len(text):
        yield text[at:]


def as_text(value: ParameterValue) -> str:
    """Return a value as commands get it: numbers without exponent, lists as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _without_exponent(value)
    return json.dumps(value, ensure_ascii=False)


def go_text(value: float) -> str:
    """Return a number in the format `%v` of Go for a float64: `1e+06`, `1e-05`, `0.1`."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    from decimal import Decimal

    number = Decimal(repr(float(value))).normalize()
    sign, digits, exponent = number.as_tuple()
    power = len(digits) + int(exponent) - 1
    if value and not -4 <= power < 6:
        first, others = str(digits[0]), "".join(map(str, digits[1:]))
        return f"{'-' if sign else ''}{first}{'.' if others else ''}{others}e{power:+03}"
    return f"{number:f}"


def env_number(value: float) -> str:
    """Return a number given directly under `env`: at most 8 decimals, no trailing zeros."""
    return str(value) if isinstance(value, int) else _trimmed(f"{value:.8f}")


def _without_exponent(value: float) -> str:
    from decimal import Decimal

    return _trimmed(f"{Decimal(repr(value)):f}")


def _trimmed(digits: str) -> str:
    text = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return "0" if text == "-0" else text


def _template(match: re.Match[str]) -> Template:
    return Template(match[1] or "", match[2], match[0])
