"""Random graphs for property tests and simulations: small, legal, and of every shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.graph.builder import Graph, Reads, VertexHandle, after, gather, grid, shuffle
from weft.graph.grid import group
from weft.graph.logical import OnFailure, Outcome, Retry
from weft.graph.validate import validate
from weft.model.errors import GraphError
from weft.model.resources import Resources

if TYPE_CHECKING:
    import random


def work(*inputs: object) -> int:
    """A placeholder for any task body."""
    return len(inputs)


def random_graph(rng: random.Random, *, most_vertices: int = 10, most_tasks: int = 12, plain: bool = False) -> Graph:
    """Return a legal graph of one-to-one, grouped, gathered, shuffled, broadcast and order-only edges.

    With `plain` there are no services, bubbles, tokens or special resources.
    """
    graph = Graph("random")
    nodes: list[VertexHandle] = []
    limits = {"slots": rng.randint(1, 3)}
    graph.limits.update(limits)
    graph.on_failure = rng.choice(list(OnFailure))
    for number in range(rng.randint(1, most_vertices)):
        n = rng.choice([1, 1, 2, 3, 4, 8, rng.randint(1, most_tasks)])
        inputs: list[Reads] = []
        sources = rng.sample(nodes, k=min(len(nodes), rng.choice([0, 1, 1, 1, 2, 2, 3])))
        for source in sources:
            width = source.parallelism
            kind = rng.choice(["same", "gather", "shuffle", "after", "group", "same"])
            if kind == "same" and isinstance(width, int):
                n = n if inputs else width
                if width == n:
                    inputs.append(source)
                    continue
                kind = "gather"
            if kind == "group" and isinstance(width, int) and width % n == 0 and width > n:
                inputs.append(grid(source, group(0, width // n), src=(width,), dst=(n,)))
            elif kind == "shuffle":
                inputs.append(shuffle(source))
            elif kind == "after":
                inputs.append(after(source, outcome=rng.choice([Outcome.SUCCESS, Outcome.SUCCESS, Outcome.ANY])))
            else:
                inputs.append(gather(source))
        extra: dict[str, Any] = {}
        if not plain and rng.random() < 0.2:
            extra["resources"] = rng.choice(
                [(Resources(cpu=0, tokens=(("slots", 1),)),), (Resources(cpu=2),), (Resources(cpu=0),)]
            )
        if rng.random() < 0.3:
            extra["retry"] = Retry(
                user=rng.randint(0, 3), memory=rng.randint(0, 3), delay_s=rng.choice([0.0, 0.0, 0.5])
            )
        if rng.random() < 0.2:
            extra["keep"] = True
        if rng.random() < 0.1:
            extra["timeout_s"] = 50.0
        nodes.append(graph.add(work, *inputs, n=n, name=f"v{number}", **extra))
    if not plain and len(nodes) >= 2 and rng.random() < 0.3:
        chosen = rng.sample(nodes, 2)
        graph.bubble(*chosen, timeout_s=5.0)
        try:
            validate(graph)
        except GraphError:  # a path leaves this bubble and comes back
            graph.bubbles.clear()
    add_final(graph, nodes)
    return graph


def add_final(graph: Graph, nodes: list[VertexHandle]) -> None:
    """Give some graphs, chosen by their shape, finally vertices: no random number is drawn."""
    if (len(graph.edges) + len(nodes)) % 4:
        return
    report = graph.add(work, gather(nodes[-1]), n=2, name="report", final=True)
    graph.add(work, report, n=2, name="clean", final=True)
    graph.add(work, name="alone", final=True)
