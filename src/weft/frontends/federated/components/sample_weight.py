"""SampleWeight: how much each row counts in a training, by its label or by a column. Nothing is sent.

`class_weight` has a weight for each label, or is `balanced`: then all labels count the same together.
`sample_weight_name` takes a column, which is no feature any more; with `normalize` its mean becomes 1. The model has
the weight of each label, or the name of the column, so rows that come later weigh the same. HeteroLR, HeteroLinR,
HeteroPoisson, HeteroSecureBoost and LocalBaseline use the weights of the party with labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.columns import value_key
from weft.frontends.federated.components.inputs import only_frame, only_model, weights_of
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_COLUMN: Final = "sample_weight"
_BALANCED: Final = "balanced"


def run(part: ComponentPart) -> PartOutput:
    """Weigh. UsageError: a label or the column is not there, or a weight is negative or no number."""
    frame, model = only_frame(part), only_model(part)
    trains = model is None
    if model is None:
        model = _fit(part, frame)
    name, classes = model.get("weight") or "", model.get("classes") or {}
    if name and name not in frame.columns:
        if trains and frame.y is not None:
            raise UsageError(
                f"{part.component}: {part.here} has no column {name!r}", hint="It stands in sample_weight_name."
            )
        name = ""
    if name:
        found = replace(frame, weight=name)
        weights = weights_of(part, found)
        if model.get("normalize") and weights is not None:
            found = replace(found, columns={**frame.columns, name: weights})
    elif classes and frame.y is not None:
        if _COLUMN in frame.columns:
            raise UsageError(f"{part.component}: {part.here} has a column {_COLUMN!r} already")
        found = replace(frame, columns={**frame.columns, _COLUMN: _weights(part, frame.y, classes)}, weight=_COLUMN)
        weights_of(part, found)
    else:
        part.tracker.log(f"{part.here} has no labels or no such column, so its rows have no weights")
        found = frame
    part.tracker.summary({"weight": found.weight, "class_weight": classes})
    return PartOutput(data=(found,), model=model)


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    """Decide where weights come from: a column, or the weight of each label."""
    name, by_class = part.parameters.get("sample_weight_name"), part.parameters.get("class_weight")
    if name and by_class:
        raise UsageError(f"{part.component}: class_weight and sample_weight_name exclude each other")
    model: dict[str, Any] = {"kind": part.module, "weight": str(name or ""), "classes": {}}
    if name:
        model["normalize"] = bool(part.parameters.get("normalize"))
    if by_class and frame.y is not None:
        model["classes"] = _by_class(part, frame.y, by_class)
    return model


def _by_class(part: ComponentPart, labels: Array, given: Any) -> dict[str, float]:
    names, counts = np.unique(labels, return_counts=True)
    if str(given).lower() == _BALANCED:
        weights = len(labels) / (len(names) * counts)
        return {value_key(one): float(weight) for one, weight in zip(names.tolist(), weights, strict=True)}
    if not isinstance(given, Mapping):
        raise UsageError(f"{part.component}: class_weight is {given!r}", hint='Use "balanced", or {"LABEL": WEIGHT}.')
    found = {value_key(key): value for key, value in given.items()}
    if any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in found.values()):
        raise UsageError(f"{part.component}: class_weight has a weight that is no number")
    return {key: float(value) for key, value in found.items()}


def _weights(part: ComponentPart, labels: Array, classes: Mapping[str, float]) -> Array:
    missing = [one for one in np.unique(labels).tolist() if value_key(one) not in classes]
    if missing:
        part.tracker.log(f"class_weight has none for the label {missing[0]!r}")
        raise UsageError(
            f"{part.component}: class_weight has no weight for a label of {part.here}",
            hint="Name all labels in class_weight.",
        )
    return np.array([classes[value_key(one)] for one in labels.tolist()], dtype=float)
