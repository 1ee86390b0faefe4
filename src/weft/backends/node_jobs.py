"""A job of the session as a node sees it: its leases, its streams, and the host of its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.backends import node_messages as messages
from weft.backends.process_jobs import ProcessJob, RemoteLease
from weft.backends.streams import END, StreamBlock
from weft.engine.machines.job import JobState
from weft.graph.spec import HERE
from weft.model.chunks import ChunkRef, Tier
from weft.store import peers
from weft.store.api import ABSENT

if TYPE_CHECKING:
    from weft.engine.commands import Launch
    from weft.graph.spec import MachineAddress
    from weft.graph.task_spec import EdgeSpec, TaskSpec
    from weft.store.api import Column
    from weft.store.blocks import BlockManager
    from weft.store.fetching import PeerCopies
    from weft.worker.code import TaskCode
    from weft.worker.lease import WorkerLease

BLOCKS: Final = "#blocks"
"""The name of the column with the large blocks that tasks of a job have streamed at this node; no vertex has it."""


class NodeServices(Protocol):
    """What a job needs of its node."""

    @property
    def store(self) -> BlockManager:
        """The store of the node."""
        ...

    @property
    def copies(self) -> PeerCopies:
        """The copies of outputs of other nodes."""
        ...

    @property
    def address(self) -> tuple[str, int]:
        """The address at which other nodes read outputs."""
        ...

    def tell(self, *message: Any) -> None:
        """Send a message to the session."""
        ...

    def ask(self, job: str, lease: int, method: str, *arguments: Any) -> Any:
        """Return the answer of the session to a request of a task; its exceptions are raised here."""
        ...


class _Inspector:
    """What a job's leases look up in its master: nothing here, the session answers requests."""

    status = JobState.RUNNING

    def foresee(self, vertex: str, passed: object) -> None:
        """Return nothing: the order of reads is known at the session."""

    def controllers(self, vertex: str) -> tuple[str, ...]:
        """Return nothing: the session serves control vertices."""
        return ()

    def usage(self, vertex: str) -> dict[str, float]:
        """Return nothing: it is recorded at the session."""
        return {}


class NodeJob:
    """A job of the session as its leases see it here; the `Job` of the node's `Processes`."""

    graph: Any = None
    outcome: Any = None
    outputs: Any = None
    history: Sequence[Any] = ()
    recorded = False
    built = True
    cache: Any = None
    host: Any = None
    inspector: Any
    given: Mapping[str, Any]

    def __init__(self, id: str) -> None:
        self.id = id
        self.inspector = _Inspector()
        self.leases: dict[int, Launch] = {}
        self.specs: dict[int, TaskSpec] = {}
        self.told: dict[int, int] = {}
        """The unit up to which the session has the outputs of a running lease."""
        self.given = {}
        self.gates: dict[int, Any] = {}
        self.logs = ""
        self.origins: dict[str, Any] = {}
        self.originals: dict[str, dict[int, int]] = {}
        """The tasks whose outputs the session refers to here, by vertex, with the leases that made them."""
        self.backend: Any = None
        self.closed = False


class NodeLease(RemoteLease):
    """A lease at a worker process of this node."""

    __slots__ = ()

    def committed(self, vertex: str, edge: str, source: int) -> tuple[str, Any]:
        """See `RemoteLease.committed`: the session knows what is committed, here or elsewhere."""
        host: NodeHost = self.local  # type: ignore[assignment]
        answer: tuple[str, Any] = host.ask(self.id, "committed", vertex, edge, source)
        return answer


class NodeStreams:
    """The streams of a job as its tasks at this node see them: the part of `Streams` that worker processes need.

    The session has the windows, and says who reads what. A large block stays here, at the node of its writer, until the
    session deletes it; its readers fetch it from here. Small blocks pass through the session.
    """

    def __init__(self, host: NodeHost) -> None:
        self._host = host
        self._node = host.node
        self._job = host.job.id
        self._send = host.node.tell
        self._lock = threading.Lock()
        self._blocks: dict[tuple[str, int, int, int], StreamBlock] = {}
        self._reading: dict[tuple[str, int, int, int], StreamBlock] = {}
        """The block that each reader at this node has."""
        self._room: set[tuple[str, int, int]] = set()
        self._wakes: dict[Any, Callable[[], None]] = {}

    def know(self, edge: EdgeSpec) -> None:
        """Do nothing: the session knows the edges."""

    def joined(self, code: TaskCode, lo: int, hi: int) -> None:
        """Do nothing: the session knows the readers."""

    def leave(self, code: TaskCode, lo: int, hi: int) -> None:
        """Unpin the blocks that ended tasks have read."""
        edges = [inp.edge for inp in code.inputs if inp.streamed]
        with self._lock:
            keys = [key for key in self._reading if key[0] in edges and lo <= key[3] < hi]
            blocks = [self._reading.pop(key) for key in keys]
        _unpin(blocks)

    def put(self, edge: str, index: int, part: int, cell: Any, nbytes: int, lease: WorkerLease) -> None:
        """Report a block to the session. CapacityError: a large one has no room."""
        if isinstance(cell, ChunkRef):
            cell = self._keep(cell, lease.id)
        self._send(messages.STREAM, self._job, lease.id, edge, index, part, cell, nbytes)

    def _keep(self, ref: ChunkRef, lease: int) -> ChunkRef:
        """Keep a block until the session deletes it, and return a reference for any process."""
        job: NodeJob = self._host.job  # type: ignore[assignment]
        with self._lock:
            column = self._host.column(BLOCKS, 0, 0)
            at = len(column)
            column.grow()
            job.originals.setdefault(BLOCKS, {})[at] = lease
        self._node.store.put_range(column, at, [ref])
        location = peers.location_of(self._node.address, self._job, BLOCKS, at, lease)
        return ChunkRef(Tier.PEER, location, 0, ref.nbytes, ref.parts, b"", ref.pieces)

    def has_room(self, edge: str, index: int, part: int, wake: Callable[[], None]) -> bool:
        """Return whether the session has said so since the last question; if not, ask, and wake the caller then."""
        key = (edge, index, part)
        with self._lock:
            if key in self._room:
                self._room.remove(key)
                return True
            asked = key in self._wakes
            self._wakes[key] = wake
        if not asked:
            self._send(messages.ROOM, self._job, *key)
        return False

    def end(self, edges: Any, index: int, lease: WorkerLease) -> None:
        """Report the end of a task's streams."""
        self._send(messages.STREAM_END, self._job, lease.id, tuple(edges), index)

    def take(self, edge: str, index: int, part: int, reader: int, wake: Callable[[], None]) -> StreamBlock | None:
        """Return the next block if it has come; if not, ask for it, and wake the caller then."""
        key = (edge, index, part, reader)
        with self._lock:
            before = self._reading.pop(key, None)
            found = self._blocks.pop(key, None)
            asked = key in self._wakes
            if found is not None:
                self._reading[key] = found
            else:
                self._wakes[key] = wake
        if before is not None:
            _unpin([before])
        if found is not None:
            return found
        if not asked:
            self._send(messages.TAKE, self._job, *key)
        return None

    def answer_block(self, key: tuple[str, int, int, int], cell: Any) -> None:
        """Take the next block of a stream, None at its end."""
        block = END if cell is None else StreamBlock(cell, 0)
        if type(cell) is ChunkRef and cell.tier is Tier.PEER:
            chunk = peers.parse(cell.location)
            column = self._host.columns.get(BLOCKS) if (chunk.host, chunk.port) == self._node.address else None
            if column is not None and column.values[chunk.at] is not ABSENT:
                block.column, block.at = column, chunk.at
        with self._lock:
            self._blocks[key] = block
            wake = self._wakes.pop(key, None)
        if wake is not None:
            wake()

    def answer_room(self, key: tuple[str, int, int]) -> None:
        """Note that a stream has room."""
        with self._lock:
            self._room.add(key)
            wake = self._wakes.pop(key, None)
        if wake is not None:
            wake()

    def wake_all(self) -> None:
        """Wake all who wait, to look whether they were stopped."""
        with self._lock:
            wakes = [*self._wakes.values()]
        for wake in wakes:
            wake()

    def reset(self, edges: Collection[str] | None = None) -> Callable[[], None]:
        """Forget what has come for readers of edges (None: all) that start again."""
        with self._lock:
            blocks = [block for key, block in self._reading.items() if edges is None or key[0] in edges]
            for known in (self._reading, self._blocks, self._wakes):
                for key in [key for key in known if edges is None or key[0] in edges]:
                    del known[key]
            self._room = {key for key in self._room if edges is not None and key[0] not in edges}
        _unpin(blocks)
        return lambda: None


def _unpin(blocks: list[StreamBlock]) -> None:
    for block in blocks:
        if block is not END and block.pin is not None:
            block.pin.release()
            block.pin = None


class NodeHost(ProcessJob):
    """The host of a job's tasks on this node: it passes requests on to the session."""

    node: NodeServices

    def begin(self, node: NodeServices) -> NodeHost:
        """Attach to the node."""
        self.node = node
        self._streams: Any = None
        return self

    def ask(self, lease: int, method: str, *arguments: Any) -> Any:
        """Return the answer of the session to a request; its exceptions are raised here."""
        return self.node.ask(self.job.id, lease, method, *arguments)

    @property
    def streams(self) -> Any:
        """The streams of the job."""
        if self._streams is None:
            self._streams = NodeStreams(self)
        return self._streams

    def endpoints(self, service: str) -> list[Any] | None:
        """See `Host.endpoints`."""
        return self.ask(0, "endpoints", service)  # type: ignore[no-any-return]

    def history(self, vertex: str) -> Sequence[Any]:
        """See `Host.history`."""
        return self.ask(0, "history", vertex)  # type: ignore[no-any-return]

    def seen(self, control: str, vertex: str) -> Any:
        """See `LocalJob.seen`."""
        return self.ask(0, "seen", control, vertex)

    def reply(self, token: str) -> str | None:
        """See `Host.reply`."""
        return self.ask(0, "reply", token)  # type: ignore[no-any-return]

    def copy_here(self, column: Column, indexes: list[int]) -> None:
        """See `ProcessJob.copy_here`."""
        self.node.copies.fetch(column, indexes)

    def keep_result(self, recipe: Any, started: float, spoilt: str) -> str:
        """See `Host.keep_result`."""
        return self.ask(0, "keep_result", recipe, started, spoilt)  # type: ignore[no-any-return]

    def ask_run(self, question: Sequence[Any], machine: MachineAddress = HERE) -> Any:
        """See `Host.ask_run`: the session knows this machine."""
        return self.ask(0, "ask_run", question)

    def close(self) -> None:
        """Drop all values but those that the session refers to: it frees these one by one."""
        self.closed = True
        self._codes.clear()
        self.remove(self.files)
        job: NodeJob = self.job  # type: ignore[assignment]
        for vertex, column in self.columns.items():
            if column.key[0] != job.id:
                continue  # of the earlier job that made the values
            kept = job.originals.get(vertex)
            if not kept:
                self.store.drop((job.id, vertex))
                continue
            for at in [at for at, cell in enumerate(column.values) if cell is not ABSENT and at not in kept]:
                self.store.free_range(column, at, at + 1)
