"""Gradient boosted trees over columns of several parties: bins, histograms, gains, and trees as JSON.

Sources: Chen and Guestrin 2016 (gain and weight of leaves by sums of gradients), Cheng and others 2021 (SecureBoost).
A gradient is an integer from 0 to `2 * UNIT`, a hessian one from 0 to `UNIT`, so that sums are exact and alike for
encrypted and plain numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct

Array = np.ndarray[Any, Any]
UNIT: Final = 1 << 20


class TreeParameters(Struct, frozen=True, kw_only=True):
    """How trees grow. A leaf has at least `min_leaf_rows` rows, a split at least `min_split_rows` and `min_gain`."""

    trees: int
    rate: float
    depth: int
    bins: int
    reg_lambda: float
    min_gain: float
    min_split_rows: int
    min_leaf_rows: int
    feature_rate: float


class BinnedColumns(NamedTuple):
    """Columns as bins: `places` of shape (rows, features), and the upper edges of the bins of each feature."""

    places: Array
    edges: list[Array]

    @property
    def widths(self) -> list[int]:
        """The number of bins of each feature."""
        return [len(one) + 1 for one in self.edges]


def binned(matrix: Array, bins: int) -> BinnedColumns:
    """Divide each column at its quantiles into at most `bins` bins; a value equal to an edge is in the lower bin."""
    shares = np.linspace(0, 1, bins + 1)[1:-1]
    edges = [np.unique(np.quantile(column, shares)) if len(column) else np.empty(0) for column in matrix.T]
    edges = [one[one < column.max()] if len(column) else one for one, column in zip(edges, matrix.T, strict=True)]
    return BinnedColumns(places_of(matrix, edges), edges)


def places_of(matrix: Array, edges: Sequence[Array]) -> Array:
    """Return the bin of each value, shape (rows, features)."""
    found = np.zeros(matrix.shape, dtype=np.int64)
    for at, one in enumerate(edges):
        found[:, at] = np.searchsorted(one, matrix[:, at], side="left")
    return found


class Gradients(NamedTuple):
    """Gradients and hessians of rows as integers, and what turns their sums into numbers again."""

    first: Array
    second: Array
    first_unit: float
    second_unit: float

    def sums(self, first: Any, second: Any, rows: Any) -> tuple[Any, Any]:
        """Return sums of gradients and of hessians of so many rows as numbers."""
        return (first - UNIT * rows) * self.first_unit, second * self.second_unit


def fixed_gradients(first: Array, second: Array) -> Gradients:
    """Return gradients and hessians as integers."""
    most_first = float(np.abs(first).max(initial=0.0)) or 1.0
    most_second = float(second.max(initial=0.0)) or 1.0
    return Gradients(
        np.rint((first / most_first + 1.0) * UNIT).astype(np.int64),
        np.rint(second / most_second * UNIT).astype(np.int64),
        most_first / UNIT,
        most_second / UNIT,
    )


class BinSums(NamedTuple):
    """Sums of a node for each bin of all features, one feature after another: gradients, hessians, rows."""

    first: Array
    second: Array
    rows: Array

    def minus(self, other: BinSums) -> BinSums:
        """Return the histogram of the sibling of `other`."""
        return BinSums(self.first - other.first, self.second - other.second, self.rows - other.rows)


def histogram(columns: BinnedColumns, rows: Array, gradients: Gradients) -> BinSums:
    """Return the sums of the rows of a node at a party that knows the gradients."""
    groups, count = bin_groups(columns, rows)
    found = []
    for values in (gradients.first[rows], gradients.second[rows], np.ones(len(rows), dtype=np.int64)):
        repeated = np.repeat(values, len(columns.edges))
        total = np.zeros(count, dtype=np.int64)
        np.add.at(total, groups.ravel(), repeated)
        found.append(total)
    return BinSums(*found)


def bin_groups(columns: BinnedColumns, rows: Array) -> tuple[Array, int]:
    """Return the number of the bin among those of all features, shape (rows, features), and the count of bins."""
    starts = np.concatenate(([0], np.cumsum(columns.widths)))
    return columns.places[rows] + starts[:-1], int(starts[-1])


def splits(
    found: BinSums, widths: Sequence[int], gradients: Gradients, parameters: TreeParameters
) -> Iterator[tuple[float, int]]:
    """Yield the gain of each possible split as (gain, place), where rows up to the bin at this place go left."""
    start = 0
    for width in widths:
        part = slice(start, start + width)
        first, second, rows = (np.cumsum(one[part]) for one in found)
        left = gradients.sums(first, second, rows)
        total = gradients.sums(first[-1], second[-1], rows[-1])
        gain = 0.5 * (
            _score(*left, parameters.reg_lambda)
            + _score(total[0] - left[0], total[1] - left[1], parameters.reg_lambda)
            - _score(*total, parameters.reg_lambda)
        )
        fits = (rows >= parameters.min_leaf_rows) & (rows[-1] - rows >= parameters.min_leaf_rows)
        for at in np.flatnonzero(fits & (gain > parameters.min_gain)):
            yield float(gain[at]), start + int(at)
        start += width


def _score(first: Any, second: Any, reg_lambda: float) -> Any:
    return first**2 / (second + reg_lambda)


def leaf_weight(first: float, second: float, parameters: TreeParameters) -> float:
    """Return the value of a leaf, times the learning rate."""
    return -first / (second + parameters.reg_lambda) * parameters.rate


def feature_of(widths: Sequence[int], place: int) -> tuple[int, int]:
    """Return the feature and the bin of a place among the bins of all features."""
    for feature, width in enumerate(widths):
        if place < width:
            return feature, place
        place -= width
    raise IndexError(place)
