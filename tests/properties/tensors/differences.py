"""Where arrays differ from NumPy on purpose, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.properties.tensors.comparing import attempt, check, listed

if TYPE_CHECKING:
    from tests.properties.tensors.calls import Drawn


class Mismatch(NamedTuple):
    """A call with different results. `refused` is the error of NumPy, `failed` that of Weft, `found` its arrays."""

    name: str
    drawn: Drawn
    out: Any
    expected: Any
    refused: Exception | None
    failed: Exception | None
    told: str
    found: list[Any]
    numbers: list[Any]


class Difference(NamedTuple):
    """Calls that differ: of functions whose names match, if `when` holds.

    `right` computes the right result with NumPy, which that of Weft equals.
    """

    reason: str
    names: str
    when: Callable[[Mismatch], Any]
    right: Callable[[Mismatch], Any] | None = None

    def covers(self, found: Mismatch) -> bool:
        return bool(re.fullmatch(self.names, found.name) and self.when(found)) and (
            self.right is None or found.failed is not None or _agrees(found, self.right)
        )


def _agrees(m: Mismatch, right: Callable[[Mismatch], Any]) -> bool:
    made, error = attempt(lambda: [np.asarray(one) for one in listed(right(m))])
    if error is not None or [one.shape for one in m.found] != [one.shape for one in made]:
        return False
    with np.errstate(all="ignore"):
        wanted = [two.astype(one.dtype) for one, two in zip(m.found, made, strict=True)]

    def compare() -> None:
        for one, two in zip(m.found, wanted, strict=True):
            check(one, two, m.numbers)

    return attempt(compare)[1] is None


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


def _rounded_on_the_way(m: Mismatch) -> bool:
    if m.drawn.args[2] not in ("mean", "median", "linear_ramp") or not _has_large(m.drawn.x):
        return False
    return m.found[0].shape == m.expected.shape and np.allclose(*[x.astype(float) for x in (m.found[0], m.expected)])


def _reduced_by(m: Mismatch) -> dict[str, Any]:
    return {key: value for key, value in m.drawn.kwargs.items() if key in ("axis", "keepdims")}


def _both_refuse(found: Mismatch) -> bool:
    return found.refused is not None and found.failed is not None


def _kind_of_dtype(m: Mismatch) -> str:
    given = m.drawn.kwargs.get("dtype")
    return "" if given is None else np.dtype(given).kind


def _again(m: Mismatch, *, dtype: Any = None, weights: Any = None, without: str = "") -> Any:
    """Return what NumPy computes with the array, or the weights, in another type, or without a keyword."""
    args, kwargs = list(m.drawn.args), {key: one for key, one in m.drawn.kwargs.items() if key != without}
    if dtype is not None:
        args[0] = args[0].astype(dtype)
    if weights is not None:
        kwargs["weights"] = kwargs["weights"].astype(weights)
    return _theirs(m.name)(*args, **kwargs)


def _theirs(name: str) -> Any:
    found: Any = np
    for part in _NAMES.get(name, name).split("."):
        found = getattr(found, part)
    return found


_NAMES = {"trapz": "trapezoid", "product": "prod"}


def _of_nothing(m: Mismatch) -> Any:
    """Return NaN of the shape of quantiles."""
    leading = np.shape(m.drawn.args[1]) if len(m.drawn.args) > 1 else ()
    return np.full((*leading, *np.sum(m.drawn.x, **_reduced_by(m)).shape), np.nan)


def _selected(m: Mismatch) -> Any:
    conditions, choices = m.drawn.args
    default = m.drawn.kwargs.get("default", 0)
    kind = np.result_type(*choices, default)
    return np.select(conditions, [np.asarray(one, kind) for one in choices], np.asarray(default, kind))


_TOLD_FIRST = ("give initial=", "should be boolean", "Cannot cast", "as an integer", "must be an integer")


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
        "of two faults, that of one argument is told before that of another",
        "(a|nan)?(min|max)|select|concatenate|diff|linalg.matrix_power",
        lambda m: _both_refuse(m) and any(text in str(m.failed) for text in _TOLD_FIRST),
    ),
    Difference(
        "several axes where one is needed are a TypeError",
        "trace|diagonal|unique",
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
        _of_nothing,
    ),
    Difference(
        "differences from the mean are computed in `dtype`; NumPy rounds them to the type of the array",
        "nan(var|std)",
        lambda m: m.failed is None and m.refused is None and m.drawn.kwargs.get("dtype") is not None,
        lambda m: _again(m, dtype=np.result_type(m.drawn.kwargs["dtype"], m.drawn.x.dtype)),
    ),
    Difference(
        "the variance of real numbers is real until it gets its type; NumPy divides a complex number by no elements",
        "(nan)?(var|std)",
        lambda m: m.failed is None and m.drawn.x.dtype.kind in "biuf" and _kind_of_dtype(m) == "c",
        lambda m: _again(m, dtype=np.float64, without="dtype"),
    ),
    Difference(
        "sums in half precision are kept in float32; those of NumPy overflow",
        "(nan)?(sum|mean|var|std)|average",
        lambda m: m.failed is None and m.refused is None and "float16" in m.told and "inf" in m.told,
        lambda m: _again(m, dtype=np.float32),
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
        _again,
    ),
    Difference(
        "out= and dtype= are taken together; NumPy refuses both",
        "concatenate",
        lambda m: m.failed is None and "both were provided" in str(m.refused),
        _again,
    ),
    Difference(
        "initial= has the type of the result; some of NumPy's take it in the type of out",
        "(a|nan)?(min|max)",
        lambda m: m.out is not None and m.failed is None and m.refused is None and "initial" in m.drawn.kwargs,
        _again,
    ),
    Difference(
        "a number that does not fit into the type is refused; NumPy fills in another one",
        "full|full_like|where|select",
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
        lambda m: m.failed is None and "Cannot cast" in str(m.refused),
        _selected,
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
        r"fft\.i?r?fft[n2]",
        lambda m: isinstance(m.failed, ValueError) and m.drawn.kwargs.get("axes") == (0, 0),
    ),
    Difference(
        "no elements have no average, which is NaN; NumPy divides by zero",
        "average",
        lambda m: m.failed is None and isinstance(m.refused, ZeroDivisionError) and "weights" not in m.drawn.kwargs,
        lambda m: np.nanmean(m.drawn.x, **_reduced_by(m)),
    ),
    Difference(
        "a Python number is compared in float64; NumPy compares in the type of the array, to which it may be infinite",
        "isclose|allclose",
        lambda m: m.failed is None and isinstance(m.drawn.args[1], int | float),
        lambda m: _again(m, dtype=np.result_type(m.drawn.x.dtype, np.float64)),
    ),
    Difference(
        "a repeated letter needs equal lengths; NumPy 2.4 reads memory that is not the array's if one is 0",
        "einsum",
        lambda m: isinstance(m.failed, ValueError) and not m.drawn.x.size,
    ),
    Difference(
        "numbers above 2**53 are rounded on the way; NumPy rounds others",
        "pad",
        lambda m: m.failed is None and m.refused is None and m.drawn.x.dtype.kind in "iu" and _rounded_on_the_way(m),
    ),
    Difference(
        "elements that move along no axes stay; NumPy fails",
        "roll",
        lambda m: m.failed is None and m.drawn.kwargs.get("axis") == (),
        lambda m: m.drawn.x,
    ),
    Difference(
        "weights are added up in float64; NumPy adds them in their own type, in which small integers overflow",
        "histogram",
        lambda m: m.failed is None and m.refused is None and _weighed_in(m) not in ("", "float64", "complex128"),
        lambda m: _again(m, weights=np.float64),
    ),
    Difference(
        "neighbours are added in float64; NumPy adds integers and masks in their own type, which overflows",
        "trapezoid|trapz",
        lambda m: m.failed is None and m.drawn.x.dtype.kind in "biu",
        lambda m: _again(m, dtype=np.float64),
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
        "an inverse of no axes is the number's; NumPy does not make its shape",
        "linalg.tensorinv",
        lambda m: m.failed is None and not np.ndim(m.drawn.args[0]),
        lambda m: 1 / m.drawn.args[0],
    ),
    Difference(
        "bins of two edges are refused by another error than by NumPy, which takes them for two numbers of bins",
        "histogram2d",
        lambda m: _both_refuse(m) and "bins" in str(m.failed),
    ),
    Difference(
        "bins that numbers of the type cannot tell apart are refused; NumPy counts in bins without a width",
        "histogram2d|histogramdd",
        lambda m: "Too many bins" in str(m.failed),
    ),
    Difference(
        "no bytes have bits that are 0; NumPy 2.4 returns any bits",
        "unpackbits",
        lambda m: m.failed is None and not m.drawn.x.size,
        lambda m: np.zeros_like(m.expected),
    ),
    Difference(
        "an axis of arrays with different numbers of axes is counted from the end",
        r"(linalg\.)?vecdot",
        lambda m: "count it from the end" in str(m.failed),
    ),
    Difference(
        "arrays that do not fit the places are refused; NumPy takes one place in a list for its number",
        "insert",
        lambda m: isinstance(m.failed, ValueError) and isinstance(m.drawn.args[2], np.ndarray),
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
        lambda m: (),
    ),
]
