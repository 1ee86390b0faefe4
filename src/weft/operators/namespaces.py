"""Array namespaces: NumPy or another library with its functions, such as CuPy or JAX, computes the chunks.

A region with a namespace calls the functions of that namespace in place of NumPy's: ufuncs, reductions by ufuncs,
functions of `numpy.linalg`, and kernels that take a namespace (`asking`). Inputs and outputs of a region are NumPy
arrays, so that stores and other tasks need no knowledge of it; values between the steps of a region stay in the
namespace. NumPy computes functions that the namespace lacks.
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
_PACKAGES = {"cupy": "cupy-cuda12x", "array_api_strict": "array-api-strict", "jax": "'weft[jax]'"}
"""The distribution of a module, if its name differs."""
_STANDARD = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "conjugate": "conj", "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift", "power": "pow", "right_shift": "bitwise_right_shift", "true_divide": "divide",
}  # fmt: skip
"""Names of ufuncs in the array standard that differ from NumPy's."""
_REDUCED: Mapping[np.ufunc, str] = {
    np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min", np.logical_and: "all",
    np.logical_or: "any",
}  # fmt: skip
_SUMS = ("sum", "prod")


def checked(name: Any) -> str:
    """Return the name of an array namespace, given as text or as a module; nothing is imported.

    UsageError: another value. MissingExtraError: the library is not installed.
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
    """Mark a kernel with a parameter `xp` for the namespace of its arrays."""
    kernel.asks_for_namespace = True  # type: ignore[attr-defined]
    return kernel


class Namespace:
    """A module with NumPy's functions or those of the array standard, imported on first use."""

    def __init__(self, name: str) -> None:
        self.xp = import_module(name)
        if name == "jax.numpy":  # JAX would make 32 bits of 64
            import_module("jax").config.update("jax_enable_x64", True)

    def inside(self, value: Any) -> Any:
        """Return a NumPy array, or a list of them, as arrays of the namespace; other values unchanged."""
        if isinstance(value, list):
            return [self.inside(one) for one in value]
        return self.xp.asarray(value) if isinstance(value, np.ndarray | np.generic) else value

    def outside(self, value: Any) -> Any:
        """Return an array of the namespace, or several, as NumPy arrays."""
        if isinstance(value, list | tuple):
            return type(value)([self.outside(one) for one in value])
        if hasattr(value, "nnz"):  # a sparse array of SciPy
            return value
        if value is None or isinstance(value, np.ndarray | np.generic | bool | int | float | complex | str | bytes):
            return value
        if hasattr(self.xp, "asnumpy"):
            return self.xp.asnumpy(value)
        return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)

    def called(self, fn: Any) -> Callable[..., Any] | None:
        """Return the function of the namespace in place of a NumPy function; None if there is none."""
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
        """Return the reduction of the namespace in place of a ufunc reduction, or None if there is none."""
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
        """Call the function of the namespace in place of a ufunc, with values in the dtypes that NumPy would use."""
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
    """Return the NumPy dtype of an array of any namespace, or the type of a Python number."""
    if isinstance(value, bool | int | float | complex):
        return np.dtype(bool) if isinstance(value, bool) else type(value)
    dtype = value.dtype
    return dtype if isinstance(dtype, np.dtype) else np.dtype(str(dtype).rpartition(".")[2])


@cache
def namespace(name: str) -> Namespace:
    """Return a namespace by name; the first call imports it. ImportError: the import fails."""
    return Namespace(name)


def numbers(value: Any) -> bool:
    """Whether a value is a number, an array of numbers, or a list of these, which every namespace accepts."""
    if isinstance(value, list):
        return all(numbers(one) for one in value)
    if isinstance(value, bool | int | float | complex):
        return True
    dtype = None if hasattr(value, "nnz") else getattr(value, "dtype", None)
    return dtype is not None and (not isinstance(dtype, np.dtype) or dtype.kind in "biufc")
