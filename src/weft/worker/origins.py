"""What exceptions of tasks were, in messages between the processes of one machine."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Final

from weft.model.raised import Origin
from weft.worker.channel import dumps

MOST_BYTES: Final = 1 << 16
"""The most bytes of the arguments and attributes of an exception that a message carries."""


def packed(origin: Origin | bytes | None) -> bytes:
    """Pickle what an exception was, without arguments and attributes if these cannot be sent; b"" if it cannot be."""
    if isinstance(origin, bytes):
        return origin
    for one in () if origin is None else (origin, Origin(origin.kind, (), {})):
        with suppress(Exception):
            data = dumps(one)
            if len(data) <= MOST_BYTES:
                return data
    return b""


def unpacked(data: Origin | bytes | None) -> Origin | None:
    """Return what an exception was; None if it is unknown, or this process cannot make it."""
    if not isinstance(data, bytes):
        return data
    with suppress(Exception):
        found = pickle.loads(data)
        return found if isinstance(found, Origin) else None
    return None
