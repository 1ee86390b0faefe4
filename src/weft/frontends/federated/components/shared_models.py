"""Regressions over the columns of a guest and a host, without an arbiter: on secret shares, and Paillier.

Source: Chen and others 2021 (CAESAR: homomorphic encryption and secret sharing). Each party has a key. Weights are
shared between both, or revealed to their owner in each step (`reveal_every_iter`). Scores, residuals and gradients are
shared; the residual of the logistic regression is the Taylor approximation `score / 4 - y / 2` with y of -1 and 1, and
its loss that of the approximation, `log 2 - 1/2 + 2 mean(d^2)`. That of the linear one is `score - y`.

Who learns what: encrypted numbers and random shares, the numbers of rows and features, and when the training ends. The
guest learns the loss of each epoch, or how far all weights have moved. With `reveal_every_iter` each party sees its own
gradient in each step; without, nobody sees a weight before the end. Where epochs are validated the guest learns the
scores of these rows: the sums of both parties, or with `reveal_every_iter` the parts of the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart
from weft.frontends.federated.components.inputs import compare_settings
from weft.frontends.federated.components.optimizers import L2, NESTEROV, Optimizer, Training, first_weights
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.components.vertical import scores_of
from weft.frontends.federated.crypto.ciphers import PLAIN, Encrypted, PrivateKey
from weft.frontends.federated.crypto.keys import cipher_of, make_keys, read_key
from weft.frontends.federated.crypto.wide_shares import (
    COLUMN_SCALE,
    MODULUS,
    SHARE_SCALE,
    from_wide,
    hidden_product,
    lowered,
    random_wide,
    read_wide,
    scaled,
    to_wide,
    whole,
    wide_wire,
)
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
_MOMENTUM: Final = 0.9


class SharedFamily(NamedTuple):
    """A kind of model: its residual `d` is `score / 2^digits - target y`; its loss follows from the mean of `d^2`."""

    digits: int
    target: float
    loss: Callable[[float], float]


SHARED_LOGISTIC: Final = SharedFamily(2, 0.5, lambda mean: math.log(2) - 0.5 + 2 * mean)
SHARED_LINEAR: Final = SharedFamily(0, 1.0, lambda mean: 0.5 * mean)


class SharedWatch(Protocol):
    """Looks at the shares of a model after each epoch."""

    def look(self, epoch: int, state: Any, scores: Callable[[Array], Array | None]) -> bool:
        """Look at an epoch; `scores` returns those of rows at the guest. Return there whether the training ends."""
        ...

    def chosen(self, last: Any) -> Any:
        """Return the state that is kept, given the last one."""
        ...


class SharedFitted(NamedTuple):
    """The own share of own weights, and of those of the other; losses (at the guest), and whether it converged.

    `epochs` counts those of an earlier training, too.
    """

    own: Array
    other: Array
    losses: list[float]
    converged: bool
    epochs: int


class SharedStart(NamedTuple):
    """What a party has of a model whose training goes on: how many epochs it has had, and its own weights.

    With weights of the host that nobody sees: the own `shares` of these, and no own weights at the host.
    """

    done: int
    weights: Array | None
    shares: Array | None


class ShareLine:
    """The line between guest and host: a key at each end, and products of a matrix here with shares there."""

    def __init__(self, part: ComponentPart) -> None:
        if len(part.all_of(GUEST)) != 1 or len(part.all_of(HOST)) != 1:
            raise UsageError(f"{part.component} needs one guest and one host")
        self.part, self.guest = part, part.here.role == GUEST
        self.other: Party = part.all_of(HOST if self.guest else GUEST)[0]
        method, bits, self.notes = cipher_of(part.parameters)
        self.method, self.bits = method, bits
        self.key: PrivateKey = make_keys(method, bits)
        part.channel.send("key", self.key.public.to_wire(), self.other)
        self._their_key = read_key(part.channel.receive("key", self.other), plain=method == PLAIN)

    def send(self, name: str, value: Any) -> None:
        """Send a value to the other party."""
        self.part.channel.send(name, value, self.other)

    def receive(self, name: str) -> Any:
        """Return a value of the other party."""
        return self.part.channel.receive(name, self.other)

    def count(self, own: int) -> int:
        """Tell how many features are here, and return those of the other. PartyMessageError: it is no number."""
        self.send("features", own)
        found = self.receive("features")
        if type(found) is not int or not 0 <= found <= 1 << 20:
            raise PartyMessageError(f"{self.other} has sent no number of features", party=self.other.id)
        return found

    def compare(self, own: Mapping[str, Any]) -> None:
        """Compare parameters with those of the other party. UsageError: one differs."""
        self.send("settings", dict(own))
        compare_settings(self.part, own, message_as(dict[str, Any], self.receive("settings"), self.other), self.other)

    def shares(self, name: str, count: int) -> Array:
        """Return shares that the other party has sent. PartyMessageError: they are malformed."""
        return read_wide(self.receive(name), count, str(self.other))

    def products(self, own: Array, matrix: Array, count: int) -> tuple[Array, Array, Encrypted]:
        """Return own shares of `matrix @ theirs`, and of their matrix with `own`, which has `count` results.

        The last one is what they have, encrypted. PartyMessageError: a message is malformed.
        """
        self.send("shares", self.key.public.encrypt(own).to_wire())
        theirs = self.encrypted("shares", matrix.shape[1])
        hidden, mine = hidden_product(theirs, matrix)
        self.send("product", hidden.to_wire())
        return mine, self.opened("product", count), theirs

    def squares(self, name: str, own: Array, theirs: Encrypted | None = None) -> float | None:
        """Return the sum of the squares of shared numbers at the guest, None at the host. `theirs` are its shares."""
        scale = 2 * SHARE_SCALE
        mine = int((own * own).sum()) if len(own) else 0
        if self.guest:
            if theirs is None:
                theirs = self.encrypted(name, len(own))
            hidden, share = hidden_product(theirs, own.reshape(1, -1))
            self.send(f"{name}/product", hidden.to_wire())
            total = self.shares(f"{name}/share", 1) + mine + 2 * share
            return float(from_wide(total % MODULUS, scale)[0])
        share = self.opened(f"{name}/product", 1)
        self.send(f"{name}/share", wide_wire((mine + 2 * share) % MODULUS))
        return None

    def send_encrypted(self, name: str, own: Array) -> None:
        """Send shares under the own key."""
        self.send(name, self.key.public.encrypt(own).to_wire())

    def opened(self, name: str, count: int) -> Array:
        """Return what the other has computed under the own key, modulo 2^192. PartyMessageError: it is malformed."""
        found = self.key.public.encrypted(self.receive(name))
        if found.shape != (count,):
            raise PartyMessageError(f"{self.other} has sent a product of another shape", party=self.other.id)
        values = np.empty(count, dtype=object)
        values[:] = [one % MODULUS for one in self.key.decrypt_integers(found)]
        return values

    def encrypted(self, name: str, count: int) -> Encrypted:
        """Return shares under the key of the other. PartyMessageError: they are malformed, or not so many."""
        found = self._their_key.encrypted(self.receive(name))
        if found.shape != (count,):
            raise PartyMessageError(f"{self.other} has sent shares of another shape", party=self.other.id)
        return found


class SharedFit:
    """The training of one model at one party. `y` has the labels at the guest, -1 or 1 or numbers; None at the host."""

    def __init__(
        self,
        line: ShareLine,
        training: Training,
        family: SharedFamily,
        matrix: Array,
        y: Array | None,
        seed: int,
        start: SharedStart | None = None,
        *,
        reveals: bool,
        watch: SharedWatch | None = None,
    ) -> None:
        self._watch = watch
        self._line, self._training, self._family, self._reveals = line, training, family, reveals
        self._matrix, self._y = matrix, y
        self._first = line.guest
        width = matrix.shape[1]
        self._other_width = line.count(width)
        self._intercept = line.guest and training.intercept
        self._start = SharedStart(0, first_weights(training, width, seed), None) if start is None else start
        self._weights = np.zeros(width) if self._start.weights is None else self._start.weights
        self._optimizer = Optimizer(training, width, intercept=self._intercept)
        self._penalised = [self._flags(width, self._intercept)]
        self._penalised.append(self._flags(self._other_width, not line.guest and training.intercept))
        self._moments: list[Array | None] = [None, None]
        self._share()

    @staticmethod
    def _flags(width: int, intercept: bool) -> Array:
        found = np.ones(width, dtype=object)
        if intercept:
            found[-1] = 0
        return found

    def _share(self) -> None:
        """Divide the own weights into shares, and take those of the other party."""
        if self._reveals:
            self._own, self._other = to_wide(self._weights), np.zeros(self._other_width, dtype=object)
            return
        known = self._start.shares
        if known is not None and len(known) != (self._other_width if self._line.guest else len(self._weights)):
            raise UsageError(f"{self._line.part.component}: {self._line.part.here} has shares of other weights")
        if known is None or self._line.guest:
            sent = random_wide(len(self._weights))
            self._line.send("start", wide_wire(sent))
            self._own = (to_wide(self._weights) - sent) % MODULUS
        else:
            self._own = known
        if known is None or not self._line.guest:
            self._other = self._line.shares("start", self._other_width)
        else:
            self._other = known

    def fit(self) -> SharedFitted:
        """Train, and return the weights as shares; with `reveals` the shares of the own ones are the weights."""
        training, losses, converged = self._training, list[float](), False
        slices, epochs = list(self._batches()), self._start.done
        for epoch in range(self._start.done, training.max_iter):
            before = np.concatenate([self._own, self._other])
            total: float | None = 0.0
            for rows in slices:
                found = self._step(rows, epoch)
                total = None if found is None or total is None else total + found
            moved = self._moved(before) if training.early_stop == "weight_diff" else None
            if total is not None and self._line.guest and training.early_stop != "weight_diff":
                losses.append(self._family.loss(total / len(self._matrix)))
            epochs = epoch + 1
            self._line.part.tracker.progress(epochs, training.max_iter)
            halts, converged = self._halts(epoch), self._ends(losses, moved)
            if halts or converged:
                break
        own, other = self._own, self._other
        if self._watch is not None:
            own, other = self._watch.chosen((own, other))
        return SharedFitted(own, other, losses, converged, epochs)

    def _halts(self, epoch: int) -> bool:
        """Return whether validation ends the training, which the guest decides."""
        if self._watch is None:
            return False
        halts = self._watch.look(epoch, (self._own, self._other), self._validated)
        if self._line.guest:
            self._line.send("halts", halts)
            return halts
        return bool(self._line.receive("halts"))

    def _validated(self, matrix: Array) -> Array | None:
        """Return the scores of rows at the guest; None at the host."""
        line, name = self._line, "validation/share"
        if self._reveals:
            return scores_of(line.part, matrix @ self._weights, f"/{name}")
        values = whole(matrix)
        mine, theirs, _ = line.products(self._other, values, len(values))
        own = (values.dot(self._own) + mine + theirs) % MODULUS
        if line.guest:
            return from_wide((own + line.shares(name, len(own))) % MODULUS, SHARE_SCALE + COLUMN_SCALE)
        line.send(name, wide_wire(own))
        return None

    def _batches(self) -> Iterator[slice]:
        rows, size = len(self._matrix), self._training.batch_size
        size = rows if size <= 0 else size
        for begin in range(0, rows, max(1, size)):
            yield slice(begin, min(rows, begin + size))

    def _step(self, rows: slice, epoch: int) -> float | None:
        """Take a step over a batch, and return the sum of the squares of its residual at the guest, if it counts."""
        line, real = self._line, self._matrix[rows]
        matrix = whole(real)
        residual = self._scores(real, matrix)
        if self._y is not None:
            residual = (residual - to_wide(self._family.target * self._y[rows])) % MODULUS
        mine, theirs, encrypted = line.products(residual, matrix.T, self._other_width)
        own = (matrix.T.dot(residual) + mine) % MODULUS
        own, theirs = (lowered(one, COLUMN_SCALE, first=self._first) for one in (own, theirs))
        squares = None
        if self._training.early_stop != "weight_diff":
            squares = line.squares("loss", residual, encrypted)
        if self._reveals:
            line.send("gradient", wide_wire(theirs))
            gradient = from_wide((own + line.shares("gradient", len(own))) % MODULUS) / len(real)
            self._weights = self._optimizer.step(self._weights, gradient, epoch)
            self._own = to_wide(self._weights)
        else:
            self._own = self._shared_step(0, self._own, own, len(real), epoch)
            self._other = self._shared_step(1, self._other, theirs, len(real), epoch)
        return squares

    def _scores(self, real: Array, matrix: Array) -> Array:
        """Return the own share of the scores, divided as the family says."""
        if self._reveals:
            return to_wide(math.ldexp(1.0, -self._family.digits) * (real @ self._weights))
        mine, theirs, _ = self._line.products(self._other, matrix, len(matrix))
        score = (matrix.dot(self._own) + mine + theirs) % MODULUS
        return lowered(score, COLUMN_SCALE + self._family.digits, first=self._first)

    def _shared_step(self, which: int, weights: Array, gradient: Array, rows: int, epoch: int) -> Array:
        """Return the share of weights after a step, which is linear: see `Optimizer`."""
        training, first = self._training, self._first
        shrink = 1.0 + training.decay * epoch
        rate = training.rate / (math.sqrt(shrink) if training.decay_sqrt else shrink)
        moved = scaled(gradient, rate / rows, first=first)
        if training.penalty == L2:
            moved = (moved + scaled(weights, rate * training.alpha, first=first) * self._penalised[which]) % MODULUS
        if training.optimizer != NESTEROV:
            found: Array = (weights - moved) % MODULUS
            return found
        known = self._moments[which]  # zeros are no random shares, so the first step does without
        before = moved * 0 if known is None else scaled(known, _MOMENTUM, first=first)
        after = (before - moved) % MODULUS
        self._moments[which] = after
        stepped: Array = (weights - before + after + scaled(after, _MOMENTUM, first=first)) % MODULUS
        return stepped

    def _moved(self, before: Array) -> float | None:
        """Return how far all weights have moved, squared, at the guest."""
        own = (np.concatenate([self._own, self._other]) - before) % MODULUS
        if self._reveals:
            here = float((from_wide(own) ** 2).sum())
            if not self._line.guest:
                self._line.send("moved", here)
                return None
            return here + float(message_as(float, self._line.receive("moved"), self._line.other))
        if self._line.guest:  # both parties have the weights of the guest first
            return self._line.squares("moved", own)
        width = len(self._own)
        own = np.concatenate([own[width:], own[:width]])
        self._line.send_encrypted("moved", own)
        return self._line.squares("moved", own)

    def _ends(self, losses: list[float], moved: float | None) -> bool:
        """Return whether the training has converged, which the guest decides."""
        training, line = self._training, self._line
        if not line.guest:
            found = line.receive("end")
            if not isinstance(found, bool):
                raise PartyMessageError(f"{line.other} does not say whether to go on", party=line.other.id)
            return found
        if training.early_stop == "weight_diff":
            assert moved is not None
            ends = math.sqrt(max(0.0, moved)) < training.tol
        elif training.early_stop == "abs":
            ends = abs(losses[-1]) < training.tol
        else:
            ends = len(losses) > 1 and abs(losses[-2] - losses[-1]) < training.tol
        line.send("end", ends)
        return ends
