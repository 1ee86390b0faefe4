"""SampleWeight: how much each row counts in a training, by its label or by a column. Nothing is sent.

`class_weight` has a weight for each label, or is `balanced`: then all labels count the same together.
`sample_weight_name` takes a column, which is no feature any more; with `normalize` its mean becomes 1. HeteroLR,
HeteroLinR, HeteroPoisson, HeteroSecureBoost and LocalBaseline use the weights of the party with labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.inputs import only_frame, weights_of
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_COLUMN: Final = "sample_weight"
_BALANCED: Final = "balanced"


def run(part: ComponentPart) -> PartOutput:
    """Weigh. UsageError: a label has no weight, or a weight is negative or no number."""
    frame = only_frame(part)
    name, by_class = part.parameters.get("sample_weight_name"), part.parameters.get("class_weight")
    if name and by_class:
        raise UsageError(f"{part.component}: class_weight and sample_weight_name exclude each other")
    if name and name in frame.columns:
        found = replace(frame, weight=str(name))
        weights = weights_of(part, found)
        if part.parameters.get("normalize") and weights is not None:
            found = replace(found, columns={**frame.columns, str(name): weights})
    elif by_class and frame.y is not None:
        if _COLUMN in frame.columns:
            raise UsageError(f"{part.component}: {part.here} has a column {_COLUMN!r} already")
        found = replace(frame, columns={**frame.columns, _COLUMN: _by_class(part, frame, by_class)}, weight=_COLUMN)
        weights_of(part, found)
    else:
        part.tracker.log(f"{part.here} has no labels or no such column, so its rows have no weights")
        found = frame
    part.tracker.summary({"weight": found.weight})
    return PartOutput(data=(found,))


def _by_class(part: ComponentPart, frame: PartyFrame, given: Any) -> Array:
    assert frame.y is not None
    labels, places, counts = np.unique(frame.y, return_inverse=True, return_counts=True)
    if given == _BALANCED:
        weights = len(frame) / (len(labels) * counts)
    elif isinstance(given, Mapping):
        known = {str(key): value for key, value in given.items()}
        missing = [one for one in labels.tolist() if str(one) not in known]
        if missing:
            raise UsageError(f"{part.component}: class_weight has no weight for the label {missing[0]!r}")
        weights = np.array([known[str(one)] for one in labels.tolist()])
    else:
        raise UsageError(f"{part.component}: class_weight is {given!r}", hint='Use "balanced", or {"LABEL": WEIGHT}.')
    if weights.dtype.kind not in "if":
        raise UsageError(f"{part.component}: class_weight has a weight that is no number")
    found: Array = weights.astype(float)[places]
    return found
