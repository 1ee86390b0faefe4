"""A master driven by hand: events in, commands out as short lines of text, and nothing may be left unread.

::

    h = hand(graph, workers=2)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch a[1:3] on 0", "free z[0]")

Leases are named by what they run: `a[0]`, `a[2:4]`, a backup with a mark behind it: `a[0]'`. After each call the
invariants of the engine are checked.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.engine.commands import (
    Acquire,
    Complete,
    Free,
    FreeParts,
    Launch,
    MarkEnded,
    Probe,
    Publish,
    Release,
    Reply,
    Restart,
    SetTimer,
    Shrink,
    Stop,
    Weigh,
    Withdraw,
    single_launches,
)
from weft.engine.core import Core
from weft.engine.events import (
    CancelRequested,
    Done,
    Failed,
    FinishRequested,
    GaveBack,
    Granted,
    Hit,
    IdleTick,
    JobSubmitted,
    Miss,
    Offered,
    OutputLost,
    Progress,
    Refused,
    Requested,
    Started,
    TaskCancelRequested,
    TimerFired,
    UserEvent,
    Waiting,
    Weighed,
    WorkerJoined,
    WorkerLost,
)
from weft.engine.invariants import check
from weft.engine.machines.task import TaskState
from weft.engine.master import Master
from weft.engine.policy import ManagerFactory
from weft.engine.tuning import Tuning
from weft.graph.logical import LogicalGraph
from weft.graph.validate import mark_results, validate
from weft.model.failures import Failure
from weft.model.ids import parse_task
from weft.model.ranges import runs
from weft.model.resources import ONE_SLOT


def body(*inputs: object) -> object:
    """Stand for any task."""
    return inputs


class Hand:
    """A master and what it has said that nobody has read yet."""

    def __init__(
        self,
        graph: LogicalGraph,
        workers: int = 2,
        *,
        nodes: int = 1,
        submit: bool = True,
        results: bool = True,
        managers: Mapping[str, ManagerFactory] | None = None,
        **tuning: Any,
    ) -> None:
        if results:
            mark_results(graph)
        validate(graph)
        tuning.setdefault("shared_memory", nodes == 1)
        tuning.setdefault("backups", True)
        self.master = Master(graph, "job", Tuning(**tuning), managers)
        self.now = 0.0
        self.pending: list[str] = []
        self.leases: dict[str, int] = {}
        self.requests: dict[str, int] = {}
        self.timers: dict[float, int] = {}
        self.said: list[Any] = []
        self(
            *[
                WorkerJoined(0.0, w, w * nodes // max(1, workers), f"node{w * nodes // max(1, workers)}")
                for w in range(workers)
            ]
        )
        if submit:
            self(JobSubmitted(0.0))

    @property
    def core(self) -> Core:
        """What the master knows."""
        return self.master.core

    def __call__(self, *events: Any) -> None:
        """Tell the master what happened; what it said before must have been read."""
        assert not self.pending, f"nobody has read {self.pending}"
        for command in single_launches(self.master.handle(events)):
            self.said.append(command)
            self.pending.append(self._write(command))
        check(self.core)

    def expect(self, *lines: str) -> None:
        """The master has said exactly this since the last time, in this order."""
        said, self.pending = self.pending, []
        assert said == list(lines), f"it said {said}"

    def expect_any_order(self, *lines: str) -> None:
        """The master has said exactly this since the last time, in some order."""
        said, self.pending = self.pending, []
        assert sorted(said) == sorted(lines), f"it said {said}"

    def skip(self, *starts: str) -> list[str]:
        """Take note of and drop the pending lines that begin with one of `starts` (all, if none is given)."""
        skipped = [line for line in self.pending if not starts or line.startswith(starts)]
        self.pending = [line for line in self.pending if line not in skipped]
        return skipped

    def rows(self, vertex: str) -> list[str]:
        """The states of a vertex's tasks, in lower case."""
        return [TaskState(state).name.lower() for state in self.core.by_id[vertex].state]

    def state(self, vertex: str) -> str:
        """The state of a vertex."""
        return self.core.by_id[vertex].status.value

    @property
    def job(self) -> str:
        """The state of the job."""
        return self.core.status.value

    # ------------------------------------------------------------------------------------------------- commands

    def _write(self, command: Any) -> str:
        match command:
            case Launch():
                name = span(command.vertex, command.lo, command.hi) + ("'" if command.backup_of else "")
                self.leases[name] = command.lease
                line = f"launch {name} on {command.worker}" if command.worker >= 0 else f"start {name}"
                if command.cone is not None:
                    line += f" with {' '.join(command.cone.members[:-1])}"
                if command.attempt:
                    line += f", attempt {command.attempt}"
                if command.resources != ONE_SLOT and not command.resources.light:
                    line += f", {command.resources}"
                return line
            case Shrink():
                return f"shrink {self._lease(command.lease)}"
            case Weigh():
                return f"weigh {' '.join(span(*tasks) for tasks in command.tasks)}"
            case Stop():
                return f"stop {self._lease(command.lease)}: {command.reason}"
            case Acquire():
                wants = []
                for vertex, count, alternatives, placement in command.wants:
                    self.requests[vertex] = command.request
                    text = " or ".join(str(r) for r in alternatives if r != ONE_SLOT)
                    text += f" on {placement.node or placement.party}" if placement else ""
                    wants.append(f"{vertex}*{count}" + (f" ({text.strip()})" if text else ""))
                line = f"acquire {', '.join(wants)}"
                line += ", prewarmed" if command.prewarmed else ""
                return line + (f", avoid {' '.join(map(str, command.avoid))}" if command.avoid else "")
            case Withdraw():
                return f"withdraw {self._request(command.request)}"
            case Release():
                return f"release {command.worker}"
            case Free():
                return f"free {span(command.vertex, command.lo, command.hi)}"
            case FreeParts():
                pieces = " ".join(f"{lo}:{hi}" for lo, hi in runs(command.parts))
                return f"free pieces {pieces} of {command.vertex}"
            case Probe():
                return f"probe {command.vertex}[{command.index}] {command.key}"
            case Reply():
                return f"reply {command.token}: {command.text}"
            case SetTimer():
                self.timers[command.at] = command.timer
                return f"timer at {command.at:g}"
            case Publish():
                return f"publish {command.vertex}[{command.index}] {command.name}"
            case Restart():
                return f"restart {' '.join(command.vertices)}"
            case MarkEnded():
                return f"{command.vertex} {'has ended' if command.ended else 'runs again'}"
            case Complete():
                if not command.task:
                    return f"complete {command.state}" + (f": {command.message}" if command.message else "")
                return f"complete {command.state}: {command.task} {command.message}"
        raise AssertionError(f"a new command: {command}")

    def _lease(self, number: int) -> str:
        return next(name for name, lease in reversed(self.leases.items()) if lease == number)

    def _request(self, number: int) -> str:
        return " ".join(name for name, request in self.requests.items() if request == number)

    # --------------------------------------------------------------------------------------------------- events

    def idle(self, *workers: int) -> Offered:
        """These workers are idle; the first one is served first."""
        return Offered(self.now, workers[::-1])

    def done(self, lease: str, hi: int | None = None, **fields: Any) -> Done:
        """A lease ended well, wholly or up to `hi`."""
        _, _, stop = parts(lease)
        fields.setdefault("seconds", 0.0)
        return Done(self.now, self._number(lease), stop if hi is None else hi, **fields)

    def failed(
        self,
        lease: str,
        kind: Failure = Failure.USER,
        *,
        at: str = "",
        hi: int | None = None,
        message: str = "bad",
        lost: tuple[str, int] | None = None,
        status: int | None = None,
    ) -> Failed:
        """Task `at` (the first of the lease if it is not said) of a lease failed, in unit `hi`."""
        vertex, lo, _ = parts(lease)
        index = lo if hi is None else hi
        if at:
            vertex, at_index, _ = parts(at)
        else:
            at_index = index
        return Failed(self.now, self._number(lease), index, vertex, at_index, kind, message, lost=lost, status=status)

    def stopped(self, lease: str) -> Failed:
        """A lease that was told to stop has."""
        return self.failed(lease, Failure.STOPPED, message="stopped")

    def started(self, lease: str) -> Started:
        """A worker says that it began with a lease."""
        return Started(self.now, self._number(lease))

    def progress(self, lease: str, hi: int, **fields: Any) -> Progress:
        """The units of a lease below `hi` are done."""
        return Progress(self.now, self._number(lease), hi, **fields)

    def gave_back(self, lease: str, hi: int) -> GaveBack:
        """The units of a lease from `hi` on were taken back."""
        return GaveBack(self.now, self._number(lease), hi)

    def weighed(self, lease: str, nbytes: int) -> Weighed:
        """The tasks of a lease read so many bytes."""
        return Weighed(self.now, self._number(lease), nbytes)

    def granted(self, **slots: Sequence[int] | int) -> Granted:
        """The latest request that names these vertices is met by these workers."""
        request = self.requests[next(iter(slots))]
        flat = [
            (vertex, worker, 0)
            for vertex, workers in slots.items()
            for worker in ([workers] if isinstance(workers, int) else workers)
        ]
        return Granted(self.now, request, tuple(flat))

    def refused(self, vertex: str, reason: str = "too much") -> Refused:
        """The latest request that names `vertex` can never be met."""
        return Refused(self.now, self.requests[vertex], reason)

    def worker_lost(self, worker: int, *, node: bool = False, crashed: str | None = None, unit: int = -1) -> WorkerLost:
        """A worker is gone; `crashed` is the trace of its crash."""
        return WorkerLost(self.now, worker, "died", node, unit, crashed is not None, crashed or "")

    def worker_joined(self, worker: int, node: int = 0) -> WorkerJoined:
        """A worker came."""
        return WorkerJoined(self.now, worker, node, f"node{node}")

    def output_lost(self, tasks: str) -> OutputLost:
        """Outputs cannot be read any more."""
        return OutputLost(self.now, *parts(tasks), "gone")

    def emitted(self, vertex: str, name: str, payload: Any = None) -> UserEvent:
        """Task 0 of a vertex emitted an event."""
        return UserEvent(self.now, vertex, 0, name, payload)

    def hit(self, task: str) -> Hit:
        """The cache has the output of a task."""
        return Hit(self.now, *parts(task)[:2])

    def miss(self, task: str) -> Miss:
        """The cache has nothing."""
        return Miss(self.now, *parts(task)[:2], "never ran")

    def waiting(self, task: str) -> Waiting:
        """Somebody else makes the same."""
        return Waiting(self.now, *parts(task)[:2], "run-7")

    def timer(self, at: float) -> TimerFired:
        """The last timer that was set for `at` goes off."""
        self.now = at
        return TimerFired(at, self.timers[at])

    def tick(self) -> IdleTick:
        """Workers are idle and nothing happens."""
        return IdleTick(self.now)

    def request(self, name: str, payload: Any = None) -> Requested:
        """The user requests something of the controller."""
        return Requested(self.now, name, payload)

    def cancel(self, reason: str = "enough") -> CancelRequested:
        """The user cancels."""
        return CancelRequested(self.now, reason)

    def cancel_tasks(self, tasks: str, reason: str = "not needed") -> TaskCancelRequested:
        """The user cancels tasks."""
        return TaskCancelRequested(self.now, *parts(tasks), reason)

    def finish(self, vertex: str = "", reason: str = "enough") -> FinishRequested:
        """The user needs no more of a vertex, or of the job."""
        return FinishRequested(self.now, vertex, reason)

    def _number(self, lease: str) -> int:
        assert lease in self.leases, f"no lease runs {lease}; there are {', '.join(self.leases)}"
        return self.leases[lease]


def span(vertex: str, lo: int, hi: int) -> str:
    """Write a range of tasks: `a[3]` or `a[3:5]`."""
    return f"{vertex}[{lo}]" if hi == lo + 1 else f"{vertex}[{lo}:{hi}]"


def parts(text: str) -> tuple[str, int, int]:
    """Read `a[3]` or `a[3:5]`."""
    vertex, _, inside = text.rstrip("'").rstrip("]").partition("[")
    lo, _, hi = inside.partition(":")
    return vertex, int(lo), int(hi) if hi else int(lo) + 1


def run_out(h: Hand, workers: Sequence[int], *, pick: Callable[[list[str]], str] = lambda live: live[0]) -> list[str]:
    """Run the job to its end, leases ending one after another as `pick` says; return the order in which they ended."""
    order: list[str] = []
    free = list(workers)
    live: dict[str, int] = {}
    while True:
        h(h.idle(*free))
        for line in h.skip():
            if line.startswith("launch"):
                name, worker = line.split()[1], int(line.split()[3].rstrip(","))
                live[name] = worker
                free.remove(worker)
            elif line.startswith("complete"):
                return [*order, line]
        assert live, "nothing runs and the job has not ended:\n" + "\n".join(h.master.inspector.story())
        name = pick(list(live))
        order.append(name)
        free.append(live.pop(name))
        h(h.done(name))
        for line in h.skip():
            if line.startswith("complete"):
                return [*order, line]


__all__ = ["Hand", "body", "parse_task", "parts", "run_out", "span"]
