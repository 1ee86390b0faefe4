"""From the resolved steps of one run to the graph that the engine runs.

A step is a vertex of one task that holds no core: it waits for a child process, and `parallelism` counts how many may.
Data flows through files, so edges carry nothing and only say what comes first.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.frontends.pipelines.body import SKIPPED
from weft.frontends.pipelines.caching import RECIPE, CachePlace, describe
from weft.graph.logical import (
    DEFAULT_RETRY,
    NONE,
    Choice,
    Edge,
    LogicalGraph,
    OnFailure,
    Retry,
    Storage,
    Vertex,
)
from weft.model.program import Program, Style
from weft.model.resources import Resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.resolve import ResolvedStep

BODY = "weft.frontends.pipelines.body"
PARALLELISM = "parallelism"
"""The token that each running step holds."""
DISABLED = "_disabled"
"""The vertex that decides that disabled steps are skipped; no step can have this name."""

_NO_CORE = (Resources(cpu=0),)
_ONE_AT_A_TIME = (Resources(cpu=0, tokens=((PARALLELISM, 1),)),)
_STRATEGIES = {"fail_fast": OnFailure.FAIL_FAST, "continue": OnFailure.CONTINUE}
_PATH = re.compile(r"(?<![\w./:$-])\w[\w.-]*(?:/\w[\w.-]*)*")
_SCRIPT = frozenset({".bash", ".jar", ".js", ".pl", ".py", ".r", ".rb", ".sh", ".sql"})
_MOST_PATHS, _MOST_PARENTS = 200, 5
_TOP = (".git", "weft.toml")


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Folders of one run: for the logs, and for the records of the processes that its steps start.

    `cache` is None where nothing is looked up or kept.
    """

    logs: Path
    processes: Path
    cache: CachePlace | None = None


def compile_pipeline(pipeline: Pipeline, steps: tuple[ResolvedStep, ...], place: RunPlace) -> LogicalGraph:
    """Return the graph of one run: a vertex for each step, under the step's name.

    `steps` come from `resolve`, in topological order. A disabled step is skipped and counts as a success; what depends
    on it also waits for what it would have waited for.
    """
    graph = LogicalGraph(
        pipeline.name,
        on_failure=_STRATEGIES[pipeline.failure_options.strategy],
        limits={PARALLELISM: pipeline.parallelism},
    )
    disabled = tuple(step.name for step in steps if step.disabled)
    if disabled:
        decider = Program(f"{BODY}:answer_skipped")
        graph.add_vertex(Vertex(DISABLED, decider, resources=_NO_CORE, expands=True))
        graph.choices.append(Choice("disabled", DISABLED, {"run": disabled, SKIPPED: ()}))
    waits_for: dict[str, tuple[str, ...]] = {}
    for step in steps:
        program = Program(f"{BODY}:run_step", _params(step, place), style=Style.TASK)
        retry = DEFAULT_RETRY if step.retry is None else Retry(**asdict(step.retry))
        recipe = describe(pipeline, step, place.cache)
        key = None
        if recipe is not None:
            program = replace(program, params={**program.params, RECIPE: recipe.to_params()})
            key = recipe.static_key
        graph.add_vertex(Vertex(step.name, program, resources=_ONE_AT_A_TIME, retry=retry, cache_key=key))
        deps = dict.fromkeys(step.deps)
        for dep in step.deps:
            if dep in disabled:
                deps.update(dict.fromkeys(waits_for[dep]))
        waits_for[step.name] = tuple(deps)
        if step.disabled:
            deps[DISABLED] = None
        for dep in deps:
            graph.add_edge(Edge(dep, step.name, NONE, storage=Storage.NONE))
    return graph


def _params(step: ResolvedStep, place: RunPlace) -> dict[str, Any]:
    return {
        "command": step.command,
        "cwd": step.cwd,
        "env": dict(step.env),
        "logs": str(place.logs),
        "processes": str(place.processes),
        "outputs": list(step.outputs.values()),
        "timeout_s": step.timeout_s,
    }


def notes(steps: tuple[ResolvedStep, ...]) -> list[str]:
    """Return what a user should know before a run on this machine, one line for each kind of thing."""
    found = []
    images = list(dict.fromkeys(step.docker_env for step in steps if step.docker_env))
    if images:
        found.append(f"docker_env is ignored here: steps run on this machine, not in {_some(images)}")
    idle = [step.name for step in steps if not step.command.strip() and not step.disabled]
    if idle:
        found.append(f"no command, so nothing is run here (PaddleFlow runs what the image starts): {_some(idle)}")
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


# ---------------------------------------------------------------------------------------------- the main file system


def main_root(pipeline: Pipeline, file: Path, configured: Mapping[str, Path]) -> Path:
    """Return the folder that stands for the pipeline's main file system on this machine.

    It is what `configured` says for its name; else the folder of the file or the nearest above it in which most of the
    scripts and paths that the steps name exist; else the folder of the file. Folders above a project (with `weft.toml`
    or `.git`), the home folder and the root are never taken.
    """
    name = pipeline.main_fs.name if pipeline.main_fs else ""
    if name in configured:
        return configured[name]
    folder = file.absolute().parent
    named = tuple(_named_paths(pipeline))
    best, most = folder, _existing(folder, named)
    for candidate in _above(folder):
        found = _existing(candidate, named)
        if found > most:
            best, most = candidate, found
    return best


def _above(folder: Path) -> Iterator[Path]:
    for above in list(folder.parents)[:_MOST_PARENTS]:
        if any((folder / name).exists() for name in _TOP) or above == Path(above.anchor) or above == Path.home():
            return
        yield above
        folder = above


def _named_paths(pipeline: Pipeline) -> Iterable[str]:
    """Return the relative paths that steps name: words of commands that look like one, and the scopes of the cache."""
    found: dict[str, None] = {}
    for step in pipeline.steps.values():
        for word in _PATH.findall(step.command.value):
            if "/" in word or Path(word).suffix.lower() in _SCRIPT:
                found[word] = None
        for scope in step.cache.over(pipeline.cache).fs_scope:
            found.update(dict.fromkeys(path for path in scope.paths if path.strip("/") and not path.startswith("/")))
        if len(found) >= _MOST_PATHS:
            break
    return found


def _existing(folder: Path, named: tuple[str, ...]) -> int:
    return sum((folder / path).exists() for path in named[:_MOST_PATHS])
