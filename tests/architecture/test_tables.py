"""Every arc of the four lifecycles is taken by some job, and nothing moves along any other way; docs/states is current."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.scenarios import WORDS
from tests.simulation.world import random_session
from weft.engine import failures, gangs, readiness
from weft.engine.core import Core
from weft.engine.machines.job import JOB, JobState
from weft.engine.machines.table import arcs, step
from weft.engine.machines.task import COMPOSITES, TASK, TaskState
from weft.engine.machines.vertex import VERTEX, VertexState
from weft.engine.master import Master
from weft.model.errors import InternalError
from weft.testing import states
from weft.testing.trial import random_trial

ROOT = Path(__file__).parents[2]
SEEDS = 150


class Watch:
    """Notes each step of job, vertex and bubble, and how the rows of tasks differ from one `handle` to the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: Counter[tuple[str, str, str]] = Counter()
        self.moves: Counter[tuple[TaskState, TaskState]] = Counter()
        for module in (failures, gangs, readiness):
            monkeypatch.setattr(module, "step", self._step)
        watch, handle = self, Master.handle

        def watched(self: Master, events: Iterable[Any]) -> list[Any]:
            before = rows(self.core)
            try:
                return handle(self, events)
            finally:
                watch.compare(before, rows(self.core))

        monkeypatch.setattr(Master, "handle", watched)

    def _step(self, table: Any, state: Any, cause: str, subject: str, story: Any) -> Any:
        self.steps[(type(state).__name__, state.name, cause)] += 1
        return step(table, state, cause, subject, story)

    def compare(self, before: dict[str, bytes], after: dict[str, bytes]) -> None:
        for vertex, new in after.items():
            old = before.get(vertex)
            if old == new or old is None or len(old) != len(new):
                old = bytes(len(new))  # rows that are new begin UNSCHEDULED
            if old != new:
                self.moves.update(
                    (TaskState(a), TaskState(b)) for a, b in zip(old, new, strict=True) if a != b
                )
