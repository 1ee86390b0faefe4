"""HomoFeatureBinning: the same bins of features at parties with the same columns and different rows.

The edges are exact quantiles over the rows of all parties (`quantiles`), for both methods of FATE: `virtual_summary`
and `recursive_query` differ in how they come near them. So the parameters of the approximation (`error`,
`sample_bins`, `max_iter`, `head_size`, `compress_thres`) have no effect. Values become the numbers of their bins.

Who learns what: see `quantiles` and `horizontal`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ARBITER, ComponentPart, PartOutput
from weft.frontends.federated.components.columns import chosen_features
from weft.frontends.federated.components.horizontal import HorizontalSums, arbitrate
from weft.frontends.federated.components.inputs import columns_of, group, number, only_frame, only_model, refuse, word
from weft.frontends.federated.components.quantiles import pooled_bins
from weft.model.errors import UsageError


def run(part: ComponentPart) -> PartOutput:
    """Find bins, or apply those of a model. UsageError: a parameter is not possible, or a value is missing."""
    model = only_model(part)
    if part.here.role == ARBITER:
        if model is None:
            arbitrate(part)
        return PartOutput()
    frame = only_frame(part)
    if model is None:
        model = _fit(part)
        part.tracker.summary({"split_points": model["edges"]})
    names = list(model.get("edges", ()))
    matrix = columns_of(part, frame, model | ({"features": names} if names else {}))
    columns = dict(frame.columns)
    for at, name in enumerate(names):
        if name in model["transformed"]:
            columns[name] = np.searchsorted(np.array(model["edges"][name]), matrix[:, at], side="left")
    return PartOutput(data=(replace(frame, columns=columns),), model=model)


def _fit(part: ComponentPart) -> dict[str, Any]:
    given = part.parameters
    refuse(part, {}, ("category_indexes", "category_names", "local_only"))
    word(part, "method", "virtual_summary", "virtual_summary", "recursive_query")
    count = number(part, "bin_num", 10, least=2)
    if count != int(count):
        raise UsageError(f"{part.component}: bin_num is {count!r}; it must be a whole number")
    transform = group(part, "transform_param")
    kind = transform.get("transform_type", "bin_num")
    if kind not in (None, "bin_num"):
        raise UsageError(
            f"{part.component}: transform_param.transform_type is {kind!r}", hint="Use bin_num, or null for none."
        )
    sums = HorizontalSums(part)
    frame = only_frame(part)
    binned = sums.same("binned", chosen_features(part, frame, given, "bin_indexes", "bin_names", every=True), list[str])
    transformed = list(binned)
    if transform.get("transform_cols", -1) != -1 or transform.get("transform_names"):
        cols = transform.get("transform_cols")
        own = {**transform, "transform_cols": None if cols == -1 else cols}
        wanted = chosen_features(part, frame, own, "transform_cols", "transform_names", every=True)
        transformed = [name for name in binned if name in wanted]
    sums.compare({"bin_num": int(count), "transform_param": transformed if kind else []})
    matrix = columns_of(part, frame, {"features": binned})
    bins = pooled_bins(sums, matrix, int(count), sums.share(len(frame))[0])
    sums.close()
    return {
        "kind": part.module,
        "edges": {name: edges.tolist() for name, edges in zip(binned, bins.edges, strict=True)},
        "transformed": transformed if kind else [],
    }
