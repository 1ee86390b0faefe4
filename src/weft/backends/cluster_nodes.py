"""The nodes of a cluster as the session sees them: addresses, connections, leases there, provider of slots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.backends.helpers import BackendThreads
from weft.backends.node_link import Link, Lost, NodeLink, Take
from weft.backends.process_jobs import NOT_SENT
from weft.engine.provider import FixedProvider, NodeKind, NodeSpec
from weft.model.resources import Resources
from weft.store import peers
from weft.store.handshake import Credentials, Dial, dial_tcp
from weft.worker.lease import WorkerLease

if TYPE_CHECKING:
    from weft.store.api import ChunkPin


class NodeAddress(NamedTuple):
    """A node that listens at `address`, with `workers` processes and its `resources`."""

    address: tuple[str, int]
    workers: int
    name: str
    resources: Resources = Resources()


class NodeNetwork(BackendThreads):
    """The connections of a process with the nodes of a cluster, beside its threads. `dial` reaches the nodes."""

    def __init__(self, credentials: Credentials, dial: Dial = dial_tcp) -> None:
        self.credentials = credentials
        self.dial = dial

    def connect(self, address: tuple[str, int], take: Take, lost: Lost) -> Link:
        """Connect to a node. OSError, ForbiddenError: see `NodeLink.connect`."""
        return NodeLink.connect(address, self.credentials, take, lost, self.dial)

    def open_reader(self) -> None:
        """Read chunks at nodes from now on."""
        peers.open_reader(self.credentials, self.dial)

    def close_reader(self) -> None:
        """Read no more chunks at nodes."""
        peers.close_reader()


class NodeConnection:
    """A node as seen from the session. `lock` guards what was sent to it."""

    def __init__(self, number: int, about: NodeAddress) -> None:
        self.number = number
        self.about = about
        self.prefix = f"{peers.ROOT}{about.address[0]}:{about.address[1]}/"
        """The beginning of the locations of its outputs."""
        self.link: Link | None = None
        self.dead = False
        self.lock = threading.Lock()
        self.workers: dict[int, int] = {}
        """The number of each of its workers in the session."""
        self.leases: dict[tuple[str, int], SentLease] = {}
        self.specs: dict[str, set[int]] = {}
        self.sent: dict[tuple[str, str], list[Any]] = {}
        """The cells that were sent of each column."""
        self.paths: list[str] = []
        self.serializers = 0
        self.modules = 0
        self.leaves = ""
        """Why the node drains, "" if it does not."""
        self.readers: set[tuple[int, tuple[str, int]]] | None = None
        """The leases of other nodes that may still read outputs here, once all have been copied: node, job, lease."""

    @property
    def spec(self) -> NodeSpec:
        """The node as the pool sees it."""
        return NodeSpec(self.number, self.about.name, "", tuple(self.workers.values()), self.about.resources)

    def sent_of(self, job: str, column: str, count: int) -> list[Any]:
        """Return the cells of a column of `count` that the node has, NOT_SENT for the others. The caller has `lock`."""
        sent = self.sent.get((job, column))
        if sent is None or len(sent) != count:
            sent = self.sent[job, column] = [NOT_SENT] * count
        return sent

    def send(self, *message: Any) -> None:
        """Send a message; no effect if the node is lost."""
        if self.link is not None:
            self.link.send(message)


class SentLease(WorkerLease):
    """A lease at a node, with the inputs that are held here until its report."""

    __slots__ = ("node", "number", "pins")

    def prepare(self, node: NodeConnection, number: int) -> None:
        """Assign the lease to worker `number` of a node, by its own count."""
        self.node = node
        self.number = number
        self.pins: list[ChunkPin] = []

    def release(self) -> None:
        """Unpin the inputs. The caller has the lock of the node."""
        while self.pins:
            self.pins.pop().release()


class ClusterProvider(FixedProvider):
    """The nodes of a cluster. `drained` is called with a node whose work has ended; `vacant` are lost nodes in whose
    places others may come.
    """

    def __init__(
        self, nodes: Sequence[NodeSpec], drained: Callable[[int], None], vacant: Sequence[NodeKind] = ()
    ) -> None:
        super().__init__(nodes)
        self._drained = drained
        self._vacant = vacant

    def possible(self) -> Sequence[NodeKind]:
        """See `Provider.possible`: what fitted before a loss is no reason to refuse a request."""
        return self._vacant

    def drained(self, node: int) -> None:
        """See `Provider.drained`."""
        self._drained(node)
