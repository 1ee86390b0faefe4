"""The rules of parts that name vertices: parallelism taken from another vertex, bubbles and choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from weft.graph.logical import (
    Bubble,
    Choice,
    LogicalGraph,
    SameAs,
    Source,
    Vertex,
)
from weft.graph.order import followers, reached_from
from weft.graph.rules.vertices import bad_name, check_timeout
from weft.model.errors import GraphError
from weft.model.ids import is_name
from weft.model.suggestions import did_you_mean


def check_references(graph: LogicalGraph, vertices: Iterable[Vertex]) -> None:
    """Raise GraphError if a vertex takes its number of tasks from a vertex that cannot say it."""
    after: dict[str, list[str]] = {}
    reach: dict[str, set[str]] = {}

    def leads(src: str, dst: str) -> bool:
        if not after:
            after.update(followers(graph.edges))
        if dst in after.get(src, ()):
            return True
        if src not in reach:
            reach[src] = reached_from(after, src)
        return dst in reach[src]

    for vertex in vertices:
        n = vertex.parallelism
        if type(n) is int:
            continue
        if isinstance(n, Source):
            _check_source(graph, vertex, n.expander, leads)
        elif isinstance(n, SameAs):
            _check_same_as(graph, vertex, n.vertex, leads)


def _check_source(graph: LogicalGraph, vertex: Vertex, expander: str, leads: Callable[[str, str], bool]) -> None:
    other = graph.vertices.get(expander) if isinstance(expander, str) else None
    if other is None:
        raise _unknown_reference(graph, vertex, expander)
    if not other.expands:
        raise GraphError(
            f"vertex {vertex.id!r} takes its parallelism from {expander!r}, which does not expand",
            subject=vertex.id,
            rule="expander",
            hint=f"Set expands=True on {expander!r}, so that the master reads its value.",
        )
    if not leads(expander, vertex.id):
        raise GraphError(
            f"vertex {vertex.id!r} takes its parallelism from {expander!r}, but no path of edges leads from there",
            subject=vertex.id,
            rule="expander-path",
            hint=f"Add an order-only edge from {expander!r}.",
        )


def _check_same_as(graph: LogicalGraph, vertex: Vertex, other: str, leads: Callable[[str, str], bool]) -> None:
    seen = {vertex.id}
    at = other
    while True:
        if isinstance(at, str) and at in seen:
            raise GraphError(
                f"vertex {vertex.id!r} takes its parallelism from itself, by way of {other!r}",
                subject=vertex.id,
                rule="same-as",
                hint="Give one of these vertices a parallelism of its own.",
            )
        target = graph.vertices.get(at) if isinstance(at, str) else None
        if target is None:
            raise _unknown_reference(graph, vertex, at)
        seen.add(at)
        if not isinstance(target.parallelism, SameAs):
            break
        at = target.parallelism.vertex
    if not isinstance(target.parallelism, int) and leads(vertex.id, at):
        raise GraphError(
            f"vertex {vertex.id!r} takes its parallelism from {at!r}, which is known only after {vertex.id!r} has run",
            subject=vertex.id,
            rule="same-as",
            hint=f"Fix the parallelism of {at!r}, or let it have as many tasks as {vertex.id!r}.",
        )


def _unknown_reference(graph: LogicalGraph, vertex: Vertex, name: object) -> GraphError:
    if not isinstance(name, str):
        id = getattr(name, "id", None)
        return GraphError(
            f"vertex {vertex.id!r} takes its parallelism from {name!r}, which is not the id of a vertex",
            subject=vertex.id,
            rule="unknown-vertex",
            hint=f"Give the id of the node: {id!r}." if isinstance(id, str) else "Give the id of a vertex, a string.",
        )
    return GraphError(
        f"vertex {vertex.id!r} takes its parallelism from the unknown vertex {name!r}",
        subject=vertex.id,
        rule="unknown-vertex",
        hint=did_you_mean(name, graph.vertices),
    )


def check_bubbles(graph: LogicalGraph) -> None:
    """Raise GraphError for the first rule that a bubble breaks."""
    bubble_of: dict[str, str] = {}
    ids: set[str] = set()
    for bubble in graph.bubbles:
        _check_group("bubble", bubble, ids)
        if not bubble.vertices:
            raise GraphError(f"bubble {bubble.id!r} has no vertices", subject=bubble.id, rule="bubble")
        check_timeout(f"bubble {bubble.id!r}", bubble.id, bubble.timeout_s)
        for id in bubble.vertices:
            if id not in graph.vertices:
                raise GraphError(
                    f"bubble {bubble.id!r} names the unknown vertex {id!r}",
                    subject=bubble.id,
                    rule="unknown-vertex",
                    hint=did_you_mean(id, graph.vertices),
                )
            if id in bubble_of:
                raise GraphError(
                    f"vertex {id!r} is in two bubbles, {bubble_of[id]!r} and {bubble.id!r}",
                    subject=id,
                    rule="two-bubbles",
                    hint="Remove it from one of them.",
                )
            bubble_of[id] = bubble.id
    if bubble_of:
        _check_bubble_answers(graph, bubble_of)
        _check_bubble_order(graph, bubble_of)


def _check_bubble_answers(graph: LogicalGraph, bubble_of: Mapping[str, str]) -> None:
    """Raise GraphError if a member of a bubble waits for the decision of another member.

    A bubble acquires all its slots before any member runs, so such a bubble would never start.
    """
    answers: dict[str, set[str]] = {}
    for choice in graph.choices:
        for branch in choice.branches.values():
            for id in branch:
                answers.setdefault(id, set()).add(choice.decider)
    for id, bubble in bubble_of.items():
        n = graph.vertices[id].parallelism
        seen: set[str] = set()
        while isinstance(n, SameAs) and n.vertex in graph.vertices and n.vertex not in seen:
            seen.add(n.vertex)
            n = graph.vertices[n.vertex].parallelism
        expanders = answers.get(id, set()) | ({n.expander} if isinstance(n, Source) else set())
        for expander in sorted(expanders):
            if bubble_of.get(expander) == bubble:
                raise GraphError(
                    f"bubble {bubble!r} has {id!r} and {expander!r}, but {id!r} waits for {expander!r} to decide",
                    subject=bubble,
                    rule="bubble-answer",
                    hint=f"Remove {expander!r} from the bubble.",
                )


def _check_bubble_order(graph: LogicalGraph, bubble_of: Mapping[str, str]) -> None:
    """Raise GraphError if a path leaves a bubble and comes back.

    A bubble starts as a whole: the graph with each bubble as one node must have no cycle.
    """
    below: dict[str, set[str]] = {}
    waiting: dict[str, int] = {}
    node = {id: f"bubble {bubble_of[id]}" if id in bubble_of else id for id in graph.vertices}
    for edge in graph.edges:
        src, dst = node[edge.src], node[edge.dst]
        if src != dst and dst not in below.setdefault(src, set()):
            below[src].add(dst)
            waiting[dst] = waiting.get(dst, 0) + 1
    free = [name for name in dict.fromkeys(node.values()) if not waiting.get(name)]
    seen = 0
    while free:
        seen += 1
        for dst in below.get(free.pop(), ()):
            waiting[dst] -= 1
            if not waiting[dst]:
                free.append(dst)
    if seen != len(set(node.values())):
        blocked = sorted(name for name, left in waiting.items() if left and name.startswith("bubble "))
        bubble = blocked[0].removeprefix("bubble ")
        raise GraphError(
            f"bubble {bubble!r} would wait for itself: a path leaves it and comes back",
            subject=bubble,
            rule="bubble-order",
            hint="Put the vertices on that path into the bubble too, or split it.",
        )


def _check_group(what: str, group: Bubble | Choice, ids: set[str]) -> None:
    if not is_name(group.id):
        raise bad_name(what, group.id)
    if group.id in ids:
        raise GraphError(f"two {what}s have the id {group.id!r}", subject=group.id, rule=f"unique-{what}")
    ids.add(group.id)


def check_choices(graph: LogicalGraph, choices: Iterable[Choice]) -> None:
    """Raise GraphError for the first rule that a choice breaks."""
    ids: set[str] = set()
    after = followers(graph.edges)
    for choice in choices:
        _check_group("choice", choice, ids)
        _check_choice(graph, choice, after)


def _check_choice(graph: LogicalGraph, choice: Choice, after: Mapping[str, list[str]]) -> None:
    def wrong(what: str, hint: str = "", rule: str = "choice") -> GraphError:
        return GraphError(f"choice {choice.id!r} {what}", subject=choice.id, rule=rule, hint=hint)

    decider = graph.vertices.get(choice.decider)
    if decider is None:
        raise wrong(
            f"has the unknown decider {choice.decider!r}",
            did_you_mean(choice.decider, graph.vertices),
            "unknown-vertex",
        )
    if not decider.expands:
        raise wrong(
            f"has the decider {choice.decider!r}, which does not expand", "Set expands=True on the decider.", "expander"
        )
    if not choice.branches:
        raise wrong("has no branches")
    reached = reached_from(after, choice.decider, {id for branch in choice.branches.values() for id in branch})
    branch_of: dict[str, str] = {}
    for branch, vertices in choice.branches.items():
        for id in vertices:
            if id not in graph.vertices:
                raise wrong(
                    f"names the unknown vertex {id!r} in branch {branch!r}",
                    did_you_mean(id, graph.vertices),
                    "unknown-vertex",
                )
            if id in branch_of:
                raise wrong(f"has vertex {id!r} in two branches, {branch_of[id]!r} and {branch!r}", rule="branches")
            branch_of[id] = branch
            if id not in reached:
                raise wrong(
                    f"has vertex {id!r} in branch {branch!r}, but no path leads from {choice.decider!r} to it",
                    "Add an order-only edge from the decider.",
                    "branch-path",
                )
