"""PSI: the population stability index of each feature between two tables of a party, such as two years.

The bins are quantiles of the first table (`train_data`); missing values are a bin of their own. The index is the sum of
`(b - a) * ln(b / a)` over the bins, with the shares of rows a and b; an empty bin counts as a share of 10^-6, as in
FATE. Each party compares its own tables, and sends nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.bins import bin_codes, quantile_edges
from weft.frontends.federated.components.columns import ANONYMOUS, anonymous_names, numbers_of
from weft.frontends.federated.components.inputs import number, only_frame, whole_number
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_LEAST_SHARE: Final = 1e-6


def run(part: ComponentPart) -> PartOutput:
    """Compare two tables. UsageError: one is missing, is empty, or has other features; a parameter is not possible."""
    if part.models.get("model"):
        return PartOutput()
    count = whole_number(part, "max_bin_num", 20, least=1)
    number(part, "binning_error", 0.001, least=0.0)
    expected, actual = only_frame(part, "train_data"), only_frame(part, "validate_data", "eval_data", "test_data")
    if set(expected.features) != set(actual.features):
        raise UsageError(f"{part.component}: the tables at {part.here} have different features")
    if not len(expected) or not len(actual):
        raise UsageError(f"{part.component}: a table at {part.here} has no rows")
    found = {name: _compared(part, expected, actual, name, count) for name in expected.features}
    scores = {name: one["total"] for name, one in found.items()}
    for name, one in found.items():
        part.tracker.metric("psi", name, one["total"])
        points = [(float(bin), value) for bin, value in enumerate(one["parts"])]
        part.tracker.curve("psi", name, points, kind="PSI")
    part.tracker.summary({"psi_scores": scores})
    model = {"kind": part.module, "psi": scores, "columns": found, ANONYMOUS: anonymous_names(part, expected)}
    return PartOutput(model=model)


def _compared(part: ComponentPart, expected: PartyFrame, actual: PartyFrame, name: str, count: int) -> dict[str, Any]:
    """Return the index of a feature, its parts by bin, and the shares of the rows of both tables."""
    before, after = (_values(part, frame, name) for frame in (expected, actual))
    if np.isnan(before).all():
        raise UsageError(f"{part.component}: column {name!r} of train_data at {part.here} has no values")
    edges = quantile_edges(before, count)
    shares = [np.bincount(bin_codes(one, edges), minlength=len(edges) + 1) / len(one) for one in (before, after)]
    a, b = (np.maximum(one, _LEAST_SHARE) for one in shares)
    parts = (b - a) * np.log(b / a)
    return {
        "total": float(parts.sum()),
        "parts": parts.tolist(),
        "edges": edges,
        "expected": shares[0].tolist(),
        "actual": shares[1].tolist(),
    }


def _values(part: ComponentPart, frame: PartyFrame, name: str) -> Array:
    values, missing = numbers_of(part, frame, name), part.parameters.get("dense_missing_val")
    if missing is None:
        return values
    try:
        return np.where(values == float(missing), np.nan, values)
    except (TypeError, ValueError):
        raise UsageError(f"{part.component}: dense_missing_val is {missing!r}; it must be a number") from None
