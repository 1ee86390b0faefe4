"""Validation of boosted trees of several parties, after rounds (`hetero_secureboost`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import HOST
from weft.frontends.federated.components.boosting import Boosting, loss_of
from weft.frontends.federated.components.evaluation import BINARY, MULTI, REGRESSION
from weft.frontends.federated.components.inputs import shared_validation_frame
from weft.frontends.federated.components.tree_leaves import find_leaves, leaf_weights
from weft.frontends.federated.components.validation import (
    Validation,
    ValidationHistory,
    ValidationRows,
    is_due,
    validation_of,
)

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart

VALIDATES: Final = "validate"
"""What the guest sends in place of a tree: questions about the rows that validate follow."""
ROUND: Final = "round"
"""The end of the names of these questions."""
Array = np.ndarray[Any, Any]


class TreeWatch:
    """Validates trees at the guest after rounds. The hosts answer as in a prediction, for the trees that are new.

    So hosts learn which of these rows reach their nodes also for trees that are not kept.
    """

    def __init__(
        self, part: ComponentPart, boosting: Boosting, classes: list[Any], validation: Validation, start: Array
    ) -> None:
        self._part, self._boosting, self._classes = part, boosting, classes
        self._validation, self._outputs, self._seen = validation, len(start), 0
        self._history = ValidationHistory(part.tracker, validation)
        self._rows = ValidationRows(part, shared_validation_frame(part))
        self._scores = np.tile(start, (len(self._rows.frame), 1))

    @classmethod
    def of(cls, part: ComponentPart, boosting: Boosting, classes: list[Any], start: Array) -> TreeWatch | None:
        """Return the watch that the file asks for; None: it asks for none."""
        kind = MULTI if len(classes) > 2 else BINARY if classes else REGRESSION
        validation = validation_of(part, kind)
        return None if validation is None else cls(part, boosting, classes, validation, start)

    def see(self, at: int, pieces: dict[str, Any], scores: Array) -> bool:
        """Validate a round if it is due, and keep the scores of the training if it is the best. Return if it ends."""
        if not is_due(self._validation.freqs, at):
            return False
        part, new = self._part, pieces["trees"][self._seen :]
        part.channel.send("tree", VALIDATES, part.all_of(HOST))
        leaves = find_leaves(part, self._rows.frame, pieces | {"trees": new}, ROUND)
        self._scores += self._boosting.learning_rate * leaf_weights(new, leaves, self._outputs)
        self._seen += len(new)
        return self._history.see(at, self._validation.measure(*self._measured()), scores)

    def _measured(self) -> tuple[Array, Array]:
        """Return truth and values, as `Validation.measure` takes them."""
        loss, target = loss_of(self._boosting.task, self._classes), self._rows.labels
        found = loss.predict(self._scores)
        if len(self._classes) > 2:
            return target, np.asarray(self._classes)[found.argmax(axis=1)]
        return (self._rows.truth(self._classes[1]) if self._classes else target.astype(float)), found[:, 0]

    def chosen(self, trees: list[list[Any]], scores: Array) -> tuple[list[list[Any]], Array]:
        """Return the trees that are kept and their scores in the training: to the best round, or all."""
        best = self._history.best
        return (trees, scores) if best is None else (trees[: (best[0] + 1) * self._outputs], best[1])

    def close(self) -> dict[str, Any]:
        """Tell the curves, and return what the summary says."""
        return self._history.close()
