"""Reductions, running sums, differences."""

import random
from functools import partial
from typing import Any

import numpy as np

import weft.tensor as wt
from tests.properties.tensors.drawing import NUMBERS, REAL, Case, Draw, array, axes_of, axis_of, keyed, shape

# -------------------------------------------------------------------------------------------------------- reductions

REDUCTIONS: dict[str, Draw] = {}


def _reduced(rng: random.Random) -> Any:
    x = array(rng, shape(rng, 0, 4))
    kwargs: dict[str, Any] = {"axis": axes_of(rng, x.ndim)}
    if rng.random() < 0.5:
        kwargs["keepdims"] = rng.random() < 0.5
    return [x], kwargs


def _typed(rng: random.Random) -> Any:
    arrays, kwargs = _reduced(rng)
    if rng.random() < 0.2:
        kwargs["dtype"] = rng.choice([np.float64, np.complex128])
    return arrays, kwargs


def _factors(rng: random.Random, x: Any, dtype: Any) -> Any:
    """Draw numbers whose product cannot overflow on the way: NaN or infinity would depend on the order."""
    if x.dtype.kind not in "fc" and dtype is None:
        return x
    return np.asarray(np.sign(array(rng, x.shape, ["int8"]))).astype(x.dtype)


def _product(rng: random.Random) -> Any:
    (x,), kwargs = _typed(rng)
    return [_factors(rng, x, kwargs.get("dtype"))], kwargs


def _running_product(rng: random.Random) -> Any:
    (x,), kwargs = _running(rng)
    return [_factors(rng, x, None)], kwargs


def _spread(rng: random.Random) -> Any:
    arrays, kwargs = _reduced(rng)
    arrays = [array(rng, arrays[0].shape, NUMBERS)]
    return arrays, {**kwargs, "correction": rng.choice([0, 1, 0.5])}


def _one_axis(rng: random.Random) -> Any:
    x = array(rng, shape(rng, 0, 3), REAL)
    return [x], {"axis": None if rng.random() < 0.3 else axis_of(rng, x.ndim), "keepdims": rng.random() < 0.3}


def _running(rng: random.Random) -> Any:
    x = array(rng, shape(rng, 1, 3), NUMBERS)
    axis = None if x.ndim == 1 and rng.random() < 0.3 else axis_of(rng, x.ndim)
    return [x], {"axis": axis, "include_initial": rng.random() < 0.3}


REDUCTIONS["sum"] = keyed("sum", _typed)
REDUCTIONS["prod"] = keyed("prod", _product)
for _name in ("max", "min", "all", "any", "count_nonzero"):
    REDUCTIONS[_name] = keyed(_name, _reduced, exact=True)
REDUCTIONS["mean"] = keyed("mean", _reduced)
for _name in ("var", "std"):
    REDUCTIONS[_name] = keyed(_name, _spread)
for _name in ("argmax", "argmin"):
    REDUCTIONS[_name] = keyed(_name, _one_axis, exact=True)
REDUCTIONS["cumulative_sum"] = keyed("cumulative_sum", _running)
REDUCTIONS["cumulative_prod"] = keyed("cumulative_prod", _running_product)


def _diff(rng: random.Random) -> Case:
    x = array(rng, shape(rng, 1, 3))
    axis, n = rng.randrange(-x.ndim, x.ndim), rng.randint(0, 3)
    end = list(x.shape)
    end[axis] = rng.randint(0, 2)
    if rng.random() < 0.3:
        more = array(rng, tuple(end), [str(x.dtype)])
        side = rng.choice(["prepend", "append"])
        return Case(
            f"diff {side}",
            [x, more],
            lambda a, b: wt.diff(a, axis=axis, n=n, **{side: b}),
            lambda a, b: np.diff(a, axis=axis, n=n, **{side: b}),
        )
    return Case(f"diff {axis} {n}", [x], partial(wt.diff, axis=axis, n=n), partial(np.diff, axis=axis, n=n))


REDUCTIONS["diff"] = _diff
