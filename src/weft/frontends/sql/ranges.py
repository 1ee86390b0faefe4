"""Ranges of sort keys: what bounds them, from samples of the tasks that have the rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from weft.frontends.sql.text import BOUNDS, SAMPLED

if TYPE_CHECKING:
    import duckdb


def bounds_of(keys: Sequence[bytes], rows: Sequence[int], ranges: int) -> list[bytes]:
    """Return the lowest keys of all ranges but the first, at most `ranges` - 1, in order.

    `rows` has for each sampled key the number of rows of its task: a key stands for its share of them, and the ranges
    have about equally many.
    """
    weighed = sorted(zip(keys, (max(count / SAMPLED, 1.0) for count in rows), strict=True))
    total = sum(weight for _, weight in weighed)
    found: list[bytes] = []
    done = 0
    for (key, _), upto in zip(weighed, accumulate(weight for _, weight in weighed), strict=True):
        at = int(upto * ranges / total)
        if done < at < ranges:
            found.append(key)
        done = at
    return found


def set_bounds(connection: duckdb.DuckDBPyConnection, samples: pa.Table | pa.RecordBatchReader, ranges: int) -> None:
    """Set the variable of a connection with the bounds of `ranges` ranges; `samples` has the rows of `SortSample`s."""
    table = samples if isinstance(samples, pa.Table) else samples.read_all()
    keys, rows = (table.column(at).to_pylist() for at in range(2))
    connection.execute(f"SET VARIABLE {BOUNDS} = CAST($1 AS BLOB[])", [bounds_of(keys, rows, ranges)])
