"""The contract of a task: what a program is given and what it may do.

A plain function is the common case and needs nothing from here: `f(*inputs, **params)`. A program of style TASK is
called as `run(ctx, inputs)`: `inputs` maps each input edge's id to an `Input`, an iterator of batches with `.all()`;
results leave through `ctx.out(edge).write(partition, value)` or as the return value, which goes to every output edge.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from weft.model.errors import ProgramError

if TYPE_CHECKING:
    from weft.model.program import Program
    from weft.model.resources import Resources


class Input(Protocol):
    """One input edge as a task sees it."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the values in the order of the source tasks, as they come."""
        ...

    def all(self) -> list[Any]:
        """Wait for and return all values in the order of the source tasks."""
        ...


class Output(Protocol):
    """One output edge as a task sees it."""

    def write(self, partition: int, value: Any) -> None:
        """Append `value` to `partition` (0 where the movement has none). Blocks while a stream's buffer is full."""
        ...


class TaskContext(Protocol):
    """What a running task may ask and say. All of it is safe to call from the task's own thread."""

    vertex: str
    index: int
    attempt: int
    parallelism: int
    params: Mapping[str, Any]
    resources: Resources

    def out(self, edge: str) -> Output:
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


def resolve(program: Program) -> Callable[..., Any]:
    """Return the callable of a program; ProgramError names what cannot be imported and why."""
    target = program.target
    if callable(target):
        return target
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise ProgramError(
            f"program {target!r} is not of the form 'module:function'", hint="Write 'package.module:function'."
        )
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # an import runs the user's code, which may raise anything
        raise ProgramError(
            f"program {target!r} cannot be imported: {type(error).__name__}: {error}",
            hint="Check the name, and that the module can be imported where the workers run.",
        ) from error
    if not callable(found):
        raise ProgramError(f"program {target!r} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]
