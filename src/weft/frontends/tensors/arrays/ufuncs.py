"""Ufuncs called with the arguments that NumPy's have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays import searching
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor, put_into
from weft.frontends.tensors.arrays.conversion import Scalar, aligned
from weft.frontends.tensors.arrays.creation import shape_of_all
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.shapes import spread
from weft.frontends.tensors.blocks import elementwise

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DType


_COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def called(
    ufunc: np.ufunc,
    operands: Sequence[Any],
    out: Any,
    where: Any,
    *,
    dtype: Any = None,
    casting: Any = "same_kind",
    order: str = "K",
    at: int = 0,
    special: tuple[str, Callable[..., Any]] | None = None,
) -> Tensor:
    """Return a ufunc of arrays, or its result number `at`, with the arguments that NumPy's have.

    `special` is a kind of results, and the function that computes them in place of the ufunc. Without `out`, elements
    that `where` excludes have any value. TypeError: `casting` does not allow the needed conversion.
    """
    if dtype is not None:
        operands = _for_dtype(ufunc, operands, np.dtype(dtype), casting)
    elif casting != "same_kind":
        _check_casting(ufunc, operands, casting)
    if ufunc is np.power and where is not True and not isinstance(operands[1], Scalar):
        # An element that is left out must not be refused for its exponent.
        operands = (operands[0], searching.where(where, operands[1], 1))
    made = apply(ufunc, *operands, out=at)
    if special is not None and made.dtype.kind == special[0]:
        made = _by_kernel(special[1], ufunc.__name__, made.dtype, *operands)
    if out is None:
        return (made if where is True else spread(made, shape_of_all(made, where))).ordered(order)
    return put_into(out, made, where, casting)  # type: ignore[no-any-return]


def _check_casting(ufunc: np.ufunc, operands: Sequence[Any], casting: Any) -> None:
    """Raise TypeError if `casting` does not allow the conversion of an operand to the type of the loop."""
    kinds = [type(one) if type(one) in (int, float, complex) else as_tensor(one).dtype for one in operands]
    ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout), casting=casting)


def _for_dtype(ufunc: np.ufunc, operands: Sequence[Any], dtype: DType, casting: Any) -> list[Any]:
    """Return the operands in the types of the loop whose results are of a dtype.

    TypeError: there is none. OverflowError: a whole number does not fit the type of the loop.
    """
    plain = [isinstance(one, int | float | complex) and not isinstance(one, bool | np.generic) for one in operands]
    given = [one if keep else as_tensor(one) for one, keep in zip(operands, plain, strict=True)]
    kinds = [type(one) if keep else one.dtype for one, keep in zip(given, plain, strict=True)]
    wanted = (*[None] * ufunc.nin, *[dtype] * ufunc.nout)
    loop = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout), signature=wanted, casting=casting)
    if ufunc in _COMPARISONS:  # which compare with numbers that their type does not hold
        return [one if keep else one.astype(kind) for one, keep, kind in zip(given, plain, loop, strict=False)]
    whole = [type(one) is int and kind.kind in "iu" for one, kind in zip(given, loop, strict=False)]
    return [
        as_tensor(np.asarray(one, kind)) if exact else as_tensor(one).astype(kind)
        for one, kind, exact in zip(given, loop, whole, strict=False)
    ]


@needs_lengths
def _by_kernel(fn: Callable[..., Any], name: str, dtype: DType, *operands: Any) -> Tensor:
    return Tensor(elementwise(fn, aligned(*operands), dtype, name))
