"""Partition pruning: read only the splits of a large side whose keys the small side contains.

Tasks of the small side emit their keys as a user event with a list. When the small side has ended, the manager keeps
the splits of its vertex with a matching key: a thousand splits may become three before any of them is opened. The edge
between the sides only orders. Pruning drops rows without a match, so it suits inner and semi joins, and no outer join
that keeps rows of this side.

A split is dropped only if no key can equal its own. Keys of another kind than those of the splits (text against
numbers) are an error. All splits are read if some task of the small side has not run in this job, since its keys are
unknown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from numbers import Number
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import Schedule, SetParallelism
from weft.engine.policy import Moment, VertexManager, View
from weft.graph.logical import Range
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.engine.decisions import Decision
    from weft.graph.logical import Edge, LogicalGraph, Vertex

MOST_KEYS = 100_000
"""The largest number of keys that are pruned by: the look-ups of more would cost more than they save."""
_KINDS = {Number: "numbers", str: "text", bytes: "bytes", datetime: "times", date: "dates"}


class PartitionPruning(VertexManager):
    """The manager of a vertex whose items are splits.

    `key` is the field, the attribute or the position of a split that holds its key; None if the split is its key.
    With `high`, a split has keys from `key` to `high`, and the event has pairs of a lowest and a highest key; None is
    an open end. `event` is the name of the event with the keys.
    """

    moments = frozenset({Moment.SOURCE_ENDED, Moment.CONFIGURED})
    holds = True

    def __init__(self, key: str | int | None = None, event: str = "keys", high: str | int | None = None) -> None:
        if high is not None and key is None:
            raise GraphError("high is given without key, the field with the lowest key of a split", rule="manager")
        self.key = key
        self.event = event
        self.high = high

    def check(self, vertex: Vertex, inputs: Sequence[Edge], graph: LogicalGraph) -> None:
        """Refuse a vertex without splits or without a small side, and splits without a key."""
        items = vertex.program.items
        if items is None and isinstance(vertex.parallelism, (int, Range)):
            raise GraphError(f"{vertex.id!r} has no items, which its manager could prune", hint="Give items=.")
        if not inputs:
            raise GraphError(
                f"{vertex.id!r} comes after no vertex that could emit {self.event!r}",
                hint="Add after(small_side) to its inputs.",
            )
        for item in items or ():
            self._key_of(vertex.id, item, self.key)
            if self.high is not None:
                self._key_of(vertex.id, item, self.high)

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Keep the splits with a matching key once all sources have ended."""
        unknown = view.n < 0 and view.items is None
        if memo or unknown or view.state == "skipped" or not all(source.ended for source in view.inputs):
            return (), memo
        small = [source for source in view.inputs if view.events.get((source.source, self.event))]
        known = all(source.nbytes >= 0 for source in small)  # each of its tasks has run here, and could emit
        if not small or not known or view.items is None:
            return _reading_all(view), True
        keys = {key for source in small for key in self._emitted(view, source.source)}
        if len(keys) > MOST_KEYS:
            return _reading_all(view), True
        if self.high is not None:
            return _reading(view, self._overlapping(view, keys)), True
        own = [self._key_of(view.vertex, item, self.key) for item in view.items]
        self._check_kinds(view.vertex, keys, own)
        kinds = {_kind_of(key) for key in keys if not _is_null(key)}
        kept = [
            item
            for item, key in zip(view.items, own, strict=True)
            if key in keys or (kinds and not _is_null(key) and _kind_of(key) not in kinds)
        ]
        return _reading(view, kept), True

    def _emitted(self, view: View, source: str) -> list[Any]:
        """Return the keys that the tasks of a source have emitted."""
        found: list[Any] = []
        for payload in view.events[source, self.event]:
            if not isinstance(payload, (list, tuple)):
                raise GraphError(
                    f"{source!r} emitted {payload!r:.100} as {self.event!r}, not a list of keys",
                    subject=view.vertex,
                    rule="manager",
                )
            found += (self._hashed(source, key) for key in payload)
        return found

    def _overlapping(self, view: View, keys: set[Any]) -> list[Any]:
        """Return the splits whose keys may be in one of the ranges `keys`; a split with an open end is among them."""
        for pair in keys:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise GraphError(
                    f"{pair!r:.100} of {self.event!r} is no pair of a lowest and a highest key",
                    subject=view.vertex,
                    rule="manager",
                )
        items = list(view.items or ())
        bounds = [tuple(self._key_of(view.vertex, item, field) for field in (self.key, self.high)) for item in items]
        if any(None in pair for pair in keys):
            return items
        known = [bound for pair in bounds if None not in pair for bound in pair]
        self._check_kinds(view.vertex, {bound for pair in keys for bound in pair}, known)
        lows, highs = _merged(sorted(keys))
        kept = []
        for item, (low, high) in zip(items, bounds, strict=True):
            if low is None or high is None:
                kept.append(item)
                continue
            at = bisect_left(highs, low)
            if at < len(highs) and lows[at] <= high:
                kept.append(item)
        return kept

    def _key_of(self, vertex: str, item: Any, field: str | int | None) -> Any:
        found = item
        if field is not None:
            try:
                indexed = isinstance(item, Mapping) or (isinstance(field, int) and isinstance(item, (list, tuple)))
                found = item[field] if indexed else getattr(item, field)  # type: ignore[arg-type]
            except (LookupError, AttributeError, TypeError):
                raise GraphError(
                    f"a split of {vertex!r} has no {field!r}: {item!r:.200}",
                    subject=vertex,
                    rule="manager",
                    hint="key is a field, an attribute or a position of every item; leave it out if items are keys.",
                ) from None
        return self._hashed(vertex, found)

    def _hashed(self, vertex: str, key: Any) -> Any:
        """Return a key that can be looked up; a list is compared as a tuple, since events have lists alone."""
        try:
            key = _as_tuple(key)
            hash(key)
        except TypeError:
            raise GraphError(
                f"a key of {vertex!r} is {key!r:.100}, which cannot be compared", subject=vertex, rule="manager"
            ) from None
        return key

    def _check_kinds(self, vertex: str, keys: set[Any], own: Sequence[Any]) -> None:
        """Raise GraphError for a key that can equal that of no split, since all of these are of other kinds."""
        examples = {_kind_of(key): key for key in own}
        for key in keys:
            if examples and not _is_null(key) and _kind_of(key) not in examples:
                there = "; ".join(f"{kind}, such as {example!r:.60}" for kind, example in examples.items())
                raise GraphError(
                    f"the key {key!r:.60} is of {_kind_of(key)}, and no split of {vertex!r} has such a key: {there}",
                    subject=vertex,
                    rule="manager",
                    hint="Emit the keys in the form of those of the splits.",
                )


def _reading(view: View, kept: Sequence[Any]) -> tuple[Decision, ...]:
    """Return the decisions that let a task read each of the kept splits."""
    return SetParallelism(view.vertex, len(kept), items=kept), Schedule(view.vertex, len(kept))


def _reading_all(view: View) -> tuple[Decision, ...]:
    """Return the decisions that let a task read each split."""
    return (Schedule(view.vertex, view.n),) if view.n >= 0 else _reading(view, view.items or ())


def _merged(ranges: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the lowest and the highest keys of sorted ranges without overlaps."""
    lows: list[Any] = []
    highs: list[Any] = []
    for low, high in ranges:
        if highs and low <= highs[-1]:
            highs[-1] = max(highs[-1], high)
        else:
            lows.append(low)
            highs.append(high)
    return lows, highs


def _as_tuple(key: Any) -> Any:
    return tuple(map(_as_tuple, key)) if isinstance(key, (list, tuple)) else key


def _is_null(key: Any) -> bool:
    return key is None or (isinstance(key, tuple) and any(map(_is_null, key)))


def _kind_of(key: Any) -> str:
    """Return the name of a kind of keys: keys of two kinds are never equal."""
    if isinstance(key, tuple):
        return f"({', '.join(map(_kind_of, key))})"
    if isinstance(key, datetime) and key.tzinfo is not None:
        return "times with a zone"
    return next((name for kind, name in _KINDS.items() if isinstance(key, kind)), type(key).__name__)
