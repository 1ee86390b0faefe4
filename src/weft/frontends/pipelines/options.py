"""Run options about the cache and the surroundings of steps, and the part of a graph that they select."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from weft.graph.logical import LogicalGraph


class Caching(Struct, frozen=True):
    """The run options of the cache, by names of steps.

    `off`: the cache is not used. The steps in `refresh`, and `start` with all its dependents, are not looked up.
    `only`: only this step and its ancestors run.
    """

    off: bool = False
    refresh: frozenset[str] = frozenset()
    start: str = ""
    only: str = ""


class Surroundings(Struct, frozen=True):
    """The surroundings of steps on this machine; a resumed run keeps those of its start.

    With `mounts` folders are mounted at the mount paths of the file. `file_systems` maps names of file systems to
    folders or URLs; copies of remote file systems are below `stage` (default: in the state folder). `docker_env`
    selects the treatment of the steps' images (see `weft.operators.containers`).
    """

    mounts: bool = True
    file_systems: Mapping[str, str] = field(default_factory=dict)
    stage: Path | None = None
    docker_env: str = "ignore"


def refreshed_vertices(graph: LogicalGraph, caching: Caching) -> frozenset[str]:
    """Return the vertices that are not looked up in the cache. UsageError: an unknown step."""
    below = _reachable(graph, _vertices(graph, caching.start), down=True) if caching.start else set()
    return frozenset(id for name in caching.refresh for id in _vertices(graph, name)) | below


def part_asked_for(graph: LogicalGraph, caching: Caching) -> LogicalGraph:
    """Return the part of a graph that the run options select. UsageError: an unknown step."""
    if not caching.only:
        return graph
    wanted = _reachable(graph, _vertices(graph, caching.only), down=False)
    choices = [
        replace(choice, branches={name: tuple(v for v in of if v in wanted) for name, of in choice.branches.items()})
        for choice in graph.choices
        if choice.decider in wanted
    ]
    found = graph.copy()
    found.vertices = {id: vertex for id, vertex in graph.vertices.items() if id in wanted}
    found.edges = [edge for edge in graph.edges if edge.dst in wanted]
    found.choices = choices
    return found


def _reachable(graph: LogicalGraph, begin: set[str], *, down: bool) -> set[str]:
    """Return some vertices and all their descendants or ancestors."""
    near: dict[str, list[str]] = {}
    for edge in graph.edges:
        near.setdefault(edge.src if down else edge.dst, []).append(edge.dst if down else edge.src)
    todo, found = list(begin), set(begin)
    while todo:
        for other in near.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def _vertices(graph: LogicalGraph, step: str) -> set[str]:
    """Return the vertices of a step, or of all steps inside a dag. UsageError: an unknown step."""
    names = {id: vertex.step for id, vertex in graph.vertices.items()}
    found = {id for id, name in names.items() if name and (name == step or name.startswith(f"{step}."))}
    if not found:
        known = [name for name in dict.fromkeys(names.values()) if name]
        near = get_close_matches(step, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known[:20])}"
        raise UsageError(f"{graph.name} has no step {step[:100]!r}", hint=hint)
    return found
