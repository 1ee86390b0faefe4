"""A shuffle that is read whole: every piece reaches every reader, or its own one, once."""

from hypothesis import given
from hypothesis import strategies as st

from weft.graph.logical import BROADCAST, ONE_TO_ONE, Edge, Movement
from weft.graph.routing import bind

widths = st.integers(0, 12)


@given(widths, widths, st.integers(1, 6))
def test_all_read_all(n_src, n_dst, parts):
    router = bind(Edge("a", "b", Movement(BROADCAST.move, partitions=parts)), n_src, n_dst)
    assert router is not None
    every = {(source, part) for source in range(n_src) for part in range(parts)}
    for dst in range(n_dst):
        read = [(s, p) for a, b, lo, hi in router.inputs(dst) for s in range(a, b) for p in range(lo, hi)]
        assert (len(read), set(read)) == (len(every), every)
    assert router.partitions == parts


@given(widths, st.integers(1, 6))
def test_each_reads_its_own(n, parts):
    router = bind(Edge("a", "b", Movement(ONE_TO_ONE.move, partitions=parts)), n, n)
    assert router is not None
    assert [tuple(router.inputs(dst)) for dst in range(n)] == [((dst, dst + 1, 0, parts),) for dst in range(n)]
    assert [tuple(router.consumers(src)) for src in range(n)] == [((src, src + 1),) for src in range(n)]
