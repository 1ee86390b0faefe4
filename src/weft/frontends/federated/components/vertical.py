"""Linear models over columns of several parties: gradients under encryption, with the help of an arbiter.

The arbiter has the key. For each batch the hosts encrypt their shares of the residual, the guest adds its own, and
each party multiplies the encrypted residual by its own columns. The product goes to the arbiter plus a random number,
so the arbiter decrypts numbers that tell it nothing; each party subtracts its random numbers and takes its step.

Who learns what: the guest and the hosts see encrypted numbers alone, and each its own gradient. The arbiter sees the
loss of each epoch (with one host), which it tells the guest, and how far the weights of each party have moved, and
nothing else. Source: Hardy and others 2017 (the Taylor approximation of the loss, the encrypted residual); blinding the
gradients goes beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST, ComponentPart
from weft.frontends.federated.components.inputs import check_parties
from weft.frontends.federated.components.losses import check_finite
from weft.frontends.federated.components.optimizers import QUASI_NEWTON, Optimizer, Training, first_weights
from weft.frontends.federated.components.quasi_newton import NewtonArbiter, NewtonSteps, QuasiNewton
from weft.frontends.federated.crypto.ciphers import PLAIN, Encrypted, PrivateKey, PublicKey
from weft.frontends.federated.crypto.keys import cipher_of, make_keys, read_key
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]


class Family(NamedTuple):
    """A kind of model by its residual `d`, the gradient of the loss by the score.

    `guest_share(score, y)` and `host_share(score)` are shares of it, which are added, or multiplied with `multiplies`
    (then `y` is subtracted). `loss(mean of d^2)` is the loss, None if it does not follow from the residual.
    """

    guest_share: Callable[[Array, Array], Array]
    host_share: Callable[[Array], Array]
    loss: Callable[[float], float] | None
    multiplies: bool = False

    @property
    def slope(self) -> float:
        """By how much the loss grows with the mean of the squares."""
        return 1.0 if self.loss is None else self.loss(1.0) - self.loss(0.0)


LOGISTIC: Final = Family(
    lambda score, y: 0.25 * score - 0.5 * y, lambda score: 0.25 * score, lambda mean: math.log(2) - 0.5 + 2 * mean
)
"""`y` is -1 or 1; the loss is the Taylor polynomial of second order, which is `log 2 - 1/2 + 2 mean(d^2)`."""
LINEAR: Final = Family(lambda score, y: score - y, lambda score: score, lambda mean: 0.5 * mean)
POISSON: Final = Family(lambda score, y: np.exp(score), np.exp, None, multiplies=True)


class Fitted(NamedTuple):
    """The weights of a party (the intercept last, at the guest), the losses by epoch, and whether it converged.

    `epochs` counts those of an earlier training, too.
    """

    weights: Array
    losses: list[float]
    converged: bool
    epochs: int


class ModelWatch(Protocol):
    """Looks at the weights of a model after each epoch, at guest and hosts."""

    def see(self, epoch: int, weights: Array) -> bool:
        """Look at the weights; return at the guest whether the training ends."""
        ...

    def chosen(self, last: Array) -> Array:
        """Return the weights that are kept, given the last ones."""
        ...


class VerticalFit:
    """The training of one model at one party; `tag` tells models of one component apart.

    `done` is how many epochs the model has had in an earlier training.
    """

    def __init__(self, part: ComponentPart, training: Training, family: Family, tag: str = "", done: int = 0) -> None:
        self._part, self._training, self._family, self._tag, self._done = part, training, family, tag, done
        self._hosts = part.all_of(HOST)
        guests, arbiters = part.all_of(GUEST), part.all_of(ARBITER)
        check_parties(part, arbiter=True)
        self._guest, self._arbiter = guests[0], arbiters[0]
        self._newton = QuasiNewton.of(part) if training.optimizer == QUASI_NEWTON else None

    @property
    def _has_loss(self) -> bool:
        return len(self._hosts) == 1 and self._family.loss is not None

    # ----------------------------------------------------------------------------------------------------- arbiter

    def arbitrate(self, keys: PrivateKey) -> None:
        """Decrypt for the others, and decide when the training ends."""
        channel, everyone = self._part.channel, [self._guest, *self._hosts]
        batches = int(self._receive("batches", self._guest))
        newton = None if self._newton is None else NewtonArbiter(self._part, self._newton, keys, self._name)

        def decrypt() -> None:
            for party in everyone:
                blinded = keys.public.encrypted(self._receive("gradient", party))
                channel.send(self._name("plain"), keys.decrypt_integers(blinded), party)

        loss, before = math.inf, math.inf
        for epoch in range(self._done, self._training.max_iter):
            for _ in range(batches):
                decrypt()
                if newton is not None:
                    newton.serve(decrypt)
            if self._has_loss:
                assert self._family.loss is not None
                wire = self._receive("loss", self._guest)
                mean = float(keys.decrypt(keys.public.encrypted(wire))[0])
                loss = self._family.loss(mean)
            moved = sum(float(self._receive("moved", party)) for party in everyone)
            converged, halts = self._converged(loss, before, moved), bool(self._receive("halts", self._guest))
            before = loss
            for party in everyone:  # hosts must not see it: it follows from the labels
                told = loss if party == self._guest and self._has_loss else None
                channel.send(self._name("end"), [converged, halts, told], party)
            self._part.tracker.progress(epoch + 1, self._training.max_iter)
            if converged or halts:
                break

    def _moved(self, step: Any) -> float:
        """Return the sum of squares of the last step. UsageError: it has no number."""
        moved = float((step**2).sum())
        check_finite(self._part, moved, "a weight")
        return moved

    def _converged(self, loss: float, before: float, moved: float) -> bool:
        training = self._training
        if training.early_stop == "weight_diff" or not self._has_loss:
            return math.sqrt(moved) < training.tol
        if training.early_stop == "abs":
            return abs(loss) < training.tol
        return abs(before - loss) < training.tol

    # --------------------------------------------------------------------------------------------- guest and hosts

    @np.errstate(over="ignore", invalid="ignore")  # numbers that are not finite are refused
    def fit(
        self,
        key: PublicKey,
        matrix: Array,
        y: Array | None,
        seed: int,
        counts: Array | None = None,
        watch: ModelWatch | None = None,
        offset: Array | None = None,
        first: Array | None = None,
    ) -> Fitted:
        """Train, and return the weights. `matrix` has shape (rows, features); `y` is that of the guest.

        `counts`, at the guest, says how much each row counts; in the loss all rows count the same, since hosts do not
        know it. `watch` validates epochs. `offset`, at the guest, is added to the scores of its rows. `first` are
        the weights of an earlier training; None: there was none.
        """
        guest = self._part.here.role == GUEST
        intercept = guest and self._training.intercept
        if intercept:
            matrix = np.hstack([matrix, np.ones((len(matrix), 1))])
        weights = first_weights(self._training, matrix.shape[1], seed) if first is None else first
        optimizer = self._optimizer(key, matrix, counts, seed, intercept=intercept)
        slices = list(self._batches(len(matrix)))
        if guest:
            self._part.channel.send(self._name("batches"), len(slices), self._arbiter)
        losses: list[float] = []
        if guest and self._training.early_stop != "weight_diff" and not self._has_loss:
            self._part.tracker.log(
                f"no loss is computed {'of this model' if self._family.loss is None else 'with several hosts'}: "
                "the training ends when the weights move by less than tol"
            )
        converged, epochs = False, self._done
        for epoch in range(self._done, self._training.max_iter):
            old, squares = weights, []
            for rows in slices:
                score = matrix[rows] @ weights
                score = score if offset is None else score + offset[rows]
                count = None if counts is None else counts[rows]
                penalty = optimizer.penalty(weights)
                truth = None if y is None else y[rows]
                gradient, square = self._product(key, matrix[rows], score, truth, count, penalty)
                squares.append(square)
                weights = optimizer.step(weights, gradient, epoch)
            if guest and self._has_loss:
                self._send_loss(squares, len(matrix))
            self._part.channel.send(self._name("moved"), self._moved(weights - old), self._arbiter)
            halts = watch is not None and watch.see(epoch, weights)
            if guest:
                self._part.channel.send(self._name("halts"), halts, self._arbiter)
            converged, halts, loss = self._receive("end", self._arbiter)
            if loss is not None:
                check_finite(self._part, float(loss), "the loss")
                losses.append(float(loss))
            epochs = epoch + 1
            self._part.tracker.progress(epochs, self._training.max_iter)
            if converged or halts:
                break
        weights = weights if watch is None else watch.chosen(weights)
        return Fitted(weights, losses, bool(converged), epochs)

    def _optimizer(
        self, key: PublicKey, matrix: Array, counts: Array | None, seed: int, *, intercept: bool
    ) -> Optimizer:
        if self._newton is None:
            return Optimizer(self._training, matrix.shape[1], intercept=intercept)

        def curvature(rows: Array, vector: Array) -> Array:
            # with labels of zero the residual is that of the curvature, which is the same for all scores
            count = None if counts is None else counts[rows]
            return self._product(key, matrix[rows], matrix[rows] @ vector, np.zeros(len(rows)), count)[0]

        return NewtonSteps(
            self._part,
            self._training,
            self._newton,
            matrix.shape[1],
            key,
            self._name,
            curvature,
            rows=len(matrix),
            seed=seed,
            intercept=intercept,
        )

    def _product(
        self, key: PublicKey, matrix: Array, score: Array, y: Array | None, count: Array | None, penalty: float = 0.0
    ) -> tuple[Array, Encrypted | None]:
        """Return the own part of the mean gradient of a batch, and at the guest the sum of the squared residuals.

        To this each party adds what its `penalty` adds to the loss, in the measure of the squares.
        """
        extra = penalty * len(matrix) / self._family.slope
        if self._part.here.role == GUEST:
            assert y is not None
            residual, square = self._guest_residual(key, score, y, count, extra)
        else:
            residual, square = self._host_residual(key, score, extra), None
        return self._decrypted(residual.dot(matrix)) / len(matrix), square

    def _guest_residual(
        self, key: PublicKey, score: Array, y: Array, count: Array | None, extra: float
    ) -> tuple[Encrypted, Encrypted | None]:
        """Return the encrypted residual of a batch, and the sum of its squares (None with several hosts)."""
        share = self._family.guest_share(score, y)
        if self._family.multiplies:
            residual = self._shares(key, self._hosts[0], len(score)) * share - y
            residual = residual.masked()
            square = None
        else:
            own, square = key.encrypt(share), None  # while the hosts encrypt theirs
            residual = own
            for host in self._hosts:
                theirs = self._shares(key, host, len(score))
                residual = residual + theirs
                if self._has_loss:
                    sums = key.encrypted(self._receive("squares", host))
                    square = theirs.dot(2 * share[:, None]) + sums + np.array([float(share @ share) + extra])
        if count is not None:
            residual = (residual * count).masked()
        self._part.channel.send(self._name("residual"), residual.to_wire(), self._hosts)
        return residual, square

    def _host_residual(self, key: PublicKey, score: Array, extra: float) -> Encrypted:
        share, channel = self._family.host_share(score), self._part.channel
        channel.send(self._name("share"), key.encrypt(share).to_wire(), self._guest)
        if self._has_loss:
            square = np.array([float(share @ share) + extra])
            channel.send(self._name("squares"), key.encrypt(square).to_wire(), self._guest)
        residual = key.encrypted(self._receive("residual", self._guest))
        if residual.shape != (len(score),):
            raise PartyMessageError(f"{self._guest} has sent a residual of another shape", party=self._guest.id)
        return residual

    def _shares(self, key: PublicKey, host: Party, count: int) -> Encrypted:
        found = key.encrypted(self._receive("share", host))
        if found.shape != (count,):
            raise PartyMessageError(f"{host} has sent shares of another shape", party=host.id)
        return found

    def _send_loss(self, squares: list[Encrypted | None], rows: int) -> None:
        total: Encrypted | None = None
        for one in squares:
            if one is not None:
                total = one if total is None else total + one
        assert total is not None
        self._part.channel.send(self._name("loss"), (total * (1.0 / rows)).masked().to_wire(), self._arbiter)

    def _decrypted(self, product: Encrypted) -> Array:
        """Return the numbers of an encrypted gradient, by the arbiter, which does not see them."""
        blinded, shown = product.blinded()
        self._part.channel.send(self._name("gradient"), blinded.to_wire(), self._arbiter)
        values = self._receive("plain", self._arbiter)
        if not isinstance(values, list) or len(values) != product.shape[0]:
            raise PartyMessageError(f"{self._arbiter} has sent another number of values", party=self._arbiter.id)
        return shown(values)

    def _batches(self, rows: int) -> Iterator[slice]:
        size = rows if self._training.batch_size <= 0 else min(rows, self._training.batch_size)
        for at in range(0, rows, max(1, size)):
            yield slice(at, min(rows, at + size))

    def _name(self, name: str) -> str:
        return f"{name}{self._tag}"

    def _receive(self, name: str, source: Party) -> Any:
        return self._part.channel.receive(self._name(name), source)


def hand_out_keys(part: ComponentPart) -> PrivateKey:
    """Make keys at the arbiter, and send the public one to all others."""
    method, bits, notes = cipher_of(part.parameters)
    keys = make_keys(method, bits)
    part.channel.send("key", keys.public.to_wire(), part.others(GUEST, HOST))
    for note in notes:
        part.tracker.log(note)
    part.tracker.summary({"encryption": method, "key_length": bits, "notes": notes})
    return keys


def take_key(part: ComponentPart) -> PublicKey:
    """Return the key of the arbiter. A key that encrypts nothing is refused, unless this party asks for it, too."""
    method, _, _ = cipher_of(part.parameters)
    return read_key(part.channel.receive("key", part.all_of(ARBITER)[0]), plain=method == PLAIN)


def check_rows(part: ComponentPart, count: int) -> None:
    """Compare the numbers of rows. UsageError: they differ, so that rows do not belong to each other."""
    if part.here.role == GUEST:
        part.channel.send("rows", count, part.all_of(HOST))
        return
    guest = part.all_of(GUEST)[0]
    if part.channel.receive("rows", guest) != count:
        raise UsageError(
            f"{part.component}: {part.here} and {guest} have different numbers of rows",
            hint="Put an Intersection before it.",
        )


def scores_of(part: ComponentPart, own: Array, tag: str = "") -> Array | None:
    """Return the scores of all parties together at the guest; None at hosts, which send theirs to the guest."""
    if part.here.role == HOST:
        part.channel.send(f"score{tag}", own, part.all_of(GUEST)[0])
        return None
    total = own
    for host in part.all_of(HOST):
        theirs = part.channel.receive(f"score{tag}", host)
        if not isinstance(theirs, np.ndarray) or theirs.shape != own.shape:
            raise PartyMessageError(f"{host} has sent scores of another shape", party=host.id)
        total = total + theirs
    return total
