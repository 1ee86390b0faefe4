"""Checks of the arguments of sessions and runs. An error names the argument, the given value and the allowed values.

Each function returns the value in its final form, or raises UsageError.
"""

from __future__ import annotations

import math
import operator
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.graph.logical import LogicalGraph

FOREVER_S: Final = 1e9
"""More seconds than any wait, and fewer than clocks and locks can count."""
MOST_PRIORITY: Final = 1_000_000
"""The highest priority; its negative is the lowest one."""


def wrong(name: str, value: object, wanted: str, hint: str = "") -> UsageError:
    """Return the error for an argument, a flag or a setting that is not `wanted`."""
    return UsageError(f"{name} is {shown(value)}; it must be {wanted}", hint=hint)


def shown(value: object) -> str:
    """Format a value as Python source; a long value is cut."""
    text = repr(str(value) if isinstance(value, Path) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def whole(name: str, value: object, *, lo: int, hi: int | None = 999_999) -> int:
    """Check a whole number from `lo` to `hi` (None: without a limit) of any numeric library."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < lo or (hi is not None and number > hi):
        raise wrong(name, value, f"a whole number from {lo} {'on' if hi is None else f'to {hi}'}")
    return number


def rank(name: str, value: object) -> int:
    """Check a priority: a whole number, of any sign."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST_PRIORITY:
        raise wrong(name, value, f"a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}")
    return value


def seconds(name: str, value: object) -> float:
    """Check a duration in seconds; values above `FOREVER_S`, infinity included, become `FOREVER_S`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        raise wrong(name, value, "a number of seconds from 0 on")
    return float(min(value, FOREVER_S))


def patience(name: str, value: object) -> float | None:
    """Check a time limit in seconds; None is no limit."""
    return None if value is None else seconds(name, value)


def truth(name: str, value: object, *, unset: bool = False) -> bool | None:
    """Check True or False; with `unset` None is allowed too."""
    if value is None and unset:
        return None
    if not isinstance(value, bool):
        raise wrong(name, value, "True, False or None" if unset else "True or False")
    return value


def text(name: str, value: object) -> str:
    """Check text."""
    if not isinstance(value, str):
        raise wrong(name, value, "text")
    return value


def functions(name: str, value: object) -> None:
    """Check a sequence of functions."""
    if not isinstance(value, (list, tuple)) or not all(map(callable, value)):
        raise wrong(name, value, "a list of functions")


def folder(name: str, value: object, wanted: str = "the path of a folder") -> Path:
    """Check the path of a folder, which may be missing; `~` is the home folder of the user."""
    found = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(found, str) or not found or "\0" in found:
        raise wrong(name, value, wanted)
    try:
        return Path(found).expanduser().absolute()
    except RuntimeError:  # no such user
        raise wrong(name, value, wanted, hint="There is no such user; begin the path with / or ./") from None


def graph(call: str, value: object) -> LogicalGraph:
    """Check the graph argument of a method of a session."""
    from weft.graph.logical import LogicalGraph  # settings use this module too, and need no graph

    if isinstance(value, LogicalGraph):
        return value
    of: Any = getattr(value, "graph", None)
    hint = "Make one: weft.Graph(...)"
    if isinstance(of, LogicalGraph):
        hint = "Pass the graph that the node belongs to."
    elif callable(value):
        hint = "Call a function by weft.remote.spawn(f, args=(x,)), and for many items by session.map(f, items)."
    raise UsageError(f"{call} takes a graph, and was given {shown(value)}", hint=hint)
