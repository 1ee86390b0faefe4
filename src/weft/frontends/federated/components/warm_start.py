"""How a component begins that may be given a model: it predicts, trains, or goes on with a training.

With a model and `train_data` a training goes on, as in FATE: weights and trees of the model are the first ones, and
what an optimizer remembers of its steps begins anew.

Who learns what: the other parties learn from the guest how many rounds the model has had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST
from weft.frontends.federated.components.inputs import group, labels_of
from weft.frontends.federated.components.secure_trees import message_as
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_TRAIN, _NAME = "train_data", "goes_on"
_ALONE: Final = {"cv_param": "need_cv", "stepwise_param": "need_stepwise"}
"""What trains several models, and so cannot go on with one."""
_SAME: Final = {"HeteroFastSecureBoost": "HeteroSecureBoost", "HomoSecureboost": "HomoSecureBoost"}


class Beginning(NamedTuple):
    """How a part begins. `model` is the one that it is given (None: none), empty if another part has it.

    `rounds` are those that the models in it have had, if a training goes on with it.
    """

    model: Any
    trains: bool
    rounds: list[int]

    @property
    def goes_on(self) -> bool:
        """Whether a training goes on with the model."""
        return self.trains and self.model is not None

    def done(self, at: int = 0) -> int:
        """Return how many rounds a model has had."""
        return self.rounds[at] if at < len(self.rounds) else 0

    def losses(self, at: int = 0) -> list[float]:
        """Return the losses of these rounds, of a linear model."""
        return list(linear_models(self.model)[at]["losses"]) if self.goes_on else []

    def weights(self, part: ComponentPart, features: Sequence[str], at: int = 0, *, intercept: bool) -> Array | None:
        """Return the weights of a linear model for these features, the intercept last; None: it is trained anew.

        UsageError: the model has other features, or an intercept that is not asked for.
        """
        if not self.goes_on:
            return None
        check_features(part, features, self.model)
        one = linear_models(self.model)[at]
        found = [one["weights"][name] for name in features]
        if not intercept and one["intercept"]:
            raise UsageError(
                f"{part.component}: init_param.fit_intercept is false, and the model has an intercept",
                hint="Set it to true to go on with this model.",
            )
        return np.array(found + [one["intercept"]] * intercept)


def beginning_of(part: ComponentPart, count: Callable[[Any], list[int] | None]) -> Beginning:
    """Return how a part begins. `count` returns the rounds of a model at a party; None: only the guest knows.

    UsageError: a training cannot go on with the model. PartyMessageError: the guest tells no rounds.
    """
    guests, channel = part.all_of(GUEST), part.channel
    if not part.models.get("model"):
        return Beginning(None, True, [])
    if part.here.role == ARBITER:
        told = message_as(list[int] | None, channel.receive(_NAME, guests[0]), guests[0]) if guests else None
        return Beginning({}, told is not None, told or [])
    model = next(iter(part.models["model"].values()))
    if not part.data.get(_TRAIN):
        if part.here.role == GUEST:
            channel.send(_NAME, None, part.all_of(ARBITER))
        return Beginning(model, False, [])
    _check(part, model)
    rounds = count(model)
    if part.here.role == GUEST:
        channel.send(_NAME, rounds, part.others(HOST, ARBITER))
        return Beginning(model, True, rounds or [])
    told = message_as(list[int], channel.receive(_NAME, guests[0]), guests[0])
    if rounds is not None and rounds != told:
        raise UsageError(
            f"{part.component}: {part.here} and {guests[0]} go on with models of different trainings",
            hint="Give all parties the model of the same component.",
        )
    return Beginning(model, True, told)


def _check(part: ComponentPart, model: Any) -> None:
    kind, asked = (
        model.get("kind"),
        [f"{name}.{field}" for name, field in _ALONE.items() if group(part, name).get(field)],
    )
    if asked:
        raise UsageError(
            f"{part.component}: {asked[0]} trains several models, and cannot go on with one",
            hint="Leave out its model, or set it to false.",
        )
    if kind is None:
        raise UsageError(
            f"{part.component}: {part.here} does not have the model", hint="Name a component that ran at this party."
        )
    if _SAME.get(kind, kind) != _SAME.get(part.module, part.module):
        raise UsageError(f"{part.component}: the model is one of {kind}, and the component is {part.module}")


def linear_models(model: Any) -> list[Any]:
    """Return the models in a linear one: one for each class, or itself."""
    found: list[Any] = model.get("models") or [model]
    return found


def linear_rounds(model: Any) -> list[int]:
    """Return the epochs of the models in a linear one."""
    return [one.get("epochs", len(one["losses"])) for one in linear_models(model)]


def check_features(part: ComponentPart, features: Sequence[str], model: Any) -> None:
    """UsageError: the rows have other features than those of the model."""
    missing = [name for name in model["features"] if name not in features]
    more = [name for name in features if name not in model["features"]]
    if missing or more:
        fault = f"has no column {missing[0]!r}" if missing else f"has a column {more[0]!r} more"
        raise UsageError(
            f"{part.component}: a training goes on with a model, and {part.here} {fault}",
            hint="Give it the columns that the model was trained with.",
        )


def classes_before(part: ComponentPart, frame: PartyFrame, model: Any) -> list[Any]:
    """Return the classes of a model. UsageError: rows have a label that is none of them."""
    classes: list[Any] = model["classes"]
    more = [one for one in np.unique(labels_of(part, frame)).tolist() if one not in classes]
    if more:
        raise UsageError(
            f"{part.component}: a training goes on with a model, and rows of {part.here} have labels that it lacks"
        )
    return classes
