"""The rules of a patch, which changes the part of a live graph that has not started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.graph.logical import (
    Bubble,
    Choice,
    Edge,
    LogicalGraph,
    Patch,
    SameAs,
    Source,
    Vertex,
    VertexKind,
)
from weft.graph.order import topological
from weft.graph.rules.controlled import check_controlled
from weft.graph.rules.edges import check_edges, check_served
from weft.graph.rules.final import check_final
from weft.graph.rules.groups import check_bubbles, check_choices, check_references
from weft.graph.rules.size import MAX_EDGES, MAX_VERTICES, check_size
from weft.graph.rules.tokens import check_held_tokens
from weft.graph.rules.vertices import check_vertices
from weft.model.errors import GraphError
from weft.model.program import Program
from weft.model.suggestions import did_you_mean
from weft.model.wording import type_of, with_article


def check_patch(graph: LogicalGraph, patch: Patch, expander_id: str) -> None:
    """Raise GraphError if `patch`, returned by the vertex `expander_id`, would make the live `graph` illegal.

    The engine checks which vertices have started; this function refuses changes to ancestors of the expander. The cost
    of a patch with nameless edges that all lead to its own vertices does not depend on the size of the graph.
    """
    expander = graph.vertices.get(expander_id)
    if expander is None or not (expander.expands or expander.kind is VertexKind.SERVICE):
        raise GraphError(
            f"vertex {expander_id!r} returned a patch, but does not expand", subject=expander_id, rule="expander"
        )
    _check_patch_parts(patch, expander_id)
    new = {vertex.id: vertex for vertex in patch.vertices}
    _check_patch_names(graph, patch, expander_id, new)
    edits = bool(patch.drop_edges) or any(edge.dst not in new for edge in patch.edges)
    kept = _kept_edges(graph, patch, expander_id) if edits or any(edge.name for edge in patch.edges) else []
    graph.vertices.update(new)  # and out again: a copy would cost as much as the graph is large
    try:
        _check_merged(graph, patch, expander_id, new, kept, edits=edits)
    finally:
        for id in new:
            del graph.vertices[id]


def _check_controlled(merged: LogicalGraph, patch: Patch) -> None:
    """Raise GraphError if a patch adds a controlled vertex, or a part that such a vertex does not allow."""
    for vertex in patch.vertices:
        if vertex.controlled:
            raise GraphError(
                f"patch adds the controlled vertex {vertex.id!r}",
                subject=vertex.id,
                rule="controlled",
                hint="Give it Range(lo, hi) tasks from the start: its controller starts as many as it needs.",
            )
    check_controlled(merged)


def _check_merged(
    graph: LogicalGraph, patch: Patch, expander_id: str, new: dict[str, Vertex], kept: list[Edge], *, edits: bool
) -> None:
    """Raise GraphError if a graph, which has the vertices of the patch already, is illegal with its other parts."""
    expander = graph.vertices[expander_id]
    merged = LogicalGraph(
        graph.name,
        graph.vertices,
        [*kept, *patch.edges],
        [*graph.bubbles, *patch.bubbles],
        [*graph.choices, *patch.choices],
        graph.on_failure,
        graph.limits,
        controller=graph.controller,
    )
    if graph.controller is not None or any(vertex.controlled for vertex in patch.vertices):
        _check_controlled(merged, patch)
    if len(merged.vertices) > MAX_VERTICES or len(graph.edges) + len(patch.edges) > MAX_EDGES:
        check_size(LogicalGraph(graph.name, merged.vertices, [*graph.edges, *patch.edges]))
    services = check_vertices(merged, new.values(), None)
    served = check_edges(merged, merged.edges)
    if edits:
        _check_untouched(graph, patch, expander_id)
        services += [id for id, v in graph.vertices.items() if v.kind is VertexKind.SERVICE and id not in new]
        topological(merged)
    else:
        # No old vertex can be reached from a new one, so only the new vertices could form a cycle.
        topological(LogicalGraph(graph.name, new, [edge for edge in patch.edges if edge.src in new]))
    check_served(services, served)
    check_held_tokens(merged, merged.edges)
    if expander.final and not all(vertex.final for vertex in patch.vertices):
        raise GraphError(
            f"patch of the final vertex {expander_id!r} has a vertex that is not final",
            subject=expander_id,
            rule="final",
        )
    check_final(merged, _final_vertices(merged, patch, whole=bool(kept)))
    whole = merged if kept else LogicalGraph(merged.name, merged.vertices, graph.edges)
    if not kept and (patch.choices or any(isinstance(vertex.parallelism, (Source, SameAs)) for vertex in new.values())):
        whole.edges = [*graph.edges, *patch.edges]
    check_references(whole, new.values())
    if merged.bubbles:
        check_bubbles(merged)
    if patch.choices:
        whole.choices = merged.choices
        check_choices(whole, merged.choices)


def _final_vertices(graph: LogicalGraph, patch: Patch, *, whole: bool) -> list[Vertex]:
    """Return the final vertices that rules about a patch concern: all if the `whole` graph is checked, else those of
    the patch, at the ends of its edges, and in groups.
    """
    ids: Iterable[str] = graph.vertices
    if not whole:
        named = [vertex.id for vertex in patch.vertices]
        ends = [end for edge in patch.edges for end in (edge.src, edge.dst)]
        bubbles = [id for bubble in graph.bubbles for id in bubble.vertices]
        branches = [id for choice in graph.choices for ids in choice.branches.values() for id in ids]
        ids = dict.fromkeys((*named, *ends, *bubbles, *branches, *(choice.decider for choice in graph.choices)))
    return [graph.vertices[id] for id in ids if id in graph.vertices and graph.vertices[id].final]


def _check_patch_parts(patch: Patch, expander_id: str) -> None:
    kinds = {"vertices": Vertex, "edges": Edge, "drop_edges": str, "bubbles": Bubble, "choices": Choice}
    for name, kind in kinds.items():
        parts = getattr(patch, name)
        whole = isinstance(parts, (tuple, list))
        for part in parts if whole else (parts,):
            if not whole or not isinstance(part, kind):
                raise GraphError(
                    f"patch of {expander_id!r} has {type_of(part)} in {name}, not {with_article(kind.__name__)}",
                    subject=expander_id,
                    rule="patch",
                    hint="Give a tuple for each field of a Patch.",
                )
    for vertex in patch.vertices:
        if not isinstance(vertex.program, Program):
            raise GraphError(
                f"patch of {expander_id!r} has {type_of(vertex.program)}, not a Program, for {vertex.id!r}",
                subject=expander_id,
                rule="patch",
            )


def namespace(graph: LogicalGraph, expander_id: str) -> str:
    """Return the id that the names of an expander's patches begin with: of the first expander that it comes from.

    So the rounds of a loop have names of one length, however many there are.
    """
    parts = expander_id.split("/")
    for length in range(1, len(parts)):
        vertex = graph.vertices.get("/".join(parts[:length]))
        if vertex is not None and (vertex.expands or vertex.kind is VertexKind.SERVICE):
            return vertex.id
    return expander_id


def _check_patch_names(graph: LogicalGraph, patch: Patch, expander_id: str, new: Mapping[str, Vertex]) -> None:
    prefix = f"{namespace(graph, expander_id)}/"
    for id in new:
        if not id.startswith(prefix):
            raise GraphError(
                f"patch of {expander_id!r} adds vertex {id!r}, whose id must begin with {prefix!r}",
                subject=id,
                rule="patch-name",
                hint="Expanders that patches have added share the names of the first one: number the rounds of a loop.",
            )
        if id in graph.vertices:
            raise GraphError(
                f"patch of {expander_id!r} adds vertex {id!r}, which exists", subject=id, rule="unique-vertex"
            )
    if len(new) != len(patch.vertices):
        raise GraphError(
            f"patch of {expander_id!r} has two vertices with one id", subject=expander_id, rule="unique-vertex"
        )


def _kept_edges(graph: LogicalGraph, patch: Patch, expander_id: str) -> list[Edge]:
    known = {edge.id for edge in graph.edges}
    for name in patch.drop_edges:
        if name not in known:
            raise GraphError(
                f"patch of {expander_id!r} drops the unknown edge {name!r}",
                subject=name,
                rule="unknown-edge",
                hint=did_you_mean(name, known),
            )
    dropped = set(patch.drop_edges)
    return [edge for edge in graph.edges if edge.id not in dropped]


def _check_untouched(graph: LogicalGraph, patch: Patch, expander_id: str) -> None:
    """Raise GraphError if `patch` changes the inputs of an ancestor of the expander: all of these have started."""
    before: dict[str, list[str]] = {}
    by_id: dict[str, Edge] = {}
    for edge in graph.edges:
        before.setdefault(edge.dst, []).append(edge.src)
        by_id[edge.id] = edge
    started = {expander_id}
    stack = [expander_id]
    while stack:
        for src in before.get(stack.pop(), ()):
            if src not in started:
                started.add(src)
                stack.append(src)
    for edge in (*patch.edges, *(by_id[name] for name in patch.drop_edges)):
        if edge.dst in started:
            raise GraphError(
                f"patch of {expander_id!r} changes the inputs of {edge.dst!r}, which has already started",
                subject=edge.id,
                rule="patch-started",
            )
