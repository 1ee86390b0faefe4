"""HeteroLinR and HeteroPoisson: linear regressions over the columns of guest and hosts, with an arbiter (`vertical`).

HeteroPoisson has a logarithmic link and one host: the residual is a product of what both parties know. The logarithm of
the exposure, a column of the guest, is an offset of the scores, which only the guest knows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.columns import checked_columns, numbers_of
from weft.frontends.federated.components.cross_validation import cross_validated
from weft.frontends.federated.components.evaluation import REGRESSION
from weft.frontends.federated.components.inputs import (
    columns_of,
    complete_matrix,
    only_frame,
    refuse,
    validation_frame,
    weights_of,
)
from weft.frontends.federated.components.losses import tell_losses
from weft.frontends.federated.components.optimizers import Training, training_of
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, joined, regression_frame
from weft.frontends.federated.components.stepwise import asks_steps, linear_fit, selected_model
from weft.frontends.federated.components.vertical import (
    LINEAR,
    POISSON,
    Family,
    VerticalFit,
    check_rows,
    hand_out_keys,
    scores_of,
    take_key,
)
from weft.frontends.federated.components.vertical_validation import EpochPlan
from weft.frontends.federated.components.warm_start import Beginning, beginning_of, linear_rounds
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.components.validation import ValidationRows

_LARGEST: Final = 500.0
Array = np.ndarray[Any, Any]


@cross_validated()
def run(part: ComponentPart) -> PartOutput:
    """Train a linear regression, or predict with a model."""
    return _run(part, LINEAR)


@cross_validated()
def run_poisson(part: ComponentPart) -> PartOutput:
    """Train a Poisson regression, or predict with a model. UsageError: there are several hosts."""
    if len(part.all_of(HOST)) > 1:
        raise UsageError(f"{part.component}: a Poisson regression has one host")
    return _run(part, POISSON)


def _run(part: ComponentPart, family: Family) -> PartOutput:
    if family is POISSON:
        refuse(part, {"stepwise_param": "need_stepwise"})
    begin = beginning_of(part, linear_rounds)
    if not begin.trains:
        if part.here.role == ARBITER:
            return PartOutput()
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        check_rows(part, len(frame))
        return PartOutput(data=(_scored(part, frame, begin.model, family, TEST),))
    train = partial(_trained, training_of(part, newton=family is LINEAR), family, begin)
    model = selected_model(part, train, linear_fit) if asks_steps(part) else train(part)
    if part.here.role == ARBITER:
        return PartOutput()
    frame = only_frame(part, "train_data", "data")
    found = [_scored(part, frame, model, family, TRAIN)]
    validate = validation_frame(part)
    if validate is not None:
        found.append(_scored(part, validate, model, family, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


def _trained(training: Training, family: Family, begin: Beginning, part: ComponentPart) -> Any:
    """Return the model of a part; None at the arbiter."""
    if part.here.role != ARBITER:
        return _fit(part, only_frame(part, "train_data", "data"), training, family, begin)
    VerticalFit(part, training, family, done=begin.done()).arbitrate(hand_out_keys(part))
    return None


def _fit(
    part: ComponentPart, frame: PartyFrame, training: Training, family: Family, begin: Beginning
) -> dict[str, Any]:
    key = take_key(part)
    check_rows(part, len(frame))
    guest, y = part.here.role == GUEST, None
    if guest:
        if frame.y is None:
            raise UsageError(f"{part.component}: the rows of {part.here} have no label")
        y = frame.y.astype(float)
        if family is POISSON and (y < 0).any():
            raise UsageError(f"{part.component}: a label is negative, and labels are counts")
    exposure = _exposure(part, frame) if guest and family is POISSON else ""
    offset = _offset(part, frame, exposure)
    if exposure:
        frame = replace(frame, columns={name: one for name, one in frame.columns.items() if name != exposure})
    matrix, counts = complete_matrix(part, frame), weights_of(part, frame)
    plan = EpochPlan.of(part, REGRESSION, frame.features, intercept=guest and training.intercept)
    watch = None if plan is None else plan.watch("", "", partial(_truth, part, family, exposure))
    fit = VerticalFit(part, training, family, done=begin.done())
    first = begin.weights(part, frame.features, intercept=guest and training.intercept)
    fitted = fit.fit(key, matrix, y, part.seed, counts, watch, offset, first)
    losses = begin.losses() + fitted.losses
    tell_losses(part, [losses], 0.0 if y is None else 0.5 * float(np.mean(y**2)))
    weights = dict(zip(frame.features, map(float, fitted.weights), strict=False))
    intercept = float(fitted.weights[-1]) if guest and training.intercept else 0.0
    part.tracker.summary({"coef": weights, "intercept": intercept, "is_converged": fitted.converged})
    part.tracker.summary({} if watch is None else watch.close())
    found = {"kind": part.module, "features": list(frame.features), "weights": weights, "intercept": intercept}
    found |= {"losses": losses, "epochs": fitted.epochs}
    return found | ({"exposure": exposure} if exposure else {})


def _scored(
    part: ComponentPart, frame: PartyFrame, model: dict[str, Any], family: Family, kind: str
) -> PartyFrame | None:
    """Return the predictions for the rows of a frame at the guest; None at hosts."""
    matrix = columns_of(part, frame, model)
    weights = np.array([model["weights"][name] for name in model["features"]])
    total = scores_of(part, matrix @ weights + model["intercept"], f"/{kind}")
    if total is None:
        return None
    return regression_frame(frame, _values(part, frame, family, model.get("exposure", ""), total), kind)


def _values(part: ComponentPart, frame: PartyFrame, family: Family, exposure: str, scores: Array) -> Array:
    """Return what scores predict for the rows of a frame."""
    if family is not POISSON:
        return scores
    offset = _offset(part, frame, exposure)
    return np.exp(np.minimum(scores if offset is None else scores + offset, _LARGEST))


def _exposure(part: ComponentPart, frame: PartyFrame) -> str:
    """Return the column of the guest that says how long each row was observed; "" if there is none."""
    name = str(part.parameters.get("exposure_colname") or "")
    if name and name not in frame.columns:
        part.tracker.log(f"the rows have no column {name!r} of exposure_colname, so all count the same, as in FATE")
        return ""
    return name


def _offset(part: ComponentPart, frame: PartyFrame, exposure: str) -> Array | None:
    """Return the logarithm of the exposure of rows; None without such a column.

    UsageError: the rows do not have it, or a value of it is not above 0.
    """
    if not exposure:
        return None
    checked_columns(part, frame, [exposure])
    values = numbers_of(part, frame, exposure)
    if not (values > 0).all():
        raise UsageError(f"{part.component}: column {exposure!r} of {part.here} has a value that is not above 0")
    return np.log(values)


def _truth(
    part: ComponentPart, family: Family, exposure: str, rows: ValidationRows, scores: Array
) -> tuple[Array, Array]:
    """Return the labels, and what is predicted."""
    return rows.labels.astype(float), _values(part, rows.frame, family, exposure, scores)
