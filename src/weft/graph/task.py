"""The contract of a task: the inputs of a program and the methods of its context.

A plain function is the common case and needs nothing from this module: `f(*inputs, **params)`. A program of style TASK
is called as `run(ctx, inputs)`: `inputs` maps the id of each input edge to a `TaskInput`, an iterator of batches with
`.all()`. Results leave through `ctx.out(edge).write(partition, value)`, or as the return value, which goes to every
output edge.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct

from weft.model.errors import ProgramError, RunCancelledError
from weft.model.program import is_named
from weft.model.resources import Resources  # noqa: TC001 (`help` evaluates the fields of records)
from weft.model.wording import type_of

if TYPE_CHECKING:
    from weft.graph.logical import Patch
    from weft.graph.task_spec import JobVerdict
    from weft.model.program import Program

AnyProgram = TypeVar("AnyProgram", bound=Callable[..., Any])

RESERVED = "weft."
"""The prefix of events that only Weft emits, not users."""
DECIDE = "weft.decide"
"""The event of a control vertex that asks for a change of the graph."""
USAGE = "weft.usage"
"""The event of a task that reports its usage."""
STARTED = "weft.started"
"""The event of a task whose own work has started; its payload is the lease."""


class VertexHistory(Struct, frozen=True):
    """The costs of a vertex in an earlier run of the same graph.

    `ended_at` is in seconds since 1970; `seconds` and `nbytes` are means for a task (-1: unknown), `rows` is the sum if
    rows were counted. `resources` are those that its tasks asked for, `usage` the maximum that its tasks reported.
    """

    vertex: str
    ended_at: float
    tasks: int
    seconds: float
    nbytes: float
    rows: int
    resources: tuple[Resources, ...]
    usage: Mapping[str, float]


class WatchedVertex(Struct, frozen=True):
    """The state of a vertex for its control vertex; the fields are those of `weft.engine.view.VertexView`.

    `events` are the last 1,000 events of its tasks as (name, index, payload), oldest first; `usage` is the maximum that
    its tasks reported.
    """

    state: str
    n: int
    finished: int
    seconds: float
    nbytes: float
    events: tuple[tuple[str, int, Any], ...]
    usage: Mapping[str, float]


class TaskInput(Protocol):
    """One input edge of a running task."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the values in the order of the source tasks, as they arrive."""
        ...

    def all(self) -> list[Any]:
        """Wait for and return all values in the order of the source tasks."""
        ...


class TaskOutput(Protocol):
    """One output edge of a running task."""

    def write(self, partition: int, value: Any) -> None:
        """Append `value` to `partition` (0 without partitions). Blocks while the buffer of a stream is full.

        TaskError: the edge has no such partition.
        """
        ...


class CommitBarrier(Protocol):
    """The wait of a task before its first visible effect, until the records of its inputs are durable."""

    @property
    def is_open(self) -> bool:
        """Whether the records are durable, so that no task need wait."""
        ...

    def wait(self) -> bool:
        """Wait until the barrier is open. False: the records cannot become durable, and the task must not go on."""
        ...


class TaskContext(Protocol):
    """The context of a running task. All methods may be called from the thread of the task.

    `gate` is the commit barrier of a program that is marked with `prepares`, else None. `worker` is the number of the
    slot of the task.
    """

    vertex: str
    index: int
    attempt: int
    parallelism: int
    params: Mapping[str, Any]
    item: Any
    resources: Resources
    gate: CommitBarrier | None
    worker: int

    @property
    def verdict(self) -> JobVerdict | None:
        """How the other vertices of the job have ended, for a task of a final vertex; else None."""
        ...

    def out(self, edge: str) -> TaskOutput:
        """Return the writer of the output edge with the id `edge`."""
        ...

    def emit(self, name: str, payload: Any = None) -> None:
        """Send a user event (JSON-able payload, at most 64 KiB) to the master."""
        ...

    def progress(self, rows: int) -> None:
        """Report that `rows` more rows were produced."""
        ...

    def cancelled(self) -> bool:
        """Whether the task should stop; a long loop checks this now and then."""
        ...

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Register `callback`, called from another thread when the task is cancelled; at once if it already is."""
        ...

    def drains(self) -> bool:
        """Whether this is a service that was stopped because its last consumer has ended: it may finish what they asked
        for. False after a cancel, also one that comes later.
        """
        ...

    def stops_within(self, seconds: float) -> None:
        """Let a stop of this task take so long, if that is more than the grace period: it has to end processes."""
        ...

    def endpoints(self, service: str) -> list[Any]:
        """Wait until every task of a SERVICE vertex has emitted `"endpoint"`; return the payloads by index."""
        ...

    def started(self) -> None:
        """Report that the own work of this task runs, after its preparations: a controller sees it running then."""
        ...

    def usage(self, **most: float) -> None:
        """Report the maximum that this task used, such as `memory=` in bytes.

        Control vertices of this and later runs read it.
        """
        ...

    def keep_result(self, recipe: Any, started: float, spoilt: str = "") -> str:
        """Keep the outputs of this task in the cache of the job, by its cache key. Return why that failed, or "".

        `recipe` lists what the result depends on and where its outputs lie, in the form of the cache of the job; it
        must be picklable. `started` is the start of the task in seconds since 1970, `spoilt` a known reason against
        keeping the outputs. A job without a cache keeps nothing and returns "".
        """
        ...

    def ask_run(self, *question: Any) -> Any:
        """Return the answer of the front end of this run, in the process that owns the run: see `RunHost.answer`.

        Question and answer are plain data that can be pickled. Errors of the front end are raised here.
        """
        ...

    # The methods below are for control vertices: services with an order-only edge to the vertices that they control.

    def history(self, vertex: str) -> Sequence[VertexHistory]:
        """Return the costs of a vertex in earlier runs of the same graph, newest first; empty without records."""
        ...

    def watch(self, vertex: str) -> WatchedVertex:
        """Return the state of a vertex that this one controls or has added. NotFoundError: no such vertex."""
        ...

    def set_resources(self, vertex: str, *alternatives: Resources, because: str = "") -> str:
        """Give the tasks of a vertex that have not started the first of `alternatives` that a worker can provide.

        This and the next three methods return "" on success, else the reason of the rejection, and `explain` shows
        `because`.
        """
        ...

    def set_parallelism(self, vertex: str, n: int, because: str = "") -> str:
        """Set the number of tasks of a vertex that has not started to `n`."""
        ...

    def request(self, name: str, payload: Any = None, because: str = "") -> str:
        """Request something of the controller of the job, as its users do; the payload is JSON-able."""
        ...

    def patch(self, change: Patch, because: str = "") -> str:
        """Add vertices and edges to the live graph. New vertex ids begin with the id of this vertex and a slash."""
        ...


def prepares(program: AnyProgram) -> AnyProgram:
    """Mark a program of style TASK that passes `ctx.gate` by itself and has no visible effect before that."""
    program.prepares = True  # type: ignore[attr-defined]
    return program


def does_prepare(program: Callable[..., Any]) -> bool:
    """Whether a program is marked with `prepares`."""
    return getattr(program, "prepares", False) is True


def pass_gate(gate: CommitBarrier | None) -> None:
    """Wait until a commit barrier is open. RunCancelledError: the records of the inputs cannot become durable."""
    if gate is not None and not gate.wait():
        raise RunCancelledError("not started: the records of its inputs cannot be made durable")


def resolve(program: Program) -> Callable[..., Any]:
    """Return the callable of a program. ProgramError: the target cannot be imported; the error says why."""
    target = program.target
    if callable(target):
        return target
    if not is_named(target):
        raise ProgramError(
            f"program {target!r} is not of the form 'module:function'", hint="Write 'package.module:function'."
        )
    module_name, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # An import runs code of the user, which may raise anything, even SystemExit.
        raise ProgramError(
            f"program {target!r} cannot be imported: {type(error).__name__}: {error}",
            hint="Check the name, and that the module can be imported where the workers run.",
        ) from error
    if not callable(found):
        raise ProgramError(f"program {target!r} is {type_of(found)}, not a function")
    if runs_later(found):
        raise ProgramError(f"program {target!r} {LATER}", hint=LATER_HINT)
    return found  # type: ignore[no-any-return]


_LATER: Final = 0x20 | 0x80 | 0x200
"""The flags of generators, coroutines and asynchronous generators: CO_GENERATOR and so on in `inspect`, which takes
longer to load than all that is here.
"""
LATER: Final = "is a generator or `async def`, whose call returns no value that others could read"
LATER_HINT: Final = "Return a list instead of yielding; inside a plain function use asyncio.run(...)."


def runs_later(function: Any) -> bool:
    """Whether a call of a function does not run its body."""
    if type(function) is FunctionType:
        return bool(function.__code__.co_flags & _LATER)
    while hasattr(function, "func"):
        function = function.func  # of a partial
    return bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & _LATER)
