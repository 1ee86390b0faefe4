"""The element-wise functions of `scipy.special` on arrays. They need SciPy: `pip install 'weft[scipy]'`.

Names are looked up in SciPy at their use, so all of its ufuncs are available, and a few other functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontends.tensors.arrays.scipy_functions import special_function


def __getattr__(name: str) -> Callable[..., Any]:
    return special_function(name)
