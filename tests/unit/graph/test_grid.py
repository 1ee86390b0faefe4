"""Grid maps by example: which router they become, and what is refused."""

from math import prod

import pytest

from weft.graph import axes
from weft.graph import grid as grids
from weft.graph.axes import TO_ALL, GridMap, broadcast, copy, group, ranges, ungroup, whole
from weft.graph.grid import Grid, OneToAll, bind_grid
from weft.graph.logical import Edge, Movement, MovementKind
from weft.graph.routers import Broadcast, Group, OneToOne
from weft.graph.routing import bind
from weft.model.errors import GraphError


def router(src, dst, *axes, partial=False):
    edge = Edge("a", "b", Movement(MovementKind.GRID, grid=GridMap(src, dst, axes, partial)))
    found = bind(edge, prod(src), prod(dst))
    assert found is not None
    return found


def reads(found):
    return [[src for lo, hi, _, _ in found.inputs(dst) for src in range(lo, hi)] for dst in range(found.n_dst)]


FORMS = [
    ((2, 3), (2, 3), (copy(0), copy(1)), OneToOne, 1),
    ((4, 1), (1, 4), (broadcast(), copy(0), copy(1)), None, 0),
    ((4,), (1, 4), (broadcast(), copy(0)), OneToOne, 1),
    ((7,), (3,), (group(0, 3),), Group, 3),
    ((2, 7), (2, 3), (copy(0), group(1, 3)), Grid, 0),  # short last groups in each row
    ((2, 6), (2, 2), (copy(0), group(1, 3)), Group, 3),
    ((2, 6), (2,), (copy(0),), Group, 6),
    ((2, 6), (2, 1), (copy(0), whole(1)), Group, 6),
    ((4, 5), (2, 1), (group(0, 2), whole(1)), Group, 10),
    ((4, 5), (2, 5), (group(0, 2), copy(1)), Grid, 0),
    ((4, 5), (5,), (copy(1),), Grid, 0),
    ((6,), (1,), (whole(0),), Group, 6),
    ((6,), (3,), (whole(0),), Broadcast, 0),
    ((6,), (), (), Group, 6),
    ((), (5,), (broadcast(),), OneToAll, 0),
    ((2, 3), (3, 2), (copy(1), copy(0)), Grid, 0),
    ((6,), (3,), (group(0, 2, step=1),), Grid, 0),
    ((6,), (6,), (copy(0, step=-1, offset=5),), Grid, 0),
    ((6,), (2,), (group(0, 3, offset=-1),), Grid, 0),
    ((6,), (6,), (ungroup(0, 1),), Grid, 0),
]


@pytest.mark.parametrize(("src", "dst", "axes", "kind", "k"), FORMS)
def test_the_fast_form_is_chosen(src, dst, axes, kind, k):
    if kind is None:
        with pytest.raises(GraphError):
            router(src, dst, *axes)
        return
    found = router(src, dst, *axes)
    assert type(found) is kind
    assert found.group == k


def test_matrix_product_reads_rows_and_columns():
    """C[i, j] needs row i of A and column j of B, on 2 x 3 and 3 x 2 chunks."""
    assert reads(router((2, 3), (2, 2), copy(0), broadcast())) == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    assert reads(router((3, 2), (2, 2), broadcast(), copy(1))) == [[0, 2, 4], [1, 3, 5], [0, 2, 4], [1, 3, 5]]


def test_transpose_slice_flip_and_repeat():
    assert reads(router((2, 3), (3, 2), copy(1), copy(0))) == [[0], [3], [1], [4], [2], [5]]
    assert reads(router((8,), (3,), copy(0, offset=1, step=3))) == [[1], [4], [7]]
    assert reads(router((3,), (3,), copy(0, offset=2, step=-1))) == [[2], [1], [0]]
    assert reads(router((2,), (5,), ungroup(0, 3))) == [[0], [0], [0], [1], [1]]


def test_windows_are_cut_at_the_ends():
    halo = router((5,), (5,), group(0, 3, offset=-1, step=1))
    assert reads(halo) == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4]]
    assert halo.consumers(0) == ((0, 2),)
    assert not halo.single


def test_any_change_of_chunk_sizes():
    """12 elements in chunks of 3, wanted in chunks of 4."""
    found = router((4,), (3,), ranges(0, [(0, 2), (1, 3), (2, 4)]))
    assert reads(found) == [[0, 1], [1, 2], [2, 3]]
    assert found.consumers(1) == ((0, 2),)


def test_parts_of_a_concatenation():
    left = router((2,), (5,), copy(0), partial=True)
    right = router((3,), (5,), copy(0, offset=-2), partial=True)
    assert reads(left) == [[0], [1], [], [], []]
    assert reads(right) == [[], [], [0], [1], [2]]
    assert left.inputs(4) == ()
    assert left.fan_in(4) == 0
    assert not left.single


def test_single_is_one_value_and_gathered_is_a_list_even_of_one():
    assert router((2, 3), (3, 2), copy(1), copy(0)).single
    assert router((), (3,), broadcast()).single
    assert not router((1,), (3,), broadcast()).single
    assert not router((3,), (3,), group(0, 1)).single
    assert router((2,), (2, 4), copy(0), broadcast()).single


def test_runs_are_as_long_as_can_be():
    found = router((3, 4, 5), (3,), copy(0))
    assert found.inputs(1) == ((20, 40, 0, 1),)
    slab = router((3, 4, 5), (2,), group(1, 2))
    assert slab.inputs(1) == ((10, 20, 0, 1), (30, 40, 0, 1), (50, 60, 0, 1))


def test_a_size_left_open_is_what_the_vertex_has():
    edge = Edge("a", "b", Movement(MovementKind.GRID, grid=TO_ALL))
    assert bind_grid(edge, 1, 7).consumers(0) == ((0, 7),)
    edge = Edge("a", "b", Movement(MovementKind.GRID, grid=GridMap((2, -1), (-1, 2), (copy(1), copy(0)))))
    assert reads(bind_grid(edge, 6, 6))[1] == [3]
    with pytest.raises(GraphError, match=r"grid \(2, -1\) for the 5 tasks of 'a'"):
        bind_grid(edge, 5, 6)


WRONG = [
    ((2,), (3,), (copy(0),), "grid-reads-nothing", "coordinate 2 of 3"),
    ((2,), (2,), (copy(0, offset=-1),), "grid-reads-nothing", "coordinate 0 of 2"),
    ((2,), (2,), (ranges(0, [(0, 1), (1, 1)]),), "grid-reads-nothing", "coordinate 1 of 2"),
    ((2,), (2,), (copy(1),), "grid-axes", "does not have"),
    ((2,), (2,), (copy(-1),), "grid-axes", "does not have"),
    ((2,), (2,), (), "grid-axes", "maps 0 axes"),
    ((2, 2), (2, 2), (copy(0), copy(0)), "grid-axes", "from two destination axes"),
    ((2,), (2,), (group(0, 0),), "grid-axes", "groups by 0"),
    ((4,), (3,), (ranges(0, [(0, 1), (2, 3), (1, 2)]),), "grid-ranges", "not in order"),
    ((4,), (2,), (ranges(0, [(0, 1)]),), "grid-ranges", "1 ranges for 2"),
    ((4,), (1,), (ranges(0, [(0, 5)]),), "grid-ranges", "outside the 4"),
    ((-2,), (2,), (copy(0),), "grid-shape", "impossible"),
]


@pytest.mark.parametrize(("src", "dst", "axes", "rule", "words"), WRONG)
def test_wrong_maps(src, dst, axes, rule, words):
    edge = Edge("a", "b", Movement(MovementKind.GRID, grid=GridMap(src, dst, axes)))
    with pytest.raises(GraphError, match=words) as caught:
        bind_grid(edge, abs(prod(src)), prod(dst))
    assert (caught.value.rule, caught.value.subject) == (rule, "a->b")


def test_products_must_be_the_parallelisms():
    edge = Edge("a", "b", Movement(MovementKind.GRID, grid=GridMap((2, 3), (6,), (broadcast(),))))
    with pytest.raises(GraphError, match="5 tasks of 'b'"):
        bind_grid(edge, 6, 5)


def test_large_grids_cost_nothing_until_asked():
    side = 10**6
    found = router((side, side), (side, side), copy(1), copy(0))
    assert found.inputs(side) == ((1, 2, 0, 1),)
    assert found.consumers(1) == ((side, side + 1),)
    assert found.consumers(side * side - 1) == ((side * side - 1, side * side),)


@pytest.mark.parametrize(
    "make",
    [
        lambda: copy("0"),  # type: ignore[arg-type]
        lambda: copy(0, offset=0.5),  # type: ignore[arg-type]
        lambda: group(0, 2.0),  # type: ignore[arg-type]
        lambda: group(0, True),
        lambda: ungroup(None, 2),  # type: ignore[arg-type]
        lambda: whole([0]),  # type: ignore[arg-type]
        lambda: ranges(0, 3),  # type: ignore[arg-type]
        lambda: ranges(0, [1, 2]),  # type: ignore[list-item]
        lambda: ranges(0, [(0, 1, 2)]),  # type: ignore[list-item]
        lambda: ranges(0, [(0, "2")]),  # type: ignore[list-item]
    ],
)
def test_an_axis_is_made_of_whole_numbers(make):
    with pytest.raises(GraphError, match="whole number") as caught:
        make()
    assert caught.value.rule == "type"


def test_the_words_of_axes_are_handed_on():
    for word in (
        "copy",
        "group",
        "ungroup",
        "broadcast",
        "whole",
        "ranges",
        "Axis",
        "GridMap",
        "AxisOperation",
        "TO_ALL",
    ):
        assert getattr(grids, word) is getattr(axes, word)
