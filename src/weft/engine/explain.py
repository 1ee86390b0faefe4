"""`explain`: the submitted graph beside the executed graph, and every change with its reason.

All is derived: the plan from the submitted graph, the execution from the stages and links, and the reasons from the
ring of history entries, in which a manager's decision stands with the figures behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.engine.core import NOTES
from weft.engine.machines.vertex import ENDED, VertexState
from weft.engine.notes import NoteKind
from weft.engine.text import change_of, seen_by, tasks
from weft.engine.unrun import unrun
from weft.graph.builder import tasks_text
from weft.graph.logical import MovementKind, Role, Storage, Trigger, VertexKind
from weft.graph.projection import GRAPHS
from weft.graph.rectangles import Rectangles
from weft.graph.visible import visible_edges

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from weft.engine.core import Core
    from weft.engine.notes import Note
    from weft.engine.physical import ControlColumns, PhysicalEdge, Stage
    from weft.graph.logical import Edge, Vertex

CHANGES: Final = frozenset(
    {
        NoteKind.BACKUP_STARTED,
        NoteKind.BRANCH_SKIPPED,
        NoteKind.BRANCH_TAKEN,
        NoteKind.BUBBLE_ASKS,
        NoteKind.BUBBLE_GRANTED,
        NoteKind.BUBBLE_REFUSED,
        NoteKind.BUBBLE_SHRUNK,
        NoteKind.BUBBLE_TIMED_OUT,
        NoteKind.CONFIGURED,
        NoteKind.CONTROLLER_DECIDED,
        NoteKind.CONTROLLER_FAILED,
        NoteKind.CONTROL_DECIDED,
        NoteKind.DECIDED_TO_FAIL,
        NoteKind.DECISION_REJECTED,
        NoteKind.ENDED_EARLY,
        NoteKind.LAST_WORKER,
        NoteKind.MANAGER_DECIDED,
        NoteKind.MANAGER_FAILED,
        NoteKind.MANAGER_HOLDS,
        NoteKind.MANAGER_SILENT,
        NoteKind.NODES_AWAITED,
        NoteKind.NODE_DRAINING,
        NoteKind.NODE_JOINED,
        NoteKind.OUTPUTS_LOST,
        NoteKind.PATCHED,
        NoteKind.REGION_RESTARTS,
        NoteKind.SERVICE_UNUSED,
        NoteKind.WORKER_EXCLUDED,
        NoteKind.WORKER_READMITTED,
    }
)
"""The kinds of history entries about changes of the graph; all others are about tasks and workers."""

_MOVES = {
    MovementKind.NONE: "order only",
    MovementKind.ONE_TO_ONE: "one to one",
    MovementKind.BROADCAST: "all to all",
    MovementKind.GRID: "grid",
    MovementKind.CUSTOM: "custom",
}


class ExplainedItem(NamedTuple):
    """A vertex, edge, bubble or choice, as planned and as executed.

    `kind` is one of these words, for programs. `ends` are the display names of the source and the target of an edge.
    """

    subject: str
    planned: str
    executed: str
    kind: str = "vertex"
    ends: tuple[str, ...] = ()


class Change(NamedTuple):
    """A change of the graph, `at` seconds after the start of the job: subject, reason, and the figures `seen` by its
    decider.

    `kind` is the word of a `NoteKind`, for programs; `what` and `seen` are text.
    """

    at: float
    subject: str
    kind: str
    what: str
    seen: str = ""


class Explained(NamedTuple):
    """A plan beside its execution. `remark` names missing information, if any."""

    name: str
    state: str
    rows: tuple[ExplainedItem, ...]
    changes: tuple[Change, ...] = ()
    remark: str = ""

    def lines(self) -> list[str]:
        """Return lines of text."""
        lines = [f"{self.name}: {self.state}", *_table([ExplainedItem("", "planned", "executed"), *self.rows])]
        if self.changes:
            lines.append("changes, and what they were made from:")
        for change in self.changes:
            seen = f" (seen: {change.seen})" if change.seen else ""
            lines.append(f"{change.at:10.3f}s  {change.subject}: {change.what}{seen}")
        return [*lines, f"  ({self.remark})"] if self.remark else lines

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        return {
            "name": self.name,
            "state": self.state,
            "graph": [row._asdict() for row in self.rows],
            "changes": [change._asdict() for change in self.changes],
            "remark": self.remark,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Explained:
        """Return the object that `to_json` wrote. KeyError, TypeError: `values` is no such object."""
        return cls(
            document["name"],
            document["state"],
            tuple(ExplainedItem(**row)._replace(ends=tuple(row.get("ends", ()))) for row in document["graph"]),
            tuple(Change(**change) for change in document["changes"]),
            document["remark"],
        )


def explain(core: Core) -> Explained:
    """Return vertices, edges, bubbles and choices as planned and as executed, and the changes between."""
    planned = core.submitted
    widths = {vertex.id: planned_width(vertex) for vertex in planned.vertices}
    rows = [
        ExplainedItem(
            stage.vertex.shown,
            widths.get(stage.id) or f"(added by {shown(core, _adder(stage.id, widths))})",
            _executed(core, stage),
        )
        for stage in core.order
        if stage.vertex.role is Role.OWN
    ]
    rows += _edge_rows(core)
    declared = {bubble.id: bubble.vertices for bubble in planned.bubbles}
    for row in core.bubbles:
        given = declared.get(row.bubble.id)
        left = ", ".join(stage.vertex.shown for stage in row.stages)
        planned_as = ", ".join(shown(core, id) for id in given) if given else "(added)"
        rows.append(ExplainedItem(f"bubble {row.bubble.id}", planned_as, left or "dissolved", "bubble"))
    for name, choice in core.choices.items():
        if core.by_id[choice.choice.decider].vertex.role is Role.HELPER:
            continue
        rows.append(
            ExplainedItem(
                f"choice {shown(core, name)}",
                " or ".join(choice.choice.branches),
                choice.taken or "not decided",
                "choice",
            )
        )
    full = len(core.ring) == NOTES
    return Explained(
        core.graph.name,
        core.status.value,
        tuple(rows),
        tuple(_change(core, note) for note in tuple(core.ring) if note.kind in CHANGES and not _of_helper(core, note)),
        f"only the last {len(core.ring):,} notes are kept: earlier changes may be missing" if full else "",
    )


def _edge_rows(core: Core) -> Iterator[ExplainedItem]:
    """Yield the planned edges, then those that patches have added."""
    planned = core.submitted
    submitted = {vertex.id: vertex for vertex in planned.vertices}
    links = dict(core.links)
    own = {edge.id for edge in planned.edges}
    for edge in visible_edges(submitted, planned.edges):
        link = links.get(edge.id)
        became = planned_edge(edge) if edge.id not in own else _link(link) if link is not None else "dropped"
        yield edge_row(edge, submitted, planned_edge(edge), became)
    added = [link for id, link in links.items() if id not in own]
    for link in added:
        if link.src.vertex.role is link.dst.vertex.role is Role.OWN:
            yield edge_row(link.edge, core.graph.vertices, "(added)", _link(link))


def _of_helper(core: Core, note: Note) -> bool:
    stage = core.by_id.get(note.subject.partition("[")[0])
    return stage is not None and stage.vertex.role is Role.HELPER


def shown(core: Core, subject: str) -> str:
    """Return the display name of a vertex or task; any other subject unchanged."""
    id, bracket, rest = subject.partition("[")
    stage = core.by_id.get(id)
    return subject if stage is None else f"{stage.vertex.shown}{bracket}{rest}"


def edge_row(edge: Edge, vertices: Mapping[str, Vertex], planned: str, executed: str) -> ExplainedItem:
    """Return the row of an edge; its display name is its name, else the names of its ends."""
    ends = tuple(vertices[id].shown if id in vertices else id for id in (edge.src, edge.dst))
    return ExplainedItem(edge.name or "->".join(ends), planned, executed, "edge", ends)


def _change(core: Core, note: Note) -> Change:
    what = change_of(note)
    if note.kind is NoteKind.BRANCH_SKIPPED and _decided_by_helper(core, note.data["choice"]):
        what = "skipped"
    return Change(note.at - core.started_at, shown(core, note.subject), note.kind.word, what, seen_by(note))


def _decided_by_helper(core: Core, choice: str) -> bool:
    row = core.choices.get(choice)
    return row is not None and core.by_id[row.choice.decider].vertex.role is Role.HELPER


def _table(rows: list[ExplainedItem]) -> list[str]:
    first, second = max(len(row.subject) for row in rows), max(len(row.planned) for row in rows)
    return [f"  {a:{first}}  {b:{second}}  {c}".rstrip() for a, b, c, *_ in rows]


def planned_width(vertex: Vertex) -> str:
    """Render the planned number of tasks of a vertex."""
    if vertex.controlled:
        return "as the controller says" + (", service" if vertex.kind is VertexKind.SERVICE else "")
    text = tasks_text(vertex)
    text = tasks(int(text)) if text.isdigit() else f"{text} tasks" if text[0].isdigit() else text
    if vertex.kind is VertexKind.SERVICE:
        text += ", service"
    return f"{text}, by {vertex.manager.name}" if vertex.manager is not None else text


def _executed(core: Core, stage: Stage) -> str:
    if stage.status is VertexState.SKIPPED:
        return "skipped"
    if stage.n < 0:
        return _ending(core, stage) if stage.status in ENDED else "not known yet"
    if stage.control is not None:
        return _controlled(stage, stage.control)
    text = tasks(stage.n)
    if stage.finished < stage.n and stage.vertex.kind is not VertexKind.SERVICE:
        text = f"{stage.finished:,} of {text}"
    if stage.status is VertexState.DONE_EARLY:
        return f"{text}, ended early"
    if stage.status in ENDED and stage.status is not VertexState.DONE:
        return f"{text}, {_ending(core, stage)}"
    return text if stage.status in ENDED else f"{text} so far"


def _ending(core: Core, stage: Stage) -> str:
    """Return how a stage has ended without success, in the words of `show`."""
    cause = unrun(core, stage).failed
    own = not cause or core.by_id[cause].vertex.step == stage.vertex.step  # its own decider or list has failed
    return GRAPHS.step(stage.status, started=stage.began or (stage.status is VertexState.FAILED and own))


def _controlled(stage: Stage, columns: ControlColumns) -> str:
    """Render the tasks of a controlled vertex that have ever started, and how often."""
    started = sum(map(bool, columns.starts))
    again = sum(columns.starts) - started
    text = f"{tasks(started)} started"
    return f"{text}, {again} starts again" if again else text


def _adder(id: str, known: Collection[str]) -> str:
    return max((name for name in known if id.startswith(f"{name}/")), key=len, default="a patch")


def planned_edge(edge: Edge) -> str:
    """Render the movement, the scheduling and the storage of a planned edge."""
    scheduling = edge.scheduling
    movement = edge.movement
    if movement.move is MovementKind.SCATTER_GATHER:
        text = f"shuffle of {movement.partitions:,}" if movement.partitions else "shuffle"
    else:
        text = _MOVES[movement.move]
    if scheduling.concurrent:
        text += ", concurrent"
    if scheduling.when is Trigger.EVENT:
        text += f", at {scheduling.event!r}"
    elif scheduling.when is Trigger.FRACTION:
        text += f", at {scheduling.fraction:.0%}"
    return text if edge.storage is Storage.NONE else f"{text}, {edge.storage.value}"


def _link(link: PhysicalEdge) -> str:
    text = planned_edge(link.edge)
    if isinstance(link.router, Rectangles) and link.dst.n >= 0:
        text += f", regrouped for {tasks(link.dst.n)}"
    if link.src.vertex.counted and link.data:
        text += f", {link.src.rows:,} rows of {link.src.written:,} bytes"
    return text
