"""What a worker is told of a vertex: `TaskSpec`, a frozen record that needs nothing of the master to be carried out.

The engine makes it (`engine/describe.py`) and puts it into every launch, as a reference: a launch is self-contained,
and in one process the record costs nothing more. A changed vertex gets another record. Records are compared by
identity, so that what a worker was told of one can be remembered by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from weft.graph.routing import Router
    from weft.model.program import Program
    from weft.model.resources import Resources

UNSETTLED: Final = -1
"""The partitions of an output edge whose reader's parallelism is not settled, or is 0: any may be written to."""


class EdgeSpec(Struct, frozen=True, eq=False):
    """One edge that carries data, seen from either end.

    The output of the source vertex is one column of `n_source` cells with `source_parts` partitions. `router` says
    which of them a destination task reads; None while the parallelism of the destination is not settled. `parts` is how
    many partitions the source may write to (0: not partitioned; or `UNSETTLED`). The writer of a `streamed` edge waits
    for room if `waits`; else what has no room is spilled. `depth` is that of the destination in the graph.

    For the reader: `lenient` leaves out what was never made, `live` reads while the source still runs, `last` says
    that nobody else reads the output.
    """

    id: str
    source: str
    n_source: int
    source_parts: int
    destination: str
    n_destination: int
    depth: int
    router: Router | None
    parts: int
    streamed: bool = False
    waits: bool = False
    lenient: bool = False
    live: bool = False
    last: bool = False


class TaskSpec(Struct, frozen=True, eq=False):
    """All that a worker needs to know of a vertex to run its tasks.

    `n` is the number of tasks, `parts` the partitions of their output, `inputs` the edges that carry data, in the order
    of the arguments. `only` is how a plain function with a single, narrow input reads it: -1 one value, k > 0 a list of
    k values; 0 otherwise. `measured` are output edges of which somebody wants to know the bytes of each partition,
    `counted` says that somebody wants to know how many rows come out. The value of a task that `expands` is told to the
    master, that of a `kept` vertex is a result. `timeout_s` is in seconds.

    Inside a cone a vertex that reads nothing but the value before it has neither `inputs` nor `outputs`.
    """

    vertex: str
    n: int
    program: Program
    resources: Resources
    inputs: tuple[EdgeSpec, ...]
    outputs: tuple[EdgeSpec, ...]
    parts: int
    only: int
    measured: tuple[str, ...]
    counted: bool
    expands: bool
    kept: bool
    service: bool
    timeout_s: float | None

    @property
    def items(self) -> Any:
        """The items of its tasks, None if it has none."""
        return self.program.items
