"""The plan of a resume for a run that ended without success, or whose owner was killed.

The first possible way of two is taken. *Replay*: the journal is readable and of this graph, nothing has failed, and all
finished outputs exist. A new master is brought to the state of the old one, with every decision and number, and
continues. *Facts*: the job begins again, and its recorded finished tasks count as finished. Failed runs, runs with a
missing output, and runs of an older format resume this way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field

from weft.durability.journal import Header, Recovered, edited_digest, read_journal, recover
from weft.durability.probing import probed
from weft.graph.validate import mark_results
from weft.model.errors import ConflictError, NotFoundError, WeftError

if TYPE_CHECKING:
    from pathlib import Path

    from weft.durability.journal import Recorded
    from weft.engine.policy import ManagerFactory
    from weft.engine.tuning import Tuning
    from weft.graph.logical import LogicalGraph, Vertex


Task = tuple[str, int]
"""A vertex and the index of one of its tasks."""


class FinishedTask(NamedTuple):
    """A finished task of a vertex that was added while the graph ran; `name` is that of its step."""

    vertex: str
    task: int
    name: str
    outputs: tuple[str, ...]


class Plan(Struct):
    """The plan of a resume.

    `graph` is the graph to run, and `header` begins a new journal of it. With `recovered` the earlier journal is
    replayed and continued; otherwise `why` is the obstacle. `restored` are tasks that are not run again. `gone` maps
    finished tasks that are run again to the missing output ("" for a value). `answers` has the known values of
    expanders. `ended`: the run had succeeded. `vertices` are all known ones, those of patches included.
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
    succeeded: Callable[[Vertex, int], bool],
    outputs: Callable[[Vertex, int], Sequence[str] | None],
    exists: Callable[[str], bool] = os.path.lexists,
    kept: Iterable[FinishedTask] = (),
    edits: int = 0,
) -> Plan:
    """Plan the resume of a run; changes nothing.

    `graph` is the graph of the run at its begin. `succeeded` returns whether the records contain the success of a task;
    `outputs` returns the paths that a task must have left (None: the vertex always runs again unless the journal is
    replayed). `kept` are tasks that had finished before an edit of the graph, of vertices added at run time. `edits`
    counts the edits that have steps run again: journals before the last one are not trusted beyond the records, even if
    the graph itself is unchanged.
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
        again = probed(graph, {vertex for vertex, _ in before})
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
    declared = {
        id: [outputs(vertex, index) for index in range(widths.get(id, 0))]
        for id, vertex in vertices.items()
        if outputs(vertex, 0) is not None
    }
    for id, tasks in declared.items():
        for index, paths in enumerate(tasks):
            task = (id, index)
            by_records = task in before or succeeded(vertices[id], index)
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
    counted = frozenset(finished - _made_anew(graph, declared, finished))
    again = probed(graph, {vertex for vertex, _ in counted})
    header = Header(graph=digest, tuning=tuning, incarnation=incarnation, restored=tuple(sorted(counted)))
    return Plan(again, header, counted, gone, why=why, recorded=recorded, vertices=vertices)


def _made_anew(graph: LogicalGraph, declared: Mapping[str, Sequence[object]], finished: Collection[Task]) -> set[Task]:
    """Return the finished tasks that may differ this time: the source of their number reads new input."""
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
            if source not in declared:
                stack += sources.get(source, ())
            elif not all((source, index) in finished for index in range(len(declared[source]))):
                anew.add(id)
                break
    widths = {id: getattr(vertex.parallelism, "expander", "") for id, vertex in graph.vertices.items()}
    return {
        (id, index)
        for id, index in finished
        if widths.get(id) in anew or any(id.startswith(f"{expander}/") for expander in anew)
    }
