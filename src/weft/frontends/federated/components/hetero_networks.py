"""The networks of HeteroNN at guest and hosts: their first parameters, an epoch, outputs, and what a model keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST
from weft.frontends.federated.components.interactive import (
    GuestLayer,
    HostLayer,
    LayerShape,
    host_key,
    layer_key,
    whole_numbers,
)
from weft.frontends.federated.components.networks import ACTIVATIONS, LINEAR, LOSSES, DenseNetwork, Stepper
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.crypto.ciphers import PLAIN
from weft.frontends.federated.crypto.keys import cipher_of
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
_MOST_UNITS: Final = 1 << 16
_MOST_WIDTH: Final = 1 << 16


class NetworkSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """How networks are trained: what the guest tells the hosts.

    `units` is the number of outputs of the interactive layer, `rate` that of its steps, `bits` the binary digits behind
    the point of encrypted numbers, `keep` the share of its values that drop-out keeps.
    """

    epochs: int
    batch_size: int
    rate: float
    units: int
    bits: int
    tol: float
    keep: float

    @classmethod
    def read(cls, value: Any, guest: Party) -> Self:
        """Return the schedule that the guest has sent. PartyMessageError: it is none."""
        found: Self = message_as(cls, value, guest)
        possible = found.epochs >= 1 and 1 <= found.units <= _MOST_UNITS and 8 <= found.bits <= 64
        if not possible or not 0 < found.rate < np.inf or found.batch_size == 0:
            raise PartyMessageError(f"{guest} has sent a schedule that is not possible", party=guest.id)
        return found

    def batches(self, rows: int) -> list[slice]:
        """Return the rows of each batch."""
        size = rows if self.batch_size <= 0 else self.batch_size
        return [slice(at, min(rows, at + size)) for at in range(0, rows, max(1, size))]


def private_random(part: ComponentPart) -> np.random.Generator:
    """Return random numbers that others cannot know; without encryption those of the seed."""
    return seeded_random(part) if cipher_of(part.parameters)[0] == PLAIN else np.random.default_rng()


def seeded_random(part: ComponentPart) -> np.random.Generator:
    """Return random numbers of the seed, which differ between parties."""
    seed = part.parameters.get("seed", 100)
    place = [GUEST, HOST].index(part.here.role), part.all_of(part.here.role).index(part.here)
    return np.random.default_rng([int(seed or 0), part.seed, *place])


class HostNetworks:
    """The network of a host."""

    def __init__(
        self,
        part: ComponentPart,
        schedule: NetworkSchedule,
        layers: Sequence[Mapping[str, Any]],
        parameters: list[Array],
        noise: Array | None,
        steps: Mapping[str, Any] | None,
    ) -> None:
        self._part, self._schedule, self._network = part, schedule, DenseNetwork(layers)
        self._parameters, self._random = parameters, private_random(part)
        self._stepper = None if steps is None else Stepper(steps, self._network.shapes)
        keys, self.notes = layer_key(part)
        guest, width = part.all_of(GUEST)[0], width_of(layers)
        shape = LayerShape(width, schedule.units, schedule.bits, schedule.rate)
        part.channel.send("key", keys.public.to_wire(), guest)
        part.channel.send("width", width, guest)
        self._layer = HostLayer(part, guest, keys, shape, self._first_noise(guest, width) if noise is None else noise)

    @classmethod
    def started(
        cls,
        part: ComponentPart,
        schedule: NetworkSchedule,
        layers: Sequence[Mapping[str, Any]],
        steps: Mapping[str, Any],
    ) -> Self:
        """Return networks before training."""
        return cls(part, schedule, layers, DenseNetwork(layers).start(private_random(part)), None, steps)

    @classmethod
    def restored(cls, part: ComponentPart, model: Mapping[str, Any]) -> Self:
        """Return the networks of a model."""
        schedule = msgspec.convert(model["schedule"], NetworkSchedule)
        return cls(part, schedule, model["bottom"], arrays_of(model["parameters"]), integers_of(model["noise"]), None)

    def _first_noise(self, guest: Party, width: int) -> Array:
        """Return the host's summand of the first weights, as far from zero as that of the guest."""
        spread = self._part.channel.receive("spread", guest)
        if not isinstance(spread, float) or not 0 <= spread <= 1024:
            raise PartyMessageError(f"{guest} has sent a spread of weights that is not possible", party=guest.id)
        drawn = self._random.normal(0.0, 1.0, (width, self._schedule.units)) * spread
        return whole_numbers(self._part, drawn, self._schedule.bits)

    @property
    def state(self) -> Any:
        """What training changes."""
        return self._parameters, self._layer.noise

    @state.setter
    def state(self, value: Any) -> None:
        self._parameters, self._layer.noise = value

    def epoch(self, matrix: Array) -> None:
        """Take a step for each batch of rows, shape (rows, features)."""
        assert self._stepper is not None
        for rows in self._schedule.batches(len(matrix)):
            _, gradients = self._network.gradients(self._parameters, matrix[rows], self._through, self._random)
            self._parameters = self._stepper.step(self._parameters, gradients)

    def _through(self, outputs: Array) -> tuple[float, Array]:
        self._layer.forward(outputs)
        return 0.0, self._layer.backward()

    def outputs(self, matrix: Array) -> None:
        """Let the guest have what it needs for the outputs of rows."""
        self._layer.forward(self._network.outputs(self._parameters, matrix))

    def kept(self) -> dict[str, Any]:
        """Return what a model keeps."""
        return {
            "schedule": msgspec.to_builtins(self._schedule),
            "bottom": self._network.layers,
            "parameters": [one.tolist() for one in self._parameters],
            "noise": texts_of(self._layer.noise),
        }


class GuestNetworks:
    """The networks of the guest, and its part of the layer between all of them.

    `parameters` are those of the bottom network, of its part of the layer (shape (width, units), and a bias of shape
    (units,) or None), and of the top network.
    """

    def __init__(
        self,
        part: ComponentPart,
        schedule: NetworkSchedule,
        layers: tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]],
        parameters: tuple[list[Array], Array, Array | None, list[Array]],
        hosts: list[GuestLayer],
    ) -> None:
        bottom, self._after, top = layers
        self._part, self._schedule, self._hosts = part, schedule, hosts
        self._bottom, self._top = DenseNetwork(bottom), DenseNetwork(top)
        self._parameters, self._random = parameters, private_random(part)
        self._loss: tuple[str, float] = ("", 0.0)
        self._steppers: list[Stepper] = []
        self._target = np.empty((0, 1))

    @classmethod
    def started(
        cls,
        part: ComponentPart,
        schedule: NetworkSchedule,
        layer: Mapping[str, Any],
        bottom: list[dict[str, Any]],
        top: list[dict[str, Any]],
        steps: Mapping[str, Any],
        loss: tuple[str, float],
    ) -> Self:
        """Return networks before training. PartyMessageError: a host has sent no key, or no width."""
        random = private_random(part)
        linear = layer["linear"]
        width = width_of(bottom) if bottom else 0
        own = _first_weights(linear, width, random) if width else np.empty((0, schedule.units))
        bias = None
        if linear["bias"]:
            bias = DenseNetwork([linear | {"in": max(1, width)}]).start(random)[1]
        parameters = (DenseNetwork(bottom).start(random), own, bias, DenseNetwork(top).start(random))
        hosts = [_met(part, schedule, host, linear, random) for host in part.all_of(HOST)]
        found = cls(part, schedule, (bottom, layer["after"], top), parameters, hosts)
        found._loss = loss
        found._steppers = [Stepper(steps, one.shapes) for one in (found._bottom, found._top)]
        return found

    @classmethod
    def restored(cls, part: ComponentPart, model: Mapping[str, Any]) -> Self:
        """Return the networks of a model. PartyMessageError: a host has another width."""
        schedule = msgspec.convert(model["schedule"], NetworkSchedule)
        bias = None if model["bias"] is None else np.array(model["bias"], dtype=float)
        own = np.array(model["own"], dtype=float).reshape(-1, schedule.units)
        parameters = (arrays_of(model["bottom_parameters"]), own, bias, arrays_of(model["top_parameters"]))
        hosts = []
        for host, texts in zip(part.all_of(HOST), model["hosts"], strict=True):
            hosts.append(_met(part, schedule, host, integers_of(texts), None))
        return cls(part, schedule, (model["bottom"], model["after"], model["top"]), parameters, hosts)

    @property
    def state(self) -> Any:
        """What training changes."""
        return self._parameters, [one.weights for one in self._hosts]

    @state.setter
    def state(self, value: Any) -> None:
        self._parameters, weights = value
        for one, new in zip(self._hosts, weights, strict=True):
            one.weights = new

    def epoch(self, matrix: Array, target: Array) -> float:
        """Take a step for each batch of rows, and return the mean loss before the steps. UsageError: it diverges."""
        losses = []
        for rows in self._schedule.batches(len(target)):
            self._target = target[rows]
            bottom, own, bias, top = self._parameters
            if self._bottom.layers:
                loss, gradients = self._bottom.gradients(bottom, matrix[rows], self._through, self._random)
                _, own, bias, top = self._parameters
                self._parameters = (self._steppers[0].step(bottom, gradients), own, bias, top)
            else:
                loss, _ = self._through(np.empty((len(self._target), 0)))
            if not np.isfinite(loss):
                raise UsageError(f"{self._part.component}: the training has diverged", hint="Lower the learning rates.")
            losses.append(loss)
        return float(np.mean(losses))

    def _through(self, outputs: Array) -> tuple[float, Array]:
        """Return the loss of a batch and the gradient by the outputs of the bottom network; take all other steps."""
        bottom, own, bias, top = self._parameters
        value = self._sum(outputs, len(outputs))
        active, mask, keep = self._active(value), None, self._schedule.keep
        if keep < 1:
            mask = (self._random.random(active.shape) < keep) / keep
        name, loss_number = self._loss
        loss, steps, gradient = self._top.backward(
            top,
            active if mask is None else active * mask,
            lambda found: LOSSES[name].both(found, self._target, loss_number),
            self._random,
        )
        if not np.isfinite(gradient).all():
            raise UsageError(f"{self._part.component}: the training has diverged", hint="Lower the learning rates.")
        gradient = gradient if mask is None else gradient * mask
        for one in self._after:
            gradient = ACTIVATIONS[one["kind"]].back(value, active, gradient, one["number"])
        for host in self._hosts:
            host.backward(gradient)
        back, rate = gradient @ own.T, self._schedule.rate
        own = own - rate * (outputs.T @ gradient)
        bias = None if bias is None else bias - rate * gradient.sum(axis=0)
        self._parameters = (bottom, own, bias, self._steppers[1].step(top, steps))
        return loss, back

    def _sum(self, outputs: Array, rows: int) -> Array:
        """Return the values of the layer before its activation, shape (rows, units)."""
        _, own, bias, _ = self._parameters
        value: Array = outputs @ own
        for host in self._hosts:
            value = value + host.forward(rows)
        return value if bias is None else value + bias

    def _active(self, value: Array) -> Array:
        for one in self._after:
            value = ACTIVATIONS[one["kind"]].value(value, one["number"])
        return value

    def outputs(self, matrix: Array) -> Array:
        """Return the outputs of the top network for rows, shape (rows, outputs)."""
        bottom, _, _, top = self._parameters
        own = self._bottom.outputs(bottom, matrix) if self._bottom.layers else np.empty((len(matrix), 0))
        return self._top.outputs(top, self._active(self._sum(own, len(matrix))))

    def kept(self) -> dict[str, Any]:
        """Return what a model keeps."""
        bottom, own, bias, top = self._parameters
        return {
            "schedule": msgspec.to_builtins(self._schedule),
            "bottom": self._bottom.layers,
            "after": self._after,
            "top": self._top.layers,
            "bottom_parameters": [one.tolist() for one in bottom],
            "own": own.tolist(),
            "bias": None if bias is None else bias.tolist(),
            "top_parameters": [one.tolist() for one in top],
            "hosts": [texts_of(one.weights) for one in self._hosts],
        }


def _met(
    part: ComponentPart, schedule: NetworkSchedule, host: Party, known: Any, random: np.random.Generator | None
) -> GuestLayer:
    """Return the part of a host in the layer: `known` are its weights, or with `random` the layer that draws them."""
    key, width = host_key(part, host), part.channel.receive("width", host)
    if type(width) is not int or not 1 <= width <= _MOST_WIDTH or (random is None and len(known) != width):
        raise PartyMessageError(f"{host} has sent a width that is not possible", party=host.id)
    if random is not None:
        # each party draws one summand; where all first weights are the same there is nothing to hide
        drawn = _first_weights(known, width, random)
        spread = _spread(known, drawn)
        part.channel.send("spread", spread, host)
        known = whole_numbers(part, drawn / np.sqrt(2) if spread else drawn, schedule.bits)
    return GuestLayer(part, host, key, LayerShape(width, schedule.units, schedule.bits, schedule.rate), known)


def _first_weights(linear: Mapping[str, Any], width: int, random: np.random.Generator) -> Array:
    found: Array = DenseNetwork([{**linear, "in": width}]).start(random)[0].T
    return found


def _spread(linear: Mapping[str, Any], drawn: Array) -> float:
    """Return how far from zero a host draws its summand of the weights; 0.0 if their mean is not zero."""
    kind, first, second = linear["start"]
    even = isinstance(second, str) or (first == 0 if kind == "normal" else first == -second)
    return float(np.sqrt((drawn**2).mean() / 2)) if even and kind != "constant" else 0.0


def width_of(layers: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of outputs of a network."""
    return int(next(one["out"] for one in reversed(layers) if one["kind"] == LINEAR))


def arrays_of(values: Sequence[Any]) -> list[Array]:
    """Return parameters as a model keeps them."""
    return [np.array(one, dtype=float) for one in values]


def texts_of(values: Array) -> list[list[str]]:
    """Return whole numbers of any size as texts, which JSON keeps exactly."""
    return [[str(one) for one in row] for row in values.tolist()]


def integers_of(texts: Sequence[Sequence[str]]) -> Array:
    """Return the numbers of `texts_of`."""
    found: Array = np.array([[int(one) for one in row] for row in texts], dtype=object)
    return found
