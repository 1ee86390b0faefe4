"""The losses of linear models by epoch: their curves, and what they tell of a training that diverges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart

WARNINGS: Final = "warnings"
"""The field of the summary of a component with what people should look at."""
IDLE_LOGISTIC: Final = math.log(2)
"""The loss of a logistic model whose weights are zero."""
_MOST_TIMES: Final = 10
"""By how much a loss may end above that of weights of zero: rows that count more than others may raise it."""
_LOWER: Final = "Give it a smaller learning_rate, or scale the columns."


def check_finite(part: ComponentPart, value: float, what: str) -> None:
    """Require that a number of a training is finite. UsageError: the training has diverged."""
    if not math.isfinite(value):
        raise UsageError(f"{part.component}: the training diverged: {what} is not finite", hint=_LOWER)


def tell_losses(part: ComponentPart, models: Sequence[Sequence[float]], idle: float = IDLE_LOGISTIC) -> None:
    """Keep the losses of each model of a component as a curve, and warn of those that grew or are far above `idle`.

    `idle` is the loss of weights of zero. UsageError: a loss is not finite.
    """
    warnings = []
    for at, losses in enumerate(models):
        for loss in losses:
            check_finite(part, loss, "a loss")
        name = "loss" if len(models) == 1 else f"loss_{at}"
        if losses:
            part.tracker.curve("train", name, [(float(epoch), one) for epoch, one in enumerate(losses)], kind="LOSS")
        said = ""
        if len(losses) > 1 and losses[-1] > losses[0]:
            said = f"the {name} grew from {losses[0]:.6g} to {losses[-1]:.6g}"
        elif losses and losses[-1] > _MOST_TIMES * idle > 0:
            said = f"the {name} ends at {losses[-1]:.6g}, and that of weights of zero is {idle:.6g}"
        if said:
            warnings.append(f"{said}: the training may diverge, so that a smaller learning_rate or scaled columns help")
    for warning in warnings:
        part.tracker.log(warning)
    if warnings:
        part.tracker.summary({WARNINGS: warnings})
