"""The functions of `scipy.special` that go element by element, on arrays. They need SciPy: `pip install 'weft[scipy]'`.

A name is looked up in SciPy when it is used, so all of its ufuncs are here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.tensor.array import apply
from weft.tensor.extras import needed
from weft.tensor.running import ExecutableTuple


def __getattr__(name: str) -> Callable[..., Any]:
    ufunc = None if name.startswith("_") else getattr(needed("scipy.special"), name, None)
    if not isinstance(ufunc, np.ufunc):
        raise AttributeError(f"scipy.special has no function {name!r} that goes element by element")

    def function(*operands: Any) -> Any:
        if len(operands) != ufunc.nin:
            raise TypeError(f"{name} takes {ufunc.nin} arrays, not {len(operands)}")
        made = ExecutableTuple([apply(ufunc, *operands, out=at) for at in range(ufunc.nout)])
        return made[0] if len(made) == 1 else made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element by element as `scipy.special.{name}`."
    return function
