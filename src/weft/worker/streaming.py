"""The stream writer of a worker process: values gather into blocks, and one message of blocks is in flight at a time.

The backend acknowledges a message when the streams have room again, which is the only back-pressure: a writer holds at
most the gathered values, one message in flight, and the window. A slow writer sends each value at once; a fast writer
gathers values while a message is in flight, so that small values share messages.
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
"""Small values gather up to this many bytes."""
GATHER_S: Final = 0.005
"""Seconds that a value waits for further values."""

Parcel = tuple[str, int, int, bytes | ChunkRef, int]
"""A block in transit: (edge, source task, partition, encoded list of values or a reference to it, bytes)."""


def packed(values: list[Any], writer: SegmentWriter | None) -> tuple[bytes | ChunkRef, int]:
    """Return values as a block for transit, and its bytes. ProgramError: a value cannot be pickled. DiskFullError."""
    encoded = codec.encode(values)
    if encoded.nbytes < BLOCK or writer is None:
        return codec.to_bytes(encoded), encoded.nbytes
    return writer.write([encoded])[0], encoded.nbytes


def unpacked(cell: Any) -> list[Any]:
    """Return the values of a block. NotFoundError: its file is gone. ProgramError: a value cannot be loaded here."""
    if isinstance(cell, ChunkRef):
        cell = tiers.read_chunk(cell)  # still encoded if bytes were spilled
    values: list[Any] = codec.decode(cell) if isinstance(cell, bytes) else cell
    return values


class StreamWriter:
    """The streams that one lease writes. `send(parcels)` returns a number, `wait(number)` blocks until its
    acknowledgement.

    `answered(number)` tells without blocking. `limit` is the largest number of gathered bytes.
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
        """Write a value; blocks while the backend has no room for earlier values."""
        with self._lock:
            self._gathered.setdefault((edge, index, part), []).append(value)
            self._nbytes += sizeof(value)
            due = self._nbytes >= self._limit or perf_counter() - self._last >= GATHER_S
        if due:
            self.flush()

    def flush(self) -> None:
        """Send the gathered values after the acknowledgement of the last message."""
        with self._flushing:
            self._flush()

    def nudge(self) -> None:
        """Send the gathered values if this is possible without blocking; the next `flush` raises any error."""
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
