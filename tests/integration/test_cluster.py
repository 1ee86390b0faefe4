"""Sessions whose workers run at nodes over the network: values, losses, and what is left at the end."""

import json
import os
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

import weft
import weft.tensor as wt
from tests.forked_nodes import ForkedNodes
from tests.integration.node_tasks import (
    DEADLINE_S,
    MIB,
    bytes_below,
    counted,
    dies_once,
    double,
    fails,
    filled,
    later,
    leaves_mark,
    meets,
    met_place,
    most_bytes_of_writer,
    reads_late,
    row,
    slow_row,
    streamed,
    streams_and_tells,
    sum_of_all,
    sum_of_both,
    summed,
    totals,
    until,
    waits_for,
)
from tests.started import have_ended
from weft import Graph, Storage, gather, one_to_one, shuffle
from weft.backends import node_messages as messages
from weft.backends.cluster import Cluster
from weft.backends.node_link import PURPOSE
from weft.model.chunks import Tier
from weft.model.errors import CapacityError, DiskFullError, ForbiddenError, RunCancelledError, TaskError
from weft.store.folders import shm_root, user_root
from weft.store.handshake import prove
from weft.wiring import concrete
from weft.worker.actors import PLACE, gateways


@pytest.fixture
def nodes(monkeypatch):
    """Two nodes with one worker each, of the sessions "cluster", whose own memory is small."""
    with ForkedNodes(2, 1, grace_s=0.5) as found:
        make = lambda at: Cluster(found.nodes, found.secret, at.store, grace_s=at.grace_s)  # noqa: E731
        monkeypatch.setitem(concrete.BACKENDS, "cluster", make)
        yield found


def shared_folder(process):
    return next(user_root(shm_root()).glob(f"node-{process.pid}-*"))


def shared_bytes(process):
    """The bytes of values in the shared memory of a node."""
    return bytes_below(shared_folder(process))


class Told:
    """An actor that is told words."""

    def tell(self, word: str) -> str:
        return word[::-1]


def tells(word, told):
    return told.tell(word).result(DEADLINE_S)


def test_nodes_and_actors_listen_at_the_ports_that_are_allowed(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = min(taken.getsockname()[1], 65_000)
        monkeypatch.setenv("WEFT_PORTS", f"{first}-{first + 99}")
        monkeypatch.setattr(socket, "gethostname", lambda: "program")  # the nodes are on another machine
        with ForkedNodes(2, 1, grace_s=0.5) as nodes:
            make = lambda at: Cluster(nodes.nodes, nodes.secret, at.store, grace_s=at.grace_s)  # noqa: E731
            monkeypatch.setitem(concrete.BACKENDS, "cluster", make)
            with weft.Session("cluster", backups=False) as session:
                told = session.actor(Told, resources=weft.Resources(cpu=1))
                assert session.map(tells, ["word"], params={"told": told}).results() == ["drow"]
                at_node = json.loads(told._address.file(PLACE).read_text())
                at_program = gateways[told._address.folder]
                addresses = [*(node.address for node in nodes.nodes), at_node, at_program]
    assert {first < port < first + 100 for _, port in addresses} == {True}


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


def fills_disk():
    raise DiskFullError("no room for 8 bytes in /spill", hint="Free some space there.")


def test_a_full_disk_is_told_with_its_machine(nodes):
    graph = Graph("full")
    graph.add(fills_disk, n=1).keep()
    with weft.Session("cluster") as session:
        names = [node.name for node in session.executor.provider.nodes()]
        with pytest.raises(DiskFullError, match="no room for 8 bytes in /spill") as full:
            session.run(graph)
    assert any(f"machine {name}: no room" in str(full.value) for name in names)


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


def test_a_chunk_that_several_tasks_read_is_fetched_once_for_each_node(monkeypatch, tmp_path):
    with ForkedNodes(2, 2, grace_s=0.5) as found:
        make = lambda at: Cluster(found.nodes, found.secret, at.store, grace_s=at.grace_s)  # noqa: E731
        monkeypatch.setitem(concrete.BACKENDS, "cluster", make)
        with weft.Session("cluster") as session:
            graph = Graph("read_by_all")
            made = graph.map(filled, range(3), placement=weft.Placement(node="node-0"))
            params = {"marks": str(tmp_path), "count": 4}
            read = graph.map(met_place, range(8), gather(made), params=params).keep()
            places = session.run(graph)[read]
            by_node = {node: {tuple(path) for at, path in places if at == node} for node, _ in places}
            assert len(by_node) == 2
            assert all(len(paths) == 1 for paths in by_node.values()), by_node  # all readers map one file
            assert all(path[0].startswith("/dev/shm/") for paths in by_node.values() for path in paths)
            until(lambda: sum(map(shared_bytes, found.processes)) == 0)  # copies go with their last reader


def test_copies_of_chunks_stay_within_the_budget_of_their_node(monkeypatch):
    with ForkedNodes(2, 1, grace_s=0.5, budget=8 * MIB) as found:
        make = lambda at: Cluster(found.nodes, found.secret, at.store, grace_s=at.grace_s)  # noqa: E731
        monkeypatch.setitem(concrete.BACKENDS, "cluster", make)
        with weft.Session("cluster") as session:
            graph = Graph("more_than_fits")
            made = graph.map(filled, range(24), placement=weft.Placement(node="node-0"))
            read = graph.map(sum_of_all, range(4), gather(made), placement=weft.Placement(node="node-1")).keep()
            assert session.run(graph)[read] == [sum(range(24)) * MIB / 8 + x for x in range(4)]
            assert shared_bytes(found.processes[1]) <= 8 * MIB


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


class Watched(Cluster):
    """A cluster that notes the tiers of the blocks that its nodes report."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.tiers = []

    def _stream(self, node, local, kind, rest):
        if kind == messages.STREAM:
            self.tiers.append(getattr(rest[4], "tier", None))
        super()._stream(node, local, kind, rest)


@pytest.mark.parametrize("reader", ["node-0", "node-1"])
def test_large_blocks_of_streams_go_from_node_to_node_within_their_window(monkeypatch, reader):
    with ForkedNodes(2, 2, grace_s=0.5) as found:
        make = lambda at: Watched(found.nodes, found.secret, at.store, grace_s=at.grace_s, window=4 * MIB)  # noqa: E731
        monkeypatch.setitem(concrete.BACKENDS, "cluster", make)
        with weft.Session("cluster") as session:
            graph = Graph("streamed")
            params = {"n": 40, "folder": str(shared_folder(found.processes[0]))}
            source = graph.task(streamed, name="source", params=params, placement=weft.Placement(node="node-0"))
            edge = one_to_one(source, name="blocks", concurrent=True, storage=Storage.EPHEMERAL)
            placement = weft.Placement(node=reader)
            sink = graph.task(most_bytes_of_writer, edge, name="sink", params=params, placement=placement).keep()
            graph.bubble(source, sink)
            place, count, most = session.run(graph).value(sink)
            assert (psutil.Process(place).ppid(), count) == (found.processes[int(reader[-1])].pid, 40)
            assert isinstance(session.executor, Watched)
            assert set(session.executor.tiers) == {Tier.PEER}
            # One block more than fits the window, one that the worker writes meanwhile, and those that are being freed:
            # a busy machine removes their files late.
            assert MIB <= most <= 12 * MIB
            until(lambda: sum(map(shared_bytes, found.processes)) == 0)


def test_blocks_lost_with_the_node_of_an_ended_writer_are_streamed_again(monkeypatch, tmp_path):
    with ForkedNodes(3, 1, grace_s=0.5) as found:
        make = lambda at: Watched(found.nodes, found.secret, at.store, grace_s=at.grace_s, window=64 * MIB)  # noqa: E731
        monkeypatch.setitem(concrete.BACKENDS, "cluster", make)
        with weft.Session("cluster") as session:
            graph = Graph("lost")
            params = {"n": 12, "marks": str(tmp_path)}
            source = graph.task(streams_and_tells, name="source", params=params)
            edge = one_to_one(source, name="blocks", concurrent=True, storage=Storage.EPHEMERAL)
            sink = graph.task(reads_late, edge, name="sink", params=params).keep()
            graph.bubble(source, sink)
            run = session.submit(graph)
            until(
                lambda: (
                    run.done or (any(row.finished for row in run.view().vertices) and (tmp_path / "reading").exists())
                )
            )
            place = psutil.Process(int((tmp_path / "source").read_text())).ppid()
            (victim,) = [process for process in found.processes if process.pid == place]
            victim.kill()
            victim.wait()
            (tmp_path / "gone").touch()
            assert run.result(DEADLINE_S).value(sink) == sum(range(12))
            assert isinstance(session.executor, Watched)
            assert len(session.executor.tiers) > 12


def test_values_that_the_session_holds_outlive_their_node(nodes, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    with weft.Session("cluster") as session:
        graph = Graph("held")
        made = graph.map(partial(leaves_mark, marks=str(marks)), range(4), name="made")
        late = graph.map(partial(waits_for, path=str(tmp_path / "go")), [7], name="late")
        total = graph.add(sum_of_both, gather(made), gather(late)).keep()
        run = session.submit(graph)
        until(lambda: any(row.id == "made" and row.finished == 4 for row in run.view().vertices))
        pid = psutil.Process(int(os.listdir(marks)[0].split("-")[2])).ppid()
        (victim,) = [process for process in nodes.processes if process.pid == pid]
        victim.kill()
        victim.wait()
        until(lambda: any("is lost" in line for line in run.story()))
        (tmp_path / "go").touch()
        assert run.result(DEADLINE_S).value(total) == 0 + 1 + 2 + 3 + 7
    assert len(os.listdir(marks)) == 4


def test_tasks_without_slots_read_streams_of_nodes(nodes):
    with weft.Session("cluster") as session:
        graph = Graph("beside")
        source = graph.task(streamed, name="source", params={"n": 10})
        edge = one_to_one(source, name="blocks", concurrent=True, storage=Storage.EPHEMERAL)
        sink = graph.task(totals, edge, name="sink", resources=weft.Resources(cpu=0)).keep()
        graph.bubble(source, sink)
        assert session.run(graph).value(sink) == sum(range(10))


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
    with weft.Session("cluster") as session, ForkedNodes(1, 1, secret=nodes.secret) as more:
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


def test_nodes_that_drain_at_once_hand_their_outputs_to_the_last_one(nodes, tmp_path):
    """Outputs that were on the way to a node which drains meanwhile go on from there."""
    with weft.Session("cluster") as session, ForkedNodes(1, 1, secret=nodes.secret) as more:
        cluster = session.executor
        assert isinstance(cluster, Cluster)
        cluster.join(more.nodes[0]._replace(name="third"))
        graph = Graph("drains")
        rows = graph.map(counted, range(24), params={"marks": str(tmp_path)}).keep()
        results = session.run(graph)
        for number in (0, 1):
            cluster.drain(number, "its machine is wanted elsewhere")
        until(lambda: all(process.poll() is not None for process in nodes.processes))
        assert more.processes[0].poll() is None
        assert [float(value[0]) for value in results[rows]] == [float(x) for x in range(24)]
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
    until(lambda: have_ended(*below))
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
