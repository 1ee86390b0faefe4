"""Durations of vertices, kept for later runs of the same graph: read at the start of a job, written at its end.

The index of runs holds them (`weft.store.catalog`), bounded for each graph and in all. Only sessions with a state
folder keep them. Only jobs that succeed are kept, as durations of failed jobs are poor estimates.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weft.engine.commands import Complete
from weft.graph.fingerprint import fingerprint
from weft.graph.logical import VertexKind
from weft.graph.task import VertexHistory
from weft.model.errors import UsageError, WeftError
from weft.model.resources import Resources
from weft.store.catalog import HistoryRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.engine.inspector import Inspector
    from weft.graph.logical import LogicalGraph
    from weft.runtime.clock import RealClock
    from weft.runtime.job import JobRun
    from weft.store.catalog import Catalog


class Historian:
    """Reader and writer of the history of one session's jobs. `close` waits for the writes.

    `problems` are errors of reading or writing a history; they fail no job.
    """

    def __init__(self, catalog: Catalog, clock: RealClock) -> None:
        self.problems: list[WeftError] = []
        self._catalog = catalog
        self._clock = clock
        self._prints: dict[str, str] = {}
        self._queue: queue.SimpleQueue[list[HistoryRow] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="weft-history", daemon=True)
        self._thread.start()

    def read(self, graph: LogicalGraph, known: str = "") -> tuple[str, list[VertexHistory]]:
        """Return the fingerprint of a graph, and the earlier durations of its vertices, newest first.

        `known` is the fingerprint of a graph whose front end makes it.
        """
        known = known or fingerprint(graph)
        try:
            return known, [_past(row) for row in self._catalog.history(known)]
        except WeftError as error:
            self.problems.append(error)
            return known, []

    def follow(self, job: JobRun, known: str) -> None:
        """Write the durations of a job once it succeeds."""
        self._prints[job.id] = known
        job.recorded = True
        job.listen(self)

    def __call__(self, job: JobRun, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Check whether this tick ends the job; the loop calls this under its lock."""
        for command in commands:
            if type(command) is Complete:
                known = self._prints.pop(job.id, "")
                if command.state == "succeeded" and known:
                    self._queue.put(rows_of(job.inspector, known, self._clock.wall()))

    def close(self) -> None:
        """Write the queued histories. A second call does nothing."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
            self._catalog.close()

    def _write(self) -> None:
        while (rows := self._queue.get()) is not None:
            try:
                self._catalog.add_history(rows)
            except WeftError as error:
                self.problems.append(error)


def rows_of(inspector: Inspector, known: str, now: float) -> list[HistoryRow]:
    """Return the durations of the vertices of an ended job, `now` in seconds since 1970."""
    return [
        HistoryRow(
            fingerprint=known,
            vertex=row.id,
            ended_at=now,
            tasks=row.n,
            seconds=float(row.seconds),
            nbytes=float(row.nbytes),
            rows=int(row.rows),
            resources=[_resources_out(each) for each in row.resources],
            usage=dict(inspector.usage(row.id)),
        )
        for row in inspector.vertices
        if row.vertex.controlled or inspector.usage(row.id) or (row.finished and row.vertex.kind is VertexKind.FINITE)
    ]


def _past(row: HistoryRow) -> VertexHistory:
    resources: tuple[Resources, ...] = ()
    with suppress(TypeError, ValueError, UsageError):  # of another version
        pairs = ("tokens", "custom")
        resources = tuple(
            Resources(**dict(each) | {name: tuple(map(tuple, each.get(name, ()))) for name in pairs})
            for each in row.resources
        )
    return VertexHistory(row.vertex, row.ended_at, row.tasks, row.seconds, row.nbytes, row.rows, resources, row.usage)


def _resources_out(each: Resources) -> dict[str, Any]:
    return {
        "cpu": each.cpu,
        "memory": each.memory,
        "gpu": each.gpu,
        "gpu_type": each.gpu_type,
        "tokens": [list(pair) for pair in each.tokens],
        "custom": [list(pair) for pair in each.custom],
    }
