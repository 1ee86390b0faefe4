"""The jobs of a session on a cluster, and what their leases carry to nodes."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from weft.backends.local_jobs import LocalJob
from weft.backends.process_jobs import check_picklable
from weft.engine.machines.task import TaskState
from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import ProgramError
from weft.store import codec, tiers
from weft.store.api import ABSENT
from weft.worker.remote_store import LARGE

if TYPE_CHECKING:
    from weft.engine.ports import Job, Shell
    from weft.graph.task_spec import TaskSpec
    from weft.store.api import ChunkStore, Column
    from weft.worker.code import InputCode
    from weft.worker.lease import WorkerLease


class ClusterJob(LocalJob):
    """A job whose leases run at nodes."""

    def __init__(self, job: Job, store: ChunkStore, loop: Shell, window: int) -> None:
        super().__init__(job, store, loop, window)
        self._specs: dict[TaskSpec, int] = {}
        self._numbers = itertools.count()
        self.restarts: dict[str, int] = {}
        """How often the streams of an edge have begun again: what was asked before is not answered."""

    def begin_again(self, vertices: Collection[str]) -> list[str]:
        """Count another beginning of the streams of vertices, and return their edges."""
        codes = list(self._codes.values())
        edges = {inp.edge for code in codes for inp in code.inputs if inp.streamed and inp.source in vertices}
        for edge in edges:
            self.restarts[edge] = self.restarts.get(edge, 0) + 1
        return sorted(edges)

    def number(self, spec: TaskSpec) -> int:
        """Return the number of a spec in messages."""
        found = self._specs.get(spec)
        if found is None:
            found = self._specs.setdefault(spec, next(self._numbers))
        return found

    def streaming(self) -> set[str]:
        """Return the vertices with a streamed output."""
        return {spec.vertex for spec in list(self._codes) if any(edge.streamed for edge in spec.outputs)}

    def knows(self, specs: Iterable[TaskSpec]) -> bool:
        """Return whether some node has got each of these specs."""
        return all(spec in self._specs for spec in specs)

    def committed(self, vertex: str, edge: str, source: int) -> tuple[str, Any]:
        """Return a committed value that a task reads while its source runs: ("value", it), or "wait" or "end"."""
        inp = next(
            inp for code in self._codes.values() if code.vertex == vertex for inp in code.inputs if inp.edge == edge
        )
        ended = self.job.outcome is not None or inp.source in self.ended
        if inp.column.values[source] is ABSENT:
            return "end" if ended else "wait", None
        row = self.job.inspector.vertex(inp.source)
        if row is not None and row.state[source] < TaskState.FINISHED:  # perhaps made again: its node is lost
            return "wait", None
        return "value", sendable(self.store, inp.column, source)


def packed(specs: Mapping[int, TaskSpec]) -> bytes:
    """Return specs by number as bytes. ProgramError: a part of one cannot be pickled."""
    try:
        return codec.to_pickle(dict(specs)) if specs else b""
    except ProgramError as whole:
        for spec in specs.values():
            check_picklable(spec.vertex, spec, "a node", "Its function with its closure, its params and items")
        raise whole from None


def sendable(store: ChunkStore, column: Column, index: int) -> Any:
    """Return a cell in a form that a node can read: a small value, or a reference, with the bytes if they lie here."""
    cell = column.values[index]
    if type(cell) is ChunkRef:
        if cell.tier is Tier.PEER or cell.tier is Tier.INLINE:
            return cell
        return cell._replace(tier=Tier.INLINE, location="", offset=0, data=bytes(tiers.read(cell)))
    entry = column.tracked.get(index)
    if entry is None or entry.nbytes < LARGE:
        return cell  # in one pickle with others: a row's pieces would each be written and read alone
    return (codec.encode_row(cell) if column.parts else codec.encode(cell)).inline()


def inputs_of(lease: WorkerLease) -> Iterable[tuple[InputCode, int, int]]:
    """Yield the inputs of a lease that its node reads from columns, each with the range of reading tasks."""
    cone = lease.cone
    inner = frozenset(cone.members) if cone is not None else frozenset()
    for place, code in enumerate(lease.codes):
        mult = cone.mult[place] if cone is not None else 1
        for inp in code.inputs:
            if not inp.live and inp.source not in inner:
                yield inp, lease.lo * mult, lease.hi * mult
