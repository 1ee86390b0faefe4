"""Fingerprints of graphs: a digest of programs, parameters and shape, equal in every process for the same work.

The number of tasks, their items and their resources may differ between two runs of the same work, so they are left out.
A function counts by its name, so that an edited function keeps its history.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.graph.logical import Edge, LogicalGraph, Manager, Vertex


def fingerprint(graph: LogicalGraph) -> str:
    """Return the fingerprint of a graph: 64 hexadecimal digits. The order of addition does not count."""
    vertices = sorted(map(vertex_fingerprint, graph.vertices.values()))
    edges = sorted(map(_edge, graph.edges))
    said: list[Any] = [graph.name, vertices, edges]
    if graph.controller is not None:
        said.append(_manager(graph.controller))
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def vertex_fingerprint(vertex: Vertex) -> str:
    """Return the fingerprint of a vertex alone: id, program, parameters, kind, manager."""
    manager = _manager(vertex.manager)
    program = vertex.program
    said = [vertex.id, _named(program.target), _plain(program.params), vertex.kind.value, manager]
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _manager(manager: Manager | None) -> list[Any] | None:
    return None if manager is None else [manager.name, _plain(manager.params)]


def _edge(edge: Edge) -> list[Any]:
    return [edge.id, edge.src, edge.dst, edge.movement.move.value, edge.scheduling.concurrent]


def _named(target: str | Callable[..., Any]) -> str:
    """Return a name of a program that is equal in all processes; an address in memory would not be."""
    if isinstance(target, str):
        return target
    while isinstance(target, partial):
        target = target.func
    if not hasattr(target, "__qualname__"):
        target = type(target)
    return f"{target.__module__}:{target.__qualname__}"


def _plain(value: Any) -> Any:
    """Return parameters in a form of JSON; a value that JSON lacks counts by its type."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    return f"a {type(value).__name__}"
