"""Element-wise functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from weft.frontends.tensors import blocks
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor, order_of, part_of, put_into
from weft.frontends.tensors.arrays.conversion import Scalar, as_node, common_dtype, loose, loose_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import method, public
from weft.frontends.tensors.arrays.sparse_calls import takes_sparse
from weft.frontends.tensors.arrays.ufuncs import called
from weft.frontends.tensors.blocks import elementwise as elementwise_nodes
from weft.frontends.tensors.shaping import cast
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk, DType


def _signature(*names: str) -> Signature:
    operands = [Parameter(name, Parameter.POSITIONAL_ONLY, annotation="Any") for name in names]
    out = Parameter("out", Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation="Any")
    where = Parameter("where", Parameter.POSITIONAL_OR_KEYWORD, default=True, annotation="Any")
    how = Parameter("how", Parameter.VAR_KEYWORD, annotation="Any")
    return Signature([*operands, out, where, how], return_annotation="Tensor")


_SIGNATURES = {1: _signature("x"), 2: _signature("x1", "x2")}


class UfuncFunction(Protocol):
    """A public function with the methods of NumPy's ufuncs; of one operand it has `at` alone."""

    accumulate: Callable[..., Any]
    at: Callable[..., None]
    outer: Callable[..., Any]
    reduce: Callable[..., Any]
    reduceat: Callable[..., Any]

    def __call__(self, *operands: Any, out: Any = None, where: Any = True, **how: Any) -> Tensor:
        """Return the results for the elements of the operands."""
        ...


_METHODS_OF_TWO = ("accumulate", "outer", "reduce", "reduceat")
"""The methods of ufuncs of two operands, each of which returns an array."""


def _ufunc(
    name: str, ufunc: np.ufunc, also: str = "", method: str = "", special: tuple[str, Callable[..., Any]] | None = None
) -> UfuncFunction:
    """Return a public function that calls a ufunc, or, for a kind of results, a function in its place.

    TypeError, when it is called: too few operands, or too many.
    """
    n = ufunc.nin

    def function(*operands: Any, out: Any = None, where: Any = True, **how: Any) -> Tensor:
        if n < len(operands) <= n + 2:
            operands, out, where = operands[:n], operands[n], (*operands, where)[n + 1]
        if len(operands) != n:
            raise TypeError(f"{name} takes {counted(n, 'array')}, not {len(operands)}")
        return called(ufunc, operands, out, where, special=special, **how)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element by element as `numpy.{ufunc.__name__}`, with its dtypes and special values."
    function.__signature__ = _SIGNATURES[n]  # type: ignore[attr-defined]
    made: Any = public(also=also, method=method)(takes_sparse(function))
    made.at = ufunc.at
    for one in _METHODS_OF_TWO if n == 2 else ():
        setattr(made, one, partial(_method_of, getattr(ufunc, one)))
    with_methods: UfuncFunction = made
    return with_methods


def _method_of(bound: Callable[..., Any], /, first: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a method of a ufunc as NumPy's own, for an array of Weft."""
    return bound(as_tensor(first), *args, **kwargs)


abs = _ufunc("abs", np.absolute, also="absolute")
acos = _ufunc("acos", np.arccos, also="arccos")
acosh = _ufunc("acosh", np.arccosh, also="arccosh")
asin = _ufunc("asin", np.arcsin, also="arcsin")
asinh = _ufunc("asinh", np.arcsinh, also="arcsinh")
atan = _ufunc("atan", np.arctan, also="arctan")
atanh = _ufunc("atanh", np.arctanh, also="arctanh")
bitwise_count = _ufunc("bitwise_count", np.bitwise_count)
bitwise_invert = _ufunc("bitwise_invert", np.invert, also="invert bitwise_not")
cbrt = _ufunc("cbrt", np.cbrt)
ceil = _ufunc("ceil", np.ceil)
conj = _ufunc("conj", np.conjugate, also="conjugate")
cos = _ufunc("cos", np.cos)
cosh = _ufunc("cosh", np.cosh)
deg2rad = _ufunc("deg2rad", np.deg2rad)
degrees = _ufunc("degrees", np.degrees)
exp = _ufunc("exp", np.exp)
exp2 = _ufunc("exp2", np.exp2)
fabs = _ufunc("fabs", np.fabs)
floor = _ufunc("floor", np.floor)
isfinite = _ufunc("isfinite", np.isfinite)
isinf = _ufunc("isinf", np.isinf)
isnan = _ufunc("isnan", np.isnan)
isnat = _ufunc("isnat", np.isnat)
log = _ufunc("log", np.log)
log10 = _ufunc("log10", np.log10)
log1p = _ufunc("log1p", np.log1p)
log2 = _ufunc("log2", np.log2)
logical_not = _ufunc("logical_not", np.logical_not)
negative = _ufunc("negative", np.negative)
positive = _ufunc("positive", np.positive)
rad2deg = _ufunc("rad2deg", np.rad2deg)
radians = _ufunc("radians", np.radians)
reciprocal = _ufunc("reciprocal", np.reciprocal)
rint = _ufunc("rint", np.rint)
sign = _ufunc("sign", np.sign)
signbit = _ufunc("signbit", np.signbit)
sin = _ufunc("sin", np.sin)
sinh = _ufunc("sinh", np.sinh)
spacing = _ufunc("spacing", np.spacing)
sqrt = _ufunc("sqrt", np.sqrt)
square = _ufunc("square", np.square)
tan = _ufunc("tan", np.tan)
trunc = _ufunc("trunc", np.trunc)
add = _ufunc("add", np.add)
atan2 = _ufunc("atan2", np.arctan2, also="arctan2")
bitwise_and = _ufunc("bitwise_and", np.bitwise_and)
bitwise_left_shift = _ufunc("bitwise_left_shift", np.left_shift, also="left_shift")
bitwise_or = _ufunc("bitwise_or", np.bitwise_or)
bitwise_right_shift = _ufunc("bitwise_right_shift", np.right_shift, also="right_shift")
bitwise_xor = _ufunc("bitwise_xor", np.bitwise_xor)
copysign = _ufunc("copysign", np.copysign)
divide = _ufunc("divide", np.true_divide, also="true_divide")
equal = _ufunc("equal", np.equal)
float_power = _ufunc("float_power", np.float_power)
fmax = _ufunc("fmax", np.fmax)
fmin = _ufunc("fmin", np.fmin)
fmod = _ufunc("fmod", np.fmod)
gcd = _ufunc("gcd", np.gcd)
greater = _ufunc("greater", np.greater)
greater_equal = _ufunc("greater_equal", np.greater_equal)
heaviside = _ufunc("heaviside", np.heaviside)
hypot = _ufunc("hypot", np.hypot)
lcm = _ufunc("lcm", np.lcm)
ldexp = _ufunc("ldexp", np.ldexp)
less = _ufunc("less", np.less)
less_equal = _ufunc("less_equal", np.less_equal)
logaddexp = _ufunc("logaddexp", np.logaddexp)
logaddexp2 = _ufunc("logaddexp2", np.logaddexp2)
logical_and = _ufunc("logical_and", np.logical_and)
logical_or = _ufunc("logical_or", np.logical_or)
logical_xor = _ufunc("logical_xor", np.logical_xor)
maximum = _ufunc("maximum", np.maximum)
minimum = _ufunc("minimum", np.minimum)
multiply = _ufunc("multiply", np.multiply)
nextafter = _ufunc("nextafter", np.nextafter)
not_equal = _ufunc("not_equal", np.not_equal)
pow = _ufunc("pow", np.power, also="power")
remainder = _ufunc("remainder", np.remainder, also="mod")
subtract = _ufunc("subtract", np.subtract)


# ----------------------------------------------------------------- where the standard asks for other special values


def _floor_divide(x1: Chunk, x2: Chunk) -> Chunk:
    """Divide and round down; with an infinite operand the result is that of a division: an infinity, or a zero."""
    made: Chunk = np.floor_divide(x1, x2)
    infinite = np.isinf(x1) != np.isinf(x2)
    if np.any(infinite):
        made = np.asarray(np.where(infinite, np.true_divide(x1, x2), made), made.dtype)
    return made


floor_divide = _ufunc("floor_divide", np.floor_divide, special=("f", _floor_divide))


def _expm1(x: Chunk) -> Chunk:
    """exp(x) - 1 of complex numbers, with the special values that C's cexp has; of -0 + 0j it is 0 + 0j."""
    made = np.expm1(x)
    special = ~np.isfinite(x) | (x == 0)
    if np.any(special):
        made = np.where(special, np.exp(x) - 1, made).astype(made.dtype)
    return made


expm1 = _ufunc("expm1", np.expm1, special=("c", _expm1))


def _tanh(x: Chunk) -> Chunk:
    """The hyperbolic tangent of complex numbers; of an infinite real part it is 1 with the sign of that."""
    made = np.tanh(x)
    far = np.isinf(x.real)
    if np.any(far):
        edge = np.empty_like(made)
        edge.real, edge.imag = np.copysign(1.0, x.real), np.copysign(0.0, x.imag)
        made = np.where(far, edge, made)
    return made


tanh = _ufunc("tanh", np.tanh, special=("c", _tanh))


@public("val")
@takes_sparse
def real(x: ArrayLike, /) -> Tensor:
    """The real part."""
    return part_of(x, np.real)


@public("val")
@takes_sparse
def imag(x: ArrayLike, /) -> Tensor:
    """The imaginary part."""
    return part_of(x, np.imag)


@public("a", also="around round_", method=True, out=2)
@needs_lengths
def round(x: ArrayLike, /, decimals: int = 0) -> Tensor:
    """Round to the nearest integer, halves to even; with `decimals`, to so many of them. TypeError: of bools."""
    node = as_node(x)
    if node.dtype.kind == "b" and decimals:
        raise TypeError("bools have no decimals to round to")
    if node.dtype.kind in "iu" and decimals >= 0:
        return Tensor(node, order_of(x))
    if decimals == 0:
        return apply(np.rint, x)
    return Tensor(elementwise_nodes(_rounded, [node], node.dtype, "round", decimals=decimals), order_of(x))


def _rounded(x: Chunk, *, decimals: int) -> Chunk:
    return np.round(x, decimals)


@public("a", "a_min", "a_max", method=True, out=3)
@needs_lengths
def clip(x: ArrayLike, /, min: Any = None, max: Any = None) -> Tensor:
    """Limit elements to `min` and `max`, in the common dtype of `x` and the bounds, as `numpy.clip`."""
    if min is None and max is None:
        return apply(np.positive, x)
    node = as_node(x)
    bounds = [loose(one) for one in (min, max) if one is not None]
    dtype = common_dtype([node, *bounds])
    made = cast(node, dtype)
    for bound, ufunc in ((min, np.maximum), (max, np.minimum)):
        if bound is None or _is_no_limit(bound, node.dtype, ufunc):
            continue
        held = loose(bound)
        if not isinstance(held, int | float | bool | complex):
            held = cast(held, dtype)
        made = apply(
            ufunc, Tensor(made), Tensor(held) if not isinstance(held, int | float | bool | complex) else held
        ).node
    return Tensor(cast(made, dtype), order_of(x))


def _is_no_limit(bound: Any, dtype: DType, ufunc: np.ufunc) -> bool:
    """Return whether a Python number limits no element of an array's dtype, which may be unable to hold that number."""
    if dtype.kind not in "iu" or not isinstance(bound, int):
        return False
    limits = np.iinfo(dtype)
    return bool(bound <= limits.min if ufunc is np.maximum else bound >= limits.max)


def _two_results(name: str, ufunc: np.ufunc, text: str) -> Callable[..., ExecutableTuple]:
    n = ufunc.nin

    def function(*operands: Any, out: Any = (None, None), where: Any = True, **how: Any) -> ExecutableTuple:
        operands, into = operands[:n], operands[n:] or (out if out is not None else (None, None))
        if len(operands) != n:
            raise TypeError(f"{name} takes {counted(n, 'array')}, not {len(operands)}")
        if not isinstance(into, tuple):
            raise TypeError("'out' must be a tuple of arrays")
        into = (*into, None)[:2]
        return ExecutableTuple([called(ufunc, operands, into[at], where, at=at, **how) for at in range(2)])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    function.__signature__ = _SIGNATURES[n]  # type: ignore[attr-defined]
    return public()(function)


modf = _two_results("modf", np.modf, "Return the fractional and the whole part of each element.")
frexp = _two_results("frexp", np.frexp, "Return mantissa and exponent of each element.")
divmod = _two_results("divmod", np.divmod, "Return quotients rounded down, and remainders.")


@public()
def nan_to_num(x: ArrayLike, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    """Replace NaN and infinities by numbers; without `copy`, in the given array."""
    made = _nan_to_num(x, {"nan": nan, "posinf": posinf, "neginf": neginf})
    return made if copy or not isinstance(x, Tensor) else put_into(x, made)


@needs_lengths
def _nan_to_num(x: ArrayLike, instead: dict[str, Any]) -> Tensor:
    arrays = {name: value for name, value in instead.items() if not isinstance(value, Scalar | None)}
    node = as_node(x) if arrays else loose_node(x)
    operands = [node, *[as_node(value) for value in arrays.values()]]
    numbers = {name: value for name, value in instead.items() if name not in arrays}
    return Tensor(
        blocks.elementwise(_replaced, operands, node.dtype, "nan_to_num", names=tuple(arrays), numbers=numbers)
    )


def _replaced(x: Chunk, *values: Chunk, names: Sequence[str], numbers: Mapping[str, Any]) -> Chunk:
    instead: dict[str, Any] = {**dict(zip(names, values, strict=True)), **numbers}
    return np.nan_to_num(x, **instead)


@public()
@needs_lengths
def angle(z: Any, deg: bool = False) -> Tensor:
    """Return the angle of each complex number."""
    node = as_node(z)
    dtype = np.angle(np.empty(0, node.dtype)).dtype
    return Tensor(blocks.elementwise(np.angle, [node], dtype, "angle", deg=deg))


fix = _ufunc("fix", np.trunc)


@public()
def isreal(x: ArrayLike) -> Tensor:
    """Return whether the imaginary part of each element is zero; False for dates, text and records."""
    return apply(np.equal, imag(x), 0) if _numbers(x) else all_the_same(as_tensor(x).dtype.kind == "m", x)


@public()
def iscomplex(x: ArrayLike) -> Tensor:
    """Return whether the imaginary part of each element is not zero; False for elements that are not numbers."""
    return apply(np.not_equal, imag(x), 0) if _numbers(x) else all_the_same(False, x)


def _numbers(x: Any) -> bool:
    return (x.dtype if isinstance(x, Tensor) else as_node(x).dtype).kind in "biufcO"


@public()
def sinc(x: ArrayLike) -> Tensor:
    """Return sin(pi x) / (pi x), and 1 at 0."""
    return _by_function(np.sinc, x)


@public()
def i0(x: ArrayLike) -> Tensor:
    """Return the modified Bessel function of the first kind, order 0."""
    return _by_function(np.i0, x)


def _by_function(fn: Any, x: Any) -> Tensor:
    """Return an element-wise function of NumPy that is no ufunc."""
    node = as_node(x)
    return Tensor(blocks.elementwise(fn, [node], fn(np.ones(1, node.dtype)).dtype, fn.__name__))


@public(ignored="combine_size")
def tree_add(*arrays: Any) -> Tensor:
    """Add up arrays, pair by pair, so that no more than two of them are held at a time."""
    return _paired(np.add, arrays)


@public(ignored="combine_size")
def tree_multiply(*arrays: Any) -> Tensor:
    """Multiply arrays, pair by pair."""
    return _paired(np.multiply, arrays)


def _paired(fn: np.ufunc, arrays: Sequence[Any]) -> Tensor:
    left = list(arrays[0]) if len(arrays) == 1 and isinstance(arrays[0], list | tuple) else list(arrays)
    if not left:
        raise ValueError("need at least one array")
    while len(left) > 1:
        pairs = itertools.zip_longest(left[::2], left[1::2])
        left = [a if b is None else apply(fn, a, b) for a, b in pairs]
    return as_tensor(left[0])


@needs_lengths
def all_the_same(value: bool, *arrays: Any) -> Tensor:
    """Return an array of one bool, in the shape that arrays go together in."""
    return Tensor(elementwise_nodes(_constant, [as_node(x) for x in arrays], np.dtype(bool), value=value))


def _constant(*arrays: Chunk, value: bool) -> Chunk:
    return np.full(np.broadcast_shapes(*map(np.shape, arrays)), value)


@method("__round__")
def _round_method(self: Tensor, decimals: int | None = None) -> Tensor:
    """Round, for the built-in `round`."""
    return round(self, decimals or 0)


@method("conj")
@method("conjugate")
def _conj_method(self: Tensor, out: Any = None) -> Tensor:
    """Return the conjugates; of real numbers the array itself, as NumPy does."""
    return self if out is None and self.dtype.kind in "biuf" else conj(self, out=out)
