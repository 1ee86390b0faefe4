"""Validation while a model is trained, and an early end by it: parameters with the names of FATE, and the metrics.

`validation_freqs` says after which rounds the rows that validate are predicted: every N-th one, or those of a list
that counts from 0. With `early_stopping_rounds` the training ends when a metric has not improved for so many
validations, and the model of its best round is kept; without such an end that of the best round by the first metric.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct

from weft.frontends.federated.components.evaluation import (
    BINARY,
    MULTI,
    REGRESSION,
    binary_metrics,
    multi_metrics,
    regression_metrics,
)
from weft.frontends.federated.components.inputs import group, labels_of, validation_frame
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart, PartTracker
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_MEASURES: Final[Mapping[str, Callable[[Array, Array], dict[str, float]]]] = {
    BINARY: binary_metrics,
    MULTI: multi_metrics,
    REGRESSION: regression_metrics,
}
_DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    BINARY: ("auc", "ks"),
    MULTI: ("accuracy", "precision", "recall"),
    REGRESSION: ("root_mean_squared_error", "mean_absolute_error"),
}
_KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    BINARY: ("auc", "ks", "accuracy", "precision", "recall", "f1_score"),
    MULTI: ("accuracy", "precision", "recall"),
    REGRESSION: (
        "r2_score",
        "root_mean_squared_error",
        "mean_squared_error",
        "mean_absolute_error",
        "median_absolute_error",
        "explained_variance",
    ),
}
_SHORT: Final[Mapping[str, str]] = {
    "acc": "accuracy",
    "r2": "r2_score",
    **dict.fromkeys(("l1", "mae", "regression_l1"), "mean_absolute_error"),
    **dict.fromkeys(("l2", "mse", "regression_l2", "regression"), "mean_squared_error"),
    **dict.fromkeys(("l2_root", "rmse"), "root_mean_squared_error"),
}
"""The short names of FATE."""
_CURVES: Final = ("lift", "gain", "roc", "confusion_mat", "quantile_pr", "psi")
"""What Evaluation of FATE takes as a metric, too, and is no single number."""
_CALLBACKS: Final = ("EarlyStopping", "PerformanceEvaluate")
_NAMES: Final = ("validation_freqs", "early_stopping_rounds", "metrics", "use_first_metric_only")


class Validation(Struct, frozen=True):
    """What a file asks for: rounds that are validated, validations without improvement (0: no end), and metrics."""

    freqs: int | list[int]
    patience: int
    kind: str
    metrics: list[str]
    first_only: bool

    def measure(self, truth: Array, values: Array) -> dict[str, float]:
        """Return the metrics. `truth` is boolean and `values` are scores of two classes, or labels and predictions."""
        found = _MEASURES[self.kind](truth, values)
        return {name: found[name] for name in self.metrics}


def is_due(freqs: int | list[int], at: int) -> bool:
    """Whether the round `at`, from 0 on, is validated."""
    return (at + 1) % freqs == 0 if isinstance(freqs, int) else at in freqs


def asked_early_stop(part: ComponentPart) -> bool:
    """Whether a file asks for an early end by a metric."""
    return bool(_given(part).get("early_stopping_rounds"))


def validation_of(part: ComponentPart, kind: str) -> Validation | None:
    """Return what the file of the guest asks for; None: nothing, or no rows validate. `kind` is that of Evaluation.

    UsageError: a parameter is not possible, or an early end has no rows to go by.
    """
    given = _given(part)
    freqs, patience = given.get("validation_freqs"), given.get("early_stopping_rounds")
    if patience is not None and (isinstance(patience, bool) or not isinstance(patience, int) or patience < 1):
        raise UsageError(
            f"{part.component}: early_stopping_rounds is {patience!r}; it must be a whole number from 1 on"
        )
    if patience and not freqs:
        raise UsageError(
            f"{part.component}: early_stopping_rounds is set, and validation_freqs is not",
            hint="Set validation_freqs to 1 to validate after each round.",
        )
    if not freqs:
        return None
    whole = [freqs] if isinstance(freqs, int) else freqs
    if not isinstance(whole, list) or any(isinstance(one, bool) or not isinstance(one, int) for one in whole):
        raise UsageError(
            f"{part.component}: validation_freqs is {freqs!r}; it must be a whole number or a list of them"
        )
    if isinstance(freqs, int) and (freqs < 1 or isinstance(freqs, bool)):
        raise UsageError(f"{part.component}: validation_freqs is {freqs!r}; it must be from 1 on")
    metrics = _metrics(part, kind, given.get("metrics"))
    if validation_frame(part) is None:
        if patience:
            raise UsageError(
                f"{part.component}: early_stopping_rounds needs rows that validate, and {part.here} has none",
                hint="Give the component validate_data.",
            )
        part.tracker.log("validation_freqs has no effect: there are no rows that validate")
        return None
    return Validation(freqs, patience or 0, kind, metrics, bool(given.get("use_first_metric_only")))


def _given(part: ComponentPart) -> dict[str, Any]:
    """Return the parameters, which stand alone in older files; the group counts if it names a callback for them."""
    found = {name: part.parameters[name] for name in _NAMES if part.parameters.get(name)}
    callbacks = group(part, "callback_param")
    if any(name in (callbacks.get("callbacks") or ()) for name in _CALLBACKS):
        found |= {name: callbacks[name] for name in _NAMES if callbacks.get(name)}
    return found


def _metrics(part: ComponentPart, kind: str, given: Any) -> list[str]:
    """Return the metrics that are numbers, in the order of the file. UsageError: one is unknown, or none is left."""
    listed = [given] if isinstance(given, str) else list(given or _DEFAULTS[kind])
    asked = list(dict.fromkeys(_SHORT.get(name, name) for name in (str(one).lower() for one in listed)))
    unknown = [name for name in asked if name not in (*_KNOWN[kind], *_CURVES)]
    found = [name for name in asked if name in _KNOWN[kind]]
    if unknown or not found:
        raise UsageError(
            f"{part.component}: metrics has {(unknown or asked)[0]!r}, which is no number that validates",
            hint=f"Use some of {', '.join(_KNOWN[kind])}.",
        )
    return found


class ValidationRows:
    """The rows that validate at the guest, with their labels."""

    def __init__(self, part: ComponentPart, frame: PartyFrame) -> None:
        self.component, self.frame, self.labels = part.component, frame, labels_of(part, frame)

    def truth(self, kind: Any) -> Array:
        """Return which labels are of a class. UsageError: all are, or none, so that no metric can tell them apart."""
        found: Array = self.labels == kind
        if found.all() or not found.any():
            raise UsageError(
                f"{self.component}: the rows that validate have labels of only one class",
                hint="Leave validation_freqs out, or choose other rows for validate_data.",
            )
        return found


class ValidationHistory:
    """The metrics of a training by round, and what was kept of the best rounds. `mark` ends the names of curves."""

    def __init__(self, tracker: PartTracker, validation: Validation, mark: str = "") -> None:
        self._tracker, self._validation, self._mark = tracker, validation, mark
        self._curves: dict[str, list[tuple[float, float]]] = {name: [] for name in validation.metrics}
        self._best: dict[str, tuple[float, int, Any]] = {}
        self._without: dict[str, int] = {}
        self._first, self._halted = validation.metrics[0], ""

    def see(self, at: int, metrics: Mapping[str, float], state: Any) -> bool:
        """Keep the metrics of a round, and `state` if one is the best so far. Return whether the training ends."""
        for name, value in metrics.items():
            self._curves[name].append((float(at), value))
            worth = value if name in _LARGER else -value
            if name not in self._best or worth > self._best[name][0]:
                self._best[name], self._without[name] = (worth, at, state), 0
            else:
                self._without[name] += 1
        if not self._validation.patience:
            return False
        counted = self._validation.metrics[:1] if self._validation.first_only else self._validation.metrics
        over = [name for name in counted if self._without[name] >= self._validation.patience]
        self._halted = over[0] if over else ""
        return bool(over)

    @property
    def best(self) -> tuple[int, Any] | None:
        """The round whose model is kept and what was kept of it; None: the last one is."""
        name = self._halted or self._first
        return self._best[name][1:] if self._validation.patience and name in self._best else None

    def close(self) -> dict[str, Any]:
        """Tell the curves, and return what the summary says."""
        for name, points in self._curves.items():
            if points:
                self._tracker.curve("validate", f"{name}{self._mark}", points, kind=name.upper())
        found = {"validation": {name: [value for _, value in points] for name, points in self._curves.items()}}
        return found | ({"best_iteration": self.best[0], "is_early_stopped": bool(self._halted)} if self.best else {})


_LARGER: Final = ("auc", "ks", "accuracy", "precision", "recall", "f1_score", "r2_score", "explained_variance")
