"""Stochastic quasi-Newton steps for linear models over columns of several parties (`vertical`): the optimizer `sqn`.

Source: Byrd and others 2016. After every `update_interval_L` steps the mean of the weights since then is compared with
the one before: their difference `s`, and its product `y` with the curvature over a sample of rows. The last `memory_M`
such pairs give the direction of a step, as in L-BFGS. Each party keeps its own part of every `s` and `y`. A direction
is a sum of these and the gradient, with factors that follow from inner products alone (Chen and others 2014), so the
arbiter needs no vector of anybody.

Who learns what: hosts encrypt their parts of the inner products, the guest adds its own, and the arbiter decrypts the
sums, of which it sends the factors to all. It sees how far the weights of each party have moved between two pairs, but
no gradient and no weight. Hosts learn which rows are in a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST
from weft.frontends.federated.components.inputs import group
from weft.frontends.federated.components.optimizers import Optimizer, Training
from weft.frontends.federated.components.secure_trees import message_as
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.crypto.ciphers import PrivateKey, PublicKey
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
_NO_CURVATURE: Final = 1e-8
"""Pairs of length about 1 whose inner product is below are left out: the loss is flat between them."""


class QuasiNewton(NamedTuple):
    """The parameters `sqn_param`, with the defaults of FATE."""

    update_interval_L: int = 3  # noqa: N815 - the names of files
    memory_M: int = 5  # noqa: N815
    sample_size: int = 5000
    random_seed: int | None = None

    @classmethod
    def of(cls, part: ComponentPart) -> QuasiNewton:
        """Return the parameters of a part. UsageError: one is no whole number from 1 on."""
        given = {name: value for name, value in group(part, "sqn_param").items() if value is not None}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(
                    f"{part.component}: sqn_param.{name} is {value!r}; it must be a whole number from 1 on"
                )
        return cls(**{name: value for name, value in given.items() if name in cls._fields})

    def pairs(self, step: int) -> tuple[int, bool]:
        """Return how many pairs are known at a step, from 1 on, and whether another one follows it."""
        means = (step - 1) // self.update_interval_L
        return max(0, min(self.memory_M, means - 1)), step % self.update_interval_L == 0 and means >= 1


def _places(pairs: int) -> tuple[Array, Array]:
    """Return the places above the diagonal of products that factors follow from: not those of `s` with each other."""
    rows, columns = np.triu_indices(2 * pairs + 1)
    asked = (columns >= pairs) & (rows < 2 * pairs)
    return rows[asked], columns[asked]


def factors_of(products: Array) -> Array:
    """Return the factors of the vectors in the direction of a step.

    `products` has the inner products of `s` of each pair, oldest first, then `y` of each, and last the gradient.
    """
    count = len(products) // 2
    found = np.zeros(len(products))
    found[-1] = 1.0
    used = [at for at in range(count) if products[at, count + at] > _NO_CURVATURE]
    alphas: dict[int, float] = {}
    for at in reversed(used):
        alphas[at] = float(found @ products[:, at]) / products[at, count + at]
        found[count + at] -= alphas[at]
    if used:
        last = used[-1]
        found *= products[last, count + last] / products[count + last, count + last]
    for at in used:
        found[at] += alphas[at] - float(found @ products[:, count + at]) / products[at, count + at]
    return found


class NewtonArbiter:
    """The part of the arbiter. `name` turns names of messages into those of a model, `decrypt` serves a gradient."""

    def __init__(self, part: ComponentPart, plan: QuasiNewton, keys: PrivateKey, name: Callable[[str], str]) -> None:
        self._part, self._plan, self._keys, self._name, self._step = part, plan, keys, name, 0
        self._guest, self._everyone = part.all_of(GUEST)[0], [*part.all_of(GUEST), *part.all_of(HOST)]

    def serve(self, decrypt: Callable[[], None]) -> None:
        """Serve a step, after its gradient. `decrypt` serves one more, for the curvature."""
        self._step += 1
        channel, name = self._part.channel, self._name
        known, follows = self._plan.pairs(self._step)
        if known:
            sums = self._keys.public.encrypted(channel.receive(name("products"), self._guest))
            places = _places(known)
            if sums.shape != (len(places[0]),):
                raise PartyMessageError(f"{self._guest} has sent another number of products", party=self._guest.id)
            products = np.zeros((2 * known + 1, 2 * known + 1))
            products[places] = products.T[places] = self._keys.decrypt(sums)
            channel.send(name("factors"), factors_of(products), self._everyone)
        if follows:
            moved = sum(message_as(float, channel.receive(name("apart"), one), one) for one in self._everyone)
            power = -int(np.frexp(np.sqrt(moved))[1]) if np.isfinite(moved) and moved > 0 else 0
            channel.send(name("power"), power, self._everyone)
            decrypt()


class NewtonSteps(Optimizer):
    """The steps of a party, over `rows` rows.

    `curvature` returns its part of the product of the curvature over some rows with a vector, per row.
    """

    def __init__(
        self,
        part: ComponentPart,
        training: Training,
        plan: QuasiNewton,
        count: int,
        key: PublicKey,
        name: Callable[[str], str],
        curvature: Callable[[Array, Array], Array],
        *,
        rows: int,
        seed: int,
        intercept: bool,
    ) -> None:
        super().__init__(training, count, intercept=intercept)
        self._part, self._plan, self._key, self._name, self._curvature = part, plan, key, name, curvature
        self._guest, self._arbiter = part.all_of(GUEST)[0], part.all_of(ARBITER)[0]
        self._rows, self._step = rows, 0
        self._random = np.random.default_rng(seed if plan.random_seed is None else plan.random_seed)
        self._sum, self._before = np.zeros(count), np.zeros(count)
        self._s, self._y = list[Array](), list[Array]()

    def step(self, weights: Array, gradient: Array, epoch: int) -> Array:
        """See `Optimizer.step`; every so many steps a pair follows."""
        self._step += 1
        moved = super().step(weights, gradient, epoch)
        self._sum = self._sum + weights
        _, follows = self._plan.pairs(self._step)
        if self._step % self._plan.update_interval_L == 0:
            mean, self._sum = self._sum / self._plan.update_interval_L, np.zeros(len(weights))
            if follows:
                self._remember(mean - self._before)
            self._before = mean
        return moved

    def _move(self, gradient: Array, rate: float) -> Array:
        return rate * (self._direction(gradient) if self._s else gradient)

    def _direction(self, gradient: Array) -> Array:
        """Return the own part of the direction of a step."""
        vectors = np.array([*self._s, *self._y, gradient])
        own = self._key.encrypt((vectors @ vectors.T)[_places(len(self._s))])
        channel, name = self._part.channel, self._name
        if self._part.here != self._guest:
            channel.send(name("product"), own.to_wire(), self._guest)
        else:
            for host in self._part.all_of(HOST):
                own = own + self._theirs(host, own.shape)
            channel.send(name("products"), own.masked().to_wire(), self._arbiter)
        factors = channel.receive(name("factors"), self._arbiter)
        if not isinstance(factors, np.ndarray) or factors.shape != (len(vectors),) or factors.dtype != np.float64:
            raise PartyMessageError(f"{self._arbiter} has sent no factors", party=self._arbiter.id)
        found: Array = factors @ vectors
        return found

    def _theirs(self, host: Party, shape: tuple[int, ...]) -> Any:
        found = self._key.encrypted(self._part.channel.receive(self._name("product"), host))
        if found.shape != shape:
            raise PartyMessageError(f"{host} has sent another number of products", party=host.id)
        return found

    def _remember(self, s: Array) -> None:
        """Keep a pair, as long as about 1, so that its products have enough digits."""
        channel, name = self._part.channel, self._name
        channel.send(name("apart"), float(s @ s), self._arbiter)
        s = np.ldexp(s, message_as(int, channel.receive(name("power"), self._arbiter), self._arbiter))
        y = self._curvature(self._sampled(), s)
        if self._training.penalty == "L2":
            y = y + self._training.alpha * s * self._penalised
        self._s, self._y = [*self._s, s][-self._plan.memory_M :], [*self._y, y][-self._plan.memory_M :]

    def _sampled(self) -> Array:
        """Return the rows of a sample, which the guest chooses."""
        count = min(self._rows, self._plan.sample_size)
        if self._part.here == self._guest:
            rows = np.sort(self._random.choice(self._rows, count, replace=False))
            self._part.channel.send(
                self._name("sample"), None if count == self._rows else rows, self._part.all_of(HOST)
            )
            return rows
        rows = self._part.channel.receive(self._name("sample"), self._guest)
        rows = np.arange(self._rows) if rows is None else rows
        fits = isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind == "i" and len(rows)
        if not fits or rows.min() < 0 or rows.max() >= self._rows:
            raise PartyMessageError(f"{self._guest} has chosen rows that there are not", party=self._guest.id)
        return rows
