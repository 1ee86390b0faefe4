"""Projections: the users' words for the states of the engine, one table for each front end.

A projection is no state machine: a word is one look into the table. A step that never began is `cancelled` in states
for which a step that began is `terminated` or `failed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

if TYPE_CHECKING:
    from enum import Enum


class StateWords(Struct, frozen=True):
    """The words for one state of the engine: of a run, of a step that began, of a step that never began."""

    run: str = ""
    began: str = ""
    never_began: str = ""


STATES: Final[Mapping[str, StateWords]] = {
    #  state of the engine   a run                a step that began   a step that never began
    "new":            StateWords("pending"),
    "running":        StateWords("running",     "running",          "running"),
    "failing":        StateWords("running"),
    "cancelling":     StateWords("terminating"),
    "concluding":     StateWords("running"),
    "ending":         StateWords("running"),
    "succeeded":      StateWords("succeeded"),
    "configuring":    StateWords("",            "pending",          "pending"),
    "configured":     StateWords("",            "pending",          "pending"),
    "draining":       StateWords("",            "terminating",      "terminating"),
    "done":           StateWords("",            "succeeded",        "succeeded"),
    "done_early":     StateWords("",            "succeeded",        "succeeded"),
    "skipped":        StateWords("",            "skipped",          "skipped"),
    "failed":         StateWords("failed",      "failed",           "cancelled"),
    "cancelled":      StateWords("terminated",  "terminated",       "cancelled"),
}  # fmt: skip
"""The keys are the values of the engine's job and vertex states; a value that both have means the same in both."""


class Projection(Struct, frozen=True):
    """The words of one front end for `states`.

    `warning` names the user event whose payload becomes the message of its step, if the step succeeds, `news` one whose
    payload is the message of a step that runs. `not_run` names the event of a task that skips itself or the members of
    its choice, with the reason as its payload. `final` stands for all final vertices in sentences, and `empty` is the
    reason of a step without tasks.
    """

    frontend: str
    states: Mapping[str, StateWords] = field(default_factory=lambda: STATES)
    warning: str = ""
    news: str = ""
    not_run: str = ""
    final: str = "the final part"
    empty: str = "it has no tasks"

    def run(self, state: Enum | str) -> str:
        """Return the word for a state of a job."""
        return self.states[state if isinstance(state, str) else state.value].run

    def step(self, state: Enum, *, started: bool) -> str:
        """Return the word for a state of a vertex; `started`: a worker got a task of it at least once."""
        words = self.states[state.value]
        return words.began if started else words.never_began


GRAPHS: Final = Projection("graph")
"""The words for graphs that a program has built by hand, and for front ends without words of their own."""
