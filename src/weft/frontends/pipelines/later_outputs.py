"""The makers of outputs whose places only a run knows: steps that loop over artifacts, and steps inside such dags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.frontends.pipelines.language import Dag
from weft.frontends.pipelines.parts import OutputPaths
from weft.frontends.pipelines.repeating import find_dag
from weft.frontends.pipelines.resolved import REPEAT, ResolvedStep
from weft.frontends.pipelines.templates import whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.resolved import Node


class LaterOutputs:
    """Finds the makers by the vertices that deliver the places."""

    def __init__(self, pipeline: Pipeline, nodes: Iterable[Node]) -> None:
        self._steps: dict[str, str] = {}
        self._dags: dict[str, tuple[str, Dag]] = {}
        for node in nodes:
            if isinstance(node, ResolvedStep):
                if node.lister:
                    self._steps[node.lister] = node.name
            elif node.kind == REPEAT:
                self._dags[f"{node.id}/end"] = node.name, find_dag(pipeline, node.params["dag"])

    def of(self, step: ResolvedStep) -> list[tuple[str, str]]:
        """Return the steps whose outputs a step reads, without numbers of items, and the names of the outputs."""
        places = [place for of in step.places.values() for place in of if isinstance(place, OutputPaths)]
        return [made for place in places if (made := self._maker(place)) is not None]

    def _maker(self, place: OutputPaths) -> tuple[str, str] | None:
        if (step := self._steps.get(place.source)) is not None:
            return step, place.name
        name, dag = self._dags.get(place.source, ("", None))
        output = place.name
        while dag is not None and (inner := whole(dag.outputs[output].value)) is not None:
            name, output = f"{name}.{inner.step}", inner.name
            child = dag.children[inner.step]
            if not isinstance(child, Dag):
                return name, output
            dag = child
        return None
