"""Nodes of a simulated cluster that come and go: an autoscaler, preemption, and losses, on the virtual clock.

A waiting request brings nodes after a delay. They are returned when no request needs them. At random moments nodes
drain or are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from weft.engine.provider import NodeKind, NodeSpec, SlotRequest
from weft.model.resources import Resources

if TYPE_CHECKING:
    import random

    from weft.engine.ports import ManualClock, Shell, WorkerSpec


class Machines(Protocol):
    """The interface of the simulator for a provider of simulated nodes."""

    clock: ManualClock
    random: random.Random

    @property
    def shell(self) -> Shell:
        """The loop of the simulator."""
        ...

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Call `action` when the virtual clock reaches `when`."""
        ...

    def hire(self, node: int, name: str, party: str) -> int:
        """Return a new worker of a node that is about to join."""
        ...

    def dismiss(self, node: int) -> None:
        """Remove a node with its workers and outputs."""
        ...

    def holds_outputs(self, node: int) -> bool:
        """Whether outputs of a job that has not ended lie on a node."""
        ...


class Elastic(Struct, frozen=True):
    """The changes of a simulated cluster's nodes; times are in seconds.

    Nodes of `kinds` join `delay_s` after a request that waits for them. A node brought for requests drains `idle_s`
    after the end of the last request. Every `every_s` a random node drains, with the probability `drained`, or is lost,
    with `lost`, at most `most` times; then a node of the same kind is available again.
    """

    kinds: tuple[NodeKind, ...] = ()
    delay_s: float = 30.0
    idle_s: float = 60.0
    every_s: float = 1.0
    drained: float = 0.0
    lost: float = 0.0
    most: int = 10


class ElasticProvider:
    """The provider of a simulator whose nodes change as in `elastic`; the seed of the simulator draws every chance.

    `joined`, `drained_nodes` and `lost_nodes` count the changes.
    """

    grows = True

    def __init__(self, simulator: Machines, nodes: Sequence[NodeSpec], elastic: Elastic) -> None:
        self.simulator = simulator
        self.elastic = elastic
        self.there = {spec.node: spec for spec in nodes}
        self.joined = self.drained_nodes = self.lost_nodes = 0
        self._draining: set[int] = set()
        self._brought: set[int] = set()
        self._stock = list(elastic.kinds)
        """Available nodes."""
        self._coming: list[NodeKind] = []
        self._requests: dict[tuple[str, int], SlotRequest] = {}
        self._next = max(self.there, default=-1) + 1
        self._watching = False

    # ------------------------------------------------------------------------------------------------ provider

    def nodes(self) -> Sequence[NodeSpec]:
        """See `Provider.nodes`."""
        return tuple(self.there.values())

    def possible(self) -> Sequence[NodeKind]:
        """See `Provider.possible`: the stock, with nodes on their way and those that will return to it."""
        return [*self._stock, *self._coming, *(_kind(self.there[number]) for number in sorted(self._draining))]

    def acquire(self, request: SlotRequest) -> None:
        """Bring nodes for a request, as if there were none."""
        self._requests[(request.job, request.request)] = request
        self._bring(request)

    def release(self, job: str, request: int) -> None:
        """Drain the brought nodes after a while, if no other request needs them."""
        self._requests.pop((job, request), None)
        if not self._requests and self._brought:
            self.simulator.at(self.simulator.clock.time + self.elastic.idle_s, self._shrink)

    def drained(self, node: int) -> None:
        """Remove a node."""
        self.simulator.at(self.simulator.clock.time, lambda: self._take(node, "it has drained"))

    # ------------------------------------------------------------------------------------------------- chances

    def watch(self) -> None:
        """Begin to draw faults, as long as there are jobs."""
        if not self._watching and (self.elastic.drained or self.elastic.lost):
            self._watching = True
            self.simulator.at(self.simulator.clock.time + self.elastic.every_s, self._draw)

    def _draw(self) -> None:
        self._watching = False
        chance = self.simulator.random
        if not self.simulator.shell.jobs or self.drained_nodes + self.lost_nodes >= self.elastic.most:
            return
        steady = sorted(self.there.keys() - self._draining)
        if steady and chance.random() < self.elastic.drained:
            self.drained_nodes += 1
            self._drain(chance.choice(steady), "its machine is wanted elsewhere")
        there = sorted(self.there)
        if there and chance.random() < self.elastic.lost:
            self.lost_nodes += 1
            self._take(chance.choice(there), "its machine has failed")
        self.watch()

    # ------------------------------------------------------------------------------------------- what changes

    def _bring(self, request: SlotRequest) -> None:
        for _, count, alternatives, placement in request.wants:
            for kind in tuple(self._stock):
                room = max(_room(kind, wants) for wants in alternatives)
                if count <= 0 or not room or not (placement is None or placement.allows(kind.name, kind.party)):
                    continue
                nodes = ceil(count / room) if kind.limit is None else min(ceil(count / room), kind.limit)
                count -= nodes * room
                for _ in range(nodes):
                    self._book(replace(kind, limit=1))

    def _book(self, kind: NodeKind) -> None:
        """Schedule the join of a node of a kind."""
        self._change_stock(kind, -1)
        self._coming.append(kind)
        self.simulator.at(self.simulator.clock.time + self.elastic.delay_s, lambda: self._join(kind))

    def _change_stock(self, kind: NodeKind, by: int) -> None:
        for place, each in enumerate(self._stock):
            if replace(each, limit=1) == kind:
                limit = None if each.limit is None else each.limit + by
                self._stock[place] = replace(each, limit=limit)
                if limit == 0:
                    del self._stock[place]
                return
        self._stock.append(kind)

    def _join(self, kind: NodeKind) -> None:
        self._coming.remove(kind)
        number, self._next = self._next, self._next + 1
        workers = [self.simulator.hire(number, kind.name, kind.party) for _ in range(kind.workers)]
        spec = self.there[number] = NodeSpec(number, kind.name, kind.party, tuple(workers), kind.resources)
        self._brought.add(number)
        self.joined += 1
        self.simulator.shell.node_joined(spec)
        if not self._requests:
            self.simulator.at(self.simulator.clock.time + self.elastic.idle_s, self._shrink)

    def _shrink(self) -> None:
        """Drain the brought nodes, as no request waits; those that hold outputs of a job drain later."""
        if self._requests:
            return
        wanted = self._brought - self._draining
        held = {number for number in wanted if self.simulator.holds_outputs(number)}
        for number in sorted(wanted - held):
            self._drain(number, "no request waits for it")
        if held:
            self.simulator.at(self.simulator.clock.time + max(1.0, self.elastic.idle_s), self._shrink)

    def _drain(self, number: int, why: str) -> None:
        self._draining.add(number)
        self.simulator.shell.node_draining(number, why)

    def _take(self, number: int, why: str) -> None:
        """Return a removed node to the stock, and serve the waiting requests."""
        spec = self.there.pop(number, None)
        if spec is None:
            return
        self._draining.discard(number)
        self._brought.discard(number)
        self._change_stock(_kind(spec), 1)
        self.simulator.dismiss(number)
        self.simulator.shell.node_lost(number, why)
        for request in tuple(self._requests.values()):
            self._bring(request)


def _kind(spec: NodeSpec) -> NodeKind:
    return NodeKind(len(spec.workers), spec.resources, spec.name, spec.party, 1)


def _room(kind: NodeKind, wants: Resources) -> int:
    """Return the number of tasks that fit on an empty node of a kind."""
    if wants.gpu and wants.gpu_type not in ("", kind.resources.gpu_type):
        return 0
    if not wants.takes_of(dict(kind.resources.custom)):
        return 0
    room = kind.workers // max(1, ceil(wants.cpu))
    if kind.resources.memory and wants.memory:
        room = min(room, kind.resources.memory // wants.memory)
    return min(room, kind.resources.gpu // wants.gpu) if wants.gpu else room


def fixed_nodes(workers: Sequence[WorkerSpec], resources: Sequence[Resources] | Resources | None) -> list[NodeSpec]:
    """Return the nodes of some workers; `resources` are those of each, or one for each by number."""
    first: dict[int, WorkerSpec] = {}
    on: dict[int, list[int]] = {}
    for spec in workers:
        first.setdefault(spec.node, spec)
        on.setdefault(spec.node, []).append(spec.worker)
    found = []
    for node, spec in first.items():
        given = resources if resources is None or isinstance(resources, Resources) else resources[node]
        found.append(NodeSpec(node, spec.node_name, spec.party, tuple(on[node]), given or Resources()))
    return found
