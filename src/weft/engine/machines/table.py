"""Lifecycle tables: the one helper that all machines use.

A table maps a state to the causes that may move it, and each cause to the state it leads to. What is not in the table
does not happen: `step` raises `InvalidTransition` with the story of the subject. Diagrams and the test that every arc
is exercised are drawn from `arcs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from weft.model.errors import InvalidTransition

S = TypeVar("S", bound=Enum)
Table = Mapping[S, Mapping[str, S]]


def step(table: Table[S], state: S, cause: str, subject: str, story: Callable[[str], tuple[str, ...]]) -> S:
    """Return the state that `cause` leads to; InvalidTransition, with the subject's story, if the table has none."""
    try:
        return table[state][cause]
    except KeyError:
        raise InvalidTransition(
            f"{subject}: no transition from {state.name} on {cause!r}", story=story(subject)
        ) from None


def arcs(table: Table[S]) -> Iterator[tuple[str, str, str]]:
    """Yield (state, cause, next state) of every arc, by name."""
    for state, causes in table.items():
        for cause, target in causes.items():
            yield state.name, cause, target.name


def final(table: Table[S]) -> frozenset[S]:
    """Return the states that nothing leaves."""
    return frozenset(state for state, causes in table.items() if not causes)
