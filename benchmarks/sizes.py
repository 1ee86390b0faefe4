"""Whether rows that may be large are: `BENCHMARKS_FULL=1` in the environment."""

import os

FULL = os.environ.get("BENCHMARKS_FULL", "") not in ("", "0")
