"""Who computes the chunks: NumPy, or another library with its names of functions, such as CuPy or JAX.

A region that has a namespace calls that one's functions in the place of NumPy's: ufuncs, reductions by them, the
functions of `numpy.linalg`, and kernels that ask for a namespace (`asking`). Values come in as NumPy's arrays and leave
as such, so that stores and other tasks see no difference; between the steps of one region they stay where they are.
What a namespace does not have NumPy computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

import numpy as np

from weft.model.errors import MissingExtraError, UsageError

NUMPY: Final = "numpy"
_PACKAGES = {"cupy": "cupy-cuda12x", "array_api_strict": "array-api-strict"}
"""What is installed for a module, where that has another name."""
_STANDARD = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "conjugate": "conj", "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift", "power": "pow", "right_shift": "bitwise_right_shift", "true_divide": "divide",
}  # fmt: skip
"""What the array standard calls ufuncs that NumPy names otherwise."""
_REDUCED: Mapping[np.ufunc, str] = {
    np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min", np.logical_and: "all",
    np.logical_or: "any",
}  # fmt: skip
_SUMS = ("sum", "prod")


def checked(name: Any) -> str:
    """Return the name of an array namespace, given as text or as a module. Nothing is imported.

    UsageError: it is neither. MissingExtraError: the library is not installed.
    """
    found = name.__name__ if isinstance(name, ModuleType) else name
    if not isinstance(found, str) or not all(part.isidentifier() for part in found.split(".")):
        raise UsageError(
            f"array_namespace is {name!r}", hint='Give the name of a module: "numpy", "cupy", "jax.numpy".'
        )
    library = found.partition(".")[0]
    if find_spec(library) is None:
        package = _PACKAGES.get(library, library)
        raise MissingExtraError(f"{library} is not installed", hint=f"Install it: pip install {package}")
    return found


def asking(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a kernel that takes `xp`: the namespace that it computes with, and of which its arrays are."""
    kernel.asks_for_namespace = True  # type: ignore[attr-defined]
    return kernel


class Namespace:
    """A module with NumPy's functions, or those of the array standard, imported when it is first needed."""

    def __init__(self, name: str) -> None:
        self.xp = import_module(name)
        if name == "jax.numpy":  # would make 32 bits of 64
            import_module("jax").config.update("jax_enable_x64", True)

    def inside(self, value: Any) -> Any:
        """Return an array of NumPy's, or a list of them, as arrays of the namespace; what else it is, as it is."""
        if isinstance(value, list):
            return [self.inside(one) for one in value]
        return self.xp.asarray(value) if isinstance(value, np.ndarray | np.generic) else value

    def outside(self, value: Any) -> Any:
        """Return an array of the namespace, or several, as NumPy's."""
        if isinstance(value, list | tuple):
            return type(value)([self.outside(one) for one in value])
        if value is None or isinstance(value, np.ndarray | np.generic | bool | int | float | complex | str | bytes):
            return value
        if hasattr(self.xp, "asnumpy"):
            return self.xp.asnumpy(value)
        return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)

    def called(self, fn: Any) -> Callable[..., Any] | None:
        """Return what stands for a function; None: there is nothing, and it is called with NumPy's arrays."""
        if isinstance(fn, np.ufunc):
            own = self._named(fn.__name__) or self._named(_STANDARD.get(fn.__name__, ""))
            return None if own is None or fn.nout > 1 else partial(self._ufunc, fn, own)
        if getattr(fn, "asks_for_namespace", False):
            return partial(fn, xp=self.xp)
        if getattr(fn, "__module__", "") == "numpy.linalg":
            found: Callable[..., Any] | None = self._named(f"linalg.{fn.__name__}")
            return found
        return None

    def reduced(self, fn: np.ufunc, dtype: np.dtype[Any]) -> Callable[..., Any] | None:
        """Return what reduces an array by a ufunc, with `axis=`, and keeps the axes; None: NumPy does."""
        own = self._named(_REDUCED.get(fn, ""))
        if own is None:
            return None
        kind = {"dtype": self._dtype(dtype)} if _REDUCED[fn] in _SUMS else {}
        return partial(own, keepdims=True, **kind)

    def _named(self, name: str) -> Any:
        found: Any = self.xp
        for part in name.split("."):
            found = getattr(found, part, None) if part else None
        return found

    def _dtype(self, dtype: np.dtype[Any]) -> Any:
        return getattr(self.xp, dtype.name, dtype)

    def _ufunc(self, fn: np.ufunc, own: Callable[..., Any], *values: Any) -> Any:
        """Call what stands for a ufunc, with values in the types that NumPy's would compute in."""
        kinds = [_dtype_of(one) for one in values]
        loop = fn.resolve_dtypes((*kinds, None))
        given = [
            self._cast(one, want) if isinstance(kind, np.dtype) and kind != want else one
            for one, kind, want in zip(values, kinds, loop, strict=False)
        ]
        return own(*given)

    def _cast(self, value: Any, dtype: np.dtype[Any]) -> Any:
        kind = self._dtype(dtype)
        return value.astype(kind) if hasattr(value, "astype") else self.xp.astype(value, kind)


def _dtype_of(value: Any) -> Any:
    """Return NumPy's dtype of an array of any namespace; of a number of Python its type."""
    if isinstance(value, bool | int | float | complex):
        return np.dtype(bool) if isinstance(value, bool) else type(value)
    dtype = value.dtype
    return dtype if isinstance(dtype, np.dtype) else np.dtype(str(dtype).rpartition(".")[2])


@cache
def namespace(name: str) -> Namespace:
    """Return a namespace by its name; the first call imports it. ImportError: it cannot be."""
    return Namespace(name)


def numbers(value: Any) -> bool:
    """Whether a value is a number, an array of numbers, or a list of these: what any namespace takes."""
    if isinstance(value, list):
        return all(numbers(one) for one in value)
    if isinstance(value, bool | int | float | complex):
        return True
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (not isinstance(dtype, np.dtype) or dtype.kind in "biufc")
