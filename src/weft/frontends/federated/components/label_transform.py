"""LabelTransform: other labels for those of the rows, or for predictions the old ones again. Nothing is sent.

With a model, predictions get the labels of its training back; predicted numbers stay. In a training, a label that
`label_encoder` does not name keeps its value. Source of names and meanings: FATE 1.7 to 1.11.
"""

from __future__ import annotations

import json
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
    trains = model is None
    if model is None:
        model = _fit(part, frame)
    if not frame.label or not model.get("codes"):
        part.tracker.log(f"{part.here} has no labels")
        return PartOutput(data=(frame,), model=model)
    codes = [(one["label"], one["code"]) for one in model["codes"]]
    if not is_predictions(frame):
        columns = {**frame.columns, frame.label: _mapped(part, frame.columns[frame.label], codes)}
        found = replace(frame, columns=columns)
    elif _of_regression(frame):
        part.tracker.log("predicted numbers have no codes, and stay as they are")
        found = frame
    else:
        found = _renamed(part, frame, codes if trains else [(code, label) for label, code in codes])
    part.tracker.summary({"label_encoder": {str(label): code for label, code in codes}})
    return PartOutput(data=(found,), model=model)


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    """Decide the code of each label: that of `label_encoder`, or 0, 1, ... in their order."""
    if frame.y is None or _of_regression(frame):
        return {"kind": part.module, "codes": []}
    encoder, listed = group(part, "label_encoder"), part.parameters.get("label_list")
    if listed is not None and not isinstance(listed, list):
        raise UsageError(f"{part.component}: label_list must be a list")
    if encoder and listed and len(listed) != len(encoder):
        raise UsageError(f"{part.component}: label_list and label_encoder have different lengths")
    present = _labels(frame)
    if not encoder:
        found = [(label, code) for code, label in enumerate(listed or present)]
    else:
        given = {value_key(key): code for key, code in encoder.items()}
        if without := [one for one in listed or () if value_key(one) not in given]:
            raise UsageError(f"{part.component}: label_encoder has no code for {without[0]!r}")
        known = {value_key(one): one for one in (*encoder, *present, *(listed or ()))}  # the last has the right type
        found = [(known[key], code) for key, code in given.items()]
        if kept := [one for one in present if value_key(one) not in given]:
            part.tracker.log(f"labels that label_encoder does not name stay: {', '.join(map(str, kept))}")
            found += [(one, one) for one in kept]
    if len({value_key(code) for _, code in found}) < len(found):
        raise UsageError(f"{part.component}: two labels have the same code in label_encoder")
    if len({isinstance(code, str) for _, code in found}) > 1:
        raise UsageError(
            f"{part.component}: codes are texts and numbers at once: {', '.join(repr(code) for _, code in found)}",
            hint="Name all labels in label_encoder, with codes of one kind.",
        )
    return {"kind": part.module, "codes": [{"label": label, "code": code} for label, code in found]}


def _labels(frame: PartyFrame) -> list[Any]:
    """Return the different labels of rows; of predictions, the predicted ones as well."""
    columns = [frame.columns[frame.label]]
    if is_predictions(frame):
        columns = [frame.columns[RESULT], *(columns if _are_known(columns[0]) else ())]
    return list(np.unique(np.concatenate(columns)).tolist())


def _are_known(labels: Array) -> bool:
    return labels.dtype.kind != "f" or not np.isnan(labels).any()


def _of_regression(frame: PartyFrame) -> bool:
    return is_predictions(frame) and bool(len(frame)) and list(json.loads(frame.columns[DETAIL][0])) == [LABEL]


def _mapped(part: ComponentPart, labels: Array, codes: list[tuple[Any, Any]]) -> Array:
    known = {value_key(label): code for label, code in codes}
    try:
        return np.array([known[value_key(one)] for one in labels.tolist()])
    except KeyError as error:
        part.tracker.log(f"the label {error.args[0]!r} has no code")
        raise UsageError(
            f"{part.component}: a label at {part.here} has no code",
            hint="Name all labels in label_encoder. The log of the component at this party tells which one.",
        ) from None


def _renamed(part: ComponentPart, frame: PartyFrame, codes: list[tuple[Any, Any]]) -> PartyFrame:
    """Return predictions with other labels."""
    names = {value_key(old): str(new) for old, new in codes}
    labels = frame.columns[LABEL]
    details = [
        json.dumps({names.get(value_key(name), name): value for name, value in json.loads(one).items()})
        for one in frame.columns[DETAIL].tolist()
    ]
    return replace(
        frame,
        columns={
            **frame.columns,
            LABEL: _mapped(part, labels, codes) if _are_known(labels) else labels,
            RESULT: _mapped(part, frame.columns[RESULT], codes),
            DETAIL: np.array(details, dtype=object),
        },
    )
