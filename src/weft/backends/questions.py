"""What tasks in worker processes ask for while they run, and the parcels that they stream."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.backends.streams import END
from weft.model.errors import CapacityError, InternalError, RunCancelledError, WeftError
from weft.worker.channel import ACK, ANSWER, dumps

if TYPE_CHECKING:
    from weft.backends.process_jobs import RemoteLease, WorkerConnection
    from weft.store.api import ChunkStore
    from weft.worker.streaming import Parcel


class Questions:
    """Answers the questions of the `live` leases, which are known by their tokens.

    `send` sends a message to a worker. `beside` calls a function on another thread, for an answer that may block.
    """

    def __init__(
        self,
        store: ChunkStore,
        live: Container[int],
        send: Callable[[WorkerConnection, Any], None],
        beside: Callable[[RemoteLease, Callable[[], None]], None],
    ) -> None:
        self._store = store
        self._live = live
        self._send = send
        self._beside = beside

    def answer(self, lease: RemoteLease, question: Sequence[Any]) -> None:
        """Answer the question of a task, now or later."""
        local, about = lease.local, question[1:]
        match question[0]:
            case "endpoints":
                self._say(lease, local.endpoints(*about))
            case "history":
                self._say(lease, local.history(*about))
            case "watch":
                self._say(lease, local.seen(*about))
            case "reply":
                self._say(lease, local.reply(*about))
            case "block":
                self._block(lease, *about)
            case "keep":
                self._beside(lease, partial(self._keep, lease, *about))
            case "run":
                self._beside(lease, partial(self._of_run, lease, *about))
            case _:
                self._beside(lease, partial(self._cell, lease, *about))

    def _say(self, lease: RemoteLease, answer: Any) -> None:
        self._send(lease.conn, (ANSWER, dumps(answer)))

    def take_stream(self, lease: RemoteLease, number: int, parcels: list[Parcel]) -> None:
        """Accept a task's output to its streams, and notify the task when there is room for more."""
        streams = lease.local.streams
        written = []
        for edge, index, part, cell, nbytes in parcels:
            try:
                streams.put(edge, index, part, cell, nbytes, lease)
            except RunCancelledError:
                continue
            except CapacityError as error:
                lease.error = lease.error or error
                lease.raise_stop()
                continue
            written.append((edge, index, part))
        self._acknowledge(lease, number, written)

    def _acknowledge(self, lease: RemoteLease, number: int, written: list[tuple[str, int, int]]) -> None:
        """Acknowledge a message once each of its streams has room."""
        streams = lease.local.streams
        again = partial(self._acknowledge, lease, number, written)
        while written and not lease.stop and lease.token in self._live:
            if not streams.has_room(*written[-1], again):
                if lease.stop:  # perhaps before the waiter was recorded
                    streams.wake_all()
                return
            written.pop()
        self._send(lease.conn, (ACK, number))

    def _block(self, lease: RemoteLease, edge: str, source: int, part: int, index: int) -> None:
        """Send a task the next block of a stream, now or when there is one."""
        local = lease.local
        if lease.token not in self._live:  # it asked and died: the next block is for the next attempt
            return
        if lease.stop or local.job.outcome is not None:
            self._say(lease, ("stop", None))
            return
        again = partial(self._block, lease, edge, source, part, index)
        block = local.streams.take(edge, source, part, index, again)
        if block is None:
            if lease.stop:
                local.streams.wake_all()
            return
        cell = block.cell
        if block.column is not None:
            block.pin = block.pin or self._store.pin(block.column, [block.at])
            cell = block.column.values[block.at]
        self._say(lease, ("end", None) if block is END else ("block", cell))

    def _keep(self, lease: RemoteLease, recipe: Any, started: float, spoilt: str) -> None:
        """Have the cache keep the result of a task, and answer with the reason if it is not kept."""
        try:
            reason = lease.local.keep_result(recipe, started, spoilt)
        except Exception as error:  # noqa: BLE001 - the task waits for an answer
            reason = f"the cache failed: {error}"
        self._say(lease, reason)

    def _of_run(self, lease: RemoteLease, question: Sequence[Any]) -> None:
        """Have the front end of the run answer a question of a task; its error is the answer too."""
        answer: Any = None
        failed: WeftError | None = None
        try:
            answer = lease.local.ask_run(question)
        except WeftError as error:
            failed = error
        except Exception as error:  # noqa: BLE001 - the task waits for an answer
            failed = InternalError(f"the front end of the run has failed: {type(error).__name__}: {error}")
        self._say(lease, (answer, failed))

    def _cell(self, lease: RemoteLease, vertex: str, edge: str, source: int) -> None:
        """Answer a task that reads committed values while their source runs."""
        self._say(lease, lease.committed(vertex, edge, source))
