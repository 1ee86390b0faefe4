"""Every public function of `weft.tensor.special`, `stats` and `spatial.distance` equals SciPy's with unusual arguments.
`tensors.scipy_calls` has the arguments of each function; ufuncs take as many arrays as they have inputs."""

import inspect
import os
import random
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

special = pytest.importorskip("scipy.special", reason="SciPy is not installed: pip install 'weft[scipy]'")

from scipy import stats  # noqa: E402 - after it is known that SciPy is there
from scipy.spatial import distance  # noqa: E402

import weft.tensor as wt  # noqa: E402
from tests.properties.tensors.calls import Drawn, draw, table  # noqa: E402
from tests.properties.tensors.comparing import attempt  # noqa: E402
from tests.properties.tensors.differences import DIFFERENCES  # noqa: E402
from tests.properties.tensors.scipy_calls import DISTANCES, STATS  # noqa: E402
from tests.properties.test_public_functions import as_tensors, compare  # noqa: E402

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
COUNT = {"fast": 3, "soak": 300}.get(PROFILE, 6)
"""How many calls of each function are tried."""
UFUNCS = sorted({name for name in special.__all__ if isinstance(getattr(special, name), np.ufunc)})
OTHER_SPECIAL = {
    "ellip_harm": (2.0, 3.0, 1, 1),
    "ellip_harm_2": (2.0, 3.0, 1, 1),
    "ellip_normal": (2.0, 3.0, 1, 1),
    "multigammaln": (2,),
    "polygamma": (),
}
"""Functions of `special` that are no ufuncs, and what they take besides an array."""
SPACES = {"stats": (wt.stats, stats, table(STATS)), "distance": (wt.spatial.distance, distance, table(DISTANCES))}
ROWS = sorted((space, name) for space, (_, theirs, rows) in SPACES.items() for name in rows if hasattr(theirs, name))
UNTRIED = {
    *("abs", "bootstrap", "ecdf", "exp", "fit", "goodness_of_fit", "log", "logrank", "make_distribution"),
    *("monte_carlo_test", "order_statistic", "permutation_test", "power", "sobol_indices", "truncate"),
    *("anderson", "boxcox_normplot", "bws_test", "dunnett", "multiscale_graphcorr", "mvsdist", "obrientransform"),
    *("ppcc_max", "ppcc_plot", "probplot", "yeojohnson_normplot"),
    *("barnard_exact", "binned_statistic_2d", "binned_statistic_dd", "boschloo_exact", "page_trend_test"),
    "spearmanrho",
}
"""Functions of `stats` that are called as the others are. They take functions and distributions, return no arrays or
random ones, are slow, or have the arguments of others."""


def both(space: str, name: str) -> Any:
    ours, theirs, _ = SPACES[space]
    return parts(getattr(ours, name)), parts(getattr(theirs, name))


def parts(fn: Any) -> Any:
    """Return a function whose results that are no tuples of arrays alone become the arrays in them."""

    def function(*args: Any, **kwargs: Any) -> Any:
        made = fn(*args, **kwargs)
        if hasattr(made, "mean_direction"):
            return made.mean_direction
        return (made.statistic, made.pvalue) if hasattr(made, "pvalue") and hasattr(made, "statistic") else made

    return function


def covered(found: Any) -> bool:
    return any(one.covers(found) for one in DIFFERENCES)


@pytest.mark.parametrize("name", UFUNCS)
def test_special_as_scipy(name, seed):
    ufunc = getattr(special, name)
    roles = ["small", *["small_y"] * (ufunc.nin - 1)] if ufunc.nin > 1 else ["x"]
    if re.match("obl_|pro_", name):  # functions of spheroids run without end for some other numbers
        roles = ["ones", "twos", *["halves"] * (ufunc.nin - 2)]
    roles += ["dtype=wider?", *["out?"] * (ufunc.nout == 1)]
    for number in range(seed, seed + COUNT):
        d = draw(roles, random.Random(number))
        found = compare(name, d, of=lambda name: (getattr(wt.special, name), getattr(special, name)))
        assert not found or covered(found), f"repeat with WEFT_SEED={number}: {found.told}"


@pytest.mark.parametrize("name", ["erf", "gammaln", "jv", "sici"])
def test_elements_that_where_excludes_stay(name, seed):
    """SciPy's functions of complex numbers put the chosen elements elsewhere, so the whole result is compared."""
    ufunc = getattr(special, name)
    for number in range(seed, seed + COUNT):
        rng = random.Random(number)
        d = Drawn(rng)
        given = [d.new((7, 3), ["float64"]) for _ in range(ufunc.nin)]
        mask = d.new((7, 3), ["bool"])
        with np.errstate(all="ignore"):
            wanted = [np.where(mask, one, 5.0) for one in np.atleast_3d(ufunc(*given)).reshape(ufunc.nout, 7, 3)]
        out = [wt.full((7, 3), 5.0) for _ in wanted]
        getattr(wt.special, name)(*as_tensors(given, rng), out=tuple(out), where=as_tensors(mask, rng))
        for one, two in zip(out, wanted, strict=True):
            np.testing.assert_allclose(one.fetch(), two, rtol=1e-12, err_msg=f"repeat with WEFT_SEED={number}")


@pytest.mark.parametrize("name", OTHER_SPECIAL)
def test_functions_that_are_no_ufuncs(name, seed):
    d = Drawn(random.Random(seed))
    x = np.abs(d.new((7,), ["float64"], special=False)) + 4
    given: Any = (2, x) if name == "polygamma" else (x, 2) if name == "multigammaln" else (2.0, 3.0, 1, 1, x)
    given = given[:4] if name == "ellip_normal" else given
    wanted, _ = attempt(lambda: getattr(special, name)(*given))
    found, _ = attempt(lambda: getattr(wt.special, name)(*as_tensors(given, d.rng)).fetch())
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize(("space", "name"), ROWS)
def test_as_scipy(space, name, seed):
    for number in range(seed, seed + COUNT):
        d = draw(SPACES[space][2][name], random.Random(number))
        found = compare(name, d, of=partial(both, space))
        assert not found, f"repeat with WEFT_SEED={number}: {found.told}"


def test_every_public_function_is_tried():
    for ours, theirs, rows in SPACES.values():
        public = {name for name in theirs.__all__ if inspect.isroutine(getattr(theirs, name))}
        assert all(callable(getattr(ours, name)) for name in public)
        assert public - UNTRIED <= {*rows}, f"{public - UNTRIED - {*rows}}: give it a row in tensors.scipy_calls"
    for name in special.__all__:
        if name not in {*UFUNCS, *OTHER_SPECIAL}:
            with pytest.raises(AttributeError, match="no function"):
                getattr(wt.special, name)


def test_results_have_all_attributes_of_those_of_scipy():
    x, y = np.random.default_rng(3).normal(size=(2, 20))
    found, wanted = wt.stats.ttest_ind(wt.asarray(x), wt.asarray(y)), stats.ttest_ind(x, y)
    assert found.df.fetch() == wanted.df
    assert found.fetch().df == wanted.df
    assert found.confidence_interval().low == wanted.confidence_interval().low
    line = wt.stats.linregress(wt.asarray(x), wt.asarray(y))
    assert line.intercept_stderr.fetch() == stats.linregress(x, y).intercept_stderr
    cut = wt.stats.sigmaclip(wt.asarray(x), chunk_size=3)
    assert cut.clipped.chunks[0][:2] == (3, 3)
    with pytest.raises(AttributeError, match="nothing"):
        _ = found.nothing
    with pytest.raises(AttributeError, match=r"no function 'norm'; import it from scipy\.stats"):
        _ = wt.stats.norm


def test_distances_are_put_into_an_array():
    x = np.arange(12.0).reshape(4, 3)
    into = wt.zeros((4, 4))
    assert wt.spatial.distance.cdist(wt.asarray(x), x, out=into) is into
    np.testing.assert_array_equal(into.fetch(), distance.cdist(x, x))
