"""What all sparse arrays have in common."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from weft.frontends.tensors import reductions, sources
from weft.frontends.tensors.arrays import computing, runners
from weft.frontends.tensors.arrays.array import DEVICE, Tensor, apply
from weft.frontends.tensors.arrays.executables import Executable, Watch

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import Axis, DType, DTypeLike, NumpyArray


class _OfDenseArraysError(AttributeError, TypeError):
    """A sparse array has not what a dense one has; `hasattr` is False, and it is an error of types as of functions."""


class SparseArray(Executable):
    """An array that is computed on request, whose chunks are sparse arrays of a library."""

    __slots__ = ("__weakref__", "_node")

    def __init__(self, node: ArrayNode) -> None:
        self._node = node

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._node.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self._node.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._node.grid)

    @property
    def size(self) -> int:
        """The number of elements, with those that are not stored."""
        return self._node.size

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """The lengths of the chunks along each axis."""
        return tuple([cut.lengths() for cut in self._node.grid])

    nsplits = chunks

    @property
    def device(self) -> str:
        """The device of the values: "cpu"."""
        return DEVICE

    def issparse(self) -> bool:
        """Whether this is a sparse array: it is."""
        return True

    def tosparse(self) -> Self:
        """Return the array itself."""
        return self

    def __bool__(self) -> bool:
        return bool(self.fetch())

    def __repr__(self) -> str:
        state = "computed" if self._ready() else "to be computed"
        return f"{type(self).__name__} <{self._node.name}, shape={self.shape}, dtype={self.dtype}, {state}>"

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        kind = type(self).__name__
        if not name.startswith("_") and hasattr(Tensor, name):
            raise _OfDenseArraysError(f"{name} of a {kind} is not supported: give x.todense().{name}")
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    def _ready(self) -> bool:
        return sources.is_stored(self._node)

    @classmethod
    def _compute(cls, things: Sequence[Any], session: runners.Runner | None, watch: Watch) -> None:
        nodes = [x._node for x in things]
        for x, node, settled in zip(things, nodes, computing.settle(nodes, session, watch), strict=True):
            settled.held = node.held
            x._node = settled

    def _give_name(self, name: str, session: runners.Runner | None) -> None:
        (session or runners.current()).name(name, self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NumpyArray:
        raise TypeError("a sparse array would become dense: give x.todense(), or x.to_numpy()")

    def _along(self, axis: Axis) -> int:
        """Return the number of elements along axes."""
        return prod([self.shape[one] for one in reductions.axes_of(axis, self.ndim)])

    def _squares(self, axis: Axis, n: int) -> tuple[Tensor, DType | None]:
        """Return the sums of squared distances from the means of `n` elements, and the type of variances if another."""
        raise NotImplementedError

    def var(
        self,
        axis: Axis = None,
        dtype: DTypeLike = None,
        *,
        correction: float = 0.0,
        ddof: float | None = None,
        keepdims: bool = False,
        where: Any = True,
    ) -> Tensor:
        """Return variances along axes, as a dense array: of the distances from the mean, which is subtracted first.

        The arguments are those of `weft.tensor.var`. TypeError: `where` leaves elements out.
        """
        if where is not True:
            raise TypeError("where= is not supported for sparse arrays: give x.todense()")
        if ddof and correction:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        axes, n = reductions.axes_of(axis, self.ndim), self._along(axis)
        total, kind = self._squares(axis, n)
        made = apply(np.true_divide, total, max(n - (ddof or correction), 0))
        wanted = kind if dtype is None else dtype
        made = made if wanted is None else made.astype(wanted)
        return made if keepdims else Tensor(reductions.finished(made.node, axes, keepdims=False))

    def std(self, axis: Axis = None, dtype: DTypeLike = None, **given: Any) -> Tensor:
        """Return standard deviations along axes, as a dense array; arguments as of `var`."""
        return apply(np.sqrt, self.var(axis, dtype, **given))
