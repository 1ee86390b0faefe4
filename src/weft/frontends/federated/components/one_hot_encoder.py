"""OneHotEncoder and HomoOneHotEncoder: a column of zeros and ones for each value of a column.

A new column is named after the old one and the value: `colour_red`. A value that was not there in the training has
zeros in all columns. OneHotEncoder encodes the columns of each party alone, and sends nothing. HomoOneHotEncoder is for
parties with the same columns: with `need_alignment` the values are those of all, so that their columns stay the same.

Who learns what with `need_alignment`: the guest learns which values the chosen columns have at each host, not how
often; all parties learn the values of all together. The arbiter has no part in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ARBITER, ComponentPart, PartOutput
from weft.frontends.federated.components.columns import checked_columns, chosen_features
from weft.frontends.federated.components.horizontal import common_values
from weft.frontends.federated.components.inputs import check_parties, only_frame, only_model
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

_MOST_VALUES: Final = 1024
_FILL: Final = "Put a FeatureImputation before it."
Array = np.ndarray[Any, Any]


def run(part: ComponentPart) -> PartOutput:
    """Encode. UsageError: a column is not there, has missing values, or has too many different ones."""
    frame, model = only_frame(part), only_model(part)
    return _encoded(part, frame, _fit(part, frame) if model is None else model)


def run_homo(part: ComponentPart) -> PartOutput:
    """Encode columns alike at all parties. Errors: see `run`."""
    if part.here.role == ARBITER:
        return PartOutput()
    check_parties(part)
    frame, model = only_frame(part), only_model(part)
    if model is None:
        model = _fit(part, frame, homo=True)
    return _encoded(part, frame, model)


def _encoded(part: ComponentPart, frame: PartyFrame, model: dict[str, Any]) -> PartOutput:
    if "values" not in model:
        raise UsageError(
            f"{part.component}: {part.here} does not have the model", hint="Name the model_version of a training job."
        )
    checked_columns(part, frame, list(model["values"]))
    columns: dict[str, Array] = {}
    unknown: dict[str, int] = {}
    for name, values in frame.columns.items():
        if name not in model["values"]:
            columns[name] = values
            continue
        for one in model["values"][name]:
            new = f"{name}_{one}"
            if new in frame.columns or new in columns:
                raise UsageError(f"{part.component}: there are two columns {new!r}", hint="Rename one before it.")
            columns[new] = (values == one).astype(np.int64)
        rows = len(frame) - int(sum(columns[f"{name}_{one}"].sum() for one in model["values"][name]))
        if rows:
            unknown[name] = rows
            part.tracker.log(f"{rows} values of {name} at {part.here} were not in the training: they have zeros")
    part.tracker.summary({"values": model["values"], "columns": len(columns), "unknown": unknown})
    return PartOutput(data=(replace(frame, columns=columns),), model=model)


def _fit(part: ComponentPart, frame: PartyFrame, *, homo: bool = False) -> dict[str, Any]:
    names = chosen_features(part, frame, part.parameters, "transform_col_indexes", "transform_col_names", every=homo)
    own = {name: _values(part, name, frame.columns[name]) for name in names}
    found = common_values(part, "values", own) if homo and _aligns(part) else own
    for name, values in found.items():
        if len(values) > _MOST_VALUES:
            raise UsageError(
                f"{part.component}: column {name!r} has {len(values)} different values",
                hint=f"Encode columns of at most {_MOST_VALUES}, or put a binning before it.",
            )
    return {"kind": part.module, "values": found}


def _aligns(part: ComponentPart) -> bool:
    return part.parameters.get("need_alignment") is not False


def _values(part: ComponentPart, name: str, column: Array) -> list[Any]:
    """Return the different values of a column; numbers that are whole as integers."""
    if column.dtype.kind == "f":
        if not np.isfinite(column).all():
            raise UsageError(f"{part.component}: a value of {name!r} at {part.here} is missing", hint=_FILL)
        return [int(one) if one.is_integer() else one for one in np.unique(column).tolist()]
    kinds = {isinstance(one, str) for one in column.tolist()}
    if any(one is None or one != one for one in column.tolist()):
        raise UsageError(f"{part.component}: a value of {name!r} at {part.here} is missing", hint=_FILL)
    if len(kinds) > 1:
        raise UsageError(f"{part.component}: column {name!r} at {part.here} has texts and numbers at once")
    return list(np.unique(column).tolist())
