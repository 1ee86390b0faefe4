"""Medians and quantiles of arrays that are too large for one task, without sorting.

Only the elements next to a position in sorted order count. Samples of all chunks bracket each position, as in a sort;
the few elements inside the brackets determine it. So the array is read twice, and no copy of it is kept. Positions and
interpolation are those of Hyndman and Fan (1996), and NumPy's other methods, in the same steps of arithmetic as
NumPy's, so that results are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontends.tensors import sample_sort
from weft.frontends.tensors.blocks import mapped
from weft.frontends.tensors.chunks import Cut, Grid, largest
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DType

Sample = tuple[int, Any, Any]


def is_long(node: ArrayNode, axes: Sequence[int]) -> bool:
    """Return whether all elements together are selected chunk by chunk: `axes` omit only axes of length 1."""
    every = all(cut.size == 1 for axis, cut in enumerate(node.grid) if axis not in axes)
    return every and node.chunks > 1 and node.nbytes >= sample_sort.SORTED_FROM and node.dtype.kind in "biuf"


# -------------------------------------------------------------------------------------------------------- places


class Places(NamedTuple):
    """The positions in sorted order that determine some quantiles, and the weight of `high` against `low` for each.

    `share` is a Python number if the dtype of the quantiles does not matter.
    """

    low: Any
    high: Any
    share: Any


_SHIFTS = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}
"""The constants alpha and beta of Hyndman and Fan."""


def _next_if(inner: Any, exact: Any) -> Any:
    """Return the position at or after a virtual one; the one before it if `exact` holds."""
    below = np.floor(inner)
    return np.maximum(np.where(exact, below, below + 1), 0).astype(np.intp)


def _virtual(n: int, q: Any, method: str) -> Any:
    """Return the positions of quantiles among n sorted elements, as numbers that need not be whole."""
    if method in _SHIFTS:
        alpha, beta = _SHIFTS[method]
        return n * q + (alpha + q * (1 - alpha - beta)) - 1
    if method == "averaged_inverted_cdf":
        return n * q - 1
    if method == "inverted_cdf":
        at = n * q - 1
        return _next_if(at, at == np.floor(at))
    if method == "closest_observation":
        at = n * q - 1 - 0.5
        return _next_if(at, (at == np.floor(at)) & (np.floor(at) % 2 == 1))
    at = (n - 1) * q
    if method == "midpoint":
        return 0.5 * (np.floor(at) + np.ceil(at))
    rounded: Any = {"lower": np.floor, "higher": np.ceil, "nearest": np.around}.get(method)
    return at if rounded is None else rounded(at).astype(np.intp)


_PICK = frozenset({"inverted_cdf", "closest_observation", "lower", "higher", "nearest"})
"""Methods that pick an element."""


def places_of(n: int, q: Any, method: str) -> Places:
    """Return the positions of the quantiles `q`, a number or a NumPy array, among n sorted elements; n is not 0."""
    virtual = np.asanyarray(_virtual(n, np.asanyarray(q), method))
    if method in _PICK or (method == "linear" and virtual.dtype.kind in "iu"):
        return Places(virtual % n, virtual % n, None)
    low = np.asarray(np.floor(virtual))
    high = low + 1
    low, high = (np.where(virtual >= n - 1, -1, np.where(virtual < 0, 0, at)) for at in (low, high))
    share = np.asanyarray(virtual - low)
    if method == "averaged_inverted_cdf":
        share = np.where(share == 0, 0.5, 1.0)
    elif method == "midpoint":
        share = np.where(virtual % 1 == 0, 0.0, 0.5)
    share = share.astype(virtual.dtype)
    low, high = (at.astype(np.intp) % n for at in (low, high))
    return Places(low, high, float(share) if type(q) in (int, float) else share)


def _between(low: Any, high: Any, share: Any) -> Any:
    """Interpolate from the nearer end."""
    if share is None:
        return low
    away = high - low
    return np.where(np.asarray(share) >= 0.5, high - away * (1 - share), low + away * share)


class Quantiles(NamedTuple):
    """A request for quantiles by a method. `skip` ignores NaNs; otherwise one NaN makes all quantiles NaN.

    `q`, as `numpy.quantile` takes it, is a share of `whole`; several are a list of them and their dtype.
    """

    q: Any
    whole: int
    method: str
    skip: bool

    def places(self, n: int) -> Places:
        """Return their positions among n sorted elements."""
        q = np.asarray(*self.q) if isinstance(self.q, tuple) else self.q
        share = q if self.whole == 1 else np.true_divide(q, self.whole)
        return places_of(n, float(share) if type(q) in (int, float) and self.whole != 1 else share, self.method)

    def ends(self, n: int) -> Any:
        """Return the needed elements as numbers counted from one."""
        places = self.places(n)
        return np.concatenate([np.ravel(places.low), np.ravel(places.high)]) + 1

    def value(self, values: Any, n: int) -> Any:
        """Return the quantiles from the needed elements."""
        places = self.places(n)
        low, high = (part.reshape(np.shape(places.low)) for part in np.split(values, 2))
        return _between(low[()], high[()], places.share)


class Median(NamedTuple):
    """A request for the median. `skip` ignores NaNs; otherwise one NaN makes it NaN."""

    skip: bool

    def ends(self, n: int) -> Any:
        """Return the needed elements as numbers counted from one."""
        return np.arange((n - 1) // 2, n // 2 + 1) + 1

    def value(self, values: Any, n: int) -> Any:
        """Return the median from the needed elements."""
        return np.median(values)


def wanted_by(fn: Callable[..., Any], q: Any, method: str = "linear") -> Quantiles | Median:
    """Return the request of a call of `numpy.median`, `quantile` or a relative; `q` is as in `Quantiles`."""
    skip = fn in (np.nanmedian, np.nanquantile, np.nanpercentile)
    if fn in (np.median, np.nanmedian):
        return Median(skip)
    return Quantiles(q, 100 if fn in (np.percentile, np.nanpercentile) else 1, method, skip)


# ------------------------------------------------------------------------------------------------------- kernels


class Sought(NamedTuple):
    """The number of elements, whether some are NaN, and the brackets of the needed elements."""

    n: int
    lost: bool
    ends: tuple[int, ...]
    brackets: list[tuple[Any, Any]]


def _in_order(x: Any) -> sample_sort.SortedRun:
    flat = np.ravel(x)
    if flat.dtype.kind == "f" and (lost := np.isnan(flat)).any():
        flat = flat[~lost]
    return sample_sort.SortedRun(np.sort(flat), None)


def _sampled(x: Any, *, step: int) -> tuple[Sample, bool]:
    run = _in_order(x)
    if not len(run.values):
        return (0, run.values, np.arange(0)), np.size(x) > 0
    return sample_sort.samples_of(run, step=step), len(run.values) < np.size(x)


def _sought(parts: list[tuple[Sample, bool]], *, wanted: Quantiles | Median) -> Sought:
    samples = [sample for sample, _ in parts]
    lost = any(lost for _, lost in parts)
    n = sum([length for length, _, _ in samples])
    if n == 0 or (lost and not wanted.skip):
        return Sought(n, lost, (), [])
    ends = tuple(wanted.ends(n).tolist())
    return Sought(n, lost, ends, sample_sort.brackets_of(samples, ends=ends))


def _near(x: Any, sought: Sought) -> list[tuple[int, Any, Any]]:
    return sample_sort.counts_within(_in_order(x), sought.brackets) if sought.ends else []


def _found(
    near: list[list[tuple[int, Any, Any]]],
    sought: Sought,
    *,
    wanted: Quantiles | Median,
    shape: tuple[int, ...],
    dtype: DType,
) -> Any:
    if not sought.ends:
        return np.full(shape, np.nan, dtype)
    values = []
    for at, end in enumerate(sought.ends):
        parts = [chunk[at] for chunk in near]
        number = end - sum([before for before, _, _ in parts])
        values.append(sample_sort.nth(parts, number) if number else sought.brackets[at][0])  # otherwise the lower end
    return np.asarray(wanted.value(np.asarray(values), sought.n), dtype).reshape(shape)


def select(node: ArrayNode, wanted: Quantiles | Median, grid: Grid, dtype: DType, name: str) -> ArrayNode:
    """Return the selection from all elements of a long array; `grid`, of one chunk, is that of the result."""
    many = prod([cut.size for cut in grid])
    step = max(1, ceil(sqrt(largest(node.grid) / (2 * many))))
    each, one = (Cut.even(node.chunks, 1),), (Cut.whole(1),)
    sampled = call(_sampled, node, each, node.dtype, name="samples", step=step)
    sought = call(_sought, [NodeInput(sampled, Read.ALL)], one, node.dtype, name="brackets", wanted=wanted)
    inputs = [NodeInput(node), mapped(sought, node.grid, [None] * len(node.grid))]
    near = call(_near, inputs, each, node.dtype, name="within")
    inputs = [NodeInput(near, Read.ALL), NodeInput(sought)]
    return call(
        _found, inputs, grid, dtype, name=name, wanted=wanted, shape=tuple([cut.size for cut in grid]), dtype=dtype
    )
