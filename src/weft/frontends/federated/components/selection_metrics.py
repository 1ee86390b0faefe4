"""The numbers by which features are selected, and the rules that pick some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.columns import numbers_of
from weft.frontends.federated.components.selection_rounds import (
    OUTLIER,
    PERCENTAGE,
    PSI,
    THRESHOLD,
    TOP_PERCENTILE,
    TREES,
    UNIQUE,
    VARIATION,
    VIF,
    FilterRound,
)
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_DIGITS: Final = 8
_LEAST_MEAN: Final = 1e-8
BINNING, PEARSON = "HeteroFeatureBinning", "HeteroPearson"


def model_of(part: ComponentPart, filter: str, *kinds: str) -> Mapping[str, Any]:
    """Return the isometric model that a component of such a module has made. UsageError: there is none, or several."""
    known = [one for one in part.models.get("isometric_model", {}).values() if one.get("kind") in kinds]
    if len(known) != 1:
        raise UsageError(
            f"{part.component}: {filter} at {part.here} has {len(known) or 'no'} model of {' or '.join(kinds)}",
            hint='Name one such component in the "isometric_model" of the DSL.',
        )
    found: Mapping[str, Any] = known[0]
    return found


def own_values(part: ComponentPart, one: FilterRound, frame: PartyFrame, names: Sequence[str]) -> list[float]:
    """Return the numbers of the features of this party for a round. UsageError: a model does not have them."""
    if one.source in (UNIQUE, VARIATION, OUTLIER, PERCENTAGE):
        return [_measured(part, one, frame, name) for name in names]
    return _values_of(part, one, names, _known(part, one))


def _known(part: ComponentPart, one: FilterRound) -> Mapping[str, float | None]:
    """Return what the model for a round knows, by name. Features without a finite number are None."""
    if one.source == PSI:
        return dict(model_of(part, one.method, "PSI")["psi"])
    if one.source == VIF:
        model = model_of(part, one.method, PEARSON)
        if "local_vif" not in model:
            raise UsageError(f"{part.component}: vif_filter has no VIF", hint="Set calc_local_vif of HeteroPearson.")
        return dict(zip(model["features"], model["local_vif"], strict=True))
    if one.source in TREES:
        model = model_of(part, one.method, *TREES[one.source])
        if "feature_importance" not in model and "splits" not in model:
            raise UsageError(f"{part.component}: the model for {one.method} at {part.here} has no importances")
        counts: dict[str, float | None] = dict.fromkeys(model["features"], 0.0)
        for name, *_ in model.get("splits", ()):
            counts[name] = (counts.get(name) or 0.0) + 1
        return counts | dict(model.get("feature_importance") or {})
    model = model_of(part, one.method, "DataStatistics")
    found = {}
    for name, metrics in model["statistics"].items():
        if one.metric not in metrics:
            raise UsageError(
                f"{part.component}: statistic_filter has no metric {one.metric!r}",
                hint="Name it in the statistics of DataStatistics.",
            )
        found[name] = metrics[one.metric]
    return found


def _values_of(
    part: ComponentPart, one: FilterRound, names: Sequence[str], known: Mapping[str, float | None]
) -> list[float]:
    """Return known numbers by name, infinite (on the side that goes) where there is none."""
    missing = [name for name in names if name not in known]
    if missing:
        raise UsageError(
            f"{part.component}: {one.method} knows nothing about {missing[0]!r} of {part.here}",
            hint="Let the component of the isometric model have this column, or leave it out of select_names.",
        )
    worst = -math.inf if one.high else math.inf
    return [worst if known[name] is None else float(known[name] or 0.0) for name in names]


def _measured(part: ComponentPart, one: FilterRound, frame: PartyFrame, name: str) -> float:
    """Return a number of a column; for PERCENTAGE the rows that have its most frequent value."""
    values = numbers_of(part, frame, name)
    known = values[~np.isnan(values)]
    if not len(known):
        raise UsageError(f"{part.component}: column {name!r} at {part.here} has no values")
    if one.source == UNIQUE:
        return float(known.std())
    if one.source == VARIATION:
        mean = abs(float(known.mean()))
        return float(known.std()) / max(mean, _LEAST_MEAN)
    if one.source == OUTLIER:
        return float(np.quantile(known, float(one.metric), method="inverted_cdf"))
    return int(np.unique(np.round(known, _DIGITS), return_counts=True)[1].max())


def picked(values: Sequence[float], one: FilterRound, limits: Sequence[float] | None = None) -> Array:
    """Return which of the values stay: by threshold, or the best ones; of equal ones the first.

    `limits` has a threshold for each value.
    """
    found = np.asarray(values, dtype=float)
    if one.kind == THRESHOLD:
        bounds = np.full(len(found), one.limit) if limits is None else np.asarray(limits)
        return found >= bounds if one.high else found <= bounds
    count = math.ceil(one.limit * len(found)) if one.kind == TOP_PERCENTILE else int(one.limit)
    mask = np.zeros(len(found), dtype=bool)
    mask[np.argsort(-found if one.high else found, kind="stable")[:count]] = True
    return mask


def at_least_one(mask: Array, values: Sequence[float], *, high: bool) -> Array:
    """Return a mask with its best value if it is empty, so that no party loses all features."""
    if not len(mask) or mask.any():
        return mask
    kept = mask.copy()
    kept[int(np.argmax(values) if high else np.argmin(values))] = True
    return kept


def merged_iv(results: Sequence[Mapping[str, Mapping[str, Any]]], merge: str) -> dict[str, float]:
    """Return the information value of each feature; those of several classes as their average, maximum or minimum."""
    found = {}
    for name in results[0] if results else ():
        values = np.array([one[name]["iv"] for one in results])
        found[name] = float(values.max() if merge == "max" else values.min() if merge == "min" else values.mean())
    return found


def uncorrelated(
    order: Sequence[tuple[str, str]],
    correlations: Mapping[tuple[tuple[str, str], tuple[str, str]], float],
    limit: float,
) -> set[tuple[str, str]]:
    """Return the features that stay: in this order each removes later ones whose correlation exceeds the limit.

    Features are pairs of party and name. A pair without a known correlation counts as uncorrelated.
    """
    kept: list[tuple[str, str]] = []
    for one in order:
        pairs = ((one, other) for other in kept)
        if all(abs(correlations.get(pair, correlations.get(pair[::-1], 0.0))) <= limit for pair in pairs):
            kept.append(one)
    return set(kept)
