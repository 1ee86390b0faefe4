"""Functions of arrays of unknown lengths: they stay lazy, and their nodes are made while the graph runs.

A function marked `needs_lengths` is called at once if all lengths are known. If some depend on data, it is called with
stand-ins first, for the dtype and the axes of its result, and again, while the graph runs, with the true lengths.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import numpy as np

from weft.frontends.tensors.arrays.chunking import Chunking, chunking, chunking_as
from weft.frontends.tensors.arrays.executables import Executable
from weft.frontends.tensors.arrays.options import options
from weft.frontends.tensors.arrays.stubs import Definition, load
from weft.frontends.tensors.unknown_lengths import DeferredNode, lengths_known, sample_of, stand_in
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import NumpyArray

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

LARGE = 64 * 1024
"""The least bytes of a NumPy argument that becomes a Weft array, which is read chunk by chunk."""


class LengthsNeededError(Exception):
    """A function needs lengths that the run determines; caught inside of Weft."""


class _Here(threading.local):
    """Whether this thread must not compute, since it only collects the nodes to compute."""

    asking = False


_here = _Here()


@contextmanager
def _asking() -> Iterator[None]:
    before = _here.asking
    _here.asking = True
    try:
        yield
    finally:
        _here.asking = before


class Expressed(Executable):
    """An array by its expression. Functions of this package make arrays of this class."""

    __slots__ = ()

    def __init__(self, node: ArrayNode, *layout: Any) -> None:
        if options.eager_mode and not _here.asking:
            self.execute()

    @property
    def _node(self) -> ArrayNode:
        """The expression, with unknown lengths."""
        raise NotImplementedError

    @property
    def node(self) -> ArrayNode:
        """The expression with known lengths; computes unknown ones."""
        if not lengths_known(self._node):
            self.must_compute()
            self.execute()
        return self._node

    @property
    def loose(self) -> ArrayNode:
        """The expression with a known number of chunks; computes an unknown one."""
        return self.node if isinstance(self._node, DeferredNode) else self._node

    @property
    def layout(self) -> tuple[Any, ...]:
        """The memory layout, as further arguments of the constructor."""
        return ()

    def like(self, sample: Expressed, given: Sequence[tuple[Expressed, Expressed]]) -> None:
        """Take the properties of a sample from its operands; `given` has each stand-in with its operand."""
        raise NotImplementedError

    def as_parameter(self) -> Any:
        """See `Computable.as_parameter`."""
        self.must_compute()
        return self.fetch()

    @staticmethod
    def must_compute() -> None:
        """Raise LengthsNeededError in a thread that must not compute."""
        if _here.asking:
            raise LengthsNeededError

    @classmethod
    def of_values(cls, values: NumpyArray) -> Expressed:
        """Return a NumPy array as a Weft array."""
        raise NotImplementedError


class _ArrayPosition(int):
    """The position of an array among the arrays in the arguments of a call."""


def _detached(value: Any, found: list[Expressed], kind: type[Expressed]) -> Any:
    """Return an argument with positions in place of its arrays, which are appended to `found`."""
    if type(value) is np.ndarray and value.nbytes >= LARGE:
        value = kind.of_values(value)
    if isinstance(value, Expressed):
        found.append(value)
        return _ArrayPosition(len(found) - 1)
    if type(value) in (list, tuple):
        return type(value)([_detached(one, found, kind) for one in value])
    if type(value) is dict:
        return {key: _detached(one, found, kind) for key, one in value.items()}
    return value


def _restored(value: Any, arrays: Sequence[Expressed]) -> Any:
    if type(value) is _ArrayPosition:
        return arrays[value]
    if type(value) in (list, tuple):
        return type(value)([_restored(one, arrays) for one in value])
    if type(value) is dict:
        return {key: _restored(one, arrays) for key, one in value.items()}
    return value


class DeferredCall:
    """A call of a marked function, made when the lengths of its array arguments are known."""

    def __init__(
        self,
        function: Callable[..., Any],
        kind: type[Expressed],
        layouts: Sequence[tuple[Any, ...]],
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        how: Chunking,
    ) -> None:
        self._function = function
        self._kind = kind
        self._layouts = layouts
        self._arguments = arguments
        self._how = how

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._function.__name__.strip("_")

    def arrays(self, operands: Sequence[ArrayNode]) -> list[Expressed]:
        """Return the arrays of these expressions, as operands."""
        with _asking():
            return [self._kind(node, *layout) for node, layout in zip(operands, self._layouts, strict=True)]

    def returned(self, operands: Sequence[Expressed], function: Callable[..., Any] | None = None) -> Any:
        """Call the function with the arrays `operands` in place of its array arguments, and return its result.

        `function` is called in its place, if given.
        """
        with _asking(), chunking_as(self._how):
            args, kwargs = _restored(self._arguments, operands)
            return (function or self._function)(*args, **kwargs)

    def __call__(self, operands: Sequence[ArrayNode]) -> list[ArrayNode]:
        """Return the nodes of the function's results."""
        try:
            made = self.returned(self.arrays(operands))
        except LengthsNeededError as needed:
            if needed.__cause__ is None:
                raise UsageError(
                    f"{self.name} asks for values while the graph is made that it is part of",
                    hint="Compute its arguments first: x.execute().",
                ) from needed
            raise needed.__cause__ from None
        except Exception as error:
            shapes = ", ".join(str(node.shape) for node in operands)
            error.add_note(f"Raised by {self.name}, when the lengths of its arrays were known: {shapes}")
            raise
        return [one._node for one in (made if isinstance(made, tuple) else (made,))]

    def __reduce__(self) -> tuple[Any, ...]:
        # By name: its module may bind the name to a wrapper of this function.
        function, kind = [Definition(one.__module__, one.__qualname__) for one in (self._function, self._kind)]
        return _call, (function, kind, self._layouts, self._arguments, self._how)


def _call(function: Definition, kind: Definition, layouts: Any, arguments: Any, how: Chunking) -> DeferredCall:
    return DeferredCall(load(function), load(kind), layouts, arguments, how)


@overload
def needs_lengths(function: Callable[Given, Returned], /) -> Callable[Given, Returned]: ...
@overload
def needs_lengths(
    *, sample: Callable[..., Any]
) -> Callable[[Callable[Given, Returned]], Callable[Given, Returned]]: ...
def needs_lengths(function: Any = None, /, *, sample: Callable[..., Any] | None = None) -> Any:
    """Mark a function that returns arrays, whose number, dtypes and axes do not depend on lengths: a decorator.

    The function stays lazy for unknown lengths. `sample` is called in its place with stand-ins, in which unknown
    lengths are 1; without it the function itself. If neither accepts stand-ins the arrays are computed at the call.
    """

    def mark(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
        @wraps(function)
        def marked(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
            unknown = _unknown((*args, *kwargs.values()) if kwargs else args)
            if unknown is None or (options.eager_mode and not _here.asking):
                return function(*args, **kwargs)
            try:
                with _asking():
                    return function(*args, **kwargs)
            except LengthsNeededError:
                pass
            try:
                return _deferred(marked, sample, type(unknown), args, kwargs)  # type: ignore[no-any-return]
            except LengthsNeededError:
                if _here.asking:
                    raise
            except (ValueError, IndexError, TypeError) as wrong:
                if _here.asking:  # the caller finds out whether these lengths or others are the cause
                    raise LengthsNeededError from wrong
            return function(*args, **kwargs)

        return marked

    return mark if function is None else mark(function)


def _unknown(values: tuple[Any, ...] | list[Any]) -> Expressed | None:
    """Return an array of unknown lengths among some values."""
    for value in values:
        if isinstance(value, Expressed):
            if not lengths_known(value._node):
                return value
        elif type(value) in (list, tuple) and (found := _unknown(value)) is not None:
            return found
    return None


def _deferred(
    function: Callable[..., Any],
    sample: Callable[..., Any] | None,
    kind: type[Expressed],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Return arrays that are made when the lengths are known. Errors are those of the function for stand-ins."""
    arrays: list[Expressed] = []
    arguments = _detached((args, dict(kwargs)), arrays, kind)
    call = DeferredCall(function, kind, [one.layout for one in arrays], arguments, chunking())
    nodes = [one._node for one in arrays]
    made, given = _sampled(call, nodes, sample)
    several = made if isinstance(made, tuple) else (made,)
    samples = [sample_of(one._node) for one in several]
    with _asking():
        later: list[Any] = [
            kind(DeferredNode(call, nodes, at, stand_in([max(1, n) for n in one.shape], one.dtype)), *like.layout)
            for at, (one, like) in enumerate(zip(samples, several, strict=True))
        ]
    for one, like in zip(later, several, strict=True):
        one.like(like, list(zip(given, arrays, strict=True)))
    if not isinstance(made, tuple):
        return later[0]
    return type(made)(*later) if hasattr(made, "_fields") else type(made)(later)


def _sampled(
    call: DeferredCall, nodes: Sequence[ArrayNode], sample: Callable[..., Any] | None
) -> tuple[Any, list[Expressed]]:
    """Return the results of the function for stand-ins, and the stand-ins."""
    given = call.arrays([sample_of(node) for node in nodes])
    try:
        return call.returned(given, sample), given
    except (ValueError, IndexError):
        # A length of 1 does not fit the others: let all lengths of all arrays be 1.
        given = call.arrays([stand_in([1] * len(node.grid), node.dtype) for node in nodes])
        return call.returned(given, sample), given
