"""HomoLR: logistic regression over the rows of guest and hosts, which have the same columns, with an arbiter.

With full batches and `aggregate_iters` 1 a round is one step along the summed gradient, so the model is that of the
pooled rows with every optimizer. Otherwise each party takes its own steps over its batches, and the weights of a round
are the mean of theirs by row counts (McMahan and others 2017); `use_proximal` draws own steps towards the weights of
the last round (Li and others 2020). More than two classes are trained one against the rest. Predictions are local.

Who learns what: see `horizontal`. All data parties have the whole model, as in FATE without encryption. FATE's
encrypted hosts do not see it; here `encrypt_param` with Paillier asks for what the masks give, and hosts do see it.
With one guest and one host, each can compute the gradient sum, or the weights, of the other in each round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from weft.frontends.federated.components.base import ARBITER, ComponentPart, PartOutput
from weft.frontends.federated.components.cross_validation import cross_validated
from weft.frontends.federated.components.evaluation import binary_metrics
from weft.frontends.federated.components.horizontal import HorizontalSums, arbitrate
from weft.frontends.federated.components.inputs import (
    columns_of,
    group,
    labels_of,
    number,
    only_frame,
    refuse,
    refuse_weights,
    threshold_of,
    validation_frame,
    word,
)
from weft.frontends.federated.components.links import one_against_rest
from weft.frontends.federated.components.losses import tell_losses
from weft.frontends.federated.components.optimizers import Optimizer, Training, first_weights, settings_of, training_of
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, class_frame, joined
from weft.frontends.federated.components.validation import asked_early_stop
from weft.frontends.federated.components.warm_start import Beginning, beginning_of, classes_before, linear_rounds
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

_MASKED_NOTE: Final = (
    "encrypt_param asks for Paillier: updates travel under pairwise masks instead, and hosts have the whole model"
)
_METHODS: Final = ("paillier", "iterativeaffine", "randomiterativeaffine")
Array = np.ndarray[Any, Any]


class _Rounds(Struct, frozen=True, kw_only=True):
    """The parameters of the rounds."""

    aggregate_iters: int
    shuffle: bool
    mu: float
    validation_freqs: int
    threshold: float


@cross_validated(own_rows=True)
def run(part: ComponentPart) -> PartOutput:
    """Train, or predict with a model. UsageError: a parameter or a label is not possible."""
    refuse(part, {"stepwise_param": "need_stepwise"})
    if asked_early_stop(part):
        raise UsageError(
            f"{part.component}: early_stopping_rounds is not supported", hint="Leave it out; see early_stop."
        )
    begin = beginning_of(part, linear_rounds)
    if not begin.trains:
        if part.here.role == ARBITER:
            return PartOutput()
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        return PartOutput(data=(_scored(part, frame, begin.model, TEST),))
    training, rounds, notes = training_of(part), _rounds_of(part), _notes_of(part)
    if part.here.role == ARBITER:
        arbitrate(part)
        return PartOutput()
    frame = only_frame(part, "train_data", "data")
    refuse_weights(part, frame)
    model = _fit(part, frame, training, rounds, begin)
    for note in notes:
        part.tracker.log(note)
    part.tracker.summary({"encryption": "pairwise masks", "notes": notes})
    found = [_scored(part, frame, model, TRAIN)]
    validate = validation_frame(part)
    if validate is not None:
        found.append(_scored(part, validate, model, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


def _rounds_of(part: ComponentPart) -> _Rounds:
    word(part, "multi_class", "ovr", "ovr")
    word(part, "batch_strategy", "full", "full")
    freqs = part.parameters.get("validation_freqs") or group(part, "callback_param").get("validation_freqs")
    if freqs is not None and (isinstance(freqs, bool) or not isinstance(freqs, int) or freqs < 1):
        raise UsageError(f"{part.component}: validation_freqs is {freqs!r}; it must be a whole number from 1 on")
    return _Rounds(
        aggregate_iters=int(number(part, "aggregate_iters", 1, least=1)),
        shuffle=part.parameters.get("shuffle") is not False,
        mu=number(part, "mu", 0.1, least=0) if part.parameters.get("use_proximal") else 0.0,
        validation_freqs=freqs or 0,
        threshold=threshold_of(part),
    )


def _notes_of(part: ComponentPart) -> list[str]:
    """Return what is done otherwise than the files say. UsageError: there is no such encryption."""
    method = group(part, "encrypt_param").get("method")
    if method is None or str(method).lower() in ("none", "plain"):
        return []
    if str(method).lower() not in _METHODS:
        raise UsageError(f"{part.component}: encrypt_param.method is {method!r}", hint="Use null or Paillier.")
    return [_MASKED_NOTE]


# ------------------------------------------------------------------------------------------------------------ training


def _fit(
    part: ComponentPart, frame: PartyFrame, training: Training, rounds: _Rounds, begin: Beginning
) -> dict[str, Any]:
    y = labels_of(part, frame)
    sums = HorizontalSums(part)
    sums.compare(settings_of(training) | asdict(rounds))
    features, matrix = sums.matrix(frame)
    classes = sums.classes(frame)
    if begin.goes_on:
        classes = classes_before(part, frame, begin.model)
    rows = _Rows(matrix, np.empty(0), sums.share(len(matrix))[1])
    if training.intercept:
        rows.matrix = np.hstack([matrix, np.ones((len(matrix), 1))])
    count, models = 1 if len(classes) == 2 else len(classes), []
    for at in range(count):
        kind = classes[1 if count == 1 else at]
        rows.y = np.where(y == kind, 1.0, -1.0)
        before = begin.weights(part, features, at, intercept=training.intercept)
        fit = _Fit(sums, training, rounds, rows, part.seed + at, before)
        watch = _Watch(part, features, kind, training.intercept, "" if count == 1 else f"_{at}")
        models.append(fit.fit(features, watch, begin.done(at), begin.losses(at)))
    sums.close()
    tell_losses(part, [one["losses"] for one in models])
    first = models[0]
    summary = {"coef": first["weights"], "intercept": first["intercept"], "is_converged": first["converged"]}
    part.tracker.summary(summary if count == 1 else {"models": count})
    return {"kind": part.module, "features": features, "classes": classes, "models": models}


class _Rows:
    """The rows of a party: `y` is -1 or 1, `share` their share of all rows."""

    def __init__(self, matrix: Array, y: Array, share: float) -> None:
        self.matrix, self.y, self.share = matrix, y, share

    def gradient(self, weights: Array, chosen: Any = slice(None)) -> Array:
        """Return the mean gradient of the loss over rows; zeros without rows."""
        matrix, y = self.matrix[chosen], self.y[chosen]
        residual = -y / (1.0 + np.exp(np.clip(y * (matrix @ weights), -500, 500)))
        found: Array = matrix.T @ residual / max(1, len(y))
        return found

    def loss(self, weights: Array) -> float:
        """Return the mean loss over the rows; zero without rows."""
        return mean_loss(self.matrix @ weights, self.y) if len(self.y) else 0.0


def mean_loss(scores: Array, y: Array) -> float:
    """Return the mean logistic loss; `y` is -1 or 1."""
    return float(np.logaddexp(0.0, -y * scores).mean())


class _Watch:
    """The curves of the rows that validate, at each party for its own."""

    def __init__(self, part: ComponentPart, features: list[str], kind: Any, intercept: bool, mark: str) -> None:
        self.mark, self._tracker = mark, part.tracker
        self._curves: dict[str, list[tuple[float, float]]] = {}
        frame = validation_frame(part)
        self._y: Array | None = None
        if frame is not None and frame.y is not None and len(frame):
            self._y = np.where(frame.y == kind, 1.0, -1.0)
            self._matrix = columns_of(part, frame, {"features": features})
            if intercept:
                self._matrix = np.hstack([self._matrix, np.ones((len(self._matrix), 1))])

    def see(self, epoch: int, weights: Array) -> None:
        """Keep the metrics of weights after an epoch."""
        if self._y is None:
            return
        scores, truth = self._matrix @ weights, self._y > 0
        found = {"loss": mean_loss(scores, self._y)}
        if 0 < truth.sum() < len(truth):
            found["auc"] = binary_metrics(truth, scores)["auc"]
        for name, value in found.items():
            self._curves.setdefault(name, []).append((float(epoch), value))

    def close(self) -> None:
        """Tell the curves."""
        for name, points in self._curves.items():
            self._tracker.curve("validate", f"{name}{self.mark}", points, kind=name.upper())


class _Fit:
    """The training of one model of two classes."""

    def __init__(
        self,
        sums: HorizontalSums,
        training: Training,
        rounds: _Rounds,
        rows: _Rows,
        seed: int,
        first: Array | None = None,
    ) -> None:
        self._sums, self._training, self._rounds, self._rows = sums, training, rounds, rows
        self._random = np.random.default_rng(seed)
        width = rows.matrix.shape[1]
        own = (first_weights(training, width, seed) if first is None else first).tolist()
        self._weights = np.array(sums.same("start", own, list[float]))
        self._optimizer = Optimizer(training, width, intercept=training.intercept)
        self._single = rounds.aggregate_iters == 1 and training.batch_size == -1
        if len(self._weights) != width:
            raise UsageError(f"{sums.part.component}: the guest has another number of columns than {sums.part.here}")

    def fit(self, features: list[str], watch: _Watch, done: int = 0, before: Sequence[float] = ()) -> dict[str, Any]:
        """Train, and return the model: weights, losses at the start of each round and at the end.

        `done` and `before` are the epochs and losses of an earlier training.
        """
        training, part = self._training, self._sums.part
        losses = list(before[:-1])  # the last one is that at the start of the first round
        converged, epoch = False, done
        while epoch < training.max_iter and not converged:
            old, last = self._weights, min(epoch + self._rounds.aggregate_iters, training.max_iter)
            losses.append(self._one_step(epoch) if self._single else self._own_steps(range(epoch, last)))
            epoch = last
            part.tracker.progress(epoch, training.max_iter)
            if self._rounds.validation_freqs and epoch % self._rounds.validation_freqs == 0:
                watch.see(epoch, self._weights)
            converged = self._sums.same("converged", self._converged(losses, old), bool)
        watch.close()
        losses.append(
            self._with_penalty(self._sums.total(np.array([self._rows.share * self._rows.loss(self._weights)])))
        )
        intercept = float(self._weights[-1]) if training.intercept else 0.0
        weights = dict(zip(features, map(float, self._weights), strict=False))
        return {"weights": weights, "intercept": intercept, "losses": losses, "converged": converged, "epochs": epoch}

    def _one_step(self, epoch: int) -> float:
        """Take one step along the gradient of all rows, and return the loss before it."""
        own = np.append(self._rows.gradient(self._weights), self._rows.loss(self._weights))
        total = self._sums.total(self._rows.share * own)
        loss = self._with_penalty(total[-1:])
        self._weights = self._optimizer.step(self._weights, total[:-1], epoch)
        return loss

    def _own_steps(self, epochs: range) -> float:
        """Take steps over own batches, then the mean of the weights of all; return the loss before."""
        weights = old = self._weights
        for epoch in epochs:
            for chosen in self._batches():
                gradient = self._rows.gradient(weights, chosen) + self._rounds.mu * (weights - old)
                weights = self._optimizer.step(weights, gradient, epoch)
        total = self._sums.total(self._rows.share * np.append(weights, self._rows.loss(old)))
        loss = self._with_penalty(total[-1:])
        self._weights = total[:-1]
        return loss

    def _batches(self) -> Iterator[Any]:
        rows, size = len(self._rows.y), self._training.batch_size
        if not rows:
            return
        if size <= 0 or size >= rows:
            yield slice(None)
            return
        order = self._random.permutation(rows) if self._rounds.shuffle else np.arange(rows)
        for begin in range(0, rows, size):
            yield order[begin : begin + size]

    def _with_penalty(self, loss: Array) -> float:
        return float(loss[0]) + self._optimizer.penalty(self._weights)

    def _converged(self, losses: list[float], old: Array) -> bool:
        training = self._training
        if training.early_stop == "weight_diff":
            return bool(np.linalg.norm(self._weights - old) < training.tol)
        if training.early_stop == "abs":
            return abs(losses[-1]) < training.tol
        return len(losses) > 1 and abs(losses[-2] - losses[-1]) < training.tol


# ---------------------------------------------------------------------------------------------------------- prediction


def _scored(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame:
    """Return the predictions for the rows of a frame."""
    matrix, scores = columns_of(part, frame, model), []
    for one in model["models"]:
        weights = np.array([one["weights"][name] for name in model["features"]])
        scores.append(matrix @ weights + one["intercept"])
    return class_frame(frame, one_against_rest(scores), model["classes"], kind, threshold=threshold_of(part))
