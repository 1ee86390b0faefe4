"""The tasks of a pipeline as the cache would be asked for them, before anything runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from weft.documents.problems import show
from weft.frontends.pipelines import conditions
from weft.frontends.pipelines.caching import recipe_of
from weft.frontends.pipelines.compiler import outputs_of
from weft.frontends.pipelines.language import Dag
from weft.frontends.pipelines.layout import check_run, compile_loaded, in_containers, place_of, uses_cache
from weft.frontends.pipelines.options import refreshed_vertices
from weft.frontends.pipelines.parts import ITEM, joined, tuple_of
from weft.frontends.pipelines.repeating import find_dag
from weft.frontends.pipelines.resolved import DECIDE, REPEAT, ControlStep, ResolvedStep
from weft.frontends.pipelines.states import IS_DISABLED
from weft.frontends.pipelines.templates import as_text
from weft.model.ids import loop_item
from weft.model.wording import counted
from weft.store.planning import PlannedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from weft.frontends.pipelines.language import Component
    from weft.frontends.pipelines.layout import CompiledPipeline
    from weft.frontends.pipelines.work import PipelineWork
    from weft.graph.logical import Retry, Vertex


def planned_tasks(
    loaded: PipelineWork, folder: Path, preview: Callable[[], CompiledPipeline] | None
) -> list[PlannedTask]:
    """Return the tasks of the steps that a run in `folder` would have, in an order of dependency. Nothing is made.

    Without a cache and images the `preview` of the run has all that they depend on. Steps inside a dag that loops over
    an artifact have one task each, because their number is unknown. UsageError, DefinitionError: the run is impossible
    on this machine.
    """
    placed = in_containers(loaded, lambda _: None, pull=False)
    if preview is not None and placed is loaded and not uses_cache(loaded):
        compiled = preview()
    else:
        loaded = placed
        compiled = compile_loaded(loaded, folder.name, place_of(loaded, folder))
    check_run(loaded, compiled, begins=False)
    return list(_Plan(loaded, compiled).tasks())


class _Plan:
    """The tasks of the nodes of a run.

    `_skipped` and `_asked` are by vertex: why the conditions before it skip it, or which unknown condition decides.
    """

    def __init__(self, loaded: PipelineWork, compiled: CompiledPipeline) -> None:
        self._loaded, self._compiled = loaded, compiled
        self._refreshed = refreshed_vertices(loaded.pipeline, compiled.graph, loaded.caching)
        self._skipped: dict[str, str] = {}
        self._asked: dict[str, str] = {}

    def tasks(self) -> Iterator[PlannedTask]:
        """Yield the tasks of all vertices in the order of their nodes, of which the final ones are last."""
        vertices = self._compiled.graph.vertices
        for node in self._compiled.nodes:
            vertex = vertices.get(node.id)
            if vertex is None:
                continue
            if isinstance(node, ResolvedStep):
                yield from self._step(node, vertex)
            elif node.kind == DECIDE:
                self._decide(node)
            elif node.kind == REPEAT:
                dag = find_dag(self._loaded.pipeline, node.params["dag"])
                yield from self._inside(dag.children, node, node.name, node.params["dag"])
            elif node.not_run:
                yield PlannedTask(step=node.name, recipe=None, skipped=node.not_run)

    def _decide(self, node: ControlStep) -> None:
        """Take the condition of a component into account for its steps."""
        skipped, asked = _answer(node.params["condition"])
        for member in node.members:
            vertex = self._compiled.graph.vertices.get(member)
            of = "" if vertex is None or vertex.step == node.name else f"{node.name}: "
            if skipped:
                self._skipped.setdefault(member, f"{of}{skipped}")
            elif asked:
                self._asked.setdefault(member, f"on the condition of {node.name}, {asked}")

    def _step(self, node: ResolvedStep, vertex: Vertex) -> Iterator[PlannedTask]:
        """Yield the tasks of one step: one, or one for each item of its loop."""
        depends = "on the list that it loops over" if node.lister else "on a loop above" if node.delivered else ""
        depends = self._asked.get(node.id, depends)
        caching, uncached = self._loaded.caching, "its cache is not enabled"
        if vertex.final:
            uncached = "it runs at the end of every run"
        elif caching.off and node.cache.enable:
            uncached = "no result is used or kept (--no-cache)"
        params = vertex.program.params
        items, how = vertex.program.items or (None,), how_it_runs(node)
        for number, item in enumerate(items):
            name = loop_item(node.name, number) if len(items) > 1 else node.name
            skipped, asked = _answer(params["condition"], item) if node.condition else ("", "")
            asked = f"on the condition of {name}, {asked}" if asked else ""
            yield PlannedTask(
                step=name,
                recipe=None if depends or asked or vertex.final else recipe_of(params, number, item),
                makes=() if node.lister or not node.outputs else tuple(outputs_of(vertex, number).values()),
                skipped=node.not_run or self._skipped.get(node.id, "") or skipped,
                refresh=node.id in self._refreshed,
                depends=depends or asked,
                uncached=uncached,
                how=how,
                loop=node.name if vertex.program.items else "",
                number=number,
                item=item,
            )

    def _inside(
        self, children: Mapping[str, Component], node: ControlStep, name: str, dotted: str
    ) -> Iterator[PlannedTask]:
        """Yield one task for each step inside a dag that loops over an artifact."""
        for child, component in children.items():
            below, path = f"{name}.{child}", f"{dotted}.{child}"
            off = IS_DISABLED if path in self._loaded.pipeline.disabled_names else ""
            if isinstance(component, Dag) and not off:
                yield from self._inside(component.children, node, below, path)
                continue
            depends = self._asked.get(node.id, f"on the list that {node.name} loops over")
            skipped = self._skipped.get(node.id, "") or off
            yield PlannedTask(step=below, recipe=None, skipped=skipped, depends=depends)


def how_it_runs(step: ResolvedStep) -> str:
    """Return what the file says about the attempts of a step: retries, time limit, resources, packages, stderr."""
    words = [] if step.retry is None else _retries(step.retry)
    if step.timeout_s is not None:
        words.append(f"at most {step.timeout_s:g} s")
    if step.resources is not None:
        words.append(str(step.resources))
    if step.packages is not None:
        words.append(f"{step.packages.kind} {os.path.basename(step.packages.file)}")
    if step.apart:
        words.append("stderr apart")
    return "; ".join(words)


def _retries(retry: Retry) -> list[str]:
    if not retry.user:
        return []
    codes = f" after exit code {', '.join(map(str, retry.on))}" if retry.on else ""
    pause = f", first after {retry.pause(1):g} s" if retry.delay_s else ""
    longest = f", at most {retry.max_delay_s:g} s" if retry.delay_s and retry.max_delay_s is not None else ""
    chance = f", by chance up to {retry.jitter:.0%} less" if retry.delay_s and retry.jitter else ""
    return [f"{counted(retry.user, 'retry', 'retries')}{codes}{pause}{longest}{chance}"]


def _answer(condition: Any, item: Any = None) -> tuple[str, str]:
    """Return why a condition is false, and what is unknown of it; ("", "") if it is true, or if there is none."""
    if not condition:
        return "", ""
    unknown = []

    def value_of(kind: str, name: str) -> str:
        if kind == ITEM and item is not None:
            return as_text(tuple_of(item))
        unknown.append(name)
        return f"{{{{{name or 'PF_LOOP_ARGUMENT'}}}}}"

    text = joined(condition, value_of)
    if unknown:
        return "", show(text)
    try:
        return conditions.why_false(text), ""
    except conditions.ConditionError as error:
        return "", f"which cannot be answered: {show(text)}: {error}"
