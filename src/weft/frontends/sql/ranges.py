"""Divides sorted rows by ranges of their sort keys, which follow from samples of all tasks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain, groupby, pairwise
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weft.frontends.sql.fragment import arrow_of, database, interruptible, nothing, tables_in

if TYPE_CHECKING:
    import duckdb

    from weft.graph.task import TaskContext, TaskInput

Keys = Callable[[Sequence[int]], list[bytes]]
"""Returns the sort keys of the rows at some positions."""


def divide_ranges(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> Any:
    """Return the rows of one task for each range of sort keys that has some.

    Parameters, of which others are as for `run_fragment`: `received` has the rows, in order, and the samples of all
    tasks, each of at most `sampled` rows; `sql` gives the sort keys of the rows; `partitions` is the number of ranges.
    """
    params = ctx.params
    own, told = params["received"]
    ranges = params["partitions"]
    connection = database()
    try:
        rows, samples = (_arrived(connection, inputs, *one) for one in (own, told))
        told_keys, counts = (samples.column(at).to_pylist() for at in range(2))
        bounds = bounds_of(told_keys, counts, ranges, params["sampled"])

        def keys(positions: Sequence[int]) -> list[bytes]:
            connection.register(own[0], rows.take(arrow_of(np.asarray(positions, np.int64))).__arrow_c_stream__())
            found: list[bytes] = connection.execute(params["sql"]).to_arrow_table().column(0).to_pylist()
            return found

        ends = interruptible(ctx, connection, lambda: ends_of(bounds, rows.num_rows, keys))
    finally:
        connection.close()
    pieces = {at: rows.slice(lo, hi - lo) for at, (lo, hi) in enumerate(pairwise([0, *ends, rows.num_rows])) if lo < hi}
    if "sending" not in params:
        return pieces
    for edge in params["sending"]:
        writer = ctx.out(edge)
        for at, piece in pieces.items():
            writer.write(at, piece)
    return None


def _arrived(
    connection: duckdb.DuckDBPyConnection,
    inputs: Mapping[str, TaskInput],
    _name: str,
    edges: Sequence[str],
    columns: Sequence[tuple[str, str]],
) -> pa.Table:
    """Return all rows of some edges."""
    values = chain.from_iterable(inputs[edge] for edge in edges if edge in inputs)
    tables = [table for value in values for table in tables_in(value)]
    return pa.concat_tables(tables) if tables else nothing(connection, columns)


def bounds_of(keys: Sequence[bytes], rows: Sequence[int], ranges: int, sampled: int) -> list[bytes]:
    """Return the lowest keys of all ranges but the first, at most `ranges` - 1, in order.

    `rows` has for each key the number of rows of its task, which has at most `sampled` keys: each stands for its share.
    The ranges have about equally many rows; a key that stands for more than one range is there several times.
    """
    weights = [max(1, -(-count // sampled)) for count in rows]
    total = sum(weights)
    weighed = sorted(zip(keys, weights, strict=True))
    found: list[bytes] = []
    done = 0
    for (key, _), upto in zip(weighed, accumulate(weight for _, weight in weighed), strict=True):
        at = upto * ranges // total
        if done < at < ranges:
            found.append(key)
        done = at
    return found


def ends_of(bounds: Sequence[bytes], count: int, keys: Keys) -> list[int]:
    """Return where the range before each bound ends, in `count` rows that are sorted by their keys.

    Equal bounds divide the rows with that key evenly. The keys of few rows are read: those of a grid, and those between
    two of its points.
    """
    if not bounds:
        return []
    step = max(1, isqrt(count // len(bounds)))
    known = keys(range(0, count, step))
    copies = [(bound, len(list(same))) for bound, same in groupby(bounds)]
    wanted = [(bound, find) for bound, _ in copies for find in (bisect_left, bisect_right)]
    blocks = [_before(find(known, bound), step, count) for bound, find in wanted]
    read = keys([at for block in blocks for at in block])
    places = []
    for (bound, find), block, upto in zip(wanted, blocks, accumulate(map(len, blocks)), strict=True):
        places.append(block.start + find(read[upto - len(block) : upto], bound))
    return [
        first + (last - first) * copy // times
        for (_, times), first, last in zip(copies, places[::2], places[1::2], strict=True)
        for copy in range(times)
    ]


def _before(point: int, step: int, count: int) -> range:
    """Return the rows between a point of the grid and the one before it."""
    return range((point - 1) * step + 1, min(point * step, count)) if point else range(0)
