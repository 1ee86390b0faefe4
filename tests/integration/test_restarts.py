"""Restart rules with true exit codes, on every backend of this machine."""

from pathlib import Path

import pytest

import weft
from weft.graph.logical import Backoff, RestartPolicy, Retry
from weft.operators.call import run_command


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize(("code", "tries"), [(3, 1), (143, 3)])
def test_exit_codes_above_127_start_a_command_again(backend, code, tries, tmp_path):
    g = weft.Graph("roles", backoff=Backoff(limit=2, delay_s=0.01))
    command = f"echo try >> {tmp_path}/tries; exit {code}"
    params = {"command": command, "cwd": str(tmp_path), "log": str(tmp_path / "log"), "env": {}}
    g.task(run_command, name="worker", params=params, restart=RestartPolicy.EXIT_CODE, retry=Retry(user=9))
    with weft.Session(workers=1, backend=backend) as session:
        error = wait(session.submit(g))
    assert isinstance(error, weft.TaskError)
    assert len(Path(tmp_path / "tries").read_text().split()) == tries
    assert ("used up" in error.message) == (code == 143)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_exit_codes_of_python_count_too(backend):
    g = weft.Graph("roles", backoff=Backoff(limit=1, delay_s=0.0))
    g.add(leave, name="worker", restart=RestartPolicy.EXIT_CODE)
    with weft.Session(workers=1, backend=backend) as session:
        error = wait(session.submit(g))
    assert "used up" in str(error)


def leave() -> None:
    raise SystemExit(130)


def wait(run: weft.Run) -> Exception | None:
    run.wait(180)
    return run.error()
