"""SBTFeatureTransformer: a column for each leaf of a HeteroSecureBoost model, 1 for the rows that reach it.

Its guest gets the columns, `sbt_TREE_LEAF`, in place of its features (`hetero_secureboost` says who learns what); hosts
keep their rows without features. With `dense_format` of False FATE keeps the columns sparse; here they are the same.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from weft.frontends.federated.components.base import HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.inputs import check_parties, only_frame, only_model
from weft.frontends.federated.components.tree_leaves import answer_leaves, find_leaves
from weft.model.errors import UsageError

_BOOSTED: Final = "boosted"
"""The key of the model of boosted trees in the model of this component."""


def run(part: ComponentPart) -> PartOutput:
    """Transform. UsageError: there is no model of boosted trees, or its columns are not there."""
    check_parties(part)
    frame, given = only_frame(part), only_model(part)
    if given is None:
        given = next(iter(part.models.get("isometric_model", {}).values()), {})
    model = given.get(_BOOSTED, given)
    if "splits" not in model:
        raise UsageError(
            f"{part.component}: {part.here} has no model of boosted trees",
            hint="Name the model of a HeteroSecureBoost as isometric_model.",
        )
    kept = {"kind": part.module, _BOOSTED: model}
    if part.here.role == HOST:
        answer_leaves(part, frame, model)
        return PartOutput(data=(frame.with_features((), np.empty((len(frame), 0))),), model=kept)
    leaves = find_leaves(part, frame, model)
    names, columns = [], []
    for tree, nodes in enumerate(model["trees"]):
        for at, leaf in enumerate(at for at, node in enumerate(nodes) if "split" not in node):
            names.append(f"sbt_{tree}_{at}")
            columns.append(leaves[:, tree] == leaf)
    values = np.column_stack(columns).astype(float) if columns else np.empty((len(frame), 0))
    part.tracker.summary({"trees": len(model["trees"]), "columns": len(names)})
    return PartOutput(data=(frame.with_features(names, values),), model=kept)
