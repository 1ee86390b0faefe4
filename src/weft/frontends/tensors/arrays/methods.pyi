# Written by `python -m weft.tensor.stubs` from the registry.
# fmt: off
from weft.frontends.tensors.arrays.bits import _byteswap as _byteswap
from weft.frontends.tensors.arrays.chunkwise import map_chunk as _map_chunk
from weft.frontends.tensors.arrays.creation import copy as _copy
from weft.frontends.tensors.arrays.cumulative import cumprod as _cumprod, cumsum as _cumsum
from weft.frontends.tensors.arrays.dask_names import compute_one as _compute_one, persist_one as _persist_one
from weft.frontends.tensors.arrays.diagonals import diagonal as _diagonal, trace as _trace
from weft.frontends.tensors.arrays.elementwise import _round_method as _round_method, clip as _clip
from weft.frontends.tensors.arrays.elementwise import _conj_method as _conj_method, round as _round
from weft.frontends.tensors.arrays.interoperation import array_function as _array_function, array_ufunc as _array_ufunc
from weft.frontends.tensors.arrays.joining import repeat as _repeat
from weft.frontends.tensors.arrays.operators import Operators as _Operators
from weft.frontends.tensors.arrays.overlapping import _map_blocks as _map_blocks, _map_overlap as _map_overlap
from weft.frontends.tensors.arrays.planning import explain as _explain, visualize as _visualize
from weft.frontends.tensors.arrays.products import dot as _dot
from weft.frontends.tensors.arrays.searching import nonzero as _nonzero, searchsorted as _searchsorted
from weft.frontends.tensors.arrays.selection import choose as _choose, _compress_method as _compress_method
from weft.frontends.tensors.arrays.selection import _fill as _fill, take as _take
from weft.frontends.tensors.arrays.shapes import flatten as _flatten, ravel as _ravel
from weft.frontends.tensors.arrays.shapes import _reshape_method as _reshape_method, squeeze as _squeeze
from weft.frontends.tensors.arrays.shapes import swapaxes as _swapaxes, _transpose_method as _transpose_method
from weft.frontends.tensors.arrays.sorting import argpartition as _argpartition, argsort as _argsort
from weft.frontends.tensors.arrays.sorting import _partition_in_place as _partition_in_place
from weft.frontends.tensors.arrays.sorting import _sort_in_place as _sort_in_place, topk as _topk
from weft.frontends.tensors.arrays.sparse import sparse_of as _sparse_of
from weft.frontends.tensors.arrays.statistics import all as _all, any as _any, argmax as _argmax, argmin as _argmin
from weft.frontends.tensors.arrays.statistics import count_nonzero as _count_nonzero, max as _max, mean as _mean
from weft.frontends.tensors.arrays.statistics import min as _min, prod as _prod, ptp as _ptp, std as _std, sum as _sum
from weft.frontends.tensors.arrays.statistics import var as _var

class Methods:
    __abs__ = _Operators.__abs__
    __add__ = _Operators.__add__
    __and__ = _Operators.__and__
    __array_function__ = _array_function
    __array_ufunc__ = _array_ufunc
    __divmod__ = _Operators.__divmod__
    __eq__ = _Operators.__eq__
    __floordiv__ = _Operators.__floordiv__
    __ge__ = _Operators.__ge__
    __gt__ = _Operators.__gt__
    __iadd__ = _Operators.__iadd__
    __iand__ = _Operators.__iand__
    __ifloordiv__ = _Operators.__ifloordiv__
    __ilshift__ = _Operators.__ilshift__
    __imatmul__ = _Operators.__imatmul__
    __imod__ = _Operators.__imod__
    __imul__ = _Operators.__imul__
    __invert__ = _Operators.__invert__
    __ior__ = _Operators.__ior__
    __ipow__ = _Operators.__ipow__
    __irshift__ = _Operators.__irshift__
    __isub__ = _Operators.__isub__
    __itruediv__ = _Operators.__itruediv__
    __ixor__ = _Operators.__ixor__
    __le__ = _Operators.__le__
    __lshift__ = _Operators.__lshift__
    __lt__ = _Operators.__lt__
    __matmul__ = _Operators.__matmul__
    __mod__ = _Operators.__mod__
    __mul__ = _Operators.__mul__
    __ne__ = _Operators.__ne__
    __neg__ = _Operators.__neg__
    __or__ = _Operators.__or__
    __pos__ = _Operators.__pos__
    __pow__ = _Operators.__pow__
    __radd__ = _Operators.__radd__
    __rand__ = _Operators.__rand__
    __rdivmod__ = _Operators.__rdivmod__
    __rfloordiv__ = _Operators.__rfloordiv__
    __rlshift__ = _Operators.__rlshift__
    __rmatmul__ = _Operators.__rmatmul__
    __rmod__ = _Operators.__rmod__
    __rmul__ = _Operators.__rmul__
    __ror__ = _Operators.__ror__
    __round__ = _round_method
    __rpow__ = _Operators.__rpow__
    __rrshift__ = _Operators.__rrshift__
    __rshift__ = _Operators.__rshift__
    __rsub__ = _Operators.__rsub__
    __rtruediv__ = _Operators.__rtruediv__
    __rxor__ = _Operators.__rxor__
    __sub__ = _Operators.__sub__
    __truediv__ = _Operators.__truediv__
    __xor__ = _Operators.__xor__
    all = _all
    any = _any
    argmax = _argmax
    argmin = _argmin
    argpartition = _argpartition
    argsort = _argsort
    byteswap = _byteswap
    choose = _choose
    clip = _clip
    compress = _compress_method
    compute = _compute_one
    conj = _conj_method
    conjugate = _conj_method
    copy = _copy
    count_nonzero = _count_nonzero
    cumprod = _cumprod
    cumsum = _cumsum
    diagonal = _diagonal
    dot = _dot
    explain = _explain
    fill = _fill
    flatten = _flatten
    map_blocks = _map_blocks
    map_chunk = _map_chunk
    map_overlap = _map_overlap
    max = _max
    mean = _mean
    min = _min
    nonzero = _nonzero
    partition = _partition_in_place
    persist = _persist_one
    prod = _prod
    ptp = _ptp
    ravel = _ravel
    repeat = _repeat
    reshape = _reshape_method
    round = _round
    searchsorted = _searchsorted
    sort = _sort_in_place
    squeeze = _squeeze
    std = _std
    sum = _sum
    swapaxes = _swapaxes
    take = _take
    topk = _topk
    tosparse = _sparse_of
    trace = _trace
    transpose = _transpose_method
    var = _var
    visualize = _visualize
