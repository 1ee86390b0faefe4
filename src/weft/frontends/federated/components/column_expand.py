"""ColumnExpand: columns with the same value in all rows, behind the others. Nothing is sent.

It may stand before or after a DataTransform: rows of texts get texts. Source of names and meanings: FATE 1.8 to 1.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.columns import ANONYMOUS, anonymous_names, with_anonymous
from weft.frontends.federated.components.inputs import only_frame, only_model, word
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

_FILL: Final = 1e-8


def run(part: ComponentPart) -> PartOutput:
    """Append columns, or those of a model. UsageError: a parameter is not possible, or there is such a column."""
    frame, model = only_frame(part), only_model(part)
    if model is None:
        model = {"kind": part.module, "appended": _appended(part)}
    if "appended" not in model:
        raise UsageError(
            f"{part.component}: {part.here} does not have the model", hint="Name the model_version of a training job."
        )
    found = _expanded(part, frame, model["appended"])
    part.tracker.summary({"appended": [name for name, _ in model["appended"]]})
    return PartOutput(data=(found,), model=model)


def _appended(part: ComponentPart) -> list[list[Any]]:
    """Return names and values of the columns that the file asks for."""
    word(part, "method", "manual", "manual")
    names, values = part.parameters.get("append_header") or [], part.parameters.get("fill_value")
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(one, str) and one for one in names):
        raise UsageError(f"{part.component}: append_header is {names!r}", hint="Use a list of names.")
    values = _FILL if values is None else values
    if not isinstance(values, list):
        values = [values] * len(names)
    if len(values) == 1:
        values = values * len(names)
    if len(values) != len(names):
        raise UsageError(
            f"{part.component}: append_header has {len(names)} names, and fill_value {len(values)} values",
            hint="Use a value for each name, or one for all.",
        )
    wrong = [one for one in values if isinstance(one, bool) or not isinstance(one, (int, float, str))]
    if wrong:
        raise UsageError(f"{part.component}: fill_value has {wrong[0]!r}", hint="Use numbers or texts.")
    return [list(one) for one in zip(names, values, strict=True)]


def _expanded(part: ComponentPart, frame: PartyFrame, appended: list[list[Any]]) -> PartyFrame:
    columns, texts = dict(frame.columns), all(one.dtype.kind in "OUS" for one in frame.columns.values())
    for name, value in appended:
        if name in columns:
            raise UsageError(
                f"{part.component}: {part.here} has a column {name!r} already",
                hint="Choose another name in append_header.",
            )
        if texts or isinstance(value, str):
            columns[name] = np.full(len(frame), str(value), dtype=object)
        else:
            columns[name] = np.full(len(frame), float(value))
    found = replace(frame, columns=columns)
    return with_anonymous(found, anonymous_names(part, found)) if frame.about.get(ANONYMOUS) else found
