"""A session that is killed leaves no shared memory, though no further session comes."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.places import until
from weft.store.folders import shm_root, user_root

ROOT = Path(__file__).parents[2]
DEADLINE_S = 180.0

PROGRAM = """
import sys
import numpy
import weft

if __name__ == "__main__":
    session = weft.Session(backend="processes", workers=2)
    graph = weft.Graph("arrays")
    made = graph.map(numpy.zeros, [1_000_000] * 4)
    results = session.run(graph)
    held = results[made]
    assert session.store.stats().shm >= 32_000_000
    print("ready", flush=True)
    sys.stdin.read()
"""


def _size(folder):
    """Return the bytes of the files in a folder and at the ends of its links; one that was renamed meanwhile counts
    under its new name or not.
    """
    total = 0
    for place, _, names in os.walk(folder, followlinks=True):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(f"{place}/{name}").st_size
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the death of another process at once")
def test_shared_memory_goes_with_a_killed_session(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, str(program)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            (shared,) = user_root(shm_root()).glob(f"*-{process.pid}-*")
            until(lambda: _size(shared) >= 32_000_000, "the values in shared memory")
        finally:
            process.kill()
    deadline = time.monotonic() + DEADLINE_S
    while left := list(shared.parent.glob(f"*{shared.name}*")):  # it is renamed before it is removed
        assert time.monotonic() < deadline, f"{left} are still there"
        time.sleep(0.02)
