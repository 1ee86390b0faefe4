"""Leases, task code and configuration in the messages to worker processes, and the page that both sides map."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graph.lease import Cone
    from weft.graph.task_spec import JobVerdict
    from weft.model.chunks import ChunkRef
    from weft.store.handshake import Credentials
    from weft.worker.code import TaskCode

PAGE_BYTES: Final = 1 << 16
"""The bytes that both sides map: `SharedPage` at the start, then the traces of `weft.worker.traces`."""


class SharedPage(ctypes.Structure):
    """The shared view of the running lease: the current unit, the end, the stop flag, and the milliseconds that a stop
    of it may take (0: the grace period); a count of the watch thread; and whether the stop is that of a service whose
    last consumer has ended.

    The protocol is that of `WorkerLease`: the worker writes `pos` before it reads `hi`, the other side lowers `hi`
    before it reads `pos`. Fields are aligned 8 bytes, so that each is written in one go.
    """

    _fields_ = (
        ("pos", ctypes.c_int64),
        ("hi", ctypes.c_int64),
        ("stop", ctypes.c_int64),
        ("beats", ctypes.c_int64),
        ("patience", ctypes.c_int64),
        ("drains", ctypes.c_int64),
    )
    pos: int
    hi: int
    stop: int
    beats: int
    patience: int
    drains: int


class SharedPageLease(SharedPage):
    """A lease in a worker: as `WorkerLease`, with `pos`, `hi` and `stop` in the shared page."""

    id: int
    root: TaskCode
    lo: int
    cone: Cone | None
    codes: tuple[TaskCode, ...]
    attempt: int
    nbytes: int
    resources: Any
    host: Any
    gate = None
    worker: int
    logs: str
    callbacks: list[Callable[[], None]] | None

    @property
    def at(self) -> int:
        """The current unit."""
        return self.pos


class WorkerConfig(NamedTuple):
    """The configuration of a worker, sent at its fork. With the `credentials` of a cluster it reads at other nodes.

    `memory` is the number of bytes that its tasks may take, 0 for no limit.
    """

    number: int
    prefix: str
    shm: str
    spill: str
    target_s: float
    stream_bytes: int
    credentials: Credentials | None = None
    memory: int = 0


class Assignment(NamedTuple):
    """A lease in a message.

    `codes` are numbers of task codes, the root's last. `items` are the items of each that are sent lease by lease:
    (first index, list or bytes or ref). `cells` is the pickle of (column, its length, first index or all indexes,
    values, whether to keep them, the kind of the rows that are not sent) for each part of a column. `tight`: the worker
    must not keep freed memory for later tasks.
    """

    token: int
    lo: int
    codes: tuple[int, ...]
    cone: int
    attempt: int
    nbytes: int
    resources: Any
    items: tuple[tuple[int, int, bytes | ChunkRef], ...]
    cells: bytes
    tight: bool
    logs: str = ""


class InputRow(NamedTuple):
    """An `InputCode` in a message; `column` is a number."""

    edge: str
    source: str
    router: Any
    column: int
    lenient: bool
    live: bool
    last: bool
    streamed: bool


class CodeRow(NamedTuple):
    """A `TaskCode` in a message; without `items` if they are sent lease by lease."""

    vertex: str
    n: int
    target: Any
    style: str
    params: Any
    items: Any
    inputs: tuple[InputRow, ...]
    outputs: dict[str, int]
    streams: frozenset[str]
    expands: bool
    resources: Any
    only: int
    measured: tuple[str, ...]
    counted: bool
    kept: bool
    parts: int
    verdict: JobVerdict | None = None
