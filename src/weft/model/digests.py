"""Digests of descriptions, without OpenSSL: a process that hashes nothing large need not load it, which takes 4 ms.

Digests of files are those of `hashlib`, which is several times faster with much data.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

_LARGE: Final = 1 << 20
"""The number of bytes from which OpenSSL is loaded for them."""

if TYPE_CHECKING:
    from hashlib import sha256 as _small
else:
    try:  # as `random` does in the standard library
        if sys.version_info >= (3, 12):
            from _sha2 import sha256 as _small
        else:
            from _sha256 import sha256 as _small
    except ImportError:  # a build of Python without digests of its own
        from hashlib import sha256 as _small


def hex_digest(data: bytes) -> str:
    """Return the SHA-256 of some data as `hashlib` writes it."""
    if len(data) < _LARGE:
        return _small(data).hexdigest()
    from hashlib import sha256

    return sha256(data).hexdigest()
