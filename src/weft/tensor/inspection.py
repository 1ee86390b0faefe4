"""Inspection of the namespace, as the array standard requires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays.array import DEVICE
from weft.frontends.tensors.arrays.registry import expose

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DType

__array_api_version__ = "2025.12"

_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_MOST_AXES = 64
"""The most axes of a NumPy array."""


class Info:
    """Capabilities, devices and types, as `__array_namespace_info__` of the standard."""

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities of the library."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": _MOST_AXES}

    def default_device(self) -> str:
        """Return the device of new arrays."""
        return DEVICE

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Return the default types of new arrays."""
        _known(device)
        return {
            "real floating": np.dtype(np.float64),
            "complex floating": np.dtype(np.complex128),
            "integral": np.dtype(np.int64),
            "indexing": np.dtype(np.int64),
        }

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """Return the types of the standard by name; those of one kind, or of several."""
        _known(device)
        types = {name: np.dtype(name) for name in _TYPES}
        return types if kind is None else {name: one for name, one in types.items() if np.isdtype(one, kind)}

    def devices(self) -> tuple[str, ...]:
        """Return all devices."""
        return (DEVICE,)


def _known(device: str | None) -> None:
    if device not in (None, DEVICE):
        raise ValueError(f"there is no device {device!r}; there is {DEVICE!r}")


def __array_namespace_info__() -> Info:  # noqa: N807
    """Return the capabilities, devices and types of the namespace."""
    return Info()


expose(__name__, "__array_api_version__ __array_namespace_info__")
