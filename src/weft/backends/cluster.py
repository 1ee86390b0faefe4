"""The near end of the nodes of a cluster, in the process of the loop: it sends them leases and takes their reports.

Values are held as on one machine, in columns of the session's store. A small output comes with the report of its
lease. A large one stays in the store of its node, and its cell is a reference (`Tier.PEER`) with which any node reads
the bytes there. When no cell refers to an output any more, the store tells its node to delete it.

Tasks without a slot, streams, and requests of tasks to their host are served here, as those of every local backend.
"""

from __future__ import annotations

import itertools
import socket
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.backends import node_messages as messages
from weft.backends.cluster_jobs import ClusterJob, inputs_of, packed, sendable
from weft.backends.cluster_nodes import ClusterProvider, NodeAddress, NodeConnection, NodeNetwork, SentLease
from weft.backends.draining import DrainedNodes
from weft.backends.local import GRACE_S, LocalBackend, abandon, crashed
from weft.backends.process_jobs import NOT_SENT, needed
from weft.backends.streams import END
from weft.engine.events import ANYWHERE, CancelRequested, Done, Failed, GaveBack, OutputMoved, Progress
from weft.engine.ports import WorkerSpec
from weft.engine.provider import BESIDE, NodeKind, NodeSpec
from weft.engine.tuning import Tuning
from weft.graph.spec import MachineAddress
from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import CapacityError, ProgramError, RunCancelledError, WeftError
from weft.model.failures import Failure
from weft.model.ranges import runs
from weft.store import codec, peers, serializers
from weft.store.api import ABSENT
from weft.store.handshake import Credentials
from weft.store.tls import check_files
from weft.worker import own_modules
from weft.worker.actor_gateway import PortEntrance, TlsEntrance
from weft.worker.lease import LeaseResult, UnitCounts, WorkerLease

if TYPE_CHECKING:
    from weft.backends.local_jobs import LocalJob
    from weft.engine.commands import Launch, Restart
    from weft.engine.ports import Job, Shell
    from weft.engine.provider import Provider
    from weft.store.blocks import BlockManager
    from weft.store.tls import TlsFiles
    from weft.worker.actor_gateway import Entrance, PlainEntrance

TARGET_S: Final = 0.02
_FIRST_TICK_S: Final = 0.01
_LAST_TICK_S: Final = 0.16
_CLOSING_S: Final = 10.0
_HALVINGS: Final = 20
"""How often the rest of a lease is halved at a node that drains, so that one task is left."""


class Cluster(LocalBackend):
    """Runs leases at nodes. The session proves `secret` to each, by TLS with the files `tls`.

    `store` holds the references to the outputs of the nodes. `network` reaches the nodes; without one they are reached
    over TCP. UsageError: a file of `tls` cannot be used.
    """

    surroundings: NodeNetwork
    store: BlockManager
    name = "cluster"
    others_may_join = False
    """Whether what lost nodes leave too few of is waited for: others may come in their places."""

    def __init__(
        self,
        nodes: Sequence[NodeAddress],
        secret: bytes,
        store: BlockManager,
        *,
        tls: TlsFiles | None = None,
        grace_s: float = GRACE_S,
        window: int | None = None,
        network: NodeNetwork | None = None,
    ) -> None:
        if tls is not None:
            check_files(tls)
        workers = sum(node.workers for node in nodes)
        super().__init__(workers, store, None, grace_s, window, network or NodeNetwork(Credentials(secret, tls)))
        budgets = [node.resources.memory for node in nodes if node.resources.memory]
        self.tuning = Tuning(
            target_s=TARGET_S,
            shared_memory=False,
            copied_out=True,
            lease_bytes=min([Tuning().lease_bytes, *[budget // (2 * workers) for budget in budgets]]),
            stream_bytes=self.window,
            many_machines=True,
        )
        self._nodes = {number: NodeConnection(number, node) for number, node in enumerate(nodes)}
        self._numbers = itertools.count()
        self._workers: dict[int, tuple[NodeConnection, int]] = {}
        for node in self._nodes.values():
            self._count(node)
        self._vacant: list[NodeKind] = []
        """The places of lost nodes that no other has taken, if others may join."""
        self._closing = False
        self._broken = ""
        self.draining = DrainedNodes(self)
        self._active = threading.Event()
        store.add_tier(peers.PeerTier(self.delete))

    # ----------------------------------------------------------------------------------------------- executor

    @property
    def provider(self) -> Provider:
        """See `Executor.provider`: the nodes."""
        return ClusterProvider(self.present(), self.draining.drained, self._vacant)

    @property
    def nodes(self) -> Mapping[int, NodeConnection]:
        """See `DrainedCluster.nodes`."""
        return self._nodes

    def present(self) -> list[NodeSpec]:
        """Return the nodes that are not lost."""
        return [node.spec for node in self._nodes.values() if not node.dead]

    def numbers(self) -> Sequence[int]:
        """Return the present workers, by number."""
        return tuple(self._workers)

    def attach(self, loop: Shell) -> None:
        """See `Executor.attach`. CapacityError: a node cannot be reached. ForbiddenError: it refuses this process."""
        super().attach(loop)
        self.surroundings.open_reader()
        for node in self._nodes.values():
            self._connect(node)
        self.surroundings.ticks(self._tick)

    def _connect(self, node: NodeConnection) -> None:
        address = node.about.address
        try:
            link = self.surroundings.connect(address, partial(self._take_all, node), partial(self._lost, node))
        except OSError as error:
            raise CapacityError(
                f"node {node.about.name} at {address[0]}:{address[1]} cannot be reached: {error}",
                hint="Check that it runs, and that no firewall lies between.",
            ) from error
        node.link = link
        link.start()

    def join(self, about: NodeAddress) -> None:
        """Take another node into use. CapacityError, ForbiddenError: see `attach`."""
        node = NodeConnection(max(self._nodes, default=-1) + 1, about)
        self._count(node)
        try:
            self._connect(node)
        except BaseException:
            for number in node.workers.values():
                del self._workers[number]
            raise
        for job in list(self.loop.jobs):
            node.send(messages.OPEN, job)
        self._nodes = self._nodes | {node.number: node}
        with self.draining.lock:
            if place := next((place for place in self._vacant if place.workers <= about.workers), None):
                self._vacant.remove(place)
        self.loop.node_joined(node.spec)

    def drain(self, number: int, reason: str) -> None:
        """Take a node out of use. Its leases end or are given back, then its outputs move to the other nodes, or here
        if there is none, and it ends. No effect on a node that drains or is lost.
        """
        node = self._nodes[number]
        if not self.draining.begin(node, reason):
            return
        self.loop.node_draining(number, reason)
        for job, lease in list(node.leases):
            found = self.loop.jobs.get(job)
            if found is not None:
                for _ in range(_HALVINGS):
                    self.shrink(found, lease)

    def leave_place(self, node: NodeConnection) -> None:
        """See `DrainedCluster.leave_place`."""
        node.dead = True
        if self.others_may_join:
            self._vacant.append(NodeKind(node.about.workers, node.about.resources, limit=1))

    def let_go(self, node: NodeConnection) -> None:
        """See `DrainedCluster.let_go`."""
        for number in node.workers.values():
            self._workers.pop(number, None)
        self.loop.node_lost(node.number, node.leaves, emptied=True)
        self.left(node)

    def left(self, node: NodeConnection) -> None:
        """End a node that has left."""
        if node.link is not None:
            node.link.close()

    def _count(self, node: NodeConnection) -> None:
        """Number the workers of a node."""
        for own in range(node.about.workers):
            number = node.workers[own] = next(self._numbers)
            self._workers[number] = node, own

    def open_job(self, job: Job) -> None:
        """See `Executor.open_job`. CapacityError: no node is left."""
        if self._broken:
            raise CapacityError(self._broken, hint="Open another session, with nodes that run.")
        job.backend = ClusterJob(job, self.store, self.loop, self.window)
        for node in self._nodes.values():
            self._forget_sent(node, job.id)  # a resumed run has the id of an earlier job, which may be open yet
            node.send(messages.OPEN, job.id)

    @staticmethod
    def _forget_sent(node: NodeConnection, job: str) -> None:
        """Forget what a node has been sent for a job."""
        with node.lock:
            node.specs.pop(job, None)
            for key in [key for key in node.sent if key[0] == job]:
                del node.sent[key]

    def launch(self, job: Job, lease: Launch) -> None:
        """See `Executor.launch`. Another thread sends it, since it may take long to pack."""
        local: ClusterJob = job.backend
        if not 0 <= lease.worker < BESIDE:
            self.run_beside(local, local.lease(lease))
            return
        place = self._workers.get(lease.worker)
        if place is None:
            return  # the report of its loss follows
        running = local.lease(lease, SentLease)
        running.prepare(*place)
        place[0].leases[job.id, lease.lease] = running
        if local.knows(lease.specs) and not self._is_slow(running):
            self._send(local, running, lease)
        else:
            self._helpers.put(partial(self._send, local, running, lease))

    @staticmethod
    def _is_slow(lease: SentLease) -> bool:
        """Whether inputs of a lease may have to be read or written here before it is sent."""
        return any(inp.column.tracked for inp, _, _ in inputs_of(lease))

    def _send(self, local: ClusterJob, lease: SentLease, launch: Launch) -> None:
        node = lease.node
        try:
            numbered = {local.number(spec): spec for spec in launch.specs}
            with node.lock:
                known = node.specs.setdefault(local.job.id, set())
                new = {number: spec for number, spec in numbered.items() if number not in known}
                cells, marks = self._cells(local, lease)
                blob = codec.to_pickle(cells) if cells else b""
                paths = None
                if node.paths != sys.path:
                    paths = node.paths = sys.path[:]
                written = b""
                if node.serializers != serializers.version:
                    node.serializers = serializers.version
                    written = codec.to_pickle(serializers.all_serializers())
                before = node.modules
                if new:
                    node.modules = own_modules.generation()
                node.send(
                    *messages.NodeLaunch(
                        messages.LAUNCH,
                        local.job.id,
                        lease.number,
                        launch.lease,
                        launch.lo,
                        launch.hi,
                        launch.cone,
                        launch.attempt,
                        launch.resources,
                        launch.nbytes,
                        tuple(numbered),
                        packed(new),
                        blob,
                        paths,
                        written,
                        own_modules.program() if node.modules != before else "",
                    )
                )
                known.update(new)
                for sent, at, values in marks:
                    for index, value in zip(at, values, strict=True):
                        sent[index] = value
                if (local.job.id, lease.id) not in node.leases:  # its node or worker was lost meanwhile
                    lease.release()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the lease has to be answered
            self._end(lease, crashed(lease, error))
            return
        if lease.stop:  # stopped before it was sent
            node.send(messages.STOP, local.job.id, lease.id, "cancel")

    def _cells(
        self, local: ClusterJob, lease: SentLease
    ) -> tuple[list[Any], list[tuple[list[Any], list[int], list[Any]]]]:
        """Return the inputs that a node lacks for a lease, and the records to make once they are sent."""
        node = lease.node
        cells: list[Any] = []
        marks: list[tuple[list[Any], list[int], list[Any]]] = []
        for inp, lo, hi in inputs_of(lease):
            column = inp.column
            sent = node.sent_of(local.job.id, inp.source, len(column))
            for a, b in needed(inp.router, lo, hi):
                now = column.values[a:b]
                if all(map(is_, now, sent[a:b])):
                    continue
                fresh = [at for at in range(a, b) if now[at - a] is not sent[at]]
                if column.tracked:
                    lease.pins.append(self.store.pin(column, fresh))
                values = []
                places = []
                for at in fresh:
                    cell = sendable(self.store, column, at)
                    own = type(cell) is ChunkRef and cell.location.startswith(
                        f"{node.prefix}{local.job.id}/{inp.source}/{at}/"
                    )
                    if cell is not ABSENT and not own:
                        places.append(at)
                        values.append(cell)
                if places:
                    cells.append((inp.source, len(column), column.parts, places, values))
                marks.append((sent, fresh, [now[at - a] for at in fresh]))
        return cells, marks

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """See `Executor.stop`: the node enforces it."""
        running = job.backend.running.get(lease)
        if isinstance(running, SentLease):
            running.stop = True
            running.node.send(messages.STOP, job.id, lease, reason)
            job.backend.settle()
        else:
            super().stop(job, lease, reason)

    def shrink(self, job: Job, lease: int) -> None:
        """See `Executor.shrink`."""
        running = job.backend.running.get(lease)
        if isinstance(running, SentLease):
            if running.race is None:
                running.node.send(messages.SHRINK, job.id, lease)
        else:
            super().shrink(job, lease)

    def out_of_time(self, local: LocalJob, lease: WorkerLease, worker: int) -> None:
        """Abandon the thread of a task that did not stop in time."""
        if lease.id in local.running and not self.has_longer(local, lease, worker):
            abandon(local, lease, self.grace_s)

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.free`."""
        for node in self._nodes.values():
            with node.lock:
                sent = node.sent.get((job.id, vertex))
                if sent is not None:
                    sent[lo:hi] = [NOT_SENT] * (min(hi, len(sent)) - lo)
            if sent is not None:
                node.send(messages.FREE, job.id, vertex, lo, hi)
        super().free(job, vertex, lo, hi)

    def free_parts(self, job: Job, vertex: str, parts: Sequence[int]) -> None:
        """See `Executor.free_parts`."""
        for node in self._nodes.values():
            node.send(messages.FREE_PARTS, job.id, vertex, parts)
        super().free_parts(job, vertex, parts)

    def restart(self, job: Job, command: Restart) -> None:
        """See `Executor.restart`."""
        edges = job.backend.begin_again(command.vertices)
        for node in self._nodes.values():
            node.send(messages.RESTART, job.id, edges)
        super().restart(job, command)

    def close_job(self, job: Job) -> None:
        """See `Executor.close_job`."""
        local: ClusterJob | None = job.backend
        if local is None or local.closed:
            return
        local.close()
        for node in self._nodes.values():
            self._forget_sent(node, job.id)
            node.send(messages.CLOSE_JOB, job.id)

    def entrance(self) -> Entrance:
        """Return how the nodes reach this process, for actors."""
        files = self.surroundings.credentials.tls
        return self._entrance() if files is None else TlsEntrance(self._entrance(), files)

    def _entrance(self) -> PlainEntrance:
        node = next(node for node in self._nodes.values() if not node.dead)
        family = socket.AF_INET6 if ":" in node.about.address[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(node.about.address)  # sends nothing, and chooses the network to that node
            return PortEntrance(str(sock.getsockname()[0]))

    def close(self) -> None:
        """See `Executor.close`."""
        if self._closing:
            return
        self._closing = True
        self._active.set()
        self.timers.close()
        self._helpers.close()
        for node in self._nodes.values():
            if node.link is not None:
                node.link.close(_CLOSING_S)
        self.surroundings.close_reader()

    def delete(self, locations: Iterable[str]) -> None:
        """Have nodes delete outputs to which no cell refers any more."""
        gone: dict[tuple[str, int], list[tuple[str, str, int, int]]] = {}
        for location in locations:
            chunk = peers.parse(location)
            place = (chunk.job, chunk.vertex, chunk.at, chunk.lease)
            gone.setdefault((chunk.host, chunk.port), []).append(place)
        for node in self._nodes.values():
            if places := gone.get(node.about.address):
                node.send(messages.DELETE, places)

    # ----------------------------------------------------------------------------------------------- reports

    def _take_all(self, node: NodeConnection, received: list[Any]) -> None:
        for kind, *rest in received if not node.dead else ():
            self._take(node, kind, rest)
        self._active.set()
        self.loop.drain()

    def _take(self, node: NodeConnection, kind: int, rest: list[Any]) -> None:
        if kind == messages.EVENT:
            self._report(node, *rest)
        elif kind == messages.WORKER_LOST:
            self._worker_lost(node, *rest)
        elif kind == messages.WORKER_JOINED:
            number = node.workers[rest[0]] = next(self._numbers)
            self._workers[number] = node, rest[0]
            self.loop.worker_joined(WorkerSpec(number, node.number, node.about.name))
        elif kind == messages.FAULT:
            self._faulty(node, *rest)
        elif kind == messages.COPIED:
            self.draining.copied(*rest)
        elif kind == messages.ASK:
            self._helpers.put(partial(self._answer, node, *rest))
        elif kind != messages.READY:
            job = self.loop.jobs.get(rest[0])
            if job is not None and not job.backend.closed:
                self._stream(node, job.backend, kind, rest[1:])

    def _report(self, node: NodeConnection, job: str, event: Any, *outputs: Any) -> None:
        """Post an event of a node, and put the outputs that came with it into the store before."""
        event = replace(event, now=self.loop.clock.now())
        if not isinstance(event, Done | Failed | Progress | GaveBack):
            self.loop.post_later(job, event)
            return
        lease = node.leases.get((job, event.lease))
        if lease is None:
            return
        local: ClusterJob = lease.host
        if isinstance(event, Failed) and event.kind is Failure.DISK:  # each machine has a disk at that path
            event = replace(event, message=f"machine {node.about.name}: {event.message}")
        if isinstance(event, GaveBack):
            lease.hi = min(lease.hi, event.hi)
            if (race := lease.race) is not None:
                with race.lock:  # what the other attempt has committed meanwhile is not given back
                    race.hi = max(race.done, min(race.hi, event.hi))
                    event = replace(event, hi=max(event.hi, race.done))
            self.loop.post_later(job, event)
            return
        ends = not isinstance(event, Progress)
        cells: list[Any] = []
        outcome = LeaseResult(event.hi, cells, 0.0)
        try:
            if outputs:
                vertex, lo, data = outputs
                outcome.values = codec.from_pickle(data)
                if vertex != lease.root.vertex:
                    outcome.reached = next(at for at, code in enumerate(lease.codes) if code.vertex == vertex)
                units = len(outcome.values)
                outcome.counts = [UnitCounts(0, ())] * units
                local.commit(lease, outcome, ends=ends)
                if len(outcome.counts) < units:
                    event = replace(event, stats=(), rows=0)  # the share of what the other attempt has put is unknown
                if any(code.outputs for code in lease.codes if code.vertex == vertex):  # else the node dropped them
                    self._record_sent(node, local, vertex, lo, len(outcome.values))
        except Exception as error:  # noqa: BLE001 - such as a value whose class cannot be imported here
            if ends:
                self._end(lease, crashed(lease, error))
            return
        if not ends:
            local.over(lease, lease.lo, event.hi)
            lease.lo = event.hi
            lease.committing = False
            self.loop.post_later(job, event)
            return
        self._remove(lease)
        if lease.id in local.running:
            local.forget(lease)
            self.loop.post_later(job, event)

    @staticmethod
    def _record_sent(node: NodeConnection, local: ClusterJob, vertex: str, lo: int, count: int) -> None:
        """Record that a node has its own outputs, as if they had been sent there."""
        column = local.columns.get(vertex)
        if column is None or local.closed:
            return
        with node.lock:
            sent = node.sent_of(local.job.id, vertex, len(column))
            sent[lo : lo + count] = column.values[lo : lo + count]

    def _end(self, lease: SentLease, outcome: LeaseResult) -> None:
        """End a lease that did not reach its node, or whose outputs cannot be kept."""
        local: ClusterJob = lease.host
        self._remove(lease)
        if lease.id in local.running:
            self.loop.post_later(local.job.id, local.report(lease, outcome, self.loop.clock.now()))
            self.loop.drain()

    def _faulty(self, node: NodeConnection, job: str, lease: int, text: str) -> None:
        """End a lease that a node could not begin; without one, a node has no workers for the job."""
        running = node.leases.get((job, lease))
        if running is not None:
            self._end(running, crashed(running, ProgramError(text)))
        elif lease < 0 and job in self.loop.jobs:
            self.loop.cancel(self.loop.jobs[job], text)

    def _worker_lost(self, node: NodeConnection, own: int, reason: str, about: dict[str, Any]) -> None:
        number = node.workers.pop(own, None)
        if number is None:
            return
        del self._workers[number]
        self._forget([lease for lease in node.leases.values() if lease.number == own])
        self.loop.drain()
        self.loop.worker_lost(number, reason, **about)

    def _lost(self, node: NodeConnection, reason: str) -> None:
        """Handle a lost node: its leases are gone, and its outputs except those that are held here."""
        with self.draining.lock:
            if self._closing or node.dead:
                return
            self.leave_place(node)
        for number in node.workers.values():
            self._workers.pop(number, None)
        self._forget([*node.leases.values()])
        self._locate_held()
        self.loop.drain()
        self.loop.node_lost(node.number, f"node {node.about.name} is lost: {reason}")
        self.draining.drop_copies(node)
        if not self._workers and not self.others_may_join:
            self.give_up(f"no node is left; the last one, {node.about.name}, was lost: {reason}")

    def give_up(self, reason: str) -> None:
        """End all jobs, and begin no others: no node will come."""
        self._broken = reason
        for job in list(self.loop.jobs):
            self.loop.post(job, CancelRequested(self.loop.clock.now(), reason, force=True))

    def _locate_held(self) -> None:
        """Report the outputs that are held here: no node's loss makes their tasks run again.

        Streams are left out: the value of their source says nothing about its blocks.
        """
        for name, job in list(self.loop.jobs.items()):
            local: ClusterJob | None = job.backend
            if local is None or local.closed:
                continue
            streaming = local.streaming()
            for vertex, column in list(local.columns.items()):
                held = () if vertex in streaming else column.values
                for lo, hi in runs(at for at, cell in enumerate(held) if _is_held(cell)):
                    self.loop.post_later(name, OutputMoved(self.loop.clock.now(), vertex, lo, hi, ANYWHERE))

    def _forget(self, leases: list[SentLease]) -> None:
        for lease in leases:
            self._remove(lease)
            local: ClusterJob = lease.host
            local.forget(lease)

    def _remove(self, lease: SentLease) -> None:
        """Forget that a node has a lease."""
        with lease.node.lock:
            lease.node.leases.pop((lease.host.job.id, lease.id), None)
            lease.release()
        self.draining.lease_ended()

    # ----------------------------------------------------------------------------------------------- requests of tasks

    def _answer(self, node: NodeConnection, job: str, lease: int, number: int, method: str, arguments: bytes) -> None:
        """Answer a request of a task to its host."""
        try:
            found = self.loop.jobs.get(job)
            if found is None:
                raise RunCancelledError("the job has ended")
            if method == "committed" and node.leases.get((job, lease)) is None:
                raise RunCancelledError("the lease has ended")
            given = codec.from_pickle(arguments)
            if method == "ask_run":
                given = *given, MachineAddress(node.about.name, node.about.address[0])
            value = getattr(found.backend, method)(*given)
            answer = True, codec.to_pickle(value)
        except Exception as error:  # noqa: BLE001 - sent to the task
            answer = False, codec.to_pickle(error if isinstance(error, WeftError) else ProgramError(str(error)))
        node.send(messages.ANSWER, number, *answer)

    def _stream(self, node: NodeConnection, local: ClusterJob, kind: int, rest: list[Any]) -> None:
        streams = local.streams
        if kind == messages.STREAM:
            lease, edge, index, part, cell, nbytes = rest
            running = local.running.get(lease)
            try:
                if running is not None:
                    streams.put(edge, index, part, cell, nbytes, running)
                elif type(cell) is ChunkRef:
                    self.store.discard([cell])
            except RunCancelledError:
                pass
            except CapacityError as error:
                node.send(messages.FAULT, local.job.id, lease, str(error))
        elif kind == messages.STREAM_END:
            lease, edges, index = rest
            if (running := local.running.get(lease)) is not None:
                streams.end(edges, index, running)
        elif kind == messages.ROOM:
            self._give_room(node, local, tuple(rest), local.restarts.get(rest[0], 0))
        elif kind == messages.TAKE:
            self._give_block(node, local, tuple(rest), local.restarts.get(rest[0], 0))

    def _give_room(self, node: NodeConnection, local: ClusterJob, key: tuple[str, int, int], restarts: int) -> None:
        if restarts != local.restarts.get(key[0], 0):
            return
        if local.closed or local.streams.has_room(*key, partial(self._give_room, node, local, key, restarts)):
            node.send(messages.STREAM_ROOM, local.job.id, key)

    def _give_block(
        self, node: NodeConnection, local: ClusterJob, key: tuple[str, int, int, int], restarts: int
    ) -> None:
        """Send a reader the next block, now or when there is one.

        No effect if it asked before a restart: the block would be lost for the reader that asks anew.
        """
        if local.closed or restarts != local.restarts.get(key[0], 0):
            return
        block = local.streams.take(*key, partial(self._give_block, node, local, key, restarts))
        if block is None:
            return
        cell: Any = block.cell
        if block is END:
            cell = None
        elif block.column is not None:
            cell = sendable(self.store, block.column, block.at)
        node.send(messages.STREAM_BLOCK, local.job.id, key, cell)

    # ----------------------------------------------------------------------------------------------- ticks

    def _tick(self) -> None:
        """Report when no message came for a while."""
        pause = _FIRST_TICK_S
        while not self._closing:
            if self._active.wait(pause if self.loop.jobs else None):
                self._active.clear()
                pause = _FIRST_TICK_S
                continue
            pause = min(2 * pause, _LAST_TICK_S)
            with suppress(WeftError):
                self.loop.idle_tick()


def _is_held(cell: Any) -> bool:
    """Return whether the session itself holds an output."""
    return cell is not ABSENT and not (type(cell) is ChunkRef and cell.tier is Tier.PEER)
