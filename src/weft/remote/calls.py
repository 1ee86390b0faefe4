"""Calls: what `spawn` returns, and what a call needs before it can run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.tensor import Tensor
from weft.tensor.running import Executable, ExecutableTuple

if TYPE_CHECKING:
    from weft.runtime.kept import Kept

RETRIES = 3
"""How often a call that fails is tried again with `retry_when_fail`."""
_numbers = itertools.count(1)
_NONE = object()


class Slot(NamedTuple):
    """Stands in the arguments of a call for the result of another one: which, and which output of it."""

    at: int
    output: int


class Call:
    """One call of a function, whose result may be several outputs. It runs once; its value is kept by the session.

    Where arguments are `resolved`, the function gets arrays as those of NumPy.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outputs: int = -1,
        retries: int = 0,
        resolved: bool = False,
    ) -> None:
        self.number = next(_numbers)
        self.function = function
        self.args = tuple(args)
        self.kwargs = dict(kwargs)
        self.outputs = outputs
        self.retries = retries
        self.resolved = resolved
        self.kept: Kept | None = None
        self._value: Any = _NONE

    @property
    def done(self) -> bool:
        """Whether it has its value."""
        return self.kept is not None or self._value is not _NONE

    @property
    def value(self) -> Any:
        """What the function has returned. ConflictError: the session that kept it is closed."""
        if self._value is _NONE and self.kept is not None:
            self._value = self.kept.copy(0)
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value

    def keep(self, kept: Kept) -> None:
        """Take the value, which a session keeps; what it was made from is needed no more."""
        self.kept = kept
        self.args, self.kwargs = (), {}

    @property
    def name(self) -> str:
        """What people know it by."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def needs(self) -> list[Any]:
        """Return the calls and arrays among the arguments, each once."""
        found: dict[int, Any] = {}
        _each((self.args, self.kwargs), lambda one: found.setdefault(id(_whole(one)), _whole(one)))
        return list(found.values())

    def bound(self, at: Mapping[int, int]) -> tuple[Any, Any]:
        """Return the arguments with a `Slot` for what comes from a call; `at` says which, by its number."""

        def place(one: Any) -> Any:
            if isinstance(one, Result):
                return Slot(at[one.call.number], one.output)
            return one.fetch() if self.resolved else one

        args, kwargs = _each((self.args, self.kwargs), place)
        return args, kwargs

    def checked(self, value: Any) -> Any:
        """Return what the function has returned. TypeError, ValueError: these are not the outputs that it should."""
        if self.outputs < 0:
            return value
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise TypeError(f"{self.name} has returned {type(value).__name__}, and n_output is {self.outputs}")
        if len(value) != self.outputs:
            raise ValueError(f"{self.name} has returned {len(value)} values, and n_output is {self.outputs}")
        return value

    def output(self, at: int) -> Any:
        """Return one of its outputs, the value itself with -1."""
        return self.value if at < 0 else self.value[at]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.done:
            return _with_value, (self.function, self.outputs, self.value)
        return Call, (self.function, self.args, self.kwargs, self.outputs, self.retries, self.resolved)


class Result(Executable):
    """The result of a call, or one output of it: -1 is the whole result."""

    __slots__ = ("__weakref__", "call", "output")

    def __init__(self, call: Call, output: int = -1) -> None:
        self.call = call
        self.output = output


def _with_value(function: Callable[..., Any], outputs: int, value: Any) -> Call:
    call = Call(function, (), {}, outputs)
    call.value = value
    return call


def filled(arguments: Any, values: Sequence[Any]) -> Any:
    """Put values where `Slot`s stand."""

    def place(one: Any) -> Any:
        if not isinstance(one, Slot):
            return one
        return values[one.at] if one.output < 0 else values[one.at][one.output]

    return _each(arguments, place)


def _whole(one: Any) -> Any:
    return one.call if isinstance(one, Result) else one


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested lists, tuples, sets and dicts with what `change` makes of calls, arrays and slots in them."""
    if isinstance(value, Result | Tensor | Slot):
        return change(value)
    if isinstance(value, dict):
        return {key: _each(one, change) for key, one in value.items()}
    if isinstance(value, list | set | frozenset):
        return type(value)([_each(one, change) for one in value])
    if isinstance(value, ExecutableTuple):
        return tuple([_each(one, change) for one in value])
    if isinstance(value, tuple):
        parts = [_each(one, change) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
