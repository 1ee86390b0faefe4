"""Views: whatever is assigned to whichever array, all of them show what NumPy's would."""

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft.tensor as wt

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_objects")]

VIEWS = [
    lambda xp, x, n: x[n % x.shape[0] :],
    lambda xp, x, n: x[:: -1 - n % 2],
    lambda xp, x, n: x[..., n % x.shape[-1]],
    lambda xp, x, n: x[None],
    lambda xp, x, n: x.T,
    lambda xp, x, n: x.reshape(-1),
    lambda xp, x, n: xp.ravel(x),
    lambda xp, x, n: xp.expand_dims(x, 0),
    lambda xp, x, n: xp.squeeze(x),
    lambda xp, x, n: xp.moveaxis(x, 0, -1),
    lambda xp, x, n: xp.swapaxes(x, 0, -1),
    lambda xp, x, n: xp.flip(x),
    lambda xp, x, n: xp.split(x, [n % x.shape[0]])[1],
    lambda xp, x, n: xp.atleast_3d(x),
    lambda xp, x, n: x.view(),
]
COPIES = [
    lambda xp, x, n: x.copy(),
    lambda xp, x, n: x.flatten(),
    lambda xp, x, n: xp.asarray(x, order="C", copy=True),
]


def assigned(x, how, n):
    """Change an array in one of several ways; return it."""
    if how == 0:
        x[...] = n
    elif how == 1:
        x[n % x.shape[0]] = n
    elif how == 2:
        x += n
    elif how == 3:
        x[x > n] = -n
    else:
        np.add(x, n, out=x)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_is_assigned_is_seen_wherever_numpy_shows_it(data):
    order = data.draw(st.sampled_from("CF"))
    start = np.arange(24).reshape(2, 3, 4).copy(order)
    ours, theirs = [wt.asarray(start.copy(order), chunk_size=2)], [start.copy(order)]
    for _ in range(data.draw(st.integers(1, 7))):
        at, n = data.draw(st.integers(0, len(ours) - 1)), data.draw(st.integers(0, 30))
        if len(ours) > 1 and data.draw(st.integers(0, 3)) == 0:
            del ours[at], theirs[at]
        elif data.draw(st.booleans()):
            make = data.draw(st.sampled_from([*VIEWS, *COPIES]))
            made = make(np, theirs[at], n)
            if made.size and made.ndim:
                theirs.append(made)
                ours.append(make(wt, ours[at], n))
        else:
            how = data.draw(st.integers(0, 4))
            assigned(theirs[at], how, n)
            assigned(ours[at], how, n)
    for one, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.fetch(), wanted)


def test_a_computed_view_shows_what_was_assigned_later():
    x = wt.asarray(np.arange(6), chunk_size=2)
    rows = x.reshape(2, 3).execute()
    assert rows.fetch().tolist() == [[0, 1, 2], [3, 4, 5]]
    x[1:3] = 9
    assert rows.fetch().tolist() == [[0, 9, 9], [3, 4, 5]]
    rows.execute()[0, 0] = 7
    assert x.execute().fetch().tolist() == [7, 9, 9, 3, 4, 5]


def test_one_element_is_no_view():
    x = wt.asarray(np.arange(3))
    first = x[0]
    first += 5
    assert (first.item(), x.tolist()) == (5, [0, 1, 2])


def last_view(xp):
    x = xp.asarray(np.arange(4))
    made = x[::-1]
    x[0] = 7
    return made


def siblings(xp):
    x = xp.asarray(np.arange(4))
    one, other = x[1:], x[2:]
    del x
    other[0] = 9
    return one


def transposed(xp):
    x = xp.asarray(np.arange(6).reshape(2, 3)).T
    flat = x.reshape(-1)  # a copy: the elements do not lie in this order
    flat[0] = 9
    return x


def reshaped_in_place(xp):
    x = xp.asarray(np.arange(6))
    part = x[1:]
    x.shape = (2, 3)
    x[0] = 7
    return part


@pytest.mark.parametrize("program", [last_view, siblings, transposed, reshaped_in_place])
def test_views_of_an_array_that_no_name_has_any_more(program):
    np.testing.assert_array_equal(program(wt).fetch(), program(np))


def test_the_last_view_keeps_no_chunks_of_the_others():
    with wt.Session(workers=1, direct=False) as session:
        x = wt.random.default_rng(1).normal(size=(64, 4096)).execute(session)
        row = x[0].execute(session)
        held = weakref.ref(x._node.kwargs["source"])
        del x
        gc.collect()
        assert held() is None
        assert row.fetch().shape == (4096,)


def test_a_view_keeps_nothing_alive():
    x = wt.ones((4, 4), chunk_size=2)
    row, gone = x[0], weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    row[1] = 5
    assert row.tolist() == [1, 5, 1, 1]


SHARED_OR_NOT = [
    lambda xp, x: np.matrix_transpose(x),
    lambda xp, x: np.linalg.matrix_transpose(x),
    *[lambda xp, x, order=order: np.ravel(x, order=order) for order in "CFAK"],
    *[lambda xp, x, order=order: np.ravel(x.T, order=order) for order in "CFAK"],
    *[lambda xp, x, order=order: np.ravel(x[:, ::-1].T, order=order) for order in "CFAK"],
    *[lambda xp, x, order=order: x.T.flatten(order) for order in "CFAK"],
    *[lambda xp, x, order=order: x.T.reshape((2, 3), order=order) for order in "CFA"],
    *[lambda xp, x, order=order: x.reshape((3, 2), order=order) for order in "CFA"],
    lambda xp, x: np.resize(x, x.shape),
    lambda xp, x: np.resize(x, (3, 2)),
    lambda xp, x: np.pad(x, 0),
    lambda xp, x: np.fft.fftshift(x, axes=()),
    lambda xp, x: np.fft.ifftshift(x, axes=()),
    lambda xp, x: np.diff(x, n=0),
    lambda xp, x: np.linalg.matrix_power(x[:, :2], 1),
    lambda xp, x: np.meshgrid(x[0], x[1], sparse=True, copy=False)[1],
    lambda xp, x: np.meshgrid(x[0], x[1], sparse=True)[1],
    lambda xp, x: x.conj(),
    lambda xp, x: x.conjugate(),
    lambda xp, x: np.conj(x),
    lambda xp, x: xp.array(x),
    lambda xp, x: xp.array(x, ndmin=3),
    lambda xp, x: xp.array(x, copy=None, ndmin=3),
    lambda xp, x: xp.asarray(x),
    lambda xp, x: xp.ascontiguousarray(x),
    lambda xp, x: xp.ascontiguousarray(x.T),
    lambda xp, x: xp.asfortranarray(x),
    lambda xp, x: xp.asfortranarray(x.T),
    lambda xp, x: xp.asarray(x[:, ::2], order="C"),
    lambda xp, x: x[0, 0, ...],
    lambda xp, x: x[0, 0, ...][...],
]


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.complex128, bool])
@pytest.mark.parametrize("make", SHARED_OR_NOT)
def test_a_result_shares_elements_with_its_argument_where_numpy_shares_them(make, kind):
    start = np.array([[1, -2, 3], [4, 0, 6]], kind)
    for changed in (0, 1):
        seen = []
        for xp, x in ((np, start.copy()), (wt, wt.asarray(start.copy(), chunk_size=2))):
            if kind is bool and make(np, start.copy()).dtype != bool:
                continue
            both = x, make(xp, x)
            both[changed][...] = 0
            seen.append([np.asarray(one) for one in both])
        for one, wanted in zip(*seen, strict=True) if seen else ():
            np.testing.assert_array_equal(one, wanted)
            assert one.dtype == wanted.dtype


@pytest.mark.parametrize("make", [lambda x: x.flat, lambda x: x.T.flat])
def test_elements_in_a_row_are_assigned_to_and_their_slices_are_copies(make):
    raw = np.arange(6).reshape(2, 3)
    x = wt.asarray(raw.copy(), chunk_size=2)
    for flat in (make(x), make(raw)):
        flat[1:4] = 9
        part = flat[2:5]
        part[0] = 77
        assert part.tolist() == [77, 9, *[int(one) for one in flat][4:5]]
    assert np.array_equal(x.fetch(), raw)


def test_a_shape_is_set_in_place():
    x = wt.asarray(np.arange(6), chunk_size=2)
    x.shape = (2, 3)
    x[0] = 7
    assert x.tolist() == [[7, 7, 7], [3, 4, 5]]


def test_fields_are_views():
    values = np.array([(1, 2.0), (3, 4.0), (5, 6.0)], dtype=[("a", "i4"), ("b", "f8")])
    x = wt.asarray(values.copy(), chunk_size=2)
    assert x["a"].dtype == np.int32
    for both in (values, x):
        field = both["b"]
        both["a"] = 9
        field[1:] += 1
        both[1:]["b"] += 2
        both["b"].reshape(-1)[0] = 7
    assert x.fetch().tolist() == values.tolist()
    nested = wt.asarray(np.zeros(2, [("p", "f8", (2,))]))
    with pytest.raises(TypeError, match="field 'p' holds arrays"):
        nested["p"]


@pytest.fixture
def often_switched():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often_switched")
@pytest.mark.parametrize(
    "assign",
    [
        lambda x, view, i, n: x.__setitem__(i, n),
        lambda x, view, i, n: x.flat.__setitem__(i, n),
        lambda x, view, i, n: x[i:].__setitem__(0, n),
        lambda x, view, i, n: view.__setitem__(..., n),
        lambda x, view, i, n: view.__iadd__(1),
    ],
    ids=["element", "flat", "new view", "view", "in place"],
)
def test_assignments_of_threads_to_different_elements_are_all_kept(assign):
    x = wt.zeros(4, chunk_size=3)
    views = [x[i : i + 1] for i in range(4)]

    def count(i):
        for n in range(1, 41):
            assign(x, views[i], i, n)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert x.fetch().tolist() == [40] * 4
    assert [view.tolist() for view in views] == [[40]] * 4


def test_broadcast_arrays_share_their_elements_where_they_have_the_common_shape():
    for of in (np, wt):
        x, y = of.asarray(np.arange(3.0)), of.asarray(np.zeros(1))
        same, _ = of.broadcast_arrays(x, y)
        x[0] = 5
        assert np.asarray(same).tolist() == [5, 1, 2]
        first, second = of.broadcast_arrays(x, x)
        first[1] = 6
        assert np.asarray(second).tolist() == np.asarray(x).tolist() == [5, 6, 2]


def test_broadcast_views_follow_their_array_and_can_only_be_read():
    def look(xp):
        x = xp.asarray([1, 2])
        wide = xp.broadcast_to(x, (2, 2))
        views = [
            wide,
            wide[0],
            wide.T,
            wide.reshape(2, 2),
            xp.broadcast_to(x, (2,)),
            xp.broadcast_to(xp.asarray([5]), (3,)),
        ]
        for one in views:
            for write in (
                lambda one=one: one.__setitem__(0, 9),
                lambda one=one: one.__iadd__(1),
                lambda one=one: one.fill(3),
                lambda one=one: one.sort(),
                lambda one=one: xp.add(one, 1, out=one),
                lambda one=one: xp.copyto(one, 4),
            ):
                with pytest.raises(ValueError, match="read-only"):
                    write()
            assert not one.flags.writeable
        x[0] = 7
        copied = wide.copy()
        copied[0, 0] = 8
        return [np.asarray(one).tolist() for one in (*views, copied)]

    assert look(wt) == look(np)
    first, second = wt.broadcast_arrays(wt.asarray([1, 2]), wt.zeros((2, 2)))
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    second[0] = 1
    windows = wt.lib.stride_tricks.sliding_window_view(wt.arange(4), 2)
    for one in (windows, windows[1:]):
        with pytest.raises(ValueError, match="read-only"):
            one[0] = 1
    grid = wt.meshgrid(wt.arange(2), wt.arange(2))
    grid[0][0] = 5
    assert grid[0].fetch().tolist() == [[5, 5], [0, 1]]


def test_a_diagonal_stays_read_only_when_its_array_is_gone():
    found = wt.diagonal(wt.eye(2))
    gc.collect()
    found.fetch()
    for one in (found, found[:1]):
        with pytest.raises(ValueError, match="read-only"):
            one[0] = 5
