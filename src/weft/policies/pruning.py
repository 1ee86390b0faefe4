"""Partition pruning: read only the splits of a large side whose keys the small side contains.

Tasks of the small side emit their keys as a user event with a list. When the small side has ended, the manager keeps
the splits of its vertex with a matching key: a thousand splits may become three before any of them is opened. The edge
between the sides only orders. Pruning drops rows without a match, so it suits inner and semi joins, and no outer join
that keeps rows of this side.
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
"""The largest number of keys that are pruned by: the look-ups of more would cost more than they save."""


class PartitionPruning:
    """The manager of a vertex whose items are splits; `key` is the field or the position that holds a split's key."""

    moments = frozenset({Moment.SOURCE_ENDED})
    holds = True
    counts = False

    def __init__(self, key: str | int, event: str = "keys") -> None:
        self.key = key
        self.event = event

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Keep the splits with a matching key once all sources have ended."""
        if memo or view.n < 0 or not all(source.ended for source in view.inputs):
            return (), memo
        emitted = [payload for (_, name), payloads in view.events.items() if name == self.event for payload in payloads]
        keys = {key for payload in emitted for key in payload}
        if not emitted or len(keys) > MOST_KEYS or view.items is None:
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
