"""Functions that go over an array chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node, loose_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import ArrayNode, ChunkLocator, NodeInput, computed
from weft.frontends.tensors.shaping import is_open
from weft.operators.region_steps import KernelKind

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, ChunkSize, DType


@public(method=True)
@needs_lengths
def map_chunk(x: ArrayLike, fn: Callable[..., Any], args: Sequence[Any] = (), **kwargs: Any) -> Tensor:
    """Return the result of a function for each chunk, with the same shape by default.

    The function cannot change its chunk, which other expressions may read: `chunk * 2`, not `chunk *= 2`.

    Without `dtype=` the function is called once at once, in the calling thread, on a chunk of a single 1: the result
    gives the dtype. Give `dtype=` if the function is slow, has side effects or fails on it. `elementwise=False` says
    that lengths may change: they are known when it has run. `with_chunk_index=True` gives the function `chunk_index=`
    too: the numbers of the chunk along each axis. All other arguments are the function's;
    arrays among them are computed, and the function gets their values. ValueError, when computed: a
    result has another shape than its chunk, or with `elementwise=False` another number of axes, or without `dtype=`
    values of another kind, such as fractions where the first call gave whole numbers.
    """
    given: tuple[Any, ...] = computed(tuple(args))
    kwargs = computed(kwargs)
    dtype, same = kwargs.pop("dtype", None), kwargs.pop("elementwise", True)
    guessed = dtype is None
    numbered = kwargs.pop("with_chunk_index", False)
    node = as_node(x) if numbered else loose_node(x)
    if dtype is None:
        first = {"chunk_index": (0,) * len(node.grid)} if numbered else {}
        one = read_only(np.ones((1,) * len(node.grid), node.dtype))
        dtype = np.asarray(fn(one, *given, **kwargs, **first)).dtype
    if is_open(np.dtype(dtype)):
        raise TypeError(f"map_chunk: dtype is {np.dtype(dtype)} without a length or unit: give one, such as 'U10'")
    grid = node.grid if same else tuple([Cut.unknown(cut.n) for cut in node.grid])
    where = ChunkLocator(node.grid) if numbered else None
    call_it = (_Numbered if numbered else _Mapped)(fn, given, kwargs, np.dtype(dtype), guessed, same, where)
    kind = KernelKind.PLACED if numbered else KernelKind.CALL
    made = ArrayNode(kind, call_it, [NodeInput(node)], grid, np.dtype(dtype), unique=True, name="map_chunk")
    return Tensor(made)


def check_kept(name: str, made: DType, dtype: DType, guessed: bool, option: str = "dtype=") -> None:
    """ValueError: values of a user's function would be cut by the type of the result, or dates become numbers.

    `dtype` is `guessed` if the function was tried for it; a given one may cut numbers, as `astype` does. `option` is
    the argument that gives it.
    """
    if made.kind in "USV" and made.kind == dtype.kind and made.itemsize > dtype.itemsize:
        raise ValueError(
            f"{name}: the function returned {made}, which {dtype} cannot hold: give {option} with the largest length"
        )
    if made.kind in "Mm" and dtype.kind in "fc":
        raise ValueError(f"{name}: the function returned {made}, which {dtype} cannot hold: give {option} of {made}")
    if guessed and not np.can_cast(made, dtype, "same_kind"):
        raise ValueError(
            f"{name}: the function returned {made} for a chunk, and {dtype} for an array of ones: give {option}"
        )


def read_only(chunk: Any) -> Any:
    """Return a view that a user's function cannot write to."""
    if not isinstance(chunk, np.ndarray):
        return chunk
    view = chunk.view()
    view.flags.writeable = False
    return view


class _Mapped:
    """A user's function with its arguments."""

    __name__ = "map_chunk"

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dtype: DType,
        guessed: bool,
        same: bool,
        where: ChunkLocator | None,
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.dtype = dtype
        self.guessed = guessed
        self.same = same
        self.where = where

    def __call__(self, chunk: Any) -> Any:
        return self._checked(chunk, self.fn(read_only(chunk), *self.args, **self.kwargs))

    def _checked(self, chunk: Any, result: Any) -> Any:
        made = np.asarray(result)
        if self.same and made.shape != chunk.shape:
            raise ValueError(
                f"map_chunk: the function made an array of shape {made.shape} of a chunk of shape {chunk.shape}: give "
                "elementwise=False if it changes lengths"
            )
        check_kept("map_chunk", made.dtype, self.dtype, self.guessed)
        if made.ndim != chunk.ndim:
            raise ValueError(
                f"map_chunk: the function made an array of {made.ndim} axes of a chunk of {chunk.ndim}: have it keep "
                "them, with length 1 where it reduces"
            )
        return made


class _Numbered(_Mapped):
    """The same, for a function that gets the number of its chunk."""

    def __call__(self, place: Any, chunk: Any) -> Any:  # type: ignore[override]
        assert self.where is not None
        at = self.where(place.number).at
        return self._checked(chunk, self.fn(read_only(chunk), *self.args, chunk_index=at, **self.kwargs))


@public("tensor", ignored="reassign_worker")
def rechunk(x: ArrayLike, chunk_size: ChunkSize) -> Tensor:
    """Return the same array in other chunks."""
    return as_tensor(x).rechunk(chunk_size)
