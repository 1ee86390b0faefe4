"""Projects without write permission: where their runs go, and what can still be read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.places import DEADLINE_S, MAIN, SOURCE

ONE = "name: one\nentry_points:\n  a: {command: echo hello}\n"
SETPRIV = shutil.which("setpriv")
PLAIN = [] if os.getuid() else [SETPRIV or "", "--bounding-set=-dac_override,-dac_read_search"]
"""Root may write everywhere: its processes here do without that capability."""

pytestmark = pytest.mark.skipif(os.getuid() == 0 and SETPRIV is None, reason="root without setpriv")


def _run(place: Path, *argv: str) -> tuple[int, str, str]:
    env = os.environ | {"PYTHONPATH": str(SOURCE), "XDG_STATE_HOME": str(place.parent / "home")}
    command = [*PLAIN, sys.executable, "-P", "-c", *argv]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    return done.returncode, done.stdout, done.stderr


def _weft(place: Path, *words: str) -> tuple[int, str, str]:
    return _run(place, MAIN, *words)


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    (place / "run.yaml").write_text(ONE)
    yield place
    for folder in (place, *place.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o700)


def _close(place: Path) -> None:
    for path in (*place.rglob("*"), place):
        path.chmod(path.stat().st_mode & ~0o222)


def test_runs_outside_of_their_project_are_told_with_both_paths(place, tmp_path):
    _close(place)
    note = f"note: {place} is not writable, so its runs lie in {tmp_path}/home/weft\n"
    code, _, err = _weft(place, "run", "run.yaml")
    assert (code, err.count(note)) == (0, 1)
    code, out, err = _weft(place, "ls")
    assert (code, err) == (0, note)
    assert "run-000001" in out
    code, _, err = _weft(place, "run", "run.yaml", "-d", "-q")
    assert code == 0
    background = tmp_path / "home" / "weft" / "runs" / "run-000002" / "output.log"
    assert note in err + background.read_text()
    assert note in _weft(place, "schedule", "create", "run.yaml", "--cron", "@yearly")[2]
    assert note not in _weft(place, "run", "run.yaml", "--state-dir", str(tmp_path / "other"))[2]


def test_python_programs_are_warned(place, tmp_path):
    _close(place)
    code, _, err = _run(place, "import weft; weft.Session(durable=True).close()")
    assert (code, f"RuntimeWarning: {place} is not writable" in err) == (0, True), err
    code, _, err = _run(place, "import weft; weft.Session().close()")
    assert (code, err) == (0, "")


def test_a_project_keeps_its_runs_in_one_place(place):
    assert _weft(place, "run", "run.yaml")[0] == 0
    _close(place)
    for words in (
        ("run", "run.yaml"),
        ("run", "-d", "run.yaml"),
        ("up",),
        ("schedule", "create", "run.yaml", "--cron", "@daily"),
    ):
        code, _, err = _weft(place, *words)
        assert (code, f"{place}/.weft is not writable, and the runs of this project lie there" in err) == (5, True), err
        assert "--state-dir" in err
    for words in (("delete", "1"), ("prune", "--keep", "0"), ("cache", "gc")):
        code, _, err = _weft(place, *words)
        assert (code, "Permission denied" in err) == (5, True), err


READING = """
ls
show 1
logs 1
story 1
explain 1
why 1/a
watch 1
plan run.yaml
graph run.yaml
cache ls
schedule ls
prune --keep 0 --dry-run
"""


@pytest.mark.parametrize("words", [line.split() for line in READING.strip().splitlines()])
def test_what_is_there_can_be_read(place, words):
    assert _weft(place, "run", "run.yaml")[0] == 0
    _close(place)
    code, out, err = _weft(place, *words)
    assert code == 0, err
    assert "WEFT" not in err
    if words[0] in ("ls", "prune"):
        assert "run-000001" in out + err


def test_the_state_of_another_user_is_not_passed_over(place):
    (place / ".weft").mkdir(mode=0)
    for words in (("ls",), ("run", "run.yaml"), ("doctor",), ("ls", "--state-dir", ".weft")):
        code, _, err = _weft(place, *words)
        assert (code, f"{place}/.weft is closed to this user" in err) == (5, True), err
