"""A session on a Ray cluster with TLS. Ray reads its settings when it is imported, so each step is a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.certificates import Authority

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
DEADLINE_S = 180.0
HEADER = "import os, sys, weft\nfrom tests.integration.ray_clusters import running_cluster\n"
RUN = """
if __name__ == "__main__":
    with running_cluster(2, forks=False) as cluster:
        os.environ["RAY_ADDRESS"] = cluster.address
        with weft.Session("ray") as session:
            graph = weft.Graph("encrypted")
            done = graph.map(lambda x: bytes([x]) * 100_000, range(8)).keep()
            total = graph.add(lambda parts: sum(map(len, parts)), weft.gather(done)).keep()
            print("TOTAL", session.run(graph).value(total), session.executor.surroundings.credentials.tls.cert)
        for name in [name for name in os.environ if name.startswith("RAY_") and "TLS" in name]:
            del os.environ[name]
        import subprocess
        again = [sys.executable, "-c", "import weft; weft.Session('ray')"]
        print(subprocess.run(again, capture_output=True, text=True, timeout=180).stderr)
"""


@pytest.fixture
def environ(tmp_path):
    import ray.util

    authority = Authority(tmp_path)
    files = authority.issue("machine", hosts={"127.0.0.1", ray.util.get_node_ip_address()})
    names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), *sys.path]))
    return os.environ | dict(zip(names, files, strict=True)) | {"RAY_USE_TLS": "1", "PYTHONPATH": path}


def run(code, environ):
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, env=environ)


def test_weft_encrypts_where_ray_does(environ):
    said = run(HEADER + RUN, environ)
    assert f"TOTAL 800000 {environ['RAY_TLS_SERVER_CERT']}" in said.stdout, said.stderr
    assert "uses TLS, and this process does not" in said.stdout


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"RAY_TLS_CA_CERT": ""}, "RAY_USE_TLS is set, and RAY_TLS_CA_CERT is not"),
        ({"RAY_TLS_SERVER_KEY": "gone.key"}, "the private key gone.key cannot be read"),
    ],
)
def test_a_wrong_setting_is_named_before_ray_waits(environ, changes, wanted):
    said = run(
        "from weft.backends.ray_connecting import tls_files\nimport os\ntls_files(os.environ)\n",
        {name: value for name, value in (environ | changes).items() if value},
    )
    assert wanted in said.stderr
