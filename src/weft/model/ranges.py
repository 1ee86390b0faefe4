"""Indices as ranges: what happens to many tasks is told in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def runs(indices: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield ascending indices as ranges."""
    lo = hi = -1
    for index in indices:
        if index != hi:
            if hi > lo:
                yield lo, hi
            lo = index
        hi = index + 1
    if hi > lo:
        yield lo, hi
