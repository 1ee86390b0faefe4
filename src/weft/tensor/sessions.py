"""Sessions that compute arrays, the current session, and the transfer of values out of it."""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary, WeakSet

from weft.frontends.tensors import sources
from weft.frontends.tensors.arrays import runners
from weft.frontends.tensors.arrays.executables import Computation, Watch, execute, fetch, waiting
from weft.frontends.tensors.arrays.registry import named, public
from weft.frontends.tensors.chunks import Grid, known
from weft.frontends.tensors.compiler import NOWHERE, Compiled, compile_nodes, described
from weft.frontends.tensors.nodes import ChunkLocator
from weft.frontends.tensors.unknown_lengths import DeferredNode, measured
from weft.model.clusters import ClusterOptions
from weft.model.errors import NotFoundError, UsageError
from weft.operators.blas import shared_by
from weft.operators.namespaces import NUMPY, checked
from weft.operators.regions import raised_errors
from weft.runtime.interruptible import interruptible_wait
from weft.runtime.kept import KeptValues
from weft.runtime.progress import can_show

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType

    from weft.frontends.tensors.nodes import ArrayNode
    from weft.operators.destinations import ChunkDestination
    from weft.runtime.run import Results, Run
    from weft.runtime.session import EngineSession as EngineSession

STORED_FROM = 64 * 1024
"""The least bytes of an array that goes into shared memory for worker processes; smaller ones travel with programs."""

LEAST_MEMORY = 4 * 2**20
"""The least bytes of memory of a session: in less, no function holds the smallest default chunks of its arrays."""

_LOOK_S = 0.1
"""The seconds between updates of a shown progress."""


@named("Session")
class TensorSession:
    """Computes arrays. Takes the arguments of `weft.Session` (backend, workers, memory, ...), and four of its own.

    `fusion` is "region" (every connected region of one-to-one operations becomes one kernel) or "chain" (only straight
    chains, as in the Mars document). `chunk_size` is the default for arrays: the most elements along each axis; None
    chooses by shape, type and workers. With `direct=False` workers compute small expressions, too; otherwise the
    calling thread does, with NumPy. `array_namespace` names the module that computes chunks: "numpy", or another one
    with its functions ("cupy", "jax.numpy").

    A session is closed at the end of the outermost `with` statement over it.
    """

    def __init__(
        self,
        *,
        fusion: str = "region",
        chunk_size: int | None = None,
        direct: bool = True,
        array_namespace: Any = NUMPY,
        **arguments: Any,
    ) -> None:
        from weft.runs.sessions import size_of
        from weft.wiring import Session as Engine

        known = signature(Engine).parameters
        if unknown := [name for name in arguments if name not in known]:
            raise UsageError(
                f"a session of tensors takes no {', '.join(unknown)}",
                hint="It takes workers=, memory=, backend= and what weft.Session takes; new_session takes n_cpu= too.",
            )
        if fusion not in ("region", "chain"):
            raise UsageError(f"fusion is {fusion!r}", hint='Give "region" or "chain".')
        if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
            raise UsageError(f"chunk_size is {chunk_size!r}", hint="Give a number of elements, at least 1.")
        memory = size_of("memory", arguments.get("memory"))
        if memory is not None and memory < LEAST_MEMORY:
            raise UsageError(
                f"memory is {memory:,} bytes, which is too little for the chunks of arrays",
                hint=f"Give at least {LEAST_MEMORY >> 20}MiB; 32MiB for every function.",
            )
        self.fusion = fusion
        self.chunk_size = chunk_size
        self.direct = direct
        self.array_namespace = checked(array_namespace)
        self.engine: EngineSession = Engine(whole_process=True, **arguments)
        self.apart = arguments.get("backend", "threads") != "threads"
        self.durable = arguments.get("durable", False) is not False
        self._lock = threading.Lock()
        self._placed: WeakKeyDictionary[Any, KeptValues] = WeakKeyDictionary()
        self._named: dict[str, Any] = {}
        self.computations: WeakSet[Computation] = WeakSet()
        """Those that were begun in the background with this session."""
        self._entered = 0
        self._before = _Before()
        self.call_scheduler: Any = None  # set by weft.remote, which imports this package

    @property
    def workers(self) -> int:
        """The number of tasks that run at a time."""
        return len(self.engine.loop.slots.specs)

    @property
    def budget(self) -> int:
        """The bytes of chunks that fit into memory."""
        return self.engine.store.memory.budget

    @property
    def session_id(self) -> str:
        """The id of the session, unique in this process."""
        return f"session-{id(self):x}"

    def compute(
        self,
        nodes: Sequence[ArrayNode],
        watch: Watch | None = None,
        into: Mapping[int, ChunkDestination] = NOWHERE,
    ) -> list[ArrayNode]:
        """Compute nodes; return nodes that read the chunks, which stay in the session's store, with all lengths known.

        Chunks are freed with the last node that reads them. `into` is for `compile_nodes`.
        """
        own = self.workers if self.apart else 0
        budget = self.engine.store.memory.budget
        compiled = compile_nodes(
            nodes,
            fusion=self.fusion,
            held=self._holds,
            processes=own,
            space=self.array_namespace,
            budget=budget,
            memory=self.engine.store.memory.ceiling,
            raised=raised_errors(),
            into=into,
        )
        compiled.check(budget, self.engine.store.memory.ceiling)
        given = {vertex: self._kept(node) for vertex, node in compiled.given.items()}
        with shared_by(1 if own else min(self.workers, compiled.widest)):
            run = self.engine.submit(compiled.graph, given=given)
            try:
                results = follow(run, watch or Watch())
                found = [_found_in(results, compiled, number, node) for number, node in enumerate(nodes)]
                made: dict[str, ArrayNode] = {}
                for node, (vertex, grid, at) in zip(nodes, found, strict=True):
                    if vertex not in made:
                        kept = given.get(vertex) or results.keep(vertex, at)
                        made[vertex] = sources.stored(kept, grid, node.dtype)
                return [made[vertex] for vertex, _, _ in found]
            finally:
                if run.done:
                    run.forget()

    def _holds(self, node: ArrayNode) -> bool:
        """Return whether the chunks of a source go into the store.

        These are chunks that a session has kept, and large chunks if workers do not share the memory of this process. A
        durable run has them in its graph, where a resume finds them.
        """
        if self.durable:
            return False
        source = node.kwargs.get("source")
        if type(source) is sources.Stored:
            return isinstance(source.values, KeptValues) or (self.apart and node.nbytes >= STORED_FROM)
        return self.apart and type(source) is sources.ArraySource and node.nbytes >= STORED_FROM and source.in_memory

    def _kept(self, node: ArrayNode) -> KeptValues:
        """Return the chunks of a source in the store, put there at the first read."""
        source = node.kwargs["source"]
        values = source.values if type(source) is sources.Stored else _Slices(source, node)
        if isinstance(values, KeptValues) and values.of(self.engine.store):
            return values
        with self._lock:
            kept = self._placed.get(source)
            if kept is None:
                kept = self._placed[source] = self.engine.put(values, node.chunks, copy=False)
        return kept

    def run(self, *things: Any) -> Any:
        """Compute arrays in one run and return their values: of the only one, or a tuple of all."""
        return fetch(*things, session=self)

    def submit(self, *things: Any) -> Future[Any]:
        """Start to compute arrays, and return at once: a future with `result`, `cancel` and `progress`."""
        made: Future[Any] = execute(*things, session=self, wait=False)
        return made

    def name(self, name: str, thing: Any) -> None:
        """Keep a value under a name, in place of an earlier value."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"name is {name!r}", hint="Give a text.")
        self._named[name] = thing

    def named(self, name: str) -> Any:
        """Return the value with the name given to `execute(name=...)`. NotFoundError: no value has it."""
        found = self._named.get(name)
        if found is None:
            some = ", ".join(self._named) or "none"
            raise NotFoundError(f"the session has nothing named {name!r}", hint=f"Its names: {some}")
        return found

    def as_default(self) -> TensorSession:
        """Make this session the default."""
        runners.make_default(self)
        return self

    def close(self) -> None:
        """End the workers and drop all values."""
        self._forget()
        self.engine.close()

    def _forget(self) -> None:
        runners.forget(self)
        self._named.clear()

    stop_server = close

    def __enter__(self) -> TensorSession:
        with self._lock:
            self._entered += 1
        self._before.runners.append(runners.swap(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runners.swap(self._before.runners.pop())
        with self._lock:
            self._entered -= 1
            if self._entered:
                return
        with ExitStack() as undo:
            undo.push(self.engine.__exit__)
            undo.callback(self._forget)
            if kind is None:
                self._finish()

    def _finish(self) -> None:
        """Wait for the computations in the background."""
        going = list(self.computations)
        interruptible_wait(lambda limit_s: not wait(going, limit_s).not_done)


class _Before(threading.local):
    """What a thread computed with before each of its `with` statements over a session."""

    def __init__(self) -> None:
        self.runners: list[runners.Runner | None] = []


class _Slices:
    """The chunks of an array in memory, one after another."""

    def __init__(self, source: sources.ArraySource, node: ArrayNode) -> None:
        self._array = source.array
        self._where = ChunkLocator(node.grid)
        self._n = node.chunks

    def __iter__(self) -> Iterator[Any]:
        return (sources.part_of(self._array, self._where(index)) for index in range(self._n))


def _found_in(results: Results, compiled: Compiled, number: int, node: ArrayNode) -> tuple[str, Grid, list[int] | None]:
    """Return the vertex of a wanted node, its lengths, and the tasks of the vertex that made its chunks."""
    if isinstance(node, DeferredNode):
        return results.value(described(results, compiled.expander, number))  # type: ignore[no-any-return]
    vertex = compiled.vertex(node).id
    if known(node.grid):
        return vertex, node.grid, None
    found = measured(node.grid, results[compiled.lengths(node)])
    return vertex, found.grid, found.at


def follow(run: Run, watch: Watch) -> Results:
    """Wait for the end of a run and return its results; Ctrl-C ends the run.

    Errors as of `Run.result`.
    """
    watch.began(run.cancel, partial(_share, run))
    with waiting():
        try:
            if watch.show and can_show():
                from weft.runtime.waiting import picture

                with ExitStack() as undo:
                    look = picture(run, run.job.graph.name, undo)
                    while not run.wait(_LOOK_S):
                        look()
            return run.result()
        except KeyboardInterrupt:
            run.cancel("interrupted")
            run.wait()
            raise


def _share(run: Run) -> float:
    counts = [(vertex.n, vertex.finished) for vertex in run.view().vertices if vertex.n > 0]
    return sum(done for _, done in counts) / max(1, sum(n for n, _ in counts))


@public()
def new_session(address: str | None = None, *, default: bool = True, **arguments: Any) -> TensorSession:
    """Open a session, and make it the default unless `default` is False.

    Takes the arguments of `Session`. `n_cpu` and `n_worker` of Mars give the number of workers together. `address` is
    that of a Ray cluster, `host:port` or `auto`. UsageError: it is the address of something else.
    """
    if address is not None:
        if "://" in address:
            raise UsageError(
                f"there is no cluster at {address!r} that a session could use",
                hint="Give the address of a Ray cluster, HOST:PORT or auto, or leave it out: the session runs here.",
            )
        arguments |= {"backend": "ray", "cluster": ClusterOptions(address=address)}
    each, count = arguments.pop("n_cpu", None), arguments.pop("n_worker", None)
    if each is not None or count is not None:
        arguments.setdefault("workers", (each or 1) * (count or 1))
    if arguments.get("backend") in ("mars", "oscar"):
        del arguments["backend"]
    made = TensorSession(**arguments)
    return made.as_default() if default else made


@public()
def get_default_session() -> TensorSession | None:
    """Return the default session, None if there is none yet."""
    return cast("TensorSession | None", runners.found())


@public()
def named_tensor(name: str, session: TensorSession | None = None) -> Any:
    """Return the result of `execute(name=...)` in a session. NotFoundError: no result has that name."""
    return (session or current()).named(name)


@public()
def stop_server() -> None:
    """Close the default session, if any; the next computation opens another."""
    found = get_default_session()
    if found is not None:
        found.close()


def current() -> TensorSession:
    """Return the session of the innermost `with`, else the default one, which opens at its first use."""
    return cast("TensorSession", runners.current())


def open_default() -> TensorSession:
    """Open a session with the default settings, which closes at the end of the process."""
    from weft.wiring.session import open_sessions

    if open_sessions():
        warnings.warn(
            "arrays are computed by a session of their own with up to half of the machine's memory, not by the open "
            "weft.Session: open weft.tensor.Session(memory=...) to limit them",
            UserWarning,
            stacklevel=2,
        )
    made = TensorSession()
    atexit.register(made.close)
    return made
