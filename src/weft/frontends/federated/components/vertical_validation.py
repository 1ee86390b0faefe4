"""Validation of linear models over columns of several parties, after epochs.

The guest decides which epochs are validated and tells the hosts, so that parameters of a host cannot differ. In such an
epoch the hosts send their parts of the scores of the rows that validate.

Who learns what: the guest gets the parts of the hosts for several epochs and not only for the last one, which tells it
more about the columns of these rows; with as many epochs as a host has features, all that its scores can tell. The
hosts and the arbiter learn when the training ends, and the hosts which epoch was the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST
from weft.frontends.federated.components.inputs import columns_of, shared_validation_frame
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.components.validation import (
    Validation,
    ValidationHistory,
    ValidationRows,
    is_due,
    validation_of,
)
from weft.frontends.federated.components.vertical import check_rows, scores_of
from weft.model.errors import PartyMessageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart

Array = np.ndarray[Any, Any]
Measure = Callable[[ValidationRows, Array], tuple[Array, Array]]
"""Turns the rows that validate and their scores into truth and values, as `Validation.measure` takes them."""


class _Told(msgspec.Struct, frozen=True):
    freqs: int | list[int]
    early: bool


class EpochPlan:
    """Which epochs of a component are validated, and the rows here; the same for all of its models."""

    def __init__(
        self, part: ComponentPart, told: _Told, validation: Validation | None, features: Sequence[str], intercept: bool
    ) -> None:
        self.part, self.told, self.validation = part, told, validation
        frame = shared_validation_frame(part)
        check_rows(part, len(frame))
        self.rows = ValidationRows(part, frame) if validation is not None else None
        matrix = columns_of(part, frame, {"features": features})
        self.matrix = np.hstack([matrix, np.ones((len(matrix), 1))]) if intercept else matrix

    @classmethod
    def of(cls, part: ComponentPart, kind: str, features: Sequence[str], *, intercept: bool) -> EpochPlan | None:
        """Return the plan of the guest at guest and hosts; None: nothing is validated.

        UsageError: a parameter is not possible, or a host has other rows. PartyMessageError: the plan is none.
        """
        if part.here.role == GUEST:
            validation = validation_of(part, kind)
            told = None if validation is None else _Told(validation.freqs, validation.patience > 0)
            part.channel.send("validation", None if told is None else msgspec.to_builtins(told), part.all_of(HOST))
            return None if told is None else cls(part, told, validation, features, intercept)
        guest = part.all_of(GUEST)[0]
        sent = part.channel.receive("validation", guest)
        if sent is None:
            return None
        told = message_as(_Told, sent, guest)
        if isinstance(told.freqs, int) and told.freqs < 1:
            raise PartyMessageError(f"{guest} has sent epochs that there are not", party=guest.id)
        return cls(part, told, None, features, intercept=False)

    def watch(self, tag: str, mark: str, measure: Measure) -> EpochWatch:
        """Return the watch over one model. `tag` tells its messages from those of others, `mark` its curves."""
        history = None
        if self.validation is not None:
            history = ValidationHistory(self.part.tracker, self.validation, mark)
        return EpochWatch(self, tag, history, measure)


class EpochWatch:
    """Validates the weights of one model after epochs, and knows the best ones."""

    def __init__(self, plan: EpochPlan, tag: str, history: ValidationHistory | None, measure: Measure) -> None:
        self._plan, self._tag, self._history, self._measure = plan, tag, history, measure
        self._kept: dict[int, Any] = {}

    def see(self, epoch: int, weights: Array) -> bool:
        """Validate an epoch if it is due. Return at the guest whether the training ends; False at hosts."""
        part, tag = self._plan.part, f"/epoch{self._tag}"
        return self.look(epoch, weights, lambda matrix: scores_of(part, matrix @ weights, tag))

    def look(self, epoch: int, state: Any, scores: Callable[[Array], Array | None]) -> bool:
        """Do what `see` does for a model of another form: `state` is what is kept of an epoch.

        `scores` returns those of rows, shape (rows, features), at the guest; None at hosts.
        """
        plan = self._plan
        if not is_due(plan.told.freqs, epoch):
            return False
        total = scores(plan.matrix)
        if self._history is None or total is None:
            self._kept[epoch] = state
            return False
        assert plan.rows is not None
        assert plan.validation is not None
        metrics = plan.validation.measure(*self._measure(plan.rows, total))
        return self._history.see(epoch, metrics, state)

    def chosen(self, last: Any) -> Any:
        """Return what is kept, such as weights: that of the best epoch, or the last one."""
        part, name = self._plan.part, f"best{self._tag}"
        if not self._plan.told.early:
            return last
        if self._history is not None:
            best = self._history.best
            part.channel.send(name, None if best is None else best[0], part.all_of(HOST))
            return last if best is None else best[1]
        guest = part.all_of(GUEST)[0]
        epoch = part.channel.receive(name, guest)
        if epoch is not None and (not isinstance(epoch, int) or epoch not in self._kept):
            raise PartyMessageError(f"{guest} has chosen an epoch that was not validated", party=guest.id)
        return last if epoch is None else self._kept[epoch]

    def close(self) -> dict[str, Any]:
        """Tell the curves at the guest, and return what the summary says."""
        return {} if self._history is None else self._history.close()
