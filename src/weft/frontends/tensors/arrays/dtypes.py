"""Types of elements: properties, conversions and common types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from weft.frontends.tensors.arrays.array import DEVICE, Tensor, as_tensor
from weft.frontends.tensors.arrays.registry import expose, public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, DType, DTypeLike

FLOAT = np.dtype(np.float64)
"""The default dtype of numbers."""
INT = np.dtype(np.int64)
"""The default dtype of integers and positions."""
e = np.e
inf = np.inf
nan = np.nan
newaxis = None
pi = np.pi

expose(__name__, "e inf inf=Inf NINF nan nan=NaN nan=NAN newaxis pi")
expose("numpy.exceptions", "AxisError")
expose(
    "numpy",
    "bool bytes_ character complex64 complex128 complex128=cfloat complexfloating datetime64 double dtype errstate "
    "flexible float16 float32 float64 floating generic geterr inexact int8 int16 int32 int64 intc integer intp number "
    "seterr signedinteger str_=unicode_ timedelta64 uint uint8 uint16 uint32 uint64 unsignedinteger void",
)
expose("numpy", "float64=float int_=int object_=object", listed=False)  # as NumPy 1 had them: not for `import *`


def _dtype(value: Any) -> Any:
    """Return a dtype: that of an array, or the one that was given."""
    if isinstance(value, Tensor | np.ndarray):
        return value.dtype
    return np.dtype(value)


class finfo_object(Struct, frozen=True):  # noqa: N801
    """What a floating-point type can hold, as Python numbers; of a complex type, each of its two parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class iinfo_object(Struct, frozen=True):  # noqa: N801
    """What an integer type can hold, as Python numbers."""

    bits: int
    max: int
    min: int
    dtype: DType


@public()
def finfo(type: Any, /) -> finfo_object:
    """Return the limits of a floating-point type; ValueError for another type."""
    found = np.finfo(_dtype(type))
    return finfo_object(
        int(found.bits),
        float(found.eps),
        float(found.max),
        float(found.min),
        float(found.smallest_normal),
        np.dtype(found.dtype),
    )


@public()
def iinfo(type: Any, /) -> iinfo_object:
    """Return the limits of an integer type; ValueError for another type."""
    kind = _dtype(type)
    found = np.iinfo(kind)
    return iinfo_object(int(found.bits), int(found.max), int(found.min), kind)


@public()
def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """Return whether a type is of a kind: "bool", "signed integer", "integral", "numeric", ..., a type, or a tuple."""
    return bool(np.isdtype(np.dtype(dtype), kind))


@public()
def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the type that arrays, types and Python numbers make together; numbers give way to all else."""
    given = [one.dtype if isinstance(one, Tensor | np.ndarray) else one for one in arrays_and_dtypes]
    return np.result_type(*given)


@public()
def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether no value is lost when one type is made another."""
    return bool(np.can_cast(_dtype(from_), _dtype(to)))


@public()
def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """Return the array with another type; TypeError from complex numbers to real ones: take `real` for that."""
    if device not in (None, DEVICE):
        raise ValueError(f"there is no device {device!r}; there is {DEVICE!r}")
    kind = np.dtype(dtype)
    made = as_tensor(x)
    if made.dtype.kind == "c" and kind.kind not in "cbO":
        raise TypeError(f"complex numbers ({made.dtype}) are not made {kind} by a cast: take real or imag of them")
    if made.dtype == kind and not copy:
        return made
    return made.astype(kind)


Inf = np.inf

NINF = -np.inf

NaN = NAN = np.nan
