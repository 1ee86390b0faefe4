"""The words that users of pipelines see: a projection of the engine's states, in one table.

There is no state machine here: whatever the engine says, one look in `WORDS` answers. A step that never began is
`cancelled` where one that did is `terminated` or `failed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

    from weft.graph.logical import Vertex

_BODIES = ("weft.frontends.pipelines.body:", "weft.frontends.pipelines.repeating:")
_COMPONENTS = ("run_step", "nothing", "repeat")


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
    "configuring":    Words("",            "pending",          "pending"),
    "configured":     Words("",            "pending",          "pending"),
    "draining":       Words("",            "terminating",      "terminating"),
    "done":           Words("",            "succeeded",        "succeeded"),
    "done_early":     Words("",            "succeeded",        "succeeded"),
    "skipped":        Words("",            "skipped",          "skipped"),
    "failed":         Words("failed",      "failed",           "cancelled"),
    "cancelled":      Words("terminated",  "terminated",       "cancelled"),
}  # fmt: skip
"""Keys are the values of the engine's job and vertex states, which share no word with two meanings."""


def worst(states: Iterable[str]) -> str:
    """Return the word for a run from those for its parts: failed if one is, else terminated if one is."""
    found = list(states)
    return next((word for word in ("failed", "terminated") if word in found), found[0])


class PipelineWords:
    """`WORDS` as a projection for `weft.runs.records`."""

    def run(self, state: Enum) -> str:
        """Return the word for a state of a job."""
        return WORDS[state.value].run

    def step(self, state: Enum, *, started: bool) -> str:
        """Return the word for a state of a vertex; `started`: a task of it was given to a worker once."""
        words = WORDS[state.value]
        return words.began if started else words.never_began

    def subject(self, vertex: Vertex) -> tuple[str, bool]:
        """Return what users call the component that a vertex belongs to, and whether the vertex is that itself.

        The name is empty where there is none. A vertex of another kind of graph goes by its own id.
        """
        target = vertex.program.target
        if not isinstance(target, str) or not target.startswith(_BODIES):
            return vertex.id, True
        return vertex.program.params.get("name", ""), target.rpartition(":")[2] in _COMPONENTS
