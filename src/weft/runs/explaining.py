"""The explanation of a run, and of the waits of its steps: from its owner, its journal, or its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.durability.journal import JOURNAL, read_journal, recover, same_graph
from weft.durability.probing import probed
from weft.engine.events import Done, Failed
from weft.engine.explain import Explained, ExplainedItem, edge_row, planned_edge, planned_width
from weft.engine.replay import Tick
from weft.engine.waiting import Wait
from weft.graph.logical import Role
from weft.graph.validate import mark_results
from weft.graph.visible import visible_edges
from weft.model.errors import ConflictError, DefinitionError, NotFoundError, WeftError
from weft.runs.verbs import VERBS
from weft.store.state import check_trusted, owned

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from weft.engine.inspector import Inspector
    from weft.engine.policy import ManagerFactory
    from weft.graph.logical import LogicalGraph
    from weft.runs.reading import RunRecord, StepRecord
    from weft.runs.sources import SourceHost


def explain_run(run: RunRecord, host: SourceHost) -> Explained:
    """Explain a run: by its owner, or from its folder if the owner has gone."""
    if owned(run.folder):
        try:
            return Explained.from_json(host.ask_owner(run.folder, VERBS["explain"].order()))
        except ConflictError:  # the run has ended meanwhile, or is starting
            pass
    return explain_folder(run, host)


def explain_folder(run: RunRecord, host: SourceHost) -> Explained:
    """Explain a run without an owner from its folder."""
    try:
        graph, digest = _graph_of(run, host)
    except (ConflictError, NotFoundError, DefinitionError) as error:
        if not run.of_session:
            return explain_graph(run, None, host.managers)
        return explain_graph(run, None, host.managers, why=f"its records alone tell this: {error.message}")
    return explain_graph(run, graph, host.managers, digest)


def waits_of(run: RunRecord, step: str, host: SourceHost) -> tuple[Wait, ...]:
    """Return why a step of a run, or an item of it, has not started; () if it runs or has ended.

    The owner of a live run answers. For any other run the journal has the reasons at the end of its owner; without a
    readable journal there are none. NotFoundError: the step does not exist.
    """
    record, item = run.task(step)
    begun = None if item is None else record.items.get(item)
    if record.ended is not None or (begun is not None and begun.state == "running"):
        return ()
    return waits_within(run, record.name if item is None else f"{record.name}[{item}]", host)


def waits_within(run: RunRecord, subject: str, host: SourceHost) -> tuple[Wait, ...]:
    """Return why tasks of a vertex, a task or (with "") a run have not started, as `waits_of`."""
    try:
        if owned(run.folder):
            return tuple(map(Wait.from_json, host.ask_owner(run.folder, VERBS["why"].order(subject=subject))))
        graph, digest = _graph_of(run, host)
        return replayed(run.folder, graph, host.managers, digest).waits(subject)
    except (ConflictError, NotFoundError, DefinitionError):  # the run has ended meanwhile, or its records are all
        return ()


def _graph_of(run: RunRecord, host: SourceHost) -> tuple[LogicalGraph, str]:
    """Return the submitted graph of a run; of a session also its name in the journal, else "".

    ConflictError, NotFoundError, DefinitionError: the folder of the run does not have it, or has another form.
    """
    if run.of_session:
        from weft.durability.programs import load_graph  # most runs are pipelines

        return load_graph(run.folder)
    return host.source_again(run.frontend, run.folder, run.file).compiled(run.folder), ""


def explain_graph(
    run: RunRecord,
    graph: LogicalGraph | None,
    managers: Mapping[str, ManagerFactory],
    digest: str = "",
    *,
    why: str = "its folder does not tell what the plan was",
) -> Explained:
    """Explain a run from its folder. `graph` is the submitted graph, or None for the reason `why`.

    With `digest`, the name of the graph in the journal, its results are marked, and the journal may hold pickles.

    The journal is replayed, and the resulting master is inspected. If that is impossible, the records have the end of
    each step, and a remark has the reason.
    """
    if graph is None:
        return _from_records(run, None, why)
    try:
        inspector = replayed(run.folder, graph, managers, digest)
    except WeftError as error:
        return _from_records(run, graph, f"its records alone tell this: {error.message}")
    return inspector.explain()._replace(state=run.state)


def replayed(folder: Path, graph: LogicalGraph, managers: Mapping[str, ManagerFactory], digest: str = "") -> Inspector:
    """Return the last state of the master of a run, replayed from its journal; arguments as for `explain_graph`.

    Errors are those of `read_journal`, `recover` and `check_trusted`.
    """
    if digest:
        check_trusted(folder, JOURNAL)
    recorded = read_journal(folder / JOURNAL, trusted=bool(digest))
    restored = {vertex for vertex, _ in recorded.header.restored}
    probed_graph = probed(graph, restored) if restored else graph
    if not digest:
        digest = recorded.header.graph if same_graph(recorded.header.graph, graph) else ""
        mark_results(probed_graph)
    return recover(probed_graph, recorded, managers, digest).master.inspector


def _from_records(run: RunRecord, graph: LogicalGraph | None, remark: str) -> Explained:
    given = {} if graph is None else graph.vertices
    vertices = {vertex.shown: vertex for vertex in given.values() if vertex.role is Role.OWN}
    known = {step.name: step for step in run.steps}
    rows = [
        ExplainedItem(
            name,
            planned_width(vertices[name]) if name in vertices else "(not known)",
            _became(known[name]) if name in known else "(not known)",
        )
        for name in dict.fromkeys((*vertices, *known))
    ]
    rows += [
        edge_row(edge, given, planned_edge(edge), "(not known)")
        for edge in (visible_edges(given, graph.edges) if graph is not None else ())
    ]
    return Explained(run.name or run.id, run.state, tuple(rows), (), remark)


def _became(step: StepRecord) -> str:
    return f"{step.state}, {step.attempts} attempts" if step.attempts > 1 else step.state


class JournalFacts(NamedTuple):
    """What the journal of a run tells without a replay: the version of Weft that began it, and the time in its tasks.

    `busy_s` is the sum over all attempts of tasks, in seconds; None if the journal does not have all of them.
    """

    weft: str = ""
    busy_s: float | None = None


def journal_facts(run: RunRecord) -> JournalFacts:
    """Return what the journal of a run tells, live or ended; nothing of one that is missing or cannot be read."""
    try:
        if run.of_session:
            check_trusted(run.folder, JOURNAL)
        recorded = read_journal(run.folder / JOURNAL, trusted=run.of_session)
    except WeftError:
        return JournalFacts()
    ends = (event for tick in recorded.records if isinstance(tick, Tick) for event in tick.events)
    busy = sum(event.seconds for event in ends if isinstance(event, (Done, Failed)))
    return JournalFacts(recorded.header.weft, None if recorded.snapshot else busy)
