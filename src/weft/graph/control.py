"""The answers of a pure function that controls a job for a front end; `weft.policies.reconcile` calls it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class AnswerKind(Enum):
    """The kinds of answers."""

    START = "start"
    """Let tasks `lo:hi` of a controlled vertex run."""
    STOP = "stop"
    """Stop these tasks; `text` is the reason."""
    CONCLUDE = "conclude"
    """End the job with `outcome`: succeeded, failed or cancelled; `text` is the reason, `task` the task to blame."""
    WAKE = "wake"
    """Ask again at `at`, in seconds since 1970."""


class ControlAnswer(NamedTuple):
    """One answer; the fields that its kind does not use are empty."""

    kind: AnswerKind
    vertex: str = ""
    lo: int = 0
    hi: int = 0
    text: str = ""
    outcome: str = ""
    task: str = ""
    at: float = 0.0
