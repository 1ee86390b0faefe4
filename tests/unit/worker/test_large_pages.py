"""A file system with large pages: where it lies, who reaches it, when its memory is free again."""

import subprocess
import sys

import pytest

MADE = """
import os
from weft.worker.large_pages import file_system
try:
    root = file_system(1 << 26)
except OSError as error:
    print("none:", error)
    raise SystemExit
own = f"/proc/{os.getpid()}/fd/{root}"
room = os.statvfs(own)
assert room.f_blocks * room.f_frsize == 1 << 26
assert not os.get_inheritable(root)
pid = os.fork()
if not pid:
    with open(f"{own}/small", "wb") as file:
        file.write(bytes(5_000))
    with open(f"{own}/large", "wb") as file:
        file.truncate(5 << 20)
        file.write(bytes(5 << 20))
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
held = {name: os.stat(f"{own}/{name}").st_blocks * 512 for name in os.listdir(own)}
assert held == {"small": 8192, "large": 5 << 20}, held
assert "weft" not in open("/proc/self/mountinfo").read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has them")
def test_another_process_of_the_user_writes_there():
    done = subprocess.run([sys.executable, "-c", MADE], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")
    if done.stdout:
        pytest.skip(done.stdout)


REFUSED = """
import errno
from weft.worker import large_pages

def refuse(libc):
    raise PermissionError(errno.EPERM, "no namespaces")

large_pages.separate_mounts = refuse
try:
    large_pages.file_system(1 << 26)
except OSError as error:
    print(error.errno == errno.EPERM)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has them")
def test_a_system_that_forbids_namespaces_has_none():
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
