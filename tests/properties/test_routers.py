"""Routers against what their definition says, cell by cell, and both directions as inverses of each other."""

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.graph import axes as grids
from weft.graph.axes import Axis, AxisOperation, GridMap
from weft.graph.grid import Grid, bind_grid
from weft.graph.logical import Edge, Movement, MovementKind
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, Group, OneToOne, Router, ScatterGather


def sources_of(router: Router, dst: int) -> list[int]:
    return [src for lo, hi, _, _ in router.inputs(dst) for src in range(lo, hi)]


def assert_inverse(router: Router) -> None:
    """`consumers` says what `inputs` says, in disjoint ascending ranges, and the counts are right."""
    readers: dict[int, set[int]] = {src: set() for src in range(router.n_src)}
    for dst in range(router.n_dst):
        read = set(sources_of(router, dst))
        assert read <= readers.keys()
        assert router.fan_in(dst) == len(read)
        for src in read:
            readers[src].add(dst)
    for src, expected in readers.items():
        spans = router.consumers(src)
        assert all(lo < hi for lo, hi in spans)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        assert {dst for lo, hi in spans for dst in range(lo, hi)} == expected
    if router.wide:
        assert all(len(expected) == router.n_dst for expected in readers.values())
    if router.single:
        assert all(router.fan_in(dst) == 1 for dst in range(router.n_dst))
    if router.group:
        k = router.group
        for dst in range(router.n_dst):
            assert sources_of(router, dst) == list(range(k * dst, min(k * (dst + 1), router.n_src)))


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_closed_forms(n):
    assert_inverse(OneToOne(n, n))
    assert_inverse(Broadcast(n, 3))
    assert_inverse(ScatterGather(n, 3))
    assert_inverse(Group(n, -(-n // 3), 3))


# ---------------------------------------------------------------------------------------------------------- grids


def reads(axis: Axis, d: int, size: int) -> list[int]:
    """What the documentation of each operation says about one coordinate."""
    match axis.op:
        case AxisOperation.WHOLE:
            wanted = list(range(size))
        case AxisOperation.COPY:
            wanted = [axis.offset + axis.step * d]
        case AxisOperation.UNGROUP:
            wanted = [axis.offset + axis.step * (d // axis.k)]
        case AxisOperation.GROUP:
            wanted = [axis.offset + axis.step * d + i for i in range(axis.k)]
        case _:
            wanted = list(range(*axis.spans[d]))
    return [at for at in wanted if 0 <= at < size]


def oracle(grid: GridMap, dst: tuple[int, ...]) -> list[int]:
    """The flat sources of one destination cell, from the definition."""
    along = [list(range(size)) for size in grid.src]
    for at, axis in zip(dst, grid.axes, strict=True):
        if axis.op is not AxisOperation.BROADCAST:
            along[axis.source] = reads(axis, at, grid.src[axis.source])
    return [flat(at, grid.src) for at in product(*along)]


def flat(at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    index = 0
    for coordinate, size in zip(at, shape, strict=True):
        index = index * size + coordinate
    return index


@st.composite
def axes(draw: st.DrawFn, source: int, n_src: int, n_dst: int) -> Axis:
    small = st.integers(-4, 4)
    op = draw(
        st.sampled_from(
            [
                AxisOperation.GROUP,
                AxisOperation.GROUP,
                AxisOperation.RANGES,
                AxisOperation.COPY,
                AxisOperation.UNGROUP,
                AxisOperation.WHOLE,
            ]
        )
    )
    k = draw(st.integers(1, 4))
    if op is AxisOperation.COPY:
        return grids.copy(source, offset=draw(small), step=draw(small))
    if op is AxisOperation.GROUP:
        return grids.group(source, k, offset=draw(small), step=draw(st.none() | small))
    if op is AxisOperation.UNGROUP:
        return grids.ungroup(source, k, offset=draw(small), step=draw(small))
    if op is AxisOperation.WHOLE:
        return grids.whole(source)
    los = sorted(draw(st.lists(st.integers(0, n_src), min_size=n_dst, max_size=n_dst)))
    his = sorted(draw(st.lists(st.integers(0, n_src), min_size=n_dst, max_size=n_dst)))
    spans = [(min(lo, hi), max(lo, hi)) for lo, hi in zip(los, his, strict=True)]
    return grids.ranges(source, spans[::-1] if draw(st.booleans()) else spans)


@st.composite
def grid_maps(draw: st.DrawFn) -> GridMap:
    shapes = st.sampled_from([0, 1, 2, 2, 3, 3]).flatmap(lambda n: st.lists(st.integers(1, 6), min_size=n, max_size=n))
    src, dst = tuple(draw(shapes)), tuple(draw(shapes))
    free = draw(st.permutations(list(range(len(src)))))
    made = []
    for size in dst:
        named = draw(st.sampled_from([True, True, False]))
        if free and named:
            source = free.pop()
            made.append(draw(axes(source, src[source], size)))
        else:
            made.append(grids.broadcast())
    return GridMap(src, dst, tuple(made), partial=True)


@given(grid_maps())
def test_grid_is_what_its_axes_say(grid):
    router = Grid(grid, prod(grid.src), prod(grid.dst))
    for at in product(*(range(size) for size in grid.dst)):
        dst = flat(at, grid.dst)
        assert sources_of(router, dst) == sorted(oracle(grid, at))
        runs = router.inputs(dst)
        assert all(a[1] < b[0] for a, b in pairwise(runs)), "runs that touch are one run"
    assert_inverse(router)


@given(grid_maps(), st.data())
def test_many_at_once_is_one_by_one(grid, data):
    router = Grid(grid, prod(grid.src), prod(grid.dst))
    for n, many, one in (
        (router.n_dst, router.sources, lambda at: sources_of(router, at)),
        (router.n_src, router.destinations, lambda at: [d for lo, hi in router.consumers(at) for d in range(lo, hi)]),
    ):
        asked = data.draw(st.lists(st.integers(0, n - 1), max_size=8) | st.just(list(range(n))))
        found, offsets = many(np.array(asked, np.int64))
        assert offsets.tolist()[0] == 0
        assert [found[lo:hi].tolist() for lo, hi in pairwise(offsets)] == [one(at) for at in asked]


@given(grid_maps())
def test_binding_keeps_the_meaning(grid):
    """Whatever fast form `bind_grid` chooses, it reads the same."""
    slow = Grid(grid, prod(grid.src), prod(grid.dst))
    whole = all(slow.fan_in(dst) for dst in range(slow.n_dst))
    grid = GridMap(grid.src, grid.dst, grid.axes, partial=not whole)
    edge = Edge("a", "b", Movement(MovementKind.GRID, grid=grid))
    fast = bind_grid(edge, slow.n_src, slow.n_dst)
    assert [sources_of(fast, dst) for dst in range(slow.n_dst)] == [sources_of(slow, dst) for dst in range(slow.n_dst)]
    assert fast.single is grid.single
    assert_inverse(fast)


@given(grid_maps())
def test_pieces_are_numbered_by_who_reads_them(grid):
    plain = Grid(grid, prod(grid.src), prod(grid.dst))
    grid = GridMap(grid.src, grid.dst, grid.axes, partial=True, pieces=True)
    router = bind_grid(Edge("a", "b", Movement(MovementKind.GRID, grid=grid)), plain.n_src, plain.n_dst)
    assert not grid.single
    readers = [[d for lo, hi in plain.consumers(src) for d in range(lo, hi)] for src in range(plain.n_src)]
    if not router.wide:
        assert router.partitions == max(map(len, readers), default=0)
    for dst in range(plain.n_dst):
        read = [(src, p) for a, b, p, q in router.inputs(dst) for src in range(a, b) for p in range(p, q)]
        assert read == [(src, readers[src].index(dst)) for src in sources_of(plain, dst)]
    assert_inverse(router)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 5), st.integers(0, 2))
def test_regular_groups_are_recognised(shape, k, at):
    """A row of copies, one group that divides, and axes read whole: flat, it is a group."""
    at = min(at, len(shape) - 1)
    src = (*shape[:at], shape[at] * k, *shape[at + 1 :])
    dst = (*shape[:at], shape[at])
    made = (*(grids.copy(axis) for axis in range(at)), grids.group(at, k))
    router = bind_grid(Edge("a", "b", Movement(MovementKind.GRID, grid=GridMap(src, dst, made))), prod(src), prod(dst))
    assert type(router) is Group
    assert router.group == k * prod(shape[at + 1 :])


# ----------------------------------------------------------------------------------------------------- rectangles


@st.composite
def rectangles(draw: st.DrawFn) -> Rectangles:
    n_src, partitions = draw(st.integers(0, 8)), draw(st.integers(0, 5))

    def span(n: int) -> tuple[int, int]:
        lo, hi = sorted((draw(st.integers(0, n)), draw(st.integers(0, n))))
        return (0, n) if draw(st.booleans()) else (lo, hi)

    pieces = [
        [(*span(n_src), *span(partitions)) for _ in range(draw(st.integers(0, 3)))]
        for _ in range(draw(st.integers(0, 8)))
    ]
    return Rectangles(n_src, partitions, pieces)


@given(rectangles(), st.randoms(use_true_random=False))
def test_rectangles_are_inverse(router, random):
    readers: dict[int, set[int]] = {src: set() for src in range(router.n_src)}
    for dst in range(router.n_dst):
        read = set(sources_of(router, dst))
        assert router.fan_in(dst) == len(read)
        for src in read:
            readers[src].add(dst)
    order = list(readers)
    random.shuffle(order)  # the answer for one source must not depend on which was asked before
    for src in order:
        spans = router.consumers(src)
        assert all(a[1] < b[0] for a, b in pairwise(spans))
        assert {dst for lo, hi in spans for dst in range(lo, hi)} == readers[src]
    everyone = all(len(expected) == router.n_dst for expected in readers.values())
    assert router.wide == everyone


@given(rectangles(), st.data())
def test_rectangles_survive_their_rows_and_a_selection(router, data):
    again = Rectangles.from_rows(router.n_src, router.n_dst, router.partitions, router.rows())
    assert [again.inputs(dst) for dst in range(again.n_dst)] == [router.inputs(dst) for dst in range(router.n_dst)]
    if router.n_dst:
        chosen = data.draw(st.lists(st.integers(0, router.n_dst - 1), max_size=6))
        picked = router.select(chosen)
        assert [picked.inputs(at) for at in range(len(chosen))] == [router.inputs(dst) for dst in chosen]
        assert_rectangles_cover(picked, chosen, router)


def assert_rectangles_cover(picked: Rectangles, chosen: list[int], router: Rectangles) -> None:
    for src in range(router.n_src):
        whole = {dst for lo, hi in router.consumers(src) for dst in range(lo, hi)}
        assert {at for lo, hi in picked.consumers(src) for at in range(lo, hi)} == {
            at for at, dst in enumerate(chosen) if dst in whole
        }


@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 20))
def test_even_groups_read_every_partition_once(n_src, partitions, n_dst):
    router = Rectangles.even(n_src, partitions, n_dst)
    assert (router.n_src, router.n_dst) == (n_src, n_dst)
    pieces = [piece for dst in range(n_dst) for piece in router.inputs(dst)]
    assert [part for _, _, lo, hi in pieces for part in range(lo, hi)] == list(range(partitions if n_dst else 0))
    sizes = [sum(hi - lo for _, _, lo, hi in router.inputs(dst)) for dst in range(n_dst)]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert_inverse(router)
