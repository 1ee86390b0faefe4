"""The provider of slots: the port behind which nodes come from, whether this machine, a cluster or a simulation.

The provider says which nodes are there and which could still join, hears of requests that wait, and tells the loop of
nodes that join with their capacity, drain and are lost (`Shell.node_joined`, `node_draining`, `node_lost`). Who gets
the slots is decided by the pool (`weft.runtime.pool`) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from weft.model.resources import Placement, Resources

Wants = tuple[tuple[str, int, tuple[Resources, ...], Placement | None], ...]
"""Slots that are wanted together: vertex, number of tasks, resources of one task in order of preference, placement."""


class NodeSpec(NamedTuple):
    """A node that is there. Its `workers` share its memory; `resources` has the memory and GPUs, its `cpu` is not read.

    A node with 0 bytes of memory has its memory not counted.
    """

    node: int = 0
    name: str = "local"
    party: str = ""
    workers: tuple[int, ...] = ()
    resources: Resources = Resources()


class NodeKind(NamedTuple):
    """Nodes of one kind that could still join: `limit` of them (None: any number), each with `workers` slots."""

    workers: int
    resources: Resources = Resources()
    name: str = ""
    party: str = ""
    limit: int | None = None


class SlotRequest(NamedTuple):
    """A request that waits, for all its slots at once. `request` is -1 for one slot for plain work, if none is idle."""

    job: str
    request: int
    wants: Wants


class Provider(Protocol):
    """A source of slots. All methods return at once and post nothing before they have returned.

    `grows` says whether nodes may join: then it hears of plain work that waits, too.
    """

    grows: bool

    def nodes(self) -> Sequence[NodeSpec]:
        """Return the nodes there are at the start."""
        ...

    def possible(self) -> Sequence[NodeKind]:
        """Return what could ever be had beside the nodes that are there; a request beyond that is refused for good."""
        ...

    def acquire(self, request: SlotRequest) -> None:
        """Take note of a request that waits; nodes may be brought for it. Asked once for each request."""
        ...

    def release(self, job: str, request: int) -> None:
        """Forget a request of `acquire`: it was withdrawn, or its slots have been given back."""
        ...

    def drained(self, node: int) -> None:
        """Take away a node that was said to drain: no task is on it any more. The answer is `Shell.node_lost`."""
        ...


class FixedProvider:
    """A provider of nodes that are there from start to end: threads, processes."""

    grows = False

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self._nodes = tuple(nodes)

    def nodes(self) -> Sequence[NodeSpec]:
        """See `Provider.nodes`."""
        return self._nodes

    def possible(self) -> Sequence[NodeKind]:
        """Return nothing: no node joins."""
        return ()

    def acquire(self, request: SlotRequest) -> None:
        """Do nothing: what waits is served from the nodes that are there."""

    def release(self, job: str, request: int) -> None:
        """Do nothing."""

    def drained(self, node: int) -> None:
        """Do nothing: no node drains."""
