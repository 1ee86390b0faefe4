"""FeatureImputation: values in place of missing ones, each party of its own rows. Nothing crosses between parties.

Missing are values that are no numbers (NaN), and those of `missing_impute`. Without a method they become 0; with
`col_missing_fill_method` alone only its columns are filled. Source of names and meanings: FATE 1.7 to 1.11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.columns import checked_columns, numbers_without, value_key
from weft.frontends.federated.components.inputs import group, only_frame, only_model, word
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_DESIGNATED: Final = "designated"
_NO_NUMBERS: Final = "Name them in missing_impute, or put a DataTransform before it."
_METHODS: Final = ("min", "max", "mean", _DESIGNATED)


def run(part: ComponentPart) -> PartOutput:
    """Fill. UsageError: a method or a column does not exist, or a value to fill in is none."""
    frame, model = only_frame(part), only_model(part)
    if model is None:
        model = _fit(part, frame)
    checked_columns(part, frame, list(model["fill"]))
    missing, columns, counts = set(model["missing"]), dict(frame.columns), {}
    for name, value in model["fill"].items():
        numbers = numbers_without(part, frame, name, missing, hint=_NO_NUMBERS)
        where = np.isnan(numbers)
        counts[name] = int(where.sum())
        columns[name] = np.where(where, value, numbers)
    part.tracker.summary({"filled": counts, "values": model["fill"]})
    return PartOutput(data=(replace(frame, columns=columns),), model=model)


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    method, own = word(part, "missing_fill_method", "", *_METHODS), _own_methods(part, frame)
    listed = part.parameters.get("missing_impute")
    if listed is not None and not isinstance(listed, list):
        raise UsageError(f"{part.component}: missing_impute is {listed!r}", hint="Write a list of values.")
    missing = {value_key(one) for one in listed or ()}
    fill = {}
    for at, name in enumerate(frame.features):
        how = own.get(name, method)
        if how == _DESIGNATED:
            fill[name] = _designated(part, name, at, len(frame.features))
        elif how:
            numbers = numbers_without(part, frame, name, missing, hint=_NO_NUMBERS)
            known = numbers[~np.isnan(numbers)]
            if not len(known):
                raise UsageError(
                    f"{part.component}: column {name!r} at {part.here} has no values to take the {how} of",
                    hint="Set its method to designated in col_missing_fill_method.",
                )
            fill[name] = float(known.min() if how == "min" else known.max() if how == "max" else known.mean())
        elif not own:
            fill[name] = 0.0
    return {"kind": part.module, "missing": sorted(missing), "fill": fill}


def _own_methods(part: ComponentPart, frame: PartyFrame) -> dict[str, str]:
    found = {}
    for name, one in group(part, "col_missing_fill_method").items():
        if name not in frame.features:
            part.tracker.log(f"col_missing_fill_method: {part.here} has no feature {name}")
        found[name] = str(one).lower()
        if found[name] not in _METHODS:
            raise UsageError(
                f"{part.component}: col_missing_fill_method of {name!r} is {one!r}", hint=f"Use {', '.join(_METHODS)}."
            )
    return found


def _designated(part: ComponentPart, name: str, at: int, count: int) -> float:
    given = part.parameters.get("default_value", 0)
    if isinstance(given, Mapping):
        given = given.get(name, 0)
    elif isinstance(given, list):
        given = given[at] if len(given) == count else None
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise UsageError(
            f"{part.component}: default_value has no number for column {name!r} of {part.here}",
            hint=f"Use a number, or a list with one for each of its {count} features.",
        )
    return float(given)
