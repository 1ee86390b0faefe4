"""Steps along gradients, element by element, so that each party takes those of its own weights alone.

Sources: rmsprop (Tieleman and Hinton 2012), adagrad (Duchi and others 2011), adam (Kingma and Ba 2014), nesterov
(Sutskever and others 2013); the defaults are those of FATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from weft.frontends.federated.components.inputs import number, threshold_of, word
from weft.frontends.federated.parameter_types import LEAST_BATCH
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.frontends.federated.components.base import ComponentPart

Array = np.ndarray[Any, Any]
SGD, RMSPROP, ADAM, ADAGRAD, NESTEROV = "sgd", "rmsprop", "adam", "adagrad", "nesterov_momentum_sgd"
OPTIMIZERS: Final = (SGD, RMSPROP, ADAM, ADAGRAD, NESTEROV)
QUASI_NEWTON: Final = "sqn"
L1, L2, NONE = "L1", "L2", "None"
_STARTS: Final = ("zeros", "ones", "const", "random_uniform", "random_normal")
_NAMES: Final = {
    "rate": "learning_rate",
    "intercept": "init_param.fit_intercept",
    "start": "init_param.init_method",
    "start_value": "init_param.init_const",
}
"""The names in files of fields that have another one."""
_TINY: Final = 1e-8


class Training(Struct, frozen=True, kw_only=True):
    """How a model is trained: the parameters of files, with their defaults."""

    optimizer: str
    penalty: str
    alpha: float
    rate: float
    decay: float
    decay_sqrt: bool
    batch_size: int
    max_iter: int
    tol: float
    early_stop: str
    intercept: bool
    start: str
    start_value: float


def training_of(part: ComponentPart, *, early_stop: str = "diff", newton: bool = False) -> Training:
    """Read the parameters of a training. With `newton` the optimizer may be `sqn`. UsageError: one is not possible."""
    threshold_of(part)
    start = part.parameters.get("init_param")
    start = start if isinstance(start, dict) else {}
    penalty = part.parameters.get("penalty", L2)
    return Training(
        optimizer=word(part, "optimizer", RMSPROP, *OPTIMIZERS, *((QUASI_NEWTON,) if newton else ())),
        penalty=NONE if penalty is None else word(part, "penalty", L2, L1, L2, NONE),
        alpha=number(part, "alpha", 1.0, least=0),
        rate=number(part, "learning_rate", 0.01, least=0),
        decay=number(part, "decay", 1.0, least=0),
        decay_sqrt=part.parameters.get("decay_sqrt") is not False,
        batch_size=_batch_size(part),
        max_iter=int(number(part, "max_iter", 100, least=1)),
        tol=number(part, "tol", 1e-4, least=0),
        early_stop=word(part, "early_stop", early_stop, "diff", "abs", "weight_diff"),
        intercept=start.get("fit_intercept") is not False,
        start=_start(part, start),
        start_value=float(start.get("init_const") or 1.0),
    )


def _batch_size(part: ComponentPart) -> int:
    """Return the rows of a batch, -1 for all. A party learns its own gradient, and from few rows the labels."""
    size = int(number(part, "batch_size", -1, least=-1))
    if size == -1 or size >= LEAST_BATCH:
        return size
    raise UsageError(
        f"{part.component}: batch_size is {size}, and gradients of fewer than {LEAST_BATCH} rows tell of labels",
        hint=f"Set it to {LEAST_BATCH} or more, or to -1 for all rows.",
    )


def _start(part: ComponentPart, given: Mapping[str, Any]) -> str:
    """Return how weights begin."""
    found = str(given.get("init_method") or _STARTS[0])
    if found not in _STARTS:
        hint = f"Use {', '.join(_STARTS)}."
        raise UsageError(f"{part.component}: init_param.init_method is {found!r}, which there is not", hint=hint)
    return found


def settings_of(training: Training) -> dict[str, Any]:
    """Return the parameters of a training by their names in files."""
    return {_NAMES.get(name, name): value for name, value in asdict(training).items()}


def first_weights(training: Training, count: int, seed: int) -> Array:
    """Return the weights before the first step."""
    rng = np.random.default_rng(seed)
    if training.start == "ones":
        return np.ones(count)
    if training.start == "const":
        return np.full(count, training.start_value)
    if training.start == "random_uniform":
        return rng.random(count)
    return rng.normal(size=count) if training.start == "random_normal" else np.zeros(count)


class Optimizer:
    """The steps of some weights; the last one is the intercept if `intercept`, and has no penalty."""

    def __init__(self, training: Training, count: int, *, intercept: bool) -> None:
        self._training, self._steps = training, 0
        self._first, self._second = np.zeros(count), np.zeros(count)
        self._penalised = np.ones(count)
        if intercept:
            self._penalised[-1] = 0.0

    def step(self, weights: Array, gradient: Array, epoch: int) -> Array:
        """Return the next weights, from the mean gradient over the rows of a batch."""
        training, self._steps = self._training, self._steps + 1
        shrink = 1.0 + training.decay * epoch
        rate = training.rate / (np.sqrt(shrink) if training.decay_sqrt else shrink)
        if training.penalty == L2:
            gradient = gradient + training.alpha * weights * self._penalised
        moved: Array = weights - self._move(gradient, rate)
        if training.penalty == L1:
            bound = rate * training.alpha * self._penalised
            moved = np.sign(moved) * np.maximum(np.abs(moved) - bound, 0.0)
        return moved

    def penalty(self, weights: Array) -> float:
        """Return what the penalty adds to the loss."""
        training, own = self._training, weights * self._penalised
        if training.penalty == L1:
            return float(training.alpha * np.abs(own).sum())
        return float(0.5 * training.alpha * (own @ own)) if training.penalty == L2 else 0.0

    def _move(self, gradient: Array, rate: float) -> Array:
        kind = self._training.optimizer
        if kind == SGD:
            return rate * gradient
        if kind == NESTEROV:
            before = self._first
            self._first = 0.9 * before - rate * gradient
            return 0.9 * before - 1.9 * self._first
        if kind == ADAGRAD:
            self._second = self._second + gradient**2
            return rate * gradient / (np.sqrt(self._second) + _TINY)
        if kind == RMSPROP:
            self._second = 0.99 * self._second + 0.01 * gradient**2
            return rate * gradient / (np.sqrt(self._second) + _TINY)
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        first = self._first / (1 - 0.9**self._steps)
        second = self._second / (1 - 0.999**self._steps)
        return rate * first / (np.sqrt(second) + _TINY)
