"""Programs: the target and parameters that a task runs.

The target is an importable name `"module:function"`, or a callable for work that stays on one machine (it travels to
local worker processes by reference if it can be imported, else by value). `graph/task.py` defines the call of a
program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct, field

NO_PARAMS: Mapping[str, Any] = {}


def is_named(target: str) -> bool:
    """Return whether `text` may name a function: `"package.module:function"`, with dots for members of a class."""
    module, _, path = target.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *path.split(".")))


class Style(Enum):
    """The ways to call a target."""

    FUNCTION = "function"
    """`target(*inputs, **params)`: one positional argument per input edge; all output edges get the return value."""
    TASK = "task"
    """`target(ctx, inputs)`: the full contract, `weft.graph.task.TaskContext`."""


class Program(Struct):
    """A target, keyword parameters, and optionally one item for each task as first argument."""

    target: str | Callable[..., Any]
    params: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMS)  # shared, never written
    items: Sequence[Any] | None = None
    style: Style = Style.FUNCTION

    @property
    def name(self) -> str:
        """A short name for messages and drawings."""
        if isinstance(self.target, str):
            return self.target
        return getattr(self.target, "__qualname__", None) or repr(self.target)
