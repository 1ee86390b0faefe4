"""Remote calls: function, arguments, dependencies, and the result that `spawn` returns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.frontends.tensors.arrays.executables import Executable, ExecutableTuple
from weft.tensor import Tensor

if TYPE_CHECKING:
    from weft.runtime.kept import KeptValues

RETRIES = 3
"""Further attempts of a failed call with `retry_when_fail`."""
_numbers = itertools.count(1)
_NONE = object()


class CallReference(NamedTuple):
    """Placeholder in the arguments of a call: output `output` of the call at position `at`, -1 for its whole value."""

    at: int
    output: int


class RemoteCall:
    """One call of a function. It runs once, and the session keeps its value.

    `outputs` is the number of values that the function returns, -1 for one value of any kind. `retries` counts further
    attempts after a failure. With `resolved` the function gets NumPy arrays in place of tensors.
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
        self.kept: KeptValues | None = None
        self._value: Any = _NONE

    @property
    def done(self) -> bool:
        """Whether the call has its value."""
        return self.kept is not None or self._value is not _NONE

    @property
    def value(self) -> Any:
        """The value of the function. ConflictError: the session that kept the value is closed."""
        if self._value is _NONE and self.kept is not None:
            self._value = self.kept.copy(0)
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value

    def keep(self, kept: KeptValues) -> None:
        """Take the value that a session keeps, and drop the arguments."""
        self.kept = kept
        self.args, self.kwargs = (), {}

    @property
    def name(self) -> str:
        """The name of the function, for messages."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def needs(self) -> list[Any]:
        """Return the calls and arrays among the arguments, each once."""
        found: dict[int, Any] = {}
        _each((self.args, self.kwargs), lambda one: found.setdefault(id(_whole(one)), _whole(one)))
        return list(found.values())

    def bound(self, at: Mapping[int, int]) -> tuple[Any, Any]:
        """Return the arguments with a `CallReference` for each result; `at` maps numbers of calls to positions."""

        def place(one: Any) -> Any:
            if isinstance(one, CallResult):
                return CallReference(at[one.call.number], one.output)
            return one.fetch() if self.resolved else one

        args, kwargs = _each((self.args, self.kwargs), place)
        return args, kwargs

    def checked(self, value: Any) -> Any:
        """Return `value` if it has `outputs` items. TypeError: no sequence. ValueError: another length."""
        if self.outputs < 0:
            return value
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise TypeError(f"{self.name} has returned {type(value).__name__}, but n_output is {self.outputs}")
        if len(value) != self.outputs:
            raise ValueError(f"{self.name} has returned {len(value)} values, but n_output is {self.outputs}")
        return value

    def output(self, at: int) -> Any:
        """Return output `at`, the whole value with -1."""
        return self.value if at < 0 else self.value[at]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.done:
            return _with_value, (self.function, self.outputs, self.value)
        return RemoteCall, (self.function, self.args, self.kwargs, self.outputs, self.retries, self.resolved)


class CallResult(Executable):
    """The result of a call, or one output of it; -1 is the whole result."""

    __slots__ = ("__weakref__", "call", "output")

    def __init__(self, call: RemoteCall, output: int = -1) -> None:
        self.call = call
        self.output = output


def _with_value(function: Callable[..., Any], outputs: int, value: Any) -> RemoteCall:
    call = RemoteCall(function, (), {}, outputs)
    call.value = value
    return call


def substitute_values(arguments: Any, values: Sequence[Any]) -> Any:
    """Replace each `CallReference` by its value."""

    def place(one: Any) -> Any:
        if not isinstance(one, CallReference):
            return one
        return values[one.at] if one.output < 0 else values[one.at][one.output]

    return _each(arguments, place)


def _whole(one: Any) -> Any:
    return one.call if isinstance(one, CallResult) else one


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested lists, tuples, sets and dicts with what `change` makes of calls, arrays and slots in them."""
    if isinstance(value, CallResult | Tensor | CallReference):
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
