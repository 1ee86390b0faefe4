"""Workers, leases and jobs of the processes backend, and the packing of leases and jobs for worker processes."""

from __future__ import annotations

import mmap
import os
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import is_
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from weft.backends.local import RESERVE_FROM, bytes_needed
from weft.backends.local_jobs import LocalJob
from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import CapacityError, InternalError, NotFoundError, ProgramError
from weft.store import codec
from weft.store.api import ABSENT, FIXED, sizeof
from weft.store.row_index import DENSE
from weft.worker.channel import FrameDecoder, FrameEncoder, dumps
from weft.worker.code import PIECES
from weft.worker.lease import WorkerLease
from weft.worker.messages import PAGE_BYTES, Assignment, CodeRow, InputRow, SharedPage
from weft.worker.remote_store import LARGE
from weft.worker.streaming import packed
from weft.worker.traces import CrashTrace, read_trace

if TYPE_CHECKING:
    from weft.backends.nursery import Nursery
    from weft.engine.ports import Job, Shell
    from weft.graph.lease import Cone
    from weft.graph.routing import Router
    from weft.model.program import Program
    from weft.store.api import ChunkPin, ChunkStore, Column, MemoryGrant
    from weft.store.row_index import RowIndex
    from weft.store.segments import SegmentWriter
    from weft.worker.code import InputCode, TaskCode
    from weft.worker.lease import LeaseResult
    from weft.worker.messages import WorkerConfig

NOT_SENT: Final = object()
"""A cell that a worker lacks."""


Cells = tuple[int, int, int | list[int], list[Any], bool, int]
"""Values in a message: (column, its length, first index or all indexes, values, whether the worker keeps them, the kind
of the rows that are not sent: see `RowIndex`)."""


def check_picklable(vertex: str, code: object, receiver: str, parts: str) -> None:
    """Raise ProgramError if the code of a vertex cannot be pickled; it names the vertex, and `parts` of the code."""
    try:
        codec.encode(code)
    except ProgramError as error:
        cause = error.__cause__ or error
        raise ProgramError(
            f"the program of {vertex!r} cannot be sent to {receiver}: {type(cause).__name__}: {cause}",
            hint=f"{parts} must be picklable; or use the threads backend.",
        ) from error


class NeedsHelperError(Exception):
    """The action takes too long for its caller: the helper pool has to do it."""


class WorkerConnection:
    """One worker process as seen from the session. `lock` guards the page, `current` and the outbox.

    `paths` is the part of its `sys.path` that the session sent, `serializers` the version of its registered
    serializers, `modules` the generation of the user's modules. `born_at` is the time of its first message. `reason` is
    why the session ends it; `blamed`: its task is the cause.
    """

    def __init__(
        self, number: int, sock: socket.socket, page: mmap.mmap, frames: FrameEncoder, paths: Sequence[str]
    ) -> None:
        self.number = number
        self.sock = sock
        self.pages = page
        self.page = SharedPage.from_buffer(page)
        self.frames = frames
        self.paths = paths
        self.serializers = 0
        self.modules = 0
        self.inbox = FrameDecoder()
        self.outbox: deque[bytes | memoryview] = deque()
        self.lock = threading.Lock()
        self.current: RemoteLease | None = None
        self.dead = False
        self.born_at: float | None = None
        self.reason = ""
        self.blamed = False
        self.codes: set[int] = set()
        self.cones: set[int] = set()
        self.sent: dict[int, list[Any]] = {}
        self.kinds: dict[int, int] = {}
        """The kind of the rows of each column: of sparse rows, the worker has only those that its tasks read."""
        self.drops: list[tuple[int, int, int]] = []
        self.forgets: list[tuple[list[int], list[int], list[int]]] = []
        """The numbers of codes, columns and cones of ended jobs, which the worker drops with its next lease."""

    @classmethod
    def start(cls, nursery: Nursery, config: WorkerConfig) -> WorkerConnection:
        """Start a worker process with a socket pair and a page."""
        ours, theirs = socket.socketpair()
        # Not a file in shared memory: touching a page of a full one would end this process with a bus error.
        page_fd = os.memfd_create("weft-page")
        try:
            os.ftruncate(page_fd, PAGE_BYTES)
            page = mmap.mmap(page_fd, PAGE_BYTES)
            ours.setblocking(False)
            nursery.start(config, theirs.fileno(), page_fd)
            return cls(config.number, ours, page, FrameEncoder(config.shm, config.prefix), nursery.paths)
        finally:
            os.close(page_fd)
            theirs.close()

    def send(self, data: bytes) -> bool:
        """Send a frame if the socket takes it now, else queue it (lock held). Return False if bytes stay queued."""
        if self.outbox:
            self.outbox.append(data)
            return False
        self.outbox.append(data)
        return self.flush()

    def flush(self) -> bool:
        """Flush the queued frames (lock held). Return False if bytes stay queued."""
        outbox = self.outbox
        while outbox:
            try:
                sent = self.sock.send(outbox[0])
            except BlockingIOError:
                return False
            except OSError:  # it is dead; the report of its loss follows
                outbox.clear()
                return True
            if sent < len(outbox[0]):
                outbox[0] = memoryview(outbox[0])[sent:]
            else:
                outbox.popleft()
        return True

    def leave(self) -> None:
        """End the current lease, if any (lock held): none of its units can be given back from now on."""
        lease, self.current = self.current, None
        if lease is not None:
            lease.pos = lease.hi

    def trace(self) -> CrashTrace:
        """Return where the worker has ended, or hangs, in its lease."""
        lease = self.current
        return CrashTrace() if lease is None else read_trace(self.pages, lease.token)

    def close(self) -> None:
        """Release the socket and the page."""
        self.sock.close()
        self.page = SharedPage()
        with suppress(BufferError):
            self.pages.close()


class RemoteLease(WorkerLease):
    """A lease at a worker process, with the resources held here until its report."""

    __slots__ = ("conn", "error", "files", "local", "needs", "pins", "reservation", "token")

    conn: WorkerConnection
    local: ProcessJob

    def prepare(self, local: ProcessJob, conn: WorkerConnection, token: int) -> None:
        """Assign the lease to a worker."""
        self.local = local
        self.conn = conn
        self.token = token
        self.pins: list[ChunkPin] = []
        self.files: list[ChunkRef] = []
        nbytes, budget = bytes_needed(local.store, self), local.store.memory.budget
        # A task with room for one copy of its output alone still runs.
        self.needs = nbytes if nbytes <= budget else max(budget, nbytes // 2)
        if nbytes < RESERVE_FROM:
            self.needs = 0
        self.reservation: MemoryGrant | None = None
        self.error: Exception | None = None

    def shrink(self) -> int | None:
        """See `WorkerLease.shrink`. The worker process reads the new end from a shared page before each unit.

        It may have begun a unit behind the new end just before: the end then lies behind that unit.
        """
        conn = self.conn
        with conn.lock:
            if conn.current is not self:
                return super().shrink()
            page = conn.page
            middle = (page.pos + 1 + page.hi + 1) // 2
            if middle >= page.hi:
                return None
            page.hi = middle
            os.sched_yield()  # a position that the worker has just written may still arrive
            self.hi = max(middle, page.pos + 1)
            return self.hi

    @property
    def at(self) -> int:
        """See `WorkerLease.at`."""
        with self.conn.lock:
            return int(self.conn.page.pos) if self.conn.current is self else self.lo

    def raise_stop(self) -> None:
        """Raise the stop flag."""
        self.stop = True
        with self.conn.lock:
            if self.conn.current is self:
                self.conn.page.drains = self.drains
                self.conn.page.stop = 1

    def shared(self, column: Column, indexes: range | list[int], *, slow: bool) -> list[Any]:
        """Return cells in a form that another process can read, pinned until the end of the lease."""
        tracked = column.tracked
        mine = [at for at in indexes if at in tracked] if tracked else ()
        if not mine:
            return _cells(column, indexes)
        self.pins.append(self.local.store.pin(column, mine))
        values = _cells(column, indexes)
        large = []
        for place, (at, cell) in enumerate(zip(indexes, values, strict=True)):
            if at not in tracked:
                continue
            if type(cell) is ChunkRef:
                if cell.tier is Tier.OBJECT:  # the worker may not be able to read it there
                    large.append((place, at))
            elif cell is not ABSENT:
                entry = tracked.get(at)
                if entry is not None and entry.nbytes >= LARGE:
                    large.append((place, at))
        if large:
            if not slow:
                raise NeedsHelperError
            with suppress(NotFoundError):  # freed meanwhile: the worker will report it as missing
                moved = self.local.store.share(column, [at for _, at in large])
                for (place, _), cell in zip(large, moved, strict=True):
                    values[place] = cell
        return values

    def committed(self, vertex: str, edge: str, source: int) -> tuple[str, Any]:
        """Return a committed value that a task reads while its source runs: ("value", it), or "wait" or "end"."""
        code = next(code for code in self.codes if code.vertex == vertex)
        inp = next(inp for inp in code.inputs if inp.edge == edge)
        ended = self.local.job.outcome is not None or inp.source in self.local.ended
        with suppress(ProgramError, CapacityError):
            cell = self.shared(inp.column, range(source, source + 1), slow=True)[0]
            if cell is not ABSENT:
                return "value", cell
        return "end" if ended else "wait", None

    def fetch(self, inp: InputCode, lo: int, hi: int, *, slow: bool) -> None:
        """Have chunks of other nodes fetched that several tasks read as a whole, from sources `lo:hi` of an input.

        The worker reads all others by itself, when its task gets there.
        """
        column, consumers = inp.column, inp.router.consumers
        if inp.mode == PIECES or not column.tracked:
            return
        far = [
            at
            for at, cell in enumerate(column.values[lo:hi], lo)
            if type(cell) is ChunkRef and cell.tier is Tier.PEER and sum(b - a for a, b in consumers(at)) > 1
        ]
        if far:
            if not slow:
                raise NeedsHelperError
            self.local.copy_here(column, far)

    def fit(self, outcome: LeaseResult) -> None:
        """Drop the results of tasks that were revoked from the lease."""
        if outcome.hi > self.hi or (outcome.kind and outcome.hi == self.hi):
            outcome.end_at(self.hi, self.lo)

    def unpin(self) -> None:
        """Unpin the inputs."""
        for pin in self.pins:
            pin.release()
        self.pins.clear()
        self.local.remove(self.files)
        self.files.clear()

    def release(self) -> None:
        """Release all resources of the lease."""
        self.unpin()
        if self.reservation is not None:
            self.reservation.release()
            self.reservation = None


class ProcessJob(LocalJob):
    """A `LocalJob` with a record of the data that its workers received."""

    def __init__(
        self, job: Job, store: ChunkStore, loop: Shell, window: int, numbers: Iterator[int], writer: SegmentWriter
    ) -> None:
        super().__init__(job, store, loop, window)
        self._numbers = numbers
        self._writer = writer
        self._lock = threading.Lock()
        self._shipped: dict[TaskCode, tuple[int, bytes | ChunkRef]] = {}
        self._column_numbers: dict[str, int] = {}
        self.cone_numbers: dict[Cone, int] = {}
        self.files: list[ChunkRef] = []

    def column_number(self, vertex: str) -> int:
        """Return the number of a vertex's column in messages to workers."""
        number = self._column_numbers.get(vertex)
        if number is None:
            number = self._column_numbers.setdefault(vertex, next(self._numbers))
        return number

    def cone_number(self, cone: Cone) -> int:
        """Return the number of a cone in messages to workers."""
        number = self.cone_numbers.get(cone)
        if number is None:
            number = self.cone_numbers.setdefault(cone, next(self._numbers))
        return number

    def numbers(self) -> tuple[list[int], list[int], list[int]]:
        """Return the numbers of all codes, columns and cones that were sent to workers."""
        codes = [number for number, _ in self._shipped.values()]
        return codes, list(self._column_numbers.values()), list(self.cone_numbers.values())

    def shipped(self, codes: Sequence[TaskCode], *, slow: bool) -> list[tuple[int, bytes | ChunkRef]]:
        """Return number and bytes of the code of each vertex, made once.

        Codes that are made at the same time share their bytes, which has much in common. ProgramError: one cannot be
        pickled.
        """
        shipped = self._shipped
        fresh = [code for code in codes if code not in shipped]
        if fresh:
            if not slow and not all(_quick(code.program) for code in fresh):
                raise NeedsHelperError
            with self._lock:
                rows = {next(self._numbers): code for code in fresh if code not in shipped}
                if rows:
                    blob = self._ship_codes(rows)
                    shipped.update({code: (number, blob) for number, code in rows.items()})
        return [shipped[code] for code in codes]

    def _ship_codes(self, codes: dict[int, TaskCode]) -> bytes | ChunkRef:
        try:
            return self.ship({number: tuple(self._row(code)) for number, code in codes.items()}, self.files)
        except ProgramError:
            for code in codes.values():
                row = tuple(self._row(code))
                check_picklable(code.vertex, row, "a worker process", "Its function with its closure, and its params")
            raise

    def _row(self, code: TaskCode) -> CodeRow:
        program = code.program
        return CodeRow(
            code.vertex,
            code.n,
            program.target,
            program.style.value,
            dict(program.params),
            program.items if type(program.items) is range else None,
            tuple(
                InputRow(
                    inp.edge,
                    inp.source,
                    inp.router,
                    self.column_number(inp.source),
                    inp.lenient,
                    inp.live,
                    inp.last,
                    inp.streamed,
                )
                for inp in code.inputs
            ),
            dict(code.outputs),
            code.streams,
            code.expands,
            code.resources,
            code.only,
            code.measured,
            code.counted,
            code.kept,
            code.parts,
            code.verdict,
        )

    def block(self, value: Any) -> tuple[Any, int]:
        """See `LocalJob.block`; the block must be readable by other processes."""
        return packed([value], self._writer)

    def ship(self, value: Any, files: list[ChunkRef]) -> bytes | ChunkRef:
        """Return a value as bytes, or as a reference into a file that is added to `files`."""
        encoded = codec.encode(value)
        if encoded.nbytes < LARGE:
            return codec.to_bytes(encoded)
        ref = self._writer.write([encoded])[0]
        files.append(ref)
        return ref

    def ship_items(self, code: TaskCode, lo: int, hi: int, files: list[ChunkRef], *, slow: bool) -> bytes | ChunkRef:
        """Return the items of tasks `lo:hi`."""
        items = code.program.items
        assert items is not None
        mine = list(items[lo:hi]) if isinstance(items, (list, tuple)) else [items[at] for at in range(lo, hi)]
        kinds = set(map(type, mine))
        if not slow and not kinds <= FIXED.keys() and sum(map(sizeof, mine)) > LARGE:
            raise NeedsHelperError
        try:
            return self.ship(mine, files)
        except ProgramError as whole:
            for at, item in enumerate(mine, lo):
                try:
                    codec.encode(item)
                except ProgramError as error:
                    cause = error.__cause__ or error
                    raise ProgramError(
                        f"item {at} of {code.vertex!r}, of type {type(item).__qualname__}, cannot be sent to a worker "
                        f"process: {type(cause).__name__}: {cause}",
                        hint="Give plain data as items, or use the threads backend.",
                    ) from error
            raise whole from None

    def copy_here(self, column: Column, indexes: list[int]) -> None:
        """Copy chunks of other nodes to this one, for all readers here."""
        raise InternalError("a session of one machine has no chunks of other nodes")

    def close(self) -> None:
        """Drop all values."""
        super().close()
        self.remove(self.files)

    def remove(self, files: list[ChunkRef]) -> None:
        """Remove files written by `ship`."""
        if files:
            self._writer.delete(files)


class LeaseMessage:
    """A lease for its worker, with the codes, cones and values that the worker lacks.

    `marks` are the values that the worker has once the message is sent: the list of those sent of a column, the first
    index or all indexes, and the values. `kinds` are the kinds of rows of the columns that it then knows.

    NeedsHelperError: packing takes long, and the caller may not wait.
    """

    def __init__(self, lease: RemoteLease, *, slow: bool) -> None:
        local, conn = lease.local, lease.conn
        cone = lease.cone
        self.codes: dict[int, bytes | ChunkRef] = {}
        self.cones: dict[int, Cone] = {}
        self.marks: list[tuple[list[Any], int | list[int], list[Any]]] = []
        self.kinds: dict[int, int] = {}
        numbers: list[int] = []
        items: list[tuple[int, int, bytes | ChunkRef]] = []
        cells: list[Cells] = []
        inner = frozenset(cone.members) if cone is not None else frozenset()
        reads: list[tuple[InputCode, int, int]] = []
        shipped = local.shipped(lease.codes, slow=slow)
        for place, (code, (number, blob)) in enumerate(zip(lease.codes, shipped, strict=True)):
            numbers.append(number)
            if number not in conn.codes:
                self.codes[number] = blob
            mult = cone.mult[place] if cone is not None else 1
            lo, hi = lease.lo * mult, lease.hi * mult
            if code.items is not None and type(code.items) is not range:
                items.append((place, lo, local.ship_items(code, lo, hi, lease.files, slow=slow)))
            reads += [(inp, lo, hi) for inp in code.inputs if inp.source not in inner and not inp.live]
        # The worker would drop what another input of the same source has it keep, if that input came later.
        for inp, lo, hi in sorted(reads, key=_unkept) if len(reads) > 1 else reads:
            self._collect(lease, inp, lo, hi, cells, slow=slow)
        payload = _pickled(cells, lease) if cells else b""
        cone_number = 0
        if cone is not None:
            cone_number = local.cone_number(cone)
            if cone_number not in conn.cones:
                self.cones[cone_number] = cone
        self.assignment = Assignment(
            lease.token,
            lease.lo,
            tuple(numbers),
            cone_number,
            lease.attempt,
            lease.nbytes,
            lease.resources,
            tuple(items),
            payload,
            lease.reservation is not None and local.store.memory.outside > 0,
            lease.logs,
        )

    def _collect(
        self,
        lease: RemoteLease,
        inp: InputCode,
        lo: int,
        hi: int,
        cells: list[Cells],
        *,
        slow: bool,
    ) -> None:
        """Add to `cells` the data that tasks `lo:hi` read through one input and the worker lacks."""
        conn = lease.conn
        column = inp.column
        number = lease.local.column_number(inp.source)
        n = len(column)
        sent = conn.sent.get(number)
        index, kind = _index_of(inp)
        if (not _unkept((inp, lo, hi)) or sent is not None) and (sent is None or len(sent) != n):
            sent = conn.sent[number] = [NOT_SENT] * n
        if index is not None and sent is not None:
            # A worker that must have all rows once, because one is missing for example, gets all from then on.
            if kind == conn.kinds.get(number, kind) != DENSE:
                pieces = [piece for dst in range(lo, hi) for piece in inp.router.inputs(dst)]
                wanted = sorted({row for piece in pieces for row, _ in index.pieces(inp.edge, piece)})
                if self._collect_sparse(lease, column, (number, kind), wanted, cells, slow=slow):
                    return
            self.kinds[number] = DENSE
        for a, b in needed(inp.router, lo, hi):
            lease.fetch(inp, a, b, slow=slow)
            values = lease.shared(column, range(a, b), slow=slow)
            if sent is None:
                cells.append((number, n, a, values, False, DENSE))
                continue
            now = column.values[a:b]
            old = sent[a:b]
            if all(map(is_, now, old)):
                continue
            if all(known is NOT_SENT for known in old):
                cells.append((number, n, a, values, True, DENSE))
            else:
                fresh = [at for at in range(b - a) if now[at] is not old[at]]
                cells.append((number, n, [a + at for at in fresh], [values[at] for at in fresh], True, DENSE))
            self.marks.append((sent, a, now))

    def _collect_sparse(
        self,
        lease: RemoteLease,
        column: Column,
        known_as: tuple[int, int],
        wanted: list[int],
        cells: list[Cells],
        *,
        slow: bool,
    ) -> bool:
        """Add those of the `wanted` sparse rows that the worker lacks; False if one is lost meanwhile.

        `known_as` is the number of the column and the kind of its rows.
        """
        number, kind = known_as
        values = lease.shared(column, wanted, slow=slow)
        now = _cells(column, wanted)
        if any(cell is ABSENT for cell in values):
            return False
        sent = lease.conn.sent[number]
        fresh = [place for place, at in enumerate(wanted) if now[place] is not sent[at]]
        if fresh or number not in lease.conn.kinds:
            at = [wanted[place] for place in fresh]
            cells.append((number, len(column), at, [values[place] for place in fresh], True, kind))
            self.marks.append((sent, at, [now[place] for place in fresh]))
            self.kinds[number] = kind
        return True


def _index_of(inp: InputCode) -> tuple[RowIndex | None, int]:
    """Return the index of the rows of an input that reads pieces, and the kind of the rows."""
    index = inp.column.index if inp.mode == PIECES else None
    return index, DENSE if index is None else index.kind(0, len(inp.column))


def _unkept(read: tuple[InputCode, int, int]) -> bool:
    """Return whether the worker drops the values of an input with the lease, unless it keeps their column already."""
    inp = read[0]
    return not inp.router.wide and _index_of(inp)[1] == DENSE


def _cells(column: Column, indexes: range | list[int]) -> list[Any]:
    """Return the cells of a range, or of any rows."""
    values = column.values
    return values[indexes.start : indexes.stop] if type(indexes) is range else [values[at] for at in indexes]


def _quick(program: Program) -> bool:
    """Whether a program is pickled by name, at once."""
    target = program.target
    if program.params:
        return False
    if isinstance(target, str):
        return True
    return isinstance(target, FunctionType) and target.__module__ != "__main__" and "<" not in target.__qualname__


def needed(router: Router, lo: int, hi: int) -> list[tuple[int, int]]:
    """Return the source tasks that destinations `lo:hi` read, as disjoint ranges."""
    if router.wide:
        return [(0, router.n_src)]
    if router.group:
        return [(lo * router.group, min(hi * router.group, router.n_src))]
    spans = sorted((a, b) for dst in range(lo, hi) for a, b, _, _ in router.inputs(dst) if a < b)
    merged: list[tuple[int, int]] = []
    for a, b in spans:
        if merged and a <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return merged


def _pickled(cells: list[Cells], lease: RemoteLease) -> bytes:
    """Return the cells of a lease as bytes. ProgramError: a value, named by its type, cannot be pickled."""
    try:
        return dumps(cells)
    except Exception as whole:
        for _, _, _, values, _, _ in cells:
            for value in values:
                try:
                    dumps(value)
                except Exception as error:
                    raise ProgramError(
                        f"an input of {lease.root.vertex!r}, of type {type(value).__qualname__}, cannot be sent to a "
                        f"worker process: {type(error).__name__}: {error}",
                        hint="Return plain data from unslotted tasks, or use the threads backend.",
                    ) from error
        raise ProgramError(f"an input of {lease.root.vertex!r} cannot be sent to a worker process: {whole}") from whole
