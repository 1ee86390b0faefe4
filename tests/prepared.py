"""Command lines in processes of their own that need not load Weft: one process has loaded it and forks for each.

Loading takes most of the CPU of a short command. A test about the start of the interpreter, its options or its limits,
and one that needs the process while it runs, starts `python` itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

import weft

SOURCE = Path(weft.__file__).parents[1]
ROOT = Path(__file__).parents[1]
MODULES = (
    "rich.console",
    "weft.cli.commands",
    "weft.cli.explain",
    "weft.cli.failures",
    "weft.cli.finding",
    "weft.cli.history",
    "weft.cli.interrupts",
    "weft.cli.listing",
    "weft.cli.logs",
    "weft.cli.main",
    "weft.cli.progress",
    "weft.cli.running",
    "weft.cli.tables",
    "weft.frontends.pipelines.compiler",
    "weft.frontends.pipelines.loading",
    "weft.frontends.pipelines.source",
    "weft.frontends.training.sniffing",
    "weft.runs.afterwards",
    "weft.runs.callbacks",
    "weft.runs.opening",
    "weft.runs.reopening",
    "weft.runs.service",
    "weft.runs.workers",
    "weft.runtime.session",
    "weft.wiring.concrete",
    "weft.wiring.foreground",
    "weft.wiring.node",
)
"""What short commands and nodes import."""
COMMAND = "weft.cli.main"
"""The module with the `main` of command lines."""
NODE = "weft.wiring.node"
"""The module with the `main` of nodes."""
LONGEST = 1 << 20
"""Bytes of a request: the words, the folder and the environment of a command."""


class Forks:
    """The client of a process that forks; requests of several threads run beside each other.

    The process has loaded these modules and those of short commands. Others reach it by the path of a socket.
    """

    def __init__(self, loaded: tuple[str, ...]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        self.socket = ours
        self._folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self._folder.name, "forks")
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.path)
            listener.listen()
            fds = [theirs.fileno(), listener.fileno()]
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, *map(str, fds), *loaded],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": str(SOURCE)},
            )
        atexit.register(self.close)

    def close(self) -> None:
        self.socket.close()
        self.process.wait()
        self._folder.cleanup()

    def start(
        self,
        words: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        out: int,
        err: int,
        *given: int,
        program: str = COMMAND,
    ) -> ForkedCommand:
        """Start a command that writes to these files, and reads the one that is `given`."""
        return _ask(self.socket, words, cwd, env, (out, err, *given), program)

    def open(self, words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> ForkedCommand:
        """Start a command that writes to pipes."""
        readers, writers = zip(*(os.pipe() for _ in range(2)), strict=True)
        try:
            command = self.start(words, cwd, env, *writers)
        finally:
            for fd in writers:
                os.close(fd)
        command.stdout, command.stderr = map(os.fdopen, readers)
        return command

    def open_node(self, cwd: Path, env: Mapping[str, str]) -> ForkedCommand:
        """Start a node of a cluster, which reads and writes pipes and complains where the tests do."""
        (given, give), (told, tell) = os.pipe(), os.pipe()
        try:
            command = self.start([], cwd, env, tell, 2, given, program=NODE)
        finally:
            os.close(given)
            os.close(tell)
        command.stdin, command.stdout = os.fdopen(give, "w"), os.fdopen(told)
        return command


class ForkedCommand:
    """A command that goes on, with what tests need of `subprocess.Popen`."""

    stdin: IO[str] | None = None
    stdout: IO[str] | None = None
    stderr: IO[str] | None = None

    def __init__(self, told: int) -> None:
        self._told = os.fdopen(told, buffering=1)
        self.pid = int(self._told.readline())
        self.returncode: int | None = None
        self._left = ["", ""]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close its pipes, and wait for its end."""
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()
        self.wait()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what was left in its pipes, once nobody holds them any more; subprocess.TimeoutExpired is possible."""

        def read(at: int, file: IO[str]) -> None:
            with file:
                self._left[at] = file.read()

        assert self.stdout is not None
        assert self.stderr is not None
        unread = [(at, file) for at, file in enumerate((self.stdout, self.stderr)) if not file.closed]
        threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in unread]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        self.wait(timeout)
        return self._left[0], self._left[1]

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code at the end; subprocess.TimeoutExpired if it does not end in time."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ends now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            self.returncode = int(self._told.readline())
            self._told.close()
        return self.returncode


def forks_with(loaded: tuple[str, ...]) -> Forks:
    """Return the client of the process that has loaded these modules and those of short commands."""
    with _lock:
        if loaded not in _forks:
            _forks[loaded] = Forks(loaded)
        return _forks[loaded]


_lock = threading.Lock()
_forks: dict[tuple[str, ...], Forks] = {}


def ask_at(
    path: str, words: Sequence[str], cwd: Path, env: Mapping[str, str], *fds: int, program: str
) -> ForkedCommand:
    """Have the process at the path of a socket start a program, as `Forks.start` does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forks:
        forks.connect(path)
        return _ask(forks, words, cwd, env, fds, program)


def _ask(
    forks: socket.socket, words: Sequence[str], cwd: Path, env: Mapping[str, str], fds: Sequence[int], program: str
) -> ForkedCommand:
    """Send a request; `fds` are the output, that of errors and perhaps the input."""
    told, tell = os.pipe()
    try:
        request = json.dumps([words, os.fspath(cwd), dict(env), program]).encode()
        socket.send_fds(forks, [request], [*fds[:2], tell, *fds[2:]])
    finally:
        os.close(tell)
    return ForkedCommand(told)


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
    command = forks_with(loaded).open(words, cwd, os.environ if env is None else env)
    out, err = command.communicate(timeout)
    return command.wait(), out, err


class Fork(BaseException):
    """Leaves the loop of the process that forks, in a child, which runs the `main` of a module or a file."""

    def __init__(self, program: str) -> None:
        self.program = program


def serve(requests: socket.socket, listener: socket.socket) -> None:
    """Fork for each request, and answer each child's id and exit code, until the client is gone.

    Each connection of the listener has one request. Raises `Fork` in children.
    """
    answers: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([requests.fileno(), listener.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 1 << 16)
            _answer(answers)
        for asked in (one for one in (requests, listener) if one.fileno() in ready):
            asking = asked if asked is requests else asked.accept()[0]
            request, fds, _, _ = socket.recv_fds(asking, LONGEST, 4)
            if asking is not requests:
                asking.close()
            elif not request:
                return
            if not request:
                continue
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                requests.close()
                listener.close()
                for fd in (woken, wake, fds[2], *answers.values()):
                    os.close(fd)
                raise Fork(_become(*json.loads(request), fds=fds))
            answers[pid] = fds[2]
            _tell(fds[2], pid)
            for fd in (*fds[:2], *fds[3:]):
                os.close(fd)


def _answer(answers: dict[int, int]) -> None:
    """Answer the exit codes of the children that have ended."""
    for pid in list(answers):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            fd = answers.pop(pid)
            _tell(fd, os.waitstatus_to_exitcode(status))
            os.close(fd)


def _tell(fd: int, number: int) -> None:
    with suppress(BrokenPipeError):  # who has asked does not wait for the end
        os.write(fd, f"{number}\n".encode())


def _become(words: list[str], cwd: str, env: dict[str, str], program: str, *, fds: list[int]) -> str:
    """Make this process what `python` would be with a program and its words; return the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    for fd, standard in zip((*fds[:2], *fds[3:]), (1, 2, 0), strict=False):
        os.dup2(fd, standard)
        os.close(fd)
    sys.argv = [program if os.path.isabs(program) else "-c", *words]
    return program


def _prepare() -> tuple[socket.socket, socket.socket]:
    sys.path.append(str(ROOT))  # some modules are of the tests
    for module in (*MODULES, *sys.argv[3:]):
        importlib.import_module(module)
    sys.path.remove(str(ROOT))
    gc.collect()
    gc.freeze()
    return socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2]))


def _run(program: str) -> int:
    """Run a program in a fork, and return its exit code; another end of it is that of the process."""
    try:
        if not os.path.isabs(program):
            return importlib.import_module(program).main() or 0
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        return ended.code or 0
    return 0


if __name__ == "__main__":
    codes: list[int] = []

    def leave() -> None:
        """End without the clean-up of the interpreter, which copies all memory that a fork shares: 35 ms to 80 ms."""
        if codes:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(codes[0])

    atexit.register(leave)  # the first function registered is called last, after threads and other clean-up
    try:
        serve(*_prepare())
        codes.append(0)
    except Fork as fork:
        codes.append(_run(fork.program))
    sys.exit(codes[0])
