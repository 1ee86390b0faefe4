"""The registry of public names: each definition states its names and arguments.

Each row has the namespace of a name and the place of its definition. `weft.tensor` and its submodules, the methods of
`Tensor`, and the functions for NumPy's protocols are made of the rows. Stub files (`stubs.py`) contain them, so that a
name is known, to users, editors and at run time, before its module is loaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

import numpy as np

Given = ParamSpec("Given")
Returned = TypeVar("Returned")
Defined = TypeVar("Defined")

MAIN = ""
"""The namespace `weft.tensor` itself; others are submodules of it."""
METHODS = "Tensor"
"""The namespace of the methods of arrays."""
_REFUSALS = {
    "sparse": "the result is dense; leave `sparse` out, or call x.tosparse()",
    "gpu": "arrays are not moved to a GPU one by one; leave `gpu` out",
}
"""Keywords of Mars that ask for another kind of array, with the reason of the refusal."""


class PublicName(NamedTuple):
    """A public name: `name` in the namespace `space` is the attribute `path` of `module`."""

    space: str
    name: str
    module: str
    path: str
    listed: bool = True
    """Whether it is in `__all__`."""


rows: list[PublicName] = []
"""All rows of the modules that are loaded."""


def expose(module: str, names: str, *, space: str = MAIN, listed: bool = True) -> None:
    """Make attributes of a module public: each by its own name, or, written `attribute=name`, by another one."""
    for one in names.split():
        path, _, name = one.partition("=")
        rows.append(PublicName(space, name or path.rpartition(".")[2], module, path, listed))


def named(names: str, *, space: str = MAIN) -> Callable[[Defined], Defined]:
    """Make a class or function public by other names than its own: a decorator."""

    def mark(defined: Any) -> Any:
        expose(defined.__module__, " ".join(f"{defined.__qualname__}={name}" for name in names.split()), space=space)
        return defined

    return mark


@overload
def public(
    *first: str,
    also: str = "",
    space: str = MAIN,
    ignored: str = "",
    refused: str = "",
    method: bool | str = False,
) -> Callable[[Callable[Given, Returned]], Callable[Given, Returned]]: ...
@overload
def public(
    *first: str,
    also: str = "",
    space: str = MAIN,
    ignored: str = "",
    refused: str = "",
    method: bool | str = False,
    out: int,
    summed: bool = False,
) -> Callable[[Callable[..., Returned]], Callable[..., Returned]]: ...
def public(
    *first: str,
    also: str = "",
    space: str = MAIN,
    ignored: str = "",
    refused: str = "",
    method: bool | str = False,
    out: int | None = None,
    summed: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function public by its own name: a decorator.

    `first` are NumPy's and Mars's names of the first parameters, which have those of the array standard in Weft;
    several for one parameter are separated by spaces. `also` are other public names, as `name` or `space.name`.
    A parameter `chunk_size` may be given as `chunks`, too, dask's name.
    `ignored` are keywords of Mars that change no result, `refused` those for missing features. `method` makes it a
    method of arrays, under its own name or under the given ones. With `out` it takes the array for the result, by this
    name or as the argument of this number; if it is `summed`, the result is computed in the type of that array.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        module, name = function.__module__, function.__name__
        expose(module, name, space=space)
        for other in also.split():
            where, _, alias = other.rpartition(".")
            expose(module, f"{name}={alias}", space=where or space)
        if method:
            expose(module, name if method is True else f"{name}={method}".replace(" ", f" {name}="), space=METHODS)
        return _adapted(function, name, first, ignored, refused, out, summed)

    return mark


def method(name: str, *first: str, ignored: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a method of arrays that no namespace has: a decorator, with arguments as of `public`."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        expose(function.__module__, f"{function.__name__}={name}", space=METHODS)
        return _adapted(function, name, first, ignored, "", None)

    return mark


@cache
def _keywords(function: Callable[..., Any]) -> frozenset[str]:
    parameters = inspect.signature(function).parameters.values()
    return frozenset([one.name for one in parameters if one.kind is not one.POSITIONAL_ONLY])


def _rename_chunks(name: str, kwargs: dict[str, Any]) -> None:
    if "chunk_size" in kwargs:
        raise TypeError(f"{name} takes chunk_size=, or chunks= as dask calls it, not both")
    kwargs["chunk_size"] = kwargs.pop("chunks")


def with_chunks(kind: type[Any]) -> type[Any]:
    """Let the methods of a class with a parameter `chunk_size` take `chunks`, too: a decorator."""

    def renaming(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def renamed(*args: Any, **kwargs: Any) -> Any:
            if "chunks" in kwargs:
                _rename_chunks(function.__name__, kwargs)
            return function(*args, **kwargs)

        return renamed

    for name, one in list(vars(kind).items()):
        if inspect.isfunction(one) and not name.startswith("_") and "chunk_size" in _keywords(inspect.unwrap(one)):
            setattr(kind, name, renaming(one))
    return kind


def _adapted(
    function: Callable[..., Any],
    name: str,
    first: tuple[str, ...],
    ignored: str,
    refused: str,
    out: int | None,
    summed: bool = False,
) -> Callable[..., Any]:
    """Let a function also take the arguments of NumPy's and Mars's functions of its name."""
    chunked = "chunk_size" in _keywords(function)
    if not (first or ignored or refused or chunked or out is not None):
        return function
    aliases = tuple([tuple(names.split()) for names in first])
    ignored_keywords, refused_keywords = frozenset(ignored.split()), frozenset(refused.split())

    def renamed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        for key in kwargs.keys() - _keywords(function):
            if key in ignored_keywords:
                del kwargs[key]
            elif key in refused_keywords and kwargs.pop(key):
                raise TypeError(f"{name}: {key}=True: {_REFUSALS[key]}")
        for at, names in enumerate(aliases):
            if at == len(args):
                args += tuple([kwargs.pop(name) for name in names if name in kwargs][:1])
        return args

    @wraps(function)
    def adapted(*args: Any, **kwargs: Any) -> Any:
        into = None
        if kwargs:
            if out is not None:
                into = kwargs.pop("out", None)
            if chunked and "chunks" in kwargs:
                _rename_chunks(name, kwargs)
            if not _keywords(function).issuperset(kwargs):
                args = renamed(args, kwargs)
        if out is not None and len(args) > out:
            into, args = args[out], (*args[:out], *args[out + 1 :])
        if summed and into is not None and kwargs.get("dtype") is None and len(args) < 3:
            given = getattr(args[0], "dtype", None) or np.asarray(args[0]).dtype
            if np.can_cast(given, into.dtype, "same_kind"):
                kwargs["dtype"] = into.dtype
        made = function(*args, **kwargs)
        return made if into is None else made._put_into(into)

    return adapted


def table(space: str) -> Mapping[str, PublicName]:
    """Return the rows of a namespace by name, of the loaded modules. ValueError: two rows have one name."""
    found: dict[str, PublicName] = {}
    for row in rows:
        if row.space == space and found.setdefault(row.name, row) != row:
            raise ValueError(f"{row.name} is public twice: in {found[row.name].module} and in {row.module}")
    return found
