"""Low limits of the system: an error names the limit and what to do, and nothing hangs or shows a traceback."""

import json
import os
import subprocess
import sys

import pytest

from tests.integration.places import DEADLINE_S, MAIN, SOURCE

STEPS = {"b": {"command": "sleep 0.1", "loop_argument": list(range(40))}}
SET = """
import resource, sys
most = int(sys.argv[2])
resource.setrlimit(getattr(resource, sys.argv[1]), (most, most))
del sys.argv[1:3]
"""
SESSION = """
import weft
from weft.model.errors import CapacityError
try:
    weft.Session(backend="processes", workers=2)
except CapacityError as error:
    print(error.hint)
"""

NO_THREADS = """
import resource, sys, threading
import weft
from weft.model.errors import CapacityError

def double(x):
    return 2 * x

if __name__ == "__main__":
    free = weft.Resources(cpu=0)
    with weft.Session(sys.argv[1], workers=2) as session:
        if sys.argv[2] == "task":
            kept = session.put([1], 1)  # starts the other threads of the session
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
        threading.stack_size(512 << 20)  # more than what is left
        g = weft.Graph("beside")
        g.add(double, items=[1, 2, 3], resources=free)
        try:
            session.run(g, timeout_s=180)
        except CapacityError as error:
            print(error)
        threading.stack_size(0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        g = weft.Graph("again")
        made = g.add(double, items=[1, 2, 3], resources=free)
        print(session.run(g, timeout_s=180)[made])
"""


def _under(place, limit: str, most: int, code: str, *words: str) -> tuple[int, str, str]:
    env = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}  # Python leaves short files
    argv = [sys.executable, "-P", "-c", SET + code, limit, str(most), *words]
    done = subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("limit", "most", "advice"),
    [
        ("RLIMIT_NOFILE", 10, "may have 10 open files: raise the limit with `ulimit -n"),
        ("RLIMIT_NOFILE", 14, "may have 14 open files: raise the limit with `ulimit -n"),
        ("RLIMIT_NOFILE", 22, "may have 22 open files: raise the limit with `ulimit -n"),
        ("RLIMIT_FSIZE", 8192, "may have 8,192 bytes: raise the limit with `ulimit -f"),
    ],
)
def test_runs_name_the_limit(tmp_path, limit, most, advice):
    (tmp_path / "run.yaml").write_text(json.dumps({"name": "wide", "parallelism": 60, "entry_points": STEPS}))
    code, _, err = _under(tmp_path, limit, most, MAIN, "run", "run.yaml", "-q")
    assert code != 0
    assert advice in err
    assert "Traceback" not in err
    assert "WEFT900" not in err
    if limit == "RLIMIT_NOFILE" and (tmp_path / ".weft").exists():
        code, out, _ = _under(tmp_path, limit, 256, MAIN, "ls", "--json")
        assert all(run["state"] in ("failed", "interrupted") for run in json.loads(out)["runs"])


@pytest.mark.parametrize(("limit", "most"), [("RLIMIT_NOFILE", 12), ("RLIMIT_FSIZE", 8192)])
def test_sessions_raise_an_error_that_names_the_limit(tmp_path, limit, most):
    code, out, err = _under(tmp_path, limit, most, SESSION)
    assert (code, "raise the limit with `ulimit" in out) == (0, True), err
    assert f"{most:,}" in out


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("lacking", ["task", "session"])
def test_a_run_that_lacks_a_thread_ends_with_an_error_and_its_session_goes_on(tmp_path, backend, lacking):
    (tmp_path / "free.py").write_text(NO_THREADS)
    env = os.environ | {"PYTHONPATH": str(SOURCE)}
    argv = [sys.executable, "-P", "free.py", backend, lacking]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert "raise the limit with `ulimit -v unlimited`" in done.stdout
    assert done.stdout.endswith("[2, 4, 6]\n")
    assert "Traceback" not in done.stderr
