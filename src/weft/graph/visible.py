"""Graphs as users know them: without the helpers that a front end adds for its own steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.graph.logical import NONE, Edge, Role, Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.graph.logical import LogicalGraph, Vertex


def visible(graph: LogicalGraph) -> LogicalGraph:
    """Return a graph without helpers: their edges are joined, and their choices are left out."""
    found = graph.copy()
    found.vertices = {id: vertex for id, vertex in graph.vertices.items() if vertex.role is Role.OWN}
    found.edges = visible_edges(graph.vertices, graph.edges)
    found.choices = [choice for choice in graph.choices if choice.decider in found.vertices]
    return found


def visible_edges(vertices: Mapping[str, Vertex], edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges between vertices that are no helpers; a path through helpers becomes an order-only edge."""
    hidden = {id for id, vertex in vertices.items() if vertex.role is Role.HELPER}
    found = {(edge.src, edge.dst): edge for edge in edges if not hidden.intersection((edge.src, edge.dst))}
    if not hidden:
        return list(edges)
    inputs: dict[str, list[str]] = {}
    for edge in edges:
        inputs.setdefault(edge.dst, []).append(edge.src)
    for dst in vertices:
        todo, seen = [src for src in inputs.get(dst, ()) if dst not in hidden and src in hidden], set()
        while todo:
            if (helper := todo.pop()) in seen:
                continue
            seen.add(helper)
            for src in inputs.get(helper, ()):
                if src in hidden:
                    todo.append(src)
                else:
                    found.setdefault((src, dst), Edge(src, dst, NONE, storage=Storage.NONE))
    return list(found.values())


def conditions(graph: LogicalGraph) -> dict[str, str]:
    """Return a remark on each vertex that a helper may skip: a helper without a step skips it always."""
    found: dict[str, str] = {}
    for choice in graph.choices:
        decider = graph.vertices[choice.decider]
        if decider.role is Role.HELPER:
            remark = f"if the condition of {decider.label} is true" if decider.label else "not run"
            members = (id for branch in choice.branches.values() for id in branch)
            found |= {id: remark for id in members if found.get(id) != "not run"}
    return found
