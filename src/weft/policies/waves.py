"""Waves: start no more of a wide vertex than its consumer needs.

A LIMIT over four thousand files rarely needs four thousand tasks. The first wave is one task; each next one is sized
by the rows that tasks have given so far, with half as much again, and at least `growth` times the last. When there
are enough rows the vertex emits `event`, which lets its consumer start, and ends; what was never needed was never
made. Larger first waves (1, 10, all) start thousands of tasks when a dozen would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import Emit, Finish, Schedule
from weft.engine.policy import Moment, View
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.engine.decisions import Decision


class Waves:
    """The manager of a vertex of which `rows` rows are enough."""

    moments = frozenset({Moment.STARTED, Moment.FINISHED})
    holds = True
    counts = True

    def __init__(self, rows: int, event: str = "enough", first: int = 1, growth: int = 4) -> None:
        if rows < 0 or first < 1 or growth < 2:
            raise GraphError(
                f"waves want rows >= 0, first >= 1 and growth >= 2, not {rows}, {first} and {growth}", rule="manager"
            )
        self.rows = rows
        self.event = event
        self.first = first
        self.growth = growth

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Start the next wave when the last one is done; say when there is enough. The memo is the last wave's size."""
        if view.n < 0 or view.lost:  # what is lost was counted as rows: wait until it is there again
            return (), memo
        if view.rows >= self.rows or view.finished >= view.n:
            enough = Emit(view.vertex, self.event)
            if view.finished >= view.n:
                return (enough,), memo
            return (enough, Finish(view.vertex, f"{view.rows:,} rows of {self.rows:,} wanted")), memo
        if not view.released:
            return (Schedule(view.vertex, min(self.first, view.n)),), self.first
        if max(view.finished, view.over) < view.released:
            return (), memo
        wave = self.growth * memo
        if view.rows:
            missing = (self.rows - view.rows) / (view.rows / view.finished)
            wave = max(wave, ceil(1.5 * missing))
        return (Schedule(view.vertex, min(view.released + wave, view.n)),), wave
