"""Pickles of Weft's records are read by versions whose classes have other fields, or lie elsewhere."""

import pytest

from weft.durability import pickles
from weft.durability.pickles import to_pickle
from weft.engine.core import WorkerRow
from weft.engine.physical import Intervals
from weft.graph.builder import Graph, gather
from weft.graph.logical import LogicalGraph, OnFailure, Patch, Retry, Vertex
from weft.model.errors import ProgramError
from weft.model.program import Program
from weft.store.codec import from_pickle


def test_a_graph_comes_back_with_what_is_in_it():
    made = Graph("g", on_failure=OnFailure.CONTINUE)
    made.add(lambda parts: parts, gather(made.add("m:f", n=3, name="a")), name="b", retry=Retry(user=2))
    graph = made.copy()
    found = from_pickle(to_pickle(graph))
    assert type(found) is LogicalGraph
    target = found.vertices["b"].program.target
    assert callable(target)
    assert target(7) == 7
    for each in (found, graph):
        each.vertices["b"].program.target = "m:g"
    assert vars(found) == vars(graph)


def test_fields_that_are_not_known_are_passed_over_and_missing_ones_take_their_defaults():
    written = {"id": "a", "program": Program("m:f"), "retry": Retry(user=1), "colour": "red"}
    assert pickles.known_fields(Vertex, written) == Vertex("a", Program("m:f"), retry=Retry(user=1))
    assert vars(pickles.known_fields(LogicalGraph, {"name": "g", "colour": "red"})) == vars(LogicalGraph("g"))
    with pytest.raises(TypeError, match="program"):
        pickles.known_fields(Vertex, {"id": "a"})


def test_fields_are_matched_by_name_whatever_their_order():
    """A field that is put before others moves none of them."""
    _, (name, fields) = pickles.by_name(Retry(user=1, memory=5))  # type: ignore[misc]
    assert name == "weft.graph.logical:Retry"
    assert pickles._record(name, dict(reversed(fields.items()))) == Retry(user=1, memory=5)


def test_a_row_without_one_of_its_fields_is_refused():
    row = Intervals()
    row.add(2, 5)
    assert list(from_pickle(to_pickle(row))) == [(2, 5)]
    _, (name,), fields, *_ = pickles.by_name(row)  # type: ignore[misc]
    with pytest.raises(TypeError, match="a Intervals lacks count"):
        pickles._fill(pickles._blank(name), {"spans": fields["spans"]})


def test_a_class_that_has_moved_is_found(monkeypatch):
    data = to_pickle(Patch((Vertex("a/b", Program("m:f")),)))
    was, now = b"weft.graph.logical:Patch", b"weft.graph.logical:Ditch"
    assert data.count(was) == 1
    with pytest.raises(ProgramError, match="Ditch"):
        from_pickle(data.replace(was, now))
    monkeypatch.setitem(pickles.MOVED, now.decode(), was.decode())
    assert from_pickle(data.replace(was, now)) == Patch((Vertex("a/b", Program("m:f")),))


def test_values_of_others_are_pickled_as_ever():
    assert pickles.by_name(3) is None
    assert pickles.by_name((1, 2)) is None
    assert from_pickle(to_pickle({"x": [WorkerRow(1, "n"), {2}]})) == {"x": [WorkerRow(1, "n"), {2}]}
