"""The values that a text for a shell gives its variables, as far as they stand there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from weft.model.patterns import late_pattern

VARIABLE: Final = late_pattern(r"(?<!\\)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*|[1-9](?=:?-))(?::?[-=]([^{}]*))?\})")
"""A variable, perhaps with its default; an argument only with one."""
_SET: Final = late_pattern(r"([A-Za-z_]\w*)(?:\+|:)?=|\b(?:for|read|unset)\s+(?:-\w+\s+)*([A-Za-z_]\w*)")
_ONCE: Final = late_pattern(r"""(?:^|[\s;&|({])([A-Za-z_]\w*)=("[^"$`\\]*"|'[^']*'|[\w./:,+@%-]+)(?=[\s;&|)]|$)""")
"""An assignment of a text that stands there."""
_DEFAULTED: Final = late_pattern(
    r"""(?:^|[\s;&|({])([A-Za-z_]\w*)=(?P<quote>"?)\$\{(\w+):?[-=](['"]?)([\w./:,+@%-]+)\4\}(?P=quote)(?=[\s;&|)]|$)"""
    r"""|\$\{([A-Za-z_]\w*):?=(['"]?)([\w./:,+@%-]+)\7\}"""
)
"""An assignment of a variable, or of the default that stands there: `F=${F:-a.csv}`, `${F:=a.csv}`."""


def assigned(text: str) -> list[str]:
    """Return the variables that a text sets, as often as it does."""
    return [name for pair in _SET.findall(text) for name in pair if name]


def values_in(text: str, filled: str, outer: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the variables in a text: those that it sets once, and the outer ones that it does not set.

    `filled` is the text with the arguments of its script.
    """
    own = assigned(text)
    known = {name: value for name, value in outer.items() if name not in own}
    given = (*_ONCE.findall(text), *_ONCE.findall(filled))
    known |= {name: value.strip("\"'") for name, value in given if own.count(name) == 1}
    for name, _, source, _, default, itself, _, otherwise in _DEFAULTED.findall(filled):
        if own.count(name or itself) == 1:
            known[name or itself] = outer.get(source or itself, default or otherwise)
    return known
