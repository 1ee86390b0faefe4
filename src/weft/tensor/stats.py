"""The functions of `scipy.stats` on arrays. They need SciPy (`pip install 'weft[scipy]'`) and compute all values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontends.tensors.arrays.scipy_functions import scipy_function


def __getattr__(name: str) -> Callable[..., Any]:
    return scipy_function("scipy.stats", name)
