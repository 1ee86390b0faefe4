"""The words that users of pipelines see: a projection of the engine's states, in one table.

There is no state machine here: whatever the engine says, one look in `WORDS` answers. A step that never began is
`cancelled` where one that did is `terminated` or `failed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from enum import Enum


class Words(NamedTuple):
    """How one state of the engine is called: of a run, of a step that began, of one that never did."""

    run: str = ""
    began: str = ""
    never_began: str = ""


WORDS = {
    #  state of the engine   a run           a step that began   one that never did
    "new":            Words("pending"),
    "running":        Words("running",     "running",          "running"),
    "failing":        Words("running"),
    "cancelling":     Words("terminating"),
    "succeeded":      Words("succeeded"),
    "configuring":    Words("",            "init",             "init"),
    "configured":     Words("",            "pending",          "pending"),
    "draining":       Words("",            "terminating",      "terminating"),
    "done":           Words("",            "succeeded",        "succeeded"),
    "done_early":     Words("",            "succeeded",        "succeeded"),
    "skipped":        Words("",            "skipped",          "skipped"),
    "failed":         Words("failed",      "failed",           "cancelled"),
    "cancelled":      Words("terminated",  "terminated",       "cancelled"),
}  # fmt: skip
"""Keys are the values of the engine's job and vertex states, which share no word with two meanings."""


class PipelineWords:
    """`WORDS` as a projection for `weft.runtime.records`."""

    def run(self, state: Enum) -> str:
        """Return the word for a state of a job."""
        return WORDS[state.value].run

    def step(self, state: Enum, *, started: bool) -> str:
        """Return the word for a state of a vertex; `started`: a task of it was given to a worker once."""
        words = WORDS[state.value]
        return words.began if started else words.never_began
