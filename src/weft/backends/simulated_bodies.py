"""A simulated cluster that computes: tasks take virtual time, and their true values are made at their end.

The bodies run by the same code as on any backend (`weft.worker.run`), over a real store. A task that reads output in
progress ends after its sources. Only a service has a thread, as it answers while other tasks run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.backends.local import GRACE_S, stream_bytes
from weft.backends.local_jobs import LocalJob
from weft.backends.simulated_cluster import SimulatedCluster
from weft.backends.simulator import _Running
from weft.engine.commands import Publish, Reply
from weft.engine.events import Done, Failed, UserEvent
from weft.engine.machines.task import TaskState
from weft.engine.tuning import Tuning
from weft.model.failures import Failure
from weft.model.ranges import runs
from weft.store.api import ABSENT
from weft.worker.lease import LeaseResult
from weft.worker.run import run as run_lease

if TYPE_CHECKING:
    from weft.engine.commands import Launch, MarkEnded, Restart
    from weft.engine.ports import Job, Shell
    from weft.store.api import ChunkStore
    from weft.worker.context import WorkerTaskContext
    from weft.worker.lease import WorkerLease

FOREVER_S: Final = 1e9
"""The virtual seconds for which a service runs that is never stopped."""
AGAIN_S: Final = 0.1
"""The virtual seconds between two checks of a task for its missing input."""


class BodyJob(dict[int, _Running], LocalJob):
    """The state of a job: its running leases and its values."""

    def __init__(self, job: Job, store: ChunkStore, loop: Shell, soon: Callable[[Callable[[], None]], None]) -> None:
        dict.__init__(self)
        LocalJob.__init__(self, job, store, loop, stream_bytes(store.memory.budget))
        self._soon = soon
        self.computing = 0
        """The thread that runs the body of a task now; emitted events are posted just before its end."""
        self.emitted: list[UserEvent] = []

    def emit(self, lease: int, vertex: str, index: int, name: str, payload: Any) -> None:
        """See `Host.emit`. An endpoint is posted at once, since a task may wait for it."""
        if name == "endpoint":
            self.publish(Publish(vertex, index, name, payload))
        if threading.get_ident() == self.computing:
            self.emitted.append(UserEvent(self.loop.clock.now(), vertex, index, name, payload))
        else:
            self._soon(partial(super().emit, lease, vertex, index, name, payload))

    def stream(self, edge: str, index: int, partition: int, value: Any, context: WorkerTaskContext) -> None:
        """See `Host.stream`. The writer never waits: its readers run after their sources have ended."""
        cell, nbytes = self.block(value)
        self.streams.put(edge, index, partition, cell, nbytes, context.lease)


class SimulatedBodies(SimulatedCluster):
    """A `SimulatedCluster` over a store. With `driven`, a thread advances the clock while anything is planned."""

    def __init__(self, workers: int, store: ChunkStore, *, driven: bool = False, **simulator: Any) -> None:
        tuning = simulator.pop("tuning", None) or Tuning(target_s=0.5)
        super().__init__(workers, tuning=tuning, **simulator)
        self._alike = False  # a service runs as long as it is needed
        self.store = store
        self._jobs: dict[str, BodyJob] = {}
        self._made: dict[_Running, tuple[WorkerLease, LeaseResult]] = {}
        self._services: set[str] = set()
        self._serving: dict[_Running, tuple[WorkerLease, threading.Thread]] = {}
        self._lost: set[tuple[str, str, int]] = set()
        self._queued: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._driver = threading.Thread(target=self._drive, name="weft-simulator", daemon=True) if driven else None

    # ----------------------------------------------------------------------------------------------- executor

    def attach(self, loop: Shell) -> None:
        """See `Executor.attach`."""
        super().attach(loop)
        if self._driver is not None:
            self._driver.start()

    def open_job(self, job: Job) -> None:
        """See `Executor.open_job`. A job that continues after its owner died finds its values."""
        super().open_job(job)
        assert self._loop is not None
        before = self._jobs.get(job.id)
        job.backend = self._jobs[job.id] = BodyJob(job, self.store, self._loop, self._soon)
        if before is not None:
            job.backend.columns.update(before.columns)

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.free`."""
        super().free(job, vertex, lo, hi)
        self._drop(job.id, vertex, lo, hi)

    def free_parts(self, job: Job, vertex: str, parts: Sequence[int]) -> None:
        """See `Executor.free_parts`."""
        super().free_parts(job, vertex, parts)
        column = job.backend.columns.get(vertex)
        if column is not None:
            for lo, hi in runs(parts):
                self.store.free_parts(column, lo, hi, 0, len(column))

    def publish(self, job: Job, event: Publish) -> None:
        """See `Executor.publish`."""
        job.backend.publish(event)

    def reply(self, job: Job, reply: Reply) -> None:
        """See `Executor.reply`."""
        job.backend.take_reply(reply)

    def restart(self, job: Job, command: Restart) -> None:
        """See `Executor.restart`."""
        job.backend.reset_streams(command.vertices)

    def mark_ended(self, job: Job, command: MarkEnded) -> None:
        """See `Executor.mark_ended`."""
        job.backend.mark_ended(command)

    def retire_job(self, job: Job) -> None:
        """See `Executor.retire_job`."""
        job.backend.retire()

    def close_job(self, job: Job) -> None:
        """See `Executor.close_job`."""
        local = self._jobs.pop(job.id, None)
        if local is not None:
            local.close()

    def close(self) -> None:
        """See `Executor.close`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._driver is not None and self._driver.is_alive():
            self._driver.join(GRACE_S)
        for run in list(self._serving):
            self._end_service(run)

    # ----------------------------------------------------------------------------------------------- the driver

    def _drive(self) -> None:
        assert self._loop is not None
        while True:
            with self._changed:
                while not (self._moments or self._queued or self._closing):
                    self._changed.wait()
                if self._closing:
                    return
            self._loop.settle()  # all events of one call are planned before the clock advances
            while self._queued:
                self._queued.popleft()()
            self.run(most_moments=1)

    def _soon(self, action: Callable[[], None]) -> None:
        """Queue an action for the thread that advances the clock."""
        if self._driver is None or threading.current_thread() is self._driver:
            action()
            return
        with self._changed:
            self._queued.append(action)
            self._changed.notify()

    def _plan(
        self, when: float, what: Any, job: Job | None = None, seconds: float = 0.0, task: int = -1, worker: int = -1
    ) -> None:
        if isinstance(what, _Running) and what.seconds >= FOREVER_S:
            return  # its thread may work while nothing is planned: the clock must not jump to its end
        with self._changed:
            super()._plan(when, what, job, seconds, task, worker)
            self._changed.notify()

    # --------------------------------------------------------------------------------------------------- bodies

    def _duration(self, lease: Launch, lo: int, hi: int) -> float:
        return FOREVER_S if lease.vertex in self._services else super()._duration(lease, lo, hi)

    def launch(self, job: Job, lease: Launch) -> None:
        """See `Executor.launch`."""
        service = lease.spec.service
        if service:
            self._services.add(lease.vertex)
        super().launch(job, lease)
        if service and (self.network is None or lease.worker < 0):
            self._serve(job, lease)

    def _begin(self, far: Any, job: Job, lease: Launch) -> None:
        super()._begin(far, job, lease)
        if lease.vertex in self._services:
            self._serve(job, lease)

    def _serve(self, job: Job, launch: Launch) -> None:
        """Start the body of a service on a thread of its own, as it answers while other tasks run."""
        run, lease = job.backend[launch.lease], job.backend.lease(launch)
        body = partial(run_lease, lease, self.store)
        thread = threading.Thread(target=body, name=f"weft-{launch.vertex}", daemon=True)
        self._serving[run] = lease, thread
        thread.start()

    def _over(self, run: _Running) -> None:
        super()._over(run)
        self._end_service(run)

    def _end_service(self, run: _Running) -> None:
        if run in self._serving:
            lease, thread = self._serving.pop(run)
            lease.cancel()
            thread.join(GRACE_S)

    def _done(self, run: _Running) -> None:
        if run.gone:
            return
        if self._reads_unmade(run):
            assert self._loop is not None
            if self._loop.jobs.get(run.job.id) is run.job:
                self._plan(self.clock.time + AGAIN_S, run)
            else:  # an earlier life of its job began it: what it reads never comes
                self._over(run)
            return
        event = self._compute(run, run.hi)
        for emitted in run.job.backend.emitted:
            self._post(run, emitted)
        far = self._far_of(run)
        self._over(run)
        if far is not None:
            self._report(far, run.job, event, run)
        else:
            self._hear(run.job, event, run)
        self._perhaps_lose_output(run)

    def _say(self, run: _Running, event: Failed) -> None:
        if event.hi > run.launch.lo:  # work done before the failure counts
            made = self._compute(run, event.hi)
            if isinstance(made, Failed):
                event = made
        far = self._far_of(run)
        if far is not None:
            self._report(far, run.job, event, run)
        else:
            self._hear(run.job, event, run)

    def _compute(self, run: _Running, hi: int) -> Done | Failed:
        """Run the bodies of the units below `hi`. Return the events to post."""
        local: BodyJob = run.job.backend
        launch = run.launch
        if launch.lease not in run.job.leases:  # its worker was abandoned: its streams reach no reader
            kind, why = Failure.STOPPED, "no task waits for it"
            return Failed(self.clock.time, launch.lease, launch.lo, launch.vertex, launch.lo, kind, why)
        lease: WorkerLease = local.lease(replace(launch, backup_of=0))  # the loop decides which attempt was first
        lease.hi = hi
        local.computing, local.emitted = threading.get_ident(), []
        outcome = self._unreadable(run, lease) or run_lease(lease, self.store, FOREVER_S)
        local.computing = 0
        self._made[run] = lease, outcome
        return replace(local.report(lease, outcome, self.clock.time), seconds=run.seconds)

    def _unreadable(self, run: _Running, lease: WorkerLease) -> LeaseResult | None:
        """Return the outcome of a lease that reads lost values: for a lenient reader they look as if never made."""
        for inp in lease.root.inputs if self._lost else ():
            source = run.job.inspector.vertex(inp.source)
            made = source.state if source is not None else ()
            for index in range(lease.lo, lease.hi) if inp.lenient else ():
                for lo, hi, _, _ in inp.router.inputs(index):
                    for i in range(lo, hi):
                        gone = inp.column.values[i] is ABSENT and (run.job.id, inp.source, i) in self._lost
                        if gone and made[i] in (TaskState.FINISHED, TaskState.FREED):
                            outcome = LeaseResult(lease.lo, [], 0.0)
                            outcome.kind, outcome.lost = Failure.INPUT.value, (inp.source, i)
                            outcome.vertex, outcome.index = lease.root.vertex, index
                            outcome.message = f"{inp.source}[{i}]: it was lost"
                            return outcome
        return None

    def _reads_unmade(self, run: _Running) -> bool:
        """Whether input that a task reads in progress is incomplete.

        The stream of a failed or stopped task never completes; its readers are stopped at this moment or the next.
        """
        live = [edge for edge in run.launch.spec.inputs if edge.live]
        stopped = bool(live) and run.job.inspector.stopping(run.launch.lease)
        return stopped or not run.job.backend.ended.issuperset([edge.source for edge in live])

    def _commit(self, run: _Running, event: Done | Failed) -> Done | Failed:
        event = super()._commit(run, event)
        made = self._made.pop(run, None)
        return event if made is None else replace(event, nbytes=made[1].nbytes)

    def _hold(self, run: _Running, lo: int, hi: int) -> None:
        if run in self._made and lo < hi and run.launch.lease in run.job.leases:
            lease, outcome = self._made[run]
            outcome.values = outcome.values[lo - lease.lo : hi - lease.lo]
            lease.lo = lo
            run.job.backend.commit(lease, outcome)
        super()._hold(run, lo, hi)

    def _forget(self, job: str, vertex: str, index: int) -> None:
        super()._forget(job, vertex, index)
        self._lost.add((job, vertex, index))
        self._drop(job, vertex, index, index + 1)

    def _drop(self, job: str, vertex: str, lo: int, hi: int) -> None:
        local = self._jobs.get(job)
        column = local.columns.get(vertex) if local is not None else None
        if column is not None:
            self.store.free_range(column, lo, hi)
