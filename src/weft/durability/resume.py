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
    earlier = _read_earlier(journal, graph, digest, managers, tuning)
    tasks = _check_outputs(earlier, succeeded, outputs, exists)
    why = earlier.why or tasks.why or ("an output is gone" if tasks.gone else "")
    recorded, vertices = earlier.recorded, earlier.vertices
    incarnation = 0 if recorded is None else recorded.incarnation + 1
    if earlier.recovered is not None and not why:
        header = Header(graph=digest, tuning=tuning, incarnation=incarnation)
        finished = frozenset(tasks.finished)
        return Plan(earlier.graph, header, finished, recorded=recorded, recovered=earlier.recovered, vertices=vertices)
    if earlier.recovered is None:
        tasks.finished |= {(one.vertex, one.task) for one in kept if all(exists(path) for path in one.outputs)}
    counted = frozenset(tasks.finished - _made_anew(graph, tasks.declared, tasks.finished))
    again = probed(graph, {vertex for vertex, _ in counted})
    header = Header(graph=digest, tuning=tuning, incarnation=incarnation, restored=tuple(sorted(counted)))
    return Plan(again, header, counted, tasks.gone, why=why, recorded=recorded, vertices=vertices)


class _Earlier(Struct):
    """The run under its earlier owner, as its journal has it; `why` is the obstacle to a replay.

    `graph` is the graph that the owner ran. Of `vertices` those of patches are known only by a replay, and so are
    `finished` tasks; `widths` are the known numbers of tasks. `restored` are tasks that the owner itself took over.
    """

    graph: LogicalGraph
    vertices: dict[str, Vertex]
    widths: dict[str, int]
    recorded: Recorded | None = None
    recovered: Recovered | None = None
    restored: frozenset[Task] = frozenset()
    finished: Collection[Task] = ()
    why: str = ""


def _read_earlier(
    journal: Path, graph: LogicalGraph, digest: str, managers: Mapping[str, ManagerFactory], tuning: Tuning
) -> _Earlier:
    """Read the journal of a run and replay it if possible."""
    widths = {id: v.parallelism for id, v in graph.vertices.items() if isinstance(v.parallelism, int)}
    found = _Earlier(graph, dict(graph.vertices), widths)
    try:
        recorded = found.recorded = read_journal(journal)
        if recorded.header.graph != digest:
            raise ConflictError("the journal was written for another graph")
        found.restored = frozenset(recorded.header.restored)
        found.graph = probed(graph, {vertex for vertex, _ in found.restored})
        recovered = found.recovered = recover(found.graph, recorded, managers, digest)
    except NotFoundError:
        found.why = "there is no journal"
        return found
    except WeftError as error:
        found.why = error.message
        return found
    last = recovered.master.inspector
    if last.vertices:  # else the journal ends before the first tick
        found.widths = {row.id: max(row.n, 0) for row in last.vertices}
        found.vertices = {row.id: row.vertex for row in last.vertices}
    found.finished = last.finished_tasks()
    if recovered.pending.completed or not last.may_go_on:
        found.why = "the run had ended" if recovered.pending.completed else "something had failed"
    elif recorded.tuning != tuning:
        found.why = "another backend runs it now"
    return found


class _CheckedTasks(Struct):
    """The outputs of tasks that must leave some, by vertex and task, and the tasks by the state of these.

    `finished` tasks have all their outputs, `gone` maps others that had finished to a missing one. `why` is an obstacle
    to a replay.
    """

    declared: dict[str, list[Sequence[str] | None]]
    finished: set[Task] = field(default_factory=set)
    gone: dict[Task, str] = field(default_factory=dict)
    why: str = ""


def _check_outputs(
    earlier: _Earlier,
    succeeded: Callable[[Vertex, int], bool],
    outputs: Callable[[Vertex, int], Sequence[str] | None],
    exists: Callable[[str], bool],
) -> _CheckedTasks:
    """Look for the outputs of all tasks that have finished by the journal or by the records."""
    vertices = earlier.vertices
    found = _CheckedTasks(
        {
            id: [outputs(vertex, index) for index in range(earlier.widths.get(id, 0))]
            for id, vertex in vertices.items()
            if outputs(vertex, 0) is not None
        }
    )
    for id, tasks in found.declared.items():
        for index, paths in enumerate(tasks):
            task = (id, index)
            by_records = task in earlier.restored or succeeded(vertices[id], index)
            if vertices[id].final and not by_records:
                continue  # it runs again whenever anything else does
            if by_records and task not in earlier.finished and earlier.recovered is not None:
                found.why = "the records know more than the journal"
            if not by_records and task not in earlier.finished:
                continue
            missing = next((path for path in paths or () if not exists(path)), None)
            if missing is None:
                found.finished.add(task)
            else:
                found.gone[task] = missing
    return found


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
