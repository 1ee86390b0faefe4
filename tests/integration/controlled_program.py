"""A program with a durable session and a controller, to be killed: `main(state folder, folder for marks)`.

Each worker holds a lock while it runs, so that two attempts at once are seen, and ends once the file `go` exists.
"""

import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import weft
from weft.engine.decisions import Conclude, StartTasks, StopTasks
from weft.engine.policy import ControllerView, JobController
from weft.graph.logical import Manager

WORKERS = 3


class Keeper(JobController):
    """Starts all tasks, again after failures, and counts its calls in its memo; obeys suspend and resume."""

    def decide(self, view: ControllerView, memo: Any) -> tuple[Sequence[Any], Any]:
        """See `JobController.decide`."""
        calls, held = (0, False) if memo is None else memo
        for request in view.requests:
            held = request.name == "suspend"
        workers = view.vertices["w"]
        if workers.count("succeeded") == len(workers):
            return [Conclude("succeeded", f"after {calls} calls")], (calls + 1, held)
        if held:
            moves: list[Any] = [StopTasks(each.id, 0, len(each), "suspended") for each in view.vertices.values()]
        else:
            idle = [task for each in view.vertices.values() for task in each if task.state in ("held", "failed")]
            moves = [StartTasks(task.vertex, task.index, task.index + 1) for task in idle]
        return moves, (calls + 1, held)


def serve(ctx: Any, inputs: Any) -> None:
    """Run until the job ends."""
    while not ctx.cancelled():
        time.sleep(0.005)


def train(ctx: Any, inputs: Any) -> None:
    """Run alone until `go` exists."""
    marks = ctx.params["marks"]
    with Path(marks, f"w-{ctx.index}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            Path(marks, f"doubled-{ctx.index}.{os.getpid()}").touch()
        Path(marks, f"began-{ctx.index}.{os.getpid()}.{ctx.attempt}").touch()
        while not ctx.cancelled() and not Path(marks, "go").exists():
            time.sleep(0.005)


def build(marks: str) -> weft.Graph:
    """Return the graph."""
    graph = weft.Graph("controlled", controller=Manager("keeper"))
    ps = graph.service(serve, n=1, name="ps", controlled=True)
    w = graph.task(train, weft.after(ps), n=WORKERS, name="w", params={"marks": marks}, controlled=True)
    graph.bubble(ps, w, name="gang", whole=True)
    return graph


weft.register_manager("keeper")(Keeper)


def main(state: str, marks: str) -> None:
    """Run the graph in a durable session."""
    with weft.Session(workers=4, durable=state) as session:
        session.run(build(marks), progress=False)
