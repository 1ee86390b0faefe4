"""LocalBaseline: a linear model of scikit-learn over the columns of one party, to compare with those of all.

Only a party with labels learns it; nothing crosses between parties. The model is kept as numbers, not as an object.
Options are those of scikit-learn. `penalty` and `multi_class`, which files of FATE set, work with all its versions:
`ovr` trains each class against the rest.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import ARBITER, ComponentPart, PartOutput
from weft.frontends.federated.components.columns import value_key
from weft.frontends.federated.components.inputs import (
    columns_of,
    complete_matrix,
    group,
    only_frame,
    only_model,
    threshold_of,
    validation_frame,
    weights_of,
)
from weft.frontends.federated.components.links import one_against_rest, softmax
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, class_frame, joined, regression_frame
from weft.model.errors import UsageError
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_MODELS: Final = ("LogisticRegression", "LinearRegression", "Ridge", "Lasso", "ElasticNet")
_CLASSIFIES: Final = "LogisticRegression"
_JOBS: Final = "n_jobs"
"""An option that is this component's: a part has the cores that its job was given."""
_PENALTY, _CLASSES = "penalty", "multi_class"
_OVR, _MULTINOMIAL = "ovr", "multinomial"
_RATIOS: Final = {"l2": 0.0, "l1": 1.0}


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
    validate = validation_frame(part)
    if validate is not None:
        found.append(_scored(part, validate, model, VALIDATE))
    part.tracker.summary(_summary(model))
    return PartOutput(data=(joined(found),), model=model)


def _summary(model: dict[str, Any]) -> dict[str, Any]:
    named = [dict(zip(model["features"], row, strict=True)) for row in model["coef"]]
    found = {name: model[name] for name in ("model_name", "is_converged", "iters")}
    if len(named) == 1:
        return found | {"coef": named[0], "intercept": model["intercept"][0]}
    classes = zip(map(str, model["classes"]), named, model["intercept"], strict=True)
    return found | {"models": {name: {"coef": coef, "intercept": at} for name, coef, at in classes}}


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    name = _name(part)
    linear = _library(part)
    kind = getattr(linear, name)
    options = _options(part, name, kind)
    matrix, labels, weights = complete_matrix(part, frame), frame.y, weights_of(part, frame)
    assert labels is not None
    classes = np.unique(labels).tolist() if name == _CLASSIFIES else []
    rest = _against_rest(part, options, classes)
    targets = [np.where(labels == one, 1, 0) for one in classes] if rest else [labels]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fitted = [kind(**options).fit(matrix, target, sample_weight=weights) for target in targets]
        except (ValueError, TypeError) as error:
            part.tracker.log(f"scikit-learn: {error}")
            raise UsageError(
                f"{part.component}: {name} refuses its options or rows", hint=f"The log at {part.here} has the reason."
            ) from None
    for text in dict.fromkeys(str(one.message).splitlines()[0] for one in caught):
        part.tracker.log(f"scikit-learn: {text}")
    rounds = [int(np.max(one.n_iter_)) for one in fitted if getattr(one, "n_iter_", None) is not None]
    return {
        "kind": part.module,
        "model_name": name,
        "features": list(frame.features),
        "coef": np.vstack([np.atleast_2d(one.coef_) for one in fitted]).tolist(),
        "intercept": np.concatenate([np.atleast_1d(one.intercept_) for one in fitted]).tolist(),
        "classes": classes,
        "one_vs_rest": rest,
        "is_converged": not any(one.category.__name__ == "ConvergenceWarning" for one in caught),
        "iters": max(rounds, default=0),
    }


def _name(part: ComponentPart) -> str:
    given = str(part.parameters.get("model_name") or _CLASSIFIES)
    for name in _MODELS:
        if name.lower() == given.lower():
            return name
    hint = did_you_mean(given, _MODELS, f"There are {', '.join(_MODELS)}.")
    raise UsageError(f"{part.component}: model_name is {given!r}", hint=hint)


def _library(part: ComponentPart) -> Any:
    try:
        from sklearn import linear_model
    except ImportError:
        raise UsageError(
            f"{part.component}: {part.module} needs scikit-learn, which {part.here} does not have",
            hint="Install it where the party runs: pip install scikit-learn.",
        ) from None
    return linear_model


def _options(part: ComponentPart, name: str, kind: Any) -> dict[str, Any]:
    """Return the options as this version of scikit-learn takes them, and `multi_class`."""
    taken = inspect.signature(kind).parameters
    known = [one for one in taken if one != _JOBS]
    if name == _CLASSIFIES:
        known = [*dict.fromkeys((*known, _PENALTY, _CLASSES))]
    found = dict(group(part, "model_opts"))
    if found.pop(_JOBS, None) not in (None, 1):
        part.tracker.log(f"{_JOBS} has no effect: the cores of a part are those of its job")
    for option in found:
        if option not in known:
            hint = did_you_mean(option, known, f"There are {', '.join(known)}.")
            raise UsageError(f"{part.component}: {name} has no option {option!r}", hint=hint)
    if "random_state" in known:
        found.setdefault("random_state", part.seed)
    if _PENALTY in found:
        penalty = found.pop(_PENALTY)
        penalty = None if penalty == "none" else penalty
        if _PENALTY in taken and taken[_PENALTY].default != "deprecated":
            found[_PENALTY] = penalty
        elif penalty is None:
            found["C"] = np.inf
        elif penalty in _RATIOS:
            found["l1_ratio"] = _RATIOS[penalty]
        elif penalty != "elasticnet":
            words = ", ".join((*_RATIOS, "elasticnet"))
            raise UsageError(f"{part.component}: penalty is {penalty!r}", hint=f"Use {words} or none.")
    return found


def _against_rest(part: ComponentPart, options: dict[str, Any], classes: list[Any]) -> bool:
    """Whether each class is trained against the rest; takes `multi_class`, and names classes in `class_weight`."""
    given = options.pop(_CLASSES, None)
    if given not in (None, "auto", _OVR, _MULTINOMIAL):
        raise UsageError(f"{part.component}: multi_class is {given!r}", hint=f"Use auto, {_OVR} or {_MULTINOMIAL}.")
    rest = len(classes) > 2 and (given == _OVR or (given != _MULTINOMIAL and options.get("solver") == "liblinear"))
    weights = options.get("class_weight")
    if isinstance(weights, Mapping) and classes:
        if rest:
            raise UsageError(
                f"{part.component}: class_weight has no meaning where each class is trained against the rest",
                hint="Set multi_class to multinomial, or put a SampleWeight before it.",
            )
        by_key = {value_key(key): value for key, value in weights.items()}
        options["class_weight"] = {one: by_key.get(value_key(one), 1.0) for one in classes}
    return rest


def _scored(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame:
    values = columns_of(part, frame, model) @ np.array(model["coef"]).T + np.array(model["intercept"])
    if not model["classes"]:
        return regression_frame(frame, values[:, 0], kind)
    rest = len(model["classes"]) == 2 or model.get("one_vs_rest")
    chances = one_against_rest(list(values.T)) if rest else softmax(values)
    return class_frame(frame, chances, model["classes"], kind, threshold=threshold_of(part))
