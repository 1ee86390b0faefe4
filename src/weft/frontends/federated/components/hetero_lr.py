"""HeteroLR: logistic regression over the columns of guest and hosts, with an arbiter (`vertical`).

More than two classes are trained one against the rest. Each party keeps its own weights. In a prediction the hosts send
their parts of the scores to the guest, as in FATE: the guest learns the sum in any case.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.cross_validation import cross_validated
from weft.frontends.federated.components.evaluation import BINARY
from weft.frontends.federated.components.inputs import (
    classes_of,
    columns_of,
    complete_matrix,
    only_frame,
    threshold_of,
    validation_frame,
    weights_of,
)
from weft.frontends.federated.components.links import one_against_rest, sigmoid
from weft.frontends.federated.components.losses import tell_losses
from weft.frontends.federated.components.optimizers import Training, training_of
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, class_frame, joined
from weft.frontends.federated.components.stepwise import asks_steps, logistic_fit, selected_model
from weft.frontends.federated.components.vertical import (
    LOGISTIC,
    VerticalFit,
    check_rows,
    hand_out_keys,
    scores_of,
    take_key,
)
from weft.frontends.federated.components.vertical_validation import EpochPlan
from weft.frontends.federated.components.warm_start import Beginning, beginning_of, classes_before, linear_rounds

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.components.validation import ValidationRows

Array = np.ndarray[Any, Any]


@cross_validated()
def run(part: ComponentPart) -> PartOutput:
    """Train, or predict with a model. UsageError: a parameter or a label is not possible."""
    begin = beginning_of(part, linear_rounds)
    if not begin.trains:
        return _predict(part, begin.model)
    train = partial(_trained, training_of(part, newton=True), begin)
    model = selected_model(part, train, logistic_fit) if asks_steps(part) else train(part)
    if part.here.role == ARBITER:
        return PartOutput()
    frame = only_frame(part, "train_data", "data")
    found = [_scored(part, frame, model, TRAIN)]
    validate = validation_frame(part)
    if validate is not None:
        found.append(_scored(part, validate, model, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


def _trained(training: Training, begin: Beginning, part: ComponentPart) -> Any:
    """Return the model of a part; None at the arbiter."""
    if part.here.role != ARBITER:
        return _fit(part, only_frame(part, "train_data", "data"), training, begin)
    keys = hand_out_keys(part)
    for at in range(int(part.channel.receive("models", part.all_of(GUEST)[0]))):
        VerticalFit(part, training, LOGISTIC, f"/{at}", begin.done(at)).arbitrate(keys)
    return None


def _classes(part: ComponentPart, frame: PartyFrame, begin: Beginning) -> tuple[list[Any], int]:
    """Return the classes (none at hosts), and how many models there are, which the guest tells."""
    if part.here.role != GUEST:
        return [], int(part.channel.receive("models", part.all_of(GUEST)[0]))
    classes = classes_before(part, frame, begin.model) if begin.goes_on else classes_of(part, frame)
    count = 1 if len(classes) == 2 else len(classes)
    part.channel.send("models", count, part.others(HOST, ARBITER))
    return classes, count


def _fit(part: ComponentPart, frame: PartyFrame, training: Training, begin: Beginning) -> dict[str, Any]:
    key = take_key(part)
    check_rows(part, len(frame))
    classes, count = _classes(part, frame, begin)
    matrix, models = complete_matrix(part, frame), list[dict[str, Any]]()
    counts, validation = weights_of(part, frame), list[Any]()
    intercept = part.here.role == GUEST and training.intercept
    plan = EpochPlan.of(part, BINARY, frame.features, intercept=intercept)
    for at in range(count):
        kind, mark = classes[1 if count == 1 else at] if classes else None, "" if count == 1 else f"_{at}"
        y = None if frame.y is None else np.where(frame.y == kind, 1.0, -1.0)
        watch = None if plan is None else plan.watch(f"/{at}", mark, partial(_truth, kind))
        fit = VerticalFit(part, training, LOGISTIC, f"/{at}", begin.done(at))
        before = begin.weights(part, frame.features, at, intercept=intercept)
        fitted = fit.fit(key, matrix, y, part.seed + at, counts, watch, first=before)
        weights, losses = fitted.weights, begin.losses(at) + fitted.losses
        if watch is not None:
            validation.append(watch.close())
        models.append(
            {
                "weights": dict(zip(frame.features, map(float, weights), strict=False)),
                "intercept": float(weights[-1]) if intercept else 0.0,
                "losses": losses,
                "converged": fitted.converged,
                "epochs": fitted.epochs,
            }
        )
    tell_losses(part, [one["losses"] for one in models])
    first = models[0]
    summary = {"coef": first["weights"], "intercept": first["intercept"], "is_converged": first["converged"]}
    part.tracker.summary(summary if count == 1 else {"models": count})
    part.tracker.summary((validation[0] if count == 1 else {"validation": validation}) if validation else {})
    found = {"kind": part.module, "features": list(frame.features), "classes": classes, "models": models}
    return found | ({"losses": first["losses"]} if count == 1 else {})


def _truth(kind: Any, rows: ValidationRows, scores: Array) -> tuple[Array, Array]:
    """Return which rows are of a class, and the probabilities of it."""
    return rows.truth(kind), sigmoid(scores)


def _predict(part: ComponentPart, model: dict[str, Any]) -> PartOutput:
    if part.here.role == ARBITER:
        return PartOutput()
    frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
    check_rows(part, len(frame))
    return PartOutput(data=(_scored(part, frame, model, TEST),))


def _scored(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame | None:
    """Return the predictions for the rows of a frame at the guest; None at hosts."""
    matrix = columns_of(part, frame, model)
    totals = []
    for at, one in enumerate(model["models"]):
        weights = np.array([one["weights"][name] for name in model["features"]])
        totals.append(scores_of(part, matrix @ weights + one["intercept"], f"/{kind}/{at}"))
    if part.here.role != GUEST:
        return None
    probabilities = one_against_rest([one for one in totals if one is not None])
    return class_frame(frame, probabilities, model["classes"], kind, threshold=threshold_of(part))
