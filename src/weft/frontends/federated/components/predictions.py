"""Frames of predictions, with the columns of FATE: label, predict_result, predict_score, predict_detail and type.

With two classes the score is the probability of the second one; with more, that of the predicted class; in a
regression it is the predicted value. `predict_detail` is JSON: the probability of each class.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

LABEL, RESULT, SCORE, DETAIL, TYPE = "label", "predict_result", "predict_score", "predict_detail", "type"
TRAIN, VALIDATE, TEST = "train", "validate", "test"
_COLUMNS: Final = (LABEL, RESULT, SCORE, DETAIL, TYPE)
Array = np.ndarray[Any, Any]


class Predictions(NamedTuple):
    """Predictions as arrays: labels (None if unknown), results, scores, and probabilities of shape (rows, classes)."""

    labels: Array | None
    results: Array
    scores: Array
    classes: list[Any]
    probabilities: Array | None
    kind: str


def regression_frame(frame: PartyFrame, values: Array, kind: str) -> PartyFrame:
    """Return the predictions of a regression for the rows of a frame."""
    details = [json.dumps({LABEL: float(one)}) for one in values]
    return _frame(frame, values.astype(float), values.astype(float), details, kind)


def class_frame(
    frame: PartyFrame, probabilities: Array, classes: list[Any], kind: str, *, threshold: float = 0.5
) -> PartyFrame:
    """Return the predictions of classes for the rows of a frame. `probabilities` has shape (rows, classes).

    With two classes `threshold` is the least score of the second one.
    """
    names = [str(one) for one in classes]
    if len(classes) == 2:
        chosen = (probabilities[:, 1] >= threshold).astype(int)
        scores = probabilities[:, 1]
    else:
        chosen = probabilities.argmax(axis=1)
        scores = probabilities[np.arange(len(chosen)), chosen]
    details = [json.dumps(dict(zip(names, map(float, row), strict=True))) for row in probabilities]
    return _frame(frame, np.asarray(classes)[chosen], scores, details, kind)


def _frame(frame: PartyFrame, results: Array, scores: Array, details: list[str], kind: str) -> PartyFrame:
    labels = frame.y
    columns = {
        LABEL: np.full(len(frame), np.nan) if labels is None else labels,
        RESULT: results,
        SCORE: scores,
        DETAIL: np.array(details, dtype=object),
        TYPE: np.array([kind] * len(frame), dtype=object),
    }
    return replace(frame, columns=columns, label=LABEL, weight="")


def joined(frames: Sequence[PartyFrame | None]) -> PartyFrame | None:
    """Return the rows of several frames with the same columns as one; None if there is none."""
    found = [one for one in frames if one is not None]
    if not found:
        return None
    columns = {name: np.concatenate([one.columns[name] for one in found]) for name in found[0].columns}
    return replace(found[0], ids=np.concatenate([one.ids for one in found]), columns=columns)


def is_predictions(frame: PartyFrame) -> bool:
    """Whether a frame has predictions."""
    return all(name in frame.columns for name in _COLUMNS)


def read_predictions(frame: PartyFrame) -> list[Predictions]:
    """Return the predictions of a frame, for each type. UsageError: it has none."""
    if not is_predictions(frame):
        raise UsageError("the rows are no predictions", hint="Put Evaluation behind a component that predicts.")
    found = []
    kinds = frame.columns[TYPE]
    for kind in dict.fromkeys(kinds.tolist()):
        rows = frame.take(kinds == kind)
        details = [json.loads(one) for one in rows.columns[DETAIL]]
        classes = list(details[0]) if details else []
        is_class = classes != [LABEL]
        labels = rows.columns[LABEL]
        known = labels.dtype.kind != "f" or not np.isnan(labels).all()
        probabilities = np.array([[one[name] for name in classes] for one in details]) if is_class else None
        found.append(
            Predictions(
                labels if known else None, rows.columns[RESULT], rows.columns[SCORE], classes, probabilities, str(kind)
            )
        )
    return found
