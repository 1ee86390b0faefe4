"""How a worker process writes to streams: values gather into blocks, one message of them is under way at a time.

The backend acknowledges a message when the streams have room again, which is all the back-pressure there is: a writer
holds at most what it gathers, one message that is under way, and the window. What is written now and then leaves at
once; what is written fast gathers while the message before is under way, so that small values do not cost a message
each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from weft.model.chunks import ChunkRef
from weft.model.errors import WeftError
from weft.store import codec, tiers
from weft.store.api import sizeof

if TYPE_CHECKING:
    from weft.store.segments import SegmentWriter

BLOCK: Final = 64 * 1024
"""Small values gather until they have this many bytes."""
GATHER_S: Final = 0.005
"""How long a value waits for others, in seconds, where more are written."""

Parcel = tuple[str, int, int, bytes | ChunkRef, int]
"""A block on its way: (edge, source task, partition, the encoded list of its values or a ref to that, bytes)."""


def packed(values: list[Any], writer: SegmentWriter | None) -> tuple[bytes | ChunkRef, int]:
    """Return values as a block that can travel, and its bytes. ProgramError: one cannot be pickled; DiskFullError."""
    encoded = codec.encode(values)
    if encoded.nbytes < BLOCK or writer is None:
        return codec.to_bytes(encoded), encoded.nbytes
    return writer.write([encoded])[0], encoded.nbytes


def unpacked(cell: Any) -> list[Any]:
    """Return the values of a block. NotFoundError: its file is gone; ProgramError: a value cannot be loaded here."""
    if isinstance(cell, ChunkRef):
        cell = tiers.read_chunk(cell)  # which is still encoded if it was bytes that were spilled
    values: list[Any] = codec.decode(cell) if isinstance(cell, bytes) else cell
    return values


class Outlet:
    """What one lease writes. `send(parcels)` returns a number, `wait(number)` until that has its answer.

    `answered(number)` tells without waiting. `limit` is how many bytes are gathered at most.
    """

    def __init__(
        self,
        writer: SegmentWriter | None,
        limit: int,
        send: Callable[[list[Parcel]], int],
        wait: Callable[[int], None],
        answered: Callable[[int], bool],
    ) -> None:
        self._writer = writer
        self._limit = limit
        self._send = send
        self._wait = wait
        self._answered = answered
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._gathered: dict[tuple[str, int, int], list[Any]] = {}
        self._nbytes = 0
        self._last = 0.0
        self._under_way = 0
        self._error: WeftError | None = None

    def write(self, edge: str, index: int, part: int, value: Any) -> None:
        """Take a value; waits while the backend has no room for what was gathered before."""
        with self._lock:
            self._gathered.setdefault((edge, index, part), []).append(value)
            self._nbytes += sizeof(value)
            due = self._nbytes >= self._limit or perf_counter() - self._last >= GATHER_S
        if due:
            self.flush()

    def flush(self) -> None:
        """Send what was gathered, after the message before has its answer."""
        with self._flushing:
            self._flush()

    def nudge(self) -> None:
        """Send what was gathered if that is possible without waiting; what goes wrong, the next `flush` raises."""
        if self._nbytes and self._flushing.acquire(blocking=False):
            try:
                if self._answered(self._under_way):
                    self._flush()
            except WeftError as error:
                self._error = self._error or error
            finally:
                self._flushing.release()

    def _flush(self) -> None:
        if self._error is not None:
            raise self._error
        self._wait(self._under_way)
        with self._lock:
            gathered, self._gathered = self._gathered, {}
            self._nbytes = 0
        if gathered:
            self._under_way = self._send([(*to, *packed(values, self._writer)) for to, values in gathered.items()])
        self._last = perf_counter()
