"""What the outputs of a network are compared with, and what they predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.inputs import threshold_of
from weft.frontends.federated.components.networks import (
    BINARY,
    LOG_SOFTMAX,
    LOSSES,
    MULTI,
    REGRESSION,
    SIGMOID,
    SOFTMAX,
)
from weft.frontends.federated.components.predictions import class_frame, regression_frame
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_ENDS: Final[Mapping[str, tuple[str, ...]]] = {
    "BCELoss": (SIGMOID,),
    "NLLLoss": (LOG_SOFTMAX,),
    "CategoricalCrossentropy": (SOFTMAX, SIGMOID),
}
"""The last layers that a loss may have. Keras divides outputs by their sum before it takes logarithms."""


def check_end(part: ComponentPart, layers: Sequence[Mapping[str, Any]], loss: str, define: str) -> None:
    """UsageError: the last layer does not fit the loss. `define` is the parameter that describes the network."""
    ends = _ENDS.get(loss)
    if ends and layers[-1]["kind"] not in ends:
        raise UsageError(
            f"{part.component}: {define} must end with {' or '.join(ends)} for the loss {loss}",
            hint="Add it, or use BCEWithLogitsLoss or CrossEntropyLoss.",
        )


def target_of(
    part: ComponentPart, y: Array, classes: list[Any], task: str, layers: Sequence[Mapping[str, Any]]
) -> Array:
    """Return what outputs are compared with, shape (rows, outputs). UsageError: labels do not fit the network."""
    outputs = next(one["out"] for one in reversed(layers) if "out" in one)
    wanted = len(classes) if task == MULTI else 1
    if task == BINARY and len(classes) != 2:
        raise UsageError(f"{part.component}: the loss is for 2 labels, and there are {len(classes)}")
    if outputs != wanted:
        raise UsageError(
            f"{part.component}: the network has {outputs} outputs, and needs {wanted}",
            hint="Use one output for two labels or a number, and one for each label with CrossEntropyLoss.",
        )
    if task == REGRESSION:
        if y.dtype.kind not in "iufb":
            raise UsageError(f"{part.component}: the label is no number", hint="Use CrossEntropyLoss.")
        return y.astype(float)[:, None]
    kinds = classes if task == MULTI else classes[1:]
    return np.column_stack([(y == one).astype(float) for one in kinds])


def probabilities_of(outputs: Array, loss: str, last: str) -> Array:
    """Return probabilities by outputs, shape (rows, classes). `last` is the kind of the last layer."""
    known = LOSSES[loss]
    if known.task == MULTI and last in (SOFTMAX, LOG_SOFTMAX, SIGMOID):
        found = np.exp(outputs) if last == LOG_SOFTMAX else outputs
        shares: Array = found / found.sum(axis=1, keepdims=True)
        return shares
    found = known.probabilities(outputs)
    return np.column_stack([1 - found[:, 0], found[:, 0]]) if known.task == BINARY else found


def output_frame(
    part: ComponentPart, frame: PartyFrame, outputs: Array, loss: str, last: str, classes: list[Any], kind: str
) -> PartyFrame:
    """Return the predictions for the rows of a frame. `outputs` has shape (rows, outputs)."""
    if LOSSES[loss].task == REGRESSION:
        return regression_frame(frame, outputs[:, 0], kind)
    return class_frame(frame, probabilities_of(outputs, loss, last), classes, kind, threshold=threshold_of(part))
