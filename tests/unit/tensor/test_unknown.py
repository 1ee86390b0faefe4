"""Arrays whose lengths depend on data: reductions of them go on without computing them first."""

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.chunks import known

VALUES = np.random.default_rng(11).normal(size=(40, 6))
CALLS = [
    lambda xp, x: xp.sum(x),
    lambda xp, x: xp.sum(x, axis=0),
    lambda xp, x: xp.prod(x, axis=0, keepdims=True),
    lambda xp, x: xp.max(x),
    lambda xp, x: xp.min(x, axis=0),
    lambda xp, x: xp.max(x, axis=1),
    lambda xp, x: xp.mean(x),
    lambda xp, x: xp.mean(x, axis=0, keepdims=True),
    lambda xp, x: xp.mean(x, axis=1),
    lambda xp, x: xp.std(x, axis=0),
    lambda xp, x: xp.var(x),
    lambda xp, x: xp.any(x > 2),
    lambda xp, x: xp.all(x > -9, axis=0),
    lambda xp, x: xp.count_nonzero(x > 0, axis=0),
]


@pytest.fixture(scope="module", params=["direct", "threads", "processes"])
def where(request):
    backend = "threads" if request.param == "direct" else request.param
    with wt.Session(backend=backend, workers=2, direct=request.param == "direct"):
        yield request.param


@pytest.mark.parametrize("number", range(len(CALLS)))
@pytest.mark.parametrize("limit", [0.0, 1.5])
def test_reductions_are_lazy(number, limit, where):
    mask = VALUES[:, 0] > limit  # with 1.5 some chunks have no rows left
    picked = wt.asarray(VALUES, chunk_size=(5, 3))[wt.asarray(mask, chunk_size=5)]
    made = CALLS[number](wt, picked * 2)
    assert not known(picked._node.grid), "it was computed"
    np.testing.assert_allclose(made.fetch(), CALLS[number](np, VALUES[mask] * 2), rtol=1e-12)


def test_of_nothing_at_all():
    with wt.Session(workers=1):
        x = wt.asarray(np.arange(10.0), chunk_size=3)
        none = x[x > 20]
        assert float(wt.sum(none)) == 0
        assert np.isnan(float(wt.mean(none)))
        with pytest.raises(ValueError, match="zero-size array to reduction operation maximum which has no identity"):
            wt.max(none).fetch()
