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
        with weft.Session("ray", workers=1) as session:
            print("NODES", len(session.executor.provider.nodes()))
"""


IN_THE_BACKGROUND = """
import sys
from pathlib import Path
from tests.integration.places import Project, until
from tests.integration.ray_clusters import running_cluster
from tests.integration.test_ray_drivers import WAITING, in_background
from tests.integration.test_storage import step

if __name__ == "__main__":
    with running_cluster(2) as cluster:
        project = Project(Path(sys.argv[1]))
        project.environ["RAY_ADDRESS"] = cluster.address
        project.write({"first": step("echo once >> once"), "second": step(WAITING, "first"),
                       "third": step("true", "second")})
        in_background(project)
        until(lambda: (project.folder / "begun").exists(), "the second step")
        cluster.head_node.kill_gcs_server()
        print("WITHOUT", project.weft("show", "run-000001")[1].split("state")[1].split()[1])
        cluster.head_node.start_gcs_server()
        (project.folder / "go").touch()
        until(lambda: list(project.states().values()) == ["succeeded"] * 3, "the end")
        until(lambda: not list((project.root.path / "drivers").glob("*.json")), "the end of the driver")
        print("ONCE", (project.folder / "once").read_text(), (project.folder / "begun").read_text())
        project.file.unlink()
        project.write({"wait": step(WAITING.replace("go", "never"))})
        in_background_again = project.weft("run", "run.yaml", "-d", "--backend", "ray")
        assert in_background_again[0] == 0, in_background_again
        assert project.weft("cancel", "run-000002", "--force")[0] == 0
        print("AGAIN")
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
    assert "NODES 1" in said.stdout


@pytest.mark.soak
def test_a_run_in_the_background_goes_on_while_the_head_restarts(redis, tmp_path):
    """The detached actor is the one of before, ends with its run, and later runs get theirs."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), *sys.path]))
    environ = os.environ | {"RAY_REDIS_ADDRESS": redis, "PYTHONPATH": path}
    argv = [sys.executable, "-c", IN_THE_BACKGROUND, str(tmp_path / "project")]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=2 * DEADLINE_S, env=environ)
    assert "WITHOUT running" in said.stdout, said.stderr
    assert "ONCE once\n begun\n" in said.stdout, said.stderr
    assert "AGAIN" in said.stdout, said.stderr
