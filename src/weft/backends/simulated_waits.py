"""Tasks of a simulated node that wait for others: streams, values of running tasks, endpoints of services.

The body of such a task has a thread, which stands in for the action of the agenda that lets it go on: of all threads
of a simulation one runs at a time, and which one is decided by the seed alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from weft.backends.node_jobs import NodeHost
from weft.worker.code import InputCode
from weft.worker.run import read_one
from weft.worker.streaming import unpacked

if TYPE_CHECKING:
    from weft.backends.local_jobs import AnyAnswer
    from weft.backends.simulated_links import SimulatedNetwork, SimulatedProcess
    from weft.backends.streams import StreamBlock
    from weft.worker.context import WorkerTaskContext

POLL_S: Final = 0.05
"""The virtual seconds between two questions of a task that nobody wakes."""


class BodyAbandonedError(BaseException):
    """The process of a body has ended."""


class SimulatedBody(threading.Thread):
    """A body of a process, which runs `action` whenever it is let `go_on`, until it waits or ends."""

    def __init__(self, net: SimulatedNetwork, process: SimulatedProcess, action: Callable[[], None]) -> None:
        super().__init__(name=f"weft-{process.name}", daemon=True)
        self.abandoned = False
        self._net, self._process, self._action = net, process, action
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._over = False
        self._planned = False
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """See `Thread.run`."""
        self._turn.acquire()
        try:
            if not self.abandoned:
                self._action()
        except BodyAbandonedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by the agenda
            self._error = error
        finally:
            self._over = True
            self._back.release()

    def go_on(self) -> None:
        """Let the body run; its exceptions are raised here. No effect once it has ended."""
        self._planned = False
        if self._over:
            return
        self._turn.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def wake(self) -> None:
        """Plan to let the body go on."""
        if not self._planned:
            self._planned = True
            self._net.agenda.soon(self.go_on, self._process)

    def rest(self, seconds: float | None = None) -> None:
        """Wait, in the body, until it is woken, or for so many seconds of its process."""
        if seconds is not None:
            self._net.agenda.at(self._net.agenda.clock.time + seconds, self.go_on, self._process)
        self._back.release()
        self._turn.acquire()
        if self.abandoned:
            raise BodyAbandonedError

    def abandon(self) -> None:
        """End the body where it waits."""
        self.abandoned = True
        self.go_on()
        self.join()


def this_body() -> SimulatedBody:
    """Return the body that runs."""
    body = threading.current_thread()
    assert isinstance(body, SimulatedBody)
    return body


class SimulatedHost(NodeHost):
    """The host of the tasks of a simulated node: they wait in virtual time, as worker processes do in real time."""

    net: SimulatedNetwork

    def stream(self, edge: str, index: int, partition: int, value: Any, context: WorkerTaskContext) -> None:
        """See `Host.stream`."""
        chance = self.net.random
        self.rest(chance.random() * chance.choice([0.001, 1.0]))
        super().stream(edge, index, partition, value, context)

    @staticmethod
    def rest(seconds: float) -> None:
        """Let virtual seconds pass for a task."""
        end = this_body()._net.agenda.clock.time + seconds
        while (left := end - this_body()._net.agenda.clock.time) > 0:
            this_body().rest(left)

    def _wait(self, context: WorkerTaskContext, attempt: Callable[[Callable[[], None]], AnyAnswer | None]) -> AnyAnswer:
        """See `LocalJob._wait`; nothing is tried again without a wake."""
        body = this_body()
        while True:
            self._must_go_on(context)
            if answer := attempt(body.wake):
                return answer
            body.rest()

    def _values_of(self, block: StreamBlock) -> list[Any]:
        if block.column is None:
            return unpacked(block.cell)
        block.pin = block.pin or self.store.pin(block.column, [block.at])
        return unpacked(block.column.values[block.at])

    def _read_committed(self, inp: InputCode, index: int, context: WorkerTaskContext) -> Iterator[Any]:
        key = (self.job.id, f"{inp.edge}#{context.lease.id}.{index}")
        column = self.store.column(key, len(inp.column), inp.column.parts)
        read = InputCode(inp.edge, inp.source, inp.router, lambda: column, last=inp.last)
        try:
            for source in [at for lo, hi, _, _ in inp.router.inputs(index) for at in range(lo, hi)]:
                while True:
                    self._must_go_on(context)
                    state, cell = self.ask(context.lease.id, "committed", context.vertex, inp.edge, source)
                    if state != "wait":
                        break
                    self.rest(POLL_S)
                if state == "value":
                    self.store.put_range(column, source, [cell])
                    yield from read_one(read, self.store, index, source)
        finally:
            self.store.drop(key)

    def endpoints(self, service: str) -> list[Any] | None:
        """See `Host.endpoints`; waits for them."""
        while (found := super().endpoints(service)) is None:
            self.rest(POLL_S)
        return found


class SimulatedAnswer:
    """The answer to a request of a body to the session."""

    def __init__(self) -> None:
        self._body = this_body()
        self._answer: tuple[bool, bytes] | None = None

    def put(self, answer: tuple[bool, bytes]) -> None:
        """Take the answer."""
        self._answer = answer
        self._body.wake()

    def get(self) -> tuple[bool, bytes]:
        """Wait for the answer."""
        while self._answer is None:
            self._body.rest()
        return self._answer
