"""Networks of a few kinds of layers, on NumPy: outputs, gradients by backward propagation, losses and steps.

A layer is JSON: its kind, and numbers such as `in` and `out` of a Linear one. Definitions are those of PyTorch. The
parameters of a network are a list of arrays: weights of shape (out, in) and biases of its Linear layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft.frontends.federated.components.links import sigmoid, softmax

Array = np.ndarray[Any, Any]
LINEAR, DROPOUT, SOFTMAX, LOG_SOFTMAX, SIGMOID = "Linear", "Dropout", "Softmax", "LogSoftmax", "Sigmoid"
_LEAST: Final = 1e-12


def _log_softmax(x: Array) -> Array:
    less = x - x.max(axis=1, keepdims=True)
    found: Array = less - np.log(np.exp(less).sum(axis=1, keepdims=True))
    return found


class _Activation(NamedTuple):
    """`value(x, a)`, and `back(x, y, gradient, a)`, the gradient by x; `a` is the number of the layer."""

    value: Callable[[Array, float], Array]
    back: Callable[[Array, Array, Array, float], Array]
    name: str = ""
    default: float = 0.0


ACTIVATIONS: Final[Mapping[str, _Activation]] = {
    "Identity": _Activation(lambda x, a: x, lambda x, y, g, a: g),
    "ReLU": _Activation(lambda x, a: np.maximum(x, 0.0), lambda x, y, g, a: g * (x > 0)),
    "LeakyReLU": _Activation(
        lambda x, a: np.where(x > 0, x, a * x), lambda x, y, g, a: g * np.where(x > 0, 1.0, a), "negative_slope", 0.01
    ),
    "ELU": _Activation(
        lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0.0))),
        lambda x, y, g, a: g * np.where(x > 0, 1.0, y + a),
        "alpha",
        1.0,
    ),
    SIGMOID: _Activation(lambda x, a: sigmoid(x), lambda x, y, g, a: g * y * (1 - y)),
    "Tanh": _Activation(lambda x, a: np.tanh(x), lambda x, y, g, a: g * (1 - y * y)),
    "Softplus": _Activation(
        lambda x, a: np.logaddexp(0.0, a * x) / a, lambda x, y, g, a: g * sigmoid(a * x), "beta", 1.0
    ),
    SOFTMAX: _Activation(lambda x, a: softmax(x), lambda x, y, g, a: y * (g - (g * y).sum(axis=1, keepdims=True))),
    LOG_SOFTMAX: _Activation(
        lambda x, a: _log_softmax(x),
        lambda x, y, g, a: g - softmax(x) * g.sum(axis=1, keepdims=True),
    ),
}
"""The layers without parameters, by their names in PyTorch."""


class DenseNetwork:
    """The layers of a network, one after the other."""

    def __init__(self, layers: Sequence[Mapping[str, Any]]) -> None:
        self.layers = list(layers)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the parameters."""
        found: list[tuple[int, ...]] = []
        for one in self.layers:
            if one["kind"] == LINEAR:
                found.append((one["out"], one["in"]))
                if one["bias"]:
                    found.append((one["out"],))
        return found

    def start(self, random: np.random.Generator) -> list[Array]:
        """Return the parameters before training, as the layers want them."""
        found = []
        for one in self.layers:
            if one["kind"] == LINEAR:
                found.append(_drawn(one["start"], (one["out"], one["in"]), one, random))
                if one["bias"]:
                    found.append(_drawn(one["bias_start"], (one["out"],), one, random))
        return found

    def outputs(self, parameters: Sequence[Array], x: Array) -> Array:
        """Return the outputs for rows. Layers of dropout do nothing."""
        return self._forward(parameters, x, None)[-1]

    def gradients(
        self,
        parameters: Sequence[Array],
        x: Array,
        loss: Callable[[Array], tuple[float, Array]],
        random: np.random.Generator | None = None,
    ) -> tuple[float, list[Array]]:
        """Return the loss of rows, and the gradient by each parameter.

        `loss` returns the loss of outputs and its gradient. `random` draws what dropout leaves out.
        """
        return self.backward(parameters, x, loss, random)[:2]

    def backward(
        self,
        parameters: Sequence[Array],
        x: Array,
        loss: Callable[[Array], tuple[float, Array]],
        random: np.random.Generator | None = None,
    ) -> tuple[float, list[Array], Array]:
        """Return what `gradients` does, and the gradient by the inputs, of the shape of `x`."""
        masks: list[Array | None] = []
        values = self._forward(parameters, x, random, masks)
        found, gradient = loss(values[-1])
        at, back = len(parameters), []
        for place in range(len(self.layers) - 1, -1, -1):
            one, before, after = self.layers[place], values[place], values[place + 1]
            if one["kind"] == LINEAR:
                if one["bias"]:
                    at -= 1
                    back.append(gradient.sum(axis=0))
                at -= 1
                back.append(gradient.T @ before)
                gradient = gradient @ parameters[at]
            elif one["kind"] == DROPOUT:
                mask = masks[place]
                gradient = gradient if mask is None else gradient * mask
            else:
                gradient = ACTIVATIONS[one["kind"]].back(before, after, gradient, one["number"])
        return found, back[::-1], gradient

    def _forward(
        self,
        parameters: Sequence[Array],
        x: Array,
        random: np.random.Generator | None,
        masks: list[Array | None] | None = None,
    ) -> list[Array]:
        values, rest = [x], list(parameters)
        for one in self.layers:
            mask = None
            if one["kind"] == LINEAR:
                found = values[-1] @ rest.pop(0).T
                if one["bias"]:
                    found = found + rest.pop(0)
            elif one["kind"] == DROPOUT:
                found = values[-1]
                if random is not None and one["number"] > 0:
                    mask = (random.random(found.shape) >= one["number"]) / (1.0 - one["number"])
                    found = found * mask
            else:
                found = ACTIVATIONS[one["kind"]].value(values[-1], one["number"])
            values.append(found)
            if masks is not None:
                masks.append(mask)
        return values


def _drawn(how: Sequence[Any], shape: tuple[int, ...], layer: Mapping[str, Any], random: np.random.Generator) -> Array:
    """Return numbers of a kind: uniform between two, normal of mean and deviation, or constant.

    A bound may be a word, which stands for a number of inputs and outputs.
    """
    inputs, outputs = layer["in"], layer["out"]
    spread = {"torch": 1 / inputs, "glorot": 6 / (inputs + outputs), "he": 6 / inputs, "lecun": 3 / inputs}
    kind, first, second = how
    if isinstance(second, str):
        second = float(np.sqrt(spread[second]))
        first, second = (-second, second) if kind == "uniform" else (0.0, second / np.sqrt(3))
    if kind == "uniform":
        return random.uniform(first, second, shape)
    return random.normal(first, second, shape) if kind == "normal" else np.full(shape, float(first))


# ------------------------------------------------------------------------------------------------------------- losses


class NetworkLoss(NamedTuple):
    """A loss by outputs and targets, each of shape (rows, outputs): its mean over rows, and the gradient.

    `task` is binary, multi or regression. `probabilities` are those of outputs; none in a regression.
    """

    task: str
    both: Callable[[Array, Array, float], tuple[float, Array]]
    probabilities: Callable[[Array], Array] = lambda x: x
    name: str = ""
    default: float = 0.0


def _cross(outputs: Array, target: Array, _: float) -> tuple[float, Array]:
    p = np.clip(outputs, _LEAST, 1 - _LEAST)
    value = -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean()
    return float(value), (p - target) / (p * (1 - p)) / outputs.size


def _cross_logits(outputs: Array, target: Array, _: float) -> tuple[float, Array]:
    value = (np.logaddexp(0.0, outputs) - target * outputs).mean()
    return float(value), (sigmoid(outputs) - target) / outputs.size


def _classes_logits(outputs: Array, target: Array, _: float) -> tuple[float, Array]:
    value = -(target * _log_softmax(outputs)).sum(axis=1).mean()
    return float(value), (softmax(outputs) - target) / len(outputs)


def _classes_logs(outputs: Array, target: Array, _: float) -> tuple[float, Array]:
    return float(-(outputs * target).sum(axis=1).mean()), -target / len(outputs)


def _classes(outputs: Array, target: Array, _: float) -> tuple[float, Array]:
    total = outputs.sum(axis=1, keepdims=True)
    p = np.clip(outputs / total, _LEAST, 1.0)
    value = -(target * np.log(p)).sum(axis=1).mean()
    return float(value), (1.0 - target / p) / total / len(outputs)


def _squares(outputs: Array, target: Array, _: float) -> tuple[float, Array]:
    error = outputs - target
    return float((error**2).mean()), 2 * error / outputs.size


def _absolutes(outputs: Array, target: Array, _: float) -> tuple[float, Array]:
    error = outputs - target
    return float(np.abs(error).mean()), np.sign(error) / outputs.size


def _smooth(outputs: Array, target: Array, beta: float) -> tuple[float, Array]:
    error = outputs - target
    near = np.abs(error) < beta
    value = np.where(near, 0.5 * error**2 / beta, np.abs(error) - 0.5 * beta).mean()
    return float(value), np.where(near, error / beta, np.sign(error)) / outputs.size


def _huber(outputs: Array, target: Array, delta: float) -> tuple[float, Array]:
    value, gradient = _smooth(outputs, target, delta)
    return value * delta, gradient * delta


def _soft_margin(outputs: Array, target: Array, _: float) -> tuple[float, Array]:
    sign = 2 * target - 1
    value = np.logaddexp(0.0, -sign * outputs).mean()
    return float(value), -sign * sigmoid(-sign * outputs) / outputs.size


BINARY, MULTI, REGRESSION = "binary", "multi", "regression"
LOSSES: Final[Mapping[str, NetworkLoss]] = {
    "BCELoss": NetworkLoss(BINARY, _cross),
    "BCEWithLogitsLoss": NetworkLoss(BINARY, _cross_logits, sigmoid),
    "SoftMarginLoss": NetworkLoss(BINARY, _soft_margin, sigmoid),
    "CrossEntropyLoss": NetworkLoss(MULTI, _classes_logits, softmax),
    "NLLLoss": NetworkLoss(MULTI, _classes_logs, np.exp),
    "CategoricalCrossentropy": NetworkLoss(MULTI, _classes),
    "MSELoss": NetworkLoss(REGRESSION, _squares),
    "L1Loss": NetworkLoss(REGRESSION, _absolutes),
    "SmoothL1Loss": NetworkLoss(REGRESSION, _smooth, name="beta", default=1.0),
    "HuberLoss": NetworkLoss(REGRESSION, _huber, name="delta", default=1.0),
}
"""The losses, by their names in PyTorch (in Keras for CategoricalCrossentropy)."""


# -------------------------------------------------------------------------------------------------------------- steps


class Stepper:
    """Steps of the parameters of a network; `how` has the kind and its numbers by their names in PyTorch."""

    def __init__(self, how: Mapping[str, Any], shapes: Sequence[tuple[int, ...]]) -> None:
        self._how, self._count = how, 0
        first = how.get("initial_accumulator_value", 0.0)
        self._first = [np.zeros(one) for one in shapes]
        self._second = [np.full(one, float(first)) for one in shapes]

    def step(self, parameters: Sequence[Array], gradients: Sequence[Array]) -> list[Array]:
        """Return the next parameters."""
        self._count += 1
        how, found = self._how, []
        for at, (old, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            value = old
            if how["kind"] == "AdamW":
                value = old * (1 - how["lr"] * how["weight_decay"])
            elif how["weight_decay"]:
                gradient = gradient + how["weight_decay"] * old
            found.append(value - self._move(at, gradient))
        return found

    def _move(self, at: int, gradient: Array) -> Array:
        how, kind = self._how, self._how["kind"]
        rate: float = how["lr"]
        eps: float = how.get("eps", 0.0)
        if kind == "SGD":
            return self._with_momentum(at, gradient) * rate
        if kind == "Adagrad":
            self._second[at] = self._second[at] + gradient**2
            rate = rate / (1 + (self._count - 1) * how["lr_decay"])
            scaled: Array = gradient / (np.sqrt(self._second[at]) + eps) * rate
            return scaled
        if kind == "RMSprop":
            self._second[at] = how["alpha"] * self._second[at] + (1 - how["alpha"]) * gradient**2
            return self._with_momentum(at, gradient / (np.sqrt(self._second[at]) + eps)) * rate
        one, two = how["betas"]
        self._first[at] = one * self._first[at] + (1 - one) * gradient
        self._second[at] = two * self._second[at] + (1 - two) * gradient**2
        first, second = self._first[at] / (1 - one**self._count), self._second[at] / (1 - two**self._count)
        found: Array = first / (np.sqrt(second) + eps) * rate
        return found

    def _with_momentum(self, at: int, gradient: Array) -> Array:
        how = self._how
        if not how["momentum"]:
            return gradient
        dampened = gradient if self._count == 1 else gradient * (1 - how.get("dampening", 0.0))
        self._first[at] = how["momentum"] * self._first[at] + dampened
        return gradient + how["momentum"] * self._first[at] if how.get("nesterov") else self._first[at]
