"""The chunk manager for xarray: `xr.open_dataset(..., chunked_array_type="weft")`, `x.chunk(...)`.

Only xarray's entry point (`weft.tensor.chunkmanager`) imports this module, which needs xarray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.namedarray.parallelcompat import ChunkManagerEntrypoint

from weft.frontends.tensors.arrays import blockwise, cumulative, nan_statistics, shapes
from weft.frontends.tensors.arrays.array import PUBLIC_PACKAGE, Tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.creation import from_array
from weft.frontends.tensors.arrays.executables import execute, fetch
from weft.frontends.tensors.arrays.storing import store
from weft.frontends.tensors.blocks import fitted, whole_along
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import call
from weft.frontends.tensors.reductions import axes_of, parts_grid
from weft.model.errors import MissingExtraError

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

    def apply_gufunc(self, func: Callable[..., Any], signature: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function on chunks whose core dimensions are whole; see `weft.tensor.apply_gufunc`."""
        made = blockwise.apply_gufunc(func, signature, *args, **kwargs)
        return tuple(made) if isinstance(made, tuple) else made

    def map_blocks(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        """Call a function on the chunks of arrays; see `weft.tensor.map_blocks`."""
        return blockwise.map_blocks(func, *args, **kwargs)

    def blockwise(self, func: Callable[..., Any], out_ind: Iterable[Any], *args: Any, **kwargs: Any) -> Tensor:
        """Call a function on chunks of arrays whose axes have labels; axes missing in the result are whole."""
        kwargs["concatenate"] = True
        return blockwise.blockwise(func, out_ind, *args, **kwargs)

    def unify_chunks(self, *args: Any, **kwargs: Any) -> tuple[dict[Any, Any], list[Any]]:
        """Return arrays whose axes with the same label have the same chunks, and these chunks by label."""
        pairs = [(args[i], args[i + 1]) for i in range(0, len(args), 2)]
        cuts = blockwise.cuts_by_label(pairs)
        made = [
            one if ind is None else Tensor(fitted(as_node(one), tuple([cuts[label] for label in ind])))
            for one, ind in pairs
        ]
        return {label: cut.lengths() for label, cut in cuts.items()}, made

    # ------------------------------------------------------------------------------------------------- storing

    def store(self, sources: Any, targets: Any, **kwargs: Any) -> Any:
        """Write arrays into targets, or their `regions`, chunk by chunk, in tasks.

        With `compute=False` return a delayed call of dask, of which xarray makes what it returns.
        """
        if kwargs.get("compute", True):
            return store(sources, targets, regions=kwargs.get("regions"))
        try:
            delayed = import_module("dask").delayed
        except ModuleNotFoundError:
            raise MissingExtraError(
                "dask is not installed, of which xarray makes what is written later",
                hint="Install it: pip install dask. Or write at once: compute=True.",
            ) from None
        made = store(sources, targets, regions=kwargs.get("regions"), compute=False)
        return delayed(lambda: execute(made))()  # dask takes no arrays of ours as arguments


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
