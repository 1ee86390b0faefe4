"""Exact quantiles of columns whose rows lie at several parties, by sums of counts alone.

Float64 numbers in their order are 64-bit integers in their order. So the smallest value with at least k rows at or
below it is found digit by digit: all parties count their rows below the thresholds of a round, and the sums over the
parties choose the digits of all quantiles at once. It takes 16 rounds, whatever the values are.

Who learns what: all parties learn the quantiles, which are values of rows, and how many rows of all parties lie below
the thresholds of each round. What sums tell with two data parties: see `horizontal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.trees import FeatureBins

if TYPE_CHECKING:
    from weft.frontends.federated.components.horizontal import HorizontalSums

Array = np.ndarray[Any, Any]
_DIGIT: Final = 4
_SIGN: Final = np.uint64(1 << 63)
_BITS: Final = 64


def ordered_keys(values: Array) -> Array:
    """Return numbers as uint64 in the same order. No value is nan; both zeros are one."""
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    found: Array = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return found


def numbers_of(keys: Array) -> Array:
    """Return the numbers of `ordered_keys`."""
    bits = np.where(keys & _SIGN, keys ^ _SIGN, ~keys)
    return bits.view(np.float64)


def pooled_quantiles(sums: HorizontalSums, matrix: Array, shares: Array, rows: int | Array) -> Array:
    """Return the quantiles of the columns at all parties, shape (columns, shares). Missing values are left out.

    The quantile of a share is the smallest value with at least that share of all `rows` at or below it, which is the
    method `inverted_cdf` of NumPy. `rows` may have a number for each column.
    """
    known = np.broadcast_to(np.asarray(rows), matrix.shape[1:])[:, None]
    ranks = np.clip(np.ceil(known * np.asarray(shares, dtype=float)), 1, known).astype(np.int64)
    columns = [np.sort(ordered_keys(one[~np.isnan(one)])) for one in matrix.T]
    found = np.zeros(ranks.shape, dtype=np.uint64)
    digits = np.arange(1, 1 << _DIGIT, dtype=np.uint64)
    for shift in range(_BITS - _DIGIT, -1, -_DIGIT):
        thresholds = found[:, :, None] + (digits << np.uint64(shift)) - np.uint64(1)
        counts = np.zeros(thresholds.shape, dtype=np.int64)
        for at, column in enumerate(columns):
            counts[at] = np.searchsorted(column, thresholds[at], side="right")
        below = sums.total(counts) < ranks[:, :, None]
        found += below.sum(axis=2).astype(np.uint64) << np.uint64(shift)
    return numbers_of(found)


def pooled_bins(sums: HorizontalSums, matrix: Array, count: int, rows: int, *, may_miss: bool = False) -> FeatureBins:
    """Return the bins that `FeatureBins.of` would find in the rows of all parties, with the codes of own rows.

    With `may_miss` the parties add up how many values are missing in each column, too.
    """
    missing = np.zeros(matrix.shape[1], dtype=np.int64)
    if may_miss:
        missing = sums.total(np.isnan(matrix).sum(axis=0).astype(np.int64))
    quantiles = pooled_quantiles(sums, matrix, np.append(np.arange(1, count) / count, 1.0), rows - missing)
    edges = []
    for one, known in zip(quantiles, rows - missing, strict=True):
        found = np.unique(one[:-1])
        edges.append(found[found < one[-1]] if known else np.empty(0))
    return FeatureBins.with_edges(matrix, edges, missing > 0)
