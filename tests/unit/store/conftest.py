"""Disks that are full: pretended, and real where a tmpfs may be mounted."""

import errno
import os
import shutil
import subprocess

import pytest


def _full_after(nbytes, code=errno.ENOSPC):
    """A disk with room for `nbytes` more; it writes short before it fails, as disks do."""
    left = [nbytes]

    def writev(fd, pieces):
        if left[0] <= 0:
            raise OSError(code, os.strerror(code))
        data = b"".join(pieces)[: min(left[0], 100_000)]
        left[0] -= len(data)
        return os.write(fd, data)

    return writev


@pytest.fixture
def full_after():
    """Make a stand-in for `os.writev` with room for so many bytes."""
    return _full_after


@pytest.fixture
def tiny_tmpfs(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.getuid() or not mount:
        pytest.skip("only root may mount a tmpfs")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)
