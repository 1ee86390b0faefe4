"""HeteroSSHELR and HeteroSSHELinR: logistic and linear regression without an arbiter (`shared_models`).

They learn from the columns of a guest and a host. More than two classes are trained one against the rest. With the
`reveal_strategy` "respectively" each party gets its own weights at the end, and sends its part of the scores to the
guest in a prediction, as in HeteroLR. With "encrypted_reveal_in_host" nobody sees the weights of the host: each party
keeps its share of them, and in a prediction the guest encrypts its shares, and the host returns the scores under
encryption. The guest learns the scores of the host in any case; with as many rows as the host has features, and the
rows themselves, they would tell the weights.

With SPU at both parties (`spu_models`) "respectively" trains logistic models there, which is far faster, in the same
steps.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import GUEST, ComponentPart, PartOutput
from weft.frontends.federated.components.cross_validation import cross_validated
from weft.frontends.federated.components.evaluation import BINARY, REGRESSION
from weft.frontends.federated.components.inputs import (
    classes_of,
    columns_of,
    complete_matrix,
    labels_of,
    only_frame,
    refuse,
    refuse_weights,
    threshold_of,
    validation_frame,
    word,
)
from weft.frontends.federated.components.links import one_against_rest, sigmoid
from weft.frontends.federated.components.losses import IDLE_LOGISTIC, tell_losses
from weft.frontends.federated.components.optimizers import (
    L1,
    NESTEROV,
    SGD,
    Training,
    first_weights,
    settings_of,
    training_of,
)
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, class_frame, joined, regression_frame
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.components.shared_models import (
    SHARED_LINEAR,
    SHARED_LOGISTIC,
    SharedFamily,
    SharedFit,
    SharedFitted,
    SharedStart,
    ShareLine,
)
from weft.frontends.federated.components.spu import agree_on_spu
from weft.frontends.federated.components.spu_models import fit_with_spu, fits_spu
from weft.frontends.federated.components.vertical import Fitted, check_rows, scores_of
from weft.frontends.federated.components.vertical_validation import EpochPlan
from weft.frontends.federated.components.warm_start import (
    Beginning,
    beginning_of,
    check_features,
    classes_before,
    linear_rounds,
)
from weft.frontends.federated.crypto.ciphers import PLAIN
from weft.frontends.federated.crypto.wide_shares import (
    COLUMN_SCALE,
    MODULUS,
    SHARE_SCALE,
    from_wide,
    hidden_total,
    whole,
    wide_wire,
)
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.components.validation import ValidationRows

_RESPECTIVELY, _ENCRYPTED = "respectively", "encrypted_reveal_in_host"
Array = np.ndarray[Any, Any]


@cross_validated()
def run(part: ComponentPart) -> PartOutput:
    """Train a logistic regression, or predict with it. UsageError: a parameter, a label or a value is not possible."""
    return _run(part, SHARED_LOGISTIC)


@cross_validated()
def run_linear(part: ComponentPart) -> PartOutput:
    """Train a linear regression, or predict with it. UsageError: a parameter, a label or a value is not possible."""
    return _run(part, SHARED_LINEAR)


def _run(part: ComponentPart, family: SharedFamily) -> PartOutput:
    refuse(part, {"stepwise_param": "need_stepwise"})
    begin = beginning_of(part, linear_rounds)
    if not begin.trains:
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        return PartOutput(data=(_scored(part, frame, begin.model, ShareLine(part), TEST),))
    training, strategy, reveals = _options(part)
    frame = only_frame(part, "train_data", "data")
    refuse_weights(part, frame)
    line = ShareLine(part)
    model = _fit(part, frame, training, family, line, strategy, begin, reveals=reveals)
    found = [_scored(part, frame, model, line, TRAIN)]
    validate = validation_frame(part)
    if validate is not None:
        found.append(_scored(part, validate, model, line, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


def _options(part: ComponentPart) -> tuple[Training, str, bool]:
    """Return the training, the strategy, and whether weights are revealed in each step."""
    training, reveals = training_of(part), bool(part.parameters.get("reveal_every_iter"))
    if part.parameters.get("optimizer") is None:
        training = replace(training, optimizer=SGD)
    strategy = word(part, "reveal_strategy", _RESPECTIVELY, _RESPECTIVELY, _ENCRYPTED)
    word(part, "multi_class", "ovr", "ovr")
    word(part, "batch_strategy", "full", "full")
    if reveals and strategy == _ENCRYPTED:
        raise UsageError(
            f"{part.component}: reveal_every_iter shows the host the weights that {_ENCRYPTED} hides",
            hint="Set reveal_every_iter to false.",
        )
    if not reveals and (training.optimizer not in (SGD, NESTEROV) or training.penalty == L1):
        asked = "penalty L1" if training.penalty == L1 else f"optimizer {training.optimizer}"
        raise UsageError(
            f"{part.component}: {asked} needs weights that are not shared",
            hint="Set reveal_every_iter to true, or use sgd or nesterov_momentum_sgd with the penalty L2 or null.",
        )
    return training, strategy, reveals


# ------------------------------------------------------------------------------------------------------------ training


def _fit(
    part: ComponentPart,
    frame: PartyFrame,
    training: Training,
    family: SharedFamily,
    line: ShareLine,
    strategy: str,
    begin: Beginning,
    *,
    reveals: bool,
) -> dict[str, Any]:
    check_rows(part, len(frame))
    if not len(frame):
        raise UsageError(
            f"{part.component}: there are no rows at {part.here}",
            hint="Compare the ids of the parties: the Intersection has found no common one.",
        )
    line.compare(settings_of(training) | {"reveal_strategy": strategy, "reveal_every_iter": reveals})
    matrix = complete_matrix(part, frame)
    if line.guest and training.intercept:
        matrix = np.hstack([matrix, np.ones((len(matrix), 1))])
    classes, count = _classes(part, frame, family, line, begin)
    models: list[dict[str, Any]] = []
    kind = BINARY if family is SHARED_LOGISTIC else REGRESSION
    plan = EpochPlan.of(part, kind, frame.features, intercept=line.guest and training.intercept)
    suits = family is SHARED_LOGISTIC and strategy == _RESPECTIVELY and not reveals and plan is None
    with_spu = agree_on_spu(part, line.other, fits=suits and line.method != PLAIN and fits_spu(training, matrix))
    validation, y = list[dict[str, Any]](), None
    for at in range(count):
        mark = "" if count == 1 else f"_{at}"
        watch = None if plan is None else plan.watch(f"/{at}", mark, partial(_truth, classes, at))
        y = _targets(part, frame, family, classes, at) if line.guest else None
        start = _start(part, frame, training, strategy, begin, at)
        if with_spu:
            first = first_weights(training, matrix.shape[1], part.seed + at) if start is None else start.weights
            assert first is not None
            fitted = fit_with_spu(part, line.other, training, matrix, y, first, begin.done(at))
            models.append(_own_model(fitted.weights, frame.features) | _told(fitted))
        else:
            fit = SharedFit(line, training, family, matrix, y, part.seed + at, start, reveals=reveals, watch=watch)
            models.append(_revealed(line, fit.fit(), frame.features, strategy, reveals=reveals))
        models[-1]["losses"] = begin.losses(at) + models[-1]["losses"]
        if watch is not None:
            validation.append(watch.close())
    idle = IDLE_LOGISTIC if kind == BINARY or y is None else 0.5 * float(np.mean(y**2))
    tell_losses(part, [one["losses"] for one in models], idle)
    _tell(part, line, models, validation, with_spu=with_spu)
    return {
        "kind": part.module,
        "features": list(frame.features),
        "classes": classes,
        "reveal_strategy": strategy,
        "models": models,
    }


def _classes(
    part: ComponentPart, frame: PartyFrame, family: SharedFamily, line: ShareLine, begin: Beginning
) -> tuple[list[Any], int]:
    """Return the classes (none at the host), and how many models there are, which the guest tells."""
    if not line.guest:
        return [], message_as(int, line.receive("models"), line.other)
    classes = list[Any]()
    if family is SHARED_LOGISTIC:
        classes = classes_before(part, frame, begin.model) if begin.goes_on else classes_of(part, frame)
    count = len(classes) if len(classes) > 2 else 1
    line.send("models", count)
    return classes, count


def _start(
    part: ComponentPart, frame: PartyFrame, training: Training, strategy: str, begin: Beginning, at: int
) -> SharedStart | None:
    """Return what a model of an earlier training starts with; None: it is trained anew.

    UsageError: it was revealed in another way, or has other features.
    """
    if not begin.goes_on:
        return None
    if begin.model["reveal_strategy"] != strategy:
        raise UsageError(
            f"{part.component}: reveal_strategy is {strategy}, and that of the model {begin.model['reveal_strategy']}",
            hint="Set it to that of the model.",
        )
    one, weights = begin.model["models"][at], None
    check_features(part, frame.features, begin.model)
    if "weights" in one:
        weights = begin.weights(part, frame.features, at, intercept=part.here.role == GUEST and training.intercept)
    elif list(frame.features) != begin.model["features"]:  # shares have no names
        raise UsageError(f"{part.component}: the columns of {part.here} have another order than those of the model")
    return SharedStart(begin.done(at), weights, _shares_of(one["shares"]) if "shares" in one else None)


def _tell(
    part: ComponentPart,
    line: ShareLine,
    models: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    *,
    with_spu: bool,
) -> None:
    """Tell the summary of a training."""
    for note in line.notes:
        part.tracker.log(note)
    summary: dict[str, Any] = {"encryption": line.method, "key_length": line.bits, "notes": line.notes}
    if with_spu:
        summary = {"encryption": "cheetah"}
    summary["is_converged"] = all(one["converged"] for one in models)
    if "weights" in models[0]:
        summary |= {"coef": models[0]["weights"], "intercept": models[0]["intercept"]}
    part.tracker.summary(summary)
    part.tracker.summary((validation[0] if len(models) == 1 else {"validation": validation}) if validation else {})


def _targets(part: ComponentPart, frame: PartyFrame, family: SharedFamily, classes: list[Any], at: int) -> Array:
    """Return what a model is to predict at the guest. UsageError: a label is no number."""
    labels = labels_of(part, frame)
    if family is SHARED_LOGISTIC:
        return np.where(labels == classes[at if len(classes) > 2 else 1], 1.0, -1.0)
    try:
        found = labels.astype(float)
    except (TypeError, ValueError):
        found = np.array([np.nan])
    if not np.isfinite(found).all():
        raise UsageError(f"{part.component}: a label at {part.here} is no number", hint="Set label_type to float.")
    return found


def _truth(classes: list[Any], at: int, rows: ValidationRows, scores: Array) -> tuple[Array, Array]:
    """Return truth and values of the rows that validate, as `Validation.measure` takes them."""
    if not classes:
        return rows.labels.astype(float), scores
    return rows.truth(classes[at if len(classes) > 2 else 1]), sigmoid(scores)


def _revealed(
    line: ShareLine, fitted: SharedFitted, features: tuple[str, ...], strategy: str, *, reveals: bool
) -> dict[str, Any]:
    """Return the model of a party: its weights, or its shares of the weights of the host as text."""
    told = _told(fitted)
    own, hides = fitted.own, strategy == _ENCRYPTED
    if not reveals:
        if not (line.guest and hides):
            line.send("weights", wide_wire(fitted.other))
        if not (not line.guest and hides):
            own = (own + line.shares("weights", len(own))) % MODULUS
    if hides and not line.guest:
        return told | {"shares": [str(one) for one in own.tolist()]}
    found = told | _own_model(from_wide(own), features)
    return found | ({"shares": [str(one) for one in fitted.other.tolist()]} if hides else {})


def _told(fitted: Fitted | SharedFitted) -> dict[str, Any]:
    return {"losses": fitted.losses, "converged": fitted.converged, "epochs": fitted.epochs}


def _own_model(weights: Array, features: tuple[str, ...]) -> dict[str, Any]:
    """Return the model of a party by its weights, the intercept last, if there is one."""
    intercept = float(weights[-1]) if len(weights) > len(features) else 0.0
    return {"weights": dict(zip(features, map(float, weights), strict=False)), "intercept": intercept}


def _shares_of(texts: list[str]) -> Array:
    shares = np.empty(len(texts), dtype=object)
    shares[:] = [int(one) for one in texts]
    return shares


# ---------------------------------------------------------------------------------------------------------- prediction


def _scored(
    part: ComponentPart, frame: PartyFrame, model: dict[str, Any], line: ShareLine, kind: str
) -> PartyFrame | None:
    """Return the predictions for the rows of a frame at the guest; None at the host."""
    check_rows(part, len(frame))
    matrix, totals = columns_of(part, frame, model), []
    hides = model["reveal_strategy"] == _ENCRYPTED
    for at, one in enumerate(model["models"]):
        own = np.zeros(len(matrix))
        if "weights" in one:
            own = matrix @ np.array([one["weights"][name] for name in model["features"]]) + one["intercept"]
        if hides:
            theirs = _hidden_scores(line, one["shares"], matrix)
            totals.append(None if theirs is None else own + theirs)
        else:
            totals.append(scores_of(part, own, f"/{kind}/{at}"))
    if part.here.role != GUEST:
        return None
    found = [one for one in totals if one is not None]
    if not model["classes"]:
        return regression_frame(frame, found[0], kind)
    probabilities = one_against_rest(found)
    return class_frame(frame, probabilities, model["classes"], kind, threshold=threshold_of(part))


def _hidden_scores(line: ShareLine, texts: list[str], matrix: Array) -> Array | None:
    """Return the scores by the shared weights of the host at the guest; None at the host."""
    shares = _shares_of(texts)
    if line.guest:
        line.send_encrypted("weights/encrypted", shares)
        return from_wide(line.opened("scores/encrypted", len(matrix)), SHARE_SCALE + COLUMN_SCALE)
    theirs = line.encrypted("weights/encrypted", len(shares))
    values = whole(matrix)
    line.send("scores/encrypted", hidden_total(theirs, values, values.dot(shares)).to_wire())
    return None
