"""Element-wise functions of the array standard, under its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontends.tensors.arrays.array import (
    Tensor,
    aligned,
    apply,
    as_node,
    called,
    install,
    loose,
    order_of,
    part_of,
    taking_out,
)
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.searching import elementwise as elementwise_nodes
from weft.frontends.tensors.shaping import cast


def _one(name: str, ufunc: np.ufunc) -> Callable[..., Tensor]:
    def function(x: Any, /, out: Any = None, where: Any = True, **how: Any) -> Tensor:
        return called(ufunc, [x], out, where, **how)

    _describe(function, name, ufunc)
    return function


def _two(name: str, ufunc: np.ufunc) -> Callable[..., Tensor]:
    def function(x1: Any, x2: Any, /, out: Any = None, where: Any = True, **how: Any) -> Tensor:
        return called(ufunc, [x1, x2], out, where, **how)

    _describe(function, name, ufunc)
    return function


def _describe(function: Any, name: str, ufunc: np.ufunc) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element by element as `numpy.{ufunc.__name__}`, with its dtypes and special values."


abs = _one("abs", np.absolute)
acos = _one("acos", np.arccos)
acosh = _one("acosh", np.arccosh)
asin = _one("asin", np.arcsin)
asinh = _one("asinh", np.arcsinh)
atan = _one("atan", np.arctan)
atanh = _one("atanh", np.arctanh)
bitwise_invert = _one("bitwise_invert", np.invert)
ceil = _one("ceil", np.ceil)
conj = _one("conj", np.conjugate)
cos = _one("cos", np.cos)
cosh = _one("cosh", np.cosh)
exp = _one("exp", np.exp)
floor = _one("floor", np.floor)
isfinite = _one("isfinite", np.isfinite)
isinf = _one("isinf", np.isinf)
isnan = _one("isnan", np.isnan)
log = _one("log", np.log)
log1p = _one("log1p", np.log1p)
log2 = _one("log2", np.log2)
log10 = _one("log10", np.log10)
logical_not = _one("logical_not", np.logical_not)
negative = _one("negative", np.negative)
positive = _one("positive", np.positive)
reciprocal = _one("reciprocal", np.reciprocal)
sign = _one("sign", np.sign)
signbit = _one("signbit", np.signbit)
sin = _one("sin", np.sin)
sinh = _one("sinh", np.sinh)
sqrt = _one("sqrt", np.sqrt)
square = _one("square", np.square)
tan = _one("tan", np.tan)
trunc = _one("trunc", np.trunc)
add = _two("add", np.add)
atan2 = _two("atan2", np.arctan2)
bitwise_and = _two("bitwise_and", np.bitwise_and)
bitwise_left_shift = _two("bitwise_left_shift", np.left_shift)
bitwise_or = _two("bitwise_or", np.bitwise_or)
bitwise_right_shift = _two("bitwise_right_shift", np.right_shift)
bitwise_xor = _two("bitwise_xor", np.bitwise_xor)
copysign = _two("copysign", np.copysign)
divide = _two("divide", np.true_divide)
equal = _two("equal", np.equal)
greater = _two("greater", np.greater)
greater_equal = _two("greater_equal", np.greater_equal)
hypot = _two("hypot", np.hypot)
less = _two("less", np.less)
less_equal = _two("less_equal", np.less_equal)
logaddexp = _two("logaddexp", np.logaddexp)
logical_and = _two("logical_and", np.logical_and)
logical_or = _two("logical_or", np.logical_or)
logical_xor = _two("logical_xor", np.logical_xor)
maximum = _two("maximum", np.maximum)
minimum = _two("minimum", np.minimum)
multiply = _two("multiply", np.multiply)
nextafter = _two("nextafter", np.nextafter)
not_equal = _two("not_equal", np.not_equal)
pow = _two("pow", np.power)
remainder = _two("remainder", np.remainder)
subtract = _two("subtract", np.subtract)


# ----------------------------------------------------------------- where the standard asks for other special values


def _floor_divide(x1: Any, x2: Any) -> Any:
    """Divide and round down; where one of both is infinite, what a division gives: an infinity, or a zero."""
    made = np.floor_divide(x1, x2)
    infinite = np.isinf(x1) != np.isinf(x2)
    if np.any(infinite):
        made = np.where(infinite, np.true_divide(x1, x2), made).astype(made.dtype)
    return made


@needs_lengths
def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """Divide and round down."""
    plain = apply(np.floor_divide, x1, x2)
    if plain.dtype.kind != "f":
        return plain
    operands = aligned(x1, x2)
    return Tensor(elementwise_nodes(_floor_divide, operands, plain.dtype, "floor_divide"))


install("floordiv", floor_divide)


def _expm1(x: Any) -> Any:
    """exp(x) - 1 of complex numbers, with the special values that C's cexp has; of -0 + 0j it is 0 + 0j."""
    made = np.expm1(x)
    special = ~np.isfinite(x) | (x == 0)
    if np.any(special):
        made = np.where(special, np.exp(x) - 1, made).astype(made.dtype)
    return made


@needs_lengths
def expm1(x: Any, /) -> Tensor:
    """exp(x) - 1, exact for small x."""
    plain = apply(np.expm1, x)
    if plain.dtype.kind != "c":
        return plain
    return Tensor(elementwise_nodes(_expm1, [as_node(x)], plain.dtype, "expm1"))


def _tanh(x: Any) -> Any:
    """The hyperbolic tangent of complex numbers; of an infinite real part it is 1 with the sign of that."""
    made = np.tanh(x)
    far = np.isinf(x.real)
    if np.any(far):
        edge = np.empty_like(made)
        edge.real, edge.imag = np.copysign(1.0, x.real), np.copysign(0.0, x.imag)
        made = np.where(far, edge, made)
    return made


@needs_lengths
def tanh(x: Any, /) -> Tensor:
    """The hyperbolic tangent."""
    plain = apply(np.tanh, x)
    if plain.dtype.kind != "c":
        return plain
    return Tensor(elementwise_nodes(_tanh, [as_node(x)], plain.dtype, "tanh"))


def real(x: Any, /) -> Tensor:
    """The real part."""
    return part_of(x, np.real)


def imag(x: Any, /) -> Tensor:
    """The imaginary part."""
    return part_of(x, np.imag)


@taking_out(2)
@needs_lengths
def round(x: Any, /, decimals: int = 0) -> Tensor:
    """Round to the nearest integer, halves to even; with `decimals`, to so many of them. TypeError: of bools."""
    node = as_node(x)
    if node.dtype.kind == "b" and decimals:
        raise TypeError("bools have no decimals to round to")
    if node.dtype.kind in "iu" and decimals >= 0:
        return Tensor(node, order_of(x))
    if decimals == 0:
        return apply(np.rint, x)
    return Tensor(elementwise_nodes(_rounded, [node], node.dtype, "round", decimals=decimals), order_of(x))


def _rounded(x: Any, *, decimals: int) -> Any:
    return np.round(x, decimals)


@taking_out(3)
@needs_lengths
def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """Bring elements between `min` and `max`, which have the dtype of `x`; that of bools is what NumPy makes of all."""
    node = as_node(x)
    made, dtype = node, node.dtype
    if dtype.kind == "b":
        bounds = [one for one in (min, max) if one is not None]
        dtype = np.result_type(
            dtype, *[one if isinstance(one, bool | int | float) else as_node(one).dtype for one in bounds]
        )
    for bound, ufunc in ((min, np.maximum), (max, np.minimum)):
        if bound is None:
            continue
        held = loose(bound)
        if not isinstance(held, int | float | bool | complex):
            held = cast(held, dtype)
        made = apply(
            ufunc, Tensor(made), Tensor(held) if not isinstance(held, int | float | bool | complex) else held
        ).node
    return Tensor(cast(made, dtype), order_of(x))
