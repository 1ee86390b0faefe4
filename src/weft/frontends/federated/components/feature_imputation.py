"""FeatureImputation: values in place of missing ones, each party of its own rows. Nothing crosses between parties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.columns import checked_columns
from weft.frontends.federated.components.inputs import group, only_frame, only_model, word
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_DESIGNATED: Final = "designated"
_METHODS: Final = ("min", "max", "mean", _DESIGNATED)


def run(part: ComponentPart) -> PartOutput:
    """Fill. UsageError: a method or a column does not exist, or a value to fill in is none."""
    frame, model = only_frame(part), only_model(part)
    if model is None:
        model = _fit(part, frame)
    checked_columns(part, frame, list(model["fill"]))
    missing, columns, counts = set(model["missing"]), dict(frame.columns), {}
    for name, value in model["fill"].items():
        numbers = _numbers(part, frame, name, missing)
        where = np.isnan(numbers)
        counts[name] = int(where.sum())
        columns[name] = np.where(where, value, numbers)
    part.tracker.summary({"filled": counts, "values": model["fill"]})
    return PartOutput(data=(replace(frame, columns=columns),), model=model)


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    method = word(part, "missing_fill_method", "", *_METHODS)
    own = group(part, "col_missing_fill_method")
    for name, one in own.items():
        if name not in frame.features:
            part.tracker.log(f"col_missing_fill_method: {part.here} has no feature {name}")
        if str(one) not in _METHODS:
            raise UsageError(
                f"{part.component}: col_missing_fill_method of {name!r} is {one!r}", hint=f"Use {', '.join(_METHODS)}."
            )
    missing = {str(one) for one in part.parameters.get("missing_impute") or ()}
    fill = {}
    for at, name in enumerate(frame.features):
        numbers = _numbers(part, frame, name, missing)
        known = numbers[~np.isnan(numbers)]
        how = str(own.get(name, method))
        if how == _DESIGNATED:
            fill[name] = _designated(part, name, at)
        elif not how or not len(known):
            fill[name] = 0.0
        else:
            fill[name] = float(known.min() if how == "min" else known.max() if how == "max" else known.mean())
    return {"kind": part.module, "missing": sorted(missing), "fill": fill}


def _designated(part: ComponentPart, name: str, at: int) -> float:
    given = part.parameters.get("default_value", 0)
    if isinstance(given, Mapping):
        given = given.get(name, 0)
    elif isinstance(given, list):
        given = given[at] if at < len(given) else None
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise UsageError(
            f"{part.component}: default_value has no number for column {name!r}",
            hint="Use a number, or a list with one for each feature.",
        )
    return float(given)


def _numbers(part: ComponentPart, frame: PartyFrame, name: str, missing: set[str]) -> Array:
    column = frame.columns[name]
    left_out = np.array([str(one) in missing for one in column.tolist()], dtype=bool)
    try:
        return np.where(left_out, np.nan, column).astype(float)
    except (TypeError, ValueError):
        raise UsageError(
            f"{part.component}: column {name!r} at {part.here} has values that are no numbers",
            hint="Name them in missing_impute, or put a DataTransform before it.",
        ) from None
