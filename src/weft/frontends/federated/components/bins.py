"""Bins of a column, and what they tell about a label: weight of evidence and information value.

A bin holds the values up to and including its edge; larger ones than the last edge are in the last bin. Missing values
are a bin of their own behind the others. Source: Siddiqi 2006 (weight of evidence); the rules for bins without events
or without others are those of FATE 1.11.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
QUANTILE, BUCKET = "quantile", "bucket"
_SLACK: Final = 1e-9


class Evidence(NamedTuple):
    """What the bins of a column tell: counts of events and others, weight of evidence, and parts of the value."""

    events: Array
    others: Array
    woe: Array
    parts: Array

    @property
    def iv(self) -> float:
        """The information value."""
        return float(self.parts.sum())

    def document(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "iv": self.iv,
            "woe": self.woe.tolist(),
            "iv_by_bin": self.parts.tolist(),
            "events": self.events.tolist(),
            "non_events": self.others.tolist(),
        }


def quantile_edges(values: Array, count: int) -> list[float]:
    """Return the edges of at most `count` bins with equally many values: values of the column. NaN is left out."""
    known = np.sort(values[~np.isnan(values)])
    shares = np.arange(1, count + 1) / count
    ranks = np.ceil(shares * len(known) - _SLACK).astype(int) - 1  # exact ranks: 0.3 * 10 is 3.0000000000000004
    found: list[float] = np.unique(known[np.maximum(ranks, 0)]).tolist()
    return found


def bucket_edges(values: Array, count: int) -> list[float]:
    """Return the edges of `count` bins of equal width; one bin if all values are equal. NaN is left out."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    found: list[float] = np.unique([*(low + (high - low) / count * np.arange(1, count)), high]).tolist()
    return found


def category_edges(values: Array) -> list[float]:
    """Return the values of a column, ascending: each is a bin. NaN is left out."""
    found: list[float] = np.unique(values[~np.isnan(values)]).tolist()
    return found


def bin_codes(values: Array, edges: list[float]) -> Array:
    """Return the bin of each value; that of NaN is `len(edges)`."""
    codes = np.searchsorted(np.asarray(edges[:-1]), values, side="left")
    return np.where(np.isnan(values), len(edges), codes)


def evidence(events: Array, others: Array, adjustment: float) -> Evidence:
    """Return what counts by bin tell. `adjustment` is added to both counts of a bin where one of them is zero."""
    events, others = np.asarray(events), np.asarray(others)
    added = np.where((events == 0) | (others == 0), adjustment, 0.0)
    shares = (events + added) / max(int(events.sum()), 1)
    other_shares = (others + added) / max(int(others.sum()), 1)
    woe = np.log(shares / other_shares)
    return Evidence(events, others, woe, (shares - other_shares) * woe)
