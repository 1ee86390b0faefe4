"""Histograms and counts."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, sample_sort, shaping
from weft.frontends.tensors.arrays import executables, joining, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import FLOAT, INT
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.shapes import ravel
from weft.frontends.tensors.blocks import whole_along
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import NodeInput, call, computed

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk, NumpyArray


def _histogram(x: Chunk, weights: Any = None, *, edges: tuple[float, ...]) -> Chunk:
    counts, _ = np.histogram(x, np.asarray(edges), weights=weights)
    return counts


def edges_of(x: Tensor, bins: Any, range: tuple[float, float] | None) -> NumpyArray:
    """Return the edges of a histogram, as `numpy.histogram_bin_edges`, of which a number needs the extremes alone."""
    dtype = np.dtype(np.uint8) if x.dtype.kind == "b" else x.dtype
    if isinstance(bins, str):
        values = x.fetch()
    elif isinstance(bins, int | np.integer) and range is None and x.size:
        values = np.array(executables.fetch([statistics.min(x), statistics.max(x)]))
    else:
        values = np.empty(0, dtype)
    bins = bins.fetch() if isinstance(bins, Tensor) else bins
    return np.histogram_bin_edges(values.astype(dtype), bins, range)


@public("a")
def histogram(
    x: ArrayLike,
    bins: int | str | Sequence[float] = 10,
    range: tuple[float, float] | None = None,
    weights: ArrayLike | None = None,
    density: bool = False,
) -> ExecutableTuple:
    """Return the number (or the weight) of elements between edges, and the edges.

    A number of bins without a range computes the smallest and the largest element first, a rule by its name all.
    """
    flat = ravel(x)
    edges = edges_of(flat, bins, range)
    node = flat.node
    inputs = [node]
    dtype = INT
    if weights is not None:
        by = ravel(weights)
        if by.shape != flat.shape:
            raise ValueError("weights should have the same shape as a.")
        dtype = np.result_type(by.dtype, FLOAT)
        inputs.append(by.astype(dtype).rechunk((node.grid[0].lengths(),)).node)
    n = len(edges) - 1
    grid = (Cut.even(node.grid[0].n * n, n),)
    part = call(_histogram, inputs, grid, dtype, name="histogram", edges=tuple(edges.tolist()))
    rows = node.grid[0].n
    counts = Tensor(part) if rows == 1 else statistics.sum(Tensor(shaping.reshape(part, (rows, n))), axis=0)
    if density:
        widths = np.diff(edges)
        counts = apply(np.true_divide, apply(np.true_divide, counts, widths), statistics.sum(counts))
    return ExecutableTuple([counts, Tensor(as_node(edges))])


@public(ignored="chunk_size_limit")
@needs_lengths
def bincount(x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0) -> Tensor:
    """Return how often each whole number occurs, or the sum of the weights there; chunks are added up by a tree."""
    node = as_node(x)
    if len(node.grid) != 1:
        raise ValueError(f"bincount: x has {len(node.grid)} axes; give an array of 1 dimension")
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    if node.dtype.kind not in "biu":
        raise TypeError(f"Cannot cast array data from {node.dtype} to {INT} according to the rule 'safe'")
    node = shaping.cast(node, INT)
    weights = weights if node.size else None  # as in NumPy: nothing has no weight
    if weights is not None and as_node(weights).shape != node.shape:
        raise ValueError("The weights and list don't have the same length.")
    inputs = [node]
    if weights is not None:
        inputs.append(as_tensor(weights).rechunk((node.grid[0].lengths(),)).node)
    dtype = INT if weights is None else FLOAT
    whole = (Cut.unknown(1),)
    grid = whole if node.chunks == 1 else (Cut.even(node.chunks, 1),)
    made = call(np.bincount, inputs, grid, dtype, name="bincount", minlength=minlength)
    return Tensor(sample_sort.united(made, _added, whole))


def _added(parts: list[Any]) -> Any:
    total = np.zeros(max(map(len, parts)), parts[0].dtype)
    for part in parts:
        total[: len(part)] += part
    return total


@public()
def digitize(x: ArrayLike, bins: Any, right: bool = False) -> Tensor:
    """Return between which edges each element lies."""
    node, edges = as_node(x), np.asarray(as_tensor(bins).fetch())
    return Tensor(blocks.elementwise(np.digitize, [node], INT, "digitize", bins=tuple(edges.tolist()), right=right))


@public("a")
def histogram_bin_edges(
    x: ArrayLike, bins: Any = 10, range: tuple[float, float] | None = None, weights: ArrayLike | None = None
) -> Tensor:
    """Return the edges between which `histogram` counts; a rule by its name reads the array as a whole."""
    return as_tensor(edges_of(shapes.ravel(x), bins, range))


def _counted_in(sample: Chunk, weights: Any = None, *, edges: tuple[tuple[float, ...], ...]) -> Chunk:
    counts, _ = np.histogramdd(sample, [np.asarray(one) for one in edges], weights=weights)
    return counts[None]


@public()
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: ArrayLike | None = None
) -> Any:
    """Return the number (or the weight) of points between edges along each axis, and the edges of each.

    `sample` has a row for each point, or is a sequence of coordinates for each axis. Numbers of bins without a range
    compute the smallest and the largest coordinates first. Chunks of points are counted alone, and added by a tree.
    """
    if isinstance(sample, Tensor | np.ndarray) and np.ndim(sample) == 2:
        points = as_tensor(sample)
    else:
        points = shapes.atleast_2d(joining.stack([as_tensor(one) for one in sample])).T
    if points.ndim != 2:
        raise ValueError(f"sample has {points.ndim} axes: give a row for each point")
    n, d = points.shape
    each = list(bins) if isinstance(bins, list | tuple | np.ndarray) else [bins] * d
    if len(each) != d:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    ranges = [None] * d if range is None else list(range)
    if len(ranges) != d:
        raise ValueError("range argument must have one entry per dimension")
    for at, one in enumerate(each):
        if np.ndim(one) > 1:
            raise ValueError(f"`bins[{at}]` must be a scalar or 1d array")
    if n:
        edges = [edges_of(points[:, at], one, ranges[at]) for at, one in enumerate(each)]
    else:
        nothing = np.empty((0, d), points.dtype)
        edges = list(np.histogramdd(nothing, computed(each), ranges)[1])  # type: ignore[arg-type]
    node = whole_along(points.node, (1,))
    inputs = [NodeInput(node)]
    if weights is not None:
        by = ravel(weights)
        if by.shape != (n,):
            raise ValueError("The weights and list don't have the same length.")
        own = by.astype(FLOAT).rechunk((node.grid[0].lengths(),)).node
        inputs.append(NodeInput(own))
    grid = (Cut.even(node.grid[0].n, 1), *[Cut.whole(len(one) - 1) for one in edges])
    part = call(_counted_in, inputs, grid, FLOAT, name="histogramdd", edges=tuple([tuple(e.tolist()) for e in edges]))
    counts = statistics.sum(Tensor(part), axis=0)
    if density:
        total = statistics.sum(counts)
        for at, one in enumerate(edges):
            widths = np.diff(one).reshape([-1 if a == at else 1 for a in builtins.range(d)])
            counts = apply(np.true_divide, counts, widths)
        counts = apply(np.true_divide, counts, total)
    return ExecutableTuple([counts, ExecutableTuple([Tensor(as_node(one)) for one in edges])])


@public()
def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: ArrayLike | None = None,
) -> ExecutableTuple:
    """Return the number (or the weight) of points between edges along two axes, and both edges; see `histogramdd`."""
    one, other = as_tensor(x), as_tensor(y)
    if len(one) != len(other):
        raise ValueError("x and y must have the same length.")
    several = isinstance(bins, list | tuple | np.ndarray)
    if several and len(bins) not in (1, 2):
        bins = [np.asarray(bins)] * 2
    elif several and len(bins) == 1:
        bins = [bins[0]] * 2
    counts, edges = histogramdd([one, other], bins, range, density, weights)
    return ExecutableTuple([counts, *edges])
