"""Streams on one node: what a running task reads of another that still runs, through a bounded window.

Theory of operation. A stream leads from one source task through one partition of an edge to its readers: one task, or
several where the edge copies. It is a queue of *blocks*, each a batch of values that travels and is freed as one.

The window of an edge is shared out evenly among its source tasks. A writer that finds its share full waits until
something of it was read; a stream that holds nothing always takes a block, however large. Memory for the share is
claimed from the quota when a source task first writes and given back as the task ends and its blocks are read, so
that streams within their windows never touch a disk.

Where waiting could close a circle (`engine.cycles`) a writer never waits. What is over its share becomes an
ordinary chunk of the store, which spills it as it spills others; it leaves the store when it is read.

Nothing here blocks: who has to wait leaves a `wake`, which is called once when it is worth trying again. One lock
guards all of it; bytes are moved and files removed without it.
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
    """Values on their way: `cell` is a list of them, its encoded bytes or a ref to these.

    One that was over its writer's share lies in cell `at` of `column` instead, and `pin` keeps it where it is while
    another process reads it.
    """

    __slots__ = ("at", "cell", "column", "nbytes", "pin")

    def __init__(self, cell: Any, nbytes: int) -> None:
        self.cell = cell
        self.nbytes = nbytes
        self.column: Column | None = None
        self.at = -1
        self.pin: ChunkPin | None = None


END: Final = StreamBlock([], 0)
"""What a reader gets after the last block."""


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
        """Give back the memory of the share that nothing is written to any more."""
        if self.reservation is not None:
            self.reservation.shrink(self.used)


class _Stream:
    """The blocks of one source task for one partition. `first` counts those that are gone.

    `readers` maps each reading task to the number of its next block, and whether it is still busy with the one before.
    """

    __slots__ = ("blocks", "column", "first", "readers", "wakes")

    def __init__(self, readers: Iterable[int]) -> None:
        self.blocks: deque[StreamBlock] = deque()
        self.first = 0
        self.readers: dict[int, list[int]] = {reader: [0, 0] for reader in readers}
        self.column: Column | None = None
        self.wakes: set[Wake] = set()


class _Edge:
    """What does not change about an edge while its region runs."""

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
    """What is to be done once the lock is given back."""

    __slots__ = ("cells", "columns", "files", "pins", "wakes")

    def __init__(self) -> None:
        self.cells: list[tuple[Column, int]] = []
        self.columns: list[Column] = []
        self.files: list[ChunkRef] = []
        self.pins: list[ChunkPin] = []
        self.wakes: list[Wake] = []


class Streams:
    """All streams of a job. `window` is how many bytes an edge may hold before its writers wait."""

    def __init__(self, job: Job, store: ChunkStore, window: int) -> None:
        self._job = job
        self._store = store
        self._window = window
        self._lock = threading.Lock()
        self._specs: dict[str, EdgeSpec] = {}
        self._edges: dict[str, _Edge] = {}
        self._sources: dict[tuple[str, int], _Source] = {}
        self._gone: set[tuple[str, int]] = set()
        self._numbers = itertools.count(1)

    def know(self, edge: EdgeSpec) -> None:
        """An edge is about to be written to or read; of two records of it the later one counts, if it is settled."""
        with self._lock:
            if edge.router is not None or edge.id not in self._specs:
                self._specs[edge.id] = edge

    # -------------------------------------------------------------------------------------------------- writers

    def put(self, edge: str, index: int, part: int, cell: Any, nbytes: int, lease: WorkerLease) -> None:
        """Append a block; ask `has_room` before the next. A small list may be joined to the block before.

        RunCancelledError: the writer was told to stop. DiskFullError: what has to be spilled finds no room.
        """
        left = _Leftover()
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
                    left.files.append(cell)
            else:
                block = self._append(stream, cell, nbytes)
                source.used += nbytes
                if not source.edge.waits and source.used > source.edge.share and len(stream.blocks) > 1:
                    over = block if type(block.cell) is not list or block.nbytes >= BLOCK else None
                left.wakes.extend(stream.wakes)
                stream.wakes.clear()
        self._clear(left)
        if source is None or stream is None:
            raise RunCancelledError(f"a task that writes to {edge} was told to stop")
        if fresh:
            self._claim(source)
        if over is not None:
            self._spill(source, stream, over)

    @staticmethod
    def _append(stream: _Stream, cell: Any, nbytes: int) -> StreamBlock:
        """Add to the last block, if nobody has taken it and both are small lists, else a block (lock held)."""
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
        """Make a block a chunk of the store, unless somebody has begun to read it meanwhile."""
        column = stream.column
        if column is None:
            number = next(self._numbers)
            column = stream.column = self._store.column((self._job.id, f"{source.edge.id}#{number}"), 0)
            depth = source.edge.depth
            column.foresee = lambda at: at / (at + 1) - depth  # its reader runs, and takes them in order
        cell, at = block.cell, len(column)
        column.grow()
        self._store.put_range(column, at, [cell])
        left = _Leftover()
        with self._lock:
            place = next((i for i, other in enumerate(stream.blocks) if other is block), -1)
            taken = place < 0 or any(next_ > stream.first + place for next_, _ in stream.readers.values())
            if self._sources.get((source.edge.id, source.index)) is not source:
                left.columns.append(column)
            elif taken:
                left.cells.append((column, at))
            else:
                block.cell, block.column, block.at = None, column, at
                source.used -= block.nbytes
                if type(cell) is ChunkRef:
                    left.files.append(cell)  # the store holds it now
        self._clear(left)

    def has_room(self, edge: str, index: int, part: int, wake: Wake) -> bool:
        """Whether a writer may go on; if not, `wake` is called when it is worth asking again."""
        with self._lock:
            source = self._sources.get((edge, index))
            if source is None or not source.edge.waits or source.used < source.edge.share:
                return True
            stream = source.streams.get(part)
            if stream is None or not stream.blocks or self._job.inspector.ended(source.edge.destination):
                return True
            source.wakes.add(wake)
            return False

    def end(self, edges: Iterable[str], index: int, lease: WorkerLease) -> None:
        """A source task writes nothing more to these edges; of no account if it was told to stop."""
        left = _Leftover()
        with self._lock:
            for edge in edges if not lease.stop else ():
                source = self._source(edge, index)
                source.ended = True
                source.give_back()
                for stream in source.streams.values():
                    left.wakes.extend(stream.wakes)
                    stream.wakes.clear()
        self._clear(left)

    # -------------------------------------------------------------------------------------------------- readers

    def take(self, edge: str, index: int, part: int, reader: int, wake: Wake) -> StreamBlock | None:
        """Return the next block for a reader, which is done with the one before; `END` after the last.

        None if there is nothing yet: `wake` is then called when there may be.
        """
        left = _Leftover()
        found: StreamBlock | None = None
        with self._lock:
            source = self._source(edge, index)
            stream = self._stream(source, part)
            place = stream.readers.setdefault(reader, [stream.first, 0])
            if place[1]:
                place[1] = 0
                self._drop_read(source, stream, left)
            at = place[0] - stream.first
            if at < len(stream.blocks):
                place[0] += 1
                place[1] = 1
                found = stream.blocks[at]
            elif source.ended:
                found = END
            else:
                stream.wakes.add(wake)
        self._clear(left)
        return found

    def _drop_read(self, source: _Source, stream: _Stream, left: _Leftover) -> None:
        """Let go of the blocks that every reader is done with (lock held)."""
        done = min((at - busy for at, busy in stream.readers.values()), default=stream.first + len(stream.blocks))
        while stream.first < done:
            self._let_go(source, stream.blocks.popleft(), left)
            stream.first += 1
        left.wakes.extend(source.wakes)
        source.wakes.clear()

    @staticmethod
    def _let_go(source: _Source, block: StreamBlock, left: _Leftover) -> None:
        if block.pin is not None:
            left.pins.append(block.pin)
        if block.column is not None:
            left.cells.append((block.column, block.at))
            return
        if type(block.cell) is ChunkRef:
            left.files.append(block.cell)
        source.used -= block.nbytes
        if source.ended:
            source.give_back()

    # ------------------------------------------------------------------------------------------------ tasks end

    def joined(self, code: TaskCode, lo: int, hi: int) -> None:
        """Tasks of a vertex are about to run, maybe again."""
        with self._lock:
            for edge, sources in self._inputs(code):
                self._gone.difference_update((edge, reader) for reader in range(lo, hi))
                for source in sources:
                    for part, stream in source.streams.items():
                        for reader in source.edge.readers(source.index, part):
                            if lo <= reader < hi:
                                stream.readers.setdefault(reader, [stream.first, 0])

    def left(self, code: TaskCode, lo: int, hi: int) -> None:
        """Tasks of a vertex are over, whatever came of them: they read and write nothing more."""
        left = _Leftover()
        with self._lock:
            for output in code.streams:
                for index in range(lo, hi):
                    written = self._sources.get((output, index))
                    if written is not None:
                        written.give_back()
            for edge, sources in self._inputs(code):
                self._gone.update((edge, reader) for reader in range(lo, hi))
                for source in sources:
                    for stream in source.streams.values():
                        for reader in [reader for reader in stream.readers if lo <= reader < hi]:
                            del stream.readers[reader]
                        self._drop_read(source, stream, left)
        self._clear(left)

    def _inputs(self, code: TaskCode) -> Iterator[tuple[str, list[_Source]]]:
        """Yield the streamed inputs of a vertex, and the sources of each that are known (lock held)."""
        for inp in code.inputs:
            if inp.streamed:
                yield inp.edge, [source for key, source in self._sources.items() if key[0] == inp.edge]

    def reset(self, vertices: Collection[str] | None = None) -> Callable[[], None]:
        """Forget what vertices have streamed (None: all); return what removes it, which takes a while."""
        left = _Leftover()
        with self._lock:
            edges = {*self._edges, *(edge for edge, _ in self._gone)}  # a reader may be gone before anybody wrote
            if vertices is not None:
                edges &= {spec.id for spec in self._specs.values() if spec.source in vertices}
            for key, source in list(self._sources.items()):
                if key[0] not in edges:
                    continue
                del self._sources[key]
                for stream in source.streams.values():
                    for block in stream.blocks:
                        self._let_go(source, block, left)
                    if stream.column is not None:
                        left.columns.append(stream.column)
                    left.wakes.extend(stream.wakes)
                left.wakes.extend(source.wakes)
                if source.reservation is not None:
                    source.reservation.release()
            self._gone = {key for key in self._gone if key[0] not in edges}
            for edge in edges:
                self._edges.pop(edge, None)
        wakes, left.wakes = left.wakes, []
        for wake in wakes:
            wake()
        return lambda: self._clear(left)

    def wake_all(self) -> None:
        """Have everybody who waits try again: somebody was told to stop."""
        left = _Leftover()
        with self._lock:
            for source in self._sources.values():
                for waiting in (source.wakes, *(stream.wakes for stream in source.streams.values())):
                    left.wakes.extend(waiting)
                    waiting.clear()
        self._clear(left)

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
            readers = [at for at in edge.readers(source.index, part) if (edge.id, at) not in self._gone]
            stream = source.streams[part] = _Stream(readers)
        return stream

    def _clear(self, left: _Leftover) -> None:
        for pin in left.pins:
            pin.release()
        for column, at in left.cells:
            self._store.free_range(column, at, at + 1)
        for column in left.columns:
            self._store.drop(column.key)
        if left.files:
            self._store.release(left.files)
        for wake in left.wakes:
            wake()
