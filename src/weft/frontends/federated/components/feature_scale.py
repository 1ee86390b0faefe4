"""FeatureScale: features with a common range, or with mean 0 and deviation 1. Each party scales its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.columns import checked_columns, chosen_features
from weft.frontends.federated.components.inputs import only_frame, only_model, word
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

_MIN_MAX, _STANDARD = "min_max_scale", "standard_scale"
_NORMAL, _CAP = "normal", "cap"


def run(part: ComponentPart) -> PartOutput:
    """Scale. UsageError: a parameter is not possible."""
    frame, model = only_frame(part), only_model(part)
    if model is None:
        model = _fit(part, frame)
    checked_columns(part, frame, list(model["columns"]))
    columns = dict(frame.columns)
    for name, one in model["columns"].items():
        values = np.clip(columns[name].astype(float), one["lower"], one["upper"])
        columns[name] = (values - one["shift"]) / one["width"] if one["width"] else np.zeros(len(frame))
    part.tracker.summary({"scaled": list(model["columns"])})
    return PartOutput(data=(replace(frame, columns=columns),), model=model)


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    method = word(part, "method", _STANDARD, _MIN_MAX, _STANDARD)
    mode = word(part, "mode", _NORMAL, _NORMAL, _CAP)
    columns = {}
    for at, name in enumerate(
        chosen_features(part, frame, part.parameters, "scale_col_indexes", "scale_names", every=True)
    ):
        values = frame.columns[name].astype(float)
        known = values[~np.isnan(values)]
        if not len(known):
            raise UsageError(f"{part.component}: column {name!r} at {part.here} has no values")
        lower, upper = (_bound(part, f"feat_{which}", name, at) for which in ("lower", "upper"))
        if mode == _CAP:  # bounds are shares of the rows
            shares = [0.0 if lower is None else lower, 1.0 if upper is None else upper]
            if not 0 <= shares[0] <= shares[1] <= 1:
                raise UsageError(
                    f"{part.component}: feat_lower and feat_upper are {shares[0]:g} and {shares[1]:g} for {name!r}",
                    hint="With the mode cap they are shares of the rows, between 0 and 1.",
                )
            low, high = np.quantile(known, shares)
        else:
            low = known.min() if lower is None else max(known.min(), lower)
            high = known.max() if upper is None else min(known.max(), upper)
        kept = np.clip(known, low, high)
        if method == _MIN_MAX:
            shift, width = low, high - low
        else:
            shift = kept.mean() if part.parameters.get("with_mean") is not False else 0.0
            width = kept.std() if part.parameters.get("with_std") is not False else 1.0
        columns[name] = {"lower": float(low), "upper": float(high), "shift": float(shift), "width": float(width)}
    return {"method": method, "columns": columns}


def _bound(part: ComponentPart, parameter: str, name: str, at: int) -> float | None:
    given = part.parameters.get(parameter)
    if isinstance(given, Mapping):
        given = given.get(name)
    elif isinstance(given, list):
        given = given[at] if at < len(given) else None
    if given is None or isinstance(given, (int, float)):
        return given
    raise UsageError(f"{part.component}: {parameter} is {given!r}; it must be a number, a list or an object")
