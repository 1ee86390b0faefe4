"""Bubbles by the names of their settings: which of them a session takes by estimate."""

import pytest

from weft.graph.builder import Graph, shuffle
from weft.wiring.bubbles import fitting


@pytest.mark.parametrize(("blocking", "groups"), [(False, (("read", "join"),)), (True, ())])
def test_a_bubble_that_only_holds_slots_longer_is_not_taken_by_estimate(blocking, groups):
    """Workers of a session are warm, so a reader that first waits for all rows gains nothing."""
    g = Graph("query")
    rows = g.map(len, ["a", "b"], name="read")
    g.task(lambda ctx, inputs: None, shuffle(rows, 2, blocking=blocking), n=2, name="join")
    assert fitting(g, "greedy", 4).groups == (("read", "join"),)
    assert fitting(g, "cost", 4).groups == groups
