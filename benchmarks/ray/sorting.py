"""What the tasks of all sides do to sort rows: blocks of them, and the summaries by which a result is checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.harness import expect
from benchmarks.ray.sizes import BLOCKS

KEY_BYTES, VALUE_BYTES = 8, 92
ROW_BYTES = KEY_BYTES + VALUE_BYTES
_MOST = 2**62
_SAMPLE = 100
_MODULUS = 2**63


class Summary(NamedTuple):
    """A sorted block: its rows, their sum of keys modulo 2^63, the first key and the last."""

    rows: int
    keys: int
    first: int
    last: int


def keys_of(index: int, rows: int) -> Any:
    """Return the keys of a block, random numbers of its own."""
    return np.random.default_rng(index).integers(0, _MOST, rows)


def values_of(index: int, rows: int) -> pa.Array:
    """Return the values of a block: random bytes, `VALUE_BYTES` for each row."""
    data = np.random.default_rng(BLOCKS + index).bytes(rows * VALUE_BYTES)
    return pa.Array.from_buffers(pa.binary(VALUE_BYTES), rows, [None, pa.py_buffer(data)])


def block(index: int, rows: int) -> pa.Table:
    """Make a block of rows."""
    return pa.table({"key": keys_of(index, rows), "value": values_of(index, rows)})


def sampled(table: pa.Table) -> Any:
    """Return some keys of a block."""
    return table["key"].to_numpy()[:_SAMPLE]


def boundaries(samples: Sequence[Any]) -> Any:
    """Return the keys that divide rows into `BLOCKS` parts."""
    ordered = np.sort(np.concatenate(samples))
    return ordered[np.arange(1, BLOCKS) * len(ordered) // BLOCKS]


def divided(table: pa.Table, bounds: Sequence[Any]) -> list[pa.Table]:
    """Return the rows of a block for each part."""
    ordered = table.sort_by("key")
    cuts = [0, *np.searchsorted(ordered["key"].to_numpy(), bounds[0]).tolist(), len(ordered)]
    return [ordered.slice(lo, hi - lo) for lo, hi in pairwise(cuts)]


def merged(pieces: Sequence[pa.Table]) -> pa.Table:
    """Return the sorted rows of a part."""
    return pa.concat_tables(pieces).sort_by("key")


def summary(table: pa.Table) -> Summary:
    """Return what a sorted block holds. AssertionError: it is not sorted."""
    keys = table["key"].to_numpy()
    expect(bool((keys[1:] >= keys[:-1]).all()), True)
    return Summary(len(keys), int(keys.sum(dtype=np.uint64)) % _MODULUS, int(keys[0]), int(keys[-1]))


def wanted(rows: int) -> tuple[int, int]:
    """Return the number of rows in all blocks, and the sum of their keys."""
    return BLOCKS * rows, sum([int(keys_of(i, rows).sum(dtype=np.uint64)) for i in range(BLOCKS)]) % _MODULUS


def check(found: Iterable[Sequence[int]], rows: int) -> None:
    """Raise AssertionError unless these summaries, in any order, are of all rows in order."""
    blocks = sorted([Summary(*one) for one in found], key=lambda one: one.first)
    expect(all(low.last <= high.first for low, high in pairwise(blocks)), True)
    expect((sum(one.rows for one in blocks), sum(one.keys for one in blocks) % _MODULUS), wanted(rows))
