"""One node of a cluster: a store with a budget of its own, worker processes, and the connections to sessions and nodes.

A node runs the leases that its session sends, by the same `Processes` as a session on one machine. Large outputs stay
in its store: the session gets a reference to each, and other nodes read their bytes from here. Small ones travel with
the report. The session decides when an output is freed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from weft.backends import node_messages as messages
from weft.backends.node_jobs import BLOCKS, NodeHost, NodeJob, NodeLease
from weft.backends.node_link import PURPOSE, Link, NodeLink
from weft.backends.process_jobs import ProcessJob, RemoteLease
from weft.backends.processes import Processes
from weft.engine.commands import Launch
from weft.engine.events import Done, Failed, Progress
from weft.engine.ports import FROZEN_S, WorkerSpec
from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import CapacityError, ForbiddenError, NotFoundError, ProgramError, WeftError
from weft.store import codec, peers, serializers, tiers
from weft.store.api import ABSENT
from weft.store.blocks import BlockManager
from weft.store.fetching import PeerCopies
from weft.store.handshake import Credentials, accept
from weft.store.listening import listen
from weft.store.peer_server import serve_chunks
from weft.store.segments import SegmentWriter
from weft.store.tls import check_files
from weft.worker import own_modules
from weft.worker.remote_store import LARGE

if TYPE_CHECKING:
    import socket

    from weft.engine.events import Event
    from weft.engine.ports import Clock
    from weft.graph.spec import Wants
    from weft.store.api import Column
    from weft.store.folders import RunFolders
    from weft.store.objects import ObjectTier
    from weft.store.tls import TlsFiles


class NodeProcesses(Processes):
    """The worker processes of a node."""

    lease_kind = NodeLease

    def __init__(self, node: Node, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._node = node

    def job_of(self, job: Any) -> ProcessJob:
        """See `Processes.job_of`."""
        return NodeHost(job, self.store, self.loop, self.window, self._ids, self._writer).begin(self._node)


class Node:
    """A node with `workers` processes over the folders of a run. `serve` returns when its session has ended.

    The node listens at `address`. `secret` is that of the session, which alone may use the node. Outputs of durable
    edges are written below the URL `objects`, which belongs to the session; with "" they lie at the node like others.
    With the files `tls` all connections are encrypted. With `own_first`, modules are looked for at the paths of this
    process before those of the session, else behind them. UsageError: a file of `tls` cannot be used. CapacityError: no
    port is free.
    """

    def __init__(
        self,
        workers: int,
        folders: RunFolders,
        secret: bytes,
        clock: Clock,
        *,
        tls: TlsFiles | None = None,
        host: str = "127.0.0.1",
        budget: int | None = None,
        grace_s: float = 3.0,
        window: int | None = None,
        frozen_s: float = FROZEN_S,
        own_first: bool = False,
        objects: str = "",
        worker_memory: int = 0,
    ) -> None:
        if tls is not None:
            check_files(tls)
        self._objects = objects
        self._durable: ObjectTier | None = None
        self.store = BlockManager(budget, shm=folders.shm, spill=folders.spill)
        self.copies = PeerCopies(self.store)
        self.clock = clock
        self.jobs: dict[str, NodeJob] = {}
        self._workers = workers
        self._own_first = own_first
        self._own_paths = sys.path[:]
        self._credentials = Credentials(secret, tls)
        self._ended: dict[str, NodeJob] = {}
        self._link: Link | None = None
        self._over = threading.Event()
        self._answers: dict[int, Any] = {}
        self._numbers = itertools.count(1)
        self._received = SegmentWriter(folders.shm, prefix="store-received-", fallback=folders.spill)
        self._processes = self._begin_workers(
            folders, grace_s=grace_s, window=window, frozen_s=frozen_s, worker_memory=worker_memory
        )
        self.address = self._listen(host)

    def _begin_workers(self, folders: RunFolders, **options: Any) -> NodeProcesses:
        """Return the backend that runs the leases."""
        return NodeProcesses(
            self, self._workers, self.store, folders.shm, spill=folders.spill, credentials=self._credentials, **options
        )

    def _listen(self, host: str) -> tuple[str, int]:
        """Open a port, and return its address."""
        peers.open_reader(self._credentials)
        self._listener = listen(host)
        address: tuple[str, int] = self._listener.getsockname()[:2]
        return address

    def serve(self) -> None:
        """Serve one session until it ends, and leave nothing behind."""
        threading.Thread(target=self._accept, name="weft-node", daemon=True).start()
        try:
            self._over.wait()
        finally:
            self._listener.close()
            self._processes.close()
            self.store.close()
            peers.close_reader()
            if self._link is not None:
                self._link.close()

    def end(self) -> None:
        """Have `serve` return."""
        self._over.set()

    # ------------------------------------------------------------------------------------------------- connections

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(sock,), name="weft-peer", daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        try:
            purpose, connection = accept(sock, self._credentials, (peers.PURPOSE, PURPOSE))
        except (OSError, ForbiddenError):
            sock.close()
            return
        if purpose == peers.PURPOSE:
            with contextlib.closing(connection):
                serve_chunks(connection, self._found)
        elif self._link is not None:
            connection.close()  # a session is never served twice
        else:
            self._begin(NodeLink.accepted(connection, self._take_all, lambda _: self.end()))

    def _begin(self, link: Link) -> None:
        """Serve the session at the other end of a link."""
        self._link = link
        self._processes.attach(self)
        self.tell(messages.READY, self._processes.numbers(), self.store.memory.budget)
        link.start()
        if self._over.is_set():  # `serve` may have looked for a link to close before this one
            link.close()

    @contextlib.contextmanager
    def _found(self, job: str, vertex: str, index: int, lease: int) -> Iterator[ChunkRef]:
        """Yield an output in a form that can be read in parts, pinned meanwhile."""
        owner = self.jobs.get(job) or self._ended.get(job)
        kept = owner.originals.get(vertex, {}) if owner is not None else {}
        column = owner.backend.columns.get(vertex) if owner is not None and kept.get(index) == lease else None
        if column is None:
            raise NotFoundError(f"this node has no output of {vertex}[{index}] of job {job}")
        with self.store.pin(column, [index]):
            (cell,) = self.store.share(column, [index])
            yield cell if type(cell) is ChunkRef else codec.encode(cell).inline()

    def tell(self, *message: Any) -> None:
        """Send the session a message."""
        if self._link is not None:
            self._link.send(message)

    def ask(self, job: str, lease: int, method: str, *arguments: Any) -> Any:
        """Return the answer of the session to a request of a task."""
        return self._ask(queue.SimpleQueue(), job, lease, method, *arguments)

    def _ask(self, answer: Any, job: str, lease: int, method: str, *arguments: Any) -> Any:
        """Ask the session; `answer` is where the answer comes."""
        number = next(self._numbers)
        self._answers[number] = answer
        self.tell(messages.ASK, job, lease, number, method, codec.to_pickle(arguments))
        well, data = answer.get()
        if not well:
            raise codec.from_pickle(data)
        return codec.from_pickle(data)

    def _take_all(self, received: list[Any]) -> None:
        for message in received:
            self._take(message)

    def _take(self, message: Any) -> None:
        kind, *rest = message
        if kind == messages.LAUNCH:
            self._launch(messages.NodeLaunch(*message))
            return
        if kind == messages.ANSWER:
            self._answers.pop(rest[0]).put((rest[1], rest[2]))
            return
        if kind == messages.OPEN:
            job = self.jobs[rest[0]] = NodeJob(rest[0])
            self._processes.open_job(job)
            return
        if kind == messages.DELETE:
            self._delete(rest[0])
            return
        if kind == messages.COPY:
            self._copy(*rest)
            return
        found = self.jobs.get(rest[0])
        if found is None:
            return
        host: NodeHost = found.backend
        if kind == messages.SHRINK:
            self._processes.shrink(found, rest[1])
        elif kind == messages.STOP:
            self._processes.stop(found, rest[1], rest[2])
        elif kind == messages.FREE:
            self._free_copies(found, *rest[1:])
        elif kind == messages.FREE_PARTS:
            self._processes.free_parts(found, *rest[1:])
        elif kind == messages.STREAM_BLOCK:
            host.streams.answer_block(*rest[1:])
        elif kind == messages.STREAM_ROOM:
            host.streams.answer_room(*rest[1:])
        elif kind == messages.RESTART:
            host.streams.reset(rest[1])
        elif kind == messages.FAULT:
            self._fault(host, *rest[1:])
        elif kind == messages.CLOSE_JOB:
            self._close_job(found)

    # ------------------------------------------------------------------------------------------------------ leases

    def _launch(self, sent: messages.NodeLaunch) -> None:
        job = self.jobs[sent.job]
        if sent.paths is not None:
            first, then = (self._own_paths, sent.paths) if self._own_first else (sent.paths, self._own_paths)
            sys.path[:] = [*first, *[path for path in then if path not in first]]
        try:
            if sent.modules:
                own_modules.forget(sent.modules)
            if sent.serializers:
                serializers.learn(codec.from_pickle(sent.serializers))
            if sent.new:
                job.specs.update(codec.from_pickle(sent.new))
            specs = tuple([job.specs[number] for number in sent.specs])
            if sent.cells:
                self._put(job.backend, codec.from_pickle(sent.cells))
        except Exception as error:  # noqa: BLE001 - whatever it is, the lease has to be answered
            hint = "The modules of functions and values must be importable, in the same version, on all nodes."
            wrong = ProgramError(f"a node cannot load what it was sent: {type(error).__name__}: {error}", hint=hint)
            self.tell(messages.FAULT, sent.job, sent.lease, str(wrong))
            return
        launch = Launch(
            sent.worker,
            sent.lease,
            specs[-1].vertex,
            sent.lo,
            sent.hi,
            sent.cone,
            sent.attempt,
            sent.resources,
            sent.nbytes,
            0,
            specs,
        )
        job.leases[sent.lease] = launch
        job.told[sent.lease] = sent.lo
        self._processes.launch(job, launch)

    def _put(self, host: NodeHost, cells: list[tuple[str, int, int, list[int], list[Any]]]) -> None:
        """Put the inputs that came with a lease; large ones that came whole go to shared memory."""
        for vertex, n, parts, at, values in cells:
            column = self._column(host, vertex, n, parts, at[0], values[0])
            large = [
                place
                for place, cell in enumerate(values)
                if type(cell) is ChunkRef and cell.tier is Tier.INLINE and cell.nbytes >= LARGE
            ]
            if large:
                chunks = [codec.raw(memoryview(values[place].data), values[place]) for place in large]
                for place, ref in zip(large, self._received.write(chunks), strict=True):
                    values[place] = ref
            if column.key[0] != host.job.id:
                lacking = [place for place, index in enumerate(at) if column.values[index] is ABSENT]
                at, values = [at[place] for place in lacking], [values[place] for place in lacking]
            for lo, hi, first in _runs(at):
                self.store.put_range(column, lo, values[first : first + hi - lo])

    def _column(self, host: NodeHost, vertex: str, n: int, parts: int, at: int, cell: Any) -> Column:
        """Return the column of an input, whose cell `at` came now.

        It is that of the earlier job that made the values, if one did and made some of them here.
        """
        if vertex not in host.columns and type(cell) is ChunkRef and cell.tier is Tier.PEER:
            chunk = peers.parse(cell.location)
            earlier = self._ended.get(chunk.job) if chunk.job != host.job.id and chunk.at == at else None
            column = earlier.backend.columns.get(chunk.vertex) if earlier is not None else None
            if column is not None and len(column) == n:
                host.columns[vertex] = column
        return host.column(vertex, n, parts)

    def _fault(self, host: NodeHost, lease: int, text: str) -> None:
        running = host.running.get(lease)
        if isinstance(running, RemoteLease):
            running.error = running.error or CapacityError(text)
            running.raise_stop()

    def _free_copies(self, job: NodeJob, vertex: str, lo: int, hi: int) -> None:
        """Drop the inputs that were sent here; outputs that were made here go when the session deletes them."""
        column = job.backend.columns.get(vertex)
        if column is None:
            return
        kept = job.originals.get(vertex, ())
        if not kept:
            self._processes.free(job, vertex, lo, hi)
            return
        copies = [at for at in range(lo, hi) if at not in kept and column.values[at] is not ABSENT]
        for begin, end, _ in _runs(copies):
            self._processes.free(job, vertex, begin, end)

    def _delete(self, places: list[tuple[str, str, int, int]]) -> None:
        """Drop outputs that no cell of the session refers to any more."""
        gone: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for name, vertex, index, lease in places:
            gone.setdefault((name, vertex), []).append((index, lease))
        for (name, vertex), outputs in gone.items():
            job = self.jobs.get(name) or self._ended.get(name)
            kept = job.originals.get(vertex) if job is not None else None
            if job is None or kept is None:
                continue
            # A later attempt may have made an output again here.
            dropped = sorted(index for index, lease in outputs if kept.get(index) == lease)
            for index in dropped:
                del kept[index]
            for begin, end, _ in _runs(dropped):
                self._processes.free(job, vertex, begin, end)
            if job.closed and not kept:  # before that, workers may report more outputs of the vertex
                del job.originals[vertex]
                self.store.drop((name, vertex))
            if job.closed and not job.originals:
                del self._ended[name]

    def _copy(self, number: int, name: str, vertex: str, n: int, parts: int, refs: list[tuple[int, ChunkRef]]) -> None:
        """Copy outputs of another node here, and report the references to the copies."""
        job = self.jobs.get(name) or self._ended.get(name)
        if job is None:
            job = self._ended[name] = NodeJob(name)
            self._processes.open_job(job)
            job.closed = job.backend.closed = True
        column = job.backend.columns.get(vertex)
        if column is None:
            column = job.backend.columns[vertex] = self.store.column((name, vertex), n, parts)
        kept = job.originals.setdefault(vertex, {})
        leases = {at: peers.parse(ref.location).lease for at, ref in refs}
        kept.update(leases)
        self._processes.call_beside(partial(self._copy_all, number, job, column, refs, leases))

    def _copy_all(
        self, number: int, job: NodeJob, column: Column, refs: list[tuple[int, ChunkRef]], leases: dict[int, int]
    ) -> None:
        vertex = column.key[1]
        copies: list[ChunkRef | None] = []
        for at, ref in refs:
            try:
                fresh = self._received.write([codec.raw(tiers.read(ref), ref)])
                with self.store.holding(fresh):
                    self.store.put_range(column, at, fresh)
            except WeftError:  # it is made again where it is needed
                copies.append(None)
            else:
                location = peers.location_of(self.address, job.id, vertex, at, leases[at])
                copies.append(ref._replace(location=location))
        self.tell(messages.COPIED, number, copies)
        lacking = [at for (at, _), copy in zip(refs, copies, strict=True) if copy is None]
        self._delete([(job.id, vertex, at, leases[at]) for at in lacking])

    def _close_job(self, job: NodeJob) -> None:
        job.closed = True
        del self.jobs[job.id]
        job.originals = {vertex: kept for vertex, kept in job.originals.items() if kept and vertex != BLOCKS}
        if job.originals:
            self._ended[job.id] = job
        self._processes.close_job(job)

    # ------------------------------------------------------------------------------------------- as the loop of workers

    def post(self, job: str, event: Event) -> None:
        """See `Shell.post`: events go to the session."""
        self.post_later(job, event)

    def post_later(self, job: str, *events: Event) -> None:
        """See `Shell.post_later`."""
        found = self.jobs.get(job)
        for event in events if found is not None else ():
            assert found is not None
            outputs: tuple[Any, ...] = ()
            if isinstance(event, Done | Failed | Progress):
                launch = found.leases.get(event.lease)
                if launch is None:
                    continue
                try:
                    outputs = self._outputs(found, launch, event)
                except WeftError as error:  # such as a full bucket
                    self.tell(messages.FAULT, job, event.lease, str(error))
                    del found.leases[event.lease], found.told[event.lease]
                    continue
                if not isinstance(event, Progress):
                    del found.leases[event.lease], found.told[event.lease]
            self.tell(messages.EVENT, job, event, *outputs)

    def _outputs(self, job: NodeJob, launch: Launch, event: Done | Failed | Progress) -> tuple[Any, ...]:
        """Return the outputs that an event reports: (vertex, first task, cells)."""
        lo, hi, vertex = job.told[launch.lease], event.hi, launch.vertex
        if isinstance(event, Done) and event.reached >= 0:
            vertex, hi = launch.specs[event.reached].vertex, lo + 1
        column: Column | None = job.backend.columns.get(vertex)
        if column is None or hi <= lo:
            return ()
        job.told[launch.lease] = hi
        cells = column.values[lo:hi]
        durable = bool(self._objects) and any(
            edge.durable for spec in launch.specs if spec.vertex == vertex for edge in spec.outputs
        )
        kept: list[int] = []
        for at in [at for at in column.tracked if lo <= at < hi]:
            cell = cells[at - lo]
            entry = column.tracked[at]
            if type(cell) is not ChunkRef:
                if entry.nbytes < LARGE:
                    continue
                (cell,) = self.store.share(column, [at])
            if durable:
                cells[at - lo] = self._keep(cell)
                continue
            location = peers.location_of(self.address, job.id, vertex, at, launch.lease)
            cells[at - lo] = ChunkRef(Tier.PEER, location, 0, cell.nbytes, cell.parts, b"", cell.pieces)
            kept.append(at)
        if kept:
            job.originals.setdefault(vertex, {}).update(dict.fromkeys(kept, launch.lease))
        if any(spec.outputs for spec in launch.specs if spec.vertex == vertex):
            return vertex, lo, codec.to_pickle(cells)  # small outputs stay for their readers here
        # Nobody else reads small outputs here: the session has them.
        for begin, end in pairwise(sorted([lo - 1, *kept, hi])):
            if begin + 1 < end:
                self.store.free_range(column, begin + 1, end)
        return vertex, lo, codec.to_pickle(cells)

    def _keep(self, chunk: ChunkRef) -> ChunkRef:
        """Write an output to the storage that outlives this node. CapacityError: that cannot be written to."""
        if self._durable is None:
            from weft.store.objects import ObjectTier  # few sessions have such storage

            self._durable = ObjectTier(self._objects, f"node-{os.urandom(8).hex()}")
        (written,) = self._durable.write([codec.raw(tiers.read(chunk), chunk)])
        return written

    def drain(self, going_on: Callable[[], None] | None = None) -> None:
        """See `Shell.drain`: there is no queue here."""

    def settle(self) -> None:
        """See `Shell.settle`."""

    def idle_tick(self) -> None:
        """See `Shell.idle_tick`: the session makes its own."""

    def cancel(self, job: Any, reason: str) -> None:
        """See `Shell.cancel`: no worker can be started here."""
        self.tell(messages.FAULT, job.id, -1, reason)

    def refusal(self, job: Any, wants: Wants) -> str:
        """See `Shell.refusal`: the session knows all slots, and its front ends alone ask for that."""
        return ""

    def worker_joined(self, spec: WorkerSpec) -> None:
        """See `Shell.worker_joined`."""
        self.tell(messages.WORKER_JOINED, spec.worker)

    def worker_lost(self, worker: int, reason: str, **about: Any) -> None:
        """See `Shell.worker_lost`."""
        self.tell(messages.WORKER_LOST, worker, reason, about)
        for job in self.jobs.values():
            for lease in [lease for lease, launch in job.leases.items() if launch.worker == worker]:
                del job.leases[lease], job.told[lease]

    def node_joined(self, spec: Any) -> None:
        """See `Shell.node_joined`: no node joins a node."""

    def node_draining(self, node: int, reason: str) -> None:
        """See `Shell.node_draining`."""

    def node_lost(self, node: int, reason: str, *, emptied: bool = False) -> None:
        """See `Shell.node_lost`."""


def _runs(at: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the runs of ascending indexes: begin, end, and the place of the first."""
    first = 0
    for place in range(1, len(at) + 1 if at else 0):
        if place == len(at) or at[place] != at[place - 1] + 1:
            yield at[first], at[place - 1] + 1, first
            first = place
