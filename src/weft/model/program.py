"""Programs: what a task runs.

A program is data: a target and parameters. The target is an importable name `"module:function"`, or a callable for
work that stays on one machine (it travels to local worker processes by reference where it can be imported, by value
where not). `graph/task.py` says how a program is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct, field

NO_PARAMS: Mapping[str, Any] = {}


def is_named(target: str) -> bool:
    """Tell whether text may name a function: `"package.module:function"`, with dots for what lies inside a class."""
    module, _, path = target.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *path.split(".")))


class Style(Enum):
    """How the target is called."""

    FUNCTION = "function"
    """`target(*inputs, **params)`: one positional argument an input edge, the return value goes to all output edges."""
    TASK = "task"
    """`target(ctx, inputs)`: the full contract, `weft.graph.task.TaskContext`."""


class Program(Struct):
    """What a task runs: target, keyword parameters, and optionally one item for each task as first argument."""

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
