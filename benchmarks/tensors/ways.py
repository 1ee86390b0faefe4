"""How a case is run, in either environment: on threads or processes, for its time or for its peak of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.harness import peak_gb

Run = Callable[[], Any]
Check = Callable[[Any], None]
"""Raises AssertionError if what a run has returned is wrong."""


class Way(NamedTuple):
    """`measure(run, check)` returns the figures of a case; `hold` computes arrays that are its result.

    `given` is called with an array that is in memory before a case begins, and returns it where tasks read it.
    """

    measure: Callable[[Run, Check], dict[str, float]]
    hold: Callable[..., Any]
    given: Callable[[Any], Any] = lambda x: x


def near(wanted: float, within: float) -> Check:
    """Return a check that a number is as far from `wanted` as `within` at most."""

    def check(found: Any) -> None:
        if not abs(float(found) - wanted) <= within:
            raise AssertionError(f"a wrong result: {found}, not {wanted} within {within}")

    return check


def peak(run: Run, check: Check) -> dict[str, float]:
    """Return the most memory, in GB, that a process of its own has held when it has run once."""
    found = run()
    most = peak_gb()
    check(found)
    return {"gb": most}
