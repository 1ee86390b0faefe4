"""Calls that may fail, and values that are alike."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def attempt(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Return what a call returns, or what it raises."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy tells some things twice: what it casts, what it divides by zero
        try:
            return call(), None
        except Exception as error:  # noqa: BLE001 - whatever it refuses with
            return None, error


def check(
    ours: Any, theirs: Any, arrays: Sequence[Any], told: str = "", *, exact: bool = False, eps_of: Any = None
) -> None:
    """Compare values: to the bit, or as closely as sums of such numbers in another order are alike.

    `eps_of` is the type that they are computed in, if it is another one than that of the result.
    """
    if exact or theirs.dtype.kind not in "fc":
        np.testing.assert_array_equal(ours, theirs, told)
        return
    kinds = [theirs.dtype] if eps_of is None or eps_of.kind not in "fc" else [theirs.dtype, eps_of]
    eps = max(float(np.finfo(kind).eps) for kind in kinds)
    scale = [1.0]
    with np.errstate(all="ignore"):
        for x in (*arrays, theirs):
            finite = np.abs(x[np.isfinite(x)]).astype(np.float64)
            scale.append(float(finite.max(initial=0)) * max(1, x.size) ** 0.5)
        for part in (np.real, np.imag) if theirs.dtype.kind == "c" else (np.asarray,):
            np.testing.assert_allclose(
                part(ours), part(theirs), rtol=3000 * eps, atol=100 * eps * max(scale), err_msg=told
            )


def listed(made: Any) -> list[Any]:
    """Return arrays as a list."""
    return list(made) if isinstance(made, tuple | list) else [made]
