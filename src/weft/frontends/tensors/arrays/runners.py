"""Runners, which compute expressions, and the current runner. A session of `weft.tensor` is a runner."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from weft.model.errors import InternalError

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.operators.destinations import ChunkDestination


class Runner(Protocol):
    """Computes expressions, and keeps the chunks that it has computed."""

    apart: bool
    """Whether chunks are computed in other processes than this one."""
    durable: bool
    """Whether what is computed is written to disk, where another process goes on with it."""
    direct: bool
    """Whether small expressions are computed by the thread that asks for them."""
    chunk_size: int | None
    """How many elements the chunks of new arrays have along each axis at most; None: chosen by shape and dtype."""

    @property
    def workers(self) -> int:
        """How many tasks run at a time."""
        ...

    @property
    def budget(self) -> int:
        """How many bytes of chunks fit into memory."""
        ...

    def compute(
        self, nodes: Sequence[ArrayNode], watch: Any = None, into: Mapping[int, ChunkDestination] = ...
    ) -> list[ArrayNode]:
        """Compute nodes, followed by a `Watch`; return nodes that read the chunks, with all lengths known.

        `into` has arrays that tasks fill, by the numbers of the nodes: see `compile_nodes`.
        """
        ...

    def name(self, name: str, thing: Any) -> None:
        """Keep a value under a name, in place of an earlier value."""
        ...


class _Here(threading.local):
    """What a thread computes with."""

    runner: Runner | None = None


_here = _Here()
_lock = threading.Lock()
_default: Runner | None = None
_open: Callable[[], Runner] | None = None


def install(open_runner: Callable[[], Runner]) -> None:
    """Have the default runner be made by a function, when one is first needed."""
    global _open
    _open = open_runner


def found() -> Runner | None:
    """Return the current runner, None if there is none yet."""
    return _here.runner or _default


def current() -> Runner:
    """Return the runner of the innermost `with`, else the default one, which is made when it is first needed."""
    there = found()
    if there is not None:
        return there
    with _lock:
        if _default is None:
            if _open is None:
                raise InternalError("nothing computes arrays in this process", hint="Import weft.tensor first.")
            _set_default(_open())
        assert _default is not None
        return _default


def make_default(runner: Runner) -> None:
    """Make a runner the default."""
    with _lock:
        _set_default(runner)


def _set_default(runner: Runner | None) -> None:
    global _default
    _default = runner


def forget(runner: Runner) -> None:
    """Have another default runner be made, if this is the default one."""
    with _lock:
        if _default is runner:
            _set_default(None)


def swap(runner: Runner | None) -> Runner | None:
    """Set the runner of this thread, None for the default one; return the previous runner."""
    before, _here.runner = _here.runner, runner
    return before


@contextmanager
def using(runner: Runner) -> Iterator[None]:
    """Have this thread compute with a runner, without closing it afterwards."""
    before = swap(runner)
    try:
        yield
    finally:
        swap(before)


def _forget_parent() -> None:
    """In a forked process another runner is made when one is needed: that of its parent has no threads here."""
    global _lock
    _set_default(None)
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_parent)
