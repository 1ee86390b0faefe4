"""The writer of evicted chunks: to the spill tier, or to a folder of this machine while that tier refuses them."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from weft.model.errors import CapacityError

if TYPE_CHECKING:
    from weft.model.chunks import ChunkRef
    from weft.store.codec import Encoded
    from weft.store.tiers import TierStore

AGAIN_S: Final = 30.0
"""The seconds after a failure in which the spill tier is not tried: each attempt has waits of its own."""


class SpillWriter:
    """Writes chunks to `tier`, or to `fallback` for `AGAIN_S` seconds after a failure of `tier`. Safe for any thread.

    The first chunks that the fallback takes after a success of the tier cause a warning. `now` is a clock in seconds.
    """

    def __init__(
        self, tier: TierStore, fallback: TierStore | None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tier = tier
        self._fallback = None if fallback is tier else fallback
        self._now = now
        self._lock = threading.Lock()
        self._error: CapacityError | None = None
        """The last failure of the tier, None after a success."""
        self._again_at = 0.0

    def write(self, chunks: Sequence[Encoded]) -> list[ChunkRef]:
        """Write chunks, all or none, to one of the tiers; refs come in the same order.

        CapacityError: neither takes them; the message names the reasons of both.
        """
        if self._fallback is None:
            return self._tier.write(chunks)
        with self._lock:
            error = self._error if self._now() < self._again_at else None
        if error is None:
            try:
                refs = self._tier.write(chunks)
            except CapacityError as failure:
                error = failure
                self._record(failure, self._fallback)
            else:
                self._error = None
                return refs
        return self._write_aside(self._fallback, chunks, error)

    def _record(self, failure: CapacityError, fallback: TierStore) -> None:
        with self._lock:
            known, self._error, self._again_at = self._error, failure, self._now() + AGAIN_S
        if known is None:
            warnings.warn(
                f"{failure.message}. Chunks without room in memory go to {fallback.root} until it can be written to.",
                RuntimeWarning,
                stacklevel=2,
            )

    @staticmethod
    def _write_aside(fallback: TierStore, chunks: Sequence[Encoded], error: CapacityError) -> list[ChunkRef]:
        try:
            return fallback.write(chunks)
        except CapacityError as second:
            raise type(second)(
                f"{error.message}; {fallback.root} cannot take the chunks instead: {second.message}", hint=error.hint
            ) from error
