"""Optimal binning: many fine bins become few, by what neighbours tell about labels of two classes.

By `iv`, `gini` and `chi_square` neighbours are merged whose union loses least: first those that lack a class (with
`mixture`), then those that are small, at last until there are few enough. By `ks` all bins are divided where the
distributions of both classes differ most (Kolmogorov and Smirnov), and each side again. Source: the description and
the observed order of steps of FATE 1.11, Kerber 1992 (merging by chi square).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct

from weft.frontends.federated.components.bins import BUCKET, QUANTILE
from weft.frontends.federated.components.inputs import group
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart

Array = np.ndarray[Any, Any]
IV, GINI, CHI_SQUARE, KS = "iv", "gini", "chi_square", "ks"
METRICS: Final = (IV, GINI, CHI_SQUARE, KS)
_GROUP: Final = "optimal_binning_param"


class MergeRule(Struct, frozen=True):
    """How fine bins become few: at most `most` of them, each with a share of the rows between two bounds."""

    metric: str
    most: int
    least_share: float
    most_share: float
    mixture: bool


class FineBins(Struct, frozen=True):
    """The fine bins to begin with: at most `count`, by quantiles or of equal widths."""

    count: int
    method: str


def rule_of(part: ComponentPart, most: int) -> tuple[MergeRule, FineBins]:
    """Return the parameters of a part, with the defaults of FATE. UsageError: one is not possible."""
    given = group(part, _GROUP)
    metric = str(given.get("metric_method") or IV).lower().replace("-", "_")
    method = str(given.get("init_bucket_method") or QUANTILE).lower()
    count = given.get("init_bin_nums")
    least, most_share = _share(part, "min_bin_pct", 0.05), _share(part, "max_bin_pct", 1.0)
    if metric not in METRICS:
        _wrong(part, "metric_method", f"Use one of {', '.join(METRICS)}.")
    if method not in (QUANTILE, BUCKET):
        _wrong(part, "init_bucket_method", f"Use {QUANTILE} or {BUCKET}.")
    count = 1000 if count is None else count
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        _wrong(part, "init_bin_nums", "Use a whole number from 1 on.")
    if least > most_share:
        _wrong(part, "min_bin_pct", "Use at most max_bin_pct.")
    if not most_share or math.ceil(1 / most_share) > most:
        _wrong(part, "max_bin_pct", f"{most} bins (bin_num) of this share do not hold all rows.")
    mixture = given.get("mixture") is not False
    return MergeRule(metric, most, least, most_share, mixture), FineBins(count, method)


def _share(part: ComponentPart, name: str, default: float) -> float:
    value = group(part, _GROUP).get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        _wrong(part, name, "Use a number from 0 to 1.")
    return float(value)


def _wrong(part: ComponentPart, name: str, hint: str) -> None:
    value = group(part, _GROUP).get(name)
    raise UsageError(f"{part.component}: {_GROUP}.{name} is {value!r}", hint=hint)


def merged_ends(counts: Array, rule: MergeRule, adjustment: float) -> list[int]:
    """Return the place of the last fine bin of each bin, ascending.

    `counts`, shape (fine bins, 2), has the events and the others of each. `adjustment` is that of `bins.evidence`.
    """
    if len(counts) < 2:
        return list(range(len(counts)))
    if rule.metric == KS:
        return _divided(counts, rule)
    return _Merging(counts, rule, adjustment).ends()


# ------------------------------------------------------------------------------------------------------------- merging


class _Merging:
    """Merges neighbours: `_counts` and `_ends` of the bins that are left."""

    def __init__(self, counts: Array, rule: MergeRule, adjustment: float) -> None:
        self._counts, self._ends, self._rule = counts.astype(float), np.arange(len(counts)), rule
        self._totals, self._adjustment = self._counts.sum(axis=0), adjustment
        rows = self._totals.sum()
        self._least, self._most = math.ceil(rule.least_share * rows), math.floor(rule.most_share * rows)

    def ends(self) -> list[int]:
        both, one = np.logical_and, np.logical_or
        for lacks in ([self._lack_a_class] if self._rule.mixture else []) + [self._are_small]:
            for join in (both, one):
                while lacks().any() and self._merge(join(lacks()[:-1], lacks()[1:])):
                    pass
        while len(self._ends) > self._rule.most and self._merge(np.ones(len(self._ends) - 1, dtype=bool)):
            pass
        return [int(one) for one in self._ends]

    def _lack_a_class(self) -> Array:
        found: Array = self._counts.min(axis=1) == 0
        return found

    def _are_small(self) -> Array:
        found: Array = self._counts.sum(axis=1) < self._least
        return found

    def _merge(self, allowed: Array) -> bool:
        """Merge the pair of neighbours that loses least, of those that are allowed. Return whether there is one."""
        pairs = self._counts[:-1] + self._counts[1:]
        allowed = allowed & (pairs.sum(axis=1) <= self._most)
        if not allowed.any():
            return False
        losses = _LOSSES[self._rule.metric](self, self._counts[:-1], self._counts[1:], pairs)
        at = int(np.where(allowed, np.where(pairs.sum(axis=1) == 0, -np.inf, losses), np.inf).argmin())
        if not allowed[at]:
            at = int(np.flatnonzero(allowed)[0])
        self._counts[at + 1] = pairs[at]
        self._counts, self._ends = np.delete(self._counts, at, axis=0), np.delete(self._ends, at)
        return True

    def iv_loss(self, left: Array, right: Array, pairs: Array) -> Array:
        return self._iv(left) + self._iv(right) - self._iv(pairs)

    def gini_loss(self, left: Array, right: Array, pairs: Array) -> Array:
        return _gini(pairs) - _gini(left) - _gini(right)

    def chi_square_loss(self, left: Array, right: Array, pairs: Array) -> Array:
        """Return the statistic of the table of two bins and two classes; -inf where a class is not in it."""
        rows = np.maximum(pairs.sum(axis=1, keepdims=True), 1)
        found = np.zeros(len(pairs))
        for one in (left, right):
            expected = one.sum(axis=1, keepdims=True) / rows * pairs
            found += np.divide((one - expected) ** 2, expected, out=np.zeros_like(one), where=expected > 0).sum(axis=1)
        return np.where(pairs.min(axis=1) == 0, -np.inf, found)

    def _iv(self, counts: Array) -> Array:
        added = np.where(counts.min(axis=1, keepdims=True) == 0, self._adjustment, 0.0)
        shares = (counts + added) / np.maximum(self._totals, 1)
        found: Array = (shares[:, 0] - shares[:, 1]) * np.log(shares[:, 0] / shares[:, 1])
        return found


def _gini(counts: Array) -> Array:
    rows = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, rows, out=np.zeros_like(counts), where=rows > 0)
    return np.where(rows[:, 0] > 0, 1 - (shares**2).sum(axis=1), 0.0)


_LOSSES: Final[dict[str, Callable[[_Merging, Array, Array, Array], Array]]] = {
    IV: _Merging.iv_loss,
    GINI: _Merging.gini_loss,
    CHI_SQUARE: _Merging.chi_square_loss,
}


# ------------------------------------------------------------------------------------------------------------- dividing


def _divided(counts: Array, rule: MergeRule) -> list[int]:
    """Return the ends of bins that are divided where the distributions of the classes differ most."""
    least = math.ceil(rule.least_share * counts.sum())
    found, todo = list[int](), [(0, len(counts))]
    while todo and len(found) < rule.most - 1:
        begin, end = todo.pop(0)
        at = _division(counts[begin:end], least, mixture=rule.mixture)
        if at is None:
            continue
        found.append(begin + at)
        parts = [(begin, begin + at + 1), (begin + at + 1, end)]
        low, high = (int(counts[first:last].sum()) for first, last in parts)
        todo += parts[::-1] if high > low else parts
    if not found and rule.most > 1:
        found = [max(0, len(counts) // 2 - 1)]
    return [*sorted(found), len(counts) - 1]


def _division(counts: Array, least: int, *, mixture: bool) -> int | None:
    """Return the last fine bin of the left side of the best division; None: there is none that is allowed."""
    totals = counts.sum(axis=0)
    if len(counts) < 2 or totals.min() == 0:
        return None
    sums = counts.cumsum(axis=0)
    distances = np.abs(np.diff(sums / totals, axis=1)[:, 0])
    middle = len(counts) // 2
    for at in (int(distances.argmax()) if distances.max() > 0 else middle, middle):
        left, right = sums[at], totals - sums[at]
        if min(left.sum(), right.sum()) >= max(1, least):
            return None if mixture and min(left.min(), right.min()) == 0 else at
    return None
