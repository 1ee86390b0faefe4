"""Decision trees over bins: quantile bins of a party's features, candidates for splits, and their gains.

Sources: Chen and Guestrin 2016 (gain and weight from sums of first and second derivatives), Cheng and others 2021
(SecureBoost: the same sums over the columns of several parties), Shi and others 2022 (splits from derivatives of 2 to 5
bits are as good as from exact ones).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft.model.errors import UsageError

Array = np.ndarray[Any, Any]
SUM_DIGITS: Final = 8
"""The binary digits of first and second derivatives, counted from the mean of the larger half of those of a tree."""
_LARGEST: Final = float(np.finfo(float).max)
"""The threshold that divides missing values from all others."""


class FeatureBins(NamedTuple):
    """The bins of features. `edges[f]` are thresholds, ascending: bin b has the values in (edges[b - 1], edges[b]].

    `codes` has the bin of each value, shape (rows, features). The candidate (f, b) sends bins 0..b to the left.

    A column with missing values is two features, so that the best side of these is found like any split: in the first
    one they are above all values, where the last edge divides them from the rest, and in the second one below all.
    `columns` has the column of each feature, `missing_left` on which side missing values are (None: there are none).
    """

    edges: list[Array]
    codes: Array
    columns: Array
    missing_left: list[bool | None]

    @classmethod
    def of(cls, matrix: Array, count: int) -> FeatureBins:
        """Return at most `count` bins of equal numbers of rows for each column. Edges are values of the column."""
        edges, shares = [], np.arange(1, count) / count
        for column in matrix.T:
            known = column[~np.isnan(column)]
            found = np.unique(np.quantile(known, shares, method="inverted_cdf")) if len(known) else np.empty(0)
            edges.append(found[found < known.max()] if len(known) else found)
        return cls.with_edges(matrix, edges, np.asarray(np.isnan(matrix).any(axis=0)))

    @classmethod
    def with_edges(cls, matrix: Array, edges: Sequence[Array], missing: Array) -> FeatureBins:
        """Return the bins between edges, ascending; `missing` says which columns have missing values anywhere."""
        found, codes, columns, lefts = list[Array](), list[Array](), list[int](), list[bool | None]()
        for at, (column, own) in enumerate(zip(matrix.T, edges, strict=True)):
            for left in (False, True) if missing[at] else (None,):
                bounds = own if left is None else np.concatenate([[-_LARGEST], own] if left else [own, [_LARGEST]])
                places = np.searchsorted(bounds, column, side="left")
                found.append(bounds)
                codes.append(np.where(np.isnan(column), 0, places) if left else places)
                columns.append(at)
                lefts.append(left)
        stacked = np.column_stack(codes).astype(np.int32) if codes else np.empty((len(matrix), 0), dtype=np.int32)
        return cls(found, stacked, np.array(columns, dtype=np.int64), lefts)

    @property
    def sizes(self) -> list[int]:
        """The number of bins of each feature."""
        return [len(one) + 1 for one in self.edges]

    def only(self, features: Array) -> FeatureBins:
        """Return the bins of some features."""
        places = features.tolist()
        lefts = [self.missing_left[at] for at in places]
        return FeatureBins([self.edges[at] for at in places], self.codes[:, features], self.columns[features], lefts)

    def features_of(self, columns: Array) -> Array:
        """Return the features of some columns, ascending."""
        return np.flatnonzero(np.isin(self.columns, columns))

    def sends_left(self, feature: int, left: int, total: int) -> bool:
        """Whether a split sends missing values to the left; with none in the training, to the side with more rows."""
        side = self.missing_left[feature]
        return 2 * left > total if side is None else side

    def candidate(self, at: int) -> tuple[int, int]:
        """Return feature and bin of a candidate by its position: those of the first feature come first."""
        for feature, edges in enumerate(self.edges):
            if at < len(edges):
                return feature, at
            at -= len(edges)
        raise UsageError(f"there is no candidate {at} for a split")

    @property
    def candidates(self) -> int:
        """How many candidates there are."""
        return sum(map(len, self.edges))


class SplitSums(NamedTuple):
    """Sums over the rows to the left of each candidate: first and second derivatives (integers), and row counts."""

    g: Array
    h: Array
    counts: Array

    def rest(self, other: SplitSums) -> SplitSums:
        """Return the sums over the rows that are not among those of `other`."""
        return SplitSums(self.g - other.g, self.h - other.h, self.counts - other.counts)


def left_sums(bins: FeatureBins, rows: Array, g: Array, h: Array) -> SplitSums:
    """Return the sums for the candidates of bins over some rows; `g` and `h` are integers of those rows."""
    sizes = np.array(bins.sizes, dtype=np.int64)
    starts = sizes.cumsum() - sizes
    places = (bins.codes[rows] + starts).ravel()
    total, keep = int(sizes.sum()), np.ones(int(sizes.sum()), dtype=bool)
    keep[starts + sizes - 1] = False
    found = []
    for values in (g, h, None):
        weights = None if values is None else np.repeat(values, len(sizes)).astype(float)
        sums = np.bincount(places, weights, minlength=total).cumsum()
        base = np.concatenate([[0], sums])[starts]
        found.append((sums - np.repeat(base, sizes))[keep].astype(np.int64))
    return SplitSums(*found)


class DerivativeScale(NamedTuple):
    """How derivatives of a tree become integers: times a power of two each."""

    g_power: int
    h_power: int

    @classmethod
    def of(cls, g: Array, h: Array) -> DerivativeScale:
        """Return the largest scale with which a sum over half of the rows has `sum_bits` bits, and g a sign.

        An integer is wrong by at most `2^-SUM_DIGITS` of the mean of the larger half of its derivatives, and a sum of
        many by less in proportion, since the errors are independent. Splits whose gains differ by less than 1 % may be
        taken for each other; even 5 bits are enough for a model as good (Shi and others 2022).
        """
        return cls(*(_power(np.sort(np.abs(one))[len(one) - _half(len(one)) :]) for one in (g, h)))

    def integers(self, g: Array, h: Array) -> tuple[Array, Array]:
        """Return the derivatives as integers of int64."""
        powers = ((g, self.g_power), (h, self.h_power))
        found = [np.rint(np.ldexp(one, power)).astype(np.int64) for one, power in powers]
        return found[0], found[1]


class SumLayout(NamedTuple):
    """How the integers of both derivatives share one, and how many bits sums of these have.

    The integer of a row is `g 2^h_bits + h`, and a sum over at most half of the rows of a tree has `width` bits with
    its sign. Where h is `constant`, as in a regression, it is left out, and `h_bits` is 0. The width follows from the
    number of rows and from this alone, so it tells nothing else about derivatives.
    """

    h_bits: int
    width: int
    constant: int | None

    @classmethod
    def of(cls, h: Array) -> SumLayout:
        """Return the layout of a tree; `h` has the integers of its rows."""
        bits = sum_bits(len(h))
        if len(h) and (h == h[0]).all():
            return cls(0, bits + 1, int(h[0]))
        return cls(bits, 2 * bits + 1, None)

    def joined(self, g: Array, h: Array) -> Array:
        """Return one integer for each row, as an array of objects."""
        if self.constant is not None:
            return g.astype(object)
        found = [(one << self.h_bits) + other for one, other in zip(g.tolist(), h.tolist(), strict=True)]
        return np.array(found, dtype=object)

    def parted(self, values: Sequence[int], counts: Array) -> tuple[Array, Array]:
        """Return the sums of g and h of sums of integers of `counts` rows each."""
        g = np.array([one >> self.h_bits for one in values], dtype=np.int64)
        if self.constant is not None:
            return g, counts * self.constant
        mask = (1 << self.h_bits) - 1
        return g, np.array([one & mask for one in values], dtype=np.int64)


def sum_bits(rows: int) -> int:
    """Return how many bits the sum of the integers of one derivative has, over at most half of `rows` rows."""
    return SUM_DIGITS + _half(rows).bit_length()


def _half(rows: int) -> int:
    return max(1, rows // 2)


def _power(largest: Array) -> int:
    """Return the power of two for derivatives of which these are the larger half, with room for what is rounded up."""
    total = float(largest.sum()) * (1 + 2.0 ** (1 - SUM_DIGITS))
    return SUM_DIGITS + len(largest).bit_length() - int(np.frexp(total)[1])


class SplitRules(NamedTuple):
    """What a split must satisfy, and the penalties: the groups `tree_param` and `criterion_params` of FATE."""

    l2: float = 0.1
    l1: float = 0.0
    max_depth: int = 3
    min_sample_split: int = 2
    min_impurity_split: float = 1e-3
    min_leaf_node: int = 1
    min_child_weight: float = 0.0

    def score(self, g: Array, h: Array) -> Array:
        """Return `G^2 / (H + l2)`, with `G` shrunk by `l1`."""
        shrunk = np.sign(g) * np.maximum(np.abs(g) - self.l1, 0.0)
        below = h + self.l2
        found: Array = np.divide(shrunk * shrunk, below, out=np.zeros_like(shrunk), where=below > 0)
        return found

    def weight(self, g: float, h: float) -> float:
        """Return the weight of a leaf, `-G / (H + l2)`."""
        shrunk = np.sign(g) * max(abs(g) - self.l1, 0.0)
        return float(-shrunk / (h + self.l2)) if h + self.l2 > 0 else 0.0

    def gains(self, sums: SplitSums, total: tuple[int, int, int], scale: DerivativeScale) -> Array:
        """Return the gain of each candidate; -inf where it is not allowed. `total` has g, h and rows of the node."""
        g, h = np.ldexp(sums.g.astype(float), -scale.g_power), np.ldexp(sums.h.astype(float), -scale.h_power)
        all_g, all_h = np.ldexp(float(total[0]), -scale.g_power), np.ldexp(float(total[1]), -scale.h_power)
        gains = self.score(g, h) + self.score(all_g - g, all_h - h) - self.score(np.array(all_g), np.array(all_h))
        others = total[2] - sums.counts
        fits = (np.minimum(sums.counts, others) >= max(1, self.min_leaf_node)) & (gains > self.min_impurity_split)
        fits &= np.minimum(h, all_h - h) >= self.min_child_weight
        found: Array = np.where(fits, gains, -np.inf)
        return found
