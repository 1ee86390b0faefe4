"""Rectangles by example: each way in which a manager uses them."""

import pytest

from weft.graph.logical import Edge, scatter_gather
from weft.graph.rectangles import Rectangles
from weft.graph.routing import bind
from weft.model.errors import GraphError


def test_merge_of_small_partitions():
    router = bind(Edge("a", "b", scatter_gather(7)), 4, 3)
    assert isinstance(router, Rectangles)
    assert [router.inputs(dst) for dst in range(3)] == [((0, 4, 0, 2),), ((0, 4, 2, 4),), ((0, 4, 4, 7),)]
    assert (router.partitions, router.wide, router.single, router.group) == (7, True, False, 0)
    assert router.consumers(2) == ((0, 3),)
    assert router.fan_in(2) == 4


def test_groups_of_chosen_sizes_with_pruned_ends():
    router = Rectangles.from_groups(3, [1, 1, 4], partitions=6)
    assert router.inputs(0) == ()
    assert router.inputs(1) == ((0, 3, 1, 4),)
    assert router.consumers(0) == ((1, 2),)
    assert not router.wide


def test_an_oversize_partition_is_split_by_sources():
    router = Rectangles.from_splits(10, 3, [(0, 1, ()), (1, 2, (0, 4, 10)), (2, 3, ())])
    assert [router.inputs(dst) for dst in range(4)] == [
        ((0, 10, 0, 1),),
        ((0, 4, 1, 2),),
        ((4, 10, 1, 2),),
        ((0, 10, 2, 3),),
    ]
    assert router.consumers(3) == ((0, 2), (3, 4))
    assert router.consumers(4) == ((0, 1), (2, 4))
    assert not router.wide


def test_the_other_side_of_a_skewed_join_is_replicated():
    other = Rectangles.even(5, 3, 3).select([0, 1, 1, 2])
    assert [other.inputs(dst)[0][2:] for dst in range(4)] == [(0, 1), (1, 2), (1, 2), (2, 3)]
    assert other.wide


def test_pruning_leaves_tasks_out():
    kept = Rectangles.even(5, 1000, 1000).select([7, 500, 999])
    assert kept.n_dst == 3
    assert kept.inputs(1) == ((0, 5, 500, 501),)
    assert kept.partitions == 1000


def test_local_read():
    router = Rectangles.local(3, 8)
    assert router.inputs(1) == ((1, 2, 0, 8),)
    assert [router.consumers(src) for src in range(3)] == [((0, 1),), ((1, 2),), ((2, 3),)]
    assert not router.wide


def test_two_rectangles_of_one_source_count_once():
    router = Rectangles(4, 4, [[(0, 2, 0, 1), (1, 4, 3, 4)], [(0, 4, 1, 1)]])
    assert router.fan_in(0) == 4
    assert router.inputs(1) == ()
    assert router.consumers(1) == ((0, 1),)


@pytest.mark.parametrize("piece", [(0, 5, 0, 1), (-1, 2, 0, 1), (2, 1, 0, 1), (0, 1, 0, 3), (0, 1, 2, 1)])
def test_rectangles_outside_are_refused(piece):
    with pytest.raises(GraphError, match="of 4 sources with 2 partitions") as caught:
        Rectangles(4, 2, [[piece]])
    assert caught.value.rule == "rectangle"


def test_other_wrong_numbers():
    for make in (
        lambda: Rectangles.from_groups(2, [0, 3, 2]),
        lambda: Rectangles.from_groups(2, [-1, 3]),
        lambda: Rectangles.from_groups(2, [0, 3], partitions=2),
        lambda: Rectangles.even(2, 3, -1),
        lambda: Rectangles.from_splits(4, 1, [(0, 1, (0, 9))]),
        lambda: Rectangles.from_rows(2, 1, 1, [[1, 0, 1, 0, 1]]),
        lambda: Rectangles.from_rows(2, 1, 1, [[0, 0, 1, 0]]),
    ):
        with pytest.raises(GraphError):
            make()


def test_a_hundred_thousand_by_a_hundred_thousand():
    n = 100_000
    router = Rectangles.even(n, 2 * n, n)
    assert sum(router.fan_in(dst) for dst in range(n)) == n * n
    assert router.consumers(n // 2) == ((0, n),)
