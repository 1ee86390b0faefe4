"""Functions of SciPy that need the values of their arguments as a whole: they are computed, and SciPy is called."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.creation import asarray
from weft.frontends.tensors.arrays.executables import ExecutableTuple, fetch
from weft.frontends.tensors.arrays.extras import needed
from weft.frontends.tensors.arrays.ufuncs import called
from weft.frontends.tensors.blocks import elementwise


def scipy_function(module: str, name: str) -> Callable[..., Any]:
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


def special_function(name: str) -> Callable[..., Any]:
    """Return the function of `scipy.special` of a name, for arrays. AttributeError: none goes element by element."""
    ufunc = None if name.startswith("_") else getattr(needed("scipy.special"), name, None)
    if name in _NO_UFUNCS and ufunc is not None:
        return _element_by_element(name, ufunc)
    if not isinstance(ufunc, np.ufunc):
        raise AttributeError(f"scipy.special has no function {name!r} that goes element by element")

    def function(*operands: Any, out: Any = None, where: Any = True, **how: Any) -> Any:
        into = [*(out if isinstance(out, tuple) else (out,)), *operands[ufunc.nin :]]
        into = [one for one in into if one is not None] + [None] * ufunc.nout
        if not ufunc.nin <= len(operands) <= ufunc.nin + ufunc.nout:
            raise TypeError(f"{name} takes {ufunc.nin} arrays, not {len(operands)}")
        given = operands[: ufunc.nin]
        made = ExecutableTuple([called(ufunc, given, into[at], where, at=at, **how) for at in range(ufunc.nout)])
        return made[0] if len(made) == 1 else made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element by element as `scipy.special.{name}`."
    return function


_NO_UFUNCS = ("ellip_harm", "ellip_harm_2", "ellip_normal", "multigammaln", "polygamma")


def _element_by_element(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def function(*operands: Any) -> Tensor:
        return Tensor(elementwise(fn, [as_node(one) for one in operands], np.dtype(np.float64), name))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element by element as `scipy.special.{name}`."
    return function
