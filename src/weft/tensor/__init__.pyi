# Written by `python -m weft.tensor.stubs` from the registry.
# fmt: off
from numpy import False_, ScalarType, True_, base_repr, binary_repr, bool, bool_, busdaycalendar, byte, bytes_, cdouble
from numpy import complex128 as cfloat, character, clongdouble, complex128, complex64, complexfloating, csingle
from numpy import datetime64, datetime_data, double, dtype, errstate, euler_gamma, flexible, float64 as _float64
from numpy import float16, float32, float64, floating, format_float_positional, format_float_scientific, frompyfunc
from numpy import generic, get_printoptions, getbufsize, geterr, geterrcall, half, index_exp, inexact, int_ as _int
from numpy import int16, int32, int64, int8, int_, intc, integer, intp, isscalar, issubdtype, iterable, little_endian
from numpy import long, longdouble, longlong, mintypecode, ndenumerate, number, object_ as _object, object_
from numpy import printoptions, promote_types, s_, sctypeDict, set_printoptions, setbufsize, seterr, seterrcall, short
from numpy import signedinteger, single, str_, timedelta64, typecodes, typename, ubyte, uint, uint16, uint32, uint64
from numpy import uint8, uintc, uintp, ulong, ulonglong, str_ as unicode_, unsignedinteger, ushort, void
from numpy.exceptions import AxisError
from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.bits import packbits, unpackbits
from weft.frontends.tensors.arrays.blockwise import apply_gufunc, blockwise, map_blocks, vectorize
from weft.frontends.tensors.arrays.calendar import busday_count, busday_offset, datetime_as_string, is_busday
from weft.frontends.tensors.arrays.chunkwise import map_chunk, rechunk
from weft.frontends.tensors.arrays.comparison import allclose, array_equal, isclose
from weft.frontends.tensors.arrays.conditional import apply_along_axis, apply_over_axes, piecewise, select
from weft.frontends.tensors.arrays.coordinates import CooTensor
from weft.frontends.tensors.arrays.correlation import corrcoef, cov
from weft.frontends.tensors.arrays.creation import arange, array, asarray as asanyarray, asarray, ascontiguousarray
from weft.frontends.tensors.arrays.creation import asfortranarray, copy, zeros as empty, zeros_like as empty_like, eye
from weft.frontends.tensors.arrays.creation import from_array, from_delayed, from_dlpack, full, full_like, geomspace
from weft.frontends.tensors.arrays.creation import identity, indices, linspace, logspace, meshgrid, ones, ones_like
from weft.frontends.tensors.arrays.creation import asarray as scalar, asarray as tensor, tri, tril, triu, zeros
from weft.frontends.tensors.arrays.creation import zeros_like
from weft.frontends.tensors.arrays.cumulative import cumprod, cumsum, cumulative_prod, cumulative_sum, diff, ediff1d
from weft.frontends.tensors.arrays.dask_names import compute_all as compute, persist_all as persist
from weft.frontends.tensors.arrays.diagonals import diag, diagflat, diagonal, fill_diagonal, trace
from weft.frontends.tensors.arrays.dtypes import inf as Inf, nan as NAN, NINF, nan as NaN, astype, can_cast, e, finfo
from weft.frontends.tensors.arrays.dtypes import iinfo, inf, isdtype, nan, newaxis, pi, result_type
from weft.frontends.tensors.arrays.einsum import einsum
from weft.frontends.tensors.arrays.elementwise import abs, abs as absolute, acos, acosh, add, angle, acos as arccos
from weft.frontends.tensors.arrays.elementwise import acosh as arccosh, asin as arcsin, asinh as arcsinh, atan as arctan
from weft.frontends.tensors.arrays.elementwise import atan2 as arctan2, atanh as arctanh, round as around, asin, asinh
from weft.frontends.tensors.arrays.elementwise import atan, atan2, atanh, bitwise_and, bitwise_count, bitwise_invert
from weft.frontends.tensors.arrays.elementwise import bitwise_left_shift, bitwise_invert as bitwise_not, bitwise_or
from weft.frontends.tensors.arrays.elementwise import bitwise_right_shift, bitwise_xor, cbrt, ceil, clip, conj
from weft.frontends.tensors.arrays.elementwise import conj as conjugate, copysign, cos, cosh, deg2rad, degrees, divide
from weft.frontends.tensors.arrays.elementwise import divmod, equal, exp, exp2, expm1, fabs, fix, float_power, floor
from weft.frontends.tensors.arrays.elementwise import floor_divide, fmax, fmin, fmod, frexp, gcd, greater, greater_equal
from weft.frontends.tensors.arrays.elementwise import heaviside, hypot, i0, imag, bitwise_invert as invert, iscomplex
from weft.frontends.tensors.arrays.elementwise import isfinite, isinf, isnan, isnat, isreal, lcm, ldexp
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
from weft.frontends.tensors.arrays.histograms import bincount, digitize, histogram, histogram2d, histogram_bin_edges
from weft.frontends.tensors.arrays.histograms import histogramdd
from weft.frontends.tensors.arrays.index_tricks import c_, diag_indices, diag_indices_from, ix_, lexsort, mask_indices
from weft.frontends.tensors.arrays.index_tricks import mgrid, ndindex, ogrid, r_, ravel_multi_index, tril_indices
from weft.frontends.tensors.arrays.index_tricks import tril_indices_from, triu_indices, triu_indices_from
from weft.frontends.tensors.arrays.inquiries import array2string, array_equiv, array_repr, array_str, asarray_chkfinite
from weft.frontends.tensors.arrays.inquiries import common_type, einsum_path, iscomplexobj, isfortran, isneginf
from weft.frontends.tensors.arrays.inquiries import isposinf, isrealobj, matvec, shares_memory as may_share_memory
from weft.frontends.tensors.arrays.inquiries import min_scalar_type, real_if_close, require, shares_memory, size
from weft.frontends.tensors.arrays.inquiries import sort_complex, vecmat
from weft.frontends.tensors.arrays.insertion import delete, insert
from weft.frontends.tensors.arrays.integration import trapezoid, trapezoid as trapz
from weft.frontends.tensors.arrays.interoperation import NumpyFallbackWarning
from weft.frontends.tensors.arrays.joining import append, array_split, block, column_stack, concat, concatenate, dsplit
from weft.frontends.tensors.arrays.joining import dstack, hsplit, hstack, repeat, roll, vstack as row_stack, split
from weft.frontends.tensors.arrays.joining import stack, tile, unstack, vsplit, vstack
from weft.frontends.tensors.arrays.nan_statistics import nanargmax, nanargmin, nancumprod, nancumsum, nanmax, nanmean
from weft.frontends.tensors.arrays.nan_statistics import nanmin, nanprod, nanstd, nansum, nanvar
from weft.frontends.tensors.arrays.options import option_context, options
from weft.frontends.tensors.arrays.overlapping import map_overlap
from weft.frontends.tensors.arrays.padding import pad
from weft.frontends.tensors.arrays.placing import place, put, put_along_axis, putmask
from weft.frontends.tensors.arrays.planning import ComputationPlan, explain, visualize
from weft.frontends.tensors.arrays.polynomials import poly, polyadd, polyder, polydiv, polyfit, polyint, polymul
from weft.frontends.tensors.arrays.polynomials import polysub, polyval, roots, vander
from weft.frontends.tensors.arrays.products import cross_along as cross, dot, inner, inner as innerproduct, kron, matmul
from weft.frontends.tensors.arrays.products import matrix_transpose, outer, tensordot, vdot, vecdot
from weft.frontends.tensors.arrays.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
from weft.frontends.tensors.arrays.reading import frombuffer, fromfile, fromfunction, fromiter, fromregex, fromstring
from weft.frontends.tensors.arrays.reading import genfromtxt, loadtxt, savetxt, savez, savez_compressed
from weft.frontends.tensors.arrays.repeating import resize, trim_zeros
from weft.frontends.tensors.arrays.searching import argwhere, flatnonzero, nonzero, searchsorted, where
from weft.frontends.tensors.arrays.selection import choose, compress, copyto, extract, take, take_along_axis
from weft.frontends.tensors.arrays.selection import unravel_index
from weft.frontends.tensors.arrays.sets import in1d, intersect1d, isin, setdiff1d, setxor1d, union1d, unique, unique_all
from weft.frontends.tensors.arrays.sets import unique_counts, unique_inverse, unique_values
from weft.frontends.tensors.arrays.shapes import atleast_1d, atleast_2d, atleast_3d, broadcast_arrays, broadcast_shapes
from weft.frontends.tensors.arrays.shapes import broadcast_to, expand_dims, flatten, flip, fliplr, flipud, moveaxis
from weft.frontends.tensors.arrays.shapes import ndim, permute_dims, ravel, reshape, rollaxis, rot90, shape, squeeze
from weft.frontends.tensors.arrays.shapes import swapaxes, transpose
from weft.frontends.tensors.arrays.signals import bartlett, blackman, convolve, correlate, hamming, hanning, interp
from weft.frontends.tensors.arrays.signals import kaiser, unwrap
from weft.frontends.tensors.arrays.sorting import argpartition, argsort, argtopk, partition, sort, topk
from weft.frontends.tensors.arrays.sparse import SparseTensor
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
    "AxisError", "Computation", "ComputationPlan", "CooTensor", "ExecutableTuple", "False_", "Inf", "NAN", "NINF",
    "NaN", "NumpyFallbackWarning", "ScalarType", "Session", "SparseTensor", "Tensor", "True_", "__array_api_version__",
    "__array_namespace_info__", "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "angle",
    "any", "append", "apply_along_axis", "apply_gufunc", "apply_over_axes", "arange", "arccos", "arccosh", "arcsin",
    "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort", "argtopk", "argwhere",
    "around", "array", "array2string", "array_equal", "array_equiv", "array_repr", "array_split", "array_str",
    "asanyarray", "asarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray", "asin", "asinh", "astype",
    "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett", "base_repr",
    "binary_repr", "bincount", "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman", "block", "blockwise", "bool", "bool_",
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "busday_count", "busday_offset", "busdaycalendar", "byte",
    "bytes_", "c_", "can_cast", "cbrt", "cdouble", "ceil", "cfloat", "character", "choose", "clip", "clongdouble",
    "column_stack", "common_type", "complex128", "complex64", "complexfloating", "compress", "compute", "concat",
    "concatenate", "conj", "conjugate", "convolve", "copy", "copysign", "copyto", "corrcoef", "correlate", "cos",
    "cosh", "count_nonzero", "cov", "cross", "csingle", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
    "datetime64", "datetime_as_string", "datetime_data", "deg2rad", "degrees", "delete", "diag", "diag_indices",
    "diag_indices_from", "diagflat", "diagonal", "diff", "digitize", "divide", "divmod", "dot", "double", "dsplit",
    "dstack", "dtype", "e", "ediff1d", "einsum", "einsum_path", "empty", "empty_like", "equal", "errstate",
    "euler_gamma", "execute", "exp", "exp2", "expand_dims", "explain", "expm1", "extract", "eye", "fabs", "fetch",
    "fft", "fill_diagonal", "finfo", "fix", "flatnonzero", "flatten", "flexible", "flip", "fliplr", "flipud", "float16",
    "float32", "float64", "float_power", "floating", "floor", "floor_divide", "fmax", "fmin", "fmod",
    "format_float_positional", "format_float_scientific", "frexp", "from_array", "from_delayed", "from_dlpack",
    "from_hdf5", "from_zarr", "frombuffer", "fromfile", "fromfunction", "fromhdf5", "fromiter", "frompyfunc",
    "fromregex", "fromstring", "fromzarr", "full", "full_like", "gcd", "generic", "genfromtxt", "geomspace",
    "get_default_session", "get_printoptions", "getbufsize", "geterr", "geterrcall", "gradient", "greater",
    "greater_equal", "half", "hamming", "hanning", "heaviside", "histogram", "histogram2d", "histogram_bin_edges",
    "histogramdd", "hsplit", "hstack", "hypot", "i0", "identity", "iinfo", "imag", "in1d", "index_exp", "indices",
    "inexact", "inf", "inner", "innerproduct", "insert", "int16", "int32", "int64", "int8", "int_", "intc", "integer",
    "interp", "intersect1d", "intp", "invert", "is_busday", "isclose", "iscomplex", "iscomplexobj", "isdtype",
    "isfinite", "isfortran", "isin", "isinf", "isnan", "isnat", "isneginf", "isposinf", "isreal", "isrealobj",
    "isscalar", "issubdtype", "iterable", "ix_", "kaiser", "kron", "lcm", "ldexp", "left_shift", "less", "less_equal",
    "lexsort", "lib", "linalg", "linspace", "little_endian", "load", "loadtxt", "log", "log10", "log1p", "log2",
    "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logspace", "long",
    "longdouble", "longlong", "map_blocks", "map_chunk", "map_overlap", "mask_indices", "matmul", "matrix_transpose",
    "matvec", "max", "maximum", "may_share_memory", "mean", "median", "meshgrid", "mgrid", "min", "min_scalar_type",
    "minimum", "mintypecode", "mod", "modf", "moveaxis", "multiply", "named_tensor", "nan", "nan_to_num", "nanargmax",
    "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod",
    "nanquantile", "nanstd", "nansum", "nanvar", "ndenumerate", "ndim", "ndindex", "negative", "new_session", "newaxis",
    "nextafter", "nonzero", "not_equal", "number", "object_", "ogrid", "ones", "ones_like", "option_context", "options",
    "outer", "packbits", "pad", "partition", "percentile", "permute_dims", "persist", "pi", "piecewise", "place",
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval", "positive", "pow",
    "power", "printoptions", "prod", "product", "promote_types", "ptp", "put", "put_along_axis", "putmask", "quantile",
    "r_", "rad2deg", "radians", "random", "ravel", "ravel_multi_index", "real", "real_if_close", "rechunk",
    "reciprocal", "remainder", "repeat", "require", "reshape", "resize", "result_type", "right_shift", "rint", "roll",
    "rollaxis", "roots", "rot90", "round", "round_", "row_stack", "s_", "save", "savetxt", "savez", "savez_compressed",
    "scalar", "sctypeDict", "searchsorted", "select", "set_printoptions", "setbufsize", "setdiff1d", "seterr",
    "seterrcall", "setxor1d", "shape", "shares_memory", "short", "sign", "signbit", "signedinteger", "sin", "sinc",
    "single", "sinh", "size", "sort", "sort_complex", "spacing", "spatial", "special", "split", "sqrt", "square",
    "squeeze", "stack", "stats", "std", "stop_server", "store", "str_", "subtract", "sum", "swapaxes", "take",
    "take_along_axis", "tan", "tanh", "tensor", "tensordot", "tile", "timedelta64", "to_hdf5", "to_zarr", "tohdf5",
    "topk", "tozarr", "trace", "transpose", "trapezoid", "trapz", "tree_add", "tree_multiply", "tri", "tril",
    "tril_indices", "tril_indices_from", "trim_zeros", "triu", "triu_indices", "triu_indices_from", "true_divide",
    "trunc", "typecodes", "typename", "ubyte", "uint", "uint16", "uint32", "uint64", "uint8", "uintc", "uintp", "ulong",
    "ulonglong", "unicode_", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    "unpackbits", "unravel_index", "unsignedinteger", "unstack", "unwrap", "ushort", "vander", "var", "vdot", "vecdot",
    "vecmat", "vectorize", "visualize", "void", "vsplit", "vstack", "where", "zeros", "zeros_like",
]
