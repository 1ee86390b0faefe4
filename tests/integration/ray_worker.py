"""What Ray starts in tests in place of its worker: it has another process fork, and the fork becomes the worker.

To load what Ray needs takes most of the CPU of a worker. This file loads as little as it can before the fork.
"""

import json
import os
import socket
import sys

FORKS = "TESTS_FORKS"
"""The variable with the path of the socket of the process that forks; see `tests.prepared`."""
WORKER = "TESTS_RAY_WORKER"
"""The variable with the path of Ray's own program."""
WITHOUT_ENVIRONMENT = "--runtime-env-hash=0"
"""The argument of a worker that has no packages and no folder of its own."""


def ask(path: str) -> None:
    """Have the process at the path of a socket fork, with what Ray has given to this one."""
    told, tell = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forks:
        forks.connect(path)
        request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), __file__])
        socket.send_fds(forks, [request.encode()], [1, 2, tell])
    os.close(tell)
    os.read(told, 16)


def work(program: str) -> None:
    """Be the worker in a fork, as if Ray had started it."""
    import runpy
    import signal

    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.argv[0] = program
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    if WITHOUT_ENVIRONMENT not in sys.argv:
        os.execv(sys.executable, [sys.executable, os.environ[WORKER], *sys.argv[1:]])
    if FORKS in os.environ:
        ask(os.environ.pop(FORKS))
    else:
        work(os.environ.pop(WORKER))
