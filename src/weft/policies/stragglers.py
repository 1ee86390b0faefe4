"""The speculation policy: tasks far slower than their input bytes explain run a second time on an idle worker.

A lease is late when it has taken `times` as long as its vertex usually needs for as many tasks and as many bytes: bytes
count, so that a task with ten times the input is not mistaken for a slow one. The usual time is the median of the
latest estimates, since one late report distorts a single estimate. A comparison needs most of the vertex's other tasks
to be done (`done`). At most `share` of the workers, and two, run second attempts at a time, and no task gets more than
`most`. The thresholds are those of the field: Spark's quantile and multiplier, Flink's weighting by input bytes, Tez's
bound on the number of copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import BackUp, WeighTasks
from weft.engine.policy import Moment, VertexManager
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.engine.decisions import Decision
    from weft.engine.policy import AttemptView, WatchView

_SAMPLES = 9


class Stragglers(VertexManager):
    """Gives second attempts to late leases of a job; its input is a `WatchView`.

    `floor_s` is the minimal duration of a late lease in seconds.
    """

    moments: frozenset[Moment] = frozenset()

    def __init__(
        self, times: float = 2.0, floor_s: float = 0.25, done: float = 0.75, share: float = 0.1, most: int = 2
    ) -> None:
        if times <= 1 or floor_s < 0 or not 0 < done <= 1 or not 0 < share <= 1 or most < 1:
            raise GraphError(
                f"stragglers want times > 1, floor_s >= 0, done and share between 0 and 1, and most >= 1, not {times}, "
                f"{floor_s}, {done}, {share} and {most}",
                rule="manager",
            )
        self.times = times
        self.floor_s = floor_s
        self.done = done
        self.share = share
        self.most = most

    def decide(self, view: Any, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Return decisions to back up late leases, the latest first, and to weigh leases that seem late.

        The memo has the first time that each lease was `seen`, and the latest estimates of a task's `seconds` by
        vertex, each with the number of finished tasks behind it.
        """
        return self._decide(view, memo or {"seen": {}, "seconds": {}})

    def _decide(self, view: WatchView, old: Mapping[str, Any]) -> tuple[Sequence[Decision], Any]:
        seen = {a.lease: old["seen"].get(a.lease, view.now) for a in view.attempts}
        seconds = dict(old["seconds"])
        for a in view.attempts:
            known = seconds.get(a.vertex, ())
            if a.seconds >= 0 and a.hi > a.lo and (not known or known[-1][0] != a.finished):
                seconds[a.vertex] = (*known[1 - _SAMPLES :], (a.finished, a.seconds / (a.hi - a.lo)))
        room = max(2, ceil(self.share * view.workers)) - view.backups
        late: list[tuple[float, AttemptView, str]] = []
        decisions: list[Decision] = []
        for a in view.attempts:
            others = a.n - (a.hi - a.lo)
            if a.backed or a.backups >= self.most or a.finished < self.done * others or not seconds.get(a.vertex):
                continue
            from statistics import median  # needed by few jobs, and slow to load

            usual = median(each for _, each in seconds[a.vertex]) * (a.hi - a.lo)
            taken = view.now - seen[a.lease]
            if taken <= max(self.floor_s, self.times * usual * max(a.weight, 1.0)):
                continue
            if not a.weight:
                decisions.append(WeighTasks(a.lease))
                continue
            reads = f" for {a.weight:.2g} times the usual bytes" if a.weight != 1.0 else ""
            late.append((taken / max(usual, 1e-9), a, f"{taken:.3g} s, {usual:.3g} s are usual{reads}"))
        late.sort(key=lambda each: (-each[0], each[1].lease))
        decisions += [BackUp(a.lease, why) for _, a, why in late[: max(0, room)]]
        return decisions, {"seen": seen, "seconds": seconds}
