"""The provider of slots: the port to the source of nodes, which is this machine, a cluster or a simulation.

The provider lists the present nodes and those that could still join, receives the waiting requests, and reports to the
loop nodes that join with their capacity, drain and are lost (`Shell.node_joined`, `node_draining`, `node_lost`). The
pool (`weft.runtime.pool`) alone assigns the slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from weft.graph.spec import Wants  # noqa: TC001 - fields of records are read at run time
from weft.model.resources import Resources

BESIDE: Final = 1 << 20
"""The number of the first worker beside those of the session; see `SharedSlots`."""


class NodeSpec(NamedTuple):
    """A present node. Its `workers` share its memory; `resources` has the memory and GPUs, its `cpu` is ignored.

    The memory of a node with 0 bytes is not accounted.
    """

    node: int = 0
    name: str = "local"
    party: str = ""
    workers: tuple[int, ...] = ()
    resources: Resources = Resources()


class NodeKind(Struct, frozen=True):
    """Nodes of one kind that could still join: `limit` of them (None: any number), each with `workers` slots."""

    workers: int
    resources: Resources = Resources()
    name: str = ""
    party: str = ""
    limit: int | None = None


class SlotRequest(Struct, frozen=True):
    """A waiting request for all its slots at once. `request` is -1 for one slot of plain work, if none is idle."""

    job: str
    request: int
    wants: Wants


class Provider(Protocol):
    """A source of slots. All methods return at once and post no event before they have returned.

    `grows` says whether nodes may join: then the provider receives requests of waiting plain work, too.
    """

    grows: bool

    def nodes(self) -> Sequence[NodeSpec]:
        """Return the nodes present at the start."""
        ...

    def possible(self) -> Sequence[NodeKind]:
        """Return the nodes that could join the present ones; a request beyond these is refused for good."""
        ...

    def acquire(self, request: SlotRequest) -> None:
        """Register a waiting request, for which nodes may be brought. Called once for each request."""
        ...

    def release(self, job: str, request: int) -> None:
        """Remove a request of `acquire`: it was withdrawn, or its slots were released."""
        ...

    def drained(self, node: int) -> None:
        """Take away a draining node without running tasks. The answer is `Shell.node_lost`."""
        ...


class SharedSlots(Protocol):
    """The slots of one job that shares its machine with other processes; they stand in for the pool.

    All methods return at once. `Granted`, `Refused` and `Deferred` follow as events, with workers beside those of
    the session, numbered from `BESIDE`; their tasks run like those without a slot.
    """

    def begin(self, loop: Any, job: Any) -> None:
        """Start to report to the loop for a job."""
        ...

    def request(self, request: int, wants: Wants) -> str:
        """Claim slots, all or none. Return "" or the reason why they can never be granted."""
        ...

    def refusal(self, wants: Wants) -> str:
        """Return why slots can never be granted together, as a clause; "" if they can."""
        ...

    def withdraw(self, request: int) -> None:
        """Remove a claim that was not granted."""
        ...

    def release(self, request: int, worker: int) -> None:
        """Give one slot back; the claim ends with its last slot."""
        ...

    def why_not(self, request: int) -> str:
        """Return why a claim waits, as a clause; "" if there is no such claim."""
        ...

    def paused(self) -> str:
        """Return why the job was told to make room and waits to go on, as a clause; "" if it was not."""
        ...

    def end(self) -> None:
        """Give everything back: the job has ended."""
        ...

    def join(self, timeout_s: float) -> None:
        """Wait until everything has been given back."""
        ...


class FixedProvider:
    """A provider of a constant set of nodes: threads, processes."""

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
        """Do nothing: the present nodes serve all requests."""

    def release(self, job: str, request: int) -> None:
        """Do nothing."""

    def drained(self, node: int) -> None:
        """Do nothing: no node drains."""
