"""Options that hold for the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.frontends.tensors.arrays.registry import expose

_DEFAULTS: dict[str, Any] = {"chunk_size": None, "eager_mode": False, "numpy_fallback": "warn", "show_progress": True}
_FALLBACKS = ("allow", "forbid", "warn")


class Options:
    """What can be chosen for the whole process.

    `chunk_size`: that of new arrays, where neither the call nor the session has one. `eager_mode`: arrays are computed
    as soon as they are made. `numpy_fallback`: functions of NumPy that Weft lacks compute their arguments; "warn" of
    each once, "allow" or "forbid" them. `show_progress`: bars show how far a computation is, once it takes
    long, if standard error is a terminal. AttributeError: there is no such option; TypeError: it has no such value.
    """

    __slots__ = tuple(_DEFAULTS)

    chunk_size: int | None
    eager_mode: bool
    numpy_fallback: str
    show_progress: bool

    def __init__(self) -> None:
        for name, value in _DEFAULTS.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _DEFAULTS:
            raise AttributeError(f"there is no option {name!r}; there are {', '.join(_DEFAULTS)}")
        if name == "chunk_size":
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise TypeError(f"the option chunk_size is {value!r}: give a number of elements, or None")
        elif name == "numpy_fallback":
            if value not in _FALLBACKS:
                raise TypeError(f"the option numpy_fallback is {value!r}: give {', '.join(map(repr, _FALLBACKS))}")
        elif not isinstance(value, bool):
            raise TypeError(f"the option {name} is {value!r}: give True or False")
        object.__setattr__(self, name, value)


options = Options()


@contextmanager
def option_context(given: dict[str, Any] | None = None) -> Iterator[Options]:
    """Set some options for the time of a `with`, and restore them afterwards."""
    before = {name: getattr(options, name) for name in _DEFAULTS}
    try:
        for name, value in (given or {}).items():
            setattr(options, name, value)
        yield options
    finally:
        for name, value in before.items():
            setattr(options, name, value)


expose(__name__, "option_context options")
expose(__name__, "option_context options", space="config")
