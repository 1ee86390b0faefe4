"""Texts without secrets: the passwords of URLs in messages, and what logs mask of the values of secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from weft.model.patterns import late_pattern

_MASK: Final = "***"
_LEAST: Final = 4
"""The least letters of a text that is masked: shorter ones, such as `1`, stand in logs by chance."""
_USER: Final = late_pattern(r"(\b[A-Za-z][\w+.-]*://[^\s:/@]*):(?!PASSWORD@)\S*@")
"""A URL up to the name of its user, and its password up to the last @: people forget to write %40 for one.

PASSWORD stands for one in the examples of messages.
"""
_QUERY: Final = late_pattern(r"([?&;]\w*(?:password|passwd|passphrase|pwd|secret|token)=)[^\s&;'\"]+", re.IGNORECASE)


def without_passwords(text: str) -> str:
    """Return a text in which the passwords of URLs are `***`."""
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\1{_MASK}", _USER.sub(rf"\1:{_MASK}@", text))


def worth_masking(texts: Iterable[str]) -> list[str]:
    """Return those of the values of secrets, and of their lines, that logs mask: none of few letters, longest first."""
    return sorted({text for text in texts if len(text) >= _LEAST}, key=lambda text: (-len(text), text))
