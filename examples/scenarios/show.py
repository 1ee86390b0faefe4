"""What every scenario shares: the choice of the backend, and what is printed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import weft

if TYPE_CHECKING:
    from weft.runtime.run import Run


def run(graph: weft.Graph, about: str, *answers: weft.VertexHandle | str, workers: int = 4, **sessions: Any) -> Run:
    """Run a graph on the backend that the command line names; print the answers, the plan and what came of it."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--backend", choices=["threads", "processes", "simulator"], default="threads")
    backend = parser.parse_args().backend
    with weft.Session(backend=backend, workers=workers, **sessions) as session:
        run = session.submit(graph)
        results = run.result()
        print(about)
        for node in answers:
            print(f"{getattr(node, 'id', node)}: {short(results[node])}")
        print("\n".join(run.explain()))
    return run


def short(values: list[Any]) -> str:
    """Write values in at most 100 characters."""
    text = repr(values[0] if len(values) == 1 else values)
    return text if len(text) <= 100 else f"{text[:97]}..."
