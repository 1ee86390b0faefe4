"""Compiles the components of a federated job to a logical graph for its initiator.

A component is a vertex of one task, which agrees on the component with the parties: each of them runs its own part as
a task of its own master. The edges give the order alone: data and models stay where they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.federated.schema import ComponentLimits
from weft.graph.logical import (
    AFTER_ANY,
    NONE,
    SEQUENTIAL,
    Edge,
    LogicalGraph,
    OnFailure,
    Outcome,
    Retry,
    Scheduling,
    Storage,
    Vertex,
)
from weft.model.program import Program, Style
from weft.model.resources import Resources

if TYPE_CHECKING:
    from weft.frontends.federated.schema import FederatedJob

FRONTEND: Final = "federated"
_NO_SLOT: Final = (Resources(cpu=0),)
ALL_SUCCESS: Final = "all_success"
_SCHEDULING: Final[Mapping[str, Scheduling]] = {
    ALL_SUCCESS: SEQUENTIAL,
    "one_success": Scheduling(outcome=Outcome.ONE_SUCCESS),
    "all_done": AFTER_ANY,
    "all_failed": AFTER_ANY,
    "none_failed": AFTER_ANY,
}

TRIGGER_RULES: Final = tuple(_SCHEDULING)
"""When a component runs, by the ends of those before it."""


def compile_components(
    job: FederatedJob,
    name: str,
    body: Callable[..., Any],
    *,
    selected: Collection[str],
    rules: Mapping[str, str],
    limits: Mapping[str, ComponentLimits] | None = None,
) -> LogicalGraph:
    """Return the graph of the selected components. `body` is a program of style TASK, called with each.

    Order leads over components that are left out. `rules` has the trigger rules other than `all_success`, `limits` how
    often components are tried again.
    """
    graph = LogicalGraph(name, frontend=FRONTEND, on_failure=OnFailure.CONTINUE)
    before: dict[str, set[str]] = {}
    for component in job.dsl.order:
        found: set[str] = set()
        for source in job.dsl.upstream[component]:
            found |= {source} if source in selected else before[source]
        before[component] = found
        if component not in selected:
            continue
        limit = (limits or {}).get(component, ComponentLimits())
        graph.add_vertex(
            Vertex(
                id=component,
                program=Program(body, style=Style.TASK),
                resources=_NO_SLOT,
                retry=Retry(user=limit.retries, infrastructure=limit.retries, delay_s=limit.delay_s),
            )
        )
        for source in sorted(found):
            scheduling = _SCHEDULING[rules.get(component, ALL_SUCCESS)]
            graph.add_edge(Edge(source, component, movement=NONE, scheduling=scheduling, storage=Storage.NONE))
    return graph
