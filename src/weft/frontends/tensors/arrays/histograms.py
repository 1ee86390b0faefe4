"""Histograms and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, sample_sort, shaping
from weft.frontends.tensors.arrays import executables, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import FLOAT, INT
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.shapes import ravel
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import call

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
        inputs.append(by.rechunk((node.grid[0].lengths(),)).node)
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
