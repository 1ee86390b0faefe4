"""Gradients of FTL under encryption: each party learns those of its own weights, summed over rows, and nothing else.

A party sends two encrypted arrays: `square`, shape (units, units), and `linear`, shape (rows, units). The gradient of
the other party's weights is a sum of them by factors that it knows alone, since its network has one linear layer. It
masks the sum, the owner of the key decrypts it, and the mask is taken away (`crypto.covers`).

With `u` the outputs of the host, `v` those of the guest for common rows, `y` the labels (-1, 1), `k` the inverse of the
number of units and `a` alpha, the loss times the number of common rows is the sum over them of
`a * (log 2 - y * u.phi / 2 + (u.phi)^2 / 8) - k * u.v`. The guest sends `phi phi'` and `-a/2 * y * phi - k * v`, the
host the sum of `u u'`, and `u`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST
from weft.frontends.federated.components.interactive import row_products, whole_numbers
from weft.frontends.federated.components.networks import (
    ACTIVATIONS,
    DROPOUT,
    LINEAR,
    LOG_SOFTMAX,
    SOFTMAX,
    DenseNetwork,
)
from weft.frontends.federated.crypto.ciphers import PLAIN
from weft.frontends.federated.crypto.covers import covered, decrypted
from weft.frontends.federated.crypto.histograms import cells_of
from weft.frontends.federated.crypto.keys import cipher_of, make_keys, read_key
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.crypto.ciphers import Encrypted, PublicKey
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
_BITS: Final = 30
"""The binary digits behind the point of numbers and of factors."""
_SUM_BITS: Final = 2 * _BITS + 72
_MOST_CELLS: Final = 1 << 15


class SecureGradients:
    """The encrypted numbers of both parties, at one of them, and the gradients of its own weights by them."""

    def __init__(self, part: ComponentPart, other: Party, network: DenseNetwork) -> None:
        self._part, self._other, self._layers = part, other, network.layers
        method, bits, notes = cipher_of(part.parameters)
        for note in notes:
            part.tracker.log(note)
        part.tracker.summary({"encryption": method, "key_length": bits})
        self._keys = make_keys(method, bits)
        part.channel.send("key", self._keys.public.to_wire(), other)
        self._key = read_key(part.channel.receive("key", other), plain=method == PLAIN)
        self._square: list[Encrypted] = []
        self._linear: list[Encrypted] = []

    @classmethod
    def of(cls, part: ComponentPart, other: Party, network: DenseNetwork) -> Self:
        """Exchange keys. UsageError: the network has not one linear layer, with activations of single values."""
        kinds = [one["kind"] for one in network.layers]
        if kinds.count(LINEAR) != 1 or kinds[0] != LINEAR or {DROPOUT, SOFTMAX, LOG_SOFTMAX} & set(kinds):
            raise UsageError(
                f"{part.component}: mode is encrypted, and nn_define is not one linear layer with an activation",
                hint="Use one layer, or mode plain if outputs of the network may be seen.",
            )
        return cls(part, other, network)

    def exchange(self, square: Array, linear: Array) -> None:
        """Send numbers encrypted, and take those of the other party. PartyMessageError: they have another shape."""
        found = []
        for name, values in (("square", square), ("linear", linear)):
            columns = [whole_numbers(self._part, one, _BITS) for one in values.T]
            self._part.channel.send(name, [self._keys.public.encrypt(one).to_wire() for one in columns], self._other)
        for name, wanted in (("square", square), ("linear", linear)):
            found.append(_columns(self._part, self._key, name, self._other, wanted.shape))
        self._square, self._linear = found

    def guest_step(
        self,
        parameters: Sequence[Array],
        matrix: Array,
        labels: Array,
        phi: Array,
        outputs: Array,
        common: int,
        alpha: float,
    ) -> tuple[list[Array], float]:
        """Return the gradients of the guest's parameters, and the mean loss of common rows.

        Rows and outputs are those of all rows, the `common` ones first.
        """
        x, slopes = _with_ones(matrix, self._layers), self._slopes(parameters, matrix)
        share, kappa, y = alpha / len(labels), 1.0 / len(phi), labels[:common]
        square, linear = [], []
        for unit in range(len(phi)):
            mean = share * (labels * slopes[:, unit]) @ x
            square.append(0.25 * np.outer(phi, mean))
            linear.append(-0.5 * np.outer(y, mean) - kappa * slopes[:common, unit, None] * x[:common])
        loss = [
            (
                0.125 * alpha * phi[unit] * phi / common,
                (-0.5 * alpha * y * phi[unit] - kappa * outputs[:common, unit]) / common,
            )
            for unit in range(len(phi))
        ]
        sums = self._sums(square, linear, loss)
        return self._as_parameters(sums[:-1], x.shape[1]), sums[-1] + alpha * math.log(2)

    def host_step(self, parameters: Sequence[Array], matrix: Array, outputs: Array, alpha: float) -> list[Array]:
        """Return the gradients of the host's parameters."""
        x, slopes = _with_ones(matrix, self._layers), self._slopes(parameters, matrix)
        square, linear = [], []
        for unit in range(outputs.shape[1]):
            weighted = slopes[:, unit, None] * x
            square.append(0.25 * alpha * outputs.T @ weighted)
            linear.append(weighted)
        return self._as_parameters(self._sums(square, linear, []), x.shape[1])

    def _sums(self, square: list[Array], linear: list[Array], more: list[tuple[Array, Array]]) -> list[float]:
        """Return the sums of encrypted numbers by factors, unit by unit, and the one by all factors of `more`.

        The other party does the same with the numbers of this one.
        """
        cells: list[Any] = []
        for unit, (one, two) in enumerate(zip(square, linear, strict=True)):
            cells += cells_of(self._dot(unit, one, two)).cells
        total: Encrypted | None = None
        for unit, (one, two) in enumerate(more):
            part_of = self._dot(unit, one[:, None], two[:, None])
            total = part_of if total is None else total + part_of
        cells += [] if total is None else cells_of(total).cells
        hidden, masks = covered(cells_of(self._square[0]), cells, _SUM_BITS)
        self._part.channel.send("hidden", [len(cells), hidden.to_wire()], self._other)
        self._answer()
        shown = self._part.channel.receive("shown", self._other)
        if not isinstance(shown, list) or len(shown) != len(masks) or any(type(one) is not int for one in shown):
            raise self._wrong()
        return [math.ldexp(one - mask, -2 * _BITS) for one, mask in zip(shown, masks, strict=True)]

    def _dot(self, unit: int, square: Array, linear: Array) -> Encrypted:
        first = self._square[unit].dot(whole_numbers(self._part, square, _BITS))
        return first + self._linear[unit].dot(whole_numbers(self._part, linear, _BITS))

    def _answer(self) -> None:
        """Decrypt the covered sums of the other party."""
        asked = self._part.channel.receive("hidden", self._other)
        if not isinstance(asked, list) or len(asked) != 2 or type(asked[0]) is not int or not 0 < asked[0] < 1 << 24:
            raise self._wrong()
        self._part.channel.send("shown", decrypted(self._keys, asked[1], asked[0], _SUM_BITS), self._other)

    def _slopes(self, parameters: Sequence[Array], matrix: Array) -> Array:
        """Return the derivative of each output by what goes into its activations, shape (rows, units)."""
        value = DenseNetwork(self._layers[:1]).outputs(parameters, matrix)
        found = np.ones_like(value)
        for one in self._layers[1:]:
            known = ACTIVATIONS[one["kind"]]
            after = known.value(value, one["number"])
            found, value = known.back(value, after, found, one["number"]), after
        return found

    def _as_parameters(self, sums: Sequence[float], width: int) -> list[Array]:
        table = np.array(sums).reshape(-1, width)
        return [table[:, :-1], table[:, -1]] if self._layers[0]["bias"] else [table]

    def _wrong(self) -> PartyMessageError:
        return PartyMessageError(f"{self._other} has sent numbers of another shape", party=self._other.id)


def _columns(part: ComponentPart, key: PublicKey, name: str, source: Party, shape: tuple[int, ...]) -> list[Encrypted]:
    wires = part.channel.receive(name, source)
    found = [key.encrypted(one) for one in wires] if isinstance(wires, list) else []
    if len(found) != shape[1] or any(one.shape != (shape[0],) for one in found):
        raise PartyMessageError(f"{source} has sent numbers of another shape", party=source.id)
    return found


def _with_ones(matrix: Array, layers: Sequence[Mapping[str, Any]]) -> Array:
    return np.hstack([matrix, np.ones((len(matrix), 1))]) if layers[0]["bias"] else matrix


def secure_scores(part: ComponentPart, values: Array, rows: int = 0) -> Array:
    """Return the products of `values`, shape (units,), at the guest, and outputs of the host for `rows` rows.

    At the host `values` are the outputs, shape (rows, units), and nothing is returned. The guest learns the products
    alone. PartyMessageError: the other party has sent numbers of another shape.
    """
    if part.here.role == HOST:
        _show_outputs(part, values)
        return np.empty(0)
    method = cipher_of(part.parameters)[0]
    host, found = part.all_of(HOST)[0], list[float]()
    key = read_key(part.channel.receive("key", host), plain=method == PLAIN)
    factors, size = whole_numbers(part, values[:, None], _BITS), max(1, _MOST_CELLS // len(values))
    for at in range(0, rows, size):
        wire = part.channel.receive("outputs", host)
        outputs = key.encrypted(wire)
        count = min(size, rows - at)
        if outputs.shape != (count * len(values),):
            raise PartyMessageError(f"{host} has sent outputs of another shape", party=host.id)
        cells = row_products(outputs, len(values), factors)
        hidden, masks = covered(cells_of(outputs), cells, _SUM_BITS)
        part.channel.send("hidden", hidden.to_wire(), host)
        shown = part.channel.receive("shown", host)
        if not isinstance(shown, list) or len(shown) != count or any(type(one) is not int for one in shown):
            raise PartyMessageError(f"{host} has sent numbers of another shape", party=host.id)
        found += [math.ldexp(one - mask, -2 * _BITS) for one, mask in zip(shown, masks, strict=True)]
    return np.array(found)


def _show_outputs(part: ComponentPart, outputs: Array) -> None:
    method, bits, _ = cipher_of(part.parameters)
    guest, keys = part.all_of(GUEST)[0], make_keys(method, bits)
    part.channel.send("key", keys.public.to_wire(), guest)
    size = max(1, _MOST_CELLS // outputs.shape[1])
    for at in range(0, len(outputs), size):
        some = outputs[at : at + size]
        part.channel.send("outputs", keys.public.encrypt(whole_numbers(part, some, _BITS).ravel()).to_wire(), guest)
        shown = decrypted(keys, part.channel.receive("hidden", guest), len(some), _SUM_BITS)
        part.channel.send("shown", shown, guest)
