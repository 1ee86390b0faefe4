"""A backend whose workers receive only bytes: the example for backends on other machines.

`SocketBackend` is the near end, in the process of the loop. It keeps values, streams and timers as every local backend
does (`LocalBackend`, `LocalJob`) and sends leases over a socket. `serve` is the far end, in a process of its own,
without master, store or job: it needs only the content of a `Launch` (`TaskSpec`) and the values sent with it.

A frame is its length and MessagePack, `[kind, token, ...]`. Launches travel as `weft.engine.launch_wire` writes them;
values and requests are pickled. On a network frames would be signed. One `DONE` answers a `LAUNCH`. `ASK` is a request
of a running task to its host (events, endpoints, streams): it blocks that task alone, and a helper thread answers.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.backends.local import GRACE_S, LocalBackend, abandon, crashed
from weft.backends.local_jobs import LocalJob
from weft.backends.process_jobs import needed
from weft.engine.launch_wire import decode_launch, encode_launch
from weft.engine.tuning import Tuning
from weft.model.errors import NotFoundError, ProgramError
from weft.store import codec
from weft.store.api import ABSENT, Column
from weft.worker.code import code_of
from weft.worker.lease import LeaseResult, WorkerLease
from weft.worker.run import LiveInput, run

if TYPE_CHECKING:
    from weft.engine.commands import Launch
    from weft.engine.ports import Job
    from weft.graph.task_spec import EdgeSpec
    from weft.store.api import ChunkStore
    from weft.worker.code import InputCode

LAUNCH, STOP, DONE, ASK, ANSWER = range(5)
_LENGTH: Final = 4
_TARGET_S: Final = 0.002
_BOOT: Final = "import sys; sys.path[:] = sys.argv[2:]; from weft.testing.socket_backend import serve; serve()"


class Wire:
    """Frames over a socket. Any thread may send; one receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()

    def send(self, *message: Any) -> None:
        """Send a message; no effect if the other end is closed, which `messages` reports."""
        data = msgspec.msgpack.encode(message)
        with self._sending, suppress(OSError):
            self._sock.sendall(len(data).to_bytes(_LENGTH, "little") + data)

    def messages(self) -> Iterator[list[Any]]:
        """Yield the received messages, until either end closes."""
        with suppress(OSError), self._sock.makefile("rb") as stream:
            while head := stream.read(_LENGTH):
                yield msgspec.msgpack.decode(stream.read(int.from_bytes(head, "little")))

    def close(self) -> None:
        """Close the connection for both ends."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def _token(lease: WorkerLease) -> str:
    return f"{lease.host.job.id}/{lease.id}"


class SocketBackend(LocalBackend):
    """Runs leases in another process, on as many threads as there are leases."""

    gated, name = False, "socket"

    def __init__(self, workers: int, store: ChunkStore, *, grace_s: float = GRACE_S, window: int | None = None) -> None:
        super().__init__(workers, store, None, grace_s, window)
        self.tuning = Tuning(target_s=_TARGET_S, stream_bytes=self.window)
        self._workers = range(workers)
        self._leases: dict[str, WorkerLease] = {}
        self._reading: dict[tuple[str, int], Iterator[Any]] = {}
        self._closing = False
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-c", _BOOT, str(theirs.fileno()), *sys.path]
            self._far = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))
        self._wire = Wire(ours)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def numbers(self) -> Sequence[int]:
        """Return the present workers, by number."""
        return self._workers

    def open_job(self, job: Job) -> None:
        """See `Executor.open_job`."""
        job.backend = LocalJob(job, self.store, self.loop, self.window)

    def launch(self, job: Job, lease: Launch) -> None:
        """See `Executor.launch`: values may have to be read from a disk, so another thread sends it."""
        running: WorkerLease = job.backend.lease(lease)
        self._leases[_token(running)] = running
        self._helpers.put(partial(self._send, running, lease))

    def _send(self, lease: WorkerLease, launch: Launch) -> None:
        try:
            data = encode_launch(launch, codec.to_pickle), codec.to_pickle(self._values(lease))
            self._wire.send(LAUNCH, _token(lease), *data)
        except Exception as error:  # noqa: BLE001 - whatever it is, the lease has to be answered
            self._end(lease, crashed(lease, error))
        if lease.stop:  # stopped before it was sent
            self._wire.send(STOP, _token(lease))

    def _values(self, lease: WorkerLease) -> list[tuple[str, int, list[Any]]]:
        """Return the input values of a lease's tasks: for each source the values from a task on."""
        cone = lease.cone
        inner = frozenset(cone.members) if cone is not None else frozenset()
        return [
            (inp.source, lo, [self._value(inp.column, at) for at in range(lo, hi)])
            for place, code in enumerate(lease.codes)
            for inp in code.inputs
            if not inp.live and inp.source not in inner
            for mult in (cone.mult[place] if cone is not None else 1,)
            for lo, hi in needed(inp.router, lease.lo * mult, lease.hi * mult)
        ]

    def _value(self, column: Column, at: int) -> Any:
        with suppress(NotFoundError):
            return self.store.load(column, at)
        return ABSENT  # the task will report the missing value

    def _listen(self) -> None:
        for kind, token, *rest in self._wire.messages():
            lease = self._leases.get(token)
            if lease is not None and kind == DONE:
                self._end(lease, codec.from_pickle(rest[0]))
                self.loop.drain()
            elif lease is not None:
                self._helpers.put(partial(self._answer, lease, *rest))
        for worker in () if self._closing else self._workers:
            self.loop.worker_lost(worker, "the far process is gone")

    def _end(self, lease: WorkerLease, outcome: LeaseResult) -> None:
        if self._leases.pop(_token(lease), None) is None:
            return
        local: LocalJob = lease.host
        try:
            local.commit(lease, outcome)
        except Exception as error:  # noqa: BLE001 - such as a full disk
            outcome = crashed(lease, error)
        if lease.id in local.running:
            self.loop.post_later(local.job.id, local.report(lease, outcome, self.loop.clock.now()))

    def _answer(self, lease: WorkerLease, number: int, question: bytes) -> None:
        """Answer a request of a running task to its host."""
        try:
            answer = True, codec.to_pickle(self._ask(lease, *codec.from_pickle(question)))
        except Exception as error:  # noqa: BLE001 - sent to the task
            answer = False, codec.to_pickle(error)
        self._wire.send(ANSWER, number, *answer)

    def _ask(self, lease: WorkerLease, method: str, *arguments: Any) -> Any:
        local: Any = lease.host
        context: Any = SimpleNamespace(lease=lease, vertex=lease.root.vertex, index=lease.lo)
        if method == "stream":
            return local.stream(*arguments, context)
        if method == "end_streams":
            return local.end_streams(lease.root, *arguments, context)
        if method != "read":
            return getattr(local, method)(*arguments)
        edge, index, reader = arguments
        inp = next(inp for inp in lease.root.inputs if inp.edge == edge)
        values = self._reading.setdefault((_token(lease), reader), iter(local.live_input(inp, index, context)))
        found = list(itertools.islice(values, 1))
        if not found:
            del self._reading[_token(lease), reader]
        return found

    def shrink(self, job: Job, lease: int) -> None:
        """See `Executor.shrink`: sent leases are not shortened."""

    def ask_to_stop(self, lease: WorkerLease) -> None:
        """Ask a task to stop."""
        lease.ask_to_stop()
        self._helpers.put(partial(self._wire.send, STOP, _token(lease)))

    def out_of_time(self, local: LocalJob, lease: WorkerLease, worker: int) -> None:
        """Abandon the thread of a task that did not stop in time."""
        if self._leases.pop(_token(lease), None) is not None:
            abandon(local, lease, self.grace_s)

    def close_job(self, job: Job) -> None:
        """See `Executor.close_job`."""
        job.backend.close()

    def close(self) -> None:
        """See `Executor.close`."""
        self._closing = True
        self.timers.close()
        self._helpers.close()
        self._wire.close()
        self._listener.join()
        self._far.kill()
        self._far.wait()


class _Host:
    """The host of a lease's tasks: each call is a request to the near end."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self._readers = itertools.count()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._ask, method)

    def stream(self, edge: str, index: int, partition: int, value: Any, _: object) -> None:
        self._ask("stream", edge, index, partition, value)

    def end_streams(self, _: object, index: int, __: object) -> None:
        self._ask("end_streams", index)

    def live_input(self, inp: InputCode, index: int, _: object) -> LiveInput:
        return LiveInput(lambda: self._read(inp.edge, index, next(self._readers)))

    def _read(self, edge: str, index: int, reader: int) -> Iterator[Any]:
        while found := self._ask("read", edge, index, reader):
            yield from found


class _Far:
    """The far end: running leases, and open requests."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._leases: dict[str, WorkerLease] = {}
        self._numbers = itertools.count()
        self._questions: dict[int, SimpleQueue[tuple[bool, bytes]]] = {}

    def serve(self) -> None:
        for kind, about, *rest in self._wire.messages():
            if kind == ANSWER:
                self._questions.pop(about).put((rest[0], rest[1]))
            elif kind == LAUNCH:
                threading.Thread(target=self._run, args=(about, self._lease(about, *rest)), daemon=True).start()
            elif about in self._leases:
                self._leases[about].cancel()

    def _lease(self, token: str, launched: bytes, data: bytes) -> WorkerLease:
        launch, values = decode_launch(launched, codec.from_pickle), codec.from_pickle(data)
        columns: dict[str, Column] = {}

        def column(edge: EdgeSpec) -> Column:
            return columns.setdefault(edge.source, Column(("", edge.source), edge.n_source, edge.source_parts))

        codes = tuple([code_of(spec, column) for spec in launch.specs])
        for inp in (inp for code in codes for inp in code.inputs):
            for _, lo, cells in (found for found in values if found[0] == inp.source):
                inp.column.values[lo : lo + len(cells)] = cells
        lease = self._leases[token] = WorkerLease(0, codes[-1], launch.lo, launch.hi, cone=launch.cone, codes=codes)
        lease.attempt, lease.host = launch.attempt, _Host(partial(self._ask, token))
        return lease

    def _run(self, token: str, lease: WorkerLease) -> None:
        store: Any = None  # all values are present
        outcome = run(lease, store, _TARGET_S)
        try:
            data = codec.to_pickle(outcome)
        except ProgramError as error:
            data = codec.to_pickle(crashed(lease, error))
        del self._leases[token]
        self._wire.send(DONE, token, data)

    def _ask(self, token: str, *question: Any) -> Any:
        """Send a request to the near end, and wait for the answer; its exceptions are raised here."""
        number = next(self._numbers)
        answer = self._questions[number] = SimpleQueue()
        self._wire.send(ASK, token, number, codec.to_pickle(question))
        well, data = answer.get()
        if not well:
            raise codec.from_pickle(data)
        return codec.from_pickle(data)


def serve() -> None:
    """Run the far end of the socket named by the command line, until the near end closes; then end this process."""
    _Far(Wire(socket.socket(fileno=int(sys.argv[1])))).serve()
    os._exit(0)
