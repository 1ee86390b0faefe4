"""Folders for temporary files: who has one, and what is left by a process that is killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.started import start
from weft.store.scratch import ScratchFolder

OWNER = """
import sys
from pathlib import Path
from weft.store.scratch import ScratchFolder
folder = ScratchFolder("trial")
Path(folder.name, "file").touch()
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def owner(place):
    """Start a process with a folder, and return both."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(place)}
    pipe = subprocess.PIPE
    process = start([sys.executable, "-c", OWNER], env=env, stdin=pipe, stdout=pipe, text=True)
    return process, Path(process.stdout.readline().strip())


def test_a_folder_goes_with_its_end():
    folder = ScratchFolder("trial")
    Path(folder.name, "file").touch()
    folder.cleanup()
    assert not Path(folder.name).exists()
    folder.cleanup()
    with ScratchFolder("trial") as name:
        assert Path(name).is_dir()
    assert not Path(name).exists()


def test_a_process_that_ends_leaves_no_folder(tmp_path):
    process, folder = owner(tmp_path)
    assert (folder / "file").exists()
    process.communicate("")
    assert process.returncode == 0
    assert not folder.exists()


def test_the_folder_of_a_killed_process_goes_when_the_next_begins(tmp_path):
    (dead, left), (_, alive) = owner(tmp_path), owner(tmp_path)
    dead.kill()
    dead.wait()
    assert (left / "file").exists()
    ScratchFolder("trial").cleanup()
    assert not left.exists()
    assert (alive / "file").exists()


def test_a_fork_removes_nothing():
    folder = ScratchFolder("trial")
    if (child := os.fork()) == 0:
        folder.cleanup()
        os._exit(0)
    os.waitpid(child, 0)
    assert Path(folder.name).is_dir()
    folder.cleanup()
