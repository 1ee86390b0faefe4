"""Texts without secrets: the passwords of URLs in messages, and what logs mask of the values of secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from weft.model.patterns import late_pattern

_MASK: Final = "***"
_LEAST: Final = 4
"""The least letters of a text that is masked: shorter ones, such as `1`, stand in logs by chance."""
_LONG: Final = 8
"""The least letters of a text that is masked inside a longer word: `5432` stands in `15432` by chance."""
_WORD: Final = late_pattern(r"\w", re.ASCII)
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


def whole_word_ends(secret: str) -> tuple[bool, bool]:
    """Return whether a letter, digit or `_` in front of a secret, and one behind it, keep it from being masked.

    Both hold for secrets of few letters, at the ends that are such characters themselves. Only those of ASCII count,
    since logs are bytes of any encoding.
    """
    short = len(secret) < _LONG
    return short and _WORD.match(secret[:1]) is not None, short and _WORD.match(secret[-1:]) is not None


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text in which secrets are `***`, as logs show it: the first in the text goes first, then the longest."""
    ordered = sorted(secrets, key=len, reverse=True)
    return re.sub("|".join(map(_expression, ordered)), _MASK, text, flags=re.ASCII) if ordered else text


def _expression(secret: str) -> str:
    before, behind = whole_word_ends(secret)
    return (r"(?<!\w)" if before else "") + re.escape(secret) + (r"(?!\w)" if behind else "")
