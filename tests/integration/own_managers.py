"""A manager and a router of a user, which are registered when this module is imported."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft
from weft.engine.decisions import Decision, Schedule
from weft.graph.routing import CUSTOM, Piece, Router

if TYPE_CHECKING:
    from weft.engine.policy import View


@weft.register_manager("tests.one_more")
class OneMore(weft.VertexManager):
    """Lets `first` tasks start, then one more each time that all of these have ended."""

    moments = frozenset({weft.Moment.STARTED, weft.Moment.CONFIGURED, weft.Moment.FINISHED})
    holds = True

    def __init__(self, first: int = 1) -> None:
        self.first = first

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Let one more start than the last time."""
        if view.n < 0 or view.over < view.released:
            return (), memo
        wave = self.first if memo is None else memo + 1
        return [Schedule(view.vertex, min(view.n, view.released + wave))], wave


class Reversed(Router):
    """Task i reads task n - 1 - i."""

    single = True

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        """See `Router.inputs`."""
        return ((self.n_src - 1 - dst, self.n_src - dst, 0, 1),)

    def consumers(self, src: int) -> tuple[tuple[int, int], ...]:
        """See `Router.consumers`."""
        return ((self.n_dst - 1 - src, self.n_dst - src),)


CUSTOM["tests.reversed"] = lambda n_src, n_dst, params: Reversed(n_src, n_dst)


def wait_for(number: int, folder: str) -> int:
    """Return a number, after the file `hold` in a folder is gone; leave a mark."""
    while number > 3 and Path(folder, "hold").exists():
        time.sleep(0.005)
    Path(folder, f"done-{number}-{time.monotonic_ns()}").touch()
    return number


def build(folder: str) -> tuple[weft.Graph, weft.VertexHandle]:
    """Return a graph of ten tasks that a manager lets go, and their values in the opposite order."""
    graph = weft.Graph("own")
    first = graph.map(
        "tests.integration.own_managers:wait_for",
        range(10),
        params={"folder": folder},
        name="first",
        manager=weft.Manager("tests.one_more", {"first": 2}),
    )
    return graph, graph.add("builtins:int", weft.custom(first, "tests.reversed"), n=10, name="last")
