"""Stepwise selection of columns around a linear model of two parties: `stepwise_param.need_stepwise` of FATE.

Each candidate is a training with some of the columns; the best one has the least AIC (Akaike 1974) or BIC (Schwarz
1978). `backward` starts with all columns and drops one in each step, `forward` starts with the best pair of a column of
the guest and one of the host and adds one, `both` starts with all and does either. It ends when no candidate is better,
at the bounds `nvmin` and `nvmax`, or after `max_step` steps.

Who learns what: a host learns which of its columns each candidate has, and which candidate is kept. The guest learns
how many columns the host has, their anonymous names, and the loss of each candidate, so how much each column of the
host tells about the labels. Scores are sent for the model that is kept alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST
from weft.frontends.federated.components.columns import anonymous_names
from weft.frontends.federated.components.inputs import group, only_frame
from weft.frontends.federated.components.repetitions import RepeatedChannel, RepeatedTracker
from weft.frontends.federated.components.secure_trees import message_as
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.components.frame import PartyFrame

Mask = tuple[bool, ...]
Train = Callable[["ComponentPart"], Any]
"""Trains a part, and returns its model (None at the arbiter), whose `losses` are those of epochs."""
Fit = Callable[[float, int], float]
"""Returns minus twice the logarithm of the likelihood, by the last loss and the number of rows, but for a constant."""
_GROUP: Final = "stepwise_param"
_LEFT_OUT: Final = (
    _GROUP,
    "callback_param",
    "validation_freqs",
    "early_stopping_rounds",
    "metrics",
    "use_first_metric_only",
)
FORWARD, BACKWARD, BOTH = "forward", "backward", "both"


def logistic_fit(loss: float, rows: int) -> float:
    """Return the `Fit` of a logistic regression: the loss is the mean of minus the logarithm of the likelihood."""
    return 2 * rows * loss


def linear_fit(loss: float, rows: int) -> float:
    """Return the `Fit` of a linear regression: the loss is half the mean squared error."""
    return rows * math.log(2 * loss) if loss > 0 else -math.inf


class _Plan(msgspec.Struct, frozen=True):
    score_name: str = "aic"
    direction: str = BOTH
    max_step: int = 10
    nvmin: int = 2
    nvmax: int | None = None


class _Order(msgspec.Struct, frozen=True):
    """What the guest tells: the number of a candidate to train and the columns of the host in it, or to keep."""

    number: int
    columns: list[int] = []
    ends: bool = False


class _Tried(NamedTuple):
    number: int
    score: float
    model: Any
    told: dict[str, Any]


def asks_steps(part: ComponentPart) -> bool:
    """Whether the file asks for a selection."""
    return bool(group(part, _GROUP).get("need_stepwise"))


def selected_model(part: ComponentPart, train: Train, fit: Fit) -> Any:
    """Return the model of the best candidate; None at the arbiter.

    UsageError: a parameter is not possible, or there is another number of hosts. PartyMessageError: the guest orders
    what is not possible.
    """
    if len(part.all_of(HOST)) != 1:
        raise UsageError(f"{part.component}: {_GROUP} needs one host: with more there is no loss to go by")
    plan = _plan_of(part)
    if part.here.role == GUEST:
        return _Search(part, plan, train, fit).run()
    guest, models = part.all_of(GUEST)[0], dict[int, tuple[Any, dict[str, Any]]]()
    frame = only_frame(part, "train_data", "data") if part.here.role == HOST else None
    if frame is not None:
        part.channel.send("columns", list(anonymous_names(part, frame).values()), guest)
    while True:
        order = message_as(_Order, part.channel.receive("step", guest), guest)
        if order.ends:
            break
        columns = [] if frame is None else _checked(order.columns, len(frame.features), guest.id)
        models[order.number] = _train(part, train, order.number, frame, columns)
    if part.here.role == ARBITER:
        return None
    if order.number not in models:
        raise PartyMessageError(f"{guest} keeps a candidate that was not trained", party=guest.id)
    model, told = models[order.number]
    part.tracker.summary(told)
    return model


def _checked(columns: list[int], count: int, guest: str) -> list[int]:
    if not columns or sorted(set(columns)) != columns or columns[0] < 0 or columns[-1] >= count:
        raise PartyMessageError("the guest has chosen columns that there are not", party=guest)
    return columns


def _train(
    part: ComponentPart, train: Train, number: int, frame: PartyFrame | None, columns: list[int]
) -> tuple[Any, dict[str, Any]]:
    """Train a candidate with some of the own columns. Return its model and its summary."""
    tracker = RepeatedTracker(part.tracker, f"step_model_{number}")
    parameters = {name: value for name, value in part.parameters.items() if name not in _LEFT_OUT}
    channel = RepeatedChannel(part.channel, f"/step{number}")
    one = replace(part, parameters=parameters, channel=channel, tracker=tracker, data={})
    if frame is not None:
        names = [frame.features[at] for at in columns]
        kept = {name: values for name, values in frame.columns.items() if name in (*names, frame.label, frame.weight)}
        one = replace(one, data={"train_data": [replace(frame, columns=kept)]})
    return train(one), tracker.told


def _plan_of(part: ComponentPart) -> _Plan:
    """Return the parameters. UsageError: one is not possible."""
    given = {name: value for name, value in group(part, _GROUP).items() if value is not None}
    given |= {name: str(given[name]).lower() for name in ("score_name", "direction") if name in given}
    try:
        plan = msgspec.convert({name: given[name] for name in _Plan.__struct_fields__ if name in given}, _Plan)
    except msgspec.ValidationError as error:
        raise UsageError(f"{part.component}: {_GROUP} is not possible: {error}") from None
    fault = ""
    if plan.score_name not in ("aic", "bic"):
        fault = "score_name must be AIC or BIC"
    elif plan.direction not in (FORWARD, BACKWARD, BOTH):
        fault = f"direction must be {FORWARD}, {BACKWARD} or {BOTH}"
    elif plan.max_step < 1:
        fault = "max_step must be from 1 on"
    elif plan.nvmin < 2 or (plan.nvmax is not None and plan.nvmax < plan.nvmin):
        fault = "nvmin must be from 2 on, and at most nvmax"
    if fault:
        raise UsageError(f"{part.component}: {_GROUP} is not possible: {fault}")
    return plan


class _Search:
    """The search at the guest. A mask has the columns of the host first, then those of the guest."""

    def __init__(self, part: ComponentPart, plan: _Plan, train: Train, fit: Fit) -> None:
        self._part, self._plan, self._train, self._fit = part, plan, train, fit
        self._host, self._frame = part.all_of(HOST)[0], only_frame(part, "train_data", "data")
        self._theirs = message_as(list[str], part.channel.receive("columns", self._host), self._host)
        self._tried: dict[Mask, _Tried] = {}
        self._intercept = group(part, "init_param").get("fit_intercept") is not False
        if not self._theirs or not self._frame.features:
            raise UsageError(f"{part.component}: {_GROUP} needs columns at guest and host")

    def run(self) -> Any:
        """Search, and return the model of the best candidate."""
        plan, count = self._plan, len(self._theirs) + len(self._frame.features)
        mask: Mask | None = None if plan.direction == FORWARD else (True,) * count
        steps = list[dict[str, Any]]()
        if mask is not None:
            self._try(mask)
            steps.append(self._described(mask))
        for step in range(1, plan.max_step + 1):
            candidates = [] if mask is None else [mask]
            candidates += self._next(mask)
            best = min(candidates, key=lambda one: self._try(one).score)
            if best == mask:
                break
            before, mask = 0 if mask is None else sum(mask), best
            steps.append(self._described(mask))
            self._part.tracker.progress(step, plan.max_step)
            size = sum(mask)
            reached = size == plan.nvmin <= before or (plan.nvmax is not None and before <= plan.nvmax == size)
            if size == count or reached:
                break
        assert mask is not None
        best_one = self._tried[mask]
        self._order(_Order(best_one.number, ends=True))
        self._part.tracker.summary(best_one.told | {"stepwise": steps, "candidates": len(self._tried)})
        return best_one.model

    def _next(self, mask: Mask | None) -> Iterator[Mask]:
        """Return the candidates of a step: a party that has columns keeps one."""
        theirs, count = len(self._theirs), len(self._theirs) + len(self._frame.features)
        if mask is None:
            for host in range(theirs):
                for own in range(theirs, count):
                    yield tuple(at in (host, own) for at in range(count))
            return
        if self._plan.direction != FORWARD and sum(mask) > self._plan.nvmin:
            for at in range(count):
                side = mask[:theirs] if at < theirs else mask[theirs:]
                if mask[at] and sum(side) > 1:
                    yield (*mask[:at], False, *mask[at + 1 :])
        if self._plan.direction != BACKWARD:
            for at in range(count):
                if not mask[at]:
                    yield (*mask[:at], True, *mask[at + 1 :])

    def _try(self, mask: Mask) -> _Tried:
        """Return what a candidate is worth; it is trained once."""
        if mask in self._tried:
            return self._tried[mask]
        number, theirs = len(self._tried), len(self._theirs)
        self._order(_Order(number, [at for at in range(theirs) if mask[at]]))
        own = [at for at in range(len(self._frame.features)) if mask[theirs + at]]
        model, told = _train(self._part, self._train, number, self._frame, own)
        if "losses" not in model:
            raise UsageError(
                f"{self._part.component}: {_GROUP} needs labels of two classes", hint="Set need_stepwise to false."
            )
        rows = len(self._frame)
        price = 2.0 if self._plan.score_name == "aic" else math.log(rows)
        score = price * (sum(mask) + self._intercept) + self._fit(model["losses"][-1], rows)
        self._tried[mask] = _Tried(number, score if np.isfinite(score) else math.inf, model, told)
        self._part.tracker.log(f"candidate {number}: {sum(mask)} columns, {self._plan.score_name} {score:.6g}")
        return self._tried[mask]

    def _order(self, order: _Order) -> None:
        self._part.channel.send("step", msgspec.to_builtins(order), self._host)
        for_arbiter = msgspec.to_builtins(_Order(order.number, ends=order.ends))
        self._part.channel.send("step", for_arbiter, self._part.all_of(ARBITER))

    def _described(self, mask: Mask) -> dict[str, Any]:
        """Return what the summary says about the best candidate of a step."""
        theirs = len(self._theirs)
        return {
            self._plan.score_name: self._tried[mask].score,
            "guest_features": [
                name for name, chosen in zip(self._frame.features, mask[theirs:], strict=True) if chosen
            ],
            "host_features": [name for name, chosen in zip(self._theirs, mask[:theirs], strict=True) if chosen],
        }
