# Written by `python -m weft.tensor.stubs` from the registry.
# fmt: off
from numpy.linalg import LinAlgError
from weft.frontends.tensors.arrays.linalg import EigResult, EighResult, QRResult, SVDResult, SlogdetResult, cholesky
from weft.frontends.tensors.arrays.linalg import det, diagonal, eig, eigh, eigvals, eigvalsh, inv, lu, matrix_norm
from weft.frontends.tensors.arrays.linalg import matrix_power, matrix_rank, norm, pinv, qr, randomized_svd, slogdet
from weft.frontends.tensors.arrays.linalg import solve, solve_triangular, svd, svdvals, trace, vector_norm
from weft.frontends.tensors.arrays.linear_systems import LstsqResult, cond, lstsq, multi_dot, tensorinv, tensorsolve
from weft.frontends.tensors.arrays.products import cross, dot, inner, inner as innerproduct, matmul, matrix_transpose
from weft.frontends.tensors.arrays.products import vector_outer as outer, tensordot, vdot, vecdot
__all__ = [
    "EigResult", "EighResult", "LinAlgError", "LstsqResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky",
    "cond", "cross", "det", "diagonal", "dot", "eig", "eigh", "eigvals", "eigvalsh", "inner", "innerproduct", "inv",
    "lstsq", "lu", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm",
    "outer", "pinv", "qr", "randomized_svd", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot",
    "tensorinv", "tensorsolve", "trace", "vdot", "vecdot", "vector_norm",
]
