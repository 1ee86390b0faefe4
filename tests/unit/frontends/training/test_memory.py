"""The sizes of volumes in memory, and what volumes use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.frontends.training.memory import MemoryVolumes, size_of, used_bytes
from weft.frontends.training.quantities import shown_quantity
from weft.frontends.training.schema import Container, PodTemplate


@pytest.mark.parametrize(
    ("limit", "memory", "size"),
    [
        (0, (), 0),
        (0, (0,), 0),
        (100, (0,), 100),
        (0, (70,), 70),
        (100, (70,), 70),
        (50, (70,), 50),
        (0, (70, 30), 100),
        (0, (70, 0), 0),
    ],
)
def test_a_volume_is_as_large_as_its_limit_and_the_memory_of_its_pod(limit, memory, size):
    containers = tuple(
        Container(name=f"c{number}", limits={"memory": one} if one else {}) for number, one in enumerate(memory)
    )
    assert size_of(limit, PodTemplate(containers=containers)) == size


def test_the_bytes_of_all_files_count_and_links_do_not(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(b"x" * 100_000)
    before = used_bytes(str(tmp_path))
    assert 100_000 <= before < 200_000
    os.symlink("/usr", tmp_path / "link")
    assert used_bytes(str(tmp_path)) < before + 10_000
    assert used_bytes(str(tmp_path / "missing")) == 0


@pytest.mark.parametrize(
    ("value", "text"), [(1 << 20, "1Mi"), (1536 << 20, "1536Mi"), (2 << 30, "2Gi"), (1e9, "1000000000"), (7, "7")]
)
def test_quantities_are_shown_in_whole_units(value, text):
    assert shown_quantity(value) == text


DYING = """
import os, signal
from weft.frontends.training.memory import MemoryVolumes
from weft.frontends.training.schema import PodTemplate
volumes = MemoryVolumes()
print(volumes.take("job-worker-0", PodTemplate(), {"scratch": ""}, None).folders["scratch"], flush=True)
os.kill(volumes._remover.pid, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_folders_of_a_killed_owner_and_a_killed_remover_go_at_the_next_start():
    left = subprocess.run([sys.executable, "-c", DYING], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    assert Path(left).is_dir()
    volumes = MemoryVolumes()
    own = volumes.take("job-worker-0", PodTemplate(), {"scratch": ""}, None).folders["scratch"]
    assert Path(own).is_dir()
    assert not Path(left).exists()
    volumes.close()
    assert not Path(own).exists()
