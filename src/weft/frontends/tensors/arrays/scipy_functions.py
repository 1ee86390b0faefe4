"""Functions of SciPy that need the values of their arguments as a whole: they are computed, and SciPy is called."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.creation import asarray
from weft.frontends.tensors.arrays.executables import ExecutableTuple, fetch
from weft.frontends.tensors.arrays.extras import needed


def called(module: str, name: str) -> Callable[..., Any]:
    """Return a function of SciPy that takes and returns arrays. AttributeError: there is none of that name."""
    found = None if name.startswith("_") else getattr(needed(module), name, None)
    if not callable(found):
        raise AttributeError(f"{module} has no function {name!r}")

    def function(*args: Any, **kwargs: Any) -> Any:
        arrays = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        values = dict(zip(map(id, arrays), fetch(list(arrays)) if len(arrays) > 1 else map(fetch, arrays), strict=True))
        args = tuple([values.get(id(one), one) for one in args])
        return _as_tensors(found(*args, **{key: values.get(id(one), one) for key, one in kwargs.items()}))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"As `{module}.{name}`; computes its arguments, and is computed at once."
    return function


def _as_tensors(made: Any) -> Any:
    if isinstance(made, tuple):
        parts = [_as_tensors(one) for one in made]
        fields = getattr(made, "_fields", ())
        return ExecutableTuple(namedtuple(type(made).__name__, fields)(*parts) if len(fields) == len(parts) else parts)
    return asarray(made) if isinstance(made, np.ndarray | np.generic | int | float) else made
