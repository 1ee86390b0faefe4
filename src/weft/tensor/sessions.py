"""Where arrays are computed: the session that is current, and how values come out of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import creation
from weft.frontends.tensors.chunks import Cut, Grid, known, normalize
from weft.frontends.tensors.compiler import compile_nodes
from weft.frontends.tensors.direct import evaluate, small
from weft.model.errors import UsageError
from weft.tensor.blas import shared_by

if TYPE_CHECKING:
    from types import TracebackType

    from weft.frontends.tensors.nodes import Node
    from weft.runtime.session import Session as EngineSession

_lock = threading.Lock()
_default: Session | None = None
_current = threading.local()


class Session:
    """Computes arrays. Takes the arguments of `weft.Session` (backend, workers, memory, ...), and three of its own.

    `fusion` is "region" (every connected region of one-to-one operations becomes one kernel) or "chain" (only straight
    chains, as the Mars document has it). `chunk_size` is that of arrays for which none is given: at most so many
    elements along each axis; None chooses by shape, type and workers. With `direct=False` small expressions, too, are
    computed by the workers; otherwise the thread that asks does it.
    """

    def __init__(
        self, *, fusion: str = "region", chunk_size: int | None = None, direct: bool = True, **arguments: Any
    ) -> None:
        from weft.wiring import Session as Engine

        if fusion not in ("region", "chain"):
            raise UsageError(f"fusion is {fusion!r}", hint='Give "region" or "chain".')
        if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
            raise UsageError(f"chunk_size is {chunk_size!r}", hint="Give a number of elements, at least 1.")
        self.fusion = fusion
        self.chunk_size = chunk_size
        self.direct = direct
        self.engine: EngineSession = Engine(**arguments)

    @property
    def workers(self) -> int:
        """How many tasks run at a time."""
        return len(self.engine.executor.workers())

    def compute(self, nodes: Sequence[Node]) -> list[list[Any]]:
        """Return the chunks of each node, in row-major order of its grid."""
        compiled = compile_nodes(nodes, fusion=self.fusion)
        with shared_by(min(self.workers, compiled.widest)):
            run = self.engine.submit(compiled.graph)
            try:
                results = run.result()
                return [results[compiled.vertex(node)] for node in nodes]
            except KeyboardInterrupt:
                run.cancel("interrupted")
                run.wait()
                raise
            finally:
                if run.done:
                    run.forget()

    def as_default(self) -> Session:
        """Compute with this session from now on where none is named."""
        global _default
        with _lock:
            _default = self
        return self

    def close(self) -> None:
        """End the workers and drop all values."""
        global _default
        with _lock:
            if _default is self:
                _default = None
        self.engine.close()

    def __enter__(self) -> Session:
        self._before = getattr(_current, "session", None)
        _current.session = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.session = self._before
        self.close()


def current() -> Session:
    """Return the session of the innermost `with`, else the default one, which is made when it is first needed."""
    global _default
    found = _found()
    if found is not None:
        return found
    with _lock:
        if _default is None:
            import atexit

            _default = Session()
            atexit.register(_default.close)
        return _default


def _found() -> Session | None:
    """Return the current session, if there is one."""
    return getattr(_current, "session", None) or _default


def cut(shape: Sequence[int], itemsize: int, wanted: Any = None) -> Grid:
    """Return the chunks of a new array: those that are asked for, else what the current session has for all."""
    found = _found()
    if wanted is None and found is not None:
        wanted = found.chunk_size
    return normalize(wanted, shape, itemsize, workers())


def workers() -> int:
    """Return how many workers the current session has, without making one."""
    found = _found()
    if found is not None:
        return found.workers
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --------------------------------------------------------------------------------------------------------- values


def settle(nodes: Sequence[Node], session: Session | None = None) -> list[Node]:
    """Compute nodes, and return nodes that hold what was computed, with lengths that are all known."""
    found = session or _found()
    order = small(nodes) if found is None or found.direct else None
    chunks = (found or current()).compute(nodes) if order is None else evaluate(nodes, order)
    return [_stored(node, values) for node, values in zip(nodes, chunks, strict=True)]


def _stored(node: Node, values: list[Any]) -> Node:
    if known(node.grid):
        return creation.stored(values, node.grid, node.dtype)
    counts = [cut.n for cut in node.grid]
    lengths = [_lengths(axis, cut, counts, values) for axis, cut in enumerate(node.grid)]
    kept = [[i for i, length in enumerate(one) if length] or [0] for one in lengths]  # an empty chunk is in the way
    grid = tuple([Cut.of([one[i] for i in some]) for one, some in zip(lengths, kept, strict=True)])
    at = [int(np.ravel_multi_index(index, counts)) for index in product(*kept)]
    return creation.stored([values[i] for i in at], grid, node.dtype)


def _lengths(axis: int, cut: Cut, counts: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
    if cut.known:
        return cut.lengths()
    step = prod(counts[axis + 1 :])
    return [np.shape(values[i * step])[axis] for i in range(cut.n)]


def assemble(node: Node) -> Any:
    """Return the array that the chunks of a settled node make up."""
    values = node.kwargs["source"].values
    if len(values) == 1:
        return np.asarray(values[0])
    whole = np.empty(node.shape, node.dtype)
    spans = [[cut.span(i) for i in range(cut.n)] for cut in node.grid]
    for value, where in zip(values, product(*spans), strict=True):
        whole[tuple([slice(lo, hi) for lo, hi in where])] = value
    return whole
