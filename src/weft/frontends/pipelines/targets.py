"""The targets of a run: outputs and steps, by name or by the path of an output of an earlier run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.frontends.pipelines.compiler import planned_outputs
from weft.frontends.pipelines.language import Dag
from weft.frontends.pipelines.resolved import ResolvedStep
from weft.frontends.pipelines.templates import whole
from weft.model.errors import UsageError
from weft.model.suggestions import did_you_mean
from weft.store.places import LAST, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.frontends.pipelines.language import Component, Pipeline
    from weft.frontends.pipelines.resolved import Node

_MOST_NAMED = 20


def steps_of_targets(targets: Iterable[str], pipeline: Pipeline, nodes: Iterable[Node]) -> list[str]:
    """Return the names of the steps and dags that make the targets of a pipeline, which became some nodes.

    A target is the name of a step or dag, `STEP/OUTPUT` (or `STEP.OUTPUT`) of one, or the path of an output, or of a
    file in it, in the folder of any run or of the last one. UsageError: it is none of them.
    """
    known = list(nodes)
    makers: dict[str, str] = {}
    places: dict[str, str] = {}
    for name, component in pipeline.entry_points.items():
        makers |= _of_dags(name, component)
    for node in known:
        if isinstance(node, ResolvedStep):
            own = planned_outputs([node])
            places |= own
            makers |= dict.fromkeys([*own, *(f"{node.name}.{output}" for output in node.outputs)], node.name)
    return [_step_of(target, {node.name for node in known}, makers, places) for target in targets]


def _of_dags(name: str, component: Component) -> dict[str, str]:
    """Return the makers of the outputs of a dag, and of dags in it: steps, or the dag where it loops."""
    if not isinstance(component, Dag):
        return {}
    found: dict[str, str] = {}
    for child, inner in component.children.items():
        found |= _of_dags(f"{name}.{child}", inner)
    for output, text in component.outputs.items():
        template = whole(text.value)
        if template is not None:
            step = f"{name}.{template.step}"
            found[f"{name}.{output}"] = found.get(f"{step}.{template.name}", step)
    return dict.fromkeys(found, name) if component.loop is not None else found


def _step_of(target: str, names: set[str], makers: Mapping[str, str], places: Mapping[str, str]) -> str:
    parts = [part for part in target.split("/") if part not in ("", ".")]
    named = ["/".join(name.rpartition(".")[::2]) for name in sorted(makers)]
    if OUTPUTS in parts:
        tail = parts[parts.index(OUTPUTS) + 1 :]
        for name, path in places.items():
            if _leads_to(tail, name, path):
                return makers[name]
        what, known = "this pipeline has no such output", named
    else:
        dotted = ".".join(parts)
        dags = {above for name in names for above in _dags_above(name)}
        if dotted in names | dags:
            return dotted
        if dotted in makers:
            return makers[dotted]
        what, known = "it is neither a step nor an output", [*sorted(names | dags), *named]
    listed = f"There are: {', '.join(known[:_MOST_NAMED])}" if known else "Name a step."
    raise UsageError(f"nothing makes the target {target[:200]!r}: {what}", hint=did_you_mean(target, known, listed))


def _leads_to(tail: Sequence[str], name: str, path: str) -> bool:
    """Whether the names below the folder of outputs lead to an output with a planned path, in the folder of any run."""
    own = path.split("/")
    own = own[own.index(OUTPUTS) + 2 :]
    step, _, output = name.rpartition(".")
    return list(tail[1 : 1 + len(own)]) == own or list(tail[:4]) == [LAST, own[0], step, output]


def _dags_above(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]
