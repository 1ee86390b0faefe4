"""Functions and methods under the names that dask has for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.frontends.tensors.arrays.executables import Executable, execute, fetch, replaced
from weft.frontends.tensors.arrays.registry import method, named

if TYPE_CHECKING:
    from weft.frontends.tensors.arrays.array import Tensor


def _no_options(name: str, options: dict[str, Any]) -> None:
    if options:
        raise TypeError(
            f"{name} takes no {', '.join(options)}: the session decides how: "
            "with weft.tensor.Session(backend='processes', workers=4)"
        )


@named("compute")
def compute_all(*args: Any, session: Any = None, **options: Any) -> tuple[Any, ...]:
    """Return the values of arrays as a tuple, computed in one run; other arguments are returned unchanged.

    Arrays in lists, tuples and dicts are computed too.
    """
    _no_options("compute", options)
    wanted: list[Executable] = []
    replaced(args, wanted.append)
    if not wanted:
        return args
    values = iter(fetch([wanted], session=session))
    made: tuple[Any, ...] = replaced(args, lambda _: next(values))
    return made


@named("persist")
def persist_all(*args: Any, session: Any = None, **options: Any) -> tuple[Any, ...]:
    """Compute arrays in one run, leave their chunks in the session, and return the arguments as a tuple.

    Arrays in lists, tuples and dicts are computed too.
    """
    _no_options("persist", options)
    wanted: list[Executable] = []
    replaced(args, wanted.append)
    if wanted:
        execute(wanted, session=session)
    return args


@method("compute")
def compute_one(self: Tensor, session: Any = None, **options: Any) -> Any:
    """Return the values as a NumPy array: `fetch`, as dask calls it."""
    return compute_all(self, session=session, **options)[0]


@method("persist")
def persist_one(self: Tensor, session: Any = None, **options: Any) -> Tensor:
    """Compute the array, leave its chunks in the session, and return it: `execute`, as dask calls it."""
    persist_all(self, session=session, **options)
    return self
