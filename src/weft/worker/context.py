"""The context of a running task: `weft.graph.task.TaskContext`, over the services of any backend."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol

from weft.graph.logical import Patch
from weft.graph.task import DECIDE, RESERVED, STARTED, USAGE
from weft.graph.task_spec import UNSETTLED
from weft.model.errors import NotFoundError, RunCancelledError, TaskError, UsageError
from weft.model.program import Style
from weft.model.resources import Resources
from weft.model.wording import counted, type_of
from weft.store.rows import ANSWER, EdgeValues, as_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.graph.task import VertexHistory, WatchedVertex
    from weft.graph.task_spec import JobVerdict
    from weft.worker.code import InputCode, TaskCode
    from weft.worker.lease import WorkerLease

EVENT_BYTES = 64 * 1024


def check_payload(what: str, payload: Any, hint: str = "") -> None:
    """Raise UsageError unless a payload is JSON of at most `EVENT_BYTES` bytes."""
    import json  # few tasks emit events

    try:
        size = len(json.dumps(payload))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the payload of {what} is not JSON: {error}", hint=f"Give numbers, text, lists and dicts of these{hint}."
        ) from None
    if size > EVENT_BYTES:
        raise UsageError(f"{what} has {size:,} bytes; at most {EVENT_BYTES:,} are allowed")


_ENDPOINT_POLL_S = 0.01


class TaskHost(Protocol):
    """The services of a backend for running tasks."""

    def emit(self, lease: int, vertex: str, index: int, name: str, payload: Any) -> None:
        """Send a user event to the master."""
        ...

    def progress(self, lease: int, rows: int) -> None:
        """Report produced rows."""
        ...

    def endpoints(self, service: str) -> list[Any] | None:
        """Return the payloads of `emit("endpoint", payload)` of a service's tasks, by index; None until all have
        emitted.
        """
        ...

    def history(self, vertex: str) -> Sequence[VertexHistory]:
        """Return the durations of a vertex in earlier runs of the same graph, newest first."""
        ...

    def watch(self, control: str, vertex: str) -> WatchedVertex:
        """Return a vertex as seen by its control vertex. NotFoundError: `control` controls none of that name."""
        ...

    def reply(self, token: str) -> str | None:
        """Return the master's reply to a decision, once; None before it."""
        ...

    def keep_result(self, recipe: Any, started: float, spoilt: str) -> str:
        """Have the cache of the job keep outputs; return the reason if it does not, or ""."""
        ...

    def ask_run(self, question: Sequence[Any]) -> Any:
        """Return the answer of the front end of the run."""
        ...

    def live_input(self, inp: InputCode, index: int, context: WorkerTaskContext) -> Any:
        """Return an input that is read while its sources run."""
        ...

    def stream(self, edge: str, index: int, partition: int, value: Any, context: WorkerTaskContext) -> None:
        """Write to a stream; blocks while its buffer is full."""
        ...

    def end_streams(self, code: TaskCode, index: int, context: WorkerTaskContext) -> None:
        """End the writes of a task to its streams."""
        ...


def not_controlled(control: str, vertex: str) -> NotFoundError:
    """Return the error for a vertex that is missing, or that `control` does not control."""
    return NotFoundError(
        f"{control} controls no vertex {vertex!r}", hint=f"Add it as an input: controlled({control}), or patch it in."
    )


class _Writer:
    __slots__ = ("_context", "_edge", "_limit", "_stream")

    def __init__(self, context: WorkerTaskContext, edge: str, parts: int, stream: bool) -> None:
        self._context = context
        self._edge = edge
        self._limit = sys.maxsize if parts == UNSETTLED else parts or 1
        self._stream = stream

    def write(self, partition: int, value: Any) -> None:
        context = self._context
        if type(partition) is not int:
            partition = self._whole(partition)
        if not 0 <= partition < self._limit:
            raise self._no_partition(partition)
        if context.lease.stop:
            raise RunCancelledError(f"{context.vertex}[{context.index}] was cancelled")
        if self._stream:
            context.streamed.add(self._edge)
            context.host.stream(self._edge, context.index, partition, value, context)
        else:
            context.written.setdefault(self._edge, {}).setdefault(partition, []).append(value)

    def _whole(self, partition: Any) -> int:
        """Return a whole number of another type, such as NumPy's, as an int. TaskError: it is none."""
        try:
            return operator.index(partition)
        except TypeError:
            raise self._no_partition(partition) from None

    def _no_partition(self, partition: Any) -> TaskError:
        """Return the error of a task that writes to a partition without readers."""
        task, limit = f"{self._context.vertex}[{self._context.index}]", self._limit
        settled = limit < sys.maxsize
        there = counted(limit, "partition") if settled else "a partition for each task of its reader"
        return TaskError(
            f"{task} writes to partition {partition!r} of edge {self._edge!r}, which has {there}",
            task=task,
            hint=f"Give a whole number from 0 to {limit - 1:,}." if settled else "Give a whole number of at least 0.",
        )


class WorkerTaskContext:
    """See `weft.graph.task.TaskContext`."""

    def __init__(self, lease: WorkerLease, code: TaskCode, index: int) -> None:
        self.lease = lease
        self.code = code
        self.host: TaskHost = lease.host
        self.vertex = code.vertex
        self.index = index
        self.attempt = lease.attempt
        self.parallelism = code.n
        self.params = code.params
        self.resources = lease.resources
        self.worker = lease.worker
        self.gate = lease.gate
        self.item = code.items[index] if code.items is not None else None
        self.written: dict[str, dict[int, list[Any]]] = {}
        self.streamed: set[str] = set()
        self._asked = 0

    @property
    def verdict(self) -> JobVerdict | None:
        """How the other vertices of the job have ended, for a task of a final vertex."""
        return self.code.verdict

    def out(self, edge: str) -> Any:
        """Return the writer of an output edge."""
        if edge not in self.code.outputs:
            known = ", ".join(self.code.outputs) or "none"
            raise UsageError(f"{self.vertex} has no output edge {edge!r}; its output edges: {known}")
        return _Writer(self, edge, self.code.outputs[edge], edge in self.code.streams)

    def emit(self, name: str, payload: Any = None) -> None:
        """Send a user event to the master."""
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"{self.vertex} emits an event called {name!r}", hint='Give its name as text: ctx.emit("rows", payload)'
            )
        if name.startswith(RESERVED):
            raise UsageError(f"{self.vertex} emits {name!r}: names that begin with {RESERVED!r} are Weft's own")
        check_payload(f"event {name!r} of {self.vertex}", payload, "; large values go through an edge")
        self.host.emit(self.lease.id, self.vertex, self.index, name, payload)

    def started(self) -> None:
        """Report that the own work of this task runs."""
        self.host.emit(self.lease.id, self.vertex, self.index, STARTED, self.lease.id)

    def progress(self, rows: int) -> None:
        """Report `rows` more produced rows."""
        try:
            more = operator.index(rows)
        except TypeError:
            more = -1
        if more < 0:
            raise UsageError(f"{self.vertex} reports {rows!r} rows", hint="Give a whole number of at least 0.")
        self.host.progress(self.lease.id, more)

    def cancelled(self) -> bool:
        """Whether the task should stop."""
        return self.lease.stop

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Register `callback` for the cancellation of the task."""
        lease = self.lease
        if lease.callbacks is None:
            lease.callbacks = []
        lease.callbacks.append(callback)
        if lease.stop:
            callback()

    def drains(self) -> bool:
        """Whether this is a service that was stopped because its last consumer has ended."""
        return bool(self.lease.drains)

    def stops_within(self, seconds: float) -> None:
        """Let a stop of this task take so long."""
        self.lease.patience = int(seconds * 1000)

    def endpoints(self, service: str) -> list[Any]:
        """Wait until every task of a service has emitted its endpoint, and return them by index."""
        while (payloads := self.host.endpoints(service)) is None:
            if self.lease.stop:
                raise RunCancelledError(f"{self.vertex}[{self.index}] was cancelled while it waited for {service}")
            sleep(_ENDPOINT_POLL_S)
        return payloads

    def usage(self, **most: float) -> None:
        """Report the peak usage of this task."""
        used = {}
        for name, value in most.items():
            try:
                used[name] = float(value)
            except (TypeError, ValueError, OverflowError):
                used[name] = math.nan
            if not 0 <= used[name] < math.inf:
                raise UsageError(
                    f"{self.vertex} reports the usage {name}={value!r}", hint="Give a number of at least 0."
                )
        self.host.emit(self.lease.id, self.vertex, self.index, USAGE, used)

    def keep_result(self, recipe: Any, started: float, spoilt: str = "") -> str:
        """Have the cache of the job keep the outputs of this task; return the reason if it does not, or ""."""
        return self.host.keep_result(recipe, started, spoilt)

    def ask_run(self, *question: Any) -> Any:
        """Return the answer of the front end of this run."""
        return self.host.ask_run(question)

    def history(self, vertex: str) -> Sequence[VertexHistory]:
        """Return the durations of a vertex in earlier runs of the same graph, newest first."""
        return self.host.history(vertex)

    def watch(self, vertex: str) -> WatchedVertex:
        """Return a vertex that this one controls, or has patched in."""
        return self.host.watch(self.vertex, vertex)

    def set_resources(self, vertex: str, *alternatives: Resources, because: str = "") -> str:
        """Set the resources of a vertex's tasks that have not started: the first available of `alternatives`."""
        if not alternatives or not all(isinstance(each, Resources) for each in alternatives):
            raise UsageError(
                f"{self.vertex} asks for {alternatives!r} for {vertex}", hint="Give one Resources or more."
            )
        return self._decide("resources", vertex, alternatives, because)

    def set_parallelism(self, vertex: str, n: int, because: str = "") -> str:
        """Set the number of tasks of a vertex that has not started."""
        if isinstance(n, bool) or not isinstance(n, int):
            raise UsageError(f"{self.vertex} asks for {n!r} tasks of {vertex}", hint="Give a whole number.")
        return self._decide("parallelism", vertex, n, because)

    def request(self, name: str, payload: Any = None, because: str = "") -> str:
        """Request something of the controller of the job."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"{self.vertex} requests {name!r} of the controller", hint="Give a name as text.")
        return self._decide("request", "", (name, payload), because)

    def patch(self, change: Patch, because: str = "") -> str:
        """Add vertices and edges to the live graph."""
        if not isinstance(change, Patch):
            raise UsageError(f"{self.vertex} patches with {type_of(change)}", hint="Give a Patch.")
        return self._decide("patch", "", change, because)

    def _decide(self, what: str, vertex: str, value: Any, because: str) -> str:
        """Send a decision to the master, and wait for its reply."""
        self._asked += 1
        token = f"{self.lease.id}.{self.index}.{self._asked}"
        self.host.emit(self.lease.id, self.vertex, self.index, DECIDE, (token, what, vertex, value, because))
        while (reply := self.host.reply(token)) is None:
            if self.lease.stop:
                raise RunCancelledError(f"{self.vertex}[{self.index}] was cancelled")
            sleep(_ENDPOINT_POLL_S)
        return reply

    def close(self, result: Any) -> Any:
        """End the task: return its output for the store.

        Its return value goes to every edge without writes, and is its value if that is kept though no edge reads it
        from the store. For a program of style TASK None is no return value; for a plain function None is a value.
        """
        outputs, streams = self.code.outputs, self.code.streams
        returned = result is not None or self.code.style is Style.FUNCTION
        if self.code.parts:
            result = as_row(result, self.code.width, f"{self.vertex}[{self.index}]")
        if streams:
            for edge in sorted(streams - self.streamed) if returned else ():
                for partition, values in self._pieces(edge, result).items():
                    for value in values:
                        self.host.stream(edge, self.index, partition, value, self)
            self.host.end_streams(self.code, self.index, self)
            if len(streams) == len(outputs):
                return result if self.code.kept else None
        if not self.written and (returned or not outputs):
            return result
        for edge in outputs:
            if edge not in self.written and returned and edge not in streams:
                self.written[edge] = self._pieces(edge, result)
        if self.code.expands:
            self.written[ANSWER] = {0: [result]}
        return EdgeValues(self.written)

    def _pieces(self, edge: str, result: Any) -> dict[int, list[Any]]:
        """Return what a task returned as the values of an edge, by partition."""
        parts = self.code.outputs[edge]
        if parts <= 0:
            return {0: [result.returned() if type(result) is EdgeValues else result]}
        if type(result) is EdgeValues:
            if not result.listed:
                return dict(result.of(edge))
            result = result.returned()
        kind = type_of(result)
        if not hasattr(result, "__len__"):
            raise uneven(f"{self.vertex}[{self.index}]", kind, parts)
        if len(result) != parts:
            raise uneven(f"{self.vertex}[{self.index}]", f"{kind} of {len(result)}", parts)
        return {part: [piece] for part, piece in enumerate(result)}


def uneven(task: str, what: str, parts: int) -> TaskError:
    """Return the error of a task that is read through a shuffle and did not return its pieces."""
    return TaskError(
        f"{task} returned {what}, not one piece for each of {counted(parts, 'partition')}",
        task=task,
        hint="A vertex that is read through a shuffle returns a list with one piece for each partition, or a mapping "
        "{partition: piece} of those that it has.",
    )
