# Written by `python -m weft.tensor.stubs` from the registry.
# fmt: off
from weft.frontends.tensors.arrays.index_tricks import c_, mgrid, ndindex, ogrid, r_
__all__ = [
    "c_", "mgrid", "ndindex", "ogrid", "r_",
]
