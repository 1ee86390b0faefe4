"""Questions about arrays, and arrays that meet requirements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays import creation, elementwise, products, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor, order_of, put_into
from weft.frontends.tensors.arrays.registry import expose, public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, DType, DTypeLike

expose(
    "numpy",
    "base_repr binary_repr bool_ busdaycalendar byte cdouble clongdouble csingle datetime_data euler_gamma False_ "
    "format_float_positional format_float_scientific frompyfunc get_printoptions getbufsize geterrcall half int_ "
    "isscalar issubdtype iterable little_endian long longdouble longlong mintypecode ndenumerate object_ "
    "printoptions promote_types ScalarType sctypeDict set_printoptions setbufsize seterrcall short single str_ True_ "
    "typecodes typename ubyte uintc uintp ulong ulonglong ushort",
)
expose("numpy", "index_exp s_")


def _sample(x: Any) -> Any:
    """Return an array without memory of its own, in the shape and dtype of another one."""
    if not isinstance(x, Tensor):
        return x
    return np.broadcast_to(np.empty((), x.dtype), x.shape)


@public()
def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Any:
    """Return whether two arrays, broadcast, are equal everywhere; False if they cannot be broadcast."""
    one, other = as_tensor(a1), as_tensor(a2)
    try:
        np.broadcast_shapes(one.shape, other.shape)
    except ValueError:
        return as_tensor(False)
    return statistics.all(one == other)


@public()
def common_type(*arrays: Any) -> Any:
    """Return the floating-point or complex type that holds arrays. TypeError: one is not of numbers."""
    return np.common_type(*[_sample(one) for one in arrays])


@public("a")
def min_scalar_type(x: Any, /) -> DType:
    """Return the smallest type of a number's value, or the type of an array."""
    return (
        x.dtype if isinstance(x, Tensor) and x.ndim else np.min_scalar_type(x.fetch() if isinstance(x, Tensor) else x)
    )


@public("x")
def iscomplexobj(x: Any, /) -> bool:
    """Return whether the type of an array is complex."""
    return as_tensor(x).dtype.kind == "c"


@public("x")
def isrealobj(x: Any, /) -> bool:
    """Return whether the type of an array is not complex."""
    return not iscomplexobj(x)


@public("a")
def isfortran(x: Any, /) -> bool:
    """Return whether fetched values are in column-major order, and not in row-major order too."""
    return bool(as_tensor(x).flags.fnc)


def _infinite(x: Any, out: Any, *, negative: bool) -> Any:
    given = as_tensor(x)
    if given.dtype.kind == "c":
        raise TypeError(f"This operation is not supported for {given.dtype} values because it would be ambiguous.")
    signs = apply(np.signbit, given) if given.dtype.kind != "b" else apply(np.not_equal, given, given)
    signs = signs if negative else apply(np.logical_not, signs)
    made = apply(np.logical_and, apply(np.isinf, given), signs)
    return made if out is None else put_into(out, made, exact=True)


@public()
def isposinf(x: ArrayLike, out: Any = None) -> Any:
    """Return whether elements are positive infinity. TypeError: they are complex."""
    return _infinite(x, out, negative=False)


@public()
def isneginf(x: ArrayLike, out: Any = None) -> Any:
    """Return whether elements are negative infinity. TypeError: they are complex."""
    return _infinite(x, out, negative=True)


@public("a")
def size(x: Any, /, axis: Any = None) -> int:
    """Return the number of elements, or those along axes."""
    given = as_tensor(x)
    if axis is None:
        return given.size
    made = 1
    for one in axis if isinstance(axis, tuple) else (axis,):
        made *= given.shape[one]
    return made


@public(also="may_share_memory")
def shares_memory(a: Any, b: Any, /, max_work: Any = None) -> bool:
    """Return False: no two Weft arrays have memory that one could be seen to change by the other's values."""
    return False if isinstance(a, Tensor) or isinstance(b, Tensor) else bool(np.shares_memory(a, b, max_work))


@public("a")
def real_if_close(x: ArrayLike, /, tol: float = 100) -> Tensor:
    """Return the real part if all imaginary parts are within `tol` rounding errors of 0; they are computed for that."""
    given = as_tensor(x)
    if given.dtype.kind != "c":
        return given
    limit = tol * np.finfo(given.dtype).eps if tol > 1 else tol
    near = statistics.all(apply(np.less, apply(np.absolute, elementwise.imag(given)), float(limit)))
    return elementwise.real(given) if bool(near) else given


@public("a")
def sort_complex(x: ArrayLike, /) -> Tensor:
    """Return the elements along the last axis in ascending order, by real and imaginary parts, as complex ones."""
    from weft.frontends.tensors.arrays.sorting import sort

    made: Tensor = sort(x)
    if made.dtype.kind == "c":
        return made
    return made.astype(
        np.complex64 if made.dtype.char in "bhBH" else np.clongdouble if made.dtype.char == "g" else complex
    )


@public("a")
def asarray_chkfinite(x: ArrayLike, /, dtype: DTypeLike = None, order: str | None = None) -> Tensor:
    """Return an array without NaN and infinities, which is computed for that. ValueError: it has some."""
    made = creation.asarray(x, dtype=dtype, order=order)
    if made.dtype.char in np.typecodes["AllFloat"] and not bool(statistics.all(apply(np.isfinite, made))):
        raise ValueError("array must not contain infs or NaNs")
    return made


_REQUIREMENTS = {"C": "C", "C_CONTIGUOUS": "C", "CONTIGUOUS": "C", "F": "F", "F_CONTIGUOUS": "F", "FORTRAN": "F"}


@public("a")
def require(x: ArrayLike, /, dtype: DTypeLike = None, requirements: Any = None) -> Tensor:
    """Return an array with a dtype, and with the memory order of fetched values; other requirements are met always."""
    wanted = [requirements] if isinstance(requirements, str) else list(requirements or ())
    orders = {_REQUIREMENTS[one.upper()] for one in wanted if one.upper() in _REQUIREMENTS}
    if len(orders) > 1:
        raise ValueError('Cannot specify both "C" and "F" order')
    return creation.asarray(x, dtype=dtype, order=next(iter(orders), order_of(x)))


@public()
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """Return the order of products of `einsum`, and a text about its cost, by the shapes of arrays alone."""
    path: Any = np.einsum_path
    return path(*map(_sample, operands), optimize=optimize, einsum_call=einsum_call)


def _as_text(fn: Any) -> Any:
    def text(a: Any, *args: Any, **kwargs: Any) -> str:
        return fn(a.fetch() if isinstance(a, Tensor) else a, *args, **kwargs)  # type: ignore[no-any-return]

    text.__name__ = text.__qualname__ = fn.__name__
    text.__doc__ = f"Return the values as text, as `numpy.{fn.__name__}`; they are computed for that."
    return public()(text)


array2string, array_repr, array_str = _as_text(np.array2string), _as_text(np.array_repr), _as_text(np.array_str)


@public()
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the products of matrices and vectors; axes before the cores are broadcast."""
    a, b = as_tensor(x1), as_tensor(x2)
    if a.ndim < 2 or not b.ndim:
        raise ValueError("matvec: Input operand does not have enough dimensions, with gufunc signature (m,n),(n)->(m)")
    return products.matmul(a, b[..., None])[..., 0]


@public()
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the products of conjugated vectors and matrices; axes before the cores are broadcast."""
    a, b = as_tensor(x1), as_tensor(x2)
    if b.ndim < 2 or not a.ndim:
        raise ValueError("vecmat: Input operand does not have enough dimensions, with gufunc signature (n),(n,m)->(m)")
    left = apply(np.conjugate, a) if a.dtype.kind in "cO" else a
    return products.matmul(left[..., None, :], b)[..., 0, :]
