"""Functions and methods under the names that dask has for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.frontends.tensors.arrays.executables import Executable, execute, fetch
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
    """Return the values of arrays as a tuple, computed in one run; other arguments are returned unchanged."""
    _no_options("compute", options)
    wanted = [one for one in args if isinstance(one, Executable)]
    values = iter(fetch(wanted, session=session) if len(wanted) > 1 else [one.fetch(session) for one in wanted])
    return tuple([next(values) if isinstance(one, Executable) else one for one in args])


@named("persist")
def persist_all(*args: Any, session: Any = None, **options: Any) -> tuple[Any, ...]:
    """Compute arrays in one run, leave their chunks in the session, and return the arrays as a tuple."""
    _no_options("persist", options)
    if wanted := [one for one in args if isinstance(one, Executable)]:
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
