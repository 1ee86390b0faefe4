"""Functions of SciPy that need the values of their arguments as a whole: they are computed, and SciPy is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from weft.frontends.tensors.arrays.array import Tensor, put_into
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.creation import asarray
from weft.frontends.tensors.arrays.executables import ExecutableTuple, fetch
from weft.frontends.tensors.arrays.extras import needed
from weft.frontends.tensors.arrays.ufuncs import called
from weft.frontends.tensors.blocks import elementwise
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ChunkSize


def scipy_function(module: str, name: str) -> Callable[..., Any]:
    """Return a function of SciPy that takes and returns arrays. AttributeError: there is none of that name."""
    found = None if name.startswith("_") else getattr(needed(module), name, None)
    if not inspect.isroutine(found):
        other = "" if found is None else f"; import it from {module}, and give it values that fetch() returns"
        raise AttributeError(f"{module} has no function {name!r}{other}")

    def function(*args: Any, chunk_size: ChunkSize = None, **kwargs: Any) -> Any:
        arrays = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        values = dict(zip(map(id, arrays), fetch(list(arrays)) if len(arrays) > 1 else map(fetch, arrays), strict=True))
        own = {key: values.get(id(one), one) for key, one in kwargs.items()}
        made = _as_tensors(found(*[values.get(id(one), one) for one in args], **own), chunk_size)
        return put_into(kwargs["out"], made, True) if isinstance(kwargs.get("out"), Tensor) else made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""As `{module}.{name}`; computes its arguments, and is computed at once.

    `chunk_size` is that of the result.
    """
    return function


class Result(ExecutableTuple):
    """A result of SciPy with several parts, which are arrays. It has the other attributes and methods too."""

    _made: Any

    def __new__(cls, made: tuple[Any, ...], chunk_size: ChunkSize = None) -> Self:
        """Take the parts of a result."""
        parts = super().__new__(cls, [_as_tensors(one, chunk_size) for one in made])
        parts._made = made
        return parts

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        fields = getattr(self._made, "_fields", ())
        return self[fields.index(name)] if name in fields else _as_tensors(getattr(self._made, name))

    def fetch(self, session: Any = None, *, keep: bool = True) -> Any:
        """Return the result of SciPy itself, which is kept in any case."""
        return self._made

    to_object = fetch


def _as_tensors(made: Any, chunk_size: ChunkSize = None) -> Any:
    if isinstance(made, tuple):
        return Result(made, chunk_size)
    if not isinstance(made, np.ndarray | np.generic | int | float):
        return made
    return asarray(made, chunk_size=chunk_size if np.ndim(made) else None)


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
            raise TypeError(f"{name} takes {counted(ufunc.nin, 'array')}, not {len(operands)}")
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
