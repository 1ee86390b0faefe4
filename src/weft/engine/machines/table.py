"""Lifecycle tables: the one helper of all machines.

A table maps a state to the causes that may move it, and each cause to the next state. For any other cause `step` raises
`InvalidTransition` with the history of the subject. Diagrams, and the test that every arc is exercised, use `arcs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from weft.model.errors import InvalidTransition

S = TypeVar("S", bound=Enum)
Table = Mapping[S, Mapping[str, S]]


def step(table: Table[S], state: S, cause: str, subject: str, story: Callable[[str], tuple[str, ...]]) -> S:
    """Return the next state for `cause`. InvalidTransition, with the history of the subject: the table has none."""
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
    """Return the states without exit."""
    return frozenset(state for state, causes in table.items() if not causes)
