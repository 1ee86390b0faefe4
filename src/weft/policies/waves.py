"""Waves: start only as many tasks of a wide vertex as its consumer needs.

A LIMIT over four thousand files rarely needs four thousand tasks. The first wave has one task. Each further wave is
sized by the rows per finished task, times 1.5, and has at least `growth` times the tasks of the last wave. With enough
rows the vertex emits `event`, which lets its consumer start, and ends without the remaining tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import Emit, Finish, Schedule
from weft.engine.policy import Moment, VertexManager, View
from weft.model.errors import GraphError
from weft.policies.shuffle import TARGET_BYTES, ShuffleManager

if TYPE_CHECKING:
    from weft.engine.decisions import Decision
    from weft.graph.logical import Edge, LogicalGraph, Vertex


class WaveManager(VertexManager):
    """The manager of a vertex that ends after `rows` rows: `num_rows` of a task's value, else its `len`, else 1."""

    moments = frozenset({Moment.STARTED, Moment.CONFIGURED, Moment.FINISHED})
    holds = True
    counts = True

    def __init__(self, rows: int, event: str = "enough", first: int = 1, growth: int = 4) -> None:
        for name, value, least in (("rows", rows, 0), ("first", first, 1), ("growth", growth, 2)):
            if value < least:
                raise GraphError(f"{name} is {value}; at least {least} is allowed", rule="manager")
        self.rows = rows
        self.event = event
        self.first = first
        self.growth = growth

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Start a wave when the last one has ended, and end with enough rows. The memo is the size of the last wave, 0
        after the end.
        """
        if view.n < 0 or view.lost or memo == 0:  # rows of lost tasks are counted: wait until they are made again
            return (), memo
        if view.rows >= self.rows or view.finished >= view.n:
            enough = Emit(view.vertex, self.event)
            if view.finished >= view.n:
                return (enough,), 0
            return (enough, Finish(view.vertex, f"{view.rows:,} rows of {self.rows:,} wanted")), 0
        if not view.released:
            return (Schedule(view.vertex, min(self.first, view.n)),), self.first
        if max(view.finished, view.over) < view.released:
            return (), memo
        wave = self.growth * memo
        if view.rows:
            missing = (self.rows - view.rows) / (view.rows / view.finished)
            wave = max(wave, ceil(1.5 * missing))
        return (Schedule(view.vertex, min(view.released + wave, view.n)),), wave


class ShuffleWaves(VertexManager):
    """The manager of a vertex that reads shuffles, and of whose rows a consumer needs `rows`.

    Its number of tasks is that of `ShuffleManager` with `target` and `join`; they start as those of `WaveManager` do.
    """

    moments = WaveManager.moments | ShuffleManager.moments
    holds = True
    counts = True

    def __init__(
        self,
        rows: int,
        event: str = "enough",
        first: int = 1,
        growth: int = 4,
        target: int = TARGET_BYTES,
        *,
        join: str = "",
    ) -> None:
        self._waves = WaveManager(rows, event, first, growth)
        self._shuffle = ShuffleManager(target, join=join)

    def check(self, vertex: Vertex, inputs: Sequence[Edge], graph: LogicalGraph) -> None:
        """Refuse what `ShuffleManager` refuses."""
        self._shuffle.check(vertex, inputs, graph)

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Set the number of tasks when all sources have ended, then start waves; the memo is that of the waves."""
        if view.state == "configuring":
            return self._shuffle.decide(view, None)[0], memo
        return self._waves.decide(view, memo)
