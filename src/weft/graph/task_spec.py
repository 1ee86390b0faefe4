"""`TaskSpec`: the frozen record of a vertex with all that a worker needs to run its tasks.

The engine makes it (`engine/describe.py`) and puts a reference to it into every launch. A launch is self-contained, and
inside one process the record costs nothing more. A changed vertex gets another record. Records are compared by
identity, so that data derived from a record can be cached with it.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

# Not for type checks alone: the form of the records in bytes (`weft.graph.task_wire`) is made from their fields.
from weft.graph.routers import Router  # noqa: TC001
from weft.model.program import Program  # noqa: TC001
from weft.model.resources import Resources  # noqa: TC001

UNSETTLED: Final = -1
"""The partitions of an output edge while its reader's parallelism is not settled, or is 0: any may be written."""


MOST_FAILED: Final = 1_000


class EdgeSpec(Struct, frozen=True, eq=False):
    """One edge that carries data, for both ends.

    The output of the source vertex is one column of `n_source` cells with `source_parts` partitions. `router` maps them
    to destination tasks; None while the parallelism of the destination is not settled. `parts` is the number of
    partitions that the source may write (0: not partitioned; or `UNSETTLED`). The writer of a `streamed` edge waits for
    room if `waits`, else it spills. `depth` is that of the destination in the graph.

    For the reader: `lenient` leaves out values that were never made, `live` reads while the source still runs, `last`
    marks the only remaining reader of the output.
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
    durable: bool = False


class JobVerdict(Struct, frozen=True):
    """How all other vertices of a job have ended, for the tasks of its final vertices.

    `state` is succeeded, failed or cancelled. `message` is the first error, or the reason of the cancel. `failed` are
    the names of the steps with a failed task, or of the items of a step with several tasks; at most `MOST_FAILED`.
    """

    state: str
    message: str = ""
    failed: tuple[str, ...] = ()


class TaskSpec(Struct, frozen=True, eq=False, gc=False):
    """All that a worker needs to run the tasks of a vertex.

    `n` is the number of tasks, `parts` the partitions of their output, `inputs` the edges that carry data, in the order
    of the arguments. `only` is the form of a plain function's single, narrow input: -1 one value, k > 0 a list of k
    values; 0 otherwise. `measured` are the output edges whose bytes per partition are reported, `counted` asks for the
    number of rows of the output. The value of a task that `expands` goes to the master, that of a `kept` vertex is a
    result. `timeout_s` is in seconds. Only a final vertex has a `verdict`.

    In a cone, a vertex that reads only the value of the previous vertex has neither `inputs` nor `outputs`.

    The garbage collector does not visit these records: a job drops them at its end, so that no cycle through one stays.
    """

    vertex: str
    n: int
    program: Program
    resources: Resources
    inputs: tuple[EdgeSpec, ...]
    outputs: tuple[EdgeSpec, ...]
    parts: int
    only: int
    measured: tuple[str, ...] = ()
    counted: bool = False
    expands: bool = False
    kept: bool = False
    service: bool = False
    timeout_s: float | None = None
    verdict: JobVerdict | None = None

    @property
    def items(self) -> Any:
        """The items of the tasks, or None."""
        return self.program.items
