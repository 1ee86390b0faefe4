"""Concurrent edge: workers train against a parameter server, which lives as long as they do.

The server is a SERVICE: its edge to the workers is concurrent, so that they are scheduled when it runs, and it is
stopped when the last of them has ended. Both get their slots at once. Weights travel as lines of JSON over a socket.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import show

import weft

STEPS = 100
RATE = 0.2


def serve(ctx: Any, inputs: Any) -> None:
    """Keep the weights; answer each gradient with the weights after it."""
    weights = [0.0, 0.0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        ctx.emit("endpoint", list(server.getsockname()))
        while not ctx.cancelled():
            try:
                peer, _ = server.accept()
            except TimeoutError:
                continue
            with peer, peer.makefile("rw") as lines:
                peer.settimeout(5)
                gradient = json.loads(lines.readline())
                weights = [weight - RATE * slope for weight, slope in zip(weights, gradient, strict=True)]
                lines.write(json.dumps(weights) + "\n")


def train(ctx: Any, inputs: Any) -> list[float]:
    """Fit y = 2x + 1 on this worker's points; return the last weights."""
    host, port = ctx.endpoints("server")[0]
    points = [(x / 10, 2 * x / 10 + 1) for x in range(ctx.index, 20, ctx.parallelism)]
    weights, gradient = [0.0, 0.0], [0.0, 0.0]
    for _ in range(STEPS):
        with socket.create_connection((host, port), timeout=5) as peer, peer.makefile("rw") as lines:
            lines.write(json.dumps(gradient) + "\n")
            lines.flush()
            weights = json.loads(lines.readline())
        errors = [(weights[0] * x + weights[1] - y, x) for x, y in points]
        gradient = [sum(e * x for e, x in errors) / len(points), sum(e for e, _ in errors) / len(points)]
    return [round(weight, 2) for weight in weights]


def build() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the graph and the workers, which give the weights they ended with."""
    graph = weft.Graph("parameter_server")
    server = graph.service(serve, name="server")
    return graph, graph.task(train, server, n=2, name="workers")


if __name__ == "__main__":
    graph, workers = build()
    show.run(graph, "Two workers and a parameter server that lives as long as they do.", workers)
