"""A session and nodes on a simulated network that breaks: jobs compute what a plain program would, and leave nothing.

The session's end, the nodes and the loop are the real ones; processes, links and time are simulated, all from one seed.
The world watches both ends of every message that matters.
"""

import hashlib
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.gangs import random_gang, values_of
from weft.backends.cluster import Cluster
from weft.backends.cluster_jobs import ClusterJob
from weft.backends.cluster_nodes import NodeAddress, NodeConnection
from weft.backends.simulated_links import (
    FOREVER_S,
    LinkFaults,
    SimulatedLink,
    SimulatedNetwork,
    SimulatedNodeNetwork,
    SimulatedProcess,
    SimulatedReader,
)
from weft.backends.simulated_workers import SimulatedNode, WorkerFaults
from weft.engine.machines.task import TaskState
from weft.engine.master import Master
from weft.engine.ports import Job
from weft.graph.builder import Graph, Reads, VertexHandle, gather, shuffle
from weft.graph.logical import LogicalGraph, Retry
from weft.graph.validate import mark_results, validate
from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import NotFoundError
from weft.model.resources import Resources
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.store import peers
from weft.store.blocks import BlockManager
from weft.store.folders import RunFolders
from weft.testing.inside import check_job
from weft.testing.oracle import sequential
from weft.worker.lease import LeaseResult, WorkerLease
from weft.worker.link import LOST_S, ORPHAN_S

LARGE = 70_000
"""The bytes of a value that stays at its node."""
PATIENCE_S = 3_000.0
TICK_S = 0.16
SETTLED_S = 2 * LOST_S
"""By when all links have seen what is lost."""
MOST_ACTIONS = 2_000_000


def stamp(item: int, *inputs: Any, name: str, size: int, parts: int = 0) -> Any:
    """Return bytes, or some pieces of bytes, that tell of all inputs."""
    found = hashlib.blake2b(f"{name}[{item}]".encode(), digest_size=8)
    for value in inputs:
        for piece in value if isinstance(value, list) else [value]:
            for one in piece if isinstance(piece, list) else [piece]:
                found.update(b"%d" % len(one) + one[:8] + one[-8:])
    if not parts:
        return found.digest() * (size // 8)
    return [hashlib.blake2b(found.digest(), person=bytes([part])).digest() * (size // 64) for part in range(parts)]


def random_computation(rng: random.Random, name: str) -> Graph:
    """Return a graph of mapped, gathered and shuffled vertices with small and large values."""
    graph = Graph(name)
    made: list[tuple[VertexHandle, int]] = []
    for at in range(rng.randint(1, 6)):
        n = rng.choice([1, 2, 3, 5, 8, 13])
        inputs: list[Reads] = []
        for source, width in rng.sample(made, min(len(made), rng.choice([0, 1, 1, 2]))):
            if rng.random() < 0.3:
                pieces = _add(graph, rng, f"{name}{at}p{source.id[len(name) :]}", width, [source], n)
                inputs.append(shuffle(pieces, n))
            elif width == n and rng.random() < 0.7:
                inputs.append(source)
            else:
                inputs.append(gather(source))
        made.append((_add(graph, rng, f"{name}{at}", n, inputs), n))
    return graph


def _add(graph: Graph, rng: random.Random, name: str, n: int, inputs: list[Reads], parts: int = 0) -> VertexHandle:
    size = rng.choice([64, 64, LARGE, 3 * LARGE]) * (max(1, parts) if rng.random() < 0.5 else 1)
    size = min(size, 3 * LARGE)
    params = {"name": name, "size": size} | ({"parts": parts} if parts else {})
    retry = Retry(infrastructure=1_000, crash=1_000)
    counted = size == 64 and n > 2  # nothing is drawn for it, so that seeds keep their worlds
    vertex = graph.map(stamp, range(n), *inputs, name=name, params=params, retry=retry, counted=counted)
    return vertex.keep() if not parts and rng.random() < 0.3 else vertex


class WatchedJob(ClusterJob):
    """A job that refuses to commit a task twice."""

    def _put(self, lease: WorkerLease, outcome: LeaseResult, values: list[Any], lo: int, reservation: Any) -> None:
        vertex = lease.codes[outcome.reached].vertex if outcome.reached >= 0 else lease.root.vertex
        row = self.job.inspector.vertex(vertex)
        assert row is not None
        for at in range(lo, lo + len(values)):
            assert row.state[at] != TaskState.FINISHED, f"{vertex}[{at}] is committed twice"
        super()._put(lease, outcome, values, lo, reservation)


class WatchedCluster(Cluster):
    """The session's end, which may hear nothing of a node that it has given up."""

    def open_job(self, job: Job) -> None:
        super().open_job(job)
        job.backend.__class__ = WatchedJob

    def _take(self, node: NodeConnection, kind: int, rest: list[Any]) -> None:
        assert not node.dead, f"message {kind} of {node.about.name} is taken after its loss"
        super()._take(node, kind, rest)


class WatchedNode(SimulatedNode):
    """A node that deletes only what nobody refers to."""

    refers: Callable[[str], bool]

    def _delete(self, places: list[tuple[str, str, int, int]]) -> None:
        for place in places:
            location = peers.location_of(self.address, *place)
            assert not self.refers(location), f"{location} is deleted, but the session refers to it"
        super()._delete(places)


class ClusterWorld:
    """Nodes, a session, and the jobs that it runs one after the other, drawn from `seed`.

    `window` is the bytes of a stream; there are `least` workers, as soon as nodes can join.
    """

    def __init__(self, seed: int, folder: Path, held: ExitStack, *, window: int | None = None, least: int = 0) -> None:
        rng = self.rng = random.Random(seed)

        def often(probability: float) -> float:
            return probability if rng.random() < 0.4 else 0.0

        calm = rng.random() < 0.1
        faults = LinkFaults(
            latency_s=rng.choice([0.0001, 0.001, 0.05]),
            late=often(0.2),
            late_s=rng.choice([0.1, 2.0, 15.0]),
            silent=often(0.02),
            silent_s=rng.choice([5.0, 40.0]),
            for_good=rng.choice([0.0, 0.5]),
            broken=often(0.02),
            told=rng.choice([0.0, 0.5, 1.0]),
            unread=often(0.1),
        )
        self.net = SimulatedNetwork(rng, faults, 0 if calm else rng.choice([1, 3, 10, 30]))
        self.net.ended = self._link_ended
        self.clock = self.net.agenda.clock
        pace = rng.choice([0.01, 0.5, 5.0])
        self.seconds = lambda vertex, index: pace * (1 + (len(vertex) + 5 * index) % 7 / 7)
        self.worker_faults = WorkerFaults(died=often(0.05), progress=rng.choice([0.0, 0.5]))
        self.process = SimulatedProcess("session")
        self.nodes: list[WatchedNode] = []
        self.held = held
        self.folder = folder
        self.budget = rng.choice([1 << 30, 1 << 30, 200 * LARGE])
        count = rng.randint(1, 4)
        addresses = [self.start_node() for _ in range(count)]
        while sum(address.workers for address in addresses) < least:
            addresses.append(self.start_node())
        self.least = least
        self.store = held.enter_context(BlockManager(1 << 30))
        surroundings = SimulatedNodeNetwork(self.net, self.process)
        self.cluster = WatchedCluster(addresses, b"", self.store, network=surroundings, window=window)
        self.cluster.others_may_join = True
        peers.close_reader()
        peers.forget_fetched()
        peers._readers.append(SimulatedReader(self.net))
        held.callback(peers.close_reader)
        self.loop = Loop(self.cluster, self.clock)
        self.jobs: list[JobRun] = []
        self.calm = calm
        self.patience = PATIENCE_S
        self.silent: list[SimulatedLink] = []

    def start_node(self) -> NodeAddress:
        """Return a new node."""
        name, workers = f"node{len(self.nodes)}", self.rng.randint(1, 3)
        folders = self.held.enter_context(RunFolders(name, self.folder / "shm", self.folder / "state"))
        node = WatchedNode(
            self.net, name, workers, folders, seconds=self.seconds, budget=self.budget, worker_faults=self.worker_faults
        )
        node.refers = self._refers
        self.held.callback(node.store.close)
        self.held.callback(node.abandon)
        self.nodes.append(node)
        return NodeAddress(node.address, workers, name, Resources(cpu=workers, memory=self.budget))

    def _refers(self, location: str) -> bool:
        cells = (cell for column in self.store._columns.values() for cell in column.values)
        return any(type(cell) is ChunkRef and cell.tier is Tier.PEER and cell.location == location for cell in cells)

    def _link_ended(self, link: SimulatedLink) -> None:
        """A session gives a node up for its silence only after that has stopped, or while it stands still."""
        if link.silent and link.leads:
            node = link.other.process
            stopped = link.other.ended or node.dead or node.hangs_until > self.clock.time
            assert stopped, f"the session gives {node.name} up, which still works"

    # ------------------------------------------------------------------------------------------------------- time

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Call `action` outside of all processes."""
        self.net.agenda.at(when, action, SimulatedProcess("world"))

    def step(self) -> None:
        """Run the next action, and check the job."""
        assert self.net.agenda.step()
        for job in self.loop.jobs.values():
            if job.crash is not None:
                raise job.crash

    def pass_time(self, seconds: float) -> None:
        """Run everything of some seconds."""
        over: list[bool] = []
        self.at(self.clock.time + seconds, partial(over.append, True))
        while not over:
            self.step()

    def _tick(self) -> None:
        if self.loop.jobs:
            self.loop.idle_tick()
        self.net.agenda.at(self.clock.time + TICK_S, self._tick, self.process)

    # --------------------------------------------------------------------------------------------------- misfortune

    def plan_misfortune(self) -> None:
        """Plan some deaths, and times for which a process hangs."""
        rng = self.rng
        for _ in range(0 if self.calm else rng.choice([0, 0, 1, 2, 4])):
            self.at(self.clock.time + rng.choice([0.1, 3.0, 30.0]) * rng.random(), self._misfortune)

    def _misfortune(self) -> None:
        rng = self.rng
        alive = [node for node in self.nodes if not node.process.dead]
        kind = rng.choice(["kill", "hang", "hang", "session hangs", "silence", "drain", "drain"])
        if kind == "session hangs":
            self.net.hang(self.process, rng.choice([5.0, 25.0]) * rng.random())
        elif not alive:
            return
        elif kind == "kill":
            self.net.kill(rng.choice(alive).process)
        elif kind == "drain":
            number = rng.choice(list(self.cluster._nodes))
            self.net.agenda.soon(partial(self.cluster.drain, number, "its machine is wanted elsewhere"), self.process)
        elif kind == "hang":
            self.net.hang(rng.choice(alive).process, rng.choice([5.0, 60.0]) * rng.random())
        else:
            link = next(iter(rng.choice(alive).process.links), None)
            if link is not None and not link.ended:
                rng.choice([link.out, link.out.back]).silence(rng.choice([5.0, 30.0, FOREVER_S]))

    def _replace_lost(self) -> None:
        """Have a node join where one was lost, as a provider does."""
        lost = [node for node in self.cluster._nodes.values() if node.dead]
        there = [node for node in self.cluster._nodes.values() if not (node.dead or node.leaves)]
        few = len(self.cluster._nodes) - len(lost) < 1 + self.rng.randrange(2)
        if (few or sum(len(node.workers) for node in there) < self.least) and self.loop.jobs:
            self.cluster.join(self.start_node())
        self.net.agenda.at(self.clock.time + 2.0, self._replace_lost, self.process)

    # -------------------------------------------------------------------------------------------------------- runs

    def run(self, graph: Graph, values: Callable[[LogicalGraph], dict[str, list[Any]]] = sequential) -> JobRun:
        """Run a job to its end and compare its results with `values(graph)`."""
        wanted = values(graph)
        mark_results(graph)
        validate(graph, self.loop.pool.capacity())
        job = JobRun(graph.name, graph, Master(graph, graph.name, self.cluster.tuning))
        self.jobs.append(job)
        self.plan_misfortune()
        self.net.agenda.soon(partial(self.loop.submit, job), self.process)
        end = self.clock.time + self.patience
        moved: list[bool] = []
        job.listen(lambda *_: moved.append(True))
        while job.outcome is None:
            self.step()
            if moved:
                moved.clear()
                check_job(job)
            assert self.clock.time < end, "it does not end:\n" + "\n".join(job.inspector.story()[-30:])
        if job.crash is not None:
            raise job.crash
        assert job.outcome.state == "succeeded", f"{job.outcome}"
        for vertex in graph.vertices.values():
            if vertex.keep:
                self._compare(job, vertex.id, wanted[vertex.id])
            if vertex.counted:  # with too many a vertex would end before it has the rows that are wanted of it
                row = job.inspector.vertex(vertex.id)
                assert row is not None
                rows = sum(map(len, wanted[vertex.id]))
                assert row.rows <= rows, f"{vertex.id} has {rows} rows, of which {row.rows} are counted"
        return job

    def _compare(self, job: JobRun, vertex: str, wanted: list[Any]) -> None:
        column = job.backend.columns[vertex]
        left, self.net.faults_left = self.net.faults_left, 0
        for at, value in enumerate(wanted):
            try:
                found = self.store.load(column, at) if column.tracked else column.values[at]
            except NotFoundError:
                place = peers.parse(column.values[at].location)
                process, _, _ = self.net.listeners[place.host, place.port]
                assert process.dead or process.hangs_until > self.clock.time
            else:
                assert found == value, f"{vertex}[{at}] is wrong"
        self.net.faults_left = left

    def expect_nothing_left(self) -> None:
        """All stores are empty once the jobs are closed, and no worker is taken for busy."""
        for job in self.jobs:
            self.net.agenda.soon(partial(self.cluster.close_job, job), self.process)
        self.net.faults_left = 0
        self.pass_time(SETTLED_S)
        while self.process.hangs_until > self.clock.time or any(
            node.process.hangs_until > self.clock.time for node in self.nodes
        ):
            self.pass_time(SETTLED_S)
        self.pass_time(SETTLED_S)
        stats = self.store.stats()
        assert (stats.memory, stats.shm, stats.pinned_chunks) == (0, 0, 0), f"the session keeps {stats}"
        for connection in self.cluster._nodes.values():
            node = next(node for node in self.nodes if node.address == connection.about.address)
            assert not connection.leases
            assert connection.dead == node.process.dead, f"{node.process.name}: only one end is lost"
            if connection.dead:
                continue
            stats = node.store.stats()
            kept = (stats.memory, stats.shm, stats.disk, stats.pinned_chunks)
            assert kept == (0, 0, 0, 0), f"{node.process.name} keeps {stats}"
            assert not node.jobs
            assert not node._ended, f"{node.process.name} keeps {[*node._ended]}"
        pool = self.loop.pool
        assert (
            pool.idle
            == len(self.cluster.numbers())
            == sum(len(node._processes.numbers()) for node in self.nodes if not node.process.dead)
        )

    def expect_end(self) -> None:
        """Nodes end with their session, however it ends."""
        if self.rng.random() < 0.5:
            self.net.agenda.soon(self.cluster.close, self.process)
        else:
            for node in self.nodes if self.rng.random() < 0.5 else ():
                for link in node.process.links:
                    link.other.out.silence(FOREVER_S)  # nobody hears of the end
            self.net.kill(self.process)
        self.pass_time(2 * ORPHAN_S)
        joined = {node.about.address for node in self.cluster._nodes.values()}
        assert all(node.process.dead for node in self.nodes if node.address in joined)


def random_cluster(seed: int, gang: int = 0) -> ClusterWorld:
    """Run some jobs in a world drawn from `seed`. AssertionError: something is wrong.

    With `gang`, the jobs have gangs of at most so many tasks, which exchange values while they run.
    """
    more = random.Random(f"gangs {seed}")
    window = more.choice([1, 1 << 18, None]) if gang else None
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        Path(folder, "shm").mkdir()
        world = ClusterWorld(seed, Path(folder), held, window=window, least=gang)
        world.net.agenda.soon(world._tick, world.process)
        world.net.agenda.soon(world._replace_lost, world.process)
        for at in range(world.rng.choice([1, 1, 2])):
            if gang:
                world.run(random_gang(more, f"j{at}", gang), values_of)
            else:
                world.run(random_computation(world.rng, f"j{at}"))
        world.expect_nothing_left()
        world.expect_end()
        return world


def main(arguments: list[str]) -> None:
    """Replay one: `python -m tests.simulation.clusters SEED [GANG]`; tell its story."""
    world = random_cluster(*map(int, arguments))
    for job in world.jobs:
        sys.stdout.write("\n".join((f"{job.id}: {job.outcome}", *job.inspector.story(), "")))


if __name__ == "__main__":
    main(sys.argv[1:])
