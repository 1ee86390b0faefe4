"""Union: the rows of several tables of a party, one below the other."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.inputs import only_frame
from weft.model.errors import UsageError


def run(part: ComponentPart) -> PartOutput:
    """Join the tables; of rows with one id the first stays, unless `keep_duplicate`.

    Columns have the order of the first table. UsageError: columns differ.
    """
    frames = [one for found in part.data.values() for one in found]
    first = only_frame(part)
    for one in frames:
        if one.label != first.label:
            raise UsageError(
                f"{part.component}: tables at {part.here} have the labels {first.label!r} and {one.label!r}"
            )
        if other := sorted(one.columns.keys() ^ first.columns.keys()):
            raise UsageError(
                f"{part.component}: only some tables at {part.here} have {', '.join(map(repr, other[:5]))}"
            )
    ids = np.concatenate([one.ids for one in frames])
    columns = {name: np.concatenate([one.columns[name] for one in frames]) for name in first.columns}
    rows = np.arange(len(ids))
    if not part.parameters.get("keep_duplicate"):
        _, rows = np.unique(ids.astype(str), return_index=True)
        rows = np.sort(rows)
    joined = replace(first, ids=ids[rows], columns={name: one[rows] for name, one in columns.items()})
    part.tracker.summary({"rows": len(joined), "dropped": len(ids) - len(joined)})
    return PartOutput(data=(joined,))
