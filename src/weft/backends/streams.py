"""Streams on one node: the output of a running task, read by others while it runs, through a bounded window.

Theory of operation. A stream leads from one source task through one partition of an edge to its readers: one task, or
several where the edge copies. It is a queue of *blocks*, each a batch of values that travels and is freed as one.

The window of an edge is shared out evenly among its source tasks. A writer with a full share waits until a reader frees
part of it; an empty stream always takes a block, however large. Memory for the share is claimed from the quota at the
first write of a source task, and returned when the task has ended and its blocks are read, so that streams within their
windows never touch a disk.

Where waiting could close a circle (`engine.extensions.stream_cycles`) a writer never waits. Blocks over its share
become ordinary chunks of the store, subject to spill; they leave the store once they are read.

Nothing here blocks: a waiting caller passes a `wake`, which is called once when a retry may succeed. One lock guards
all state; bytes are moved and files removed without it.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from weft.model.chunks import ChunkRef
from weft.model.errors import RunCancelledError
from weft.worker.streaming import BLOCK

if TYPE_CHECKING:
    from weft.engine.ports import Job
    from weft.graph.routing import Piece
    from weft.graph.task_spec import EdgeSpec
    from weft.store.api import ChunkPin, ChunkStore, Column, MemoryGrant
    from weft.worker.code import TaskCode
    from weft.worker.lease import WorkerLease

Wake = Callable[[], None]


class StreamBlock:
    """Values in transit: `cell` is a list of them, its encoded bytes or a reference to these.

    A block over its writer's share lies in cell `at` of `column` instead; `pin` holds it there while another process
    reads it.
    """

    __slots__ = ("at", "cell", "column", "nbytes", "pin")

    def __init__(self, cell: Any, nbytes: int) -> None:
        self.cell = cell
        self.nbytes = nbytes
        self.column: Column | None = None
        self.at = -1
        self.pin: ChunkPin | None = None


END: Final = StreamBlock([], 0)
"""The answer to a reader after the last block."""


class _Source:
    """A source task on one edge, with its share of the window: `used` of `edge.share` bytes."""

    __slots__ = ("edge", "ended", "index", "reservation", "streams", "used", "wakes")

    def __init__(self, edge: _Edge, index: int) -> None:
        self.edge = edge
        self.index = index
        self.reservation: MemoryGrant | None = None
        self.used = 0
        self.ended = False
        self.streams: dict[int, _Stream] = {}
        self.wakes: set[Wake] = set()

    def give_back(self) -> None:
        """Return the memory of a share that takes no more writes."""
        if self.reservation is not None:
            self.reservation.shrink(self.used)


class _Stream:
    """The blocks of one source task for one partition. `first` counts the removed blocks.

    `readers` maps each reading task to the number of its next block, and whether it still uses the one before.
    """

    __slots__ = ("blocks", "column", "first", "readers", "wakes")

    def __init__(self, readers: Iterable[int]) -> None:
        self.blocks: deque[StreamBlock] = deque()
        self.first = 0
        self.readers: dict[int, list[int]] = {reader: [0, 0] for reader in readers}
        self.column: Column | None = None
        self.wakes: set[Wake] = set()


class _Edge:
    """The constants of an edge while its region runs."""

    def __init__(self, spec: EdgeSpec, window: int) -> None:
        router = spec.router
        assert router is not None
        self.id = spec.id
        self.destination = spec.destination
        self.depth = spec.depth
        self.waits = spec.waits
        self.share = max(1, window // max(1, spec.n_source))
        self.pieces: list[tuple[Piece, ...]] = [tuple(router.inputs(reader)) for reader in range(spec.n_destination)]

    def readers(self, source: int, part: int) -> list[int]:
        """Return the tasks that read a partition of a source task."""
        return [
            reader
            for reader, pieces in enumerate(self.pieces)
            if any(lo <= source < hi and first <= part < last for lo, hi, first, last in pieces)
        ]


class _Leftover:
    """Actions for the time after the lock is released."""

    __slots__ = ("cells", "columns", "files", "pins", "wakes")

    def __init__(self) -> None:
        self.cells: list[tuple[Column, int]] = []
        self.columns: list[Column] = []
        self.files: list[ChunkRef] = []
        self.pins: list[ChunkPin] = []
        self.wakes: list[Wake] = []


class Streams:
    """All streams of a job. `window` is the bytes an edge may hold before its writers wait, for readers not `gone`."""

    def __init__(self, job: Job, store: ChunkStore, window: int, gone: Callable[[], Collection[str]]) -> None:
        self._job = job
        self._gone = gone
        self._store = store
        self._window = window
        self._lock = threading.Lock()
        self._specs: dict[str, EdgeSpec] = {}
        self._edges: dict[str, _Edge] = {}
        self._sources: dict[tuple[str, int], _Source] = {}
        self._ended: set[tuple[str, int]] = set()
        self._numbers = itertools.count(1)

    def know(self, edge: EdgeSpec) -> None:
        """Register an edge before its first write or read. Of two records the later one counts, if it is settled."""
        with self._lock:
            if edge.router is not None or edge.id not in self._specs:
                self._specs[edge.id] = edge

    # -------------------------------------------------------------------------------------------------- writers

    def put(self, edge: str, index: int, part: int, cell: Any, nbytes: int, lease: WorkerLease) -> None:
        """Append a block; call `has_room` before the next. A small list may be joined to the block before.

        RunCancelledError: the writer was stopped. DiskFullError: no room for a spill.
        """
        leftover = _Leftover()
        if type(cell) is ChunkRef:
            self._store.retain([cell])
        over: StreamBlock | None = None
        source: _Source | None = None
        stream: _Stream | None = None
        fresh = False
        with self._lock:
            if not lease.stop:
                source = self._source(edge, index)
                stream = self._stream(source, part)
                fresh = source.reservation is None
            if source is None or stream is None or not stream.readers:
                if type(cell) is ChunkRef:
                    leftover.files.append(cell)
            else:
                block = self._append(stream, cell, nbytes)
                source.used += nbytes
                if not source.edge.waits and source.used > source.edge.share and len(stream.blocks) > 1:
                    over = block if type(block.cell) is not list or block.nbytes >= BLOCK else None
                leftover.wakes.extend(stream.wakes)
                stream.wakes.clear()
        self._clear(leftover)
        if source is None or stream is None:
            raise RunCancelledError(f"a task that writes to {edge} was stopped")
        if fresh:
            self._claim(source)
        if over is not None:
            self._spill(source, stream, over)

    @staticmethod
    def _append(stream: _Stream, cell: Any, nbytes: int) -> StreamBlock:
        """Extend the last block, if no reader took it and both are small lists, else add a block (lock held)."""
        blocks = stream.blocks
        if blocks and type(cell) is list:
            last = blocks[-1]
            untaken = all(at < stream.first + len(blocks) for at, _ in stream.readers.values())
            if untaken and type(last.cell) is list and last.nbytes + nbytes <= BLOCK:
                last.cell.extend(cell)
                last.nbytes += nbytes
                return last
        block = StreamBlock(cell, nbytes)
        blocks.append(block)
        return block

    def _claim(self, source: _Source) -> None:
        edge = source.edge
        reservation = self._store.memory.claim(f"{edge.id} of task {source.index}", edge.share)
        with self._lock:
            gone = self._sources.get((edge.id, source.index)) is not source
            source.reservation = reservation
        if gone:
            reservation.release()

    def _spill(self, source: _Source, stream: _Stream, block: StreamBlock) -> None:
        """Make a block a chunk of the store, unless a reader has taken it meanwhile."""
        column = stream.column
        if column is None:
            number = next(self._numbers)
            column = stream.column = self._store.column((self._job.id, f"{source.edge.id}#{number}"), 0)
            depth = source.edge.depth
            column.foresee = lambda at: at / (at + 1) - depth  # its reader runs, and takes them in order
        cell, at = block.cell, len(column)
        column.grow()
        self._store.put_range(column, at, [cell])
        leftover = _Leftover()
        with self._lock:
            place = next((i for i, other in enumerate(stream.blocks) if other is block), -1)
            taken = place < 0 or any(next_ > stream.first + place for next_, _ in stream.readers.values())
            if self._sources.get((source.edge.id, source.index)) is not source:
                leftover.columns.append(column)
            elif taken:
                leftover.cells.append((column, at))
            else:
                block.cell, block.column, block.at = None, column, at
                source.used -= block.nbytes
                if type(cell) is ChunkRef:
                    leftover.files.append(cell)  # the store holds it now
        self._clear(leftover)

    def has_room(self, edge: str, index: int, part: int, wake: Wake) -> bool:
        """Whether a writer may continue; if not, `wake` is called when a retry may succeed."""
        with self._lock:
            source = self._sources.get((edge, index))
            if source is None or not source.edge.waits or source.used < source.edge.share:
                return True
            stream = source.streams.get(part)
            if stream is None or not stream.blocks or source.edge.destination in self._gone():
                return True
            source.wakes.add(wake)
            return False

    def end(self, edges: Iterable[str], index: int, lease: WorkerLease) -> None:
        """End the output of a source task to these edges; no effect if the task was stopped."""
        leftover = _Leftover()
        with self._lock:
            for edge in edges if not lease.stop else ():
                source = self._source(edge, index)
                source.ended = True
                source.give_back()
                for stream in source.streams.values():
                    leftover.wakes.extend(stream.wakes)
                    stream.wakes.clear()
        self._clear(leftover)

    # -------------------------------------------------------------------------------------------------- readers

    def take(self, edge: str, index: int, part: int, reader: int, wake: Wake) -> StreamBlock | None:
        """Return the next block for a reader, which has finished the one before; `END` after the last.

        None if there is none yet: `wake` is then called when there may be.
        """
        leftover = _Leftover()
        found: StreamBlock | None = None
        with self._lock:
            source = self._source(edge, index)
            stream = self._stream(source, part)
            place = stream.readers.setdefault(reader, [stream.first, 0])
            if place[1]:
                place[1] = 0
                self._drop_read(source, stream, leftover)
            at = place[0] - stream.first
            if at < len(stream.blocks):
                place[0] += 1
                place[1] = 1
                found = stream.blocks[at]
            elif source.ended:
                found = END
            else:
                stream.wakes.add(wake)
        self._clear(leftover)
        return found

    def _drop_read(self, source: _Source, stream: _Stream, leftover: _Leftover) -> None:
        """Free the blocks that all readers have finished (lock held)."""
        done = min((at - busy for at, busy in stream.readers.values()), default=stream.first + len(stream.blocks))
        while stream.first < done:
            self._free(source, stream.blocks.popleft(), leftover)
            stream.first += 1
        leftover.wakes.extend(source.wakes)
        source.wakes.clear()

    @staticmethod
    def _free(source: _Source, block: StreamBlock, leftover: _Leftover) -> None:
        if block.pin is not None:
            leftover.pins.append(block.pin)
        if block.column is not None:
            leftover.cells.append((block.column, block.at))
            return
        if type(block.cell) is ChunkRef:
            leftover.files.append(block.cell)
        source.used -= block.nbytes
        if source.ended:
            source.give_back()

    # ------------------------------------------------------------------------------------------------ tasks end

    def joined(self, code: TaskCode, lo: int, hi: int) -> None:
        """Register tasks of a vertex that are about to run, maybe again."""
        with self._lock:
            for edge, sources in self._inputs(code):
                self._ended.difference_update((edge, reader) for reader in range(lo, hi))
                for source in sources:
                    for part, stream in source.streams.items():
                        for reader in source.edge.readers(source.index, part):
                            if lo <= reader < hi:
                                stream.readers.setdefault(reader, [stream.first, 0])

    def leave(self, code: TaskCode, lo: int, hi: int) -> None:
        """Deregister ended tasks of a vertex, whatever their outcome: they read and write no more."""
        leftover = _Leftover()
        with self._lock:
            for output in code.streams:
                for index in range(lo, hi):
                    written = self._sources.get((output, index))
                    if written is not None:
                        written.give_back()
            for edge, sources in self._inputs(code):
                self._ended.update((edge, reader) for reader in range(lo, hi))
                for source in sources:
                    for stream in source.streams.values():
                        for reader in [reader for reader in stream.readers if lo <= reader < hi]:
                            del stream.readers[reader]
                        self._drop_read(source, stream, leftover)
        self._clear(leftover)

    def _inputs(self, code: TaskCode) -> Iterator[tuple[str, list[_Source]]]:
        """Yield the streamed inputs of a vertex, and the known sources of each (lock held)."""
        for inp in code.inputs:
            if inp.streamed:
                yield inp.edge, [source for key, source in self._sources.items() if key[0] == inp.edge]

    def reset(self, vertices: Collection[str] | None = None) -> Callable[[], None]:
        """Forget the streams of vertices (None: all). Return the slow action that removes their data."""
        leftover = _Leftover()
        with self._lock:
            edges = {*self._edges, *(edge for edge, _ in self._ended)}  # a reader may end before the first write
            if vertices is not None:
                edges &= {spec.id for spec in self._specs.values() if spec.source in vertices}
            for key, source in list(self._sources.items()):
                if key[0] not in edges:
                    continue
                del self._sources[key]
                for stream in source.streams.values():
                    for block in stream.blocks:
                        self._free(source, block, leftover)
                    if stream.column is not None:
                        leftover.columns.append(stream.column)
                    leftover.wakes.extend(stream.wakes)
                leftover.wakes.extend(source.wakes)
                if source.reservation is not None:
                    source.reservation.release()
            self._ended = {key for key in self._ended if key[0] not in edges}
            for edge in edges:
                self._edges.pop(edge, None)
        wakes, leftover.wakes = leftover.wakes, []
        for wake in wakes:
            wake()
        return lambda: self._clear(leftover)

    def wake_all(self) -> None:
        """Wake all waiters after a stop."""
        leftover = _Leftover()
        with self._lock:
            for source in self._sources.values():
                for waiting in (source.wakes, *(stream.wakes for stream in source.streams.values())):
                    leftover.wakes.extend(waiting)
                    waiting.clear()
        self._clear(leftover)

    # ------------------------------------------------------------------------------------------------- the rest

    def _source(self, edge: str, index: int) -> _Source:
        source = self._sources.get((edge, index))
        if source is None:
            row = self._edges.get(edge)
            if row is None:
                row = self._edges[edge] = _Edge(self._specs[edge], self._window)
            source = self._sources[edge, index] = _Source(row, index)
        return source

    def _stream(self, source: _Source, part: int) -> _Stream:
        stream = source.streams.get(part)
        if stream is None:
            edge = source.edge
            readers = [at for at in edge.readers(source.index, part) if (edge.id, at) not in self._ended]
            stream = source.streams[part] = _Stream(readers)
        return stream

    def _clear(self, leftover: _Leftover) -> None:
        for pin in leftover.pins:
            pin.release()
        for column, at in leftover.cells:
            self._store.free_range(column, at, at + 1)
        for column in leftover.columns:
            self._store.drop(column.key)
        if leftover.files:
            self._store.release(leftover.files)
        for wake in leftover.wakes:
            wake()
