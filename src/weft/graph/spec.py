"""`RunSpec`: one run as a front end hands it over: its graph, its words, and where its steps leave files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    from pathlib import Path

    from weft.graph.logical import LogicalGraph, Vertex
    from weft.graph.projection import Projection


class CacheSpec(Struct, frozen=True):
    """The use that a run makes of the cache: `recipe_of` says on which inputs the result of a task depends.

    The tasks of `refresh` (ids of vertices) are not looked up; `placed` is called with the paths of outputs that the
    cache has put in place.
    """

    recipe_of: Callable[..., Any]
    refresh: frozenset[str] = frozenset()
    placed: Callable[[Iterable[str]], None] = lambda paths: None


class RunSpec(Struct, frozen=True):
    """One run, compiled for its id and its folder.

    `parameters` are shown by `weft ls`, `about` is added to the description of the run, `steps` are in order, and
    `warnings` are lines for people. `paths` returns the paths of the outputs of a task, by name; without it the values
    of tasks are kept by the store, `program` is the pickled graph and `digest` tells it from others. `roots` are the
    folders below which outputs lie.
    """

    graph: LogicalGraph
    projection: Projection
    user: str
    file: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    paths: Callable[[Vertex, int], dict[str, str]] | None = None
    program: bytes = b""
    digest: str = ""
    roots: tuple[Path, ...] = ()
    cache: CacheSpec | None = None
