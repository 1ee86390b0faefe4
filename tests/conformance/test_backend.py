"""Every backend passes the suite for backends: threads, processes, nodes, a socket, the simulator, and the fake."""

import os
from contextlib import contextmanager

import pytest

from tests.fixtures.certificates import Authority
from tests.forked_nodes import ForkedNodes
from weft.backends.cluster import Cluster
from weft.backends.processes import Processes
from weft.backends.simulator import Simulator
from weft.backends.threads import Threads
from weft.engine.commands import Complete
from weft.graph.builder import Graph
from weft.runtime.session import EngineSession
from weft.store.blocks import BlockManager
from weft.store.folders import RunFolders, shm_root
from weft.testing.conformance.backend import (
    CHECKS,
    VALUE_CHECKS,
    SessionRig,
    SteppedRig,
    nothing,
    quiet,
)
from weft.testing.fakes import ManualClock, MemoryJournal, RecordingExecutor
from weft.testing.socket_backend import SocketBackend


@contextmanager
def threads(tmp_path):
    store = BlockManager(1 << 30, spill=tmp_path)
    with EngineSession(Threads(2, store, grace_s=0.5, window=1 << 20), store) as session:
        yield SessionRig(session)


@contextmanager
def processes(tmp_path):
    with RunFolders(f"conformance-{os.getpid()}-{tmp_path.name}", shm_root(), tmp_path) as run:
        store = BlockManager(1 << 30, shm=run.shm, spill=run.spill)
        with EngineSession(
            Processes(2, store, run.shm, spill=run.spill, grace_s=0.5, window=1 << 20), store
        ) as session:
            yield SessionRig(session)


@contextmanager
def simulated(tmp_path):
    simulator = Simulator(2)
    yield SteppedRig(simulator, simulator.clock, simulator.run)


@contextmanager
def recorded(tmp_path):
    yield SteppedRig(RecordingExecutor(2), ManualClock(), lambda: None)


@contextmanager
def over_a_socket(tmp_path):
    store = BlockManager(1 << 30, spill=tmp_path)
    with EngineSession(SocketBackend(2, store, grace_s=0.5, window=1 << 20), store) as session:
        yield SessionRig(session)


@contextmanager
def at_nodes(tmp_path, tls=None):
    store = BlockManager(1 << 30, spill=tmp_path)
    with ForkedNodes(2, 1, grace_s=0.5, window=1 << 20, tls=tls) as nodes:
        cluster = Cluster(nodes.nodes, nodes.secret, store, tls=tls, grace_s=0.5, window=1 << 20)
        with EngineSession(cluster, store) as session:
            yield SessionRig(session)


def at_nodes_by_tls(tmp_path):
    return at_nodes(tmp_path, Authority(tmp_path).issue("machine"))


BACKENDS = {
    "cluster": at_nodes,
    "cluster-tls": at_nodes_by_tls,
    "threads": threads,
    "socket": over_a_socket,
    "processes": processes,
    "simulator": simulated,
    "fake": recorded,
}


@pytest.fixture(scope="module", params=BACKENDS)
def rig(request, tmp_path_factory):
    with BACKENDS[request.param](tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_backend(check, rig):
    check(rig)
    quiet(rig)


@pytest.mark.parametrize("check", VALUE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("rig", ["threads", "processes", "socket", "cluster", "cluster-tls"], indirect=True)
def test_backend_that_computes(check, rig):
    check(rig)
    quiet(rig)


def test_the_journal_in_memory_has_every_tick():
    journal = MemoryJournal()
    rig = SteppedRig(RecordingExecutor(1), ManualClock(), lambda: None)
    graph = Graph("journal")
    graph.add(nothing, n=10)
    seen = rig.run(graph, journal=journal)
    assert journal.closed
    assert journal.records == seen.ticks
    assert [type(command) for command in journal.records[-1][1]][-1] is Complete
