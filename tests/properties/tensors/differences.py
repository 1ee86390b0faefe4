"""Where arrays differ from NumPy on purpose, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tests.properties.tensors.calls import Drawn


class Mismatch(NamedTuple):
    """A call with different results. `refused` is the error of NumPy, `failed` that of Weft."""

    name: str
    drawn: Drawn
    out: Any
    expected: Any
    refused: Exception | None
    failed: Exception | None
    told: str


class Difference(NamedTuple):
    """Calls that differ: of functions whose names match, if `when` holds."""

    reason: str
    names: str
    when: Callable[[Mismatch], Any]

    def covers(self, found: Mismatch) -> bool:
        return bool(re.fullmatch(self.names, found.name) and self.when(found))


def _arrays(found: Mismatch) -> list[Any]:
    return [one for one in (*found.drawn.args, *found.drawn.kwargs.values()) if isinstance(one, np.ndarray)]


def _is_ufunc(name: str) -> bool:
    return isinstance(getattr(np, name, None), np.ufunc)


def _of_no_axes(found: Mismatch) -> bool:
    return any(not one.ndim for one in _arrays(found))


def _weighed_in(found: Mismatch) -> str:
    """Return the type of weights, "" if there are none."""
    given = found.drawn.kwargs.get("weights")
    return "" if given is None else str(np.asarray(given).dtype)


def _has_large(x: Any) -> bool:
    return bool(x.size) and max(abs(int(x.min())), abs(int(x.max()))) > 2**53


def _both_refuse(found: Mismatch) -> bool:
    return found.refused is not None and found.failed is not None


DIFFERENCES = [
    Difference(
        "an array without axes has no axis 0 or -1 in the array standard; NumPy takes them",
        ".*",
        lambda m: isinstance(m.failed, np.exceptions.AxisError) and _of_no_axes(m) and m.refused is None,
    ),
    Difference(
        "of an array without axes, and of two faults, another error is told",
        ".*",
        lambda m: _both_refuse(m) and _of_no_axes(m),
    ),
    Difference(
        "several axes where one is needed are a TypeError",
        "trace|diagonal",
        lambda m: _both_refuse(m) and "'tuple' object cannot be interpreted" in f"{m.failed} {m.refused}",
    ),
    Difference(
        "complex numbers in a transform of real ones are refused first",
        r"fft\.(rfft|ihfft).*",
        lambda m: _both_refuse(m) and m.drawn.x.dtype.kind == "c",
    ),
    Difference(
        "quantiles of no elements are NaN of the shape of the result; NumPy fails, or has another shape",
        "(nan)?(quantile|percentile|median)",
        lambda m: not m.drawn.x.size,
    ),
    Difference(
        "differences from the mean are computed in `dtype`; NumPy rounds them to the type of the array",
        "nan(var|std)",
        lambda m: m.failed is None and m.refused is None and m.drawn.kwargs.get("dtype") is not None,
    ),
    Difference(
        "sums in half precision are kept in float32; those of NumPy overflow",
        "(nan)?(sum|mean|var|std)|average",
        lambda m: m.failed is None and m.refused is None and "float16" in m.told and "inf" in m.told,
    ),
    Difference(
        "out= needs the shape of the result; some functions of NumPy broadcast it, or raise another error",
        ".*",
        lambda m: isinstance(m.failed, ValueError) and m.out is not None and "out has shape" in str(m.failed),
    ),
    Difference(
        "out= takes what 'same_kind' allows, from all functions; some of NumPy's compute in its type, whatever is lost",
        ".*",
        lambda m: m.out is not None and "Cannot cast" in str(m.failed),
    ),
    Difference(
        "out= takes what 'same_kind' allows, from all functions; some of NumPy's need the type of the result",
        ".*",
        lambda m: m.out is not None and m.failed is None and "Cannot cast" in str(m.refused) and not _is_ufunc(m.name),
    ),
    Difference(
        "initial= has the type of the result; some of NumPy's take it in the type of out",
        "(a|nan)?(min|max)",
        lambda m: m.out is not None and m.failed is None and m.refused is None and "initial" in m.drawn.kwargs,
    ),
    Difference(
        "a number that does not fit into the type is refused; NumPy fills in another one",
        "full|full_like|where",
        lambda m: isinstance(m.failed, (ValueError, OverflowError, TypeError)),
    ),
    Difference(
        "complex numbers become real ones by real, imag or abs only, as the array standard has it",
        "astype",
        lambda m: isinstance(m.failed, TypeError) and m.drawn.x.dtype.kind == "c",
    ),
    Difference(
        "a number as a choice takes the type of the arrays; NumPy refuses it beside uint64",
        "select",
        lambda m: m.failed is None and "Cannot cast array data" in str(m.refused),
    ),
    Difference(
        "lengths below 1 are a ValueError; NumPy divides by zero, or returns an empty array",
        r"fft\.r?fftfreq",
        lambda m: isinstance(m.failed, ValueError) and m.drawn.args[0] < 1,
    ),
    Difference(
        "a transform along no axes has complex results and a norm, as all others",
        r"fft\.i?fftn",
        lambda m: m.refused is None and not m.drawn.x.ndim,
    ),
    Difference(
        "arrays without axes have nothing to shift, and an axis is shifted once; NumPy fails, or shifts it twice",
        r"fft\.i?fftshift",
        lambda m: (m.failed is None and not m.drawn.x.ndim) or "repeated axis" in str(m.failed),
    ),
    Difference(
        "an axis is transformed once",
        r"fft\.i?r?fftn",
        lambda m: isinstance(m.failed, ValueError) and m.drawn.kwargs.get("axes") == (0, 0),
    ),
    Difference(
        "no elements have no average, which is NaN; NumPy divides by zero",
        "average",
        lambda m: m.failed is None and isinstance(m.refused, ZeroDivisionError) and "weights" not in m.drawn.kwargs,
    ),
    Difference(
        "a Python number is compared in float64; NumPy compares in the type of the array, to which it may be infinite",
        "isclose|allclose",
        lambda m: m.failed is None and isinstance(m.drawn.args[1], int | float),
    ),
    Difference(
        "a repeated letter needs equal lengths; NumPy 2.4 reads memory that is not the array's if one is 0",
        "einsum",
        lambda m: isinstance(m.failed, ValueError) and not m.drawn.x.size,
    ),
    Difference(
        "numbers above 2**53 are rounded on the way; NumPy rounds others",
        "pad",
        lambda m: m.failed is None and m.refused is None and m.drawn.x.dtype.kind in "iu" and _has_large(m.drawn.x),
    ),
    Difference(
        "elements that move along no axes stay; NumPy fails",
        "roll",
        lambda m: m.failed is None and m.drawn.kwargs.get("axis") == (),
    ),
    Difference(
        "weights are added up in float64; NumPy adds them in their own type, in which small integers overflow",
        "histogram",
        lambda m: m.failed is None and m.refused is None and _weighed_in(m) not in ("", "float64", "complex128"),
    ),
    Difference(
        "neighbours are added in float64; NumPy adds small integers in their own type, which overflows",
        "trapezoid|trapz",
        lambda m: m.failed is None and m.drawn.x.dtype.kind in "iu",
    ),
    Difference(
        "the number of axes is not negative; NumPy takes a negative one for 0",
        r"(linalg\.)?tensordot",
        lambda m: isinstance(m.failed, ValueError) and m.drawn.kwargs["axes"] < 0,
    ),
    Difference(
        "indices are whole numbers; NumPy rounds numbers down, and takes True for 1",
        "take",
        lambda m: "indices are whole numbers" in str(m.failed),
    ),
    Difference(
        "only the length -1 stands for the rest; NumPy takes other negative ones too",
        "reshape",
        lambda m: isinstance(m.failed, ValueError) and m.drawn.args[1] == (-2,),
    ),
    Difference(
        "nothing is computed for a shape without axes, nor are numbers checked",
        "unravel_index",
        lambda m: m.failed is None and m.drawn.args[1] == (),
    ),
]
