"""The elements of an array one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.frontends.tensors import shaping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.frontends.tensors.nodes import ArrayNode


class Flat:
    """The elements of a `Tensor` in row-major order. Slices are copies; an assignment changes the array."""

    def __init__(self, x: Any) -> None:
        self._x = x
        self._made = type(x)

    def _elements(self) -> Any:
        node = self._x.node
        return self._made(shaping.reshape(node, (node.size,)))

    def __len__(self) -> int:
        return int(self._x.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements())

    def __getitem__(self, index: Any) -> Any:
        return self._made(self._elements()[index]._node)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._x._assign(lambda: self._changed(index, value))

    def _changed(self, index: Any, value: Any) -> ArrayNode:
        elements = self._elements()
        elements[index] = value
        return shaping.reshape(elements._node, self._x.shape)
