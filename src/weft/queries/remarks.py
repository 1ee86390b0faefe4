"""Warnings about tables and queries: for the caller, or for the step of a pipeline that collects them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_collecting: Final = ContextVar[list[str] | None]("collecting", default=None)


def warn_user(text: str, *, stacklevel: int = 1) -> None:
    """Warn the caller, as `warnings.warn` does with this level, or add the text to what this thread collects."""
    told = _collecting.get()
    if told is None:
        warnings.warn(text, UserWarning, stacklevel=stacklevel + 1)
    elif text not in told:
        told.append(text)


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect the warnings of this thread in a list; `warnings.catch_warnings` would take those of all threads."""
    told: list[str] = []
    token = _collecting.set(told)
    try:
        yield told
    finally:
        _collecting.reset(token)
