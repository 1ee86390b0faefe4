"""The pool of one session: the only owner of slots and node memory.

A slot is one worker. Plain tasks are served by *offers* of idle workers; bubbles, GPUs, several cores and memory by
*requests*, which are granted all or nothing. Jobs share fairly: the job with plain work that holds the fewest slots is
served first; requests are FIFO inside a job. A request that waits only for slots reserves idle ones, so that small
tasks cannot starve a gang.

The nodes are those of a provider. A request that fits no present nodes waits if nodes that could still join would meet
it; otherwise it is refused. A draining node gives no more slots: each of its workers leaves the pool at the end of its
work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from itertools import repeat
from math import ceil, inf
from typing import TYPE_CHECKING

from msgspec import Struct

from weft.model.resources import Resources

if TYPE_CHECKING:
    from weft.engine.ports import WorkerSpec
    from weft.engine.provider import NodeKind, NodeSpec
    from weft.graph.spec import Wants


_NOBODY = ""
"""The holder of workers that still run leases of ended jobs."""
KEEP_BACK_S = 5.0
"""The seconds for which idle workers are reserved for a request that waits for more of them."""
AVOID_S = 20.0
"""The seconds for which a request waits for other workers than those that it avoids. The holders of the others may
never free them.
"""


UNLIMITED = 10**9
"""Any number of slots."""
FOR_NODES = "waits for nodes to join: "
"""The beginning of the reason of a request that the present nodes cannot meet."""
BOUND = " left besides the tasks that run until its end"
"""The end of a refusal whose cause may be the services of the job."""


class _Node(Struct):
    name: str
    party: str
    workers: int = 0
    """Workers, including those that are being replaced."""
    away: int = 0
    """Workers that are being replaced."""
    memory: int = 0
    gpu: int = 0
    gpu_type: str = ""
    memory_free: int = 0
    gpu_free: int = 0
    custom: dict[str, float] = {}
    custom_free: dict[str, float] = {}
    draining: bool = False


_Group = tuple[_Node, float]
"""Equal nodes and their number, which may be unlimited."""


class _Request(Struct):
    job: str
    id: int
    wants: Wants
    avoid: frozenset[int]
    since: float = 0.0
    lacking: str = ""
    """The reason why the nodes cannot meet the request even when empty; "" if they can."""
    settled: bool = False
    priority: int = 0


def _node(name: str, party: str, resources: Resources) -> _Node:
    """Return a node without workers, with all its memory and GPUs free."""
    memory, gpu, custom = resources.memory, resources.gpu, resources.custom
    return _Node(name, party, 0, 0, memory, gpu, resources.gpu_type, memory, gpu, dict(custom), dict(custom))


def _change(amounts: dict[str, float], custom: Iterable[tuple[str, float]], sign: int) -> None:
    """Add amounts of custom resources, or take them with the sign -1."""
    for name, amount in custom:
        amounts[name] = amounts.get(name, 0.0) + sign * amount


class _Held(Struct):
    """The resources of one granted slot: the worker, sibling workers idle for its cores, memory and GPUs."""

    job: str
    node: int
    siblings: tuple[int, ...] = ()
    memory: int = 0
    gpu: int = 0
    custom: tuple[tuple[str, float], ...] = ()


class Pool:
    """Slots and node memory of a session. Not thread-safe: the loop's lock guards it.

    `possible` returns the nodes that could still join. The loop collects three lists: `left` are the workers that left
    a draining node, with its name; `empty` are the draining nodes without workers; `returned` are the requests (job,
    number) that the provider was asked for and that hold no slot any more.
    """

    def __init__(self, nodes: Iterable[NodeSpec] = (), possible: Callable[[], Sequence[NodeKind]] = lambda: ()) -> None:
        self._nodes: dict[int, _Node] = {}
        self._node_of: dict[int, int] = {}
        self._possible = possible
        self._draining = False
        self.left: list[tuple[int, str]] = []
        self.empty: list[int] = []
        self._unseen: list[_Request] = []
        """Requests that the provider was not asked for yet."""
        self._acquired: set[tuple[str, int]] = set()
        """Requests that the provider was asked for, by job and number."""
        self.returned: list[tuple[str, int]] = []
        self.waiting: list[_Request] = []
        self._ranked = False
        """Whether requests of one job have had several priorities."""
        self.priorities: dict[str, int] = {}
        """The priorities of jobs that have another one than 0."""
        self._granted: dict[tuple[str, int, int], _Held] = {}
        self._busy: dict[int, str] = {}
        self.reserved: set[int] = set()
        self.held: dict[str, int] = {}
        self._idle: list[int] = []
        for node in nodes:
            self.add_node(node)

    def add_node(self, spec: NodeSpec) -> None:
        """Add a node with its workers, memory and GPUs."""
        node = self._nodes[spec.node] = _node(spec.name, spec.party, spec.resources)
        node.workers = len(spec.workers)
        self._node_of.update(dict.fromkeys(spec.workers, spec.node))
        self._idle += spec.workers

    def add(self, spec: WorkerSpec) -> None:
        """Add a worker of a node. An unknown node has no resources but its workers."""
        node = self._nodes.get(spec.node)
        if node is None:
            node = self._nodes[spec.node] = _node(spec.node_name, spec.party, Resources())
        if node.away:
            node.away -= 1
        else:
            node.workers += 1
        self._node_of[spec.worker] = spec.node
        self._return_workers((spec.worker,))

    def drain(self, node: int) -> None:
        """Close a node to new work: its idle workers leave now, the others at the end of their work."""
        found = self._nodes.get(node)
        if found is not None and not found.draining:
            found.draining = self._draining = True
            self._drain_idle()
            self._see_empty(node)

    def lose_node(self, node: int) -> None:
        """Remove a node whose workers were removed before."""
        self._nodes.pop(node, None)
        self._draining = any(each.draining for each in self._nodes.values())

    def _return_workers(self, workers: Iterable[int]) -> None:
        """Make workers idle, or remove them if their node drains."""
        self._idle += workers
        if self._draining:
            self._drain_idle()

    def _drain_idle(self) -> None:
        for worker in [worker for worker in self._idle if self._nodes[self._node_of[worker]].draining]:
            self._idle.remove(worker)
            number = self._node_of.pop(worker)
            self._nodes[number].workers -= 1
            self.left.append((worker, self._nodes[number].name))
            self._see_empty(number)

    def _see_empty(self, number: int) -> None:
        node = self._nodes[number]
        if node.draining and not node.workers and number not in self.empty:
            self.empty.append(number)

    def lose(self, worker: int, *, replaced: bool = False) -> None:
        """Remove a worker with all that it held; `replaced` announces a new one on the same node."""
        node = self._node_of.pop(worker, None)
        if node is None:
            return
        if replaced:
            self._nodes[node].away += 1
        else:
            self._nodes[node].workers -= 1
        self._see_empty(node)
        if worker in self._idle:
            self._idle.remove(worker)
        job = self._busy.pop(worker, None)
        if job is not None:
            self.held[job] -= 1
        for key in [key for key in self._granted if key[2] == worker]:
            held = self._release_slot(key)
            self._return_workers(other for other in held.siblings if other in self._node_of)
        for held in self._granted.values():
            if worker in held.siblings:
                held.siblings = tuple(other for other in held.siblings if other != worker)
                self.held[held.job] -= 1

    def capacity(self) -> list[Resources]:
        """Return the maximum that each present or possible node can give, to check graphs."""
        nodes = [node for node, _ in self._groups(self._nodes, growing=True)]
        return [Resources(n.workers, n.memory, n.gpu, n.gpu_type, custom=tuple(n.custom.items())) for n in nodes]

    def most_slots(self) -> int:
        """Return the maximum number of slots; a very large number if there is no limit."""
        count = sum(node.workers * number for node, number in self._groups(self._nodes, growing=True))
        return UNLIMITED if count == inf else int(count)

    @property
    def idle(self) -> int:
        """The number of idle workers."""
        return len(self._idle)

    def join(self, job: str) -> None:
        """Add a job that shares the pool."""
        self.held.setdefault(job, 0)

    def leave(self, job: str, but: Collection[int] = ()) -> None:
        """Remove an ended job and free its slots, `but` those of some workers that still run its leases."""
        for request in [request for request in self.waiting if request.job == job]:
            self.withdraw(job, request.id)
        for worker in [worker for worker, owner in self._busy.items() if owner == job]:
            if worker in but:
                self._busy[worker] = _NOBODY
                self.held[_NOBODY] = self.held.get(_NOBODY, 0) + 1
            else:
                self.free((worker,))
        for key in [key for key in self._granted if key[0] == job]:
            self.release(*key)
        self.held.pop(job, None)
        self.priorities.pop(job, None)

    # ------------------------------------------------------------------------------------------------- offers

    def offer(self, now: float) -> list[int]:
        """Return the idle workers that plain tasks may take now, the next one to use last. Not a copy."""
        kept = self._kept_back(now) if self.waiting else None
        if not kept:
            return self._idle
        return [worker for worker in self._idle if self._node_of[worker] not in kept]

    def take(self, workers: Sequence[int], job: str) -> None:
        """Take offered workers for one lease of `job` each. Granted workers are taken already."""
        idle = self._idle
        if idle[-len(workers) :] == [*reversed(workers)]:
            del idle[-len(workers) :]
        else:
            offered = []
            for worker in workers:
                if worker not in self.reserved and worker in idle:
                    idle.remove(worker)
                    offered.append(worker)
            workers = offered
        self._busy.update(dict.fromkeys(workers, job))
        self.held[job] += len(workers)

    def free(self, workers: Sequence[int]) -> None:
        """Free the workers of ended plain leases."""
        jobs = list(map(self._busy.pop, workers, repeat(None)))  # None: it is lost, or was free before
        for job in set(jobs):
            if job is not None:
                self.held[job] -= jobs.count(job)
        self._return_workers([worker for worker, job in zip(workers, jobs, strict=True) if job is not None])

    # ----------------------------------------------------------------------------------------------- requests

    def request(
        self,
        job: str,
        request: int,
        wants: Wants,
        avoid: Iterable[int],
        now: float = 0.0,
        bound: Collection[int] = (),
        priority: int = 0,
    ) -> str:
        """Queue a request. Return "" or the reason why it can never be met while `bound` workers stay busy."""
        lacking = self._lacks(wants, bound, growing=False)
        reason = lacking and self.refusal(wants, bound)
        if not reason:
            made = _Request(job, request, wants, frozenset(avoid), now, lacking, priority=priority)
            self._ranked = self._ranked or priority != 0
            at = len(self.waiting)
            if self._ranked:
                behind = (i for i, each in enumerate(self.waiting) if each.job == job and each.priority < priority)
                at = next(behind, at)
            self.waiting.insert(at, made)
            self._unseen.append(made)
        return reason

    def refusal(self, wants: Wants, bound: Collection[int] = ()) -> str:
        """Return why a request can never be met while `bound` workers stay busy, not even by nodes that could join; ""
        if it can.
        """
        return self._lacks(wants, bound, growing=True)

    def _lacks(self, wants: Wants, bound: Collection[int], *, growing: bool) -> str:
        reason = self._never(wants, self._groups(self._nodes, growing=growing))
        if not reason and bound:
            reason = self._never(wants, self._groups(self._left_by(bound), growing=growing), BOUND)
        return reason

    def unmet(self) -> list[_Request]:
        """Return the waiting requests that the provider was not asked for, and record them as asked for."""
        unseen, self._unseen = [request for request in self._unseen if not request.settled], []
        self._acquired.update((request.job, request.id) for request in unseen)
        return unseen

    def hopeless(self) -> list[tuple[str, int, str]]:
        """Remove and return the waiting requests that lost nodes make impossible: job, number, reason."""
        found: list[tuple[str, int, str]] = []
        for request in list(self.waiting):
            reason = self.refusal(request.wants)
            if reason:
                self.withdraw(request.job, request.id)
                found.append((request.job, request.id, reason))
        return found

    def withdraw(self, job: str, request: int) -> None:
        """Remove a request that was not granted."""
        for each in [each for each in self.waiting if (each.job, each.id) == (job, request)]:
            self.waiting.remove(each)
            each.settled = True
            self._give_back(job, request)

    def _give_back(self, job: str, request: int) -> None:
        """Withdraw a request from the provider, if it was asked."""
        if (job, request) in self._acquired:
            self._acquired.discard((job, request))
            self.returned.append((job, request))

    def release(self, job: str, request: int, worker: int) -> None:
        """Give one granted slot back."""
        key = (job, request, worker)
        if key in self._granted:
            held = self._release_slot(key)
            self._return_workers([w for w in (worker, *held.siblings) if w in self._node_of])

    def grant(self, now: float = 0.0) -> list[tuple[str, int, tuple[tuple[str, int, int], ...]]]:
        """Grant all requests that fit now. Return (job, request, slots) of each."""
        met: list[tuple[str, int, tuple[tuple[str, int, int], ...]]] = []
        progress = bool(self.waiting)
        while progress:
            progress = False
            first: dict[str, _Request] = {}
            for request in self.waiting:
                first.setdefault(request.job, request)
            for request in sorted(first.values(), key=self._rank):
                slots = self._place(request, now)
                if slots is not None:
                    self.waiting.remove(request)
                    request.settled = True
                    met.append((request.job, request.id, slots))
                    progress = True
                    break
        return met

    def _rank(self, request: _Request) -> tuple[int, int]:
        return -self.priorities.get(request.job, 0), self.held.get(request.job, 0)

    # -------------------------------------------------------------------------------------------------- reasons

    def why_not(self, job: str, request: int, now: float) -> str:
        """Return why a waiting request is not granted, as a clause; "" if there is no such request."""
        found = next((each for each in self.waiting if (each.job, each.id) == (job, request)), None)
        if found is None:
            return ""
        if found.lacking:
            return f"{FOR_NODES}{found.lacking}"
        first = next(each for each in self.waiting if each.job == job)
        if first is not found:
            return f"waits behind an earlier request of this run, for {_wanted(first.wants)}; {self.occupied(job)}"
        if found.avoid and self._find(found, frozenset()) is not None:
            left = max(0.0, found.since + AVOID_S - now)
            workers = ", ".join(map(str, sorted(found.avoid)))
            return f"waits up to {left:.3g} s for other workers than {workers}, on which tasks have failed"
        if self._find(found, frozenset()) is not None:
            return "fits now, and is granted next"
        return f"does not fit now; {self.occupied(job)}"

    def why_no_worker(self, job: str, now: float) -> str:
        """Return why plain work of a job gets no worker, as a clause; "" if an idle worker is offered."""
        if not self._idle:
            return f"no worker is idle; {self.occupied(job)}"
        if self.offer(now):
            return ""
        kept = self._kept_back(now)
        behind = [each for each in self.waiting if now < each.since + KEEP_BACK_S]
        left = max(each.since for each in behind) + KEEP_BACK_S - now
        owners = ", ".join(dict.fromkeys(f"{_wanted(each.wants)} of {_run(each.job, job)}" for each in behind))
        nodes = ", ".join(sorted(self._nodes[number].name for number in kept))
        return f"the idle workers of {nodes} are kept for up to {left:.3g} s for {owners}; {self.occupied(job)}"

    def occupied(self, job: str) -> str:
        """Return the free part of each node, and the slots that each job holds; `job` names the reader."""
        idle = dict.fromkeys(self._nodes, 0)
        for worker in self._idle:
            idle[self._node_of[worker]] += 1
        free = "; ".join(
            f"{node.name} {idle[number]} of {node.workers} slots"
            + (f", {node.memory_free:,} of {node.memory:,} bytes" if node.memory else "")
            + (f", {node.gpu_free} of {node.gpu} GPUs" if node.gpu else "")
            + (", draining" if node.draining else "")
            for number, node in self._nodes.items()
        )
        holders = sorted(((count, name) for name, count in self.held.items() if count), reverse=True)
        held = ", ".join(f"{_run(name, job)} holds {count}" for count, name in holders) or "no run holds slots"
        fair = "; the run with the fewest slots is served first" if len(holders) > 1 else ""
        return f"free: {free or 'no node'}; {held}{fair}"

    def _release_slot(self, key: tuple[str, int, int]) -> _Held:
        held = self._granted.pop(key)
        self.reserved.discard(key[2])
        node = self._nodes[held.node]
        node.memory_free += held.memory
        node.gpu_free += held.gpu
        _change(node.custom_free, held.custom, 1)
        if held.job in self.held:
            self.held[held.job] -= 1 + len(held.siblings)
        job, request, _ = key
        if self._acquired and not any(other[:2] == (job, request) for other in self._granted):
            self._give_back(job, request)
        return held

    def _groups(self, nodes: Mapping[int, _Node], *, growing: bool) -> list[_Group]:
        """Return the nodes that take new work, and with `growing` those that could join."""
        found: list[_Group] = [(node, 1.0) for node in nodes.values() if not node.draining]
        for kind in self._possible() if growing else ():
            node = _node(kind.name, kind.party, kind.resources)
            node.workers = kind.workers
            found.append((node, inf if kind.limit is None else float(kind.limit)))
        return [group for group in found if group[1]]

    def _left_by(self, bound: Collection[int]) -> dict[int, _Node]:
        """Return the nodes without the resources that some busy workers hold."""
        left = {number: copy(node) for number, node in self._nodes.items()}
        held_by = {worker: held for (_, _, worker), held in self._granted.items()}
        for worker in bound:
            if worker in self._node_of:
                node, held = left[self._node_of[worker]], held_by.get(worker)
                node.workers -= 1
                if held is not None:
                    node.workers -= len(held.siblings)
                    node.memory = max(node.memory - held.memory, min(node.memory, 1))  # 0 would be: not counted
                    node.gpu -= held.gpu
                    node.custom = dict(node.custom)  # the copy of the node shares it
                    _change(node.custom, held.custom, -1)
        return left

    def _never(self, wants: Wants, groups: Sequence[_Group], why: str = "") -> str:
        """Return why a request can never be met even on idle nodes; "" if it can."""
        total = memory = 0
        for vertex, count, alternatives, placement in wants:
            nodes = [n for n, _ in groups if placement is None or placement.allows(n.name, n.party)]
            if not nodes and placement is None:
                return f"no node is left for {vertex}"
            if not nodes:
                return f"{vertex} must run on {placement}, and there is no such node"
            if not any(self._fits(n, r, empty=True) for r in alternatives for n in nodes):
                wanted = " or ".join(str(r) for r in alternatives)
                where = f" on {placement.node or placement.party}" if placement is not None else ""
                return f"{vertex} asks for {wanted} for one task{where}; no node has that much{why}"
            total += count * min(max(1, ceil(r.cpu)) for r in alternatives)
            memory += count * min(r.memory for r in alternatives)
        workers = sum(node.workers * count for node, count in groups)
        if total > workers:
            return f"it needs {total} slots at once; the session has {workers:.0f}{why}"
        there = sum(node.memory * count for node, count in groups if node.memory)
        if memory > there and all(node.memory for node, _ in groups):
            return f"it needs {memory:,} bytes of memory at once; the session has {there:,.0f}{why}"
        return ""

    @staticmethod
    def _fits(node: _Node, wants: Resources, *, empty: bool) -> bool:
        memory, gpu = (node.memory, node.gpu) if empty else (node.memory_free, node.gpu_free)
        return (
            (not empty or max(1, ceil(wants.cpu)) <= node.workers)
            and (wants.memory <= memory or not node.memory)
            and wants.gpu <= gpu
            and (not wants.gpu or wants.gpu_type in ("", node.gpu_type))
            and wants.takes_of(node.custom if empty else node.custom_free)
        )

    def _kept_back(self, now: float) -> set[int]:
        """Return the nodes whose idle workers are reserved for waiting requests, for at most `KEEP_BACK_S`.

        The holders of the other slots may never free them: a service ends only when the plain tasks are done.
        """
        return {
            number
            for request in self.waiting
            if now < request.since + KEEP_BACK_S  # as the timer is set: a difference rounds differently
            for _, _, alternatives, placement in request.wants
            for number, node in self._nodes.items()
            if placement is None or placement.allows(node.name, node.party)
            if any(self._fits(node, wants, empty=False) for wants in alternatives)
        }

    def _possible_without(self, request: _Request) -> bool:
        """Whether the request can be met one day without the workers that it avoids."""
        if not request.avoid:
            return True
        left = {number: 0 if node.draining else node.away for number, node in self._nodes.items()}
        for worker, number in self._node_of.items():
            if worker not in request.avoid and not self._nodes[number].draining:
                left[number] += 1
        slots = sum(count * min(max(1, ceil(r.cpu)) for r in resources) for _, count, resources, _ in request.wants)
        return slots <= sum(left.values()) and all(
            any(
                left[number] >= max(1, ceil(wants.cpu))
                and self._fits(node, wants, empty=True)
                and (placement is None or placement.allows(node.name, node.party))
                for wants in alternatives
                for number, node in self._nodes.items()
            )
            for _, _, alternatives, placement in request.wants
        )

    def _place(self, request: _Request, now: float) -> tuple[tuple[str, int, int], ...] | None:
        """Take a worker for each task of the request, or return None."""
        patient = now < request.since + AVOID_S and self._possible_without(request)
        found = self._find(request, request.avoid if patient else frozenset())
        if found is None:
            return None
        slots, held = found
        for (_, worker, _), what in zip(slots, held, strict=True):
            self._granted[(request.job, request.id, worker)] = what
            self.reserved.add(worker)
            for slot in (worker, *what.siblings):
                self._idle.remove(slot)
            self._nodes[what.node].memory_free -= what.memory
            self._nodes[what.node].gpu_free -= what.gpu
            _change(self._nodes[what.node].custom_free, what.custom, -1)
            self.held[request.job] += 1 + len(what.siblings)
        return tuple(slots)

    def _find(self, request: _Request, avoid: frozenset[int]) -> tuple[list[tuple[str, int, int]], list[_Held]] | None:
        """Find idle workers for the request that are not among `avoid`, or return None."""
        idle: dict[int, list[int]] = {}
        for worker in self._idle:
            if worker not in avoid:
                idle.setdefault(self._node_of[worker], []).append(worker)
        memory = {number: node.memory_free for number, node in self._nodes.items()}
        gpu = {number: node.gpu_free for number, node in self._nodes.items()}
        custom = {number: dict(node.custom_free) for number, node in self._nodes.items()}
        slots: list[tuple[str, int, int]] = []
        held: list[_Held] = []
        for vertex, count, alternatives, placement in request.wants:
            for _ in range(count):
                found = False
                for choice, wants in enumerate(alternatives):
                    cores = max(1, ceil(wants.cpu))
                    for number, free in idle.items():
                        node = self._nodes[number]
                        if (
                            len(free) >= cores
                            and (wants.memory <= memory[number] or not node.memory)
                            and wants.gpu <= gpu[number]
                            and (not wants.gpu or wants.gpu_type in ("", node.gpu_type))
                            and wants.takes_of(custom[number])
                            and (placement is None or placement.allows(node.name, node.party))
                        ):
                            taken = [free.pop() for _ in range(cores)]
                            memory[number] -= wants.memory
                            gpu[number] -= wants.gpu
                            _change(custom[number], wants.custom, -1)
                            slots.append((vertex, taken[0], choice))
                            held.append(
                                _Held(request.job, number, tuple(taken[1:]), wants.memory, wants.gpu, wants.custom)
                            )
                            found = True
                            break
                    if found:
                        break
                if not found:
                    return None
        return slots, held


def _wanted(wants: Wants) -> str:
    """Render a request: the tasks of each vertex, with their resources."""
    return " and ".join(
        f"{count} x {vertex or 'any task'} ({' or '.join(map(str, alternatives))})"
        for vertex, count, alternatives, _ in wants
    )


def _run(name: str, reader: str) -> str:
    """Render the name of a job for the job `reader`."""
    return "this run" if name == reader else name or "tasks of an ended run"
