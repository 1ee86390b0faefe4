"""The layer between the networks of guest and hosts: what a host puts in is encrypted, and nobody knows its weights.

A host encrypts the outputs of its network, shape (rows, width). The weights that multiply them are a sum: the guest
has one summand, and the host has the noise that it has put into all earlier steps. Each step follows the gradient, of
which the guest learns only a sum with noise of the host, and the host a sum with a mask of the guest. All sums are
those of integers, so noise and masks cancel exactly. Source: the noise scheme of HeteroNN in FATE, `interactive_layer`.

Who learns what: the guest learns the products of each row's outputs and the weights, in each pass, neither outputs nor
weights. The host learns the gradient of the loss by its outputs, for each row of the training, and no product, label
or weight. Gradients of rows of different classes differ, so a host can guess labels from them. Beyond FATE: the guest
does not know the first weights, and ciphertexts that come back to the host are in fresh randomness.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.crypto.ciphers import PLAIN
from weft.frontends.federated.crypto.covers import covered, decrypted, packed_plain
from weft.frontends.federated.crypto.histograms import EncryptedCells, capacity, cells_of, packed, unpacked
from weft.frontends.federated.crypto.keys import cipher_of, make_keys, read_key
from weft.frontends.federated.wire import Integers, integers
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.crypto.ciphers import Encrypted, PrivateKey, PublicKey
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
_RANGE_BITS: Final = 24
"""The binary digits before the point that outputs and gradients of a row may have."""
_NOISE_BITS: Final = 30
"""The same of the noise that a host puts into each step: a step of 1 hides in it but for a part of 2^-30."""
_DRIFT_BITS: Final = 46
"""The same of the sum of all noise."""
_WEIGHT_BITS: Final = 20
_MOST_CELLS: Final = 1 << 15


class LayerShape:
    """The numbers of one host's part of the layer: `bits` digits behind the point, and the `rate` of its steps."""

    def __init__(self, width: int, units: int, bits: int, rate: float) -> None:
        self.width, self.units, self.bits, self.rate = width, units, bits, Fraction(rate)

    @property
    def product_bits(self) -> int:
        """The bits of a product of outputs and one summand of the weights."""
        return 2 * self.bits + _RANGE_BITS + _DRIFT_BITS + self.width.bit_length() + 1

    @property
    def digit_bits(self) -> int:
        """The bits of a gradient of outputs, with its sign."""
        return 2 * self.bits + _RANGE_BITS + _WEIGHT_BITS + self.units.bit_length() + 2

    def gradient_bits(self, rows: int) -> int:
        """Return the bits of a gradient of weights."""
        return 2 * self.bits + 2 * _RANGE_BITS + rows.bit_length() + 1

    def digits(self, bits: int) -> int:
        """Return how many outputs share a ciphertext of `bits` bits when gradients go back."""
        return max(1, min(self.width, (bits - self.bits - _DRIFT_BITS - 8) // self.digit_bits))

    def pieces(self, rows: int) -> Iterator[slice]:
        """Return the rows of each message."""
        size = max(1, _MOST_CELLS // max(self.width, self.units))
        for at in range(0, rows, size):
            yield slice(at, min(rows, at + size))


def layer_key(part: ComponentPart) -> tuple[PrivateKey, list[str]]:
    """Return new keys of a host, and notes about what is done otherwise than its parameters say."""
    method, bits, notes = cipher_of(part.parameters)
    return make_keys(method, bits), notes


def host_key(part: ComponentPart, host: Party) -> PublicKey:
    """Return the key of a host. One that encrypts nothing is refused, unless the guest asks for it, too."""
    return read_key(part.channel.receive("key", host), plain=cipher_of(part.parameters)[0] == PLAIN)


class GuestLayer:
    """The part of one host in the layer, at the guest. `weights` has shape (width, units): whole numbers."""

    def __init__(self, part: ComponentPart, host: Party, key: PublicKey, shape: LayerShape, weights: Array) -> None:
        self._part, self._host, self._key, self._shape = part, host, key, shape
        self._inputs: list[Encrypted] = []
        self.weights = weights

    def forward(self, rows: int) -> Array:
        """Return the products of outputs and weights, shape (rows, units). PartyMessageError: the host sent others."""
        shape, found = self._shape, []
        self._inputs = []
        for piece in shape.pieces(rows):
            count = piece.stop - piece.start
            inputs = self._key.encrypted(self._receive("outputs"))
            if inputs.shape != (count * shape.width,):
                raise self._wrong()
            self._inputs.append(inputs)
            sums = row_products(inputs, shape.width, self.weights)
            products, masks = covered(cells_of(inputs), sums, shape.product_bits)
            self._send("products", products.to_wire())
            shown = self._receive("shown")
            if not isinstance(shown, Integers) or len(shown) != len(masks):
                raise self._wrong()
            values = [math.ldexp(one - mask, -2 * shape.bits) for one, mask in zip(shown, masks, strict=True)]
            found.append(np.array(values).reshape(count, shape.units))
        return np.concatenate(found) if found else np.empty((0, shape.units))

    def backward(self, gradient: Array) -> None:
        """Take a step along the gradient of the mean loss by the layer's values, shape (rows, units).

        The host gets the gradient by its outputs, from the weights before the step. UsageError: a number overflows.
        """
        shape, rows = self._shape, len(gradient)
        slopes = whole_numbers(self._part, gradient * rows, shape.bits)
        pieces = list(shape.pieces(rows))
        sums: Encrypted | None = None
        for piece, inputs in zip(pieces, self._inputs, strict=True):
            for at in range(shape.width):
                column = inputs[at :: shape.width].dot(slopes[piece])
                sums = _placed(sums, cells_of(column), at, shape)
        assert sums is not None
        hidden, masks = covered(cells_of(sums), cells_of(sums).cells, shape.gradient_bits(rows))
        self._send("gradient", hidden.to_wire())
        self._send_back(slopes, pieces)
        noisy = self._receive("noisy")
        if not isinstance(noisy, list) or len(noisy) != len(masks) or any(type(one) is not int for one in noisy):
            raise self._wrong()
        share = shape.rate / (rows << shape.bits)
        steps = [round((one - mask) * share) for one, mask in zip(noisy, masks, strict=True)]
        self.weights = self.weights - np.array(steps, dtype=object).reshape(self.weights.shape)
        _check_drift(self._part, self.weights, shape.bits)

    def _send_back(self, slopes: Array, pieces: list[slice]) -> None:
        """Send the encrypted gradients by the host's outputs: products of slopes and weights, with its noise."""
        shape = self._shape
        digits, width = shape.digits(capacity(self._key)), shape.digit_bits
        groups = -(-shape.width // digits)
        noise = self._key.encrypted(self._receive("noise"))
        if noise.shape != (groups * shape.units,):
            raise self._wrong()
        weights = noise + np.array(_joined(self.weights, digits, width), dtype=object)
        for piece in pieces:
            table = [cells_of(weights[at::groups].dot(slopes[piece].T)).cells for at in range(groups)]
            cells = [one for row in zip(*table, strict=True) for one in row]
            source = cells_of(weights)
            back = packed(source, cells, digits * width)
            shift = sum(1 << (at * width + width - 1) for at in range(digits))
            self._send("back", (back + packed_plain(source, [shift] * len(cells), digits * width)).to_wire())

    def _send(self, name: str, value: Any) -> None:
        self._part.channel.send(name, value, self._host)

    def _receive(self, name: str) -> Any:
        return self._part.channel.receive(name, self._host)

    def _wrong(self) -> PartyMessageError:
        return PartyMessageError(f"{self._host} has sent numbers of another shape", party=self._host.id)


class HostLayer:
    """The part of a host in the layer, at the host. `noise` has shape (width, units): whole numbers."""

    def __init__(self, part: ComponentPart, guest: Party, keys: PrivateKey, shape: LayerShape, noise: Array) -> None:
        self._part, self._guest, self._keys, self._shape = part, guest, keys, shape
        self._outputs = np.empty((0, shape.width), dtype=object)
        self.noise = noise

    def forward(self, outputs: Array) -> None:
        """Let the guest have the products of outputs, shape (rows, width), and weights. UsageError: one overflows."""
        shape, keys = self._shape, self._keys
        self._outputs = whole_numbers(self._part, outputs, shape.bits)
        for piece in shape.pieces(len(outputs)):
            some = self._outputs[piece]
            self._send("outputs", keys.public.encrypt(some.ravel()).to_wire())
            shown = decrypted(keys, self._receive("products"), len(some) * shape.units, shape.product_bits)
            own = (some @ self.noise).ravel().tolist()
            self._send("shown", integers([one + other for one, other in zip(shown, own, strict=True)]))

    def backward(self) -> Array:
        """Return the gradient of the mean loss by the outputs of the last pass, shape (rows, width)."""
        shape, keys, rows = self._shape, self._keys, len(self._outputs)
        digits, width = shape.digits(capacity(keys.public)), shape.digit_bits
        shown = decrypted(keys, self._receive("gradient"), shape.width * shape.units, shape.gradient_bits(rows))
        most = 1 << (shape.bits + _NOISE_BITS)
        noise = [secrets.randbelow(2 * most + 1) - most for _ in shown]
        self._send("noise", keys.public.encrypt(np.array(_joined(self.noise, digits, width), dtype=object)).to_wire())
        found = np.concatenate([self._received(piece, digits, width) for piece in shape.pieces(rows)])
        share = (rows << shape.bits) / shape.rate
        self._send("noisy", [one + round(other * share) for one, other in zip(shown, noise, strict=True)])
        self.noise = self.noise + np.array(noise, dtype=object).reshape(self.noise.shape)
        _check_drift(self._part, self.noise, shape.bits)
        return found / rows

    def _received(self, piece: slice, digits: int, width: int) -> Array:
        """Return the gradients by the outputs of some rows, times the number of all rows."""
        shape, groups = self._shape, -(-self._shape.width // digits)
        count = piece.stop - piece.start
        numbers = unpacked(
            self._keys, self._keys.public.encrypted(self._receive("back")), count * groups, digits * width
        )
        mask, half = (1 << width) - 1, 1 << (width - 1)
        values = [
            math.ldexp((one >> (at * width) & mask) - half, -2 * shape.bits) for one in numbers for at in range(digits)
        ]
        return np.array(values).reshape(count, groups * digits)[:, : shape.width]

    def _send(self, name: str, value: Any) -> None:
        self._part.channel.send(name, value, self._guest)

    def _receive(self, name: str) -> Any:
        return self._part.channel.receive(name, self._guest)


def whole_numbers(part: ComponentPart, values: Array, bits: int) -> Array:
    """Return numbers times `2^bits` as whole ones of Python, of the same shape. UsageError: one is too large."""
    if not (np.abs(values) < 2.0**_RANGE_BITS).all():
        raise UsageError(
            f"{part.component}: the training has diverged at {part.here}",
            hint="Lower the learning rates, or put a FeatureScale before it.",
        )
    found: Array = np.rint(values * 2.0**bits).astype(np.int64).astype(object)
    return found


def _check_drift(part: ComponentPart, weights: Array, bits: int) -> None:
    if any(abs(one) >> (bits + _DRIFT_BITS) for one in weights.ravel().tolist()):
        raise UsageError(f"{part.component}: the layer between the networks has taken too many steps")


def row_products(values: Encrypted, width: int, weights: Array) -> list[Any]:
    """Return the encrypted products of rows of `width` numbers and weights, row by row."""
    return [
        cell for at in range(0, values.shape[0], width) for cell in cells_of(values[at : at + width].dot(weights)).cells
    ]


def _placed(sums: Encrypted | None, column: EncryptedCells, at: int, shape: LayerShape) -> Encrypted:
    """Add the gradients of the weights of one output to encrypted sums, of shape (width * units,)."""
    known = [] if sums is None else list(cells_of(sums).cells)
    start = at * shape.units
    old = known[start : start + shape.units]
    new = [column.add(one, other) for one, other in zip(old, column.cells, strict=True)] if old else column.cells
    return column.array([*known[:start], *new, *known[start + shape.units :]])


def _joined(weights: Array, digits: int, width: int) -> list[int]:
    """Return weights, shape (outputs, units), with `digits` outputs side by side: for each unit, group by group."""
    outputs, units = weights.shape
    return [
        sum(int(weights[at, unit]) << ((at - start) * width) for at in range(start, min(start + digits, outputs)))
        for unit in range(units)
        for start in range(0, outputs, digits)
    ]
