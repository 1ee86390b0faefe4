"""Run options about the cache and the surroundings of steps, and the part of a graph that they select."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from weft.frontends.pipelines.language import Component, Dag
from weft.frontends.pipelines.repeating import find_dag
from weft.graph.logical import Role
from weft.graph.order import reachable
from weft.model.errors import UsageError
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.resolved import Node
    from weft.graph.logical import LogicalGraph


class Caching(Struct, frozen=True):
    """The run options of the cache, by names of steps.

    `off`: the cache is not used. The steps in `refresh`, and `start` with all its dependents, are not looked up.
    `only`: only this step and its ancestors run. `targets`: only what these outputs and steps need runs.
    """

    off: bool = False
    refresh: frozenset[str] = frozenset()
    start: str = ""
    only: str = ""
    targets: tuple[str, ...] = ()

    @property
    def part(self) -> bool:
        """Whether only a part of the pipeline runs."""
        return bool(self.only or self.targets)


class Surroundings(Struct, frozen=True):
    """The surroundings of steps on this machine; a resumed run keeps those of its start.

    With `mounts` folders are mounted at the mount paths of the file. `file_systems` maps names of file systems to
    folders or URLs; copies of remote file systems are below `stage` (default: in the state folder). `docker_env`
    selects the treatment of the steps' images (see `weft.operators.containers`). With `trace` the files that a cached
    step opens are inputs of its result (see `weft.store.opened`). `workers` is the number of steps that
    run at a time, at most the parallelism that the file gives; 0: as the file has it. `settings` are those of the
    command line that kinds of steps read. `storage` is the URL by which machines without the folder of the run get
    their files, and `storage_key` names a run that has begun below it, all of which stays there with `storage_keep`.
    """

    mounts: bool = True
    file_systems: Mapping[str, str] = field(default_factory=dict)
    stage: Path | None = None
    docker_env: str = "ignore"
    trace: bool = True
    workers: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    storage: str = ""
    storage_key: str = ""
    storage_keep: bool = False

    def steps_at_a_time(self, pipeline: Pipeline) -> int:
        """Return the number of steps of a pipeline that run at a time."""
        if self.workers and not (pipeline.parallelism_given and pipeline.parallelism < self.workers):
            return self.workers
        return pipeline.parallelism


def refreshed_vertices(pipeline: Pipeline, graph: LogicalGraph, caching: Caching) -> frozenset[str]:
    """Return the vertices that are not looked up in the cache. UsageError: an unknown step.

    A step inside a dag that loops over an artifact has no vertices yet: its id has `/*` in place of the items.
    """
    found: set[str] = set()
    for name in caching.refresh:
        patterns = set(_repeated(pipeline, graph, name).values())
        found |= patterns | _vertices(graph, name, missing_ok=bool(patterns))
    if caching.start:
        loops = set(_repeated(pipeline, graph, caching.start))
        begin = loops | _vertices(graph, caching.start, missing_ok=bool(loops))
        found |= reachable(graph, begin, down=True)
    return frozenset(found)


def _repeated(pipeline: Pipeline, graph: LogicalGraph, step: str) -> dict[str, str]:
    """Return the ids of a step inside dags that loop over artifacts, by the vertices of these dags."""
    found = {}
    for id, vertex in graph.vertices.items():
        dotted = vertex.program.params.get("dag") if "repeating" in vertex.program.params else None
        if not dotted:
            continue
        names = step.split(".")
        above, below = names[: id.count(".") + 1], names[id.count(".") + 1 :]
        if not below or not _pattern(".".join(above)).match(id):
            continue
        pattern = id
        component: Component = find_dag(pipeline, dotted)
        for name in below:
            if not isinstance(component, Dag) or name not in component.children:
                break
            pattern += f"{'' if component.loop is None else '/*'}.{name}"
            component = component.children[name]
        else:
            found[id] = pattern
    return found


def _pattern(step: str) -> re.Pattern[str]:
    """Return the pattern of the ids below a step; a name without an item stands for all items of a loop."""
    parts = []
    for name in step.split("."):
        item = re.fullmatch(r"(.+)-([0-9]+)", name)
        of_item = f"|{re.escape(item[1])}/{item[2]}" if item else ""
        parts.append(f"(?:{re.escape(name)}(?:/[0-9]+)?{of_item})")
    return re.compile(r"\.".join(parts) + r"(?=[./]|$)")


def part_asked_for(graph: LogicalGraph, caching: Caching, pipeline: Pipeline, nodes: Iterable[Node]) -> LogicalGraph:
    """Return the part of a graph that the run options select; `pipeline` and `nodes` are those that it was made of.

    UsageError: an unknown step or target, or an option names a step that another leaves out.
    """
    if not caching.part:
        return graph
    given = f"--only {caching.only}"
    if caching.only:
        ends = _vertices(graph, caching.only)
    else:
        from weft.frontends.pipelines.targets import steps_of_targets  # few runs have some

        given = " ".join(f"--target {one[:100]}" for one in caching.targets)
        steps = steps_of_targets(caching.targets, pipeline, nodes)
        ends = {vertex for step in steps for vertex in _vertices(graph, step)}
    wanted = reachable(graph, ends, down=False)
    for option, names in (("--refresh", sorted(caching.refresh)), ("--from", [caching.start] if caching.start else [])):
        for name in names:
            if not wanted & _vertices(graph, name):
                raise UsageError(
                    f"{given} leaves out step {name[:100]!r}, which {option} names",
                    hint=f"Leave out {option} {name[:100]}, or {given}",
                )
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


def _vertices(graph: LogicalGraph, step: str, *, missing_ok: bool = False) -> set[str]:
    """Return the vertices of a step in all items of loops around it, or of all steps inside a dag.

    UsageError: an unknown step, unless `missing_ok`.
    """
    names = {id: vertex.step for id, vertex in graph.vertices.items()}
    below = _pattern(step)
    found = {
        id for id, name in names.items() if name and (name == step or name.startswith(f"{step}.") or below.match(id))
    }
    if not found and not missing_ok:
        raise UsageError(f"{graph.name} has no step {step[:100]!r}", hint=_hint(graph, step))
    return found


def _hint(graph: LogicalGraph, step: str) -> str:
    """Return the advice for the name of a step that a graph does not have."""
    known = list(dict.fromkeys(vertex.step for vertex in graph.vertices.values() if vertex.step))
    unfolded = {vertex.step for vertex in graph.vertices.values() if vertex.expands and vertex.role is Role.OWN}
    parts = step.split(".")
    for length in range(1, len(parts) + 1):
        above = ".".join(parts[:length])
        for loop in (above, re.sub(r"-[0-9]+$", "", above)):
            if loop in unfolded:
                return f"{loop} loops over an artifact: its items are known only in the run. Name it as a whole: {loop}"
    if (loop := re.sub(r"-[0-9]+$", "", step)) != step and loop in known:
        return f"The items of {loop} cannot be chosen one by one. Name it as a whole: {loop}"
    # The end of a path, or a dag inside another.
    inner = dict.fromkeys(name[: at + len(step)] for name in known if (at := f".{name}.".find(f".{step}.")) > 0)
    if inner:
        return f"Did you mean {' or '.join(list(inner)[:3])}?"
    return did_you_mean(step, known, f"There are: {', '.join(known[:20])}")
