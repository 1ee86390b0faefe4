"""Graphs that grow in a loop."""

import weft
from weft.graph.logical import Patch

ROUNDS = 400


def again(number: int) -> Patch:
    graph = weft.Graph("round")
    if number == ROUNDS:
        graph.add(lambda: ROUNDS, name="loop/end", keep=True)
    else:
        graph.add(again, name=f"loop/round-{number + 1}", params={"number": number + 1}, expands=True)
    return Patch.of(graph)


def test_a_loop_has_as_many_rounds_as_it_needs():
    graph = weft.Graph("loop")
    graph.add(again, name="loop", params={"number": 0}, expands=True)
    with weft.Session(backend="threads", workers=1) as session:
        assert session.run(graph).value("loop/end") == ROUNDS
