"""A node of a simulated cluster: the real `Node` over the real store, with workers on a virtual clock.

The body of a task runs at the end of its virtual time, by the same code as on any backend; that of a task with a
context begins with its lease, and may wait for other tasks. Workers die and are replaced, at moments drawn
from the seed of the network.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.backends.local import LocalBackend, crashed, reserved, run_here
from weft.backends.node import Node
from weft.backends.simulated_links import SimulatedLink, SimulatedNetwork, SimulatedNodeNetwork, SimulatedProcess
from weft.backends.simulated_waits import SimulatedAnswer, SimulatedBody, SimulatedHost, this_body
from weft.engine.ports import WorkerSpec
from weft.engine.provider import BESIDE
from weft.model.program import Style
from weft.store.segments import SegmentWriter
from weft.worker.lease import WorkerLease
from weft.worker.run import run

if TYPE_CHECKING:
    from weft.backends.node_jobs import NodeHost
    from weft.engine.commands import Launch
    from weft.engine.ports import Job
    from weft.store.folders import RunFolders

_TARGET_S: Final = 1e9
"""The bodies are not measured."""
_BIRTH_S: Final = 0.2
"""The seconds from the loss of a worker to its replacement."""


class WorkerFaults(Struct):
    """The probabilities of faults, each for one lease: its worker dies; it reports a part of its outputs before."""

    died: float = 0.0
    progress: float = 0.0


class SimulatedWorkers(LocalBackend):
    """The workers of a simulated node; `seconds(vertex, index)` is the time of a task."""

    name = "simulated"

    def __init__(
        self, node: SimulatedNode, workers: int, folders: RunFolders, seconds: Callable[[str, int], float]
    ) -> None:
        super().__init__(workers, node.store, None, 0.0, 1 << 20, node.surroundings)
        self.node = node
        self._seconds = seconds
        self._workers = list(range(workers))
        self._numbers = itertools.count(workers)
        self._ids = itertools.count(1)
        self._writer = SegmentWriter(str(folders.shm), prefix="sent-")
        self._held: dict[int, list[tuple[NodeHost, WorkerLease]]] = {}
        self.bodies: dict[WorkerLease, SimulatedBody] = {}

    def numbers(self) -> Sequence[int]:
        """Return the present workers, by number."""
        return tuple(self._workers)

    def open_job(self, job: Any) -> None:
        """See `Executor.open_job`."""
        host = SimulatedHost(job, self.store, self.loop, self.window, self._ids, self._writer)
        host.net = self.node.net
        job.backend = host.begin(self.node)

    def launch(self, job: Job, lease: Launch) -> None:
        """Plan the end of a lease, or the death of its worker before."""
        assert 0 <= lease.worker < BESIDE
        if lease.worker not in self._workers:
            return  # the report of its loss follows
        net, host = self.node.net, job.backend
        running = host.lease(lease)
        self._held.setdefault(lease.worker, []).append((host, running))
        mults = lease.cone.tasks if lease.cone is not None else lambda unit: [(lease.vertex, unit)]
        units = [sum(self._seconds(*task) for task in mults(unit)) for unit in range(lease.lo, lease.hi)]
        seconds, now, chance = sum(units), net.agenda.clock.time, net.random.random
        if net.faults_left > 0 and chance() < self.node.worker_faults.died:
            net.count()
            self._later(now + seconds * chance(), partial(self._die, lease.worker))
        elif lease.cone is None and len(units) > 1 and chance() < self.node.worker_faults.progress:
            self._later(now + units[0], partial(self._progress, host, running))
        if any(code.style is Style.TASK for code in running.codes):
            body = self.bodies[running] = SimulatedBody(net, self.node.process, partial(self._run, host, running))
            body.wake()
        else:
            self._later(now + seconds, partial(self._end, host, running))

    def _later(self, when: float, action: Callable[[], None]) -> None:
        self.node.net.agenda.at(when, action, self.node.process)

    def _end(self, host: NodeHost, lease: WorkerLease) -> None:
        if lease.id in host.running:
            self._held[lease.worker].remove((host, lease))
            run_here(host, lease, _TARGET_S)

    def _run(self, host: NodeHost, lease: WorkerLease) -> None:
        """Run a lease whose tasks wait for others, in its body."""
        try:
            with reserved(host.store, lease) as reservation:
                outcome = run(lease, host.store, _TARGET_S)
                if this_body().abandoned:
                    return
                host.commit(lease, outcome, reservation)
        except Exception as error:  # noqa: BLE001
            outcome = crashed(lease, error)
        del self.bodies[lease]
        if lease.id in host.running:
            self._held[lease.worker].remove((host, lease))
            self.loop.post_later(host.job.id, host.report(lease, outcome, self.loop.clock.now()))

    def _progress(self, host: NodeHost, lease: WorkerLease) -> None:
        """Run and report the first unit of a lease."""
        if lease.id not in host.running or lease.stop or lease.hi - lease.lo < 2:
            return
        part = WorkerLease(lease.id, lease.root, lease.lo, lease.lo + 1, host=host, worker=lease.worker)
        outcome = run(part, self.store, _TARGET_S)
        if outcome.kind:
            return  # it fails again at the end
        host.commit(lease, outcome, ends=False)
        lease.lo = lease.pos = outcome.hi
        lease.committing = False
        self.loop.post_later(host.job.id, host.progress_of(lease, outcome, self.loop.clock.now()))

    def _die(self, worker: int) -> None:
        """Lose a worker with its leases; another comes."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        for host, lease in self._held.pop(worker, []):
            if lease in self.bodies:
                self.bodies.pop(lease).abandon()
            host.forget(lease)
        self.loop.worker_lost(worker, "it was killed", replaced=True)
        self._later(self.loop.clock.now() + _BIRTH_S, self._join)

    def _join(self) -> None:
        number = next(self._numbers)
        self._workers.append(number)
        self.loop.worker_joined(WorkerSpec(number))

    def ask_to_stop(self, lease: WorkerLease) -> None:
        """Stop a task; it ends at once."""
        super().ask_to_stop(lease)
        if lease in self.bodies:
            self.bodies[lease].wake()
            return
        self._later(self.loop.clock.now(), partial(self._end, lease.host, lease))

    def out_of_time(self, local: Any, lease: WorkerLease, worker: int) -> None:
        """Do nothing: every task stops in time."""

    def close_job(self, job: Any) -> None:
        """See `Executor.close_job`."""
        job.backend.close()

    def close(self) -> None:
        """See `Executor.close`."""


class SimulatedNode(Node):
    """A node in a process of a simulated network; it ends with the link to its session."""

    def __init__(
        self,
        net: SimulatedNetwork,
        name: str,
        workers: int,
        folders: RunFolders,
        *,
        seconds: Callable[[str, int], float],
        budget: int = 1 << 30,
        worker_faults: WorkerFaults | None = None,
    ) -> None:
        self.net = net
        self.process = SimulatedProcess(name)
        self.surroundings = SimulatedNodeNetwork(net, self.process)
        self.worker_faults = worker_faults or WorkerFaults()
        self._seconds = seconds
        super().__init__(workers, folders, b"", net.agenda.clock, budget=budget)

    def _begin_workers(self, folders: RunFolders, **options: Any) -> Any:
        return SimulatedWorkers(self, self._workers, folders, self._seconds)

    def _listen(self, host: str) -> tuple[str, int]:
        return self.net.listen(self.process, self._accept_session, self._found)

    def _accept_session(self, link: SimulatedLink) -> None:
        link.take, link.lost = self._take_all, lambda _: self.end()
        self._begin(link)

    def ask(self, job: str, lease: int, method: str, *arguments: Any) -> Any:
        """See `Node.ask`."""
        return self._ask(SimulatedAnswer(), job, lease, method, *arguments)

    def abandon(self) -> None:
        """End the bodies of a process that has ended."""
        workers: SimulatedWorkers = self._processes  # type: ignore[assignment]
        while workers.bodies:
            workers.bodies.popitem()[1].abandon()

    def end(self) -> None:
        """End the process; its store stays as it is, for a look at it."""
        self.net.kill(self.process)
