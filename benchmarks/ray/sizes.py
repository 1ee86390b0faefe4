"""How much data the rows on clusters take; ten times as much and more with `BENCHMARKS_FULL=1` in the environment."""

from __future__ import annotations

import os
from typing import NamedTuple

GB = 10**9


class Sizes(NamedTuple):
    """`shuffled`: bytes of the rows that are sorted. `scale`: of the tables of TPC-H, about that many GB."""

    shuffled: int
    scale: float


BLOCKS = 200
"""Blocks of rows before and after the shuffle."""
FULL = os.environ.get("BENCHMARKS_FULL", "") not in ("", "0")
SIZES = Sizes(4 * GB, 1.0) if FULL else Sizes(GB // 2, 0.1)
