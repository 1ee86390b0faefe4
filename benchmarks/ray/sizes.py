"""How much data the rows on clusters take; ten times as much and more with `BENCHMARKS_FULL=1` in the environment.

`BENCHMARKS_SCALE=10` gives the tables of TPC-H another scale, and `BENCHMARKS_QUERIES=1,6` runs these queries alone.
The names of their rows say so.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from benchmarks.sizes import FULL

GB = 10**9


class Sizes(NamedTuple):
    """`shuffled`: bytes of the rows that are sorted. `scale`: of the tables of TPC-H, about that many GB."""

    shuffled: int
    scale: float


BLOCKS = 200
"""Blocks of rows before and after the shuffle."""
_SCALE = os.environ.get("BENCHMARKS_SCALE", "")
SIZES = Sizes(4 * GB if FULL else GB // 2, float(_SCALE) if _SCALE else 1.0 if FULL else 0.1)
QUERIES = frozenset(int(number) for number in os.environ.get("BENCHMARKS_QUERIES", "").split(",") if number.strip())
"""The queries of TPC-H to run on clusters, by number; none stands for all."""
