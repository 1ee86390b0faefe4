"""Functions of `scipy.special` on arrays, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontends.tensors.arrays.array import Tensor, as_node, called
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.extras import needed
from weft.frontends.tensors.searching import elementwise


def special_function(name: str) -> Callable[..., Any]:
    """Return the function of `scipy.special` of a name, for arrays. AttributeError: none goes element by element."""
    ufunc = None if name.startswith("_") else getattr(needed("scipy.special"), name, None)
    if name in _NO_UFUNCS and ufunc is not None:
        return _elementwise(name, ufunc)
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


def _elementwise(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def function(*operands: Any) -> Tensor:
        return Tensor(elementwise(fn, [as_node(one) for one in operands], np.dtype(np.float64), name))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element by element as `scipy.special.{name}`."
    return function
