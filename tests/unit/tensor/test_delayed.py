"""Arrays of what spawned calls return."""

import numpy as np
import pytest

import weft.remote as wr
import weft.tensor as wt
from weft.model.errors import TaskError


def twos(n):
    return np.full(n, 2.0)


def parts():
    return np.arange(6).reshape(2, 3), 7


@pytest.mark.parametrize("n", [3, 100_000])
def test_calls_become_arrays_that_are_computed_first(session, n):
    calls = [wr.spawn(twos, (n,)) for _ in range(3)]
    joined = wt.concat([wt.from_delayed(one, (n,), float) for one in calls])
    assert joined.shape == (3 * n,)
    assert not any(one._ready() for one in calls)
    assert (joined * 2).sum().fetch() == 12 * n
    assert all(one._ready() for one in calls)
    np.testing.assert_array_equal(joined[n - 1 : n + 1].fetch(), [2, 2])


def test_a_call_runs_once_for_several_arrays(session):
    many, one = wr.spawn(parts, n_output=2)
    x = wt.from_delayed(many, (2, 3), int)
    number = wt.from_delayed(one, (), int)
    found = wt.fetch(x + number, x.sum(), number)
    np.testing.assert_array_equal(found[0], np.arange(6).reshape(2, 3) + 7)
    assert found[1:] == (15, 7)
    later = (x * 1).execute(wait=False)
    np.testing.assert_array_equal(later.result(180).fetch(), x.fetch())


def test_unknown_lengths_are_nan(session):
    x = wt.from_delayed(wr.spawn(twos, (5,)), (np.nan,), float)
    assert x[::2].fetch().tolist() == [2, 2, 2]
    assert x.shape == (5,)


def test_a_function_gets_such_an_array(session):
    x = wt.from_delayed(wr.spawn(twos, (5,)), (5,), float)
    assert wr.spawn(lambda a: float(a.sum()), (x,), resolve_tileable_input=True).fetch() == 10


def fails():
    raise ArithmeticError("no array")


@pytest.mark.parametrize(
    ("call", "shape", "dtype", "kind", "words"),
    [
        (lambda: wr.spawn(twos, (5,)), (4,), float, (TaskError, ValueError), r"has an array of shape \(5,\)"),
        (lambda: wr.spawn(twos, (5,)), (5,), int, (TaskError, TypeError), "array of float64, and .* was told int64"),
        (lambda: wr.spawn(fails), (4,), float, ArithmeticError, "no array"),
    ],
)
def test_what_is_no_such_array_is_refused(session, call, shape, dtype, kind, words):
    with pytest.raises(kind, match=words):
        wt.from_delayed(call(), shape, dtype).fetch()


def test_values_that_are_no_calls_are_refused():
    with pytest.raises(TypeError, match=r"give what weft\.remote\.spawn returned"):
        wt.from_delayed(np.zeros(3), (3,), float)
    with pytest.raises(TypeError, match="give dtype="):
        wt.from_delayed(wr.spawn(twos, (3,)), (3,))
