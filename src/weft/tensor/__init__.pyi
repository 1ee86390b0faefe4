# Written by `python -m weft.tensor.stubs` from the registry.
# fmt: off
from numpy import bool, bytes_, complex128 as cfloat, character, complex128, complex64, complexfloating, datetime64
from numpy import double, dtype, errstate, flexible, float64 as _float64, float16, float32, float64, floating, generic
from numpy import geterr, inexact, int_ as _int, int16, int32, int64, int8, intc, integer, intp, number
from numpy import object_ as _object, seterr, signedinteger, timedelta64, uint, uint16, uint32, uint64, uint8
from numpy import str_ as unicode_, unsignedinteger, void
from numpy.exceptions import AxisError
from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.blockwise import apply_gufunc, blockwise, map_blocks, vectorize
from weft.frontends.tensors.arrays.chunkwise import map_chunk, rechunk
from weft.frontends.tensors.arrays.comparison import allclose, array_equal, isclose
from weft.frontends.tensors.arrays.correlation import corrcoef, cov
from weft.frontends.tensors.arrays.creation import arange, asarray as array, asarray, ascontiguousarray, asfortranarray
from weft.frontends.tensors.arrays.creation import copy, zeros as empty, zeros_like as empty_like, eye, from_array
from weft.frontends.tensors.arrays.creation import from_dlpack, full, full_like, geomspace, identity, indices, linspace
from weft.frontends.tensors.arrays.creation import logspace, meshgrid, ones, ones_like, asarray as scalar
from weft.frontends.tensors.arrays.creation import asarray as tensor, tril, triu, zeros, zeros_like
from weft.frontends.tensors.arrays.cumulative import cumprod, cumsum, cumulative_prod, cumulative_sum, diff, ediff1d
from weft.frontends.tensors.arrays.diagonals import diag, diagflat, diagonal, fill_diagonal, trace
from weft.frontends.tensors.arrays.dtypes import inf as Inf, nan as NAN, NINF, nan as NaN, astype, can_cast, e, finfo
from weft.frontends.tensors.arrays.dtypes import iinfo, inf, isdtype, nan, newaxis, pi, result_type
from weft.frontends.tensors.arrays.einsum import einsum
from weft.frontends.tensors.arrays.elementwise import abs, abs as absolute, acos, acosh, add, angle, acos as arccos
from weft.frontends.tensors.arrays.elementwise import acosh as arccosh, asin as arcsin, asinh as arcsinh, atan as arctan
from weft.frontends.tensors.arrays.elementwise import atan2 as arctan2, atanh as arctanh, round as around, asin, asinh
from weft.frontends.tensors.arrays.elementwise import atan, atan2, atanh, bitwise_and, bitwise_invert
from weft.frontends.tensors.arrays.elementwise import bitwise_left_shift, bitwise_invert as bitwise_not, bitwise_or
from weft.frontends.tensors.arrays.elementwise import bitwise_right_shift, bitwise_xor, cbrt, ceil, clip, conj
from weft.frontends.tensors.arrays.elementwise import conj as conjugate, copysign, cos, cosh, deg2rad, degrees, divide
from weft.frontends.tensors.arrays.elementwise import divmod, equal, exp, exp2, expm1, fabs, fix, float_power, floor
from weft.frontends.tensors.arrays.elementwise import floor_divide, fmax, fmin, fmod, frexp, greater, greater_equal
from weft.frontends.tensors.arrays.elementwise import heaviside, hypot, i0, imag, bitwise_invert as invert, iscomplex
from weft.frontends.tensors.arrays.elementwise import isfinite, isinf, isnan, isreal, ldexp
from weft.frontends.tensors.arrays.elementwise import bitwise_left_shift as left_shift, less, less_equal, log, log10
from weft.frontends.tensors.arrays.elementwise import log1p, log2, logaddexp, logaddexp2, logical_and, logical_not
from weft.frontends.tensors.arrays.elementwise import logical_or, logical_xor, maximum, minimum, remainder as mod, modf
from weft.frontends.tensors.arrays.elementwise import multiply, nan_to_num, negative, nextafter, not_equal, positive
from weft.frontends.tensors.arrays.elementwise import pow, pow as power, rad2deg, radians, real, reciprocal, remainder
from weft.frontends.tensors.arrays.elementwise import bitwise_right_shift as right_shift, rint, round, round as round_
from weft.frontends.tensors.arrays.elementwise import sign, signbit, sin, sinc, sinh, spacing, sqrt, square, subtract
from weft.frontends.tensors.arrays.elementwise import tan, tanh, tree_add, tree_multiply, divide as true_divide, trunc
from weft.frontends.tensors.arrays.executables import Computation, ExecutableTuple, execute, fetch
from weft.frontends.tensors.arrays.gradients import gradient
from weft.frontends.tensors.arrays.histograms import bincount, digitize, histogram, histogram_bin_edges
from weft.frontends.tensors.arrays.index_tricks import c_, mgrid, ndindex, ogrid, r_
from weft.frontends.tensors.arrays.insertion import delete, insert
from weft.frontends.tensors.arrays.integration import trapezoid, trapezoid as trapz
from weft.frontends.tensors.arrays.interoperation import NumpyFallbackWarning
from weft.frontends.tensors.arrays.joining import append, array_split, block, column_stack, concat, concatenate, dsplit
from weft.frontends.tensors.arrays.joining import dstack, hsplit, hstack, repeat, roll, split, stack, tile, unstack
from weft.frontends.tensors.arrays.joining import vsplit, vstack
from weft.frontends.tensors.arrays.nan_statistics import nanargmax, nanargmin, nancumprod, nancumsum, nanmax, nanmean
from weft.frontends.tensors.arrays.nan_statistics import nanmin, nanprod, nanstd, nansum, nanvar
from weft.frontends.tensors.arrays.options import option_context, options
from weft.frontends.tensors.arrays.overlapping import map_overlap
from weft.frontends.tensors.arrays.padding import pad
from weft.frontends.tensors.arrays.products import dot, inner, inner as innerproduct, kron, matmul, matrix_transpose
from weft.frontends.tensors.arrays.products import outer, tensordot, vdot, vecdot
from weft.frontends.tensors.arrays.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
from weft.frontends.tensors.arrays.searching import argwhere, flatnonzero, nonzero, searchsorted, where
from weft.frontends.tensors.arrays.selection import choose, compress, copyto, extract, take, take_along_axis
from weft.frontends.tensors.arrays.selection import unravel_index
from weft.frontends.tensors.arrays.sets import in1d, isin, setdiff1d, union1d, unique, unique_all, unique_counts
from weft.frontends.tensors.arrays.sets import unique_inverse, unique_values
from weft.frontends.tensors.arrays.shapes import atleast_1d, atleast_2d, atleast_3d, broadcast_arrays, broadcast_shapes
from weft.frontends.tensors.arrays.shapes import broadcast_to, expand_dims, flatten, flip, fliplr, flipud, moveaxis
from weft.frontends.tensors.arrays.shapes import ndim, permute_dims, ravel, reshape, rollaxis, rot90, shape, squeeze
from weft.frontends.tensors.arrays.shapes import swapaxes, transpose
from weft.frontends.tensors.arrays.sorting import argpartition, argsort, argtopk, partition, sort, topk
from weft.frontends.tensors.arrays.statistics import all, max as amax, min as amin, any, argmax, argmin, average
from weft.frontends.tensors.arrays.statistics import count_nonzero, max, mean, min, prod, prod as product, ptp, std, sum
from weft.frontends.tensors.arrays.statistics import var
from weft.frontends.tensors.arrays.storing import from_hdf5, from_zarr, from_hdf5 as fromhdf5, from_zarr as fromzarr
from weft.frontends.tensors.arrays.storing import load, save, store, to_hdf5, to_zarr, to_hdf5 as tohdf5
from weft.frontends.tensors.arrays.storing import to_zarr as tozarr
from weft.tensor import fft, lib, linalg, random, spatial, special, stats
from weft.tensor.inspection import __array_api_version__, __array_namespace_info__
from weft.tensor.sessions import TensorSession as Session, get_default_session, named_tensor, new_session, stop_server
float = _float64
int = _int
object = _object
__all__ = [
    "AxisError", "Computation", "ExecutableTuple", "Inf", "NAN", "NINF", "NaN", "NumpyFallbackWarning", "Session",
    "Tensor", "__array_api_version__", "__array_namespace_info__", "abs", "absolute", "acos", "acosh", "add", "all",
    "allclose", "amax", "amin", "angle", "any", "append", "apply_gufunc", "arange", "arccos", "arccosh", "arcsin",
    "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort", "argtopk", "argwhere",
    "around", "array", "array_equal", "array_split", "asarray", "ascontiguousarray", "asfortranarray", "asin", "asinh",
    "astype", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bincount", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "block",
    "blockwise", "bool", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "bytes_", "c_", "can_cast", "cbrt",
    "ceil", "cfloat", "character", "choose", "clip", "column_stack", "complex128", "complex64", "complexfloating",
    "compress", "concat", "concatenate", "conj", "conjugate", "copy", "copysign", "copyto", "corrcoef", "cos", "cosh",
    "count_nonzero", "cov", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "datetime64", "deg2rad",
    "degrees", "delete", "diag", "diagflat", "diagonal", "diff", "digitize", "divide", "divmod", "dot", "double",
    "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum", "empty", "empty_like", "equal", "errstate", "execute", "exp",
    "exp2", "expand_dims", "expm1", "extract", "eye", "fabs", "fetch", "fft", "fill_diagonal", "finfo", "fix",
    "flatnonzero", "flatten", "flexible", "flip", "fliplr", "flipud", "float16", "float32", "float64", "float_power",
    "floating", "floor", "floor_divide", "fmax", "fmin", "fmod", "frexp", "from_array", "from_dlpack", "from_hdf5",
    "from_zarr", "fromhdf5", "fromzarr", "full", "full_like", "generic", "geomspace", "get_default_session", "geterr",
    "gradient", "greater", "greater_equal", "heaviside", "histogram", "histogram_bin_edges", "hsplit", "hstack",
    "hypot", "i0", "identity", "iinfo", "imag", "in1d", "indices", "inexact", "inf", "inner", "innerproduct", "insert",
    "int16", "int32", "int64", "int8", "intc", "integer", "intp", "invert", "isclose", "iscomplex", "isdtype",
    "isfinite", "isin", "isinf", "isnan", "isreal", "kron", "ldexp", "left_shift", "less", "less_equal", "lib",
    "linalg", "linspace", "load", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logspace", "map_blocks", "map_chunk", "map_overlap", "matmul",
    "matrix_transpose", "max", "maximum", "mean", "median", "meshgrid", "mgrid", "min", "minimum", "mod", "modf",
    "moveaxis", "multiply", "named_tensor", "nan", "nan_to_num", "nanargmax", "nanargmin", "nancumprod", "nancumsum",
    "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar",
    "ndim", "ndindex", "negative", "new_session", "newaxis", "nextafter", "nonzero", "not_equal", "number", "ogrid",
    "ones", "ones_like", "option_context", "options", "outer", "pad", "partition", "percentile", "permute_dims", "pi",
    "positive", "pow", "power", "prod", "product", "ptp", "quantile", "r_", "rad2deg", "radians", "random", "ravel",
    "real", "rechunk", "reciprocal", "remainder", "repeat", "reshape", "result_type", "right_shift", "rint", "roll",
    "rollaxis", "rot90", "round", "round_", "save", "scalar", "searchsorted", "setdiff1d", "seterr", "shape", "sign",
    "signbit", "signedinteger", "sin", "sinc", "sinh", "sort", "spacing", "spatial", "special", "split", "sqrt",
    "square", "squeeze", "stack", "stats", "std", "stop_server", "store", "subtract", "sum", "swapaxes", "take",
    "take_along_axis", "tan", "tanh", "tensor", "tensordot", "tile", "timedelta64", "to_hdf5", "to_zarr", "tohdf5",
    "topk", "tozarr", "trace", "transpose", "trapezoid", "trapz", "tree_add", "tree_multiply", "tril", "triu",
    "true_divide", "trunc", "uint", "uint16", "uint32", "uint64", "uint8", "unicode_", "union1d", "unique",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "unravel_index", "unsignedinteger", "unstack",
    "var", "vdot", "vecdot", "vectorize", "void", "vsplit", "vstack", "where", "zeros", "zeros_like",
]
