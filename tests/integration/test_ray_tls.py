"""Sessions on a Ray cluster with TLS, inside of its network and by Ray's client.

Ray reads its settings when it is imported, so each program, and the cluster, is a process.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import weft
from tests.fixtures.certificates import Authority
from tests.integration.places import DEADLINE_S, Project, until
from tests.integration.ray_clusters import LOADED
from tests.started import start
from weft.model.errors import ForbiddenError
from weft.store.state import owned

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
pytest.importorskip("grpc", reason="Ray's client is not installed")
NAMES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
PORTS = range(20_000, 30_000)
"""Those of Weft at the machines; the system itself gives programs none of them."""
CLUSTER = """
import sys
from tests.integration.ray_clusters import running_cluster

if __name__ == "__main__":
    with running_cluster(2, environments=True, forks=False, ray_client_server_port=int(sys.argv[1])) as cluster:
        print(cluster.address, flush=True)
        sys.stdin.read()
"""
PROGRAM = """
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
        graph = weft.Graph("encrypted")
        parts = graph.map(lambda x: [bytes([x]) * 100_000] * 8, range(8))
        sizes = graph.add(lambda parts: sum(map(len, parts)), weft.shuffle(parts), n=8).keep()
        print("TOTAL", sum(session.run(graph)[sizes]), session.executor.surroundings.credentials.tls.cert)
        print("PORTS", *[node.about.address[1] for node in session.executor.nodes.values()])
        with session.actor(Counter, resources=weft.Resources(cpu=1)) as counter:
            made = session.map(add_each, range(10), params={"counter": counter}).results()
            print("CALLED", max(made), counter.add(0).result(180))
"""


def files_of(files):
    """Return the variables by which Ray uses these files."""
    return dict(zip(NAMES, files, strict=True)) | {"RAY_USE_TLS": "1"}


class Encrypted(NamedTuple):
    """A cluster with TLS: its addresses, and its CA, which has signed the files of a program outside."""

    own: str
    client: str
    authority: Authority
    laptop: dict[str, str]


@pytest.fixture(scope="module")
def path():
    return os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), *sys.path]))


@pytest.fixture(scope="module")
def cluster(path, tmp_path_factory):
    import ray.util

    authority = Authority(tmp_path_factory.mktemp("authority"))
    machine = authority.issue("machine", hosts={"127.0.0.1", ray.util.get_node_ip_address()})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    # What the documentation advises for a busy head.
    patient = {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "150", "GRPC_ENABLE_FORK_SUPPORT": "0"}
    ports = {"WEFT_PORTS": f"{PORTS[0]}-{PORTS[-1]}"}
    environ = os.environ | files_of(machine) | patient | ports | {"PYTHONPATH": path}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    holder = start([sys.executable, "-c", CLUSTER, port], env=environ, **pipes)
    own = holder.stdout.readline().strip()
    assert own, "the cluster has not started"
    yield Encrypted(own, f"ray://127.0.0.1:{port}", authority, files_of(authority.issue("laptop")))
    holder.stdin.close()
    assert holder.wait(DEADLINE_S) == 0


@pytest.fixture(params=["own", "client"])
def address(request, cluster):
    return getattr(cluster, request.param)


def test_values_and_calls_of_actors_are_encrypted_where_ray_is(cluster, address, path, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environ = os.environ | cluster.laptop | {"PYTHONPATH": path, "RAY_ADDRESS": address}
    argv = [sys.executable, str(program)]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, env=environ, check=False)
    assert f"TOTAL 6400000 {cluster.laptop['RAY_TLS_SERVER_CERT']}" in said.stdout, said.stderr
    assert "CALLED 45 45" in said.stdout, said.stderr
    (ports,) = re.findall(r"^PORTS (\d+) (\d+)$", said.stdout, re.MULTILINE)
    assert {int(port) in PORTS for port in ports} == {True}


@pytest.mark.soak
def test_a_run_in_the_background_from_outside(cluster, tmp_path):
    project = Project(tmp_path / "project")
    project.loaded = LOADED
    project.environ |= cluster.laptop | {"RAY_ADDRESS": cluster.client}
    made = {"command": "echo made > {{made}}", "artifacts": {"output": ["made"]}}
    read = {"command": "cat {{made}} > read", "deps": "a", "artifacts": {"input": {"made": "{{a.made}}"}}}
    project.write({"a": made, "b": read})
    code, out, err = project.weft("run", "run.yaml", "-d", "--backend", "ray")
    assert code == 0, err
    assert out.split()[0] == "run-000001"
    until(lambda: not owned(project.folder_of()), "the end of the run")
    assert project.states() == {"a": "succeeded", "b": "succeeded"}
    assert (project.folder / "read").read_text() == "made\n"


@pytest.mark.parametrize("wrong", ["plain", "stranger", "expired", "theirs"])
def test_who_is_refused_is_told_the_next_step_before_ray_waits(cluster, address, wrong, tmp_path, monkeypatch):
    stranger = Authority(tmp_path, "stranger")
    files, said, step = {
        "plain": (None, "uses TLS, and this process does not", "RAY_USE_TLS=1"),
        "stranger": (stranger.issue("guest")._replace(ca=str(cluster.authority.cert)), "refuses", "openssl x509"),
        "expired": (cluster.authority.issue("old", expired=True), r"refuses the certificate \S*old.crt", "-dates"),
        "theirs": (cluster.authority.issue("own")._replace(ca=str(stranger.cert)), "cannot be verified by", "one CA"),
    }[wrong]
    for name in ("RAY_USE_TLS", *NAMES):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({} if files is None else files_of(files)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ForbiddenError, match=said) as caught:
        weft.Session("ray")
    assert step in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"RAY_TLS_CA_CERT": ""}, "RAY_USE_TLS is set, and RAY_TLS_CA_CERT is not"),
        ({"RAY_TLS_SERVER_KEY": "gone.key"}, "the private key gone.key cannot be read"),
    ],
)
def test_a_wrong_setting_is_named_before_ray_waits(tmp_path, monkeypatch, changes, wanted):
    for name, value in (files_of(Authority(tmp_path).issue("machine")) | changes).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(weft.UsageError, match=wanted):
        weft.Session("ray")
