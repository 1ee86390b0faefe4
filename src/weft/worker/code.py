"""The record that workers need to run the tasks of one vertex: made once for each vertex, shared by all its leases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.graph.task import does_prepare, resolve
from weft.model.program import Program, Style

if TYPE_CHECKING:
    from weft.graph.routing import Router
    from weft.graph.task_spec import EdgeSpec, JobVerdict, TaskSpec
    from weft.store.api import Column

SINGLE, SLICE, PIECES = 0, 1, 2
"""The kind of an input: one value; the values of a range of tasks; pieces of partitioned values."""


class InputCode:
    """One input edge: the place of its values, and those that a task reads.

    `lenient` inputs leave out missing values (of failed or skipped sources). `live` inputs are read while their sources
    still run, `streamed` ones batch by batch. `last`: the values have no other reader.
    """

    __slots__ = (
        "_column",
        "_find",
        "edge",
        "identity",
        "last",
        "lenient",
        "live",
        "mode",
        "router",
        "source",
        "streamed",
    )

    def __init__(
        self,
        edge: str,
        source: str,
        router: Router,
        column: Callable[[], Column],
        *,
        lenient: bool = False,
        live: bool = False,
        last: bool = False,
        streamed: bool = False,
    ) -> None:
        self.edge = edge
        self.source = source
        self.router = router
        self._find = column
        self._column: Column | None = None
        self.lenient = lenient
        self.live = live
        self.last = last
        self.streamed = streamed
        self.identity = router.single and router.group == 1
        if router.single:
            self.mode = SINGLE
        elif router.partitions:
            self.mode = PIECES
        else:
            self.mode = SLICE

    @property
    def column(self) -> Column:
        """The column of the values; looked up on first use, since inner values of a cone need none."""
        column = self._column
        if column is None:
            column = self._column = self._find()
        return column


Edges = tuple[tuple[InputCode, ...], Mapping[str, int], frozenset[str]]
_NO_EDGES: Edges = (), {}, frozenset()


class TaskCode(Struct, eq=False, gc=False):
    """The body of a vertex's tasks with its inputs; the function is looked up on first use, on the worker.

    The edges are (inputs, outputs, streams), or a function that returns it: members of a cone often need none of it.
    `only` is the kind of a plain function's single, narrow input: -1 one value, k > 0 a list of k values; 0 otherwise.
    `measured` are output edges with the bytes of each partition measured for a manager; `counted`: output rows are
    counted for one. `parts` is the number of partitions of its output. `kept`: its values are results, whatever reads
    them. `items` are those of the program, or those of them that a process has been sent.

    The garbage collector does not visit these records: whoever keeps them drops them at the end of their job.
    """

    vertex: str
    n: int
    program: Program
    _edges: Edges | Callable[[], Edges]
    parts: int = 0
    expands: bool = False
    resources: Any = None
    only: int = 0
    measured: tuple[str, ...] = ()
    counted: bool = False
    kept: bool = False
    verdict: JobVerdict | None = None
    items: Any = None
    _fn: Callable[..., Any] | None = None

    @property
    def style(self) -> Style:
        """How the function is called."""
        return self.program.style

    @property
    def params(self) -> Mapping[str, Any]:
        """The keyword arguments of every call."""
        return self.program.params

    @property
    def edges(self) -> Edges:
        """Return (inputs, outputs, streams)."""
        edges = self._edges
        if not isinstance(edges, tuple):
            edges = self._edges = edges()
        return edges

    @property
    def inputs(self) -> tuple[InputCode, ...]:
        """The input edges that carry data, in the order of the arguments."""
        return self.edges[0]

    @property
    def outputs(self) -> Mapping[str, int]:
        """The output edges that carry data, with the partitions of each (see `EdgeSpec.parts`)."""
        return self.edges[1]

    @property
    def streams(self) -> frozenset[str]:
        """The output edges that are streams."""
        return self.edges[2]

    @property
    def fn(self) -> Callable[..., Any]:
        """The function. ProgramError: it cannot be imported here."""
        fn = self._fn
        if fn is None:
            fn = self._fn = resolve(self.program)
        return fn

    @property
    def width(self) -> int:
        """The number of partitions that all partitioned output edges have."""
        return min([parts for parts in self.outputs.values() if parts > 0], default=self.parts)

    @property
    def prepares(self) -> bool:
        """Whether a task passes the commit barrier of its lease by itself."""
        return does_prepare(self.fn)

    @property
    def in_bubble(self) -> bool:
        """Whether its tasks stream, so that other tasks wait for them."""
        return bool(self.streams) or any(inp.streamed for inp in self.inputs)

    @property
    def simple(self) -> bool:
        """Whether a task consists of one call of the function with its inputs."""
        return self.style is Style.FUNCTION and not self.streams and not any(inp.live for inp in self.inputs)


def code_of(spec: TaskSpec, column: Callable[[EdgeSpec], Column]) -> TaskCode:
    """Return the task code of a vertex's record; `column` finds the values of an edge's source."""
    return TaskCode(
        spec.vertex,
        spec.n,
        spec.program,
        partial(_edges_of, spec, column) if spec.inputs or spec.outputs else _NO_EDGES,
        spec.parts,
        spec.expands,
        spec.resources,
        spec.only,
        spec.measured,
        spec.counted,
        spec.kept,
        spec.verdict,
        spec.program.items,
    )


def _edges_of(spec: TaskSpec, column: Callable[[EdgeSpec], Column]) -> Edges:
    inputs = [
        InputCode(
            edge.id,
            edge.source,
            edge.router,
            partial(column, edge),
            lenient=edge.lenient,
            live=edge.live,
            last=edge.last,
            streamed=edge.streamed,
        )
        for edge in spec.inputs
        if edge.router is not None
    ]
    outputs = {edge.id: edge.parts for edge in spec.outputs}
    return tuple(inputs), outputs, frozenset([edge.id for edge in spec.outputs if edge.streamed])
