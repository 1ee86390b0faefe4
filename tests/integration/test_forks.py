"""Processes that are forked from one with sessions: what they may use of them, and what they must leave alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft

SOURCE = Path(weft.__file__).parents[1]
DEADLINE_S = 180.0

DEFAULT = """
import multiprocessing, os
import weft.tensor as wt

def total(n):
    return float(wt.ones(n).sum())

assert total(3_000_000) == 3_000_000.0
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(total, [2_000_000, 3_000_000]) == [2_000_000.0, 3_000_000.0]
pid = os.fork()
if pid == 0:
    assert total(2_000_000) == 2_000_000.0
    raise SystemExit(3)  # with all that is done at the end of a process
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
assert total(3_000_000) == 3_000_000.0
"""

NAMED = """
import os, sys
import weft
import weft.tensor as wt
from weft.model.errors import ConflictError

graph = weft.Graph("g")
graph.add(abs, items=[-1], name="a").keep()
with wt.Session(backend=sys.argv[1], workers=1) as session, weft.Session(sys.argv[1], workers=1) as engine:
    x = (wt.ones(3_000_000) + 1).execute()
    pid = os.fork()
    if pid == 0:
        for use in (lambda: (x + 1).sum().fetch(), lambda: engine.run(graph)):
            try:
                use()
            except ConflictError as error:
                assert f"process {os.getppid()}, which this one was forked from" in error.message, error
            else:
                os._exit(4)
        session.close()
        engine.close()
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert float((x + 1).sum()) == 9_000_000.0
    assert engine.run(graph).value("a") == 1
"""


def run(text: str, *arguments: str) -> None:
    command = [sys.executable, "-c", text, *arguments]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        check=False,
        timeout=DEADLINE_S,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_forked_process_computes_tensors_in_a_session_of_its_own():
    run(DEFAULT)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_the_sessions_of_its_parent_are_refused_and_left_alone(backend):
    run(NAMED, backend)
