"""The scale of the tables of TPC-H in rows that may be large; ten times as much with `BENCHMARKS_FULL=1`."""

from __future__ import annotations

import os

FULL = os.environ.get("BENCHMARKS_FULL", "") not in ("", "0")
SCALE = 10.0 if FULL else 1.0
