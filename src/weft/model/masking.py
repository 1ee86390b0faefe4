"""Texts without the passwords of URLs, which drivers and users write into messages."""

from __future__ import annotations

import re
from typing import Final

from weft.model.patterns import late_pattern

_MASK: Final = "***"
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
