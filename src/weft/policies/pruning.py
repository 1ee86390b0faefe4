"""Pruning: let the small side say which splits of the big side are read at all.

The small side's tasks emit the keys that they have met (a user event with a list). When it has ended, only the splits
of the managed vertex whose key is among them are kept: a thousand become three, before one of them was opened. The
edge between the two orders and moves nothing. Rows that no key matches must not matter to whoever reads on: inner and
semi joins allow this, outer joins on this side do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import Schedule, SetParallelism
from weft.engine.policy import Moment, View
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.engine.decisions import Decision

MOST_KEYS = 100_000
"""Above this many keys nothing is pruned: looking them up would cost more than it saves."""


class Pruning:
    """The manager of a vertex whose items are splits; `key` is the field or the position that holds a split's key."""

    moments = frozenset({Moment.SOURCE_ENDED})
    holds = True
    counts = False

    def __init__(self, key: str | int, event: str = "keys") -> None:
        self.key = key
        self.event = event

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Keep the splits that somebody asked for, once everybody has."""
        if memo or view.n < 0 or not all(source.ended for source in view.inputs):
            return (), memo
        said = [payload for (_, name), payloads in view.events.items() if name == self.event for payload in payloads]
        keys = {key for payload in said for key in payload}
        if not said or len(keys) > MOST_KEYS or view.items is None:
            return (Schedule(view.vertex, view.n),), True
        kept = [item for item in view.items if self._key_of(view.vertex, item) in keys]
        return (SetParallelism(view.vertex, len(kept), items=kept), Schedule(view.vertex, len(kept))), True

    def _key_of(self, vertex: str, item: Any) -> Any:
        try:
            return item[self.key] if isinstance(item, (dict, list, tuple)) else item  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            raise GraphError(
                f"a split of {vertex!r} has no {self.key!r}: {item!r}", subject=vertex, rule="manager"
            ) from None
