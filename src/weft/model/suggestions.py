"""The known word that a user probably meant."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

_LETTERS: Final = 100
"""The letters of a word that are compared: a hint is not worth seconds."""
_WORDS: Final = 1_000
"""The known words that are compared."""
_LIKE: Final = 0.65
"""The least likeness from 0 to 1: at 0.6 successPolicy was taken for runPolicy."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most like `word`, in upper or lower case; "" if none is like it."""
    from difflib import get_close_matches  # most words are right: they must not pay for the import

    words = {name.lower(): name for name in islice(known, _WORDS)}
    return next((words[found] for found in get_close_matches(word[:_LETTERS].lower(), words, 1, _LIKE)), "")


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint that names the known word most like `word`, or `otherwise` if none is like it."""
    near = nearest(word, known)
    return f"Did you mean {near}?" if near else otherwise
