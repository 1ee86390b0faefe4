"""A session goes on while the head of its Ray cluster restarts, which keeps its state in Redis."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
DEADLINE_S = 180
PROGRAM = """
import os, time, weft
from tests.integration.ray_clusters import running_cluster

def slow(x):
    time.sleep(0.05)
    return bytes([x]) * 100_000

def until(condition):
    end = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)

if __name__ == "__main__":
    with running_cluster(2) as cluster:
        os.environ["RAY_ADDRESS"] = cluster.address
        with weft.Session("ray") as session:
            graph = weft.Graph("restart")
            total = graph.add(lambda rows: sum(map(len, rows)), weft.gather(graph.map(slow, range(200)))).keep()
            run = session.submit(graph)
            ended = lambda: sum(row.finished for row in run.view().vertices)
            until(lambda: ended() >= 20)
            cluster.head_node.kill_gcs_server()
            until(lambda: ended() >= 60)
            print("WITHOUT", run.status)
            cluster.head_node.start_gcs_server()
            print("TOTAL", run.result(180).value(total))
            cluster.add_node(num_cpus=1)
            until(lambda: session.loop.pool.idle == 3)
        with weft.Session("ray") as session:
            print("NODES", len(session.executor.provider.nodes()))
"""


@pytest.fixture
def redis(tmp_path):
    """The address of a Redis that keeps nothing."""
    port = free_port()
    argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        yield f"127.0.0.1:{port}"
        process.kill()


def test_a_session_goes_on_while_the_head_restarts(redis):
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), *sys.path]))
    environ = os.environ | {"RAY_REDIS_ADDRESS": redis, "PYTHONPATH": path}
    argv = [sys.executable, "-c", PROGRAM]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, env=environ)
    assert "WITHOUT running" in said.stdout, said.stderr
    assert "TOTAL 20000000" in said.stdout
    assert "NODES 3" in said.stdout
