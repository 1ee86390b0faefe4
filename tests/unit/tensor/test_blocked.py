"""Algorithms that go block by block where one chunk, or whole rows and columns, would be too much at once."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft.tensor as wt
from weft.frontends.tensors import blocked_factorizations, blocked_products, indexing
from weft.frontends.tensors.compiler import compile_nodes

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(13)
KINDS = st.sampled_from(("f8", "f4", "i8", "i2"))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Have arrays of a few elements treated as large ones."""
    monkeypatch.setattr(indexing, "EXCHANGED_FROM", 0)
    monkeypatch.setattr(blocked_products, "AT_ONCE", 2)
    monkeypatch.setattr(blocked_factorizations, "BLOCKED_FROM", 0)
    monkeypatch.setattr(blocked_factorizations, "NARROWEST", 3)


@st.composite
def cuts(draw, n):
    """Draw lengths of chunks that add up to n; some of them may be 0."""
    ends = sorted(draw(st.lists(st.integers(0, n), max_size=4)))
    return tuple(b - a for a, b in zip([0, *ends], [*ends, n], strict=True))


def in_cuts(draw, x):
    return wt.asarray(x, chunk_size=tuple(draw(cuts(n)) for n in x.shape))


# ---------------------------------------------------------------------------------------------------------- taking


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_is_taken_is_what_numpy_takes(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    n = shape[axis]
    numbers = np.array(data.draw(st.lists(st.integers(-n, n - 1), max_size=9)), np.int64)
    x = RNG.integers(0, 99, shape)
    at = wt.asarray(numbers, chunk_size=(data.draw(cuts(len(numbers))),))
    np.testing.assert_array_equal(wt.take(in_cuts(data.draw, x), at, axis=axis).fetch(), np.take(x, numbers, axis))


@pytest.mark.parametrize("direct", [True, False])
def test_no_task_reads_the_whole_axis(direct):
    x = RNG.normal(size=(40, 6))
    numbers = RNG.integers(-40, 40, 30)
    with wt.Session(direct=direct, workers=2) as session:
        session.as_default()
        made = wt.asarray(x, chunk_size=(4, 3))[wt.asarray(numbers, chunk_size=7)]
        assert made.chunks == ((4,) * 7 + (2,), (3, 3))
        assert [cut.n for cut in made.node.inputs[0].node.grid] == [10, 2]
        np.testing.assert_array_equal(made.fetch(), x[numbers])


def test_a_number_that_is_out_of_bounds_is_told_when_it_is_computed():
    x = wt.asarray(np.arange(9), chunk_size=2)
    for wrong in (9, -10):
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 0 with size 9"):
            wt.take(x, wt.asarray([1, wrong])).fetch()


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((0, 5), (slice(None), [9])),
        ((0, 5), (slice(None), np.array([[-6]]))),
        ((3, 5), (slice(0, 0), [9])),
        ((3, 0, 4), (..., [4])),
    ],
)
def test_a_number_out_of_bounds_is_wrong_beside_an_empty_axis_too(shape, index):
    x = wt.zeros(shape, chunk_size=2)
    with pytest.raises(IndexError, match="out of bounds"):
        np.zeros(shape)[index]
    with pytest.raises(IndexError, match="out of bounds"):
        x[index].fetch()
    valid = (*index[:-1], [-1, 0])
    assert x[valid].shape == np.zeros(shape)[valid].shape


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_along_an_axis_each_line_has_its_own_numbers(data):
    x = RNG.normal(size=(5, 6))
    axis = data.draw(st.integers(0, 1))
    k = data.draw(st.integers(0, 4))
    numbers = RNG.integers(0, x.shape[axis], (k, 6) if axis == 0 else (5, k))
    made = wt.take_along_axis(in_cuts(data.draw, x), in_cuts(data.draw, numbers), axis=axis)
    np.testing.assert_array_equal(made.fetch(), np.take_along_axis(x, numbers, axis))


# -------------------------------------------------------------------------------------------------------- products


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_product_adds_up_parts_of_rows_and_columns(data):
    m, k, n = (data.draw(st.integers(0, 9)) for _ in range(3))
    left, right = RNG.integers(-9, 9, (m, k)), RNG.integers(-9, 9, (k, n))
    made = wt.matmul(in_cuts(data.draw, left), in_cuts(data.draw, right))
    np.testing.assert_array_equal(made.fetch(), left @ right)


def test_a_task_of_a_product_reads_few_chunks():
    x = wt.ones((12, 12), chunk_size=2)
    made = compile_nodes([(x @ x)._node])
    sizes = [vertex.parallelism for vertex in made.graph.vertices.values()]
    assert 6 * 6 * 3 in sizes  # two of six chunks at a time, three times over
    np.testing.assert_array_equal((x @ x).fetch(), np.full((12, 12), 12.0))


class CountedProducts:
    """An array namespace that counts the products of matrices."""

    def __init__(self):
        self.calls = 0

    def matmul(self, left, right):
        self.calls += 1
        return np.matmul(left, right)


def _columns(x, *ends):
    return [x[..., lo:hi] for lo, hi in itertools.pairwise((0, *ends, x.shape[-1]))]


def _rows(x, *ends):
    return [x[..., lo:hi, :] for lo, hi in itertools.pairwise((0, *ends, x.shape[-2]))]


def _calls(left, right):
    """Return how many products of matrices a task calls for a row and a column of chunks, whose product is right."""
    xp = CountedProducts()
    made = blocked_products._product(left, right, dtype=np.dtype(float), xp=xp)
    np.testing.assert_array_equal(made, np.concatenate(left, -1) @ np.concatenate(right, -2))
    return xp.calls


WIDE, HIGH = RNG.integers(-9, 9, (6, 9)).astype(float), RNG.integers(-9, 9, (9, 5)).astype(float)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (WIDE, HIGH),
        (WIDE[1:4], HIGH[:, 2:]),
        (HIGH.T, WIDE.T),
        (np.asfortranarray(WIDE), HIGH[::-1]),
        (np.broadcast_to(WIDE[:, :1], WIDE.shape), HIGH),
        (np.stack([WIDE, WIDE]), np.stack([HIGH, HIGH])),
        (WIDE.astype(object), HIGH.astype(object)),
    ],
    ids=["whole", "parts", "transposed", "reversed", "broadcast", "stacks", "objects"],
)
def test_adjacent_views_of_one_array_are_multiplied_at_once(left, right):
    left, right = left[:], right[:]
    assert _calls(_columns(left, 2, 6), _rows(right, 2, 6)) == 1
    left.flags.writeable = False
    assert _calls(_columns(left, 2, 6), _rows(right, 2, 6)) == 1


def test_chunks_of_one_element_are_multiplied_at_once():
    left, right = WIDE[:1, :3], HIGH[:3, :1]
    assert _calls(_columns(left, 1, 2), _rows(right, 1, 2)) == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([x.copy() for x in _columns(WIDE, 4)], _rows(HIGH, 4)),
        (_columns(WIDE, 4), [x.copy() for x in _rows(HIGH, 4)]),
        ([WIDE[:, :4], WIDE.copy()[:, 4:]], _rows(HIGH, 4)),
        ([WIDE[:, :4], WIDE[:, :5]], _rows(HIGH, 4)),
        ([WIDE[:, 4:], WIDE[:, :4]], _rows(HIGH, 5)),
        ([WIDE[:, :4], WIDE[::-1, 4:]], _rows(HIGH, 4)),
        ([WIDE[:, :2], WIDE[:, 2::2]], [HIGH[:2], HIGH[2:6]]),
    ],
    ids=["copies on the left", "copies on the right", "other array", "overlap", "exchanged", "other way", "other step"],
)
def test_other_chunks_are_multiplied_one_by_one(left, right):
    assert _calls(left, right) == len(left)


# -------------------------------------------------------------------------------------------------- factorisations


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_the_factors_of_lu_make_up_the_matrix(data):
    from scipy.linalg import lu  # not above: a BLAS of its own comes with it, which other tests would count

    m, n = data.draw(st.integers(1, 11)), data.draw(st.integers(1, 11))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(m, n))
    x = x + 1j * x[::-1] if data.draw(st.booleans()) else x
    p, lower, upper = made = [part.fetch() for part in wt.linalg.lu(wt.asarray(x, chunk_size=(4, 3)))]
    np.testing.assert_allclose(p @ lower @ upper, x, atol=1e-9)
    for one, wanted in zip(made, lu(x), strict=True):
        assert (one.shape, one.dtype) == (wanted.shape, wanted.dtype)
        if not np.iscomplexobj(x):  # of complex numbers LAPACK takes those for the largest whose parts are
            np.testing.assert_allclose(one, wanted, atol=1e-9)


@pytest.mark.parametrize("columns", [(20,) * 5, (64, 36), (7,) * 14 + (2,)])
@pytest.mark.parametrize("complex_", [False, True])
def test_the_factors_of_a_matrix_that_lies(columns, complex_):
    x = RNG.normal(size=(7, 100))
    x = x + 1j * x[::-1, ::-1] if complex_ else x
    given = wt.asarray(x, chunk_size=((4, 3), columns))
    q, r = wt.fetch(*wt.linalg.qr(given))
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    np.testing.assert_allclose(q.conj().T @ q, np.eye(7), atol=1e-12)
    np.testing.assert_allclose(r[:, :7], np.triu(r[:, :7]), atol=1e-12)
    u, s, vh = wt.fetch(*wt.linalg.svd(given, full_matrices=False))
    np.testing.assert_allclose((u * s) @ vh, x, atol=1e-12)
    np.testing.assert_allclose(vh @ vh.conj().T, np.eye(7), atol=1e-12)
    for one in (given, given.T):
        np.testing.assert_allclose(wt.linalg.svdvals(one).fetch(), np.linalg.svd(x, compute_uv=False), atol=1e-12)


def test_no_task_holds_a_matrix_that_lies():
    given = wt.ones((7, 100), chunk_size=(7, 20))
    for part in (*wt.linalg.qr(given), *wt.linalg.svd(given, full_matrices=False)):
        assert max(part.chunks[-1]) <= 20


# ----------------------------------------------------------------------------------------------- many put together


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_many_arrays_are_put_together_as_numpy_does(data):
    """However many there are, of whatever lengths, in whatever chunks, along either axis."""
    draw = data.draw
    axis = draw(st.integers(0, 1))
    lengths = draw(st.lists(st.integers(0, 3), min_size=17, max_size=300 if draw(st.booleans()) else 40))
    parts = [np.full((n, 2) if axis == 0 else (2, n), i, draw(KINDS)) for i, n in enumerate(lengths)]
    chunk = draw(st.sampled_from((1, 2, 10)))
    tensors = [wt.asarray(one, chunk_size=chunk) + 0 for one in parts]
    made = wt.concat(tensors, axis=axis)
    wanted = np.concatenate(parts, axis=axis)
    assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(made.fetch(), wanted)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_many_are_put_together_by_tasks(backend):
    with wt.Session(workers=1, backend=backend, direct=False):
        several = [wt.arange(i, i + 3, chunk_size=1 + i % 3) for i in range(40)]
        doubled = [one.map_chunk(_doubled) for one in several]
        wanted = np.concatenate([np.arange(i, i + 3) for i in range(40)])
        np.testing.assert_array_equal(wt.concat(several).fetch(), wanted)
        np.testing.assert_array_equal(wt.concat(doubled).fetch(), wanted * 2)
        stacked = wt.stack([wt.sum(one) for one in several])
        np.testing.assert_array_equal(stacked.fetch(), [3 * i + 3 for i in range(40)])
        large = [wt.full(30_000, i) for i in range(20)]
        np.testing.assert_array_equal(wt.concat(large).fetch(), np.repeat(np.arange(20), 30_000))
        np.testing.assert_array_equal(wt.concat([*large, *large, wt.ones(1)])[-2:].fetch(), [19, 1])


def _doubled(x):
    return x * 2
