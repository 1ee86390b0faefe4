"""The contract of a task: what a program is given and what it may do.

A plain function is the common case and needs nothing from here: `f(*inputs, **params)`. A program of style TASK is
called as `run(ctx, inputs)`: `inputs` maps each input edge's id to an `TaskInput`, an iterator of batches with
`.all()`; results leave through `ctx.out(edge).write(partition, value)` or as the return value, which goes to every
output edge.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from weft.model.errors import ProgramError, RunCancelledError
from weft.model.program import is_named

if TYPE_CHECKING:
    from weft.graph.logical import Patch
    from weft.model.program import Program
    from weft.model.resources import Resources

AnyProgram = TypeVar("AnyProgram", bound=Callable[..., Any])

RESERVED = "weft."
"""How the names of events begin that users do not emit themselves."""
DECIDE = "weft.decide"
"""The event of a control vertex that asks for a change."""
USAGE = "weft.usage"
"""The event of a task that says what it used."""


class VertexHistory(NamedTuple):
    """What a vertex took in an earlier run of the same graph.

    `ended_at` is in seconds since 1970; `seconds` and `nbytes` are means for a task (-1: not known), `rows` is the sum
    where rows were counted, `resources` what its tasks asked for, `usage` the most that any of them said it used.
    """

    vertex: str
    ended_at: float
    tasks: int
    seconds: float
    nbytes: float
    rows: int
    resources: tuple[Resources, ...]
    usage: Mapping[str, float]


class WatchedVertex(NamedTuple):
    """A vertex as its control vertex sees it; the fields are those of `weft.engine.view.VertexView`.

    `events` are (name, index, payload) of what its tasks emitted, oldest first, the last 1,000 of them; `usage` is the
    most that any task said it used.
    """

    state: str
    n: int
    finished: int
    seconds: float
    nbytes: float
    events: tuple[tuple[str, int, Any], ...]
    usage: Mapping[str, float]


class TaskInput(Protocol):
    """One input edge as a task sees it."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the values in the order of the source tasks, as they come."""
        ...

    def all(self) -> list[Any]:
        """Wait for and return all values in the order of the source tasks."""
        ...


class TaskOutput(Protocol):
    """One output edge as a task sees it."""

    def write(self, partition: int, value: Any) -> None:
        """Append `value` to `partition` (0 where the movement has none). Blocks while a stream's buffer is full.

        TaskError: the edge has no such partition.
        """
        ...


class CommitBarrier(Protocol):
    """What a task passes before it does anything that others could notice: what it follows from is durable then."""

    @property
    def is_open(self) -> bool:
        """Whether nobody need wait, and all may pass."""
        ...

    def wait(self) -> bool:
        """Wait until it is open; False: it is not to be passed, since what the task follows from cannot be durable."""
        ...


class TaskContext(Protocol):
    """What a running task may ask and say. All of it is safe to call from the task's own thread.

    `gate` is None, or there for a program that is marked with `prepares`.
    """

    vertex: str
    index: int
    attempt: int
    parallelism: int
    params: Mapping[str, Any]
    item: Any
    resources: Resources
    gate: CommitBarrier | None

    def out(self, edge: str) -> TaskOutput:
        """Return the writer of the output edge with this id."""
        ...

    def emit(self, name: str, payload: Any = None) -> None:
        """Send a user event (JSON-able payload, at most 64 KiB) to the master."""
        ...

    def progress(self, rows: int) -> None:
        """Say that `rows` more rows were produced."""
        ...

    def cancelled(self) -> bool:
        """Whether the task should stop; long loops ask this."""
        ...

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Have `callback` called (from another thread) when the task is cancelled; at once if it already is."""
        ...

    def endpoints(self, service: str) -> list[Any]:
        """Wait until every task of a SERVICE vertex has said `emit("endpoint", payload)`; return these by index."""
        ...

    def usage(self, **most: float) -> None:
        """Say the most that this task used, such as `memory=` in bytes, to control vertices of this and later runs."""
        ...

    def keep_result(self, recipe: Any, started: float, spoilt: str = "") -> str:
        """Have the cache of the job keep the outputs of this task, which has a cache key; return why not, or "".

        `recipe` says what the result depends on and where its outputs lie, as the cache of the job reads it; it must be
        picklable. `started` is when the task began, in seconds since 1970, `spoilt` a reason known here not to keep it.
        A job without a cache keeps nothing and returns "".
        """
        ...

    # What follows is for control vertices: services with an order-only edge to the vertices that they control.

    def history(self, vertex: str) -> Sequence[VertexHistory]:
        """Return what a vertex took in earlier runs of the same graph, newest first; empty where no session kept it."""
        ...

    def watch(self, vertex: str) -> WatchedVertex:
        """Look at a vertex that this one controls, or has patched in. NotFoundError: there is none of that name."""
        ...

    def set_resources(self, vertex: str, *alternatives: Resources, because: str = "") -> str:
        """Have tasks of a vertex that have not started take the first of `alternatives` that can be had.

        This and the next two return "" when it was done, else why it was rejected; `because` is kept for `explain`.
        """
        ...

    def set_parallelism(self, vertex: str, n: int, because: str = "") -> str:
        """Have a vertex that has not started have `n` tasks."""
        ...

    def patch(self, change: Patch, because: str = "") -> str:
        """Add vertices, whose ids begin with this one's and a slash, and edges to the live graph."""
        ...


def prepares(program: AnyProgram) -> AnyProgram:
    """Mark a program of style TASK that passes `ctx.gate` by itself: what it does before is not to be noticed."""
    program.prepares = True  # type: ignore[attr-defined]
    return program


def does_prepare(program: Callable[..., Any]) -> bool:
    """Whether a program is marked with `prepares`."""
    return getattr(program, "prepares", False) is True


def pass_gate(gate: CommitBarrier | None) -> None:
    """Wait until a gate is open. RunCancelledError: it is not to be passed."""
    if gate is not None and not gate.wait():
        raise RunCancelledError("it was not started: what it follows from cannot be made durable")


def resolve(program: Program) -> Callable[..., Any]:
    """Return the callable of a program; ProgramError names what cannot be imported and why."""
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
    except BaseException as error:  # an import runs the user's code, which may raise anything, SystemExit too
        raise ProgramError(
            f"program {target!r} cannot be imported: {type(error).__name__}: {error}",
            hint="Check the name, and that the module can be imported where the workers run.",
        ) from error
    if not callable(found):
        raise ProgramError(f"program {target!r} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]
