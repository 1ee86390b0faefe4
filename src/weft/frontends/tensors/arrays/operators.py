"""Operators of arrays: the methods that Python calls for `+`, `<`, `@` and their like."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.tensors import shaping
from weft.frontends.tensors.arrays.array import Tensor, apply
from weft.frontends.tensors.arrays.conversion import Scalar, as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.elementwise import all_the_same, divmod, floor_divide
from weft.frontends.tensors.arrays.products import matmul
from weft.frontends.tensors.arrays.registry import METHODS, expose
from weft.frontends.tensors.blocks import elementwise

if TYPE_CHECKING:
    from weft.frontends.tensors.arrays.executables import ExecutableTuple
    from weft.frontends.tensors.types import ArrayLike, DType

Unary = Callable[[Any], Tensor]
Binary = Callable[[Any, Any], Tensor]
_OPERANDS = Tensor | bool | int | float | complex | np.ndarray | np.generic | list | tuple
"""The operands that operators accept; any other type may define the operation itself."""


def _in_place(target: Tensor, result: Tensor) -> Tensor:
    if result.shape != target.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {target.shape} doesn't match the broadcast shape "
            f"{result.shape}"
        )
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        if not target.ndim and target.alone:
            return result  # NumPy has a number here, such as `x[0]`, and `+=` makes another one
        raise TypeError(f"Cannot cast output from {result.dtype} to {target.dtype} with casting rule 'same_kind'")
    target._set(shaping.cast(result._node, target.dtype))
    return target


def _of(ufunc: np.ufunc) -> Binary:
    return lambda x1, x2: apply(ufunc, x1, x2)


def _unary(ufunc: np.ufunc) -> Unary:
    return lambda self: apply(ufunc, self)


def _of_numpy(other: Any) -> Any:
    """Return a date, time, duration or text of Python as NumPy has it, and anything else as it is."""
    if isinstance(other, timedelta):
        return np.timedelta64(other)
    if isinstance(other, str | bytes):
        return np.asarray(other)
    return np.datetime64(other) if isinstance(other, date) else other


def _compared(ufunc: np.ufunc) -> Binary:
    def method(self: Tensor, other: Any) -> Any:
        if other is None and self.dtype.kind != "O":
            ufunc(np.zeros(1, self.dtype), None)  # raises a TypeError that names the type of the elements
        other = _of_numpy(other)
        return apply(ufunc, self, other) if isinstance(other, _OPERANDS) else NotImplemented

    return method


def _binary(fn: Binary) -> tuple[Binary, Binary, Binary]:
    """Return an operator, the one with its operands swapped, and the one in place."""

    def method(self: Tensor, other: Any) -> Any:
        other = _of_numpy(other)
        return fn(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def swapped(self: Tensor, other: Any) -> Any:
        other = _of_numpy(other)
        return fn(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def updating(self: Tensor, other: Any) -> Any:
        other = _of_numpy(other)
        return _in_place(self, fn(self, other)) if isinstance(other, _OPERANDS) else NotImplemented

    return method, swapped, updating


_EQUAL_TO_NO_ELEMENT: Final[tuple[Any, ...]] = (object.__eq__, dict.__eq__, set.__eq__, frozenset.__eq__)
"""The comparisons of objects that equal no number, text or date."""


def _equality(ufunc: np.ufunc) -> Any:
    """Return `==` or `!=`, which have an answer for None, for text, and for arrays that cannot be compared."""

    def method(self: Tensor, other: Any) -> Any:
        other = _of_numpy(other)
        if isinstance(other, _OPERANDS) and isinstance(other, Scalar):
            if not _comparable(ufunc, self.dtype, np.asarray(other).dtype if isinstance(other, bool) else type(other)):
                return all_the_same(ufunc is np.not_equal, self)
            return apply(ufunc, self, other)
        if other is None and self.dtype.kind in "mM":  # NumPy compares with `item()`, which is None for NaT
            absent = apply(np.isnat, self)
            return absent if ufunc is np.equal else apply(np.logical_not, absent)
        if not (isinstance(other, _OPERANDS) or other is None):
            unequal = type(other).__eq__ in _EQUAL_TO_NO_ELEMENT and self.dtype.kind not in "OV"
            return all_the_same(ufunc is np.not_equal, self) if unequal else NotImplemented
        given = other if isinstance(other, Tensor) else np.asarray(other)
        kinds = {self.dtype.kind, given.dtype.kind}
        if len(kinds) > 1 and (kinds & {"S", "U"} or other is None) and self.dtype.kind != "O":
            return all_the_same(ufunc is np.not_equal, self, given)
        if "V" not in kinds and not _comparable(ufunc, self.dtype, given.dtype):
            return all_the_same(ufunc is np.not_equal, self, given)
        if kinds == {"V"}:
            return _equal_records(operator.eq if ufunc is np.equal else operator.ne, self, given)
        return apply(ufunc, self, given)

    return method


def _comparable(ufunc: np.ufunc, dtype: DType, other: Any) -> bool:
    """Return whether NumPy compares elements of a dtype with those of another one, or with Python's numbers."""
    try:
        ufunc.resolve_dtypes((dtype, other, None))
    except TypeError:
        return False
    return True


@needs_lengths
def _equal_records(compare: Callable[[Any, Any], Any], x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """Return where records are equal, or are not. TypeError: they have different fields."""
    one, other = as_node(x1), as_node(x2)
    compare(np.zeros(1, one.dtype), np.zeros(1, other.dtype))
    return Tensor(elementwise(compare, [one, other], np.dtype(bool), compare.__name__))


def _floor_divide(x1: Any, x2: Any) -> Tensor:
    return floor_divide(x1, x2)


def _power(x1: Any, x2: Any) -> Tensor:
    """Return a power; NumPy squares for an exponent that is the number 2, which differs for booleans."""
    squared = type(x2) is int and x2 == 2 and isinstance(x1, Tensor) and x1.dtype.kind == "b"
    return apply(np.square, x1) if squared else apply(np.power, x1, x2)


class Operators:
    """The operators of arrays, each of which is a method of `Tensor`."""

    __add__, __radd__, __iadd__ = _binary(_of(np.add))
    __sub__, __rsub__, __isub__ = _binary(_of(np.subtract))
    __mul__, __rmul__, __imul__ = _binary(_of(np.multiply))
    __truediv__, __rtruediv__, __itruediv__ = _binary(_of(np.true_divide))
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary(_floor_divide)
    __mod__, __rmod__, __imod__ = _binary(_of(np.remainder))
    __pow__, __rpow__, __ipow__ = _binary(_power)
    __and__, __rand__, __iand__ = _binary(_of(np.bitwise_and))
    __or__, __ror__, __ior__ = _binary(_of(np.bitwise_or))
    __xor__, __rxor__, __ixor__ = _binary(_of(np.bitwise_xor))
    __lshift__, __rlshift__, __ilshift__ = _binary(_of(np.left_shift))
    __rshift__, __rrshift__, __irshift__ = _binary(_of(np.right_shift))
    __lt__, __le__ = _compared(np.less), _compared(np.less_equal)
    __gt__, __ge__ = _compared(np.greater), _compared(np.greater_equal)
    __eq__, __ne__ = _equality(np.equal), _equality(np.not_equal)
    __neg__, __pos__ = _unary(np.negative), _unary(np.positive)
    __abs__, __invert__ = _unary(np.absolute), _unary(np.invert)

    def __matmul__(self: Any, other: Any) -> Tensor:
        if not isinstance(other, np.ndarray) and hasattr(type(other), "nnz"):
            from weft.frontends.tensors.arrays.sparse import as_sparse

            return as_sparse(other).__rmatmul__(self)  # type: ignore[no-any-return]
        return matmul(self, other)

    def __rmatmul__(self: Any, other: Any) -> Tensor:
        if not isinstance(other, np.ndarray) and hasattr(type(other), "nnz"):
            from weft.frontends.tensors.arrays.sparse import as_sparse

            return as_sparse(other) @ self  # type: ignore[no-any-return]
        return matmul(other, self)

    def __imatmul__(self: Any, other: Any) -> Tensor:
        return _in_place(self, matmul(self, other))

    def __divmod__(self: Any, other: Any) -> ExecutableTuple:
        return divmod(self, other)

    def __rdivmod__(self: Any, other: Any) -> ExecutableTuple:
        return divmod(other, self)


expose(__name__, " ".join(f"Operators.{name}" for name, one in vars(Operators).items() if callable(one)), space=METHODS)
