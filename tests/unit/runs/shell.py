"""A chain of three steps, and a test in the place of the loop."""

import itertools

from weft.engine.commands import Complete, Launch
from weft.engine.events import Done, Failed, JobSubmitted, Offered, WorkerJoined
from weft.engine.master import Master
from weft.engine.ports import ManualClock
from weft.graph.logical import DEFAULT_RETRY, NONE, Edge, LogicalGraph, OnFailure, Retry, Storage, Vertex
from weft.model.failures import Failure
from weft.model.program import Program
from weft.runs.recorder import RunRecorder
from weft.runtime.job import JobRun

STEPS = ("prepare", "train", "report")


def chain(*, retry: Retry = DEFAULT_RETRY, on_failure: OnFailure = OnFailure.FAIL_FAST) -> LogicalGraph:
    graph = LogicalGraph(name="chain", on_failure=on_failure)
    for name in STEPS:
        graph.add_vertex(Vertex(name, Program("math:sqrt"), retry=retry))
    for src, dst in itertools.pairwise(STEPS):
        graph.add_edge(Edge(src, dst, movement=NONE, storage=Storage.NONE))
    return graph


class Shell:
    """Plays the loop: one worker, and every tick is told to the recorder."""

    def __init__(self, graph: LogicalGraph, recorder: RunRecorder, clock: ManualClock) -> None:
        self.job = JobRun("job", graph, Master(graph, "job"))
        self.recorder, self.clock = recorder, clock
        self.lease = -1
        self.tick(JobSubmitted(0.0), WorkerJoined(0.0, 0, 0), Offered(0.0, (0,)))

    def tick(self, *events) -> None:
        self.clock.advance(1.0)
        commands = self.job.master.handle(events)
        self.recorder(self.job, list(events), commands)
        for command in commands:
            if type(command) is Launch:
                self.lease = command.lease
            elif type(command) is Complete:
                self.job.outcome = command

    def succeed(self) -> None:
        self.tick(Done(0.0, self.lease, 1), Offered(0.0, (0,)))

    def fail(self, vertex: str, message: str = "it broke") -> None:
        self.tick(Failed(0.0, self.lease, 0, vertex, 0, Failure.USER, message), Offered(0.0, (0,)))
