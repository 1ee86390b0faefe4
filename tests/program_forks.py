"""Programs of an environment that need not load its packages: one process of it has loaded them and forks for each.

`python -I program_forks.py SOCKET MODULE...` loads the modules and forks at a socket until its input ends. This file
needs no packages, since it runs in the environment of a provider.
"""

import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST = 1 << 18
_CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({address!r})
    socket.send_fds(server, [json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()], [0, 1, 2])
    code = int(server.recv(99) or b"1")
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def forking_environment(home: Path, folder: Path, modules: tuple[str, ...]) -> Iterator[Path]:
    """Yield an environment below a folder, with the packages of `home`; `bin/python -I PROGRAM` is a fork there.

    It runs what has no thread beyond those of modules that are loaded here.
    """
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").symlink_to((home / "lib").absolute())
    address = folder / "forks"
    python = folder / "bin" / "python"
    python.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
    python.chmod(0o755)
    server = subprocess.Popen(
        [home / "bin" / "python", "-I", __file__, address, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"ready\n"
        yield folder
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait()


def _serve(listener: socket.socket) -> None:
    """Fork for each connection until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    while 0 not in select.select([0, listener.fileno()], [], [])[0]:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(client)
        client.close()


def _answer(client: socket.socket) -> None:
    """Run the program that a client asks for in another fork, and answer its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, fds, _, _ = socket.recv_fds(client, _LONGEST, 3)
    pid = os.fork()
    if pid == 0:
        client.close()
        _run(*json.loads(request), fds=fds)
    for fd in (0, *fds):  # the program alone has these files
        os.close(fd)
    client.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    os._exit(0)


def _run(words: list[str], cwd: str, env: dict[str, str], *, fds: list[int]) -> None:
    """Be `python -I WORDS`, to the end of this process; what it raises ends it as there."""
    for standard, fd in enumerate(fds):
        os.dup2(fd, standard)
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    sys.stdout.flush()
    os._exit(0)  # an interpreter with all these modules needs some time to end


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.bind(sys.argv[1])
        made.listen(64)
        print("ready", flush=True)
        _serve(made)
