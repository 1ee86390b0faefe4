"""Scorecard: predicted probabilities as credit scores, which rise by `factor` when the odds of the first class double.

The score is `offset + factor / ln(factor_base) * ln((1 - p) / p)` with the probability p of the second class, between
`lower_limit_value` and `upper_limit_ratio * offset`. The party with the predictions computes it; others do nothing.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.inputs import number, only_frame, word
from weft.frontends.federated.components.predictions import LABEL, RESULT, SCORE, read_predictions
from weft.model.errors import UsageError

CREDIT_SCORE: Final = "credit_score"
_ALMOST: Final = 1e-8
Array = np.ndarray[Any, Any]


def run(part: ComponentPart) -> PartOutput:
    """Compute credit scores. UsageError: a parameter is not possible, or the rows are no predictions of two classes."""
    word(part, "method", "credit", "credit")
    offset, factor = number(part, "offset", 500), number(part, "factor", 20)
    base = number(part, "factor_base", 2)
    if base <= 0 or base == 1:
        raise UsageError(f"{part.component}: factor_base is {base:g}; it must be positive, and not 1")
    lower, upper = number(part, "lower_limit_value", 0), number(part, "upper_limit_ratio", 3) * offset
    if lower > upper:
        raise UsageError(
            f"{part.component}: lower_limit_value is {lower:g}, and the upper limit {upper:g}",
            hint="The upper limit is upper_limit_ratio * offset.",
        )
    if not any(part.data.values()):
        return PartOutput()
    frame = only_frame(part)
    if any(one.probabilities is None or len(one.classes) != 2 for one in read_predictions(frame)):
        raise UsageError(
            f"{part.component}: the predictions are not those of two classes", hint="Put it behind a classification."
        )
    scores = _credit(frame.columns[SCORE].astype(float), offset, factor / math.log(base), lower, upper)
    columns = {name: frame.columns[name] for name in (LABEL, RESULT, SCORE)} | {CREDIT_SCORE: scores}
    part.tracker.summary({"scorecard_compute_formula": f"Score = {offset} + {factor} / ln({base}) * ln(Odds)"})
    return PartOutput(data=(replace(frame, columns=columns),))


def _credit(probabilities: Array, offset: float, step: float, lower: float, upper: float) -> Array:
    """Return the score of each row, with two digits; a probability of 0 has the upper limit, one of 1 the lower one."""
    inner = np.clip(probabilities, _ALMOST, 1 - _ALMOST)
    scores = offset + step * np.log((1 - inner) / inner)
    scores = np.where(probabilities <= _ALMOST, upper, np.where(probabilities >= 1 - _ALMOST, lower, scores))
    found: Array = np.round(np.clip(scores, lower, upper), 2)
    return found
