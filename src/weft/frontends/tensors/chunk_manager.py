"""The chunk manager for xarray: `xr.open_dataset(..., chunked_array_type="weft")`, `x.chunk(...)`.

Only xarray's entry point (`weft.tensor.chunkmanager`) imports this module, which needs xarray.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.namedarray.parallelcompat import ChunkManagerEntrypoint

from weft.frontends.tensors.arrays import cumulative, nan_statistics, shapes
from weft.frontends.tensors.arrays.array import PUBLIC_PACKAGE, Tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.creation import from_array
from weft.frontends.tensors.arrays.executables import execute, fetch
from weft.frontends.tensors.arrays.storing import store
from weft.frontends.tensors.blocks import fitted, mapped, whole_along
from weft.frontends.tensors.chunks import Cut, Grid
from weft.frontends.tensors.nodes import call
from weft.frontends.tensors.reductions import axes_of, parts_grid

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType

_TARGET_BYTES = 64 * 2**20
"""The bytes of a chunk if xarray leaves the size to Weft."""


class WeftManager(ChunkManagerEntrypoint[Tensor]):  # type: ignore[misc]
    """Gives the arrays of xarray to `weft.tensor`."""

    available = True

    def __init__(self) -> None:
        self.array_cls = Tensor

    def is_chunked_array(self, data: Any) -> bool:
        """Return whether an array is a Weft array."""
        return isinstance(data, Tensor)

    def chunks(self, data: Tensor) -> Any:
        """Return the lengths of the chunks along each axis."""
        return data.chunks

    def normalize_chunks(
        self, chunks: Any, shape: Any = None, limit: int | None = None, dtype: Any = None, previous_chunks: Any = None
    ) -> Any:
        """Return the lengths of chunks for a short form: numbers, lengths, -1 for all, None, "auto"."""
        kind = np.dtype(np.float64 if dtype is None else dtype)
        return _normalized(chunks, shape, kind, limit or _TARGET_BYTES, previous_chunks)

    def from_array(self, data: Any, chunks: Any, **kwargs: Any) -> Tensor:
        """Return an array that reads another one, chunk by chunk, in tasks."""
        dtype = np.dtype(data.dtype)
        if not isinstance(data, np.ndarray):
            data = _Indexed(data)
        return from_array(data, chunk_size=_normalized(chunks, data.shape, dtype, _TARGET_BYTES, None))

    def rechunk(self, data: Tensor, chunks: Any, **kwargs: Any) -> Tensor:
        """Return the same array in other chunks."""
        wanted = _normalized(chunks, data.shape, data.dtype, _TARGET_BYTES, data.chunks)
        return data.rechunk(wanted)

    def compute(self, *data: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return values, computed in one run; other objects are returned unchanged."""
        arrays = [one for one in data if isinstance(one, Tensor)]
        values = iter(fetch(arrays) if len(arrays) > 1 else [one.fetch() for one in arrays])
        return tuple([next(values) if isinstance(one, Tensor) else one for one in data])

    def persist(self, *data: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Compute arrays in one run, and return them with their chunks kept by the session."""
        execute([one for one in data if isinstance(one, Tensor)])
        return data

    @property
    def array_api(self) -> Any:
        """The namespace of functions on arrays."""
        return import_module(PUBLIC_PACKAGE)

    def get_auto_chunk_size(self) -> int:
        """Return the bytes of a chunk whose size xarray leaves to Weft."""
        return _TARGET_BYTES

    # ------------------------------------------------------------------------------------------- chunk by chunk

    def reduction(
        self,
        arr: Tensor,
        func: Callable[..., Any],
        combine_func: Callable[..., Any] | None = None,
        aggregate_func: Callable[..., Any] | None = None,
        axis: Any = None,
        dtype: Any = None,
        keepdims: bool = False,
    ) -> Tensor:
        """Reduce each chunk, combine the results, and reduce these."""
        node = arr.node
        axes = axes_of(axis, len(node.grid))
        kind = np.dtype(arr.dtype if dtype is None else dtype)
        parts = call(
            _Reduced(func, axes),
            node,
            parts_grid(node.grid, axes),
            kind,
            unique=True,
            name=getattr(func, "__name__", ""),
        )
        whole = whole_along(parts, axes)
        single = tuple([Cut.whole(1) if a in axes else cut for a, cut in enumerate(node.grid)])
        last = _Reduced(aggregate_func or combine_func or func, axes)
        made = Tensor(call(last, whole, single, kind, unique=True, name="aggregate"))
        return made if keepdims else shapes.squeeze(made, axes)

    def scan(
        self,
        func: Callable[..., Any],
        binop: Callable[..., Any],
        ident: float,
        arr: Tensor,
        axis: int | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        """Return running sums or products along an axis. NotImplementedError: any other function."""
        ours = {"cumsum": cumulative.cumsum, "cumprod": cumulative.cumprod}
        ours |= {
            "nancumsum": nan_statistics.nancumsum,
            "nancumprod": nan_statistics.nancumprod,
            "add": cumulative.cumsum,
        }
        found = ours.get(getattr(func, "__name__", ""))
        if found is None:
            raise NotImplementedError(f"no running {getattr(func, '__name__', func)} of chunks")
        return found(arr, axis=axis, dtype=dtype)

    def apply_gufunc(
        self,
        func: Callable[..., Any],
        signature: str,
        *args: Any,
        axes: Any = None,
        keepdims: bool = False,
        output_dtypes: Any = None,
        output_sizes: Mapping[str, int] | None = None,
        vectorize: bool | None = None,
        allow_rechunk: bool = False,
        meta: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function on chunks whose core dimensions, the last ones, are whole."""
        if axes is not None or keepdims:
            raise NotImplementedError("apply_gufunc takes core dimensions last, and neither axes= nor keepdims=")
        ins, outs = _parsed(signature)
        nodes = [as_node(one) for one in args]
        if vectorize:
            func = np.vectorize(func, signature=signature)
        sizes: dict[str, int] = dict(output_sizes or {})
        for node, names in zip(nodes, ins, strict=True):
            for name, cut in zip(names, node.grid[len(node.grid) - len(names) :], strict=True):
                if cut.n > 1 and not allow_rechunk:
                    raise ValueError(
                        f"dimension {name} is a core dimension and consists of {cut.n} chunks: make it one chunk, "
                        "or give allow_rechunk=True"
                    )
                sizes[name] = cut.size
        whole = [
            whole_along(node, range(len(node.grid) - len(names), len(node.grid))) if names else node
            for node, names in zip(nodes, ins, strict=True)
        ]
        loops = [node.grid[: len(node.grid) - len(names)] for node, names in zip(whole, ins, strict=True)]
        batch = _common(loops)
        inputs = []
        for node, names in zip(whole, ins, strict=True):
            n = len(names)
            own = len(node.grid) - n
            target = (*batch[len(batch) - own :], *node.grid[own:])
            node = fitted(node, target)
            places = [d - (len(batch) - own) if d >= len(batch) - own else None for d in range(len(batch))]
            inputs.append(mapped(node, batch, places) if own or n else mapped(node, batch, [None] * len(batch)))
        dtypes = _dtypes(output_dtypes, meta, len(outs))
        several = len(outs) > 1
        results = []
        for at, (names, dtype) in enumerate(zip(outs, dtypes, strict=True)):
            grid = (*batch, *[Cut.whole(sizes[name]) for name in names])
            body = _Called(func, kwargs, at if several else -1)
            results.append(Tensor(call(body, inputs, grid, np.dtype(dtype), unique=True, name="gufunc")))
        return tuple(results) if several else results[0]

    def map_blocks(
        self,
        func: Callable[..., Any],
        *args: Any,
        dtype: Any = None,
        chunks: Any = None,
        drop_axis: Any = None,
        new_axis: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        """Call a function on the chunks of arrays; the result has the chunks of the first, or the given ones."""
        arrays = [one for one in args if isinstance(one, Tensor)]
        grid = _common([one.node.grid for one in arrays])
        dropped = {int(a) % len(grid) for a in np.atleast_1d(drop_axis).tolist()} if drop_axis is not None else set()
        nodes = [fitted(one.node, grid[len(grid) - one.ndim :]) for one in arrays]
        if any(grid[a].n > 1 for a in dropped):
            nodes = [whole_along(node, [a for a in dropped if a < len(node.grid)]) for node in nodes]
        made = [cut for a, cut in enumerate(grid) if a not in dropped]
        for a in sorted(np.atleast_1d(new_axis).tolist()) if new_axis is not None else []:
            made.insert(int(a), Cut.whole(1))
        out: Grid = tuple(made)
        if chunks is not None:
            out = tuple([_cut(one, cut) for one, cut in zip(chunks, out, strict=True)])
        kept = [a for a in range(len(grid)) if a not in dropped]
        added = [a for a in range(len(out)) if new_axis is not None and a in np.atleast_1d(new_axis).tolist()]
        source = iter(kept)
        axes = [None if d in added else next(source) for d in range(len(out))]
        inputs, slots = [], iter(nodes)
        pattern: list[Any] = []
        for one in args:
            if isinstance(one, Tensor):
                node = next(slots)
                missing = len(grid) - len(node.grid)
                inputs.append(mapped(node, out, [None if a is None or a < missing else a - missing for a in axes]))
                pattern.append(None)
            else:
                pattern.append((one,))
        if dtype is None:
            tried = [np.ones((1,) * one.ndim, one.dtype) if isinstance(one, Tensor) else one for one in args]
            dtype = np.asarray(func(*tried, **kwargs)).dtype
        body = _Called(func, kwargs, -1, tuple(pattern))
        return Tensor(call(body, inputs, out, np.dtype(dtype), unique=True, name="map_blocks"))

    def blockwise(
        self,
        func: Callable[..., Any],
        out_ind: Iterable[Any],
        *args: Any,
        adjust_chunks: Any = None,
        new_axes: Mapping[Any, int] | None = None,
        align_arrays: bool = True,
        dtype: Any = None,
        concatenate: bool | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Call a function on chunks of arrays whose axes have labels; axes missing in the result are whole."""
        for unused in ("name", "token", "meta"):
            kwargs.pop(unused, None)
        labels = list(out_ind)
        pairs = [(args[i], args[i + 1]) for i in range(0, len(args), 2)]
        cuts = _cuts_by_label(pairs)
        for label in cuts:
            if label not in labels:
                cuts[label] = Cut.whole(cuts[label].size)
        for label, n in (new_axes or {}).items():
            cuts[label] = Cut.whole(n)
        read: Grid = tuple([cuts[label] for label in labels])
        grid: Grid = tuple([_adjusted(cuts[label], (adjust_chunks or {}).get(label)) for label in labels])
        inputs = []
        pattern: list[Any] = []
        tried: list[Any] = []
        for one, ind in pairs:
            if ind is None:
                pattern.append((one,))
                tried.append(one)
                continue
            names = list(ind)
            node = fitted(as_node(one), tuple([cuts[label] for label in names]))
            inputs.append(mapped(node, read, [names.index(label) if label in names else None for label in labels]))
            pattern.append(None)
            tried.append(np.ones((1,) * len(names), node.dtype))
        kind = np.asarray(func(*tried, **kwargs)).dtype if dtype is None else np.dtype(dtype)
        body = _Called(func, kwargs, -1, tuple(pattern))
        return Tensor(call(body, inputs, grid, kind, unique=True, name=getattr(func, "__name__", "")))

    def unify_chunks(self, *args: Any, **kwargs: Any) -> tuple[dict[Any, Any], list[Any]]:
        """Return arrays whose axes with the same label have the same chunks, and these chunks by label."""
        pairs = [(args[i], args[i + 1]) for i in range(0, len(args), 2)]
        cuts = _cuts_by_label(pairs)
        made = [
            one if ind is None else Tensor(fitted(as_node(one), tuple([cuts[label] for label in ind])))
            for one, ind in pairs
        ]
        return {label: cut.lengths() for label, cut in cuts.items()}, made

    # ------------------------------------------------------------------------------------------------- storing

    def store(self, sources: Any, targets: Any, **kwargs: Any) -> Any:
        """Write arrays into targets that take slices, chunk by chunk, in tasks; with `compute=False` on request."""
        return store(sources, targets, compute=bool(kwargs.get("compute", True)))


# ---------------------------------------------------------------------------------------------------------- bodies


class _Indexed:
    """An array of xarray with its own kind of index, such as those of file backends."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self.array[index])


class _Reduced:
    """A reduction of chunks along axes, which stay with length 1."""

    def __init__(self, fn: Callable[..., Any], axes: tuple[int, ...]) -> None:
        self.fn = fn
        self.axes = axes

    def __call__(self, chunk: Any) -> Any:
        axis = self.axes[0] if len(self.axes) == 1 else self.axes
        return np.asarray(self.fn(chunk, axis=axis, keepdims=True))


class _Called:
    """A user's function with its arguments other than arrays; `at` selects one of several results."""

    def __init__(
        self, fn: Callable[..., Any], kwargs: Mapping[str, Any], at: int, pattern: tuple[Any, ...] | None = None
    ) -> None:
        self.fn = fn
        self.kwargs = dict(kwargs)
        self.at = at
        self.pattern = pattern

    def __call__(self, *chunks: Any) -> Any:
        args: Sequence[Any] = chunks
        if self.pattern is not None:
            left = iter(chunks)
            args = [next(left) if one is None else one[0] for one in self.pattern]
        made = self.fn(*args, **self.kwargs)
        return np.asarray(made if self.at < 0 else made[self.at])


# ---------------------------------------------------------------------------------------------------------- chunks


def _normalized(chunks: Chunk, shape: Sequence[int], dtype: DType, limit: int, before: Any) -> Chunk:
    """Return the lengths of all chunks along each axis."""
    if isinstance(chunks, dict):
        kept = before or [-1] * len(shape)
        chunks = tuple([chunks.get(axis, kept[axis]) for axis in range(len(shape))])
    if not isinstance(chunks, tuple | list):
        chunks = (chunks,) * len(shape)
    if len(shape) == 1 and len(chunks) > 1 and all(isinstance(n, int | np.integer) for n in chunks):
        chunks = (chunks,)
    wanted: list[Any] = [n if n is not None else (before[a] if before else -1) for a, n in enumerate(chunks)]
    free = [a for a, n in enumerate(wanted) if isinstance(n, str)]
    if free:
        fixed = 1
        for a, n in enumerate(wanted):
            if a not in free:
                fixed *= max(1, shape[a] if n == -1 else max(n) if isinstance(n, tuple | list) else n)
        room = max(1, limit // max(1, fixed * dtype.itemsize))
        each = max(1, int(room ** (1 / len(free))))
        for a in sorted(free, key=lambda a: shape[a]):
            wanted[a] = max(1, min(shape[a], each))
    cuts = [_axis(size, n) for size, n in zip(shape, wanted, strict=True)]
    return tuple([cut.lengths() for cut in cuts])


def _axis(size: int, given: Any) -> Cut:
    if isinstance(given, tuple | list):
        if sum(given) != size:
            raise ValueError(f"Chunks do not add up to shape. Got chunks={tuple(given)}, shape={size}")
        return Cut.of([int(n) for n in given])
    return Cut.even(size, max(size, 1) if given == -1 else int(given))


def _cut(given: Any, cut: Cut) -> Cut:
    if isinstance(given, tuple | list):
        return Cut.of([int(n) for n in given])
    return Cut.of([int(given)] * cut.n)


def _adjusted(cut: Cut, change: Any) -> Cut:
    if change is None:
        return cut
    lengths = [change(n) for n in cut.lengths()] if callable(change) else change
    return _cut(lengths, cut)


def _cuts_by_label(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Cut]:
    """Return for each label of axes the cut with the most chunks, among axes that are longer than 1."""
    cuts: dict[Any, Cut] = {}
    for one, labels in pairs:
        for label, cut in zip(labels, as_node(one).grid, strict=True) if labels is not None else ():
            if label not in cuts or cuts[label].size == 1 or (cut.size != 1 and cut.n > cuts[label].n):
                cuts[label] = cut
    return cuts


def _common(grids: Sequence[Grid]) -> Grid:
    """Return the cuts of the result of broadcasting: along each axis those with the most chunks."""
    ndim = max((len(grid) for grid in grids), default=0)
    found: list[Cut] = []
    for axis in range(ndim):
        cuts = [grid[axis - ndim + len(grid)] for grid in grids if axis - ndim + len(grid) >= 0]
        long = [cut for cut in cuts if cut.size != 1] or cuts
        found.append(max(long, key=lambda cut: cut.n))
    return tuple(found)


def _parsed(signature: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the core dimensions of each argument, and of each result."""
    left, right = [
        [[name for name in part.split(",") if name] for part in re.findall(r"\(([^()]*)\)", side.replace(" ", ""))]
        for side in signature.split("->")
    ]
    return left, right


def _dtypes(given: Any, meta: Any, n: int) -> list[Any]:
    if given is None and meta is not None:
        given = [one.dtype for one in (meta if isinstance(meta, tuple | list) else [meta])]
    if given is None:
        return [np.float64] * n
    return list(given) if isinstance(given, tuple | list) else [given] * n
