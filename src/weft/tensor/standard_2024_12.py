"""The namespace of version 2024.12 of the array standard: some functions return lists in place of tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import tensor
from weft.tensor.inspection import Info

if TYPE_CHECKING:
    from weft.frontends.tensors.arrays.array import Tensor

__array_api_version__ = "2024.12"


class _Info(Info):
    def devices(self) -> Any:
        """Return all devices."""
        return list(super().devices())


def __array_namespace_info__() -> Info:  # noqa: N807
    """Return the capabilities, devices and types of the namespace."""
    return _Info()


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """Return arrays broadcast to their common shape."""
    return list(tensor.broadcast_arrays(*arrays))


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """Return coordinate arrays of a grid from its axes."""
    return list(tensor.meshgrid(*arrays, indexing=indexing))


def __getattr__(name: str) -> Any:
    return getattr(tensor, name)


def __dir__() -> list[str]:
    return dir(tensor)
