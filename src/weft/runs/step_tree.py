"""The tree of the steps of a run: dags with their steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from weft.runs.reading import RunRecord, StepRecord
from weft.runs.records import ACTIVE, INTERRUPTED

_WORST: Final = ("failed", "terminated", "cancelled", INTERRUPTED)


def tree(run: RunRecord) -> list[tuple[int, StepRecord]]:
    """Return the steps of a run with their dags, each dag before its steps, and the depth of each.

    A step `dag.step` is inside `dag`. A dag has failed, or was terminated or cancelled, if a step inside was; it is
    active as long as a step inside is.
    """
    known = {step.name: step for step in run.steps}
    inside: dict[str, dict[str, None]] = {}
    for name in known:
        parent = name.rpartition(".")[0]
        while name not in inside.setdefault(parent, {}):
            inside[parent][name] = None
            name = parent
            parent = name.rpartition(".")[0]
            if not name:
                break
    found: list[tuple[int, StepRecord]] = []

    def add(name: str, depth: int) -> None:
        at = len(found)
        own = known.get(name)
        found.append((depth, own or StepRecord(name=name)))
        for child in inside.get(name, ()):
            add(child, depth + 1)
        below = [step for level, step in found[at + 1 :] if level == depth + 1]
        if below:
            found[at] = depth, _dag(name, [own, *below] if own is not None else below, own, run.pauses)

    for name in inside.get("", ()):
        add(name, 0)
    return found


def _dag(
    name: str, parts: Sequence[StepRecord], own: StepRecord | None, pauses: Sequence[tuple[float, float]]
) -> StepRecord:
    states = {part.state for part in parts}
    active = states & (ACTIVE | {"pending"})
    if active:
        state = "pending" if states <= {"pending"} else "terminating" if "terminating" in states else "running"
    else:
        state = next((word for word in _WORST if word in states), "succeeded" if "succeeded" in states else "skipped")
    began = min((part.started for part in parts if part.started is not None), default=None)
    ended = max((part.ended for part in parts if part.ended is not None), default=None) if not active else None
    return StepRecord(
        name=name,
        state=state,
        started=began,
        ended=ended,
        open_end=any(part.open_end for part in parts),
        paused_s=0.0 if began is None else _paused(pauses, began, math.inf if ended is None else ended),
        message=_reason(name, parts) if state in ("skipped", "cancelled") else "" if own is None else own.message,
    )


def _reason(name: str, parts: Sequence[StepRecord]) -> str:
    """Return why no step of a dag began: its own reason, the one that a step has from it, or the one of all steps."""
    own = [part.message for part in parts if part.name == name]
    inside = [part.message.removeprefix(f"{name}: ") for part in parts if part.message.startswith(f"{name}: ")]
    same = {part.message for part in parts}
    return next((message for message in (*own, *inside, *(same if len(same) == 1 else ())) if message), "")


def _paused(pauses: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Return the seconds between `begin` and `end` that lie in pauses."""
    return sum(max(0.0, min(last, end) - max(first, begin)) for first, last in pauses)
