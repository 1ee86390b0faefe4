"""Launches survive their form in bytes, and equal launches have equal bytes."""

from __future__ import annotations

import pickle
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack, structs

from tests.properties.test_routers import grid_maps
from weft.engine.commands import Launch
from weft.engine.launch_wire import decode_launch, encode_launch
from weft.graph.grid import Grid, GridPieces, OneToAll
from weft.graph.lease import Cone
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, Group, OneToOne, Router, ScatterGather
from weft.graph.task_spec import EdgeSpec, JobVerdict, TaskSpec
from weft.graph.task_wire import decode_spec, encode_spec
from weft.model.errors import GraphError
from weft.model.program import NO_PARAMS, Program, Style
from weft.model.resources import ONE_SLOT, Resources

names = st.text(max_size=6)
counts = st.integers(0, 6)
seconds = st.floats(0, 1e9)


def placed(pieces: list[tuple[int, int, int, int]]) -> tuple[tuple[int, int, int, int], ...]:
    return tuple((min(a, b), max(a, b), min(c, d), max(c, d)) for a, b, c, d in pieces)


routers: st.SearchStrategy[Router] = st.one_of(
    st.builds(OneToOne, counts, counts),
    st.builds(OneToAll, st.just(1), counts),
    st.builds(Broadcast, counts, counts),
    st.builds(ScatterGather, counts, counts),
    st.integers(1, 4).flatmap(lambda k: counts.map(lambda n: Group(n, -(-n // k), k))),
    st.lists(st.lists(st.tuples(counts, counts, counts, counts), max_size=3).map(placed), max_size=3).map(
        lambda pieces: Rectangles(6, 6, pieces)
    ),
    grid_maps().map(lambda grid: Grid(grid, prod(grid.src), prod(grid.dst))),
    grid_maps().map(lambda grid: GridPieces(grid, prod(grid.src), prod(grid.dst))),
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=4)
    | st.binary(max_size=4)
    | st.sampled_from([range(3), 1 + 2j, len, "\ud800", frozenset({1})]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 3), inner, max_size=3)
    ),
    max_leaves=6,
)
programs = st.builds(
    Program,
    names | st.sampled_from([len, prod]),
    st.dictionaries(names, values, max_size=3),
    st.none() | st.lists(values, max_size=3) | st.just(range(7)),
    st.sampled_from(Style),
)
resources = st.builds(
    Resources, st.sampled_from([0, 1, 2.5]), counts, counts, names, st.lists(st.tuples(names, counts)).map(tuple)
)
edges = st.builds(
    EdgeSpec,
    *(names, names, counts, counts, names, counts, counts, st.none() | routers, st.integers(-1, 6)),
    *[st.booleans()] * 5,
)
edge_lists = st.lists(edges, max_size=2).map(tuple)
specs = st.builds(
    TaskSpec,
    *(names, counts, programs, resources, edge_lists, edge_lists, counts, st.integers(-1, 3)),
    *(st.lists(names, max_size=2).map(tuple), *[st.booleans()] * 4, st.none() | seconds),
    st.none() | st.builds(JobVerdict, names, names, st.lists(names, max_size=2).map(tuple)),
)
pairs = st.lists(st.tuples(counts, counts), max_size=2).map(tuple)
cones = st.builds(
    Cone,
    st.lists(names, max_size=3).map(tuple),
    st.lists(counts, max_size=3).map(tuple),
    st.lists(pairs, max_size=3).map(tuple),
    height=counts,
    linear=st.booleans(),
    held_bytes=counts,
)
launches = st.tuples(
    *(st.integers(-1, 9), counts, names, counts, counts, st.none() | cones, counts, resources, counts, counts),
    st.lists(specs, min_size=1, max_size=2).map(tuple),
).map(lambda fields: Launch(*fields))


def edge_facts(edge: EdgeSpec) -> dict[str, Any]:
    router = edge.router
    facts = None
    if router is not None:
        reads = [router.inputs(dst) for dst in range(router.n_dst)]
        facts = type(router), router.n_src, router.wide, router.single, router.group, router.partitions, reads
    return structs.asdict(edge) | {"router": facts}


def spec_facts(spec: TaskSpec) -> dict[str, Any]:
    return structs.asdict(spec) | {
        "inputs": [edge_facts(edge) for edge in spec.inputs],
        "outputs": [edge_facts(edge) for edge in spec.outputs],
    }


def cone_facts(cone: Cone | None) -> Any:
    return None if cone is None else [getattr(cone, name) for name in Cone.__slots__]


@given(launches)
def test_launches_survive(launch):
    data = encode_launch(launch, pickle.dumps)
    found = decode_launch(data, pickle.loads)
    assert structs.replace(found, cone=None, specs=()) == structs.replace(launch, cone=None, specs=())
    assert cone_facts(found.cone) == cone_facts(launch.cone)
    assert list(map(spec_facts, found.specs)) == list(map(spec_facts, launch.specs))


@given(launches)
def test_equal_launches_have_equal_bytes(launch):
    data = encode_launch(launch, pickle.dumps)
    assert encode_launch(decode_launch(data, pickle.loads), pickle.dumps) == data


def spec_with(program: Program, *inputs: EdgeSpec, needs: Resources = ONE_SLOT) -> TaskSpec:
    return TaskSpec("a", 1, program, needs, inputs, (), 0, 0, (), False, False, False, False, None)


def edge_with(router: Router) -> EdgeSpec:
    return EdgeSpec("a->b", "a", 1, 0, "b", 1, 0, router, 0)


def test_types_and_order_of_params_survive():
    params = {"b": (1, [2, (3,)]), "a": {"z": 1.0, "y": True}}
    found = decode_spec(encode_spec(spec_with(Program("m:f", params)), pickle.dumps), pickle.loads)
    assert repr(found.program.params) == repr(params)
    empty = decode_spec(encode_spec(spec_with(Program("m:f")), pickle.dumps), pickle.loads)
    assert empty.program.params is NO_PARAMS


def test_equal_numbers_of_cores_have_equal_bytes():
    one, also_one = (spec_with(Program("m:f"), needs=Resources(cpu=cpu)) for cpu in (1, 1.0))
    assert encode_spec(one, pickle.dumps) == encode_spec(also_one, pickle.dumps)


def test_only_what_messagepack_lacks_is_pickled():
    pickled: list[Any] = []

    def keep(value: Any) -> bytes:
        pickled.append(value)
        return pickle.dumps(value)

    encode_spec(
        spec_with(Program("m:f", {"a": [1, "é\n"], "b": (None, b"x"), "c": range(2), "d": [1j, 1 << 70]})), keep
    )
    assert pickled == [1j, 1 << 70]


def test_endless_values_are_pickled_whole():
    loop: list[Any] = []
    loop.append(loop)
    found = decode_spec(encode_spec(spec_with(Program("m:f", {"x": loop})), pickle.dumps), pickle.loads)
    inner = found.program.params["x"]
    for _ in range(100):
        inner = inner[0]
    assert len(inner) == 1


def test_a_changed_function_is_refused_before_it_is_loaded():
    data = encode_spec(spec_with(Program(prod)), pickle.dumps)
    assert data.count(b"prod") == 1
    with pytest.raises(GraphError, match="digest"):
        decode_spec(data.replace(b"prod", b"fsum"), lambda data: pytest.fail("it was loaded"))


def test_custom_routers_have_no_form():
    class Own(Broadcast):
        pass

    with pytest.raises(GraphError, match="a->b has the router Own"):
        encode_spec(spec_with(Program("m:f"), edge_with(Own(1, 1))), pickle.dumps)


@pytest.mark.parametrize("router", [[], ["other", 1, 1], ["group", 1, 1], ["grid", 1, 1, {"src": 1}]])
def test_unknown_routers_are_refused(router):
    form = msgpack.decode(encode_spec(spec_with(Program("m:f"), edge_with(OneToOne(1, 1))), pickle.dumps))
    form["inputs"][0]["router"] = router
    with pytest.raises(GraphError, match="a->b has a router of no known form"):
        decode_spec(msgpack.encode(form), pickle.loads)


def test_other_bytes_are_refused():
    launch = Launch(0, 1, "a", 0, 1, None, 0, ONE_SLOT, specs=(spec_with(Program("m:f")),))
    form = msgpack.decode(encode_launch(launch, pickle.dumps))
    for data in (
        b"",
        b"\xc1",
        msgpack.encode([1]),
        msgpack.encode(form | {"lo": "0"}),
        msgpack.encode(form | {"x": 1}),
    ):
        with pytest.raises(GraphError, match="no launch"):
            decode_launch(data, pickle.loads)
    with pytest.raises(GraphError, match="version 2"):
        decode_launch(msgpack.encode(form | {"version": 2}), pickle.loads)
    with pytest.raises(GraphError, match="no task spec"):
        decode_launch(msgpack.encode(form | {"specs": [b"\x80"]}), pickle.loads)
