"""The training of a network over the rows of one party, on NumPy or by PyTorch. Parameters are one vector here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from weft.frontends.federated.components.networks import LOSSES, DenseNetwork, Stepper
from weft.frontends.federated.components.torch_training import TorchProgram, torch_program

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart

Array = np.ndarray[Any, Any]


class LocalPlan(NamedTuple):
    """What a party trains. `loss` is a name and a number, `steps` the optimizer, `seeds` those of its batches."""

    layers: Sequence[Mapping[str, Any]]
    loss: tuple[str, float]
    steps: Mapping[str, Any]
    batch_size: int
    shuffle: bool
    seeds: Sequence[int]


class LocalTraining(Protocol):
    """A training at one party. Its optimizer goes on from one call to the next."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the parameters, in the order of the vector; known after `start`."""

    def start(self, random: np.random.Generator) -> Array:
        """Return the parameters before training."""

    def train(self, vector: Array, epochs: int) -> tuple[Array, float]:
        """Take the steps of some epochs; return the parameters, and the mean loss before each step of the last."""


def flat(parameters: Sequence[Array]) -> Array:
    """Return parameters as one vector."""
    return np.concatenate([one.ravel() for one in parameters])


def apart(vector: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return the parameters in a vector."""
    ends = np.cumsum([int(np.prod(one)) for one in shapes])[:-1]
    return [one.reshape(shape) for one, shape in zip(np.split(vector, ends), shapes, strict=True)]


class NumpyTraining:
    """A training on NumPy over rows (rows, features) and targets (rows, outputs)."""

    def __init__(self, plan: LocalPlan, matrix: Array, target: Array) -> None:
        self._plan, self._matrix, self._target = plan, matrix, target
        self._network = DenseNetwork(plan.layers)
        self._stepper = Stepper(plan.steps, self._network.shapes)
        self._random = np.random.default_rng(list(plan.seeds))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """See `LocalTraining.shapes`."""
        return self._network.shapes

    def start(self, random: np.random.Generator) -> Array:
        """See `LocalTraining.start`."""
        return flat(self._network.start(random))

    def train(self, vector: Array, epochs: int) -> tuple[Array, float]:
        """See `LocalTraining.train`."""
        parameters, loss = apart(vector, self.shapes), 0.0
        for _ in range(epochs):
            parameters, loss = self._epoch(parameters)
        return flat(parameters), loss

    def _epoch(self, parameters: list[Array]) -> tuple[list[Array], float]:
        """Take a step for each batch, and return the parameters and the mean loss before the steps."""
        name, number = self._plan.loss
        total = 0.0
        for rows in self._batches():
            target = self._target[rows]

            def loss(outputs: Array, target: Array = target) -> tuple[float, Array]:
                return LOSSES[name].both(outputs, target, number)

            found, gradients = self._network.gradients(parameters, self._matrix[rows], loss, self._random)
            parameters = self._stepper.step(parameters, gradients)
            total += found * len(target)
        return parameters, total / max(1, len(self._target))

    def _batches(self) -> Iterator[Any]:
        rows, size = len(self._target), self._plan.batch_size
        if rows and (size <= 0 or size >= rows):
            yield slice(None)
            return
        order = self._random.permutation(rows) if self._plan.shuffle else np.arange(rows)
        for begin in range(0, rows, max(1, size)):
            yield order[begin : begin + size]


class TorchTraining:
    """A training by PyTorch."""

    def __init__(self, plan: LocalPlan, program: TorchProgram) -> None:
        self._plan, self._program = plan, program
        self._shapes: list[tuple[int, ...]] = []

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """See `LocalTraining.shapes`."""
        return self._shapes

    def start(self, random: np.random.Generator) -> Array:
        """See `LocalTraining.start`. Errors: see `TorchProgram.start`."""
        found = self._program.start(self._plan.layers, random)
        self._shapes = [one.shape for one in found]
        return flat(found)

    def train(self, vector: Array, epochs: int) -> tuple[Array, float]:
        """See `LocalTraining.train`. Errors: see `TorchProgram.start`."""
        return self._program.train(vector, epochs)


@contextmanager
def local_training(
    part: ComponentPart, plan: LocalPlan, matrix: Array, target: Array, *, by_torch: bool
) -> Iterator[LocalTraining]:
    """Yield the training over the rows of this party."""
    if not by_torch:
        yield NumpyTraining(plan, matrix, target)
        return
    network = plan._asdict() | {"optimizer": plan.steps, "outputs": target.shape[1]}
    with torch_program(part, network, matrix, target) as program:
        yield TorchTraining(plan, program)


def network_outputs(
    part: ComponentPart,
    layers: Sequence[Mapping[str, Any]],
    parameters: Sequence[Array],
    matrix: Array,
    *,
    by_torch: bool,
) -> Array:
    """Return the outputs of a network for rows (rows, features), shape (rows, outputs). Errors: see `TorchProgram`."""
    if not by_torch:
        return DenseNetwork(layers).outputs(parameters, matrix)
    outputs = next(one["out"] for one in reversed(layers) if "out" in one)
    network = {"layers": layers, "optimizer": {}, "seeds": [0], "outputs": outputs}
    with torch_program(part, network, matrix) as program:
        return program.outputs(flat(parameters))
