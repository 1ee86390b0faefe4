"""Pictures of graphs: DOT for Graphviz, text for a terminal, and the same content as plain data; without helpers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any

from weft.graph.builder import tasks_text
from weft.graph.logical import (
    Edge,
    LogicalGraph,
    MovementKind,
    Outcome,
    Scheduling,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
)
from weft.graph.order import topological
from weft.graph.visible import conditions, visible
from weft.model.resources import ONE_SLOT_ONLY
from weft.model.wording import counted

_SYMBOLS = {
    MovementKind.NONE: ("after", "order only"),
    MovementKind.ONE_TO_ONE: ("=", "task i reads task i"),
    MovementKind.BROADCAST: ("*", "every task reads all"),
    MovementKind.SCATTER_GATHER: ("#", "task p reads piece p of all"),
    MovementKind.GRID: ("[]", "a map of chunk grids"),
    MovementKind.CUSTOM: ("?", "a router of its own"),
}


def to_text(graph: LogicalGraph, *, columns: int = 80) -> str:
    """Draw `graph` from top to bottom: a line for each vertex, in topological order, with its width and inputs.

    Longer lines are wrapped at `columns`. A letter in the margin names the bubble of a vertex; a legend explains the
    symbols that occur. GraphError: the graph has a cycle.
    """
    remarks, graph = conditions(graph), visible(graph)
    margin = {id: chr(ord("a") + at % 26) for at, bubble in enumerate(graph.bubbles) for id in bubble.vertices}
    names = {id: vertex.shown for id, vertex in graph.vertices.items()}
    inputs: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        inputs.setdefault(edge.dst, []).append(edge)
    lines = [f"{graph.name}: {counted(len(graph.vertices), 'vertex', 'vertices')}, {counted(len(graph.edges), 'edge')}"]
    for id in topological(graph):
        head = _vertex_text(graph.vertices[id], remarks)
        head = f"{margin.get(id, ' ')} {head}" if margin else head
        reads = [_edge_text(edge, names[edge.src]) for edge in inputs.get(id, ())]
        lines += _fold(head, reads, columns)
    lines += [
        f"{margin[bubble.vertices[0]]}: bubble {bubble.id}{', whole' if bubble.whole else ''}"
        f"{', prewarmed' if bubble.prewarmed else ''}"
        for bubble in graph.bubbles
        if bubble.vertices
    ]
    for choice in graph.choices:
        branches = "; ".join(f"{name}: {', '.join(names[id] for id in ids)}" for name, ids in choice.branches.items())
        lines += _fold(f"choice {names.get(choice.id, choice.id)} by {names[choice.decider]}", [branches], columns)
    return "\n".join(lines + _legend(graph, columns))


def _fold(head: str, rest: Iterable[str], columns: int) -> list[str]:
    return wrap(
        "  ".join((head, *rest)),
        max(columns, 20),
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def _vertex_text(vertex: Vertex, remarks: Mapping[str, str]) -> str:
    return f"{vertex.shown} x {tasks_text(vertex)}{''.join(f' ({note})' for note in _notes(vertex, remarks))}"


def _notes(vertex: Vertex, remarks: Mapping[str, str]) -> list[str]:
    notes = [remarks[vertex.id]] if vertex.id in remarks else []
    if vertex.kind is VertexKind.SERVICE:
        notes.append("service")
    if vertex.controlled:
        notes.append("controlled")
    if vertex.final:
        notes.append("at the end, whatever happened")
    if vertex.expands:
        notes.append("expands")
    if vertex.keep:
        notes.append("kept")
    if vertex.resources != ONE_SLOT_ONLY:
        notes.append(" or ".join(str(needs) for needs in vertex.resources))
    if vertex.placement is not None:
        notes.append(f"on {vertex.placement.node or vertex.placement.party}")
    return notes


def _edge_text(edge: Edge, source: str) -> str:
    arrow = "<~" if edge.scheduling.concurrent else "<-"
    notes = _edge_notes(edge)
    return f"{arrow} {_movement_text(edge)} {source}{f' ({notes})' if notes else ''}"


def _movement_text(edge: Edge) -> str:
    movement = edge.movement
    symbol = _SYMBOLS[movement.move][0]
    if movement.grid is not None:
        src, dst = (",".join("n" if size < 0 else str(size) for size in shape) for shape in _shapes(edge))
        return f"[{src}>{dst}]"
    if movement.partitions:
        symbol += str(movement.partitions)
    return symbol + movement.name


def _shapes(edge: Edge) -> tuple[tuple[int, ...], tuple[int, ...]]:
    grid = edge.movement.grid
    return (grid.src, grid.dst) if grid is not None else ((), ())


def _edge_notes(edge: Edge) -> str:
    notes = [_when_text(edge.scheduling)]
    if edge.storage not in (Storage.LOCAL, Storage.NONE):
        notes.append(edge.storage.value)
    if edge.blocking:
        notes.append("blocking")
    return ", ".join(note for note in notes if note)


def _when_text(scheduling: Scheduling) -> str:
    notes = []
    if scheduling.when is Trigger.EVENT:
        notes.append(f"event {scheduling.event}")
    elif scheduling.when is Trigger.SOURCE_CONFIGURED:
        notes.append("once configured")
    elif scheduling.fraction < 1:
        notes.append(f"{scheduling.fraction:.0%} {'running' if scheduling.concurrent else 'done'}")
    if scheduling.outcome is not Outcome.SUCCESS:
        notes.append("whatever the end" if scheduling.outcome is Outcome.ANY else "if one succeeds")
    return ", ".join(notes)


def _legend(graph: LogicalGraph, columns: int) -> list[str]:
    used = {edge.movement.move for edge in graph.edges}
    words = [
        f"{symbol} {meaning}" for move, (symbol, meaning) in _SYMBOLS.items() if move in used and symbol != "after"
    ]
    if any(edge.scheduling.concurrent for edge in graph.edges):
        words.append("<~ at the same time")
    return _fold("legend:", ["; ".join(words)], columns) if words else []


# ------------------------------------------------------------------------------------------------------------ dot


def to_dot(graph: LogicalGraph) -> str:
    """Draw `graph` in the DOT language: bubbles as boxes, services double-edged, order-only edges dotted."""
    remarks, graph = conditions(graph), visible(graph)
    lines = [f"digraph {_quoted(graph.name)} {{", "  node [shape=box, style=rounded];"]
    placed: set[str] = set()
    for at, bubble in enumerate(graph.bubbles):
        lines += [f"  subgraph cluster_{at} {{", f"    label={_quoted(bubble.id)};", "    style=dashed;"]
        members = [id for id in bubble.vertices if id in graph.vertices and id not in placed]
        placed.update(members)
        lines += [f"    {_node(graph.vertices[id], remarks)}" for id in members]
        lines.append("  }")
    lines += [f"  {_node(vertex, remarks)}" for id, vertex in graph.vertices.items() if id not in placed]
    lines += [f"  {_quoted(edge.src)} -> {_quoted(edge.dst)}{_attributes(edge)};" for edge in graph.edges]
    for choice in graph.choices:
        for branch, ids in choice.branches.items():
            lines += [
                f"  {_quoted(choice.decider)} -> {_quoted(id)} [style=dashed, arrowhead=odiamond, constraint=false, "
                f"label={_quoted(branch)}];"
                for id in ids[:1]
            ]
    return "\n".join((*lines, "}"))


def to_plain(graph: LogicalGraph) -> dict[str, Any]:
    """Return the content of a drawing of `graph` as data for JSON: its name, vertices, edges, bubbles and choices.

    The `name` of a vertex is for users. `tasks` is a number if it is known before the run, else the text of the
    drawing; `moves` names the movement.
    """
    remarks, graph = conditions(graph), visible(graph)
    return {
        "name": graph.name,
        "vertices": [
            {
                "id": vertex.id,
                "name": vertex.shown,
                "tasks": vertex.parallelism if isinstance(vertex.parallelism, int) else tasks_text(vertex),
                "notes": _notes(vertex, remarks),
            }
            for vertex in graph.vertices.values()
        ],
        "edges": [
            {"from": edge.src, "to": edge.dst, "moves": edge.movement.move.value, "notes": _edge_notes(edge)}
            for edge in graph.edges
        ],
        "bubbles": [{"id": bubble.id, "vertices": list(bubble.vertices)} for bubble in graph.bubbles],
        "choices": [
            {
                "id": choice.id,
                "decider": choice.decider,
                "branches": {name: list(ids) for name, ids in choice.branches.items()},
            }
            for choice in graph.choices
        ],
    }


def _quoted(text: str) -> str:
    clean = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{clean}"'


def _node(vertex: Vertex, remarks: Mapping[str, str]) -> str:
    label = "\n".join((f"{vertex.shown} x {tasks_text(vertex)}", *_notes(vertex, remarks)))
    double = ", peripheries=2" if vertex.kind is VertexKind.SERVICE else ""
    return f"{_quoted(vertex.id)} [label={_quoted(label)}{double}];"


def _attributes(edge: Edge) -> str:
    move = edge.movement.move
    words = [
        _movement_text(edge) if move not in (MovementKind.NONE, MovementKind.ONE_TO_ONE) else "",
        _edge_notes(edge),
    ]
    found = []
    label = " ".join(word for word in words if word)
    if label:
        found.append(f"label={_quoted(label)}")
    if move is MovementKind.NONE:
        found.append("style=dotted")
    if edge.scheduling.concurrent:
        found.append('color="black:invis:black"')
    return f" [{', '.join(found)}]" if found else ""
