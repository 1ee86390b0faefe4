"""Encryption and the intersection of sets, in one process."""

from __future__ import annotations

import secrets
import time

import gmpy2
import numpy as np

from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.crypto.paillier import generate
from weft.frontends.federated.schema import Party
from weft.testing.parts import PartInputs, run_parts

BITS = 2048
MANY, FEW = 4_000, 200
IDS = 100_000
ROWS, EPOCHS = 30_000, 10


def encrypt() -> dict[str, float]:
    """Encrypt numbers, and return the seconds for one."""
    key = generate(BITS).public
    values = np.random.default_rng(0).normal(size=MANY)
    key.encrypt(values[:1])  # the table of powers is made once for each key
    begin = time.perf_counter()
    key.encrypt(values)
    return {"seconds": (time.perf_counter() - begin) / MANY}


def encrypt_by_the_book() -> dict[str, float]:
    """Encrypt numbers as in the paper of Paillier, and return the seconds for one."""
    key = generate(BITS).public
    begin = time.perf_counter()
    for value in range(FEW):
        r = gmpy2.mpz(secrets.randbelow(int(key.n)))
        (1 + value * key.n) * gmpy2.powmod(r, key.n, key.n2) % key.n2
    return {"seconds": (time.perf_counter() - begin) / FEW}


def credit_by_the_book() -> dict[str, float]:
    """Return the seconds of the encryptions alone of a logistic regression in the shape of FATE.

    Both parties encrypt a number for each row in each of 10 epochs. A sample is measured.
    """
    return {"seconds": encrypt_by_the_book()["seconds"] * ROWS * EPOCHS}


def intersect() -> dict[str, float]:
    """Intersect two sets of ids, half of which are common."""
    frames = [
        PartyFrame(np.array([f"client-{at}" for at in range(first, first + IDS)], dtype=object))
        for first in (0, IDS // 2)
    ]
    parties = (Party("guest", "1"), Party("host", "2"))
    given = {one: PartInputs({}, {"data": [frame]}) for one, frame in zip(parties, frames, strict=True)}
    begin = time.perf_counter()
    ran = run_parts("Intersection", given)
    seconds = time.perf_counter() - begin
    kept = ran.outputs[parties[0]].data[0]
    assert kept is not None
    assert len(kept) == IDS // 2
    return {"seconds": seconds}


CASES = {
    "encrypt": encrypt,
    "encrypt_by_the_book": encrypt_by_the_book,
    "credit_by_the_book": credit_by_the_book,
    "intersect": intersect,
}
