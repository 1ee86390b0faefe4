"""The book-keeping of slots beside the loop's ticks: which worker a lease holds, who is granted what, which nodes come.

Between the loop, the pool (who gets what there is) and the provider (what there is): the loop says what has ended and
what was launched, and asks for the events that follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from weft.engine.events import (
    Deferred,
    Done,
    Event,
    Failed,
    Granted,
    NodeDraining,
    NodeJoined,
    NodeLost,
    Refused,
    WorkerJoined,
    WorkerLost,
)
from weft.engine.ports import WorkerSpec
from weft.engine.provider import SlotRequest
from weft.model.resources import ONE_SLOT
from weft.runtime.pool import Pool

if TYPE_CHECKING:
    from weft.engine.commands import Acquire, Launch
    from weft.engine.ports import Clock
    from weft.engine.provider import NodeSpec, Provider

_LEASE: Final = 1
_WORKER: Final = 0
"""Where the number of the lease stands in `Done`, `Failed` and `Launch`, and the worker in `Launch`: read by the
million, by place for a third of what reading by name costs."""
ANY_WORKER: Final = -1
"""The request of a job for one more worker, since it has plain work and none is idle."""
_worker_of = itemgetter(_WORKER)
_lease_of = itemgetter(_LEASE)


class Allocation:
    """Slots of a session: the pool, what leases hold of it, and the provider behind it. The loop's lock guards it.

    `specs` are the workers that are there, `orphans` those of leases that jobs did not wait for, by job and lease.
    """

    def __init__(self, provider: Provider, clock: Clock) -> None:
        self.provider = provider
        self.grows = provider.grows
        self.clock = clock
        nodes = provider.nodes()
        self.pool = Pool(nodes, provider.possible)
        self.specs = {
            worker: WorkerSpec(worker, node.node, node.name, node.party) for node in nodes for worker in node.workers
        }
        self.orphans: dict[tuple[str, int], int] = {}
        self._starved: set[str] = set()
        """The jobs for which any worker was asked for."""

    # -------------------------------------------------------------------------------------------------- a tick

    def end(self, leases: dict[int, Launch], events: Iterable[Event]) -> None:
        """Free the workers of the leases that have ended with these events; the leases are popped."""
        over: list[int] = []
        for event in events:
            if type(event) is Done or type(event) is Failed:
                ended = leases.pop(event[_LEASE], None)
                if ended is not None:
                    over.append(ended[_WORKER])
        if over:
            self.pool.free(over)

    def begin(self, job: str, leases: dict[int, Launch], launches: Sequence[Launch]) -> None:
        """Leases are launched: note them, and take the workers that they were not granted."""
        leases.update(zip(map(_lease_of, launches), launches, strict=True))
        workers = [worker for worker in map(_worker_of, launches) if worker >= 0]
        if workers:
            self.pool.take(workers, job)

    def end_orphan(self, owner: str, event: Any) -> None:
        """Free the worker of a lease that ended after its job."""
        worker = self.orphans.pop((owner, event.lease), None) if type(event) in (Done, Failed) else None
        if worker is not None:
            self.pool.free((worker,))

    def leave(self, job: str, leases: Collection[Launch]) -> None:
        """A job is over: what it holds is free, but for the workers of leases that have not ended."""
        self.orphans.update(((job, lease.lease), lease.worker) for lease in leases)
        self.pool.leave(job, {lease.worker for lease in leases})
        if job in self._starved:
            self._starved.discard(job)
            self.provider.release(job, ANY_WORKER)

    # ------------------------------------------------------------------------------------------------ requests

    def acquire(self, job: str, acquire: Acquire) -> Refused | None:
        """Queue a request; return the refusal of one that can never be met."""
        now = self.clock.now()
        reason = self.pool.request(job, acquire.request, acquire.wants, acquire.avoid, now, acquire.bound)
        return Refused(now, acquire.request, reason, self.pool.most_slots()) if reason else None

    def serve(self) -> list[tuple[str, Event]]:
        """Grant what can be granted now, ask the provider for what must wait; return the events of each job."""
        now, pool = self.clock.now(), self.pool
        told: list[tuple[str, Event]] = [(job, Granted(now, request, slots)) for job, request, slots in pool.grant(now)]
        for waiting in pool.unmet():
            self.provider.acquire(SlotRequest(waiting.job, waiting.id, waiting.wants))
            if waiting.lacking:
                told.append((waiting.job, Deferred(now, waiting.id, waiting.lacking)))
        return told

    def ask_for_any(self, hungry: Iterable[str]) -> None:
        """No worker is idle: have the provider know, once for each, of the jobs that have plain work."""
        for job in hungry:
            if job not in self._starved:
                self._starved.add(job)
                self.provider.acquire(SlotRequest(job, ANY_WORKER, (("", 1, (ONE_SLOT,), None),)))

    def tell_provider(self) -> list[Event]:
        """Tell the provider what it may have back; return the loss of workers whose node drains, for all jobs."""
        pool = self.pool
        returned, pool.returned = pool.returned, []
        for job, request in returned:
            self.provider.release(job, request)
        left, pool.left = pool.left, []
        for worker, _ in left:
            self.specs.pop(worker, None)
        empty, pool.empty = pool.empty, []
        for node in empty:
            self.provider.drained(node)
        now = self.clock.now()
        return [WorkerLost(now, worker, f"node {name} drains") for worker, name in left]

    # ------------------------------------------------------------------------------------- workers and nodes

    def joined(self) -> list[WorkerJoined]:
        """Return the workers that are there, as a job is told of them that begins."""
        now = self.clock.now()
        return [WorkerJoined(now, s.worker, s.node, s.node_name, s.party) for s in self.specs.values()]

    def add_worker(self, spec: WorkerSpec) -> Event:
        """A worker came to a node."""
        self.specs[spec.worker] = spec
        self.pool.add(spec)
        return WorkerJoined(self.clock.now(), spec.worker, spec.node, spec.node_name, spec.party)

    def lose_worker(self, worker: int, jobs: Iterable[dict[int, Launch]], *, replaced: bool = False) -> None:
        """A worker is gone, with the leases that it was at."""
        self.specs.pop(worker, None)
        self.pool.lose(worker, replaced=replaced)
        self.orphans = {lease: other for lease, other in self.orphans.items() if other != worker}
        for leases in jobs:
            for lease in [lease for lease in leases.values() if lease.worker == worker]:
                del leases[lease.lease]

    def add_node(self, spec: NodeSpec) -> Event:
        """A node came, with its workers, memory and GPUs."""
        self.pool.add_node(spec)
        for worker in spec.workers:
            self.specs[worker] = WorkerSpec(worker, spec.node, spec.name, spec.party)
        return NodeJoined(self.clock.now(), spec.node, spec.name, spec.party, spec.workers, spec.resources)

    def drain_node(self, node: int, reason: str) -> tuple[Event, list[tuple[str, Event]]]:
        """A node takes no more; return its event, and the refusals of what can never be had now."""
        self.pool.drain(node)
        return NodeDraining(self.clock.now(), node, reason), self._hopeless()

    def lose_node(
        self, node: int, reason: str, jobs: Sequence[dict[int, Launch]]
    ) -> tuple[list[Event], list[tuple[str, Event]]]:
        """A node is gone, with all that it held; return the events for all jobs, and refusals."""
        now = self.clock.now()
        workers = [worker for worker, spec in self.specs.items() if spec.node == node]
        for worker in workers:
            self.lose_worker(worker, jobs)
        self.pool.lose_node(node)
        events: list[Event] = [WorkerLost(now, worker, reason) for worker in workers]
        return [*events, NodeLost(now, node, reason)], self._hopeless()

    def _hopeless(self) -> list[tuple[str, Event]]:
        now, most = self.clock.now(), self.pool.most_slots()
        return [(job, Refused(now, request, reason, most)) for job, request, reason in self.pool.hopeless()]
