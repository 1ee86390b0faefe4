"""The functions of `scipy.special` that go element by element, on arrays. They need SciPy: `pip install 'weft[scipy]'`.

A name is looked up in SciPy when it is used, so all of its ufuncs are here, and a few functions that are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontends.tensors.arrays.scipy_functions import special_function


def __getattr__(name: str) -> Callable[..., Any]:
    return special_function(name)
