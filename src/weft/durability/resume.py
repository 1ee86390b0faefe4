"""How a run goes on that has ended without success, or whose owner was killed.

Two ways, and the first that is possible is taken. *Replay*: the journal can be read and is of this graph, nothing has
failed, and all that was finished is still there. A new master is brought to where the old one was, with every choice
and number that was settled, and goes on. *Facts*: the job begins again, and what is known to have finished counts as
finished. That is how a failed run goes on, one with an output that is gone, or one of an older format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field

from weft.durability.facts import asking
from weft.durability.journal import Header, Recovered, edited_digest, read_journal, recover
from weft.graph.validate import mark_results
from weft.model.errors import ConflictError, NotFoundError, WeftError

if TYPE_CHECKING:
    from pathlib import Path

    from weft.durability.journal import Recorded
    from weft.engine.core import Tuning
    from weft.engine.policy import ManagerFactory
    from weft.graph.logical import LogicalGraph, Vertex


Task = tuple[str, int]
"""A vertex and the number of a task of it."""


class FinishedTask(NamedTuple):
    """A task that has finished, of a vertex that the graph gets only while it runs; `name` is that of its step."""

    vertex: str
    task: int
    name: str
    outputs: tuple[str, ...]


class Plan(Struct):
    """The way by which a run goes on.

    `graph` is what to run, and `header` begins a new journal of it. With `recovered` the journal of before is replayed
    and continued; `why` says what keeps it from that. `restored` are tasks that are not run again; `gone` maps tasks
    that are, though they had finished, to the output that is missing ("" for a value); `answers` has the values of
    expanders that are known. `ended`: the run had succeeded. `vertices` are all that are known, those of patches
    included.
    """

    graph: LogicalGraph
    header: Header
    restored: frozenset[Task] = frozenset()
    gone: dict[Task, str] = field(default_factory=dict)
    answers: dict[str, list[Any]] = field(default_factory=dict)
    why: str = ""
    recorded: Recorded | None = None
    recovered: Recovered | None = None
    ended: bool = False
    vertices: Mapping[str, Vertex] = field(default_factory=dict)


def plan_resume(
    journal: Path,
    graph: LogicalGraph,
    managers: Mapping[str, ManagerFactory],
    tuning: Tuning,
    *,
    told: Callable[[Vertex, int], bool],
    outputs: Callable[[Vertex, int], Sequence[str] | None],
    exists: Callable[[str], bool] = os.path.lexists,
    kept: Iterable[FinishedTask] = (),
    edits: int = 0,
) -> Plan:
    """Find out how a run goes on; nothing is changed.

    `graph` is the graph of the run as it was begun. `told` says whether the records tell of a task that it has
    succeeded, `outputs` which paths a task must have left (None: of a vertex that is always run again unless the
    journal is replayed). `kept` are tasks that had finished before the graph was edited, of vertices that it does not
    have from the start. `edits` counts the edits that have steps run again: of an earlier journal than the last of them
    only the records know what still holds, also where the graph itself is the same.
    """
    digest = edited_digest(graph, edits)
    mark_results(graph)
    why = ""
    recorded: Recorded | None = None
    recovered: Recovered | None = None
    again = graph
    before: frozenset[Task] = frozenset()
    known: set[Task] = set()
    widths = {id: v.parallelism for id, v in graph.vertices.items() if isinstance(v.parallelism, int)}
    vertices = dict(graph.vertices)
    try:
        recorded = read_journal(journal)
        if recorded.header.graph != digest:
            raise ConflictError("the journal was written for another graph")
        before = frozenset(recorded.header.restored)
        again = asking(graph, {vertex for vertex, _ in before})
        recovered = recover(again, recorded, managers, digest)
        found = recovered.master.inspector
        widths = {row.id: max(row.n, 0) for row in found.vertices}
        vertices = {row.id: row.vertex for row in found.vertices}
        known = found.finished_tasks()
        if recovered.pending.completed or not found.may_go_on:
            why = "the run had ended" if recovered.pending.completed else "something had failed"
        elif recorded.tuning != tuning:
            why = "another backend runs it now"
    except NotFoundError:
        why = "there is no journal"
    except WeftError as error:
        why = error.message
    finished: set[Task] = set()
    gone: dict[Task, str] = {}
    left = {
        id: [outputs(vertex, index) for index in range(widths.get(id, 0))]
        for id, vertex in vertices.items()
        if outputs(vertex, 0) is not None
    }
    for id, tasks in left.items():
        for index, paths in enumerate(tasks):
            task = (id, index)
            by_records = task in before or told(vertices[id], index)
            if vertices[id].final and not by_records:
                continue  # it runs again whenever anything else does
            if by_records and task not in known and recovered is not None:
                why = why or "the records know more than the journal"
            if not by_records and task not in known:
                continue
            missing = next((path for path in paths or () if not exists(path)), None)
            if missing is None:
                finished.add(task)
            else:
                gone[task] = missing
    for one in kept if recovered is None else ():
        if all(exists(path) for path in one.outputs):
            finished.add((one.vertex, one.task))
    if gone:
        why = why or "an output is gone"
    incarnation = 0 if recorded is None else recorded.incarnation + 1
    if recovered is not None and not why:
        header = Header(graph=digest, tuning=tuning, incarnation=incarnation)
        return Plan(again, header, frozenset(finished), recorded=recorded, recovered=recovered, vertices=vertices)
    counted = frozenset(finished - _made_anew(graph, left, finished))
    again = asking(graph, {vertex for vertex, _ in counted})
    header = Header(graph=digest, tuning=tuning, incarnation=incarnation, restored=tuple(sorted(counted)))
    return Plan(again, header, counted, gone, why=why, recorded=recorded, vertices=vertices)


def _made_anew(graph: LogicalGraph, left: Mapping[str, Sequence[object]], finished: Collection[Task]) -> set[Task]:
    """Return the finished tasks that may be others this time: what says how many there are reads something new."""
    sources: dict[str, list[str]] = {}
    for edge in graph.edges:
        sources.setdefault(edge.dst, []).append(edge.src)
    anew = set()
    for id, vertex in graph.vertices.items():
        stack, seen = list(sources.get(id, ())) if vertex.expands else [], {id}
        while stack:
            source = stack.pop()
            if source in seen:
                continue
            seen.add(source)
            if source not in left:
                stack += sources.get(source, ())
            elif not all((source, index) in finished for index in range(len(left[source]))):
                anew.add(id)
                break
    widths = {id: getattr(vertex.parallelism, "expander", "") for id, vertex in graph.vertices.items()}
    return {
        (id, index)
        for id, index in finished
        if widths.get(id) in anew or any(id.startswith(f"{expander}/") for expander in anew)
    }
