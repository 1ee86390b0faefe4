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


def pooled_quantiles(sums: HorizontalSums, matrix: Array, shares: Array, rows: int) -> Array:
    """Return the quantiles of the columns at all parties, shape (columns, shares).

    The quantile of a share is the smallest value with at least that share of all `rows` at or below it, which is the
    method `inverted_cdf` of NumPy.
    """
    ranks = np.clip(np.ceil(rows * np.asarray(shares, dtype=float)), 1, rows).astype(np.int64)
    columns = [np.sort(ordered_keys(one)) for one in matrix.T]
    found = np.zeros((len(columns), len(ranks)), dtype=np.uint64)
    digits = np.arange(1, 1 << _DIGIT, dtype=np.uint64)
    for shift in range(_BITS - _DIGIT, -1, -_DIGIT):
        thresholds = found[:, :, None] + (digits << np.uint64(shift)) - np.uint64(1)
        counts = np.zeros(thresholds.shape, dtype=np.int64)
        for at, column in enumerate(columns):
            counts[at] = np.searchsorted(column, thresholds[at], side="right")
        below = sums.total(counts) < ranks[None, :, None]
        found += below.sum(axis=2).astype(np.uint64) << np.uint64(shift)
    return numbers_of(found)


def pooled_bins(sums: HorizontalSums, matrix: Array, count: int, rows: int) -> FeatureBins:
    """Return the bins that `FeatureBins.of` would find in the rows of all parties, with the codes of own rows."""
    quantiles = pooled_quantiles(sums, matrix, np.append(np.arange(1, count) / count, 1.0), rows)
    edges, codes = [], np.empty(matrix.shape, dtype=np.int32)
    for at, one in enumerate(quantiles):
        found = np.unique(one[:-1])
        edges.append(found[found < one[-1]])
        codes[:, at] = np.searchsorted(edges[-1], matrix[:, at], side="left")
    return FeatureBins(edges, codes)
