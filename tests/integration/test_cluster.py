"""Sessions whose workers run at nodes over the network: values, losses, and what is left at the end."""

import os
import random
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

import weft
import weft.tensor as wt
from weft import Graph, gather, shuffle
from weft.backends.cluster import Cluster
from weft.backends.node_link import PURPOSE
from weft.model.errors import CapacityError, ForbiddenError, RunCancelledError, TaskError
from weft.store.folders import shm_root, user_root
from weft.store.handshake import prove
from weft.testing.local_nodes import LocalNodes
from weft.wiring import concrete

DEADLINE_S = 60
MIB = 1 << 20
KILLS = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 10


def double(x):
    return 2 * x


def row(x):
    return [np.full(20_000, 100 * x + part, float) for part in range(8)]


def slow_row(x):
    time.sleep(0.01)
    return row(x)


def summed(pieces):
    return float(sum(piece.sum() for piece in pieces))


def filled(x):
    return np.full(MIB // 8, float(x))


def meets(x, marks, count):
    """Wait until tasks run at `count` nodes, and return the process that has started this worker."""
    Path(marks, str(os.getppid())).touch()
    until(lambda: len(os.listdir(marks)) >= count)
    return os.getppid()


def counted(x, marks):
    """Return a large value, and note that it was made."""
    with open(Path(marks, str(x)), "a") as file:
        file.write("made\n")
    return filled(x)


def later(x, marks):
    """Wait for the mark "on"."""
    until(lambda: Path(marks, "on").exists())
    return float(x.sum())


def dies_once(x, marks):
    mark = Path(marks, str(x))
    if x == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def fails(x):
    raise KeyError(x)


def until(condition):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def nodes(monkeypatch):
    """Two nodes with one worker each, of the sessions "cluster", whose own memory is small."""
    with LocalNodes(2, 1, grace_s=0.5) as found:
        make = lambda at: Cluster(found.nodes, found.secret, at.store, grace_s=at.grace_s)  # noqa: E731
        monkeypatch.setitem(concrete.BACKENDS, "cluster", make)
        yield found


def shared_bytes(process):
    """The bytes of values in the shared memory of a node."""
    folder = next(user_root(shm_root()).glob(f"node-{process.pid}-*"))
    found = 0
    for path in folder.glob("*.chunks"):
        with suppress(FileNotFoundError):  # it is being removed
            found += path.stat().st_size
    return found


def test_tasks_run_at_all_nodes_and_large_values_stay_there(nodes, tmp_path):
    with weft.Session("cluster", memory=4 * MIB) as session:
        graph = Graph("large")
        rows = graph.map(filled, range(24))
        total = graph.add(summed, gather(rows)).keep()
        places = graph.map(meets, range(2), params={"marks": str(tmp_path), "count": 2}).keep()
        results = session.run(graph)
        assert results.value(total) == sum(range(24)) * MIB / 8
        assert len(set(results[places])) == 2
        assert session.store.stats().memory < MIB


def test_pieces_of_a_shuffle_come_from_all_nodes(nodes):
    with weft.Session("cluster") as session:
        graph = Graph("shuffle")
        sums = graph.add(summed, shuffle(graph.map(row, range(20))), n=8).keep()
        assert session.run(graph)[sums] == [sum(20_000.0 * (100 * x + part) for x in range(20)) for part in range(8)]


def test_kept_values_stay_at_their_nodes_until_nobody_refers_to_them(nodes):
    with wt.Session(backend="cluster") as session:
        x = wt.asarray(np.arange(2**20, dtype=float), chunk_size=2**17)
        y = (x + 1).execute()
        assert float(y.sum()) == (2**20) * (2**20 + 1) / 2
        assert float(y[y > 10].max()) == 2**20
        del x, y
        until(lambda: sum(map(shared_bytes, nodes.processes)) == 0)
        assert session.engine.store.stats().disk == 0


def test_a_program_that_fails_names_task_and_class(nodes):
    with weft.Session("cluster") as session:
        graph = Graph("fails")
        graph.map(fails, [7])
        with pytest.raises(TaskError, match="fails") as caught:
            session.run(graph)
        assert isinstance(caught.value, KeyError)


def test_a_worker_that_dies_is_replaced(nodes, tmp_path):
    with weft.Session("cluster") as session:
        graph = Graph("dies")
        done = graph.map(dies_once, range(8), params={"marks": str(tmp_path)}).keep()
        assert session.run(graph)[done] == list(range(8))


def test_nodes_killed_at_random_moments_change_no_result(monkeypatch, seed):
    """Rows of a shuffle are gone with their node: they are made again at the others."""
    rng = random.Random(seed)
    wanted = sum(20_000.0 * (100 * x + part) for x in range(40) for part in range(8))
    for kill in range(KILLS):
        with LocalNodes(3, 1) as found:
            make = lambda at, of=found: Cluster(of.nodes, of.secret, at.store)  # noqa: E731
            monkeypatch.setitem(concrete.BACKENDS, "cluster", make)
            with weft.Session("cluster") as session:
                graph = Graph("killed")
                sums = graph.add(summed, shuffle(graph.map(slow_row, range(40))), n=8)
                total = graph.add(sum, gather(sums)).keep()
                run = session.submit(graph)
                steps = rng.randrange(48)
                until(lambda n=steps, of=run: sum(row.finished for row in of.view().vertices) >= n or of.done)
                victim = rng.choice(found.processes)
                victim.kill()
                assert run.result(DEADLINE_S).value(total) == wanted, f"seed {seed}: kill {kill}"
                session.run(graph_of_doubles())


def graph_of_doubles():
    graph = Graph("after")
    graph.map(double, range(100))
    return graph


def test_all_nodes_lost_is_an_error_and_no_wait(nodes):
    with weft.Session("cluster") as session:
        graph = Graph("lost")
        graph.map(slow_row, range(200))
        run = session.submit(graph)
        for process in nodes.processes:
            process.kill()
        assert run.wait(DEADLINE_S)
        with pytest.raises(RunCancelledError, match="no node is left"):
            run.result()
        with pytest.raises(CapacityError):
            session.run(graph_of_doubles())


def test_a_node_that_joins_is_used(nodes, tmp_path):
    with weft.Session("cluster") as session, LocalNodes(1, 1, secret=nodes.secret) as more:
        assert isinstance(session.executor, Cluster)
        session.executor.join(more.nodes[0]._replace(name="third"))
        graph = Graph("joined")
        places = graph.map(meets, range(3), params={"marks": str(tmp_path), "count": 3}).keep()
        assert len(set(session.run(graph)[places])) == 3


@pytest.mark.parametrize("alone", [False, True], ids=["others", "alone"])
def test_a_node_that_drains_hands_its_outputs_on_before_it_ends(nodes, tmp_path, alone):
    """Nothing is made twice; without another node the values come to the session."""
    with weft.Session("cluster") as session:
        cluster = session.executor
        assert isinstance(cluster, Cluster)
        graph = Graph("drains")
        rows = graph.map(counted, range(12), params={"marks": str(tmp_path)}).keep()
        total = graph.add(sum, gather(rows)).keep()
        results = session.run(graph)
        for number in [0, 1] if alone else [0]:
            cluster.drain(number, "its machine is wanted elsewhere")
            until(lambda of=nodes.processes[number]: of.poll() is not None)
        assert float(results.value(total).sum()) == sum(range(12)) * MIB / 8
        assert [float(value[0]) for value in results[rows]] == [float(x) for x in range(12)]
        assert all(path.read_text() == "made\n" for path in tmp_path.iterdir())


def test_running_tasks_of_a_draining_node_end_there_and_the_rest_is_given_back(nodes, tmp_path):
    with weft.Session("cluster") as session:
        assert isinstance(session.executor, Cluster)
        graph = Graph("drains")
        made = graph.map(counted, range(4), params={"marks": str(tmp_path)})
        total = graph.add(sum, gather(graph.map(later, made, params={"marks": str(tmp_path)}))).keep()
        run = session.submit(graph)
        until(lambda: len(os.listdir(tmp_path)) == 2)  # each worker waits in its second task
        session.executor.drain(1, "its machine is wanted elsewhere")
        Path(tmp_path, "on").touch()
        assert run.result(DEADLINE_S).value(total) == sum(range(4)) * MIB / 8
        until(lambda: nodes.processes[1].poll() is not None)
        assert nodes.processes[0].poll() is None
        assert all(Path(tmp_path, str(x)).read_text() == "made\n" for x in range(4))


def test_nothing_is_left_of_a_session_and_its_nodes(nodes):
    processes = [psutil.Process(process.pid) for process in nodes.processes]
    with weft.Session("cluster") as session:
        session.run(graph_of_doubles())
        below = [child for process in processes for child in process.children(recursive=True)]
        assert len(below) >= 4  # a nursery and a worker each
    until(lambda: all(process.poll() is not None for process in nodes.processes))
    until(lambda: not any(child.is_running() and child.status() != "zombie" for child in below))
    for process in nodes.processes:
        assert process.returncode == 0
        assert not list(user_root(shm_root()).glob(f"node-{process.pid}-*"))


def test_a_killed_session_ends_its_nodes(nodes):
    """The connection ends with the process; here it is only cut, as by a kill."""
    with weft.Session("cluster") as session:
        session.run(graph_of_doubles())
        assert isinstance(session.executor, Cluster)
        for node in session.executor._nodes.values():
            node.link._sock.shutdown(socket.SHUT_RDWR)
        until(lambda: all(process.poll() is not None for process in nodes.processes))


def test_only_who_knows_the_secret_is_heard(nodes):
    address = nodes.nodes[0].address
    with socket.create_connection(address) as sock, pytest.raises((ForbiddenError, ConnectionError)):
        prove(sock, b"another", PURPOSE, serves=False)
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(1000), PURPOSE.ljust(8) + os.urandom(64)):
        with socket.create_connection(address) as sock:
            sock.settimeout(DEADLINE_S)
            with suppress(OSError):  # the node may have closed it already
                sock.sendall(garbage)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1000):
                    pass
    with weft.Session("cluster") as session:
        session.run(graph_of_doubles())
        # A node serves one session alone, even if another one knows the secret.
        with socket.create_connection(address) as sock:
            prove(sock, nodes.secret, PURPOSE, serves=False)
            sock.settimeout(DEADLINE_S)
            assert sock.recv(1) == b""
        session.run(graph_of_doubles())


def test_a_node_that_cannot_be_reached_is_named(nodes, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gone = nodes.nodes[0]._replace(address=("127.0.0.1", port), name="gone")
    monkeypatch.setitem(concrete.BACKENDS, "cluster", lambda at: Cluster([gone], nodes.secret, at.store))
    with pytest.raises(CapacityError, match=r"node gone at 127[.]0[.]0[.]1"):
        weft.Session("cluster")
