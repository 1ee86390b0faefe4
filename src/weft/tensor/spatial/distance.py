"""The functions of `scipy.spatial.distance` on arrays. They need SciPy, and all values at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontends.tensors.arrays.scipy_functions import scipy_function


def __getattr__(name: str) -> Callable[..., Any]:
    return scipy_function("scipy.spatial.distance", name)
