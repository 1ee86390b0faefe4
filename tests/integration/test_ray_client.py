"""Programs outside of the network of a Ray cluster, which reach it by Ray's client alone (`ray://`).

Each is a process of its own: a process that was connected by the client keeps settings of Ray.
"""

import gc
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from contextlib import ExitStack, suppress

import pytest

from tests.integration.places import DEADLINE_S, Project, until
from tests.integration.ray_clusters import LOADED, running_cluster
from tests.integration.test_cluster_training import MEETING, all_workers
from tests.integration.test_training import Place, replica, tfjob
from tests.started import start
from weft.store.state import DRIVER, owned

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
pytest.importorskip("grpc", reason="Ray's client is not installed")
HEAD = {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "150", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""What the documentation advises for a busy head: patience with the processes of clients, and no crashes of those."""
WAITING = "echo begun >> begun; while ! test -e go; do sleep 0.05; done; echo done >> done"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def cluster(port):
    with ExitStack() as undo:
        environ = undo.enter_context(pytest.MonkeyPatch.context())
        for name, value in HEAD.items():
            environ.setenv(name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # Ray forgets to close the logs of the client's server
            found = undo.enter_context(running_cluster(2, environments=True, ray_client_server_port=port))
            gc.collect()
        yield found


@pytest.fixture(scope="module")
def address(cluster, port):
    return f"ray://127.0.0.1:{port}"


@pytest.fixture
def project(tmp_path, address):
    made = Project(tmp_path / "project")
    made.loaded = LOADED
    made.environ |= {"RAY_ADDRESS": address, "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "2"}
    return made


def program(project, text):
    """Write a program into a project, and return the command line for it."""
    (project.folder / "program.py").write_text(text)
    return [sys.executable, "program.py"]


def ended(project, text):
    """Run a program, and return what it has printed to both outputs."""
    found = subprocess.run(
        program(project, text),
        cwd=project.folder,
        env=project.env(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout, found.stderr


def nothing_is_left(cluster):
    """Wait until the cluster has all its cores again, and no actor."""
    ray.init(address=cluster.address, namespace="weft", logging_level="ERROR")
    try:
        until(lambda: ray.available_resources().get("CPU", 0) == 2, "the end of the nodes")
        until(lambda: not ray.util.list_named_actors(), "the end of the drivers")
    finally:
        ray.shutdown()


VALUES = """
import psutil
import numpy as np
import weft


def told(x):
    print("told by a task")
    return x


def large(x):
    return np.full(1_000_000, x)


def total(given, arrays):
    return float(given.sum() + sum(one.sum() for one in arrays))


if __name__ == "__main__":
    graph = weft.Graph("values")
    words = graph.map(told, [7]).keep()
    given = graph.add(np.ones, params={"shape": 3_000_000})
    arrays = graph.map(large, range(4)).keep()
    sums = graph.add(total, given, weft.gather(arrays)).keep()
    with weft.Session("ray") as session:
        run = session.run(graph)
        print(run.value(words), run.value(sums), [float(one.mean()) for one in run[arrays]], flush=True)
        there = {one.raddr.port for one in psutil.Process().net_connections("tcp") if one.raddr}
        print(sorted(there), flush=True)
"""


def test_a_session_has_its_values_and_prints_by_the_client_alone(project, cluster, address):
    out, err = ended(project, VALUES)
    assert out.splitlines() == ["7 9000000.0 [0.0, 1.0, 2.0, 3.0]", f"[{address.rpartition(':')[2]}]"]
    assert "told by a task" in err
    assert "weft-end" not in err
    nothing_is_left(cluster)


def test_a_pipeline_in_the_foreground(project, cluster):
    project.write({"a": {"command": "echo made > {{made}}", "artifacts": {"output": ["made"]}}})
    code, _, err = project.weft("run", "run.yaml", "--backend", "ray")
    assert code == 0, err
    assert project.states() == {"a": "succeeded"}
    nothing_is_left(cluster)


@pytest.mark.soak
def test_a_query_in_the_foreground(project, cluster):
    (project.folder / "rows.csv").write_text("a,b\n" + "".join(f"{n},{n % 3}\n" for n in range(300)))
    query = "SELECT b, count(*) AS n FROM rows GROUP BY b ORDER BY b"
    code, out, err = project.weft("sql", query, "rows.csv", "--mode", "stages", "--backend", "ray", "--csv")
    assert code == 0, err
    assert out.split() == ["b,n", "0,100", "1,100", "2,100"]
    nothing_is_left(cluster)


def test_a_run_in_the_background_is_begun_watched_and_cancelled_from_outside(project, cluster, address):
    del project.environ["RAY_ADDRESS"]
    project.write({"a": {"command": "echo once >> once"}, "b": {"command": WAITING, "deps": "a"}})
    code, out, err = project.weft("run", "run.yaml", "-d", "--backend", "ray", "--cluster", address)
    assert code == 0, err
    assert out.split()[0] == "run-000001"
    until(lambda: (project.folder / "begun").exists(), "the step")
    about = json.loads((project.folder_of() / DRIVER).read_text())
    assert about["client"] == address
    (project.folder_of() / DRIVER).write_text(json.dumps(about | {"machine": "elsewhere", "address": "127.0.0.1:1"}))
    code, out, err = project.weft("ls", "--json")
    assert (code, json.loads(out)["runs"][0]["state"]) == (0, "running"), err
    code, out, err = project.weft("cancel", "run-000001")
    assert code == 0, err
    until(lambda: not owned(project.folder_of()), "the end of the run")
    assert project.states() == {"a": "succeeded", "b": "terminated"}
    nothing_is_left(cluster)


@pytest.mark.soak
def test_an_order_from_inside_of_the_network_needs_no_client(project, cluster, address):
    project.write({"b": {"command": WAITING}})
    code, _, err = project.weft("run", "run.yaml", "-d", "--backend", "ray")
    assert code == 0, err
    until(lambda: (project.folder / "begun").exists(), "the step")
    about = json.loads((project.folder_of() / DRIVER).read_text())
    changed = about | {"machine": "elsewhere", "client": "ray://127.0.0.1:1"}
    (project.folder_of() / DRIVER).write_text(json.dumps(changed))
    code, _, err = project.weft("cancel", "run-000001")
    assert code == 0, err
    until(lambda: not owned(project.folder_of()), "the end of the run")
    nothing_is_left(cluster)


@pytest.fixture
def laptop(tmp_path, address):
    """A project whose files travel by a URL."""
    made = Project(tmp_path / "project")
    made.loaded = LOADED
    made.environ |= {"RAY_ADDRESS": address, "WEFT_STORAGE": f"file://{tmp_path}/shared"}
    return made


@pytest.mark.soak
def test_a_run_in_the_background_whose_files_travel_by_a_url(laptop, cluster, tmp_path):
    outputs = {"output": ["made"]}
    waiting = (
        f"echo said; touch {tmp_path}/begun; until test -e {tmp_path}/go; do sleep 0.05; done; echo 1 > {{{{made}}}}"
    )
    laptop.write({"a": {"command": waiting, "artifacts": outputs}})

    def told(*words):
        code, out, err = laptop.weft(*words)
        assert code == 0, (out, err)
        return out

    assert told("run", "../project/run.yaml", "-d", "--backend", "ray").split()[0] == "run-000001"
    until((tmp_path / "begun").exists, "the step")
    assert "running" in told("ls")
    told("why", "run-000001")
    (tmp_path / "go").touch()
    until(lambda: "succeeded" in told("show", "run-000001"), "the end")
    assert "said" in told("logs", "run-000001/a")
    assert len(told("fetch", "run-000001").split()) == 1
    nothing_is_left(cluster)


WAITS = """
import sys
import time
import weft


def wait(path):
    open(path, "w").close()
    time.sleep(600)


if __name__ == "__main__":
    graph = weft.Graph("waits")
    graph.map(wait, [sys.argv[1]]).keep()
    with weft.Session("ray") as session:
        session.run(graph)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_nothing_is_left_of_a_program_that_is_stopped(project, cluster, number):
    begun = project.folder / "task"
    command = [*program(project, WAITS), str(begun)]
    process = start(command, cwd=project.folder, env=project.env(), stderr=subprocess.PIPE, text=True)
    try:
        until(begun.exists, "the task")
        process.send_signal(number)
        _, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode != 0, err
    nothing_is_left(cluster)


class Road:
    """A port that leads to another one, until it is cut."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.socks = []
        self.threads = []
        self.begin(self.accept)

    def begin(self, target, *arguments):
        self.threads.append(threading.Thread(target=target, args=arguments))
        self.threads[-1].start()

    def accept(self):
        with suppress(OSError):
            while True:
                sock = self.listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self.target))
                self.socks += [sock, far]
                self.begin(self.carry, sock, far)
                self.begin(self.carry, far, sock)

    @staticmethod
    def carry(source, target):
        with suppress(OSError):
            while part := source.recv(1 << 16):
                target.sendall(part)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def cut(self):
        for sock in (self.listener, *self.socks):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(DEADLINE_S)
        for sock in (self.listener, *self.socks):
            sock.close()


@pytest.mark.soak
def test_a_run_ends_when_its_client_has_lost_the_cluster(project, cluster, address):
    road = Road(int(address.rpartition(":")[2]))
    try:
        project.environ["RAY_ADDRESS"] = f"ray://127.0.0.1:{road.port}"
        begun = project.folder / "task"
        command = [*program(project, WAITS), str(begun)]
        process = start(command, cwd=project.folder, env=project.env(), stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: begun.exists() or process.poll() is not None, "the task")
            road.cut()
            _, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    finally:
        road.cut()
    assert process.returncode != 0
    assert re.search("Ray's client has lost the cluster", err), err
    nothing_is_left(cluster)


ACTORS = """
import socket
import weft

socket.gethostname = lambda: "laptop"  # so that its machine is none of the cluster's


class Counter:
    def __init__(self):
        self.value = 0

    def add(self, more):
        self.value += more
        return self.value


def add_each(item, counter):
    return counter.add(item).result(180)


if __name__ == "__main__":
    with weft.Session("ray", backups=False) as session:
        for cores in (0, 1):
            with session.actor(Counter, resources=weft.Resources(cpu=cores)) as counter:
                print(max(session.map(add_each, range(10), params={"counter": counter}).results()))
                print(counter.add(0).result(180))
        graph = weft.Graph("served")
        node, counter = weft.add_actor(graph, Counter)
        sums = graph.map(add_each, range(4), node, params={"counter": counter}).keep()
        print(max(session.run(graph)[sums]))
"""


@pytest.mark.soak
def test_tasks_of_all_machines_call_actors(project, cluster):
    out, _ = ended(project, ACTORS)
    assert out.split() == ["45", "45", "45", "45", "6"]
    nothing_is_left(cluster)


@pytest.mark.soak
def test_a_training_job_in_the_foreground(tmp_path, cluster, address):
    place = Place(tmp_path / "project")
    place.environ |= {"RAY_ADDRESS": address, "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "2"}
    (place.folder / "program.py").write_text(MEETING)
    place.job(all_workers(tfjob(Worker=replica("exec python3 program.py", 2))))
    code, _, err = place.weft("run", "run.yaml", "--backend", "ray")
    assert code == 0, err
    lines = [place.log("worker", index).split() for index in (0, 1)]
    assert lines[0] == lines[1][::-1]
    assert {"Running": "False"} | place.conditions() == {"Created": "True", "Running": "False", "Succeeded": "True"}
    nothing_is_left(cluster)
