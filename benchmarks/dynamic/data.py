"""The Parquet files that real runs read: made once from a fixed seed, kept beside the peers of the other suites."""

from __future__ import annotations

import fcntl
import shutil
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contestants import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

FILES = 1000
ROWS = 20_000
GROUPS = 4
"""Row groups of a file."""
SEED = 20_201


@cache
def files() -> list[str]:
    """Return the paths of 1,000 files of 20,000 rows: `key` (the number of the file, as in a hive partition), `id`
    (unique), `part` (0 to 999, evenly drawn) and `amount` (a float drawn evenly from 0 to 1).
    """
    folder = cache_folder() / f"orders-{FILES}x{ROWS}-{SEED}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            making = folder.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            _make(making)
            making.rename(folder)
    return [str(folder / f"key={key}" / "rows.parquet") for key in range(FILES)]


def _make(folder: Path) -> None:
    draw = np.random.default_rng(SEED)
    for key in range(FILES):
        table = pa.table(
            {
                "key": np.full(ROWS, key, np.int32),
                "id": np.arange(key * ROWS, (key + 1) * ROWS, dtype=np.int64),
                "part": draw.integers(0, 1000, ROWS, dtype=np.int32),
                "amount": draw.random(ROWS, dtype=np.float32),
            }
        )
        path = folder / f"key={key}" / "rows.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table, path, row_group_size=ROWS // GROUPS, compression="zstd")
