"""The scale of the tables of TPC-H in rows that may be large; ten times as much with `BENCHMARKS_FULL=1`."""

from __future__ import annotations

from benchmarks.sizes import FULL

SCALE = 10.0 if FULL else 1.0
