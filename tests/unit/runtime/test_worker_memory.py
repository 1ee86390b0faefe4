"""The limit on the memory of worker processes."""

import mmap
import resource
import sys

import pytest

import weft
from weft.backends.cluster import Cluster
from weft.model.errors import OutOfMemoryError, UsageError
from weft.runtime.session import EngineSession
from weft.store.blocks import BlockManager
from weft.testing.local_nodes import LocalNodes
from weft.worker.limits import MemoryLimit, data_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux counts private memory")

MIB = 1 << 20


def fill(nbytes):
    return len(bytearray(nbytes))


def shared(data):
    return len(data)


def limits(_):
    return resource.getrlimit(resource.RLIMIT_DATA)


@pytest.fixture(scope="module")
def session():
    with weft.Session("processes", workers=1, worker_memory="256MiB") as session:
        yield session


def test_a_task_that_takes_more_fails_for_lack_of_memory(session):
    graph = weft.Graph("large")
    graph.map(fill, [1024 * MIB])
    with pytest.raises(OutOfMemoryError, match=r"may take 256 MiB of memory \(worker_memory\)") as failed:
        session.run(graph)
    assert failed.value.task == "fill[0]"


def test_the_worker_goes_on_with_smaller_tasks(session):
    pids = session.executor.pids
    results = session.map(fill, [1024 * MIB, 100 * MIB, 1024 * MIB, 1], return_exceptions=True).results()
    assert [isinstance(result, OutOfMemoryError) for result in results] == [True, False, True, False]
    assert [results[1], results[3]] == [100 * MIB, 1]
    assert session.executor.pids == pids


def test_declared_memory_beyond_the_limit_may_be_taken(session):
    graph = weft.Graph("declared")
    node = graph.map(fill, [400 * MIB], resources=weft.Resources(memory=450 * MIB))
    assert session.run(graph).value(node) == 400 * MIB


def test_a_retry_may_take_what_it_asks_for(session):
    graph = weft.Graph("retried")
    node = graph.map(fill, [400 * MIB], resources=weft.Resources(memory=150 * MIB))
    run = session.submit(graph)
    assert run.result().value(node) == 400 * MIB
    assert any("may take 300 MiB" in line for line in run.story("fill[0]"))


def test_values_in_shared_memory_do_not_count(session):
    graph = weft.Graph("shared")
    made = graph.add(bytes, items=[150 * MIB], name="made")
    other = graph.add(bytes, items=[150 * MIB], name="other")
    node = graph.add(len, weft.gather(made), name="count")
    graph.add(len, weft.gather(other), name="count-other")
    assert session.run(graph)[node] == [1]


def test_the_limit_holds_only_while_tasks_run():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MemoryLimit(512 * MIB)
    with limit.hold(0):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] == limit._base + 512 * MIB
    with limit.hold(1024 * MIB):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] == limit._base + 1024 * MIB
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_private_memory_is_counted():
    before = data_bytes()
    # Not from the allocator, which may have as much that other tests gave back.
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        assert data_bytes() - before >= 60 * MIB


def test_without_a_limit_workers_keep_theirs():
    with weft.Session("processes", workers=1) as session:
        assert session.map(limits, [0]).results() == [resource.getrlimit(resource.RLIMIT_DATA)]


def test_nodes_of_a_cluster_limit_their_workers(tmp_path):
    store = BlockManager(1 << 30, spill=tmp_path)
    with LocalNodes(1, 1, grace_s=0.5, worker_memory=256 * MIB) as nodes:
        cluster = Cluster(nodes.nodes, nodes.secret, store, grace_s=0.5)
        with EngineSession(cluster, store) as session:
            graph = weft.Graph("large")
            graph.map(fill, [1024 * MIB], retry=weft.Retry(memory=0))
            with pytest.raises(OutOfMemoryError, match="256 MiB"):
                session.run(graph)


@pytest.mark.parametrize("backend", ["threads", "simulator"])
def test_backends_without_processes_have_no_limit(backend):
    with pytest.raises(UsageError, match="worker_memory limits worker processes"):
        weft.Session(backend, worker_memory="1GiB")


def test_a_size_that_is_none_is_refused():
    with pytest.raises(UsageError, match="worker_memory is 'much'"):
        weft.Session("processes", worker_memory="much")
