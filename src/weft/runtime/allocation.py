"""The accounting of slots beside the loop's ticks: workers held by leases, grants, nodes that join and leave.

Allocation stands between the loop, the pool (fair shares of the slots) and the provider (source of the slots). The loop
reports ended and launched leases, and asks for the events that follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.engine.commands import Launch, LaunchEach
from weft.engine.events import (
    Deferred,
    Done,
    DoneEach,
    Event,
    Failed,
    Granted,
    NodeDraining,
    NodeJoined,
    NodeLost,
    Refused,
    WorkerJoined,
    WorkerLost,
    single_reports,
)
from weft.engine.ports import WorkerSpec
from weft.engine.provider import SlotRequest
from weft.engine.waiting import SLOTS, WORKER, Wait
from weft.model.resources import ONE_SLOT
from weft.runtime.pool import FOR_NODES, Pool

if TYPE_CHECKING:
    from weft.engine.commands import Acquire, Release
    from weft.engine.lease_table import LeaseTable
    from weft.engine.ports import Clock
    from weft.engine.provider import NodeSpec, Provider, SharedSlots
    from weft.graph.spec import Wants

ANY_WORKER: Final = -1
"""The request of a job for one more worker: it has plain work and no worker is idle."""


class Allocation:
    """Slots of a session: the pool, the slots held by leases, and the provider. The loop's lock guards it.

    `specs` are the present workers. `orphans` are the workers of leases that outlived their jobs, by job and lease.
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
        self._shared: dict[str, SharedSlots] = {}
        """The slots of jobs that share the machine, instead of the pool, by job."""
        self._starved: set[str] = set()
        """The jobs for which any worker was requested."""

    def join(self, job: str, shared: SharedSlots | None) -> None:
        """Add a job; with `shared` it takes its slots from the machine instead of the pool."""
        self.pool.join(job)
        if shared is not None:
            self._shared[job] = shared

    # -------------------------------------------------------------------------------------------------- a tick

    def end(self, leases: LeaseTable[Launch, LaunchEach], events: Iterable[Event]) -> None:
        """Free the workers of the leases that ended with these events, and remove the leases."""
        over: list[int] = []
        for event in events:
            if type(event) is Done or type(event) is Failed:
                ended = leases.pop(event.lease, None)
                if ended is not None:
                    over.append(ended.worker)
            elif type(event) is DoneEach:
                held = list(map(leases.records.pop, event.leases, repeat(None)))
                over += event.workers if all(held) else compress(event.workers, held)
        if over:
            self.pool.free(over)

    def begin(self, job: str, leases: LeaseTable[Launch, LaunchEach], launches: Sequence[Launch | LaunchEach]) -> None:
        """Record launched leases, and take the workers that they were not granted."""
        workers: list[int] = []
        for launch in launches:
            if type(launch) is LaunchEach:
                leases.share(launch)
                workers += launch.workers
            elif type(launch) is Launch:
                leases.records[launch.lease] = launch
                if launch.worker >= 0:
                    workers.append(launch.worker)
        if workers:
            self.pool.take(workers, job)

    def end_orphan(self, owner: str, event: Any) -> None:
        """Free the worker of a lease that ended after its job."""
        for each in single_reports([event]):
            worker = self.orphans.pop((owner, each.lease), None) if isinstance(each, Done | Failed) else None
            if worker is not None:
                self.pool.free((worker,))

    def leave(self, job: str, leases: Collection[Launch]) -> None:
        """Free all slots of an ended job except the workers of leases that still run."""
        self.orphans.update(((job, lease.lease), lease.worker) for lease in leases)
        self.pool.leave(job, {lease.worker for lease in leases})
        if job in self._shared:
            self._shared.pop(job).end()
        if job in self._starved:
            self._starved.discard(job)
            self.provider.release(job, ANY_WORKER)

    # ------------------------------------------------------------------------------------------------ requests

    def acquire(self, job: str, acquire: Acquire) -> Refused | None:
        """Queue a request. Return the refusal if it can never be met."""
        now, shared = self.clock.now(), self._shared.get(job)
        if shared is not None:
            reason = shared.request(acquire.request, acquire.wants)
            return Refused(now, acquire.request, reason) if reason else None
        reason = self.pool.request(
            job, acquire.request, acquire.wants, acquire.avoid, now, acquire.bound, acquire.priority
        )
        return Refused(now, acquire.request, reason, self.pool.most_slots()) if reason else None

    def refusal(self, job: str, wants: Wants) -> str:
        """Return why a request can never be met, as a clause; "" if it can."""
        shared = self._shared.get(job)
        return self.pool.refusal(wants) if shared is None else shared.refusal(wants)

    def withdraw(self, job: str, request: int) -> None:
        """Withdraw a request."""
        shared = self._shared.get(job)
        if shared is not None:
            shared.withdraw(request)
        else:
            self.pool.withdraw(job, request)

    def release(self, job: str, release: Release) -> None:
        """Give one granted slot back."""
        shared = self._shared.get(job)
        if shared is not None:
            shared.release(release.request, release.worker)
        else:
            self.pool.release(job, release.request, release.worker)

    def explained(self, job: str, name: str, waits: Iterable[Wait]) -> tuple[Wait, ...]:
        """Add the reasons of the pool, or of the machine, to those of the engine; `name` is that of the graph."""
        shared, now, found = self._shared.get(job), self.clock.now(), []
        for wait in waits:
            reason = ""
            if wait.request:
                asked = job, wait.request, now
                reason = self.pool.why_not(*asked) if shared is None else shared.why_not(wait.request)
            elif wait.kind == WORKER:
                reason = self.pool.why_no_worker(job, now)
            found.append(replace(wait, text=f"{wait.text}; {reason}") if reason else wait)
        if shared is not None and (paused := shared.paused()):
            found.append(Wait(name, SLOTS, paused))
        return tuple(found)

    def serve(self) -> list[tuple[str, Event]]:
        """Grant requests, or ask the provider for them. Return the events of each job."""
        now, pool = self.clock.now(), self.pool
        events: list[tuple[str, Event]] = [
            (job, Granted(now, request, slots)) for job, request, slots in pool.grant(now)
        ]
        for waiting in pool.unmet():
            self.provider.acquire(SlotRequest(waiting.job, waiting.id, waiting.wants))
            if waiting.lacking:
                events.append((waiting.job, Deferred(now, waiting.id, f"{FOR_NODES}{waiting.lacking}")))
        return events

    def ask_for_any(self, jobs: Iterable[str]) -> None:
        """Report to the provider, once each, the jobs with plain work, if no worker is idle."""
        for job in jobs:
            if job not in self._starved:
                self._starved.add(job)
                self.provider.acquire(SlotRequest(job, ANY_WORKER, (("", 1, (ONE_SLOT,), None),)))

    def release_to_provider(self) -> list[Event]:
        """Return unused resources to the provider. Return the loss of workers whose node drains, for all jobs."""
        pool = self.pool
        returned, pool.returned = pool.returned, []
        for job, request in returned:
            self.provider.release(job, request)
        lost, pool.left = pool.left, []
        for worker, _ in lost:
            self.specs.pop(worker, None)
        empty, pool.empty = pool.empty, []
        for node in empty:
            self.provider.drained(node)
        now = self.clock.now()
        return [WorkerLost(now, worker, f"node {name} drains") for worker, name in lost]

    # ------------------------------------------------------------------------------------- workers and nodes

    def joined(self) -> list[WorkerJoined]:
        """Return the present workers as the events with which a job begins."""
        now = self.clock.now()
        return [WorkerJoined(now, s.worker, s.node, s.node_name, s.party) for s in tuple(self.specs.values())]

    def add_worker(self, spec: WorkerSpec) -> Event:
        """Add a worker of a node."""
        self.specs[spec.worker] = spec
        self.pool.add(spec)
        return WorkerJoined(self.clock.now(), spec.worker, spec.node, spec.node_name, spec.party)

    def lose_worker(
        self, worker: int, jobs: Iterable[LeaseTable[Launch, LaunchEach]], *, replaced: bool = False
    ) -> None:
        """Remove a worker with its leases."""
        self.specs.pop(worker, None)
        self.pool.lose(worker, replaced=replaced)
        self.orphans = {lease: other for lease, other in self.orphans.items() if other != worker}
        for leases in jobs:
            for lease in [lease for lease in leases.values() if lease.worker == worker]:
                del leases[lease.lease]

    def add_node(self, spec: NodeSpec) -> Event:
        """Add a node with its workers, memory and GPUs."""
        self.pool.add_node(spec)
        for worker in spec.workers:
            self.specs[worker] = WorkerSpec(worker, spec.node, spec.name, spec.party)
        return NodeJoined(self.clock.now(), spec.node, spec.name, spec.party, spec.workers, spec.resources)

    def drain_node(self, node: int, reason: str) -> tuple[Event, list[tuple[str, Event]]]:
        """Close a node to new tasks. Return its event, and the refusals of requests that can no longer be met."""
        self.pool.drain(node)
        return NodeDraining(self.clock.now(), node, reason), self._hopeless()

    def lose_node(
        self, node: int, reason: str, jobs: Sequence[LeaseTable[Launch, LaunchEach]], *, emptied: bool = False
    ) -> tuple[list[Event], list[tuple[str, Event]]]:
        """Remove a node with its workers and outputs. Return the events for all jobs, and refusals."""
        now = self.clock.now()
        workers = [worker for worker, spec in self.specs.items() if spec.node == node]
        for worker in workers:
            self.lose_worker(worker, jobs)
        self.pool.lose_node(node)
        events: list[Event] = [WorkerLost(now, worker, reason) for worker in workers]
        return [*events, NodeLost(now, node, reason, emptied)], self._hopeless()

    def _hopeless(self) -> list[tuple[str, Event]]:
        now, most = self.clock.now(), self.pool.most_slots()
        return [(job, Refused(now, request, reason, most)) for job, request, reason in self.pool.hopeless()]
