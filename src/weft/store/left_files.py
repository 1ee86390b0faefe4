"""The contents in which the items of a step have left files that are no outputs."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from weft.store.opened import WROTE

if TYPE_CHECKING:
    from weft.store.entries import CacheIndex, Entry


class LeftFiles:
    """Which runs of a step have left which files with which content, by the kept results. Safe for threads.

    It is read from the index when it is first asked for, and again when other processes have added results.
    """

    def __init__(self, index: CacheIndex) -> None:
        self._index = index
        self._mutex = threading.Lock()
        self._seen: dict[str, tuple[int, int]] = {}
        self._runs: dict[tuple[str, str, str, str], set[str]] = {}

    def has(self, pipeline: str, step: str, name: str, text: str, runs: Collection[str]) -> bool:
        """Whether an item of a step has left a file with a content, given as a leaf, in one of some runs."""
        with self._mutex:
            if self._seen.get(pipeline) != (count := self._index.count()):
                for entry in self._index.entries(pipeline=pipeline):
                    self._take(entry)
                self._seen[pipeline] = count
            return not self._runs.get((pipeline, step, name, text), set()).isdisjoint(runs)

    def add(self, entry: Entry) -> None:
        """Add a result that was just kept."""
        with self._mutex:
            if entry.pipeline in self._seen:
                self._take(entry)
                self._seen[entry.pipeline] = self._index.count()

    def _take(self, entry: Entry) -> None:
        for name, text in entry.leaves.items():
            if name.startswith(WROTE):
                self._runs.setdefault((entry.pipeline, entry.step, name, text), set()).add(entry.run)
