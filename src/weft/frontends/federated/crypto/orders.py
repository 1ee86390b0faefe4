"""Orders that nobody else can guess."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from weft.frontends.federated.crypto.ciphers import Array


def shuffled(count: int) -> Array:
    """Return the numbers below `count` in a secret order: that of random keys of 64 bits."""
    return np.argsort(np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64), kind="stable")
