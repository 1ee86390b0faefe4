"""Pickles of Weft's records are read by versions whose classes have other fields, or lie elsewhere."""

import pickle
from enum import Enum
from importlib import import_module
from typing import NamedTuple, get_args

import pytest
from msgspec import Struct

from tests.pickled import weft_modules_in
from weft.durability import pickles
from weft.durability.pickles import to_pickle
from weft.engine import events
from weft.engine.core import WorkerRow
from weft.engine.physical import Intervals
from weft.graph.axes import Axis, AxisOperation, GridMap
from weft.graph.builder import Graph, gather
from weft.graph.grid import Grid, GridPieces, OneToAll
from weft.graph.logical import LogicalGraph, OnFailure, Patch, Retry, Vertex
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, Group, OneToOne, ScatterGather
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


def test_a_record_without_fields_is_read_again():
    class Nothing(NamedTuple):
        """A NamedTuple that has no fields."""

    assert pickles.known_fields(Nothing, {"colour": "red"}) == Nothing()


def test_fields_are_matched_by_name_whatever_their_order():
    """A field that is put before others moves none of them."""
    _, (name, fields) = pickles.by_name(Retry(user=1, memory=5))  # type: ignore[misc]
    assert name == "Retry"
    assert pickles._record(name, dict(reversed(fields.items()))) == Retry(user=1, memory=5)


def test_a_row_without_one_of_its_fields_is_refused():
    row = Intervals()
    row.add(2, 5)
    assert list(from_pickle(to_pickle(row))) == [(2, 5)]
    _, (name,), fields, *_ = pickles.by_name(row)  # type: ignore[misc]
    with pytest.raises(TypeError, match="a Intervals lacks count"):
        pickles._fill(pickles._blank(name), {"spans": fields["spans"]})


def test_a_class_is_written_by_its_name_so_that_it_may_move(monkeypatch):
    patch = Patch((Vertex("a/b", Program("m:f")),))
    data = pickle.dumps(pickles.by_name(patch)[1])  # type: ignore[index]
    assert weft_modules_in(pickle.dumps(pickles.by_name(WorkerRow(1, "n")))) == {"weft.durability.pickles"}
    assert pickle.loads(data)[0] == "Patch"
    monkeypatch.setattr(pickles, "_MODULES", {"Patch": __name__})  # as if it had moved here
    assert pickles._class_of("Patch") is Patch


def test_a_class_that_has_been_renamed_is_found(monkeypatch):
    patch = Patch((Vertex("a/b", Program("m:f")),))
    data = to_pickle(patch)
    assert data.count(b"\x8c\x05Patch") == 1
    written = data.replace(b"\x8c\x05Patch", b"\x8c\x05Ditch")
    with pytest.raises(ProgramError, match="this version of Weft has no class 'Ditch'"):
        from_pickle(written)
    monkeypatch.setitem(pickles.RENAMED, "Ditch", "Patch")
    assert from_pickle(written) == patch


NOT_WRITTEN = {"FailureRow", "Growth", "Hooks", "Moment", "InputView", "View", "AttemptView", "WatchView"}
NOT_WRITTEN |= {"WorkerView", "BlameView", "ControllerView", "ControlledTask", "ControlledBubble"}
NOT_WRITTEN |= {"PhysicalEdge"}  # a snapshot has its fields: see weft.durability.snapshot
NOT_WRITTEN |= {"LaunchEach", "LeaseRows"}  # written one by one
NOT_WRITTEN |= {kind.__name__ for kind in get_args(events.Event)} - {"Requested"}
"""Records that live within one call or are written apart, in modules of which others are written."""


@pytest.mark.parametrize("module", pickles.DECLARED)
def test_the_records_of_a_module_are_declared(module):
    """A new record is declared, or it is never in a graph or in the state of a job."""
    names = pickles.DECLARED[module]
    known = vars(import_module(module)).items()
    own = {name: kind for name, kind in known if isinstance(kind, type) and kind.__module__ == module}
    assert all(own[name].__qualname__ == name for name in names)
    records = {
        name
        for name, kind in own.items()
        if not name.startswith("_") and (issubclass(kind, Struct | Enum) or hasattr(kind, "_fields"))
    }
    assert records - NOT_WRITTEN <= set(names)
    assert not NOT_WRITTEN & set(names)


def test_a_declared_name_is_that_of_one_class():
    names = [name for names in pickles.DECLARED.values() for name in names]
    assert len(set(names)) == len(names)


AXES = GridMap((4,), (4,), (Axis(AxisOperation.COPY, source=0),))


@pytest.mark.parametrize(
    "router",
    [
        *(OneToOne(4, 4), Group(4, 2, 2), Broadcast(4, 2), ScatterGather(4, 2), OneToAll(1, 4), Grid(AXES, 4, 4)),
        *(GridPieces(AXES, 4, 4), Rectangles(4, 2, [[(0, 2, 0, 1)], [(0, 4, 1, 2), (2, 4, 0, 1)]])),
    ],
    ids=lambda router: type(router).__name__,
)
def test_a_router_is_made_again(router):
    found = from_pickle(to_pickle(router))
    assert type(found) is type(router)
    assert (found.n_src, found.n_dst, found.partitions) == (router.n_src, router.n_dst, router.partitions)
    assert (found.wide, found.single, found.group) == (router.wide, router.single, router.group)
    assert [found.inputs(dst) for dst in range(router.n_dst)] == [router.inputs(dst) for dst in range(router.n_dst)]
    assert [found.consumers(src) for src in range(router.n_src)] == [router.consumers(i) for i in range(router.n_src)]
    assert weft_modules_in(pickle.dumps(pickles.by_name(router)[1][:1])) == set()  # type: ignore[index]


def test_values_of_others_are_pickled_as_ever():
    assert pickles.by_name(3) is None
    assert pickles.by_name((1, 2)) is None
    assert from_pickle(to_pickle({"x": [WorkerRow(1, "n"), {2}]})) == {"x": [WorkerRow(1, "n"), {2}]}
