"""Control vertex: a service that decides what others are to be, before, while and after they run.

The user asked for four trainers with two large GPUs each. The control vertex knows better: from history, where there is
any, else from a dry run on a sample, which it patches in. Then it lets the trainers start. While they run it listens to
what they emit; when they are done it decides how many tasks the evaluation has. Run twice, the second run needs no dry
run: what the first one took was kept. (Nothing here computes on a GPU; what is measured is made up by the trainers.)
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import show

import weft
from weft import Range, Resources, controlled
from weft.graph.logical import CONCURRENT, NONE, Edge, Patch, Storage, Vertex
from weft.model.program import Program, Style
from weft.policies.sizing import ResourceOffer, most_used, sized

GB = 10**9
LARGE = ResourceOffer(Resources(gpu=2, gpu_type="T4"), gpu_memory=32 * GB, speed=2.0, price=2.0)
SMALL = ResourceOffer(Resources(gpu=1, gpu_type="T4"), gpu_memory=16 * GB, speed=1.0, price=1.0)
EPOCHS = 3


def steer(ctx: Any, inputs: Any) -> None:
    """Decide for the trainers, listen to them, decide for the evaluation."""
    usage = most_used(ctx.history("train"))
    because = f"{len(ctx.history('train'))} earlier runs"
    if not usage:
        dry = f"{ctx.vertex}/dry-run"
        program = Program(sample, style=Style.TASK)
        edge = Edge(ctx.vertex, dry, NONE, CONCURRENT, Storage.NONE)
        ctx.patch(Patch((Vertex(dry, program, 1),), (edge,)), "no run of this graph was kept")
        usage = until(ctx, dry, lambda seen: seen.state == "done").usage
        because = "a dry run"
    told = f"gpu_memory {usage['gpu_memory']:g}, gpu_busy {usage['gpu_busy']:g}"
    ctx.set_resources("train", *sized(usage, LARGE, [LARGE, SMALL]), because=f"{because}: {told}")
    ctx.set_parallelism("train", 2, because=f"{because}: two keep up with the data")
    ctx.emit("ready")
    seen = until(ctx, "train", lambda seen: seen.state == "done")
    losses = [payload for name, _, payload in seen.events if name == "loss"]
    ctx.set_parallelism(
        "evaluate", 1 if losses[-1] < 0.2 else 4, because=f"{len(losses)} losses, the last {losses[-1]}"
    )
    ctx.emit("trained")


def until(ctx: Any, vertex: str, condition: Callable[[Any], bool]) -> Any:
    """Look at a vertex until a condition holds, or nobody needs this service any more."""
    while True:
        seen = ctx.watch(vertex)
        if condition(seen) or ctx.cancelled():
            return seen
        time.sleep(0.01)


def sample(ctx: Any, inputs: Any) -> None:
    """Train on one batch, and say what that took on the resources that the user asked for."""
    ctx.usage(gpu_memory=6 * GB, gpu_busy=0.2)


def train(ctx: Any, inputs: Any) -> str:
    """Say how the loss goes down; return on what this trainer ran."""
    for epoch in range(EPOCHS):
        ctx.emit("loss", round(0.5 / (1 + epoch), 3))
    ctx.usage(gpu_memory=6 * GB, gpu_busy=0.2)
    return f"{ctx.resources.gpu} {ctx.resources.gpu_type}"


def evaluate(ctx: Any, inputs: Any) -> int:
    """Return how many tasks share the evaluation."""
    return int(ctx.parallelism)


def build() -> tuple[weft.Graph, weft.VertexHandle, weft.VertexHandle]:
    """Return the graph, the trainers and the evaluation."""
    graph = weft.Graph("control_vertex")
    control = graph.control(steer, name="steer")
    trainers = graph.task(train, controlled(control), n=Range(1, 4), name="train", resources=LARGE.resources)
    score = graph.task(evaluate, weft.after(trainers), controlled(control, "trained"), n=Range(1, 8), name="evaluate")
    return graph, trainers, score


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for about in (
            "Nothing is known of the trainers: a dry run tells.",
            "The second run knows what the first took.",
        ):
            graph, trainers, score = build()
            show.run(graph, about, trainers, score, history=folder, gpus=4, gpu_type="T4")
