"""Arguments under the names that NumPy and Mars give them, and those that say how Mars is to compute.

Our functions have the array standard's names of parameters. Here they learn the others: what means the same is taken,
what tunes Mars is left out, and what asks for something that is not here is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

_NAMES: Mapping[tuple[str, ...], str] = {
    ("data",): "tensor scalar",
    ("x",): "array asarray",
    ("a",): (
        "all amax amin any argmax argmin argpartition argsort argtopk argwhere around ascontiguousarray "
        "asfortranarray average copy count_nonzero cumprod cumsum diff ediff1d empty_like expand_dims flatnonzero "
        "full_like histogram histogram_bin_edges max mean median min moveaxis nanargmax nanargmin nancumprod "
        "nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar ndim "
        "nonzero ones_like partition percentile prod product ptp quantile ravel repeat roll shape sort squeeze std "
        "sum swapaxes take topk transpose var zeros_like cholesky inv lu qr svd fft ifft fft2 ifft2 fftn ifftn rfft "
        "irfft rfft2 irfft2 rfftn irfftn hfft ihfft"
    ),
    ("m",): "cov flip fliplr flipud tril triu",
    ("N",): "eye",
    ("M",): "randomized_svd",
    ("ar",): "unique",
    ("arr",): "append delete insert",
    ("val",): "imag real",
    ("tup",): "column_stack dstack hstack vstack",
    ("tensor",): "broadcast_to rechunk rollaxis",
    ("tensors",): "concatenate stack",
    ("hdf5_file",): "from_hdf5 fromhdf5 to_hdf5 tohdf5",
    ("condition", "x", "y"): "where",
    ("condition", "a"): "compress extract",
    ("ary", "indices_or_sections"): "array_split dsplit hsplit split vsplit",
    ("A", "reps"): "tile",
    ("element", "test_elements"): "isin",
    ("a", "v"): "searchsorted",
    ("a", "b"): "matmul solve tensordot",
    ("a1", "a2"): "array_equal",
    ("ar1", "ar2"): "in1d setdiff1d union1d",
    ("a", "a_min", "a_max"): "clip",
    ("a", "newshape"): "reshape",
    ("indices", "dims"): "unravel_index",
}
"""What NumPy or Mars call the first parameters of which functions."""
_TUNING: Mapping[str, str] = {
    "combine_size": (
        "all amax amin any argmax argmin count_nonzero max mean min nanargmax nanargmin nanmax nanmean nanmin nanprod "
        "nanstd nansum nanvar prod product std sum var searchsorted tree_add tree_multiply"
    ),
    "aggregate_size": "union1d unique",
    "parallel_kind": "argsort argtopk sort topk",
    "psrs_kinds": "argsort argtopk sort topk",
    "chunk_size_limit": "bincount",
    "reassign_worker": "rechunk",
    "assume_unique": "isin",
    "method": "qr",
    "sym_pos": "solve",
    "power_iteration_normalizer": "randomized_svd",
    "transpose": "randomized_svd",
    "optimize": "einsum",
}
"""What says how Mars computes, and changes no result."""
_REFUSED: Mapping[str, tuple[str, str]] = {
    "sparse": (
        "diag diagflat dot eye identity inner inv matmul scalar solve solve_triangular tensor tensordot zeros",
        "arrays are dense; leave `sparse` out",
    ),
    "gpu": (
        "arange diag diagflat empty empty_like eye fftfreq full full_like identity linspace ones ones_like rfftfreq "
        "scalar tensor tril triu zeros zeros_like",
        "arrays are not moved to a GPU one by one; leave `gpu` out",
    ),
}
"""What asks for another kind of array, and why there is none."""
_OTHERS = {name: names for names, text in _NAMES.items() for name in text.split()}
_LEFT_OUT = {(name, one) for one, text in _TUNING.items() for name in text.split()}
_NOT_HERE = {(name, one): why for one, (text, why) in _REFUSED.items() for name in text.split()}
_CONCERNED = frozenset([*_OTHERS, *[name for name, _ in _LEFT_OUT], *[name for name, _ in _NOT_HERE]])


def taking(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function of this name take what NumPy's and Mars's functions of the name take too."""
    if name not in _CONCERNED:
        return function
    own = inspect.signature(function).parameters.values()
    known = frozenset([one.name for one in own if one.kind is not one.POSITIONAL_ONLY])
    others = _OTHERS.get(name, ())

    @wraps(function)
    def taking_more(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not known.issuperset(kwargs):
            for key in kwargs.keys() - known:
                if (name, key) in _LEFT_OUT:
                    del kwargs[key]
                elif (name, key) in _NOT_HERE and kwargs.pop(key):
                    raise TypeError(f"{name}: {key}=True: {_NOT_HERE[name, key]}")
            for at, other in enumerate(others):
                if at == len(args) and other in kwargs:
                    args = (*args, kwargs.pop(other))
        return function(*args, **kwargs)

    return taking_more


def install(space: dict[str, Any], names: Sequence[str]) -> None:
    """Have the functions of a namespace take what NumPy's and Mars's functions of their names take too."""
    for name in names:
        if inspect.isfunction(space[name]):
            made = taking(name, space[name])
            if made is not space[name]:  # pickled by where it is found
                made.__module__, made.__qualname__ = space["__name__"], name
            space[name] = made
