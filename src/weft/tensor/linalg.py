"""Linear algebra: factorisations, solvers, norms and products of matrices."""

from weft.frontends.tensors.arrays.linalg import *  # noqa: F403
from weft.frontends.tensors.arrays.linalg import __all__ as __all__
