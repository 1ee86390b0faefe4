"""A worker process.

It runs one lease at a time on its main thread, which reads the socket only between leases. The position, the end
and the stop flag of a lease lie in a page that both sides map, so shrinking and stopping need no message and no reader.
A second thread checks long leases every 50 ms: it reports their begin, sends finished values, calls `on_cancel`, and
writes the stack of the task to the page. It also counts there, which shows that the process is not stopped.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
import time
from collections import deque
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from weft.model.chunks import ChunkRef
from weft.model.errors import ProgramError, RunCancelledError, WeftError
from weft.model.failures import Failure, kind_of
from weft.model.program import Program, Style
from weft.store import codec, segments, serializers, tiers
from weft.store.api import Column, sizeof
from weft.store.disk import OWN_FILE
from weft.store.folders import use_node_folder
from weft.store.libc import give_back
from weft.store.row_index import DENSE
from weft.store.segments import SegmentWriter
from weft.worker import own_modules
from weft.worker.channel import (
    ACK,
    ANSWER,
    ASK,
    DONE,
    EMIT,
    FORGET,
    HELLO,
    MODULES,
    PATHS,
    PROGRESS,
    ROWS,
    SERIALIZERS,
    STARTED,
    STREAM,
    STREAM_END,
    Channel,
)
from weft.worker.code import InputCode, TaskCode
from weft.worker.context import not_controlled
from weft.worker.lease import LeaseResult, WorkerLease
from weft.worker.messages import PAGE_BYTES, Assignment, CodeRow, InputRow, SharedPage, SharedPageLease, WorkerConfig
from weft.worker.origins import packed as packed_origin
from weft.worker.remote_store import PackedValues, PackingError, RemoteStore, pack
from weft.worker.run import LiveInput, measured, read_block, read_one, run
from weft.worker.streaming import BLOCK, Parcel, StreamWriter, unpacked
from weft.worker.traces import record_crashes, write_stack

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

    from weft.graph.lease import Cone
    from weft.graph.task import VertexHistory, WatchedVertex
    from weft.worker.context import WorkerTaskContext
    from weft.worker.limits import MemoryLimit

LOOK_S: Final = 0.05
_QUIET: Final = 20
_LIVE_POLL_S: Final = 0.02


def flush_output() -> None:
    """Flush what tasks have printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user may have put anything there
            stream.flush()


class WorkerProcess:
    """One worker process; also the `Host` of its running tasks."""

    def __init__(self, sock: socket.socket, page_fd: int, config: WorkerConfig) -> None:
        import mmap

        self.config = config
        self._channel = Channel(sock, config.shm, config.prefix)
        self._page = mmap.mmap(page_fd, PAGE_BYTES)
        record_crashes(page_fd)
        self._writer = None
        if config.shm:
            self._writer = SegmentWriter(config.shm, prefix=config.prefix, fallback=config.spill or None)
        use_node_folder(config.spill)
        if config.credentials is not None:
            from weft.store import peers  # one machine alone has none

            peers.open_reader(config.credentials)
        self._store = RemoteStore()
        self._codes: dict[int, TaskCode | CodeRow | bytes | ChunkRef] = {}
        """The codes, as they were sent until they are first needed: several may share their bytes."""
        self._cones: dict[int, Cone] = {}
        self._columns: dict[int, Column] = {}
        self._backlog: deque[Any] = deque()
        self._asking = threading.Lock()
        self._telling = threading.Lock()
        self._busy = threading.Event()
        self._lease: SharedPageLease | None = None
        self._values: list[Any] = []
        self._sent = 0
        self._since = 0.0
        self._started = False
        self._told_to_stop = False
        self._rows = 0
        self._limit: MemoryLimit | None = None
        self._streams: StreamWriter | None = None
        self._messages = 0
        self._acknowledged = 0

    def run(self) -> None:
        """Run leases until the other side ends."""
        threading.Thread(target=self._watch, name="weft-watch", daemon=True).start()
        if self.config.memory:
            from weft.worker.limits import MemoryLimit  # few sessions limit it

            self._limit = MemoryLimit(self.config.memory)
        self._send((HELLO,))
        while True:
            message = self._backlog.popleft() if self._backlog else self._channel.receive()
            if message is None:
                return
            if message[0] == FORGET:
                self._forget(message[1])
            elif message[0] == PATHS:
                sys.path[:] = message[1]
            elif message[0] == MODULES:
                own_modules.forget(message[1])
            elif message[0] == SERIALIZERS:
                serializers.learn(codec.from_pickle(message[1]))
            elif message[0] not in (ANSWER, ACK):
                _, codes, cones, drops, forgets, assignment = message
                self._forget(forgets)
                self._codes.update(codes)
                self._cones.update(cones)
                for column, lo, hi in drops:
                    if column in self._columns:
                        self._store.free_range(self._columns[column], lo, hi)
                self._run(Assignment(*assignment))

    def _send(self, message: Any) -> None:
        try:
            self._channel.send(message)
        except OSError:  # the owner is dead
            os._exit(0)

    def _forget(self, ended: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]]) -> None:
        """Drop the codes, columns and cones of ended jobs."""
        for codes, columns, cones in ended:
            for code in codes:
                self._codes.pop(code, None)
            for column in columns:
                self._columns.pop(column, None)
            for cone in cones:
                self._cones.pop(cone, None)

    # ------------------------------------------------------------------------------------------------- one lease

    def _run(self, assignment: Assignment) -> None:
        clear: list[tuple[Column, int, int]] = []
        lease: SharedPageLease | None = None
        root = ""
        try:
            lease = self._open(assignment, clear)
            root = lease.root.vertex
            self._begin(lease)
            outcome = self._run_lease(lease)
        except BaseException as error:  # noqa: BLE001
            outcome = LeaseResult(assignment.lo, [], 0.0)
            outcome.kind = kind_of(error, Failure.INFRASTRUCTURE).value
            outcome.message = str(error) if isinstance(error, WeftError) else f"{type(error).__name__}: {error}"
        flush_output()
        with self._telling:
            self._lease = self._streams = None
            values, self._values = self._values, []
            sent, self._sent = self._sent, 0
            rows, self._rows = self._rows, 0
        seconds = outcome.seconds if not sent else perf_counter() - self._since
        left = values[sent:]
        outcome.values = values = []  # so that `left` alone holds them
        if assignment.tight:
            give_back()
        if lease is not None and outcome.reached < 0:
            outcome.counts = measured(lease.root, left)
        packed = self._pack_rest(lease, left, outcome, assignment.lo + sent, root)
        left.clear()
        if assignment.tight:
            segments.forget_all()
            give_back()
        for column, lo, hi in clear:
            self._store.free_range(column, lo, hi)
        if rows:
            self._send((ROWS, assignment.token, rows))
        self._send(
            (
                DONE,
                assignment.token,
                outcome.hi,
                outcome.reached,
                tuple(packed),
                seconds,
                outcome.kind,
                outcome.vertex,
                outcome.index,
                outcome.message,
                outcome.traceback,
                outcome.raised,
                outcome.status,
                outcome.lost,
                outcome.counts,
                packed_origin(outcome.origin),
            )
        )
        self._store.opened.clear()
        if self.config.credentials is not None:
            from weft.store import peers

            peers.forget_fetched()

    def _run_lease(self, lease: SharedPageLease) -> LeaseResult:
        leased = cast("WorkerLease", lease)
        limit = self._limit
        if limit is None:
            return run(leased, self._store, self.config.target_s, self._values)
        declared = lease.resources.memory
        with limit.hold(declared):
            outcome = run(leased, self._store, self.config.target_s, self._values)
        if outcome.kind == Failure.MEMORY.value:
            outcome.message += f"\n{limit.text(declared)}"
        return outcome

    def _pack_rest(
        self, lease: SharedPageLease | None, left: list[Any], outcome: LeaseResult, first: int, root: str
    ) -> PackedValues:
        """Pack the values of the tasks from `first` on; one that cannot be packed becomes the failure of its task."""
        if lease is None:
            return PackedValues(0)
        try:
            return self._pack(lease, left, outcome.reached)
        except PackingError as error:
            done = left[: error.at]
            del outcome.counts[error.at :]
            outcome.hi = first + error.at
            outcome.kind, outcome.message = kind_of(error.error).value, str(error.error)
            outcome.traceback = ""
            reached = lease.codes[outcome.reached] if outcome.reached >= 0 else None
            outcome.vertex, outcome.index = (reached.vertex if reached else root), outcome.hi
            outcome.reached = -1
            if error.at:
                with contextlib.suppress(PackingError):
                    return self._pack(lease, done, -1)
            outcome.counts.clear()
            return PackedValues(0)

    def _pack(self, lease: SharedPageLease, values: list[Any], reached: int) -> PackedValues:
        code = lease.codes[reached] if reached >= 0 else lease.root
        return pack(values, None if code.expands else self._writer, code.parts)

    def _open(self, assignment: Assignment, clear: list[tuple[Column, int, int]]) -> SharedPageLease:
        codes = [self._code(number) for number in assignment.codes]
        for place, first, blob in assignment.items:
            codes[place] = code = copy.copy(codes[place])
            items = _shipped(blob)
            code.items = cast("Any", dict(zip(range(first, first + len(items)), items, strict=True)))
        if assignment.cells:
            for number, n, at, values, keep, kind in _loads(assignment.cells):
                column = self._column(number, n)
                if kind != DENSE:
                    self._store.index(column, kind)
                if isinstance(at, list):
                    for index, value in zip(at, values, strict=True):
                        self._store.put_range(column, index, [value])
                    continue
                self._store.put_range(column, at, values)
                if not keep:
                    clear.append((column, at, at + len(values)))
        lease = SharedPageLease.from_buffer(self._page)
        lease.id = assignment.token
        lease.root = codes[-1]
        lease.lo = assignment.lo
        lease.cone = self._cones[assignment.cone] if assignment.cone else None
        lease.codes = tuple(codes)
        lease.attempt = assignment.attempt
        lease.nbytes = assignment.nbytes
        lease.resources = assignment.resources
        lease.host = self
        lease.worker = self.config.number
        lease.callbacks = None
        lease.logs = assignment.logs
        return lease

    def _column(self, number: int, n: int) -> Column:
        column = self._columns.get(number)
        if column is None or len(column) != n:
            column = self._columns[number] = Column(("", str(number)), n)
        return column

    def _source(self, inp: InputRow) -> Column:
        column = self._column(inp.column, inp.router.n_src)
        if inp.router.wide:
            column.parts = inp.router.partitions
        return column

    def _code(self, number: int) -> TaskCode:
        known = self._codes[number]
        if not isinstance(known, TaskCode):
            if not isinstance(known, CodeRow):
                rows = {other: CodeRow(*row) for other, row in _shipped(known).items()}
                self._codes.update({other: row for other, row in rows.items() if self._codes.get(other) is known})
                known = rows[number]
            row = known
            program = Program(row.target, row.params, row.items, Style(row.style))
            inputs = tuple(
                InputCode(
                    inp.edge,
                    inp.source,
                    inp.router,
                    lambda inp=inp: self._source(inp),  # type: ignore[misc]
                    lenient=inp.lenient,
                    live=inp.live,
                    last=inp.last,
                    streamed=inp.streamed,
                )
                for inp in row.inputs
            )
            known = self._codes[number] = TaskCode(
                row.vertex,
                row.n,
                program,
                (inputs, row.outputs, row.streams),
                expands=row.expands,
                resources=row.resources,
                only=row.only,
                measured=row.measured,
                counted=row.counted,
                kept=row.kept,
                parts=row.parts,
                verdict=row.verdict,
                items=program.items,
            )
        return known

    # -------------------------------------------------------------------------------------------- what takes long

    def _begin(self, lease: SharedPageLease) -> None:
        self._started = self._told_to_stop = False
        self._since = perf_counter()
        self._lease = lease
        if not self._busy.is_set():
            self._busy.set()

    def _watch(self) -> None:
        quiet = 0
        main = threading.main_thread().ident or 0
        page = SharedPage.from_buffer(self._page)
        seen: SharedPageLease | None = None
        while True:
            if quiet > _QUIET:
                quiet = 0
                self._busy.clear()
                if self._lease is None:
                    self._busy.wait()
            time.sleep(LOOK_S)
            page.beats += 1
            lease = self._lease
            if lease is None:
                quiet += 1
            elif lease is seen:
                quiet = 0
                write_stack(self._page, lease.id, sys._current_frames().get(main))
                self._report_progress(lease)
            elif lease.stop:
                self._report_progress(lease)
            seen = lease

    def _report_progress(self, lease: SharedPageLease) -> None:
        """Report the begin and the progress of a lease, and check its stop flag."""
        callbacks: list[Callable[[], None]] = []
        with self._telling:
            if self._lease is not lease:
                return
            # A chain may stop after any of its members, and is committed as if it had not begun before.
            if not self._started and not (lease.cone is not None and lease.cone.linear):
                self._started = True
                self._send((STARTED, lease.id))
            if self._rows:
                rows, self._rows = self._rows, 0
                self._send((ROWS, lease.id, rows))
            if lease.hi - lease.lo > 1 and not lease.root.expands:
                with contextlib.suppress(PackingError):  # the report at the end includes it
                    self._send_finished(lease)
            if self._streams is not None:
                self._streams.nudge()
            if lease.stop and not self._told_to_stop:
                self._told_to_stop = True
                callbacks = list(lease.callbacks or ())
        for callback in callbacks:
            with contextlib.suppress(Exception):  # a callback of the user's; its subject is killed later
                callback()

    def _send_finished(self, lease: SharedPageLease) -> None:
        """Send the finished values (lock `_telling` held), large ones one by one, so that few exist twice."""
        done = len(self._values)
        while self._sent < done:
            lo = hi = self._sent
            nbytes = 0
            while hi < done and nbytes < OWN_FILE:
                nbytes += sizeof(self._values[hi])
                hi += 1
            counts = measured(lease.root, self._values[lo:hi])
            packed = self._pack(lease, self._values[lo:hi], -1)
            self._values[lo:hi] = [None] * (hi - lo)
            self._sent = hi
            now = perf_counter()
            seconds, self._since = now - self._since, now
            self._send((PROGRESS, lease.id, lease.lo + hi, tuple(packed), seconds, counts))

    # ------------------------------------------------------------------------------------------------------ host

    def emit(self, lease: int, vertex: str, index: int, name: str, payload: Any) -> None:
        """See `Host.emit`."""
        self._send((EMIT, lease, vertex, index, name, payload))

    def progress(self, lease: int, rows: int) -> None:
        """See `Host.progress`: rows are summed and sent at intervals."""
        with self._telling:
            self._rows += rows

    def endpoints(self, service: str) -> list[Any] | None:
        """See `Host.endpoints`."""
        reply: list[Any] | None = self._ask(("endpoints", service))
        return reply

    def history(self, vertex: str) -> Sequence[VertexHistory]:
        """See `Host.history`."""
        records: Sequence[VertexHistory] = self._ask(("history", vertex))
        return records

    def keep_result(self, recipe: Any, started: float, spoilt: str) -> str:
        """See `Host.keep_result`."""
        reason: str = self._ask(("keep", recipe, started, spoilt))
        return reason

    def ask_run(self, question: Sequence[Any]) -> Any:
        """See `Host.ask_run`."""
        answer, error = self._ask(("run", tuple(question)))
        if error is not None:
            raise error
        return answer

    def watch(self, control: str, vertex: str) -> WatchedVertex:
        """See `Host.watch`."""
        seen: WatchedVertex | None = self._ask(("watch", control, vertex))
        if seen is None:
            raise not_controlled(control, vertex)
        return seen

    def reply(self, token: str) -> str | None:
        """See `Host.reply`."""
        reply: str | None = self._ask(("reply", token))
        return reply

    def live_input(self, inp: InputCode, index: int, context: WorkerTaskContext) -> Any:
        """See `Host.live_input`: blocks of streams and committed values are requested one by one."""
        return LiveInput(partial(self._read_stream if inp.streamed else self._read_committed, inp, index, context))

    def stream(self, edge: str, index: int, partition: int, value: Any, context: WorkerTaskContext) -> None:
        """See `Host.stream`."""
        streams = self._streams
        if streams is None:
            share = self.config.stream_bytes // max(1, context.parallelism)
            streams = self._streams = StreamWriter(
                self._writer, max(1, min(BLOCK, share)), self._send_parcels, self._await_room, self._has_room
            )
        streams.write(edge, index, partition, value)

    def end_streams(self, code: TaskCode, index: int, context: WorkerTaskContext) -> None:
        """See `Host.end_streams`."""
        if self._streams is not None:
            self._streams.flush()
        self._send((STREAM_END, context.lease.id, index, sorted(code.streams)))

    def _send_parcels(self, parcels: list[Parcel]) -> int:
        assert self._lease is not None
        self._messages += 1
        self._send((STREAM, self._lease.id, self._messages, parcels))
        return self._messages

    def _await_room(self, message: int) -> None:
        """Wait until the streams of a message have room for more."""
        with self._asking:
            while self._acknowledged < message:
                self._sort_in(self._channel.receive())
        lease = self._lease
        if lease is None or lease.stop:
            raise RunCancelledError("the task was cancelled")

    def _has_room(self, message: int) -> bool:
        if self._acknowledged < message and self._asking.acquire(blocking=False):
            try:
                while self._acknowledged < message and self._channel.ready():
                    self._sort_in(self._channel.receive())
            finally:
                self._asking.release()
        return self._acknowledged >= message

    def _sort_in(self, message: Any) -> None:
        """Process a message other than the expected answer."""
        if message is None:
            os._exit(0)
        if message[0] == ACK:
            self._acknowledged = max(self._acknowledged, message[1])  # one of an earlier lease may come late
        else:
            self._backlog.append(message)

    def _read_stream(self, inp: InputCode, index: int, context: WorkerTaskContext) -> Iterator[Any]:
        for lo, hi, part_lo, part_hi in inp.router.inputs(index):
            for source in range(lo, hi):
                for part in range(part_lo, part_hi):
                    while (values := self._next_block(inp, source, part, index, context)) is not None:
                        yield from values

    def _next_block(
        self, inp: InputCode, source: int, part: int, index: int, context: WorkerTaskContext
    ) -> list[Any] | None:
        if self._streams is not None:
            self._streams.nudge()
        state, cell = self._ask(("block", inp.edge, source, part, index))
        if state == "stop" or context.lease.stop:
            raise RunCancelledError(f"{context.vertex}[{context.index}] was cancelled")
        if state == "end":
            return None
        return read_block(inp, source, partial(unpacked, cell))

    def _read_committed(self, inp: InputCode, index: int, context: WorkerTaskContext) -> Iterator[Any]:
        for lo, hi, _, _ in inp.router.inputs(index):
            for source in range(lo, hi):
                while True:
                    if context.lease.stop:
                        raise RunCancelledError(f"{context.vertex}[{context.index}] was cancelled")
                    state, cell = self._ask(("cell", context.vertex, inp.edge, source))
                    if state != "wait":
                        break
                    time.sleep(_LIVE_POLL_S)
                if state == "value":
                    self._store.put_range(inp.column, source, [cell])
                    yield from read_one(inp, self._store, index, source)
                    self._store.free_range(inp.column, source, source + 1)

    def _ask(self, question: tuple[Any, ...]) -> Any:
        """Ask the backend and wait for the answer; for threads of the running task only."""
        with self._asking:
            lease = self._lease
            if lease is None:
                raise RunCancelledError("the task has ended")
            self._send((ASK, lease.id, *question))
            while True:
                message = self._channel.receive()
                if message is not None and message[0] == ANSWER:
                    return _loads(message[1])
                self._sort_in(message)


def _loads(blob: bytes) -> Any:
    import pickle

    try:
        return pickle.loads(blob)
    except Exception as error:
        raise _unreadable(error) from error


def _shipped(blob: Any) -> Any:
    """Return a received value: the bytes of a chunk, or a ref to one."""
    try:
        return tiers.read_chunk(blob) if isinstance(blob, ChunkRef) else codec.decode(blob)
    except ProgramError as error:
        raise _unreadable(error.__cause__ or error) from error


def _unreadable(error: BaseException) -> ProgramError:
    if isinstance(error, WeftError):
        return ProgramError(f"a worker process cannot load what it was sent: {error.message}", hint=error.hint)
    return ProgramError(
        f"a worker process cannot load what it was sent: {type(error).__name__}: {error}",
        hint="The modules of functions and values must be importable, in the same version, in worker processes.",
    )
