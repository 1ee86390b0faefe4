"""The floor of a stage pair: its bodies and the reads of its pieces, in a loop that is nobody's engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.bodies import PIECES, add_both, pieces
from benchmarks.harness import expect, timed


def stage() -> dict[str, float]:
    """Call 300 functions that return 300 pieces each, and 300 that add up one piece of each of them."""

    def run() -> list[int]:
        rows = [pieces(index) for index in range(300)]
        return [add_both([row[reader] for row in rows]) for reader in range(PIECES)]

    wanted = [sum(i * PIECES + p for i in range(300)) for p in range(PIECES)]
    return timed(run, lambda found: expect(found, wanted), rehearse=True)


CASES: Mapping[str, Callable[[], dict[str, float]]] = {"stage": stage}
