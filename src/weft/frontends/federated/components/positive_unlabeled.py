"""PositiveUnlabeled: labels for rows of the guest that have none, by the scores of a classifier before it.

Rows with label 0 count as unlabeled. Its inputs are the rows of the guest and the predictions for them. Nothing is
sent; hosts keep their rows. Strategies are those of FATE: `probability` takes rows from a score on, `quantity` so many
unlabeled rows with the highest scores, `proportion` those among this share of all rows with the highest scores, and
`distribution` those among the first `threshold` times the share of unlabeled rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import GUEST, ComponentPart, PartOutput
from weft.frontends.federated.components.inputs import labels_of, number, word
from weft.frontends.federated.components.predictions import SCORE, is_predictions
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_PROBABILITY, _QUANTITY, _PROPORTION, _DISTRIBUTION = "probability", "quantity", "proportion", "distribution"
_STRATEGIES: Final = (_PROBABILITY, _QUANTITY, _PROPORTION, _DISTRIBUTION)
_UNLABELED, _POSITIVE = 0, 1


def run(part: ComponentPart) -> PartOutput:
    """Return the rows with more labels. UsageError: a parameter, a label or an input is not possible."""
    strategy, threshold = word(part, "strategy", _PROBABILITY, *_STRATEGIES), number(part, "threshold", 0.9, least=0)
    if strategy in (_PROBABILITY, _PROPORTION) and threshold > 1:
        raise UsageError(f"{part.component}: threshold is {threshold:g}; with {strategy} it must be from 0 to 1")
    if strategy == _QUANTITY and (threshold != int(threshold) or threshold < 1):
        raise UsageError(f"{part.component}: threshold is {threshold:g}; it must be a whole number from 1 on")
    frames = [one for frames in part.data.values() for one in frames]
    rows = [one for one in frames if not is_predictions(one)]
    if len(rows) != 1:
        raise UsageError(
            f"{part.component} has {len(rows)} inputs with rows at {part.here}", hint="Give it rows and predictions."
        )
    if part.here.role != GUEST:
        return PartOutput(data=(rows[0],))
    predictions = [one for one in frames if is_predictions(one)]
    if len(predictions) != 1:
        raise UsageError(
            f"{part.component} has {len(predictions)} inputs with predictions at {part.here}",
            hint="Give it the rows and the output of one classifier.",
        )
    frame = rows[0]
    labels = labels_of(part, frame)
    if not np.isin(labels, (_UNLABELED, _POSITIVE)).all():
        raise UsageError(
            f"{part.component}: labels at {part.here} are not 0 for unlabeled rows and 1", hint="Use LabelTransform."
        )
    changed = _chosen(labels, _scores(part, frame, predictions[0]), strategy, threshold)
    count = int(changed.sum())
    part.tracker.metric("train", "count of converted unlabeled", count)
    part.tracker.summary({"count of converted unlabeled": count})
    found = np.where(changed, _POSITIVE, labels).astype(labels.dtype)
    return PartOutput(data=(replace(frame, columns={**frame.columns, frame.label: found}),))


def _scores(part: ComponentPart, frame: PartyFrame, predictions: PartyFrame) -> Array:
    """Return the score of each row. UsageError: a row has none, or scores are no probabilities."""
    known = dict(zip(predictions.ids.tolist(), predictions.columns[SCORE].tolist(), strict=True))
    missing = [id for id in frame.ids.tolist() if id not in known]
    if missing:
        raise UsageError(
            f"{part.component}: {len(missing)} rows of {part.here} have no prediction",
            hint="Give it the predictions for the same rows.",
        )
    found = np.array([known[id] for id in frame.ids.tolist()], dtype=float)
    if len(found) and not ((found >= 0) & (found <= 1)).all():
        raise UsageError(f"{part.component}: scores are no probabilities", hint="Use a classifier of two labels.")
    return found


def _chosen(labels: Array, scores: Array, strategy: str, threshold: float) -> Array:
    """Return which unlabeled rows become positive; of equal scores the first rows."""
    free: Array = labels == _UNLABELED
    if strategy == _PROBABILITY:
        return free & (scores >= threshold)
    order = np.argsort(-scores, kind="stable")
    if strategy == _QUANTITY:
        order = order[free[order]]
        first = int(threshold)
    elif strategy == _PROPORTION:
        first = int(len(labels) * threshold)
    else:
        first = int(free.sum() / max(1, len(labels)) * threshold)
    among = np.zeros(len(labels), dtype=bool)
    among[order[:first]] = True
    return free & among
