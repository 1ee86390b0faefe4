"""Remote calls: function, arguments, dependencies, and the result that `spawn` returns."""

from __future__ import annotations

import copy
import itertools
import operator
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.frontends.tensors.arrays.executables import Executable, ExecutableTuple
from weft.model.errors import ProgramError
from weft.store.api import ONCE, once_only, sizeof
from weft.tensor import Tensor

if TYPE_CHECKING:
    from weft.model.resources import Resources
    from weft.runtime.kept import KeptValues

RETRIES = 3
"""Further attempts of a failed call with `retry_when_fail`."""
_numbers = itertools.count(1)
_NONE = object()
NO_KEYWORDS: Final[Mapping[str, Any]] = {}
"""What calls without keyword arguments share, since there may be very many of them."""
_LEAVES = frozenset({int, float, str, bytes, bool, type(None)})


class CallReference(NamedTuple):
    """Placeholder in the arguments of a call: output `output` of the call at position `at`, -1 for its whole value."""

    at: int
    output: int


class RemoteCall:
    """One call of a function. It runs once, and the session keeps its value.

    `outputs` is the number of values that the function returns, -1 for one value of any kind. `retries` counts further
    attempts after a failure. With `resolved` the function gets NumPy arrays in place of tensors. `resources` are the
    alternatives that it holds while it runs, () for a core.
    """

    __slots__ = (
        "_value",
        "args",
        "function",
        "kept",
        "kwargs",
        "number",
        "outputs",
        "resolved",
        "resources",
        "retries",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outputs: int = -1,
        retries: int = 0,
        resolved: bool = False,
        resources: tuple[Resources, ...] = (),
    ) -> None:
        self.number = next(_numbers)
        self.function = function
        self.args = tuple(args)
        self.kwargs = dict(kwargs) if kwargs else NO_KEYWORDS
        self.outputs = outputs
        self.retries = retries
        self.resolved = resolved
        self.resources = resources
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
        """Take a large value, which a session keeps, and drop the arguments."""
        self.kept = kept
        self.args, self.kwargs = (), NO_KEYWORDS

    def settle(self, value: Any) -> None:
        """Take a small value, and drop the arguments."""
        self._value = value
        self.args, self.kwargs = (), NO_KEYWORDS

    @property
    def name(self) -> str:
        """The name of the function, for messages."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def needs(self) -> list[RemoteCall | Tensor]:
        """Return the calls and arrays among the arguments, each once."""
        found: dict[int, Any] = {}

        def add(one: Any) -> Any:
            whole = one.call if isinstance(one, CallResult) else one
            found[id(whole)] = whole
            return one

        self._replaced(add)
        return list(found.values())

    def bound(self, at: Mapping[int, int]) -> tuple[Any, Any]:
        """Return the arguments with values for results; those of the calls in `at`, number to position, become a
        `CallReference`.
        """

        def place(one: Any) -> Any:
            if isinstance(one, CallResult):
                position = at.get(one.call.number) if at else None
                return one.call.output(one.output) if position is None else CallReference(position, one.output)
            return one.fetch() if self.resolved else one

        args, kwargs = self._replaced(place)
        return args, kwargs

    def _replaced(self, change: Callable[[Any], Any]) -> Any:
        if not self.kwargs and _LEAVES.issuperset(map(type, self.args)):
            return self.args, self.kwargs
        try:
            return _each(self.args, change), {name: _each(one, change) for name, one in self.kwargs.items()}
        except RecursionError:
            raise ProgramError(
                f"the arguments of {self.name} contain themselves, or are nested too deeply",
                hint="Pass containers that do not contain themselves.",
            ) from None

    def checked(self, value: Any) -> Any:
        """Return `value` if it has `outputs` items. TypeError: no sequence. ValueError: another length.

        ProgramError: only one reader could read it.
        """
        if sizeof(value) == ONCE:
            raise once_only(value)
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
        settings = (self.outputs, self.retries, self.resolved, self.resources)
        return RemoteCall, (self.function, self.args, self.kwargs, *settings)


class CallResult(Executable):
    """The result of a call, or one output of it; -1 is the whole result."""

    __slots__ = ("__weakref__", "call", "output")

    def __init__(self, call: RemoteCall, output: int = -1) -> None:
        self.call = call
        self.output = output


def _with_value(function: Callable[..., Any], outputs: int, value: Any) -> RemoteCall:
    call = RemoteCall(function, (), NO_KEYWORDS, outputs)
    call.value = value
    return call


def substitute_values(arguments: Any, values: Sequence[Any]) -> Any:
    """Replace each `CallReference` by its value."""

    def place(one: Any) -> Any:
        if not isinstance(one, CallReference):
            return one
        return values[one.at] if one.output < 0 else values[one.at][one.output]

    return _each(arguments, place)


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested containers with what `change` makes of calls, arrays and references in them."""
    kind = type(value)
    if kind in _LEAVES:
        return value
    if isinstance(value, (CallResult, Tensor, CallReference)):
        return change(value)
    if kind is list:
        return [_each(one, change) for one in value]
    if kind in (tuple, ExecutableTuple):
        return tuple([_each(one, change) for one in value])
    if isinstance(value, dict):
        before = [part for pair in value.items() for part in pair]
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        before = list(value)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        before = np.asarray(value).ravel().tolist()
    else:
        return value
    after = [_each(one, change) for one in before]
    if kind not in (dict, set) and all(map(operator.is_, before, after)):
        return value
    try:
        return _rebuilt(value, after)
    except TypeError as error:
        raise ProgramError(
            f"a {kind.__name__} cannot hold the values of the spawned results in it: {error}",
            hint="Pass the results in a list, or as the values of a dict.",
        ) from error


def _rebuilt(value: Any, parts: list[Any]) -> Any:
    """Return a container like `value` with other parts; those of a dict are its keys and values in turn."""
    if isinstance(value, (set, frozenset)):
        return type(value)(parts)
    if isinstance(value, tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    made = copy.copy(value)
    if isinstance(value, np.ndarray):
        for at, part in zip(np.ndindex(value.shape), parts, strict=True):
            made[at] = part
        return made
    made.clear()
    if isinstance(value, dict):
        for key, part in zip(parts[::2], parts[1::2], strict=True):
            made[key] = part
    else:
        made.extend(parts)
    return made
