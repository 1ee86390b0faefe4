"""`RunSpec`: one compiled run with its graph, its texts for users and the places of its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    from pathlib import Path

    from weft.graph.logical import LogicalGraph, Vertex
    from weft.graph.projection import Projection


class CacheSpec(Struct, frozen=True):
    """The use of the cache by one run: `recipe_of` returns the inputs that the result of a task depends on.

    Tasks of the vertices `refresh` are not looked up. `placed` is called with the paths of outputs that came from the
    cache.
    """

    recipe_of: Callable[..., Any]
    refresh: frozenset[str] = frozenset()
    placed: Callable[[Iterable[str]], None] = lambda paths: None


class RunSpec(Struct, frozen=True):
    """One run, compiled for its id and its folder.

    `user` is the user's name. `weft ls` shows `parameters`; `about` is added to the description of the run; `steps` are
    in order; `warnings` are lines for users. `paths` returns the paths of the outputs of a task by name; without it the
    store keeps the values of tasks. `program` is the pickled graph and `digest` identifies it. `roots` are the folders
    that contain the outputs.
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
