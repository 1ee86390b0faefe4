"""Assignments to parts of arrays: the values are NumPy's for any chunks, and arrays stay in their chunks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft.tensor as wt
from weft.frontends.tensors.chunks import largest
from weft.frontends.tensors.nodes import walk

BOUNDS = st.one_of(st.none(), st.integers(-9, 9))
SLICES = st.builds(slice, BOUNDS, BOUNDS, st.sampled_from([None, 1, 2, 3, -1, -2]))


@pytest.fixture(scope="module", params=[True, False])
def session(request):
    with wt.Session(workers=2, direct=request.param) as made:
        yield made


def lines(data, n):
    """Draw a mask or a line of numbers for an axis of n elements."""
    if data.draw(st.booleans()):
        return np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    return np.array(data.draw(st.lists(st.integers(-n, n - 1), max_size=4)), int)


def any_index(data, shape):
    """Draw an index: slices and whole numbers, and one mask or line of numbers, or a mask of the first axes."""
    if data.draw(st.booleans()):
        k = data.draw(st.integers(1, len(shape)))
        n = int(np.prod(shape[:k]))
        return (np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool).reshape(shape[:k]),)
    at = data.draw(st.integers(0, len(shape)))
    made = []
    for axis, n in enumerate(shape):
        plain = st.one_of(st.just(slice(None)), SLICES, st.integers(-n, n - 1))
        made.append(lines(data, n) if axis == at else data.draw(plain))
    return tuple(made)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_what_is_assigned_is_what_numpy_assigns(session, data):
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple))
    theirs = np.arange(np.prod(shape)).reshape(shape)
    x = wt.tensor(theirs.copy(), chunk_size=data.draw(st.integers(2, 4)))
    index = any_index(data, shape)
    part = np.shape(theirs[index])
    value = -1 - np.arange(np.prod(part, dtype=int)).reshape(part)
    for axis in range(value.ndim):
        if data.draw(st.integers(0, 3)) == 0 and value.shape[axis]:
            value = np.take(value, [0], axis=axis)
    if value.ndim and value.shape[0] == 1 and data.draw(st.booleans()):
        value = value[0]
    theirs[index] = value
    x[index] = value if data.draw(st.booleans()) else wt.tensor(value, chunk_size=2)
    np.testing.assert_array_equal(x.fetch(session), theirs)


@pytest.mark.parametrize("index", [(), ..., (..., None), np.array(True)])
def test_an_array_without_axes_is_assigned_to(session, index):
    x = wt.asarray(5)
    x[index] = 7
    assert x.fetch(session) == 7


@pytest.mark.parametrize("n", [19, 21])
@pytest.mark.parametrize("size", [5, 24])
def test_another_number_of_values_than_the_mask_has_elements_is_refused(n, size):
    x = wt.tensor(np.arange(24), chunk_size=size)
    x[x > 3] = np.arange(n)
    with pytest.raises(ValueError, match="cannot assign"):
        x.fetch()


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (([0, 1], [0, 1, 2]), 1),
        ((slice(None), [0, 1], [0, 1, 2]), 1),
        (([0, 1], [0, 1]), np.ones((3, 3))),
        (([0, 1], slice(None), [0, 1]), np.ones((2, 2))),
        (([[0], [1]], [0, 1]), np.ones((2, 1, 2, 3))),
        ((None, [0, 1]), np.ones(2)),
    ],
)
def test_what_does_not_fit_is_refused_at_the_assignment_as_by_numpy(index, value):
    array = np.zeros((3, 3, 3))
    with pytest.raises((IndexError, ValueError)) as told:
        array[index] = value
    x = wt.array(array)
    with pytest.raises(told.type) as caught:
        x[index] = value
    own, numpys = (" ".join(str(one.value).replace(" ", "").split(",")) for one in (caught, told))
    assert own == numpys


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_what_numpy_refuses_is_refused_at_the_assignment_and_changes_nothing(data):
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple))
    entries = st.one_of(
        st.just(slice(None)), st.just(slice(1, None)), st.none(), st.integers(-2, 2), st.just(...), st.booleans(),
        st.lists(st.integers(-4, 4), max_size=3).map(lambda at: np.array(at, int)),
        st.integers(1, 3).flatmap(lambda n: st.lists(st.booleans(), min_size=n, max_size=n)).map(np.array),
    )  # fmt: skip
    mask = st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
    index = data.draw(
        st.one_of(st.lists(entries, max_size=4).map(tuple), mask.map(lambda flat: np.array(flat).reshape(shape)))
    )
    value = np.ones(data.draw(st.lists(st.integers(0, 3), max_size=3).map(tuple)))
    theirs = np.arange(np.prod(shape), dtype=float).reshape(shape)
    x = wt.tensor(theirs.copy(), chunk_size=data.draw(st.integers(1, 3)))
    before = theirs.copy()
    try:
        theirs[index] = value
    except (ValueError, IndexError, TypeError) as error:
        with pytest.raises(type(error)):
            x[index] = value
        theirs = before
    else:
        x[index] = value
    np.testing.assert_array_equal(x.fetch(), theirs)


RECORDS = np.zeros(3, [("a", "i4"), ("b", "f8")])


@pytest.mark.parametrize("index", [..., (), slice(None), [0, 2], [True, False, True]])
@pytest.mark.parametrize(
    ("held", "value"),
    [
        (np.arange(3.0), RECORDS),
        (np.arange(3), RECORDS),
        (np.zeros(3, "M8[s]"), RECORDS),
        (np.arange(3.0), np.array(["1", "x", "y"])),
        (np.arange(3), np.array([b"1", b"x", b"y"])),
        (np.arange(3), np.array([None, None, 1], object)),
        (np.zeros(3, "M8[s]"), np.array(["2024-01-01", "x", "y"])),
        (np.array(["a", "b", "c"]), np.zeros(3, "M8[s]")),
    ],
)
def test_values_of_no_such_type_are_refused_at_the_assignment_and_change_nothing(held, value, index):
    value = value[np.array(index)] if isinstance(index, list) else value
    with pytest.raises((TypeError, ValueError, RuntimeError)) as told:
        held.copy()[index] = value
    x = wt.tensor(held, chunk_size=2)
    with pytest.raises(told.type):
        x[index] = value
    np.testing.assert_array_equal(x.fetch(), held)


def test_a_field_takes_no_records():
    x = wt.array(RECORDS)
    with pytest.raises(TypeError, match="Cannot cast"):
        x["b"][()] = x
    np.testing.assert_array_equal(x.fetch(), RECORDS)
    with pytest.raises(TypeError, match="Cannot cast"):
        wt.asarray(RECORDS).astype(float)


def test_copyto_takes_what_numpys_takes():
    for into, source in (((3,), (1, 3)), ((2, 3), (1, 1, 3)), ((), (1, 1)), ((3,), (1, 1, 1)), ((0,), (1, 0))):
        theirs, given = np.zeros(into), 1 + np.arange(np.prod(source, dtype=int), dtype=float).reshape(source)
        np.copyto(theirs, given)
        for own in (given, wt.asarray(given)):
            x: Any = wt.zeros(into)
            np.copyto(x, own)
            np.testing.assert_array_equal(x.fetch(), theirs)
    x = wt.zeros(3)
    for wrong in (np.ones((2, 3)), np.ones((2, 1, 3)), np.ones(2)):
        with pytest.raises(ValueError, match=r"broadcast|axes|shape|dimensions"):
            np.copyto(x, wrong)
    with pytest.raises(ValueError, match="could not convert"):
        np.copyto(x, np.array(["a"]), casting="unsafe")
    assert x.fetch().tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [float, int, bool])
def test_the_imaginary_part_of_real_numbers_can_only_be_read(dtype):
    x = wt.ones(3, dtype=dtype)
    unknown = x[x > 0]
    for part in (x.imag, wt.imag(x), x.imag[1:], unknown.imag):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 5
        assert not part.fetch().any()
    assert not x.imag.flags.writeable
    own = wt.array(x.imag)
    own[0] = 1
    assert own.fetch().any()
    assert not x.imag.fetch().any()


@pytest.mark.parametrize(
    ("held", "change"),
    [
        (np.arange(1, 4), "x[0] += 2.5"),
        (np.arange(1, 4), "x[0] /= 2"),
        (np.arange(1, 4), "x[1] *= 1.75"),
        (np.array([True, False]), "x[0] += 1"),
        (np.array([True, False]), "x[1] -= np.int8(3)"),
        (np.arange(4.0).reshape(2, 2).astype("i2"), "x[1, 1] **= 0.5"),
        (np.arange(1, 4), "y = x[0]; y += 2.5; x[1] = y + 1"),
        (np.arange(1, 4), "y = x.sum(); y /= 4; x[1] = y"),
    ],
)
def test_an_element_in_place_is_a_number_as_with_numpy(held, change):
    theirs, x = held.copy(), wt.tensor(held, chunk_size=2)
    for one in (theirs, x):
        exec(change, {"np": np, "x": one})
    np.testing.assert_array_equal(x.fetch(), theirs)
    with pytest.raises(TypeError, match="same_kind"):
        x[..., 0] += 2.5j
    np.testing.assert_array_equal(x.fetch(), theirs)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 1, 2, 3), (1, 2, 1)])
def test_values_that_are_repeated_fit(shape):
    array, value = np.zeros((3, 3, 3)), np.random.default_rng(1).random(shape)
    x = wt.array(array)
    array[[0, 1], [2, 0]] = value
    x[[0, 1], [2, 0]] = value
    np.testing.assert_array_equal(x.fetch(), array)


def test_a_number_outside_is_refused():
    x = wt.tensor(np.arange(24).reshape(4, 6), chunk_size=2)
    with pytest.raises(IndexError, match=r"index 99 is out of bounds for axis 1 with size 6"):
        assigned_outside(x).fetch()


def assigned_outside(x):
    x[:, [1, 99]] = 0
    return x


def negative(x):
    x[x < 0] = 0


def scaled(x):
    x[x < 0] *= 2


def columns(x):
    x[:, ::2] += 1


def differences(x):
    x[1:] -= x[:-1]


def some_rows(x):
    x[np.arange(0, len(x), 3)] = 0


def a_column_of_some(x):
    x[5:, x[0] > 0] = 1


@pytest.mark.parametrize("change", [negative, scaled, columns, differences, some_rows, a_column_of_some])
def test_large_arrays_stay_in_their_chunks(change):
    values = np.random.default_rng(3).normal(size=(1024, 1024))
    x = wt.tensor(values.copy(), chunk_size=(64, 1024))
    change(x)
    change(values)
    with wt.Session(workers=2, memory="12MiB", direct=False) as session:
        found = float(x.sum().execute(session).fetch())
    assert found == pytest.approx(values.sum())


@pytest.mark.parametrize("change", [negative, columns, differences, some_rows])
def test_no_task_makes_the_whole_array(change):
    x = wt.zeros((1024, 1024), chunk_size=64)
    change(x)
    assert max(largest(node.grid) for node in walk([x.node])) <= 64 * 1024
