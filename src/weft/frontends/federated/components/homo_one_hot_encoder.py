"""HomoOneHotEncoder: a column of zeros and ones for each value of a column, the same at all parties.

With `need_alignment` the values are those of all parties, so that their columns stay the same. A new column is named
after the old one and the value: `colour_red`. A value that was not there in the training has zeros in all columns.

Who learns what: the guest learns which values the chosen columns have at each host, not how often; all parties learn
the values of all together. Without `need_alignment` nothing is sent. The arbiter has no part in it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.horizontal import chosen_features, common_values
from weft.frontends.federated.components.inputs import only_frame, only_model
from weft.model.errors import UsageError

_MOST_VALUES: Final = 1000
Array = np.ndarray[Any, Any]


def run(part: ComponentPart) -> PartOutput:
    """Encode. UsageError: a column is not there, has missing values, or has too many different ones."""
    if part.here.role == ARBITER:
        return PartOutput()
    frame, model = only_frame(part), only_model(part)
    if model is None:
        model = _fit(part)
    if "values" not in model:
        raise UsageError(
            f"{part.component}: {part.here} does not have the model", hint="Name the model_version of a training job."
        )
    missing = [name for name in model["values"] if name not in frame.columns]
    if missing:
        raise UsageError(f"{part.component}: the rows of {part.here} have no column {missing[0]!r}")
    columns: dict[str, Array] = {}
    for name, values in frame.columns.items():
        if name not in model["values"]:
            columns[name] = values
            continue
        for one in model["values"][name]:
            new = f"{name}_{one}"
            if new in frame.columns or new in columns:
                raise UsageError(f"{part.component}: there are two columns {new!r}", hint="Rename one before it.")
            columns[new] = (values == one).astype(np.int64)
    part.tracker.summary({"values": model["values"], "columns": len(columns)})
    return PartOutput(data=(replace(frame, columns=columns),), model=model)


def _fit(part: ComponentPart) -> dict[str, Any]:
    if len(part.all_of(GUEST)) != 1 or not part.all_of(HOST):
        raise UsageError(f"{part.component} needs one guest and at least one host")
    frame, given = only_frame(part), part.parameters
    names = chosen_features(
        part, frame.features, given.get("transform_col_indexes", -1), given.get("transform_col_names")
    )
    own = {name: _values(part, name, frame.columns[name]) for name in names}
    found = own if given.get("need_alignment") is False else common_values(part, "values", own)
    for name, values in found.items():
        if len(values) > _MOST_VALUES:
            raise UsageError(
                f"{part.component}: column {name!r} has {len(values)} different values",
                hint=f"Encode columns of at most {_MOST_VALUES}, or put a binning before it.",
            )
    return {"kind": part.module, "values": found}


def _values(part: ComponentPart, name: str, column: Array) -> list[Any]:
    """Return the different values of a column; numbers that are whole as integers."""
    if column.dtype.kind == "f":
        if not np.isfinite(column).all():
            raise UsageError(f"{part.component}: a value of {name!r} at {part.here} is missing")
        return [int(one) if one.is_integer() else one for one in np.unique(column).tolist()]
    return list(np.unique(column).tolist())
