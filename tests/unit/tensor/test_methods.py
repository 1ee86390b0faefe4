"""Methods of arrays, called as on NumPy's."""

import numpy as np
import pytest

import weft.tensor as wt

X = np.random.default_rng(9).normal(size=(6, 4))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(),
        lambda x: x.sum(0),
        lambda x: x.sum(axis=1, keepdims=True),
        lambda x: x.mean(1),
        lambda x: x.std(0, ddof=1),
        lambda x: x.var(),
        lambda x: x.max(axis=0),
        lambda x: x.argmin(1),
        lambda x: (x > 0).any(0),
        lambda x: x.cumsum(1),
        lambda x: x.reshape(3, -1),
        lambda x: x.reshape((2, 12)),
        lambda x: x.transpose(),
        lambda x: x.transpose(1, 0),
        lambda x: x.T.dot(x),
        lambda x: x.ravel(),
        lambda x: x[:, :1].squeeze(),
        lambda x: x.clip(-0.5, 0.5),
        lambda x: x.round(2),
        lambda x: x.repeat(2, axis=1),
        lambda x: x.diagonal(),
        lambda x: x.swapaxes(0, 1),
        lambda x: divmod(x, 0.7)[1],
        lambda x: divmod(2.0, x)[0],
        lambda x: x.sum(0, where=X > 0, initial=1.0),
    ],
)
def test_a_method_gives_what_numpys_gives(call):
    np.testing.assert_allclose(call(wt.asarray(X, chunk_size=3)).fetch(), call(X), rtol=1e-12)


def test_a_copy_is_not_changed_with_the_array():
    x = wt.asarray(X, chunk_size=3)
    y = x.copy()
    x[0] = 0.0
    assert np.array_equal(y.fetch(), X)
    assert not x.fetch()[0].any()


def test_an_array_is_like_one_of_numpys():
    x = wt.asarray(X, chunk_size=3)
    assert np.array_equal(round(x, 1).fetch(), X.round(1))
    assert np.array_equal(round(x).fetch(), X.round())
    assert f"{x[0, 0]:.3f} {x[0, 0]}" == f"{X[0, 0]:.3f} {X[0, 0]}"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{x:.3f}"
    assert (x.itemsize, x.tobytes(), x.tobytes("F")) == (8, X.tobytes(), X.tobytes("F"))
    part = x[1:3]
    part.fill(2)
    assert (x.fetch()[1:3] == 2).all()


@pytest.mark.parametrize("other", [None, "a", b"a", np.str_("1"), ["1", "4", "a"]])
def test_what_cannot_be_compared_is_not_equal(other):
    x = np.arange(6).reshape(2, 3)
    for values in (x, x.astype("U"), x.astype("S"), x.astype("M8[D]"), x.astype(object)):
        made = wt.asarray(values, chunk_size=2)
        assert np.array_equal((made == other).fetch(), values == other)
        assert np.array_equal((made != other).fetch(), values != other)


def test_every_public_name_is_there():
    for name in wt.__all__:
        assert hasattr(wt, name), name


def test_several_arrays_are_computed_in_one_run():
    x = wt.random.rand(100, chunk_size=30)
    y, z = x + 1, x * 2
    wt.execute(y, z)
    one, two = wt.fetch(y, z)
    np.testing.assert_allclose(one * 2 - two, 2.0)
