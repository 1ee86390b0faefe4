"""Arrays as parameters: tasks get their values, and never compute them in the session that waits for the tasks."""

import threading
from typing import Any

import numpy as np
import pytest

from weft import tensor

wt: Any = tensor

DEADLINE_S = 180.0
X = np.array([0.0, np.nan, 2.0, np.inf, 4.0, -np.inf])


@pytest.fixture
def session():
    with wt.Session(direct=False, chunk_size=2, workers=1) as session:
        yield session.as_default()


def values_of(session, make):
    """Return the values of an expression that another thread makes and computes; fail if it does not end."""
    made = []

    def work():
        found = make()
        made.append(found.fetch() if hasattr(found, "fetch") else found)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the computation waits for itself"
    return made[0]


def half(xp):
    """Return 0.5, as a result of tasks."""
    return xp.mean(xp.ones(6)) * 0.5


CALLS = {
    "linspace": lambda xp, x, t: xp.linspace(0.0, t, 6),
    "linspace, both": lambda xp, x, t: xp.linspace(-t, t, 6),
    "logspace": lambda xp, x, t: xp.logspace(0, t, 6),
    "geomspace": lambda xp, x, t: xp.geomspace(1, t, 6),
    "nan_to_num": lambda xp, x, t: xp.nan_to_num(x, nan=t, posinf=2 * t),
    "nan_to_num, arrays": lambda xp, x, t: xp.nan_to_num(x, nan=t * xp.arange(6)),
    "isclose": lambda xp, x, t: xp.isclose(x, x + 0.1, rtol=t),
    "isclose, arrays": lambda xp, x, t: xp.isclose(x, x + 2, atol=t * xp.arange(6)),
    "allclose": lambda xp, x, t: xp.allclose(x[::2], x[::2] + 0.1, atol=t),
    "clip": lambda xp, x, t: xp.clip(x, -t, t),
    "pad": lambda xp, x, t: xp.pad(x, 2, constant_values=t),
    "quantile": lambda xp, x, t: xp.quantile(xp.arange(6.0), t),
    "percentile": lambda xp, x, t: xp.percentile(xp.arange(6.0), t * 100),
    "sum": lambda xp, x, t: xp.sum(xp.arange(6), initial=t),
    "histogram": lambda xp, x, t: xp.histogram(xp.arange(6), bins=3, range=(0, t * 10))[0],
    "diff": lambda xp, x, t: xp.diff(xp.arange(6), prepend=t),
    "trapezoid": lambda xp, x, t: xp.trapezoid(xp.arange(6), dx=t),
    "full": lambda xp, x, t: xp.full(6, t),
    "eye": lambda xp, x, t: xp.eye(5, k=xp.astype(t * 2, int)),
    "tri": lambda xp, x, t: xp.triu(xp.ones((5, 5)), k=xp.astype(t * 2, int)),
    "roll": lambda xp, x, t: xp.roll(xp.arange(6), xp.astype(t * 4, int)),
    "repeat": lambda xp, x, t: xp.repeat(xp.arange(6), xp.astype(t * 4, int)),
    "round": lambda xp, x, t: xp.round(xp.arange(6) / 7, xp.astype(t * 4, int)),
    "var": lambda xp, x, t: xp.var(xp.arange(6), ddof=t),
    "searchsorted": lambda xp, x, t: xp.searchsorted(xp.arange(6), t),
    "where": lambda xp, x, t: xp.where(xp.isnan(x), t, x),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_array_as_a_parameter_is_its_value(session, name):
    def make():
        return CALLS[name](wt, wt.asarray(X), half(wt))

    try:
        wanted = CALLS[name](np, X, half(np))
    except TypeError:
        pytest.skip("NumPy takes no array here")
    np.testing.assert_allclose(np.asarray(values_of(session, make), float), wanted)


def test_arrays_in_the_arguments_of_a_users_function_are_values(session):
    def shifted(chunk, by, *, others):
        assert type(others["b"][0]) is not wt.Tensor
        return chunk + by + others["b"][0]

    def make():
        return wt.arange(6.0).map_chunk(shifted, args=(half(wt),), others={"b": [half(wt)]})

    np.testing.assert_array_equal(values_of(session, make), np.arange(6.0) + 1)


def test_parameters_of_arrays_of_unknown_lengths_are_values_too(session):
    def make():
        x = wt.asarray(X)
        return wt.nan_to_num(x[~wt.isinf(x)], nan=half(wt))

    np.testing.assert_array_equal(values_of(session, make), [0.0, 0.5, 2.0, 4.0])


def test_a_users_ufunc_of_any_name_runs_in_tasks(session):
    class Odd:
        __name__ = "größer (than) [one]@/..-"

        def __call__(self, x):
            return x + 1

    for function in (lambda x: x + 1, Odd()):
        made = np.frompyfunc(function, 1, 1)(wt.arange(6))
        assert made.fetch().tolist() == [1, 2, 3, 4, 5, 6]
