"""Arrays made by indexing: grids of coordinates, and joins."""

from weft.frontends.tensors.arrays.stubs import namespace

__getattr__, __dir__, __all__ = namespace(__name__)
