"""Decisions as people read them, in the notes of which stories and explanations are made."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import (
    ApplyPatch,
    Choose,
    Emit,
    Fail,
    Finish,
    Schedule,
    SetEdge,
    SetParallelism,
    SetResources,
)

if TYPE_CHECKING:
    from weft.engine.decisions import Decision

_LONGEST = 200


def told(decision: Decision, subject: str) -> str:
    """Say what a decision is, in a note about `subject`; nobody has checked yet whether it makes sense."""
    about = getattr(decision, "vertex", subject)
    text = _said(decision)
    return text if about == subject else f"{about}: {text}"


def tasks(n: Any) -> str:
    """Write a number of tasks."""
    if isinstance(n, bool) or not isinstance(n, int):
        return f"{_short(n)} tasks"
    return "1 task" if n == 1 else f"{n:,} tasks"


def _said(decision: Decision) -> str:
    if isinstance(decision, SetParallelism):
        return tasks(decision.n) + (", each with its share of the inputs" if decision.routers else "")
    if isinstance(decision, Schedule):
        return f"{tasks(decision.n)} may start"
    if isinstance(decision, SetResources):
        return f"its tasks ask for {_alternatives(decision.resources)}"
    if isinstance(decision, SetEdge):
        return f"edge {decision.edge} {_edge(decision)}"
    if isinstance(decision, Emit):
        payload = "" if decision.payload is None else f" with {_short(decision.payload)}"
        return f"emit {_short(decision.name)}{payload}"
    if isinstance(decision, Choose):
        return f"choice {decision.choice} takes branch {decision.branch}"
    if isinstance(decision, Finish):
        return f"end now: {decision.reason}"
    if isinstance(decision, Fail):
        return f"fail: {decision.reason}"
    if isinstance(decision, ApplyPatch):
        return _patch(decision.patch)
    return type(decision).__name__


def _alternatives(resources: Any) -> str:
    try:
        return " or ".join(map(str, resources))
    except (TypeError, ValueError):
        return _short(resources)


def _edge(decision: SetEdge) -> str:
    parts = []
    if decision.scheduling is not None:
        parts.append("concurrent" if decision.scheduling.concurrent else "sequential")
    if decision.storage is not None:
        parts.append(f"stored {decision.storage.value}")
    return " and ".join(parts) or "as it is"


def _patch(patch: Any) -> str:
    parts = [
        f"{len(found):,} {name}"
        for name in ("vertices", "edges", "bubbles", "choices")
        if isinstance(found := getattr(patch, name, None), Sized) and isinstance(found, Sequence) and found
    ]
    return f"a patch of {', '.join(parts)}" if parts else f"a patch: {_short(patch)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
