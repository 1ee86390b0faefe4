"""The graph of a run with the states of its vertices, in layers; a large graph is drawn by groups of alike vertices."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from weft.model.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from weft.engine.explain import Explained
    from weft.runs.reading import RunRecord, StepRecord

MOST_BOXES: Final = 60
"""The number of boxes up to which each vertex has one of its own."""
_DIGITS: Final = re.compile(r"[0-9]+")
_ORDER: Final = (
    *("failed", "terminated", "interrupted", "cancelled", "terminating"),
    *("running", "pending", "succeeded", "skipped"),
)
"""The states by their weight: that of a group is the first one that a member has."""


class DrawnBox(Struct, frozen=True):
    """A vertex or a group of `members` vertices, in layer `layer`. `note` tells its tasks, or the states of a group."""

    name: str
    state: str
    note: str
    layer: int
    members: int = 1


class DrawnGraph(Struct, frozen=True):
    """Boxes by layer, and edges between them by position: (source, target, whether only the order counts).

    `vertices` is the number of vertices, which is larger than that of boxes if some are grouped.
    """

    name: str
    boxes: Sequence[DrawnBox]
    edges: Sequence[tuple[int, int, bool]]
    vertices: int

    @property
    def is_grouped(self) -> bool:
        """Whether a box stands for several vertices."""
        return self.vertices > len(self.boxes)

    @property
    def title(self) -> str:
        """What the picture shows, in a line."""
        grouped = f", drawn as {counted(len(self.boxes), 'group')}" if self.is_grouped else ""
        return f"The graph of {self.name}: {counted(self.vertices, 'vertex', 'vertices')}{grouped}"


def drawn_graph(run: RunRecord, explained: Explained, *, most: int = MOST_BOXES) -> DrawnGraph:
    """Return the graph of a run as executed: with the vertices and edges that patches have added.

    Above `most` vertices, those of a layer whose names differ only in numbers become one box; if these are too many
    still, those of a layer, or of layers in a row, do.
    """
    steps = {step.name: step for step in run.steps}
    notes = {row.subject: row.executed for row in explained.rows if row.kind == "vertex"}
    notes |= {name: "" for name in steps if name not in notes}
    names = list(notes)
    at = dict(zip(names, range(len(names)), strict=True))
    edges = {
        (at[row.ends[0]], at[row.ends[1]]): "order only" in (row.planned, row.executed)
        for row in explained.rows
        if row.kind == "edge" and row.executed != "dropped" and all(end in at for end in row.ends)
    }
    layers = layers_of(len(names), edges)
    boxes = [
        DrawnBox(name, _state(steps.get(name), notes[name]), _note(steps.get(name), notes[name]), layers[number])
        for number, name in enumerate(names)
    ]
    found = DrawnGraph(explained.name, boxes, [(src, dst, order) for (src, dst), order in edges.items()], len(names))
    if len(names) <= most:
        return found
    depth = max(layers) + 1
    band = -(-depth // most)
    ways: tuple[Callable[[DrawnBox], Hashable], ...] = (
        lambda box: (box.layer, _DIGITS.sub("#", box.name)),
        lambda box: box.layer,
        lambda box: box.layer // band,
    )
    grouped = found
    for way in ways:
        grouped = _grouped(found, way)
        if len(grouped.boxes) <= most:
            break
    return grouped


def layers_of(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the layer of each of `count` vertices: one more than the lowest of those that it reads."""
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for src, dst in edges:
        if src != dst:
            after[src].append(dst)
            waits[dst] += 1
    layers = [0] * count
    todo = [at for at in range(count) if not waits[at]]
    for at in todo:
        for dst in after[at]:
            layers[dst] = max(layers[dst], layers[at] + 1)
            waits[dst] -= 1
            if not waits[dst]:
                todo.append(dst)
    return layers


def _grouped(graph: DrawnGraph, way: Callable[[DrawnBox], Hashable]) -> DrawnGraph:
    """Return the graph with one box for all boxes of the same key, without edges inside of a box."""
    groups: dict[Hashable, list[int]] = {}
    for at, box in enumerate(graph.boxes):
        groups.setdefault(way(box), []).append(at)
    place = {at: number for number, members in enumerate(groups.values()) for at in members}
    edges: dict[tuple[int, int], bool] = {}
    for src, dst, order in graph.edges:
        ends = place[src], place[dst]
        if ends[0] != ends[1]:
            edges[ends] = edges.get(ends, True) and order
    layers = layers_of(len(groups), edges)
    boxes = [
        _group([graph.boxes[at] for at in members], layers[number]) for number, members in enumerate(groups.values())
    ]
    return DrawnGraph(graph.name, boxes, [(*ends, order) for ends, order in edges.items()], graph.vertices)


def _group(members: Sequence[DrawnBox], layer: int) -> DrawnBox:
    first = members[0]
    if len(members) == 1:
        return DrawnBox(first.name, first.state, first.note, layer)
    states = Counter(box.state for box in members)
    stems = dict.fromkeys(_DIGITS.sub("*", box.name) for box in members)
    name = next(iter(stems)) if len(stems) == 1 else f"{first.name} … {members[-1].name}"
    return DrawnBox(name, worst(states), counts_text(states), layer, len(members))


def worst(states: Mapping[str, int]) -> str:
    """Return the state that counts for several vertices or tasks."""
    return next((state for state in _ORDER if states.get(state)), next(iter(states), "pending"))


def counts_text(states: Mapping[str, int]) -> str:
    """Return how many have each state, the worst first: `1 failed, 9 succeeded`."""
    known = [state for state in _ORDER if states.get(state)]
    return ", ".join(f"{states[state]:,} {state}" for state in (*known, *(one for one in states if one not in _ORDER)))


def _state(step: StepRecord | None, executed: str) -> str:
    if step is not None:
        return step.state
    return "skipped" if executed == "skipped" else "pending"


def _note(step: StepRecord | None, executed: str) -> str:
    """Return the tasks of a vertex: the states of the items that have records, else what the engine tells."""
    if step is not None and step.width is not None and step.items:
        return counts_text(Counter(item.state for item in step.items.values()))
    state = step.state if step is not None else "skipped"
    told = executed.removesuffix(f", {state}")
    return "" if told in (state, "1 task", "0 of 1 task", "(not known)") else told
