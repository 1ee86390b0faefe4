"""Boosted trees whose training goes on with a model: new trees are added to those of the model, as in FATE.

Task, learning rate, first score and classes are those of the model; whatever chooses splits is that of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.frontends.federated.components.warm_start import Beginning, check_features
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.components.boosting import Boosting
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.components.trees import FeatureBins

EARLIER: Final = "earlier"
"""The end of the names of the questions about leaves of the trees of the model."""


def tree_rounds(model: Any) -> list[int] | None:
    """Return the number of rounds of a model; None: this part does not have the trees."""
    return [len(model["trees"]) // len(model["start"])] if "trees" in model else None


def boosting_before(part: ComponentPart, boosting: Boosting, frame: PartyFrame, model: dict[str, Any]) -> Boosting:
    """Return the parameters of a training that goes on with a model.

    UsageError: the rows have other features than the model, or missing values mean something else.
    """
    check_features(part, frame.features, model)
    for name in ("use_missing", "zero_as_missing"):
        if bool(model.get(name)) != getattr(boosting, name):
            raise UsageError(
                f"{part.component}: {name} is {getattr(boosting, name)}, and the model has another one",
                hint="Set it to that of the model.",
            )
    if "learning_rate" not in model:
        return boosting
    if boosting.learning_rate != model["learning_rate"]:
        part.tracker.log(f"learning_rate is that of the model, {model['learning_rate']:g}")
    return boosting._replace(learning_rate=model["learning_rate"], task=model["task"])


class GrownSplits:
    """The splits of a party by their ids: those of an earlier training, and those that were found since.

    `found` has feature, edge and the side of missing values of each; of earlier ones it has nothing but their places.
    """

    def __init__(self, boosting: Boosting, frame: PartyFrame, bins: FeatureBins, begin: Beginning) -> None:
        self._boosting, self._frame, self._bins = boosting, frame, bins
        self._earlier: list[list[Any]] = begin.model["splits"] if begin.goes_on else []
        self.found = [(0, 0, False)] * len(self._earlier)

    def model(self) -> dict[str, Any]:
        """Return the splits as a model has them: the feature, and the largest value that goes left.

        With `use_missing` whether missing values go left follows.
        """
        bins, boosting, count = self._bins, self._boosting, len(self._earlier)
        named = self._earlier[: len(self.found)]
        for feature, edge, left in self.found[count:]:
            one = [self._frame.features[bins.columns[feature]], float(bins.edges[feature][edge])]
            named.append(one + [left] * boosting.use_missing)
        missing = {"use_missing": boosting.use_missing, "zero_as_missing": boosting.zero_as_missing}
        return {"features": list(self._frame.features), "splits": named, **missing}
