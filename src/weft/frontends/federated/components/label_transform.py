"""LabelTransform: other labels for those of the rows, or for predictions the old ones again. Nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.columns import value_key
from weft.frontends.federated.components.inputs import group, only_frame, only_model
from weft.frontends.federated.components.predictions import DETAIL, LABEL, RESULT, is_predictions
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]


def run(part: ComponentPart) -> PartOutput:
    """Transform. UsageError: a label has no code, or two labels have the same."""
    frame, model = only_frame(part), only_model(part)
    if model is None:
        model = _fit(part, frame)
    if not frame.label or not model.get("codes"):
        part.tracker.log(f"{part.here} has no labels")
        return PartOutput(data=(frame,), model=model)
    codes = [(one["label"], one["code"]) for one in model["codes"]]
    if is_predictions(frame):
        found = _restored(part, frame, codes)
    else:
        columns = {**frame.columns, frame.label: _mapped(part, frame.columns[frame.label], codes)}
        found = replace(frame, columns=columns)
    part.tracker.summary({"label_encoder": {str(label): code for label, code in codes}})
    return PartOutput(data=(found,), model=model)


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    """Decide the code of each label: that of `label_encoder`, or 0, 1, ... in their order."""
    if frame.y is None:
        return {"kind": part.module, "codes": []}
    encoder, listed = group(part, "label_encoder"), part.parameters.get("label_list")
    if listed is not None and not isinstance(listed, list):
        raise UsageError(f"{part.component}: label_list must be a list")
    labels = listed or (list(encoder) if encoder else np.unique(frame.y).tolist())
    if encoder and len(labels) != len(encoder):
        raise UsageError(f"{part.component}: label_list and label_encoder have different lengths")
    given: Mapping[str, Any] = {str(key): value for key, value in encoder.items()}
    codes = []
    for at, label in enumerate(labels):
        if given and str(label) not in given:
            raise UsageError(f"{part.component}: label_encoder has no code for {label!r}")
        codes.append({"label": label, "code": given[str(label)] if given else at})
    if len({json.dumps(one["code"]) for one in codes}) < len(codes):
        raise UsageError(f"{part.component}: two labels have the same code in label_encoder")
    return {"kind": part.module, "codes": codes}


def _mapped(part: ComponentPart, labels: Array, codes: list[tuple[Any, Any]]) -> Array:
    known = {value_key(label): code for label, code in codes}
    try:
        return np.array([known[value_key(one)] for one in labels.tolist()])
    except KeyError as error:
        raise UsageError(
            f"{part.component}: a label at {part.here} is {error.args[0]!r}, which has no code",
            hint="Name all labels in label_encoder.",
        ) from None


def _restored(part: ComponentPart, frame: PartyFrame, codes: list[tuple[Any, Any]]) -> PartyFrame:
    """Return predictions with the old labels."""
    back = [(code, label) for label, code in codes]
    names = {value_key(code): str(label) for label, code in codes}
    labels = frame.columns[LABEL]
    known = labels.dtype.kind != "f" or not np.isnan(labels).any()
    details = [
        json.dumps({names.get(value_key(name), name): value for name, value in json.loads(one).items()})
        for one in frame.columns[DETAIL].tolist()
    ]
    return replace(
        frame,
        columns={
            **frame.columns,
            LABEL: _mapped(part, labels, back) if known else labels,
            RESULT: _mapped(part, frame.columns[RESULT], back),
            DETAIL: np.array(details, dtype=object),
        },
    )
