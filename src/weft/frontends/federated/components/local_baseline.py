"""LocalBaseline: a linear model of scikit-learn over the columns of one party, to compare with those of all.

Only a party with labels learns it; nothing crosses between parties. The model is kept as numbers, not as an object.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import ARBITER, ComponentPart, PartOutput
from weft.frontends.federated.components.inputs import (
    columns_of,
    complete_matrix,
    group,
    only_frame,
    only_model,
    weights_of,
)
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, class_frame, joined, regression_frame
from weft.model.errors import UsageError
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_MODELS: Final = ("LogisticRegression", "LinearRegression", "Ridge", "Lasso", "ElasticNet")
_CLASSIFIES: Final = "LogisticRegression"
_SERIAL: Final = {"n_jobs": 1}
"""Options that are this component's: a part has the cores that its job was given."""


def run(part: ComponentPart) -> PartOutput:
    """Train, or predict. UsageError: scikit-learn has no such model or option, or refuses a value."""
    if part.here.role == ARBITER:
        return PartOutput()
    model = only_model(part)
    if model is not None:
        if "features" not in model:
            return PartOutput()
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        return PartOutput(data=(_scored(part, frame, model, TEST),))
    frame = only_frame(part, "train_data", "data")
    if frame.y is None:
        part.tracker.log(f"{part.here} has no labels, so it learns nothing")
        return PartOutput(model={"kind": part.module})
    model = _fit(part, frame)
    found = [_scored(part, frame, model, TRAIN)]
    if part.data.get("validate_data"):
        found.append(_scored(part, part.data["validate_data"][0], model, VALIDATE))
    part.tracker.summary({"model_name": model["model_name"], "coef": model["coef"], "intercept": model["intercept"]})
    return PartOutput(data=(joined(found),), model=model)


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    from sklearn import linear_model

    name = str(part.parameters.get("model_name") or _CLASSIFIES)
    if name not in _MODELS:
        hint = did_you_mean(name, _MODELS, f"There are {', '.join(_MODELS)}.")
        raise UsageError(f"{part.component}: model_name is {name!r}", hint=hint)
    kind = getattr(linear_model, name)
    known = [one for one in inspect.signature(kind).parameters if one not in _SERIAL]
    options = {key: value for key, value in group(part, "model_opts").items() if key not in _SERIAL}
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known, f"There are {', '.join(known)}.")
            raise UsageError(f"{part.component}: {name} has no option {option!r}", hint=hint)
    options.setdefault("random_state", part.seed) if "random_state" in known else None
    matrix, labels = complete_matrix(part, frame), frame.y
    try:
        fitted = kind(**options).fit(matrix, labels, sample_weight=weights_of(part, frame))
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{part.component}: {name} refuses its options or rows: {reason}") from None
    classes = np.asarray(getattr(fitted, "classes_", ())).tolist()
    return {
        "kind": part.module,
        "model_name": name,
        "features": list(frame.features),
        "coef": np.atleast_2d(fitted.coef_).tolist(),
        "intercept": np.atleast_1d(fitted.intercept_).tolist(),
        "classes": classes,
    }


def _scored(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame:
    values = columns_of(part, frame, model) @ np.array(model["coef"]).T + np.array(model["intercept"])
    if not model["classes"]:
        return regression_frame(frame, values[:, 0], kind)
    if len(model["classes"]) == 2:
        second = 1 / (1 + np.exp(-np.clip(values[:, 0], -500, 500)))
        chances = np.column_stack([1 - second, second])
    else:
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        chances = powers / powers.sum(axis=1, keepdims=True)
    threshold = group(part, "predict_param").get("threshold")
    if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, (int, float))):
        raise UsageError(f"{part.component}: predict_param.threshold is {threshold!r}; it must be a number")
    return class_frame(frame, chances, model["classes"], kind, threshold=0.5 if threshold is None else threshold)
