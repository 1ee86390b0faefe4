"""NumPy's functions on Weft arrays: `numpy.sum(x)` is lazy; functions that Weft lacks compute, and call NumPy.

Both protocols of NumPy end here: `__array_ufunc__` and `__array_function__`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import reductions
from weft.frontends.tensors.arrays import (
    creation,
    cumulative,
    elementwise,
    placing,
    products,
    searching,
    selection,
    shapes,
    statistics,
)
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor, put_into
from weft.frontends.tensors.arrays.executables import fetch, replaced
from weft.frontends.tensors.arrays.options import options
from weft.frontends.tensors.arrays.registry import expose, method
from weft.frontends.tensors.arrays.ufuncs import called

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk

_REDUCED: Mapping[np.ufunc, Callable[..., Tensor]] = {
    np.add: statistics.sum,
    np.multiply: statistics.prod,
    np.maximum: statistics.max,
    np.minimum: statistics.min,
    np.logical_and: statistics.all,
    np.logical_or: statistics.any,
}
_ASSOCIATIVE = frozenset(
    {
        np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.fmax, np.fmin, np.gcd, np.hypot, np.lcm, np.logaddexp,
        np.logaddexp2, np.logical_xor,
    }
)  # fmt: skip
"""Ufuncs whose reductions have no function in Weft, and that can be reduced chunk by chunk."""
_PARTWISE: Mapping[str, frozenset[np.ufunc]] = {
    "reduce": _ASSOCIATIVE,
    "accumulate": _ASSOCIATIVE | {np.logical_and, np.logical_or, np.maximum, np.minimum},
}
"""The ufuncs of each method that is called chunk by chunk."""


def _running_sum(x: Tensor, **how: Any) -> Tensor:
    return cumulative.cumsum(x, **how)


def _running_product(x: Tensor, **how: Any) -> Tensor:
    return cumulative.cumprod(x, **how)


_ACCUMULATED: Mapping[np.ufunc, Callable[..., Tensor]] = {np.add: _running_sum, np.multiply: _running_product}
_WITH_CORES: Mapping[np.ufunc, Callable[..., Tensor]] = {np.matmul: products.matmul, np.vecdot: products.vecdot}
_IN_PLACE = frozenset({"put", "place", "putmask", "put_along_axis"})
"""Functions of NumPy that change their first argument."""
_IGNORED = frozenset({"kind", "subok", "casting"})
"""Arguments of NumPy's functions that do not change the result."""
_KNOWN = (Tensor, np.ndarray, np.generic, bool, int, float, complex, str, bytes, list, tuple, type(None))


# ---------------------------------------------------------------------------------------------------------- ufuncs


@method("__array_ufunc__")
def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **given: Any) -> Any:
    """Call a ufunc, or a method of one, for NumPy; see `__array_ufunc__` in NumPy's manual."""
    out = given.pop("out", None) or ()
    if not all(isinstance(one, _KNOWN) for one in (*inputs, *out)):
        return NotImplemented
    if method == "at":
        _falls_back(f"{ufunc.__name__}.at")
        _changed(ufunc.at, inputs, given)
        return None
    made = _lazily(ufunc, method, inputs, given)
    if made is None:
        _falls_back(f"{ufunc.__name__}.{method}" if method != "__call__" else ufunc.__name__)
        values = _values((inputs, given))
        made = getattr(ufunc, method)(*values[0], **values[1])
    if not out:
        return made
    several = made if isinstance(made, tuple) else (made,)
    where = given.get("where", True)
    filled = tuple(
        [
            one
            if into is None
            else put_into(into, one, where, given.get("casting", "same_kind"), exact=method != "__call__")
            for one, into in zip(several, out, strict=True)
        ]
    )
    return filled if isinstance(made, tuple) else filled[0]


def _lazily(ufunc: np.ufunc, method: str, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """Return Weft arrays; None if Weft has no such function."""
    rest = {key: value for key, value in given.items() if key not in _IGNORED and not _usual(key, value)}
    if method == "__call__":
        where, dtype = rest.pop("where", True), rest.pop("dtype", None)
        if rest or (inputs and ufunc.signature is not None and ufunc not in _WITH_CORES):
            return None
        if ufunc in _WITH_CORES:
            return _WITH_CORES[ufunc](*inputs if dtype is None else [as_tensor(one).astype(dtype) for one in inputs])
        how = {"dtype": dtype, "casting": given.get("casting", "same_kind")}
        results = tuple([called(ufunc, inputs, None, where, at=at, **how) for at in range(ufunc.nout)])
        return results[0] if len(results) == 1 else results
    if method == "outer" and not rest and ufunc.signature is None:
        left, right = as_tensor(inputs[0]), as_tensor(inputs[1])
        return apply(ufunc, shapes.reshape(left, (*left.shape, *(1,) * right.ndim)), right)
    if ufunc in _PARTWISE.get(method, ()) and set(rest) <= {"axis", "keepdims"}:
        return _in_parts(ufunc, method, as_tensor(inputs[0]), **rest)
    found = {"reduce": _REDUCED, "accumulate": _ACCUMULATED}.get(method, {}).get(ufunc)
    if found is None or not set(rest) <= {"axis", "dtype", "keepdims"}:
        return None
    dtype = rest.pop("dtype", None)
    made = found(as_tensor(inputs[0]), axis=rest.pop("axis", 0), **rest)
    if dtype is not None:
        made = found(as_tensor(inputs[0]).astype(dtype), axis=given.get("axis", 0), **rest).astype(dtype)
    return made


def _in_parts(ufunc: np.ufunc, method: str, x: Tensor, axis: Any = 0, keepdims: bool = False) -> Tensor:
    kind = ufunc(np.ones(1, x.dtype), np.ones(1, x.dtype)).dtype
    if method == "accumulate":
        return Tensor(reductions.scan(ufunc, x.node, reductions.axis_of(axis, x.ndim), kind))
    return Tensor(reductions.reduce(ufunc, x.node, axis, keepdims=keepdims, dtype=kind, name=ufunc.__name__))


def _changed(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call a function that changes its first argument: a Weft array is computed, and gets the changed values."""
    target, *rest = args
    others, words = _values((tuple(rest), dict(kwargs)))
    if not isinstance(target, Tensor):
        func(target, *others, **words)
        return
    values = target.fetch().copy()
    func(values, *others, **words)
    target._set(creation.asarray(values).rechunk(target.chunks)._node)


def _usual(key: str, value: Any) -> bool:
    """Return whether an argument has its default meaning."""
    return (value is None and key != "axis") or value is np._NoValue or (key == "where" and value is True)


# ------------------------------------------------------------------------------------------------------- functions


@method("__array_function__")
def array_function(self: Tensor, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of NumPy; see `__array_function__` in NumPy's manual."""
    if not all(issubclass(one, _KNOWN) for one in types):
        return NotImplemented
    if func.__name__ in _IN_PLACE:
        if args and isinstance(args[0], Tensor):
            getattr(placing, func.__name__)(*args, **kwargs)
        else:
            _changed(func, args, kwargs)
        return None
    special = _OF_THE_TYPE.get(func)
    if special is not None:
        return special(*args, **kwargs)
    found = _ours(func)
    call = None if found is None else _arguments(func, found, args, kwargs)
    if call is not None:
        with suppress(NotImplementedError):
            return call()
    if func not in _TEXTS:
        _falls_back(f"{func.__module__}.{func.__name__}".removeprefix("numpy."))
    values = _values((tuple(args), dict(kwargs)))
    return func(*values[0], **values[1])


_TEXTS = frozenset({np.array2string, np.array_repr, np.array_str})
"""Functions that are called for the values of an array."""


class NumpyFallbackWarning(UserWarning):
    """A function of NumPy that Weft lacks computes its arguments, in the memory of this process."""


_told: set[str] = set()
"""The functions that the user was warned of."""


def _falls_back(name: str) -> None:
    """Warn once of a function that computes its arguments. TypeError: the options forbid such functions."""
    if options.numpy_fallback == "forbid":
        raise TypeError(
            f"numpy.{name} with these arguments is not in weft.tensor: it would compute whole arrays. Compute them "
            "first (x.fetch()), or set options.numpy_fallback"
        )
    if options.numpy_fallback == "warn" and name not in _told:
        told = f"numpy.{name} with these arguments is not in weft.tensor: it computes whole arrays here"
        warnings.warn(told, NumpyFallbackWarning, stacklevel=3)
        _told.add(name)  # not if the warning is an error


expose(__name__, "NumpyFallbackWarning")


def _where(condition: Any, *values: Chunk) -> Chunk:
    return searching.where(condition, *values) if values else searching.nonzero(condition)


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if isinstance(dst, Tensor):
        selection.copyto(dst, src, casting, where)
    else:
        np.copyto(dst, _values(src), casting=casting, where=_values(where))


def _size(x: Any, axis: int | None = None) -> int:
    return as_tensor(x).size if axis is None else as_tensor(x).shape[axis]


def _clip(
    a: Chunk, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None
) -> Chunk:
    made = elementwise.clip(a, a_min if min is None else min, a_max if max is None else max)
    return made if out is None else put_into(out, made)


_OF_THE_TYPE: Mapping[Any, Callable[..., Any]] = {
    np.clip: _clip,
    np.copyto: _copyto,
    np.iscomplexobj: lambda x: as_tensor(x).dtype.kind == "c",
    np.isrealobj: lambda x: as_tensor(x).dtype.kind != "c",
    np.may_share_memory: lambda a, b, max_work=None: False,
    np.ndim: lambda a: as_tensor(a).ndim,
    np.round: lambda a, decimals=0, out=None: _rounded(a, decimals, out),
    np.shape: lambda a: as_tensor(a).shape,
    np.shares_memory: lambda a, b, max_work=None: False,
    np.size: _size,
    np.where: _where,
}
"""Functions that need no values of an array, or that read their arguments in a way of their own."""


def _rounded(x: Chunk, decimals: int, out: Any) -> Chunk:
    made = elementwise.round(x, decimals)
    return made if out is None else put_into(out, made, exact=True)


_SPACES = frozenset({"numpy", "numpy.fft", "numpy.lib.stride_tricks", "numpy.linalg"})
"""Modules of NumPy that have one of the same name in `weft.tensor`."""


@cache
def _ours(func: Any) -> Callable[..., Any] | None:
    """Return the Weft function for one of NumPy, by its module and name."""
    where = str(getattr(func, "__module__", ""))
    if where not in _SPACES or func.__name__.startswith("_"):
        return None
    module = import_module(where.replace("numpy", "weft.tensor", 1))
    found = getattr(module, func.__name__, None) if func.__name__ in module.__all__ else None
    return found if inspect.isroutine(found) else None


@cache
def _signature(func: Any) -> inspect.Signature:
    return inspect.signature(func)


def _arguments(
    func: Any, ours: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[], Any] | None:
    """Return the call of the Weft function for a call of NumPy's; None if no such call exists."""
    theirs: Mapping[str, inspect.Parameter] = _signature(func).parameters
    own: Mapping[str, inspect.Parameter] = _signature(ours).parameters
    try:
        bound = _signature(func).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    named = {key: one for key, one in bound.arguments.items() if one is not np._NoValue}
    positional: list[Any] = []
    first = next(iter(theirs.values()))
    if first.kind is first.VAR_POSITIONAL:
        positional.extend(named.pop(first.name, ()))
        own = {}
    spread = any(one.kind is one.VAR_POSITIONAL and named.get(name) for name, one in own.items())
    for name, one in own.items():
        if one.kind is one.VAR_POSITIONAL:
            if name not in theirs:
                return None
            positional.extend(named.pop(name, ()))
            continue
        if name in named and one.kind is not one.POSITIONAL_ONLY:
            if spread and one.kind is one.POSITIONAL_OR_KEYWORD:  # further arguments can only follow positional ones
                positional.append(named.pop(name))
            continue
        if one.default is one.empty and named and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            positional.append(named.pop(next(iter(named))))
    out = named.pop("out", None)
    words: dict[str, Any] = {}
    known: Mapping[str, inspect.Parameter] = _signature(ours).parameters
    any_word = any(one.kind is one.VAR_KEYWORD for one in known.values())
    for name, value in named.items():
        if theirs[name].kind is inspect.Parameter.VAR_KEYWORD:
            if not any_word and not value.keys() <= known.keys():
                return None
            words.update(value)
        elif name in known:
            words[name] = value
        elif name not in _IGNORED and not (value is theirs[name].default or _same(value, theirs[name].default)):
            return None
    if out is None:
        return lambda: ours(*positional, **words)
    casting = kwargs.get("casting", "same_kind")
    return lambda: put_into(out, ours(*positional, **words), casting=casting, exact=True)


def _same(value: Any, default: Any) -> bool:
    return isinstance(value, str | int | bool) and type(value) is type(default) and value == default


def _values(given: Any) -> Any:
    """Return arguments with the values of all arrays in them, computed in one run."""
    found: dict[int, Tensor] = {}
    replaced(given, lambda x: found.setdefault(id(x), x), Tensor)
    if not found:
        return given
    wanted = list(found.values())
    values = fetch(wanted) if len(wanted) > 1 else (wanted[0].fetch(),)
    by_id = dict(zip(found, values, strict=True))
    return replaced(given, lambda x: by_id[id(x)], Tensor)
