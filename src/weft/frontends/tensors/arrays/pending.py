"""Arrays that are the values of other executables, such as calls of `weft.remote`: computed before the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import sources
from weft.frontends.tensors.arrays import executables
from weft.frontends.tensors.arrays.executables import Executable, Watch
from weft.frontends.tensors.nodes import ArrayNode, call, walk
from weft.model.errors import InternalError

if TYPE_CHECKING:
    from weft.frontends.tensors.arrays.runners import Runner
    from weft.frontends.tensors.chunks import Grid
    from weft.frontends.tensors.types import Chunk, DType


class PendingValue:
    """An executable whose value is an array in one chunk."""

    __slots__ = ("__weakref__", "value")

    any = False
    """Whether there has been one in this process."""

    def __init__(self, value: Executable) -> None:
        PendingValue.any = True
        self.value = value


def pending(value: Executable, grid: Grid, dtype: DType) -> ArrayNode:
    """Return an array of the value of an executable."""
    return call(_undelivered, [], grid, dtype, unique=True, name="delayed", source=PendingValue(value))


def _undelivered(*parts: Chunk, source: PendingValue) -> Chunk:
    raise InternalError("an array was computed before the call that makes it", hint="Please report this.")


def _as_told(value: Any, *, shape: tuple[int, ...], dtype: DType, who: str) -> Chunk:
    """Return a value as the array that it was said to be."""
    found = np.asarray(value)
    if len(shape) != found.ndim or any(n not in (-1, m) for n, m in zip(shape, found.shape, strict=True)):
        wanted = tuple([np.nan if n < 0 else n for n in shape])
        raise ValueError(f"{who} has an array of shape {found.shape}, and from_delayed was told {wanted}")
    if not np.can_cast(found.dtype, dtype, "same_kind"):
        raise TypeError(f"{who} has an array of {found.dtype}, and from_delayed was told {dtype}")
    return found.astype(dtype, copy=False)


def delivered(nodes: Sequence[ArrayNode], session: Runner | None, watch: Watch | None) -> list[ArrayNode]:
    """Return expressions with the values of the executables that they read, which are computed in one run."""
    order = walk(nodes)
    waiting = [node for node in order if node.fn is _undelivered]
    if not waiting:
        return list(nodes)
    things = list({id(one): one for one in [node.kwargs["source"].value for node in waiting]}.values())
    executables.compute(things, session, watch or Watch())
    new: dict[int, ArrayNode] = {}
    for node in order:
        if node.fn is _undelivered:
            new[node.number] = _delivered(node)
        elif any(one.node.number in new for one in node.inputs):
            new[node.number] = node.over([one.of(new.get(one.node.number, one.node)) for one in node.inputs])
    return [new.get(node.number, node) for node in nodes]


def _delivered(node: ArrayNode) -> ArrayNode:
    value: Executable = node.kwargs["source"].value
    chunks = value.kept_chunks()
    if chunks is None:
        found = value._value_of()
        chunks = [found.fetch() if isinstance(found, Executable) else found]
    made = sources.stored(chunks, node.grid, node.dtype)
    return call(
        _as_told, made, node.grid, node.dtype, name="delayed", shape=node.shape, dtype=node.dtype, who=repr(value)
    )
