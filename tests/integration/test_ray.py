"""Sessions on a Ray cluster of several nodes on this machine."""

import importlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import numpy as np
import psutil
import pytest

import weft
import weft.remote
import weft.tensor as wt
from tests.integration.node_tasks import (
    DEADLINE_S,
    Total,
    adds,
    after,
    counted,
    double,
    fibonacci,
    marked_row,
    meets,
    parent,
    row,
    slow_row,
    summed,
    until,
)
from tests.integration.ray_clusters import running_cluster
from tests.started import have_ended, start
from weft import Graph, Storage, gather, shuffle
from weft.engine.provider import NodeKind
from weft.model.errors import CapacityError, ForbiddenError, UsageError
from weft.model.resources import Resources

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
PREEMPTION = 2
"""The reason of Ray's DrainNodeReason that cannot be rejected."""


@pytest.fixture(scope="module")
def cluster():
    before = os.environ.get("RAY_ADDRESS")
    with running_cluster(2) as found:
        os.environ["RAY_ADDRESS"] = found.address
        yield found
        ray.shutdown()
    os.environ.pop("RAY_ADDRESS")
    if before is not None:
        os.environ["RAY_ADDRESS"] = before


def test_graphs_run_at_all_machines(cluster, tmp_path):
    with weft.Session("ray") as session:
        assert [len(node.workers) for node in session.executor.provider.nodes()] == [1, 1]
        graph = Graph("all")
        doubles = graph.map(double, range(1000)).keep()
        places = graph.map(meets, range(2), params={"marks": str(tmp_path), "count": 2}).keep()
        sums = graph.add(summed, shuffle(graph.map(row, range(12), params={"parts": 4})), n=4).keep()
        results = session.run(graph)
        assert results[doubles] == [2 * x for x in range(1000)]
        assert len(set(results[places])) == 2
        assert results[sums] == [sum(20_000.0 * (100 * x + part) for x in range(12)) for part in range(4)]
    assert not ray.is_initialized()


def test_tasks_of_all_machines_call_an_actor(cluster, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "program")  # so that its machine is none of the cluster's
    with weft.Session("ray", backups=False) as session:
        for resources in (weft.Resources(cpu=0), weft.Resources(cpu=1)):
            with session.actor(Total, resources=resources) as total:
                assert max(session.map(adds, range(10), params={"total": total}).results()) == 45
                assert total.add(0).result(DEADLINE_S) == 45


def test_tensors(cluster):
    with wt.Session(backend="ray"):
        x = wt.asarray(np.arange(2**20, dtype=float), chunk_size=2**17)
        y = (x * 2 + 1).execute()
        assert float(y.mean()) == 2**20
        assert float((y[y > 5]).min()) == 7


def test_a_new_session_of_tensors_takes_the_address_of_a_cluster(cluster):
    with wt.new_session(cluster.address, default=False) as session:
        assert len(session.engine.executor.provider.nodes()) == 2
        assert float(wt.ones(10).sum().fetch(session)) == 10


def test_queries(cluster, tmp_path, monkeypatch):
    from pyarrow import parquet, table

    monkeypatch.chdir(tmp_path)
    for part in range(3):
        parquet.write_table(table({"k": [0, 1] * 500, "v": range(1000)}), f"part{part}.parquet")
    with weft.SqlContext(backend="ray", mode="stages") as context:
        rows = context.sql("SELECT k, sum(v), count(*) FROM 'part*.parquet' GROUP BY k ORDER BY k").rows()
    assert rows == [(0, 3 * sum(range(0, 1000, 2)), 1500), (1, 3 * sum(range(1, 1000, 2)), 1500)]


def test_functions_that_spawn_functions(cluster):
    with wt.Session(backend="ray"):
        assert weft.remote.spawn(fibonacci, (8,)).fetch() == 21


def test_the_number_of_workers_can_be_bounded(cluster):
    with weft.Session("ray", workers=1) as session:
        assert sum(len(node.workers) for node in session.executor.provider.nodes()) == 1


def test_the_program_of_the_example_for_kubernetes(cluster):
    program = Path(__file__).parents[2] / "examples" / "kuberay" / "squares.py"
    said = subprocess.run(
        [sys.executable, program, "1000"], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    assert said.stdout.split()[-1] == str(sum(x * x for x in range(1000)))


def test_a_machine_that_leaves_and_one_that_joins(cluster):
    third = cluster.add_node(num_cpus=1)
    with weft.Session("ray") as session:
        assert len(session.executor.provider.nodes()) == 3
        graph = Graph("leaves")
        sums = graph.add(summed, shuffle(graph.map(slow_row, range(60), params={"parts": 4})), n=4)
        total = graph.add(sum, gather(sums)).keep()
        run = session.submit(graph)
        until(lambda: sum(row.finished for row in run.view().vertices) >= 20 or run.done)
        cluster.remove_node(third, allow_graceful=False)
        wanted = sum(20_000.0 * (100 * x + part) for x in range(60) for part in range(4))
        assert run.result(DEADLINE_S).value(total) == wanted
        fourth = cluster.add_node(num_cpus=1)
        until(lambda: session.loop.pool.idle == 3)
        cluster.remove_node(fourth)


@pytest.mark.soak
def test_a_connection_that_takes_a_while_is_said(cluster, monkeypatch, capfd):
    monkeypatch.setattr(importlib.import_module("weft.backends.ray_connecting"), "_MOMENT_S", 0.0)
    with weft.Session("ray"):
        pass
    assert f"weft: connecting to the Ray cluster at {cluster.address}\n" in capfd.readouterr().err


def test_custom_resources_of_machines_are_those_of_nodes(cluster):
    """A session takes them with the cores, and its tasks run where they are."""
    third = cluster.add_node(num_cpus=1, resources={"licence": 1})
    with weft.Session("ray") as session:
        found = [node.resources.custom for node in session.executor.provider.nodes()]
        assert sorted(found) == [(), (), (("licence", 1.0),)]
        graph = Graph("licences")
        places = graph.map(parent, range(3), resources=Resources(custom=(("licence", 1.0),))).keep()
        assert len(set(session.run(graph)[places])) == 1
        more = Graph("more")
        more.map(parent, range(3), resources=Resources(custom=(("licence", 2.0),)))
        with pytest.raises(CapacityError, match=r"licence 2.*more than any worker has"):
            session.run(more)
        assert ray.available_resources().get("licence", 0) == 0  # its placement group has it
    cluster.remove_node(third)


def test_outputs_of_durable_edges_outlive_their_machine(cluster, tmp_path):
    marks, objects = tmp_path / "marks", tmp_path / "objects"
    marks.mkdir()
    third = cluster.add_node(num_cpus=1)
    graph = Graph("outlives")
    rows = graph.map(marked_row, range(6), params={"marks": str(marks)})
    sums = graph.add(after, shuffle(rows, storage=Storage.DURABLE), n=4, params={"marks": str(marks)})
    total = graph.add(sum, gather(sums)).keep()
    with weft.Session("ray", spill=f"file://{objects}") as session:
        assert len(session.executor.provider.nodes()) == 3
        run = session.submit(graph)
        until(lambda: run.view().vertices[0].finished == 6 or run.done)
        cluster.remove_node(third, allow_graceful=False)
        until(lambda: not all(ray_node["Alive"] for ray_node in ray.nodes()))
        (marks / "lost").touch()
        assert run.result(DEADLINE_S).value(total) == sum(
            20_000.0 * (100 * x + part) for x in range(6) for part in range(4)
        )
        assert len(list(marks.glob("*-*"))) == 6, "no task has run again"
        assert list(objects.glob("*/node-*/*.chunks"))
    assert not list(objects.glob("*"))


def test_a_machine_that_cannot_be_used_is_said_and_keeps_its_cores(cluster, monkeypatch, capfd):
    from weft.backends.ray import RayCluster

    def refused(self, about):
        raise ForbiddenError("its certificate has expired")

    monkeypatch.setattr(RayCluster, "join", refused)
    with weft.Session("ray"):
        third = cluster.add_node(num_cpus=1)
        said = []

        def is_told():
            said.append(capfd.readouterr().err)
            return "is not used: its certificate has expired" in "".join(said)

        until(is_told)
        until(lambda: ray.available_resources().get("CPU", 0) == 1)
        cluster.remove_node(third)


def test_a_machine_that_ray_drains_is_left_with_its_values(cluster, tmp_path):
    third = cluster.add_node(num_cpus=1)
    with weft.Session("ray") as session:
        graph = Graph("drains")
        rows = graph.map(counted, range(30), params={"marks": str(tmp_path)}).keep()
        run = session.submit(graph)
        results = run.result(DEADLINE_S)
        client = ray._private.worker.global_worker.gcs_client
        accepted, why = client.drain_node(
            third.node_id, PREEMPTION, "wanted elsewhere", int(1000 * time.time()) + 60_000
        )
        assert accepted, why
        until(lambda: len(session.executor.provider.nodes()) == 2)
        until(lambda: session.loop.pool.idle == 2)
        cluster.remove_node(third, allow_graceful=False)
        assert [float(value[0]) for value in results[rows]] == [float(x) for x in range(30)]
        again = [path.name for path in tmp_path.iterdir() if path.read_text() != "made\n"]
        assert not again, "\n".join(run.story(""))


class Told:
    """The autoscaler of a cluster that could have two more machines with a GPU, and never gets them."""

    def __init__(self):
        self.asked = []

    def kinds(self):
        return [NodeKind(2, Resources(2, gpu=1), limit=2)]


def test_the_kinds_of_machines_of_an_autoscaler(monkeypatch):
    from weft.backends.ray import kinds

    protocol = importlib.import_module("ray.core.generated.autoscaler_pb2")
    NodeGroupConfig, ClusterConfig = protocol.NodeGroupConfig, protocol.ClusterConfig  # noqa: N806 - Ray's names
    groups = [
        NodeGroupConfig(resources={"CPU": 8, "GPU": 2, "accelerator_type:H100": 1}, max_count=3, name="gpus"),
        NodeGroupConfig(resources={"CPU": 4}, max_count=-1, name="any number"),
        NodeGroupConfig(resources={"CPU": 4}, max_count=0, name="the head"),
        NodeGroupConfig(resources={"TPU": 4}, max_count=9, name="without a core"),
    ]
    config = ClusterConfig(node_group_configs=groups)
    monkeypatch.setattr(ray._private.state.state, "get_cluster_config", lambda: config)
    assert kinds() == [NodeKind(8, Resources(8, 0, 2, "H100"), limit=3), NodeKind(4, Resources(4))]
    monkeypatch.setattr(ray._private.state.state, "get_cluster_config", lambda: None)
    assert kinds() == []


def test_an_autoscaler_is_asked_for_the_first_machine(cluster, monkeypatch, capfd):
    from weft.backends import ray as backend

    told, listed = Told(), backend.listed
    monkeypatch.setattr(backend, "kinds", told.kinds)
    monkeypatch.setattr(backend, "request", told.asked.append)
    monkeypatch.setattr(backend, "listed", lambda: listed() if told.asked else [])
    with weft.Session("ray", workers=2) as session:
        assert session.loop.pool.idle == 2
    assert told.asked == [[{"CPU": 1.0}] * 2, []]
    assert "its autoscaler is asked for one" in capfd.readouterr().err


def test_an_autoscaler_is_asked_for_what_waits(cluster, monkeypatch):
    told = Told()
    monkeypatch.setattr("weft.backends.ray.kinds", told.kinds)
    monkeypatch.setattr("weft.backends.ray.request", told.asked.append)
    with weft.Session("ray") as session:
        graph = Graph("waits")
        graph.map(double, range(2), resources=Resources(gpu=1))
        run = session.submit(graph)
        until(lambda: told.asked)
        assert sorted(bundle.get("GPU", 0) for bundle in told.asked[0]) == [0, 0, 1, 1]
        run.cancel()
        until(lambda: told.asked[-1] == [])


def test_a_session_that_ends_leaves_its_cores_and_no_actor(cluster):
    ray.init(address=cluster.address, logging_level="ERROR")
    try:
        with weft.Session("ray") as session:
            graph = Graph("some")
            graph.map(double, range(10))
            session.run(graph)
            assert ray.available_resources().get("CPU", 0) == 0
        assert ray.is_initialized()  # who connected before stays connected
        until(lambda: ray.available_resources().get("CPU", 0) == 2)
    finally:
        ray.shutdown()


def test_a_look_at_the_cluster_ends_before_its_session_leaves(cluster, monkeypatch):
    """Ray connects a process again that asks it something after the end."""
    backend = importlib.import_module("weft.backends.ray")
    looks, left, ends = threading.Event(), threading.Event(), []

    def slow():
        looks.set()
        assert left.wait(DEADLINE_S)
        return set()

    def ended():
        ends.append(thread.is_alive())
        left.set()
        disconnect()

    def joined(seconds):
        left.set()
        join(seconds)

    monkeypatch.setattr(backend, "draining", slow)
    with weft.Session("ray"):
        assert looks.wait(DEADLINE_S)
        thread = next(thread for thread in threading.enumerate() if thread.name == "weft-ray")
        join, disconnect = thread.join, backend.disconnect
        monkeypatch.setattr(thread, "join", joined)
        monkeypatch.setattr(backend, "disconnect", ended)
    assert ends == [False]


def test_sessions_that_want_more_than_is_free_wait_and_hold_nothing_meanwhile(cluster):
    code = "import weft\nwith weft.Session('ray', workers=2) as session: print(len(session.executor.numbers()))"
    argv = [sys.executable, "-c", code]
    session = weft.Session("ray", workers=1)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        with session:
            assert "waits for 2 cores (1 free) at 2 machines" in waiting.stderr.readline()
            with weft.Session("ray", workers=1) as beside:
                assert beside.loop.pool.idle == 1
            assert waiting.poll() is None
        assert waiting.communicate(timeout=DEADLINE_S)[0] == "2\n"


def test_without_a_cluster_the_next_step_is_named(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UsageError, match=r"127[.]0[.]0[.]1:1"):
        weft.Session("ray")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_another_program_at_the_address_is_said(monkeypatch, answer):
    monkeypatch.setattr("weft.backends.ray_connecting.CONNECT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with suppress(OSError):  # closed
                while True:
                    with server.accept()[0] as sock:
                        sock.recv(64)
                        sock.sendall(answer)
                        sock.recv(64)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(UsageError, match="no Ray cluster answers"):
            weft.Session("ray")


@pytest.mark.soak
def test_sessions_of_two_threads_share_a_connection(cluster):
    def open_and_run(_):
        with weft.Session("ray", workers=1) as session:
            graph = Graph("own")
            doubles = graph.map(double, range(5)).keep()
            return session.run(graph)[doubles]

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(open_and_run, range(4))) == [[0, 2, 4, 6, 8]] * 4
    assert not ray.is_initialized()


def test_memory_bounds_the_values_at_the_nodes_of_a_machine(cluster):
    with weft.Session("ray", memory="64MiB") as session:
        assert [node.resources.memory for node in session.executor.provider.nodes()] == [32 << 20] * 2


@pytest.mark.parametrize(
    ("folder", "hint"), [("x" * 100, "a shorter path"), ("file/x", "that exists and that you may write to")]
)
def test_a_cluster_to_try_with_that_cannot_start_says_why(tmp_path, monkeypatch, folder, hint):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / folder))
    if "/" not in folder:
        (tmp_path / folder).mkdir()
    argv = [sys.executable, "-m", "weft", "cluster", "start"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert said.returncode == CapacityError.exit_code
    assert "the Ray cluster cannot be started" in said.stderr
    assert hint in said.stderr


def test_a_cluster_to_try_with_ends_with_its_head(tmp_path, request):
    short = tempfile.TemporaryDirectory()  # sockets have short paths
    request.addfinalizer(short.cleanup)
    environ = os.environ | {"RAY_TMPDIR": short.name}
    argv = [sys.executable, "-m", "weft", "cluster", "start", "--nodes", "1"]
    process = start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environ)
    list(takewhile(lambda line: "open a session" not in line, iter(process.stdout.readline, "")))
    below = psutil.Process(process.pid).children(recursive=True)
    named = {one.name(): one for one in below}
    named["gcs_server"].kill()
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == CapacityError.exit_code
    assert "the Ray cluster has ended: its process gcs_server has, with exit status -9" in err
    until(lambda: have_ended(named["raylet"]))  # Ray's agents look for the head for a minute longer


@pytest.mark.parametrize(
    "token", [pytest.param("", marks=pytest.mark.soak, id="open"), pytest.param("ab" * 32, id="token")]
)
def test_a_cluster_to_try_with(tmp_path, request, token):
    """It asks for the token of Ray if its user has one, and says so. Nothing of it stays."""
    short = tempfile.TemporaryDirectory()  # sockets have short paths
    request.addfinalizer(short.cleanup)
    home = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    home |= {"HOME": str(tmp_path), "RAY_TMPDIR": short.name}
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text(token)
    argv = [sys.executable, "-m", "weft", "cluster", "start", "--nodes", "2"]
    process = start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=home)
    lines = iter(process.stdout.readline, "")
    told = list(takewhile(lambda line: "open a session" not in line, lines))
    exports = dict(line.strip().removeprefix("export ").split("=") for line in told if "export " in line)
    assert exports.get("RAY_AUTH_MODE", "") == ("token" if token else "")
    below = psutil.Process(process.pid).children(recursive=True)
    folders = Path(short.name, "ray")
    assert len(list(folders.glob("session_2*/runtime_resources*/"))) == 2, "each node has its own"
    code = "import weft\nwith weft.Session('ray') as session: print(len(session.executor.provider.nodes()))"
    environ = home | exports
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S, env=environ
    )
    assert said.stdout.split()[-1] == "2"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err.strip()) == (0, "the cluster has ended")
    assert [path.name for path in folders.iterdir() if path.name.startswith("session_")] == []
    until(lambda: have_ended(*below))
