"""Dates as text, and business days, chunk by chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks
from weft.frontends.tensors.arrays.array import Tensor, as_tensor, put_into
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import INT
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.nodes import computed

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk, DType

_WEEK = "1111100"
_DAY = np.dtype("M8[D]")


def _dates(x: Any) -> Tensor:
    made = as_tensor(np.asarray(x, _DAY) if not isinstance(x, Tensor | np.ndarray) else x)
    return made.astype(_DAY) if made.dtype.kind in "UM" else made


def _calendar(weekmask: Any, holidays: Any, busdaycal: Any) -> Any:
    if busdaycal is not None:
        if weekmask != _WEEK or holidays is not None:
            raise ValueError("Cannot supply both the weekmask/holidays and the busdaycal parameters")
        return busdaycal
    return np.busdaycalendar(weekmask, [] if holidays is None else np.asarray(computed(holidays), _DAY))


class _Days:
    """A function of business days with its calendar, which is made again in other processes."""

    def __init__(self, fn: Any, calendar: Any, **words: Any) -> None:
        self.fn = fn
        self.calendar = calendar
        self.words = words
        self.__name__ = fn.__name__

    def __call__(self, *chunks: Chunk) -> Chunk:
        return np.asarray(self.fn(*chunks, busdaycal=self.calendar, **self.words))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.fn, self.calendar.weekmask, self.calendar.holidays, self.words)


def _again(fn: Any, weekmask: Any, holidays: Any, words: dict[str, Any]) -> _Days:
    return _Days(fn, np.busdaycalendar(weekmask, holidays), **words)


@needs_lengths
def _called(fn: _Days, dtype: DType, *operands: Any) -> Tensor:
    return Tensor(blocks.elementwise(fn, [one.node for one in operands], dtype, fn.__name__))


def _into(out: Any, made: Tensor) -> Any:
    return made if out is None else put_into(out, made, exact=True)


@public()
def is_busday(
    dates: ArrayLike, weekmask: Any = _WEEK, holidays: Any = None, busdaycal: Any = None, out: Any = None
) -> Any:
    """Return whether dates are business days."""
    days = _Days(np.is_busday, _calendar(weekmask, holidays, busdaycal))
    return _into(out, _called(days, np.dtype(bool), _dates(dates)))


@public()
def busday_count(
    begindates: ArrayLike,
    enddates: ArrayLike,
    weekmask: Any = _WEEK,
    holidays: Any = None,
    busdaycal: Any = None,
    out: Any = None,
) -> Any:
    """Return the number of business days from one date up to another."""
    days = _Days(np.busday_count, _calendar(weekmask, holidays, busdaycal))
    return _into(out, _called(days, INT, _dates(begindates), _dates(enddates)))


@public()
def busday_offset(
    dates: ArrayLike,
    offsets: ArrayLike,
    roll: str = "raise",
    weekmask: Any = _WEEK,
    holidays: Any = None,
    busdaycal: Any = None,
    out: Any = None,
) -> Any:
    """Return the dates that are so many business days later; `roll` is the treatment of other days."""
    days = _Days(np.busday_offset, _calendar(weekmask, holidays, busdaycal), roll=roll)
    return _into(out, _called(days, _DAY, _dates(dates), as_tensor(offsets).astype(INT, casting="same_kind")))


@public("arr")
@needs_lengths
def datetime_as_string(
    x: ArrayLike, unit: str | None = None, timezone: Any = "naive", casting: Any = "same_kind"
) -> Tensor:
    """Return dates as text in the ISO format."""
    given = as_tensor(x)
    if given.dtype.kind != "M":
        raise TypeError("input must have type NumPy datetime")
    words = {"unit": unit, "timezone": timezone, "casting": casting}
    dtype = np.datetime_as_string(np.zeros(1, given.dtype), **words).dtype
    return Tensor(blocks.elementwise(_told, [given.node], dtype, "datetime_as_string", words=tuple(words.items())))


def _told(x: Chunk, *, words: tuple[tuple[str, Any], ...]) -> Chunk:
    return np.asarray(np.datetime_as_string(x, **dict(words)))
