"""Which items a vertex can read by their place."""

from __future__ import annotations

from collections.abc import Mapping


def is_labelled(items: object) -> bool:
    """Return whether `items[i]` may be another item than the one at place i: mappings, and series and frames.

    Labels of a series may be numbers. Such items are read by their iteration.
    """
    return isinstance(items, Mapping) or hasattr(items, "keys") or hasattr(items, "columns")
