"""Command lines in processes of their own that need not load Weft: one process has loaded it and forks for each.

Loading takes most of the CPU of a short command. A test about the start of the interpreter, its options or its limits,
and one that needs the process while it runs, starts `python` itself.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import weft

SOURCE = Path(weft.__file__).parents[1]
MODULES = (
    "rich.console",
    "weft.cli.commands",
    "weft.cli.explain",
    "weft.cli.failures",
    "weft.cli.history",
    "weft.cli.interrupts",
    "weft.cli.listing",
    "weft.cli.logs",
    "weft.cli.progress",
    "weft.cli.running",
    "weft.cli.tables",
    "weft.frontends.pipelines.compiler",
    "weft.frontends.pipelines.loading",
    "weft.frontends.pipelines.source",
    "weft.runs.opening",
    "weft.runs.reopening",
    "weft.runs.service",
    "weft.runs.workers",
    "weft.runtime.session",
    "weft.wiring.concrete",
)
"""What short commands import."""
LONGEST = 1 << 20
"""Bytes of a request: the words, the folder and the environment of a command."""


class Forks:
    """The client of a process that forks; requests of several threads run beside each other.

    The process has loaded these modules and those of short commands.
    """

    def __init__(self, loaded: tuple[str, ...]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        self.socket = ours
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), *loaded],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": str(SOURCE)},
            )
        atexit.register(self.close)

    def close(self) -> None:
        self.socket.close()
        self.process.wait()

    def run(self, words: tuple[str, ...], cwd: Path, env: Mapping[str, str], timeout: float) -> tuple[int, str, str]:
        """Do what `weft_command` says."""
        readers, writers = zip(*(os.pipe() for _ in range(3)), strict=True)
        try:
            request = json.dumps([words, os.fspath(cwd), dict(env)]).encode()
            socket.send_fds(self.socket, [request], list(writers))
        finally:
            for fd in writers:
                os.close(fd)
        out, err, code = _read(readers, timeout)
        return int(code), out.decode(), err.decode()


def _read(fds: tuple[int, ...], timeout: float) -> list[bytes]:
    """Read pipes to their ends, and close them."""
    found: list[list[bytes]] = [[] for _ in fds]

    def read(fd: int, parts: list[bytes]) -> None:
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        os.close(fd)

    threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in zip(fds, found, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), f"a command goes on after {timeout:.0f} s"
    return [b"".join(parts) for parts in found]


_lock = threading.Lock()
_forks: dict[tuple[str, ...], Forks] = {}


def weft_command(
    *words: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 180.0,
    loaded: tuple[str, ...] = (),
) -> tuple[int, str, str]:
    """Return the exit code, the stdout and the stderr of a command line, once nobody holds its pipes any more.

    What changes the interpreter at its start (`PYTHON...`, the locale) is that of the tests, whatever `env` says, and
    so is what changes modules that are `loaded` beside those of short commands.
    """
    with _lock:
        if loaded not in _forks:
            _forks[loaded] = Forks(loaded)
    return _forks[loaded].run(words, cwd, os.environ if env is None else env, timeout)


class Fork(BaseException):
    """Leaves the loop of the process that forks, in a child."""


def serve(requests: socket.socket) -> None:
    """Fork for each request, and answer each child's exit code, until the client is gone; raises `Fork` in children."""
    answers: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 1 << 16)
            _answer(answers)
        if requests.fileno() in ready:
            request, fds, _, _ = socket.recv_fds(requests, LONGEST, 3)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                requests.close()
                for fd in (woken, wake, fds[2], *answers.values()):
                    os.close(fd)
                _become(*json.loads(request), fds=fds)
                raise Fork
            answers[pid] = fds[2]
            os.close(fds[0])
            os.close(fds[1])


def _answer(answers: dict[int, int]) -> None:
    """Answer the exit codes of the children that have ended."""
    for pid in list(answers):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            fd = answers.pop(pid)
            os.write(fd, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(fd)


def _become(words: list[str], cwd: str, env: dict[str, str], *, fds: list[int]) -> None:
    """Make this process what `python -c ... WORDS` would be."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    for fd, standard in zip(fds[:2], (1, 2), strict=True):
        os.dup2(fd, standard)
        os.close(fd)
    sys.argv = ["-c", *words]


def _prepare() -> socket.socket:
    for module in (*MODULES, *sys.argv[2:]):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    return socket.socket(fileno=int(sys.argv[1]))


if __name__ == "__main__":
    try:
        serve(_prepare())
    except Fork:
        from weft.cli.main import main

        sys.exit(main())
