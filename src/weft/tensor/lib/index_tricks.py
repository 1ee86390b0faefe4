"""Making arrays by indexing: grids of coordinates, and joins."""

from weft.tensor.older_names import c_, mgrid, ndindex, ogrid, r_

__all__ = ["c_", "mgrid", "ndindex", "ogrid", "r_"]
