"""Evaluation: metrics and curves of predictions. Each party evaluates the predictions that it has.

Metrics stand in the namespace of the kind of rows, such as `train`; where several components have made the predictions,
in one for each, such as `train/hetero_lr_0`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.columns import are_among, value_key
from weft.frontends.federated.components.inputs import word
from weft.frontends.federated.components.predictions import Predictions, is_predictions, read_predictions
from weft.model.errors import UsageError

BINARY, REGRESSION, MULTI, CLUSTERING = "binary", "regression", "multi", "clustering"
_POINTS: Final = 200
_MOST_CLASSES: Final = 20
"""Of more classes there is no confusion matrix: nobody reads it."""
Array = np.ndarray[Any, Any]


def run(part: ComponentPart) -> PartOutput:
    """Evaluate. UsageError: there are no predictions, or no labels, or an unknown eval_type."""
    kind = word(part, "eval_type", BINARY, BINARY, REGRESSION, MULTI, CLUSTERING)
    frames = [one for found in part.data.values() for one in found]
    makers = [name for found in part.sources.values() for name in found] or [""] * len(frames)
    several = len({name for name, frame in zip(makers, frames, strict=True) if is_predictions(frame)}) > 1
    outputs = []
    confusions: dict[str, Any] = {}
    for maker, frame in zip(makers, frames, strict=True):
        if not is_predictions(frame):
            part.tracker.log(f"{part.here} has no predictions to evaluate")
            continue
        outputs.append(frame)
        for found in read_predictions(frame):
            if found.labels is None:
                raise UsageError(f"{part.component}: the predictions have no labels", hint="Set need_run to false.")
            namespace = f"{found.kind}/{maker}" if several else found.kind
            metrics = _evaluated(part, found, kind, namespace)
            for name, value in metrics.items():
                part.tracker.metric(namespace, name, value)
            part.tracker.summary({namespace: metrics})
            if confusion := confusion_of(part, found, kind):
                confusions[namespace] = confusion
                part.tracker.summary({"confusion": confusions})
            part.tracker.log(f"{namespace}: {', '.join(f'{name} {value:.6g}' for name, value in metrics.items())}")
    if frames and not outputs:
        raise UsageError(
            f"{part.component}: the rows at {part.here} are no predictions",
            hint="Let it read the data output of a component that predicts.",
        )
    return PartOutput(data=tuple(outputs[:1]))


def _evaluated(part: ComponentPart, found: Predictions, kind: str, namespace: str) -> dict[str, float]:
    assert found.labels is not None
    if kind == REGRESSION:
        return regression_metrics(found.labels.astype(float), found.scores.astype(float))
    if kind == MULTI:
        return multi_metrics(found.labels, found.results)
    if kind == CLUSTERING:
        return clustering_metrics(found.labels, found.results)
    truth, scores, _ = _oriented(part, found)
    if truth.all() or not truth.any():
        raise UsageError(
            f"{part.component}: all labels of the {found.kind} rows are the same, and nothing can be told apart",
            hint="Give it rows of both classes.",
        )
    for name, points in binary_curves(truth, scores).items():
        part.tracker.curve(namespace, name, points, kind=f"{name.partition('_')[0].upper()}_EVALUATION")
    return binary_metrics(truth, scores)


def _oriented(part: ComponentPart, found: Predictions) -> tuple[Array, Array, str]:
    """Return which rows have the positive label, how probable it is for each, and the label.

    UsageError: the predictions are no classes, or pos_label is none of the two. By default it is 1, else the second.
    """
    assert found.labels is not None
    if found.probabilities is None or len(found.classes) != 2:
        what = "numbers" if found.probabilities is None else f"{len(found.classes)} classes"
        raise UsageError(
            f"{part.component}: eval_type binary needs predictions of two classes, and these are of {what}",
            hint="Set eval_type to regression or multi.",
        )
    asked = part.parameters.get("pos_label", 1)
    key = value_key(int(asked) if isinstance(asked, bool) else asked)
    at = next((at for at, one in enumerate(found.classes) if value_key(one) == key), None)
    if at is None and "pos_label" in part.parameters and key != "1":
        part.tracker.log(f"the labels are {found.classes[0]} and {found.classes[1]}, and pos_label is {asked}")
        raise UsageError(
            f"{part.component}: pos_label is {asked!r}, which is neither of the two labels at {part.here}",
            hint="Set pos_label to the label whose probability is the score. The log of the component at this party "
            "names both.",
        )
    at = 1 if at is None else at
    positive = found.classes[at]
    truth = are_among(found.labels, {value_key(positive)})
    return truth, found.probabilities[:, at].astype(float), str(positive)


def confusion_of(part: ComponentPart, found: Predictions, kind: str) -> dict[str, Any]:
    """Return `classes`, and `counts` of rows by label and then by prediction; empty where there are no classes.

    Of two classes the positive one is the second, and is predicted from a score of 0.5 on, as in the metrics.
    """
    if kind == BINARY:
        truth, scores, positive = _oriented(part, found)
        chosen = scores >= 0.5
        classes = ["others", positive]
        counts = [[int(((truth == is_so) & (chosen == guessed)).sum()) for guessed in (0, 1)] for is_so in (0, 1)]
        return {"classes": classes, "counts": counts}
    if kind != MULTI or found.labels is None:
        return {}
    known, guessed = found.labels.astype(str), found.results.astype(str)
    classes = np.unique(np.concatenate([known, guessed])).tolist()
    if len(classes) > _MOST_CLASSES:
        return {}
    return {
        "classes": classes,
        "counts": [[int(((known == row) & (guessed == column)).sum()) for column in classes] for row in classes],
    }


def metrics_of(found: Predictions) -> dict[str, float]:
    """Return the metrics of predictions with labels, by what they predict; empty if two classes are only one here."""
    assert found.labels is not None
    if found.probabilities is None:
        return regression_metrics(found.labels.astype(float), found.scores.astype(float))
    if len(found.classes) > 2:
        return multi_metrics(found.labels, found.results)
    truth = are_among(found.labels, {value_key(found.classes[1])})
    return {} if truth.all() or not truth.any() else binary_metrics(truth, found.scores.astype(float))


def binary_metrics(truth: Array, scores: Array) -> dict[str, float]:
    """Return the metrics of scores of two classes; `truth` is boolean. Ties count half in the AUC."""
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    values, inverse, counts = np.unique(scores[order], return_inverse=True, return_counts=True)
    del values
    last = np.cumsum(counts)
    ranks[order] = ((last - counts + 1 + last) / 2)[inverse]
    positives, negatives = int(truth.sum()), int((~truth).sum())
    auc = (ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    hits, alarms = _rates(truth, scores)
    chosen = scores >= 0.5
    right = int((chosen & truth).sum())
    precision = right / max(1, int(chosen.sum()))
    recall = right / positives
    return {
        "auc": float(auc),
        "ks": float(np.max(np.abs(hits - alarms))),
        "accuracy": float((chosen == truth).mean()),
        "precision": precision,
        "recall": recall,
        "f1_score": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
    }


def _rates(truth: Array, scores: Array) -> tuple[Array, Array]:
    """Return the shares of positives and of negatives at or above each distinct score, from 0 to 1."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits, alarms = np.cumsum(truth[order])[ends], np.cumsum(~truth[order])[ends]
    return np.concatenate(([0.0], hits / hits[-1])), np.concatenate(([0.0], alarms / alarms[-1]))


def binary_curves(truth: Array, scores: Array) -> dict[str, list[tuple[float, float]]]:
    """Return curves by the names of FATE.

    `roc` has the true by the false positive rate; `ks_tpr` and `ks_fpr` have both, `gain` the true one and `lift` its
    ratio to a random choice by the share of rows with the highest scores; `accuracy`, `precision` and `recall` are
    those of each threshold of the score.
    """
    hits, alarms = _rates(truth, scores)
    positives, total = int(truth.sum()), len(truth)
    negatives = total - positives
    share = (hits * positives + alarms * negatives) / total
    lift = np.divide(hits, share, out=np.ones_like(hits), where=share > 0)
    right = hits[1:] * positives
    thresholds = np.unique(scores)
    by_threshold = {
        "accuracy": (right + negatives - alarms[1:] * negatives) / total,
        "precision": right / (share[1:] * total),
        "recall": hits[1:],
    }
    by_share = {"ks_fpr": alarms, "ks_tpr": hits, "gain": hits, "lift": lift}
    curves = {"roc": (alarms, hits)} | {name: (share, one) for name, one in by_share.items()}
    curves |= {name: (thresholds, one[::-1]) for name, one in by_threshold.items()}
    return {name: _thinned(x, y) for name, (x, y) in curves.items()}


def _thinned(x: Array, y: Array) -> list[tuple[float, float]]:
    places = np.unique(np.linspace(0, len(x) - 1, min(len(x), _POINTS)).astype(int))
    return [(float(x[at]), float(y[at])) for at in places]


def regression_metrics(truth: Array, values: Array) -> dict[str, float]:
    """Return the metrics of predicted numbers."""
    errors = truth - values
    spread = float(((truth - truth.mean()) ** 2).sum())
    variance = float(truth.var())
    return {
        "r2_score": 1.0 - float((errors**2).sum()) / spread if spread else 0.0,
        "root_mean_squared_error": float(np.sqrt((errors**2).mean())),
        "mean_squared_error": float((errors**2).mean()),
        "mean_absolute_error": float(np.abs(errors).mean()),
        "median_absolute_error": float(np.median(np.abs(errors))),
        "explained_variance": 1.0 - float(errors.var()) / variance if variance else 0.0,
    }


def multi_metrics(truth: Array, results: Array) -> dict[str, float]:
    """Return the metrics of predicted classes; precision and recall are means over classes."""
    known, guessed = truth.astype(str), results.astype(str)
    precisions, recalls = [], []
    for one in np.unique(known):
        right = int(((known == one) & (guessed == one)).sum())
        precisions.append(right / max(1, int((guessed == one).sum())))
        recalls.append(right / int((known == one).sum()))
    return {
        "accuracy": float((known == guessed).mean()),
        "precision": float(np.mean(precisions)),
        "recall": float(np.mean(recalls)),
    }


def clustering_metrics(truth: Array, results: Array) -> dict[str, float]:
    """Return how well clusters agree with labels: the indices of Jaccard, of Fowlkes and Mallows, and of Rand."""
    _, known = np.unique(truth.astype(str), return_inverse=True)
    _, guessed = np.unique(results.astype(str), return_inverse=True)
    table = np.zeros((known.max() + 1, guessed.max() + 1))
    np.add.at(table, (known, guessed), 1)
    both = float((table * (table - 1)).sum() / 2)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    same_label = float((rows * (rows - 1)).sum() / 2)
    same_cluster = float((columns * (columns - 1)).sum() / 2)
    pairs = len(truth) * (len(truth) - 1) / 2
    expected = same_label * same_cluster / pairs if pairs else 0.0
    most = (same_label + same_cluster) / 2
    return {
        "jaccard_similarity_score": both / max(1.0, same_label + same_cluster - both),
        "fowlkes_mallows_score": both / max(1.0, np.sqrt(same_label * same_cluster)),
        "adjusted_rand_score": (both - expected) / (most - expected) if most != expected else 1.0,
    }
