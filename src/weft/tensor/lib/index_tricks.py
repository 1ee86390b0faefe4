"""Making arrays by indexing: grids of coordinates, and joins."""

from weft.frontends.tensors.arrays.older_names import c_, mgrid, ndindex, ogrid, r_

__all__ = ["c_", "mgrid", "ndindex", "ogrid", "r_"]
