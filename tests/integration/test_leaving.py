"""A second Ctrl-C leaves a session at once, whatever its tasks do, and no process stays."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import weft
from tests.integration.places import until
from tests.started import have_ended

ROOT = Path(__file__).parents[2]
DEADLINE_S = 180.0
GRACE_S = 3_600

PROGRAM = """
import os, sys, time
from pathlib import Path
import weft

def stubborn(folder):
    Path(folder, "task").write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)

if __name__ == "__main__":
    backend, folder = sys.argv[1:]
    graph = weft.Graph("stubborn")
    graph.add(stubborn, params={"folder": folder})
    try:
        with weft.Session(backend, workers=2, grace_s=GRACE_S) as session:
            own = weft.Run.cancel

            def cancel(self, reason="cancelled"):
                own(self, reason)
                Path(folder, "asked").touch()

            weft.Run.cancel = cancel
            session.run(graph)
    finally:
        Path(folder, "left").touch()
"""


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_second_ctrl_c_does_not_wait_for_the_grace_of_tasks(tmp_path, backend):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("GRACE_S", str(GRACE_S)))
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(program), backend, str(tmp_path)]
    with subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            _until((tmp_path / "task").exists)
            family = psutil.Process(process.pid).children(recursive=True)
            assert bool(family) == (backend == "processes")
            process.send_signal(signal.SIGINT)
            _until((tmp_path / "asked").exists)
            assert process.poll() is None, "the first one waits"
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in said
    assert (tmp_path / "left").exists(), "the session was left in order"
    assert process.returncode == -signal.SIGINT
    assert have_ended(*family)


def _until(condition) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("backend", ["threads", "processes", "simulator"])
def test_a_dropped_session_ends_its_workers_with_a_warning(backend):
    ended = []
    before = set(threading.enumerate())
    session = weft.Session(backend, workers=2, name="mine")
    session.on_close(lambda: ended.append(True))
    graph = weft.Graph("squares")
    graph.map(abs, [1, -2], name="square", keep=True)
    session.run(graph, progress=False)
    pids = list(getattr(session.executor, "pids", {}).values())
    assert bool(pids) == (backend == "processes")
    del session
    with pytest.warns(
        ResourceWarning, match=r"the Session 'mine' was dropped while it was open.*`with` block.*close\(\)"
    ):
        until(lambda: gc.collect() >= 0 and ended, "the end of the session")  # its ended run is dropped by a thread
    until(lambda: not any(map(psutil.pid_exists, pids)), "the end of its workers")
    until(lambda: not set(threading.enumerate()) - before, "the end of its threads")


def test_a_closed_session_is_dropped_without_a_word():
    session = weft.Session(workers=1)
    session.close()
    del session
    gc.collect()
