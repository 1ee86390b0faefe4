"""Grouping partitions by bytes: what must hold for all sizes."""

from itertools import pairwise

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.graph.rectangles import Rectangles
from weft.model.errors import GraphError
from weft.policies.shuffle import pack

sizes = st.lists(st.integers(0, 100) | st.integers(0, 2**62), max_size=60)
targets = st.integers(1, 300) | st.integers(1, 2**63)


@given(sizes, targets)
def test_groups_cover_all_partitions_in_order_and_none_is_empty(sizes, target):
    bounds = pack(sizes, target)
    assert (bounds[0], bounds[-1]) == (0, len(sizes))
    assert all(lo < hi for lo, hi in pairwise(bounds))


@given(sizes, targets)
def test_only_a_partition_alone_is_over_the_target(sizes, target):
    for lo, hi in pairwise(pack(sizes, target)):
        assert sum(sizes[lo:hi]) <= target or hi - lo == 1


def fewest(sizes, target):
    """The least number of groups there is, found by trying every last group of every prefix."""
    best = [0] * (len(sizes) + 1)
    for end in range(1, len(sizes) + 1):
        best[end] = 1 + min(best[at] for at in range(end) if at == end - 1 or sum(sizes[at:end]) <= target)
    return best[-1]


@given(sizes, targets)
def test_there_are_as_few_groups_as_can_be(sizes, target):
    assert len(pack(sizes, target)) - 1 == fewest(sizes, target)


@given(sizes, targets)
def test_arrays_are_grouped_as_lists_are(sizes, target):
    assert pack(numpy.array(sizes, dtype=numpy.int64), target) == pack(sizes, target)


@given(sizes, targets, st.integers(1, 5))
def test_readers_of_the_groups_read_every_partition_of_every_source_once(sizes, target, sources):
    router = Rectangles.from_groups(sources, pack(sizes, target))
    read = [piece for reader in range(router.n_dst) for piece in router.inputs(reader)]
    assert all((lo, hi) == (0, sources) for lo, hi, _, _ in read)
    assert [part for _, _, lo, hi in read for part in range(lo, hi)] == list(range(len(sizes)))


@pytest.mark.parametrize(("sizes", "target", "rule"), [([1], 0, "shuffle-target"), ([1, -1], 5, "partition-size")])
def test_sizes_and_targets_that_make_no_sense_are_refused(sizes, target, rule):
    with pytest.raises(GraphError) as caught:
        pack(sizes, target)
    assert caught.value.rule == rule
