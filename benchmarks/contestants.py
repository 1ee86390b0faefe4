"""The processes that run the cases, and the environment that peers are installed in."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from weft.model.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from benchmarks.harness import Side

ROOT = Path(__file__).resolve().parents[1]
PEERS = Path(__file__).with_name("peers.txt")
GRACE_S = 10.0
"""How long a process may take to end when it is told to."""


class Contestants:
    """The processes of both sides, each started when it is first asked. A context manager."""

    def __init__(self) -> None:
        self._alive: dict[tuple[str, bool], _Worker] = {}

    def ask(self, side: Side) -> Mapping[str, float]:
        """Run a case once and return its figures; RunFailedError if it fails or returns a wrong result."""
        if side.fresh:
            worker = _Worker(side)
            try:
                return worker.ask(side)
            finally:
                worker.close()
        key = (side.module, side.peer)
        if key not in self._alive:
            self._alive[key] = _Worker(side)
        return self._alive[key].ask(side)

    def close(self) -> None:
        """End all processes."""
        while self._alive:
            self._alive.popitem()[1].close()

    def __enter__(self) -> Contestants:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Worker:
    """One process that runs the cases of a module."""

    def __init__(self, side: Side) -> None:
        python = str(peers_python()) if side.peer else sys.executable
        paths = [str(ROOT)] if side.peer else [str(ROOT / "src"), str(ROOT)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        env["PYTHONPATH"] = os.pathsep.join(paths)
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", side.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=env,
        )

    def ask(self, side: Side) -> Mapping[str, float]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended: reading tells
            process.stdin.write(json.dumps(side.case).encode() + b"\n")
        ready, _, _ = select.select([process.stdout], [], [], side.longest_s)
        if not ready:
            self._process.kill()
            raise RunFailedError(f"{side.case} of {side.label} took longer than {side.longest_s:g} s")
        line = process.stdout.readline()
        if not line:
            raise RunFailedError(f"{side.case} of {side.label} ended its process (exit code {process.wait()})")
        answer = json.loads(line)
        if "error" in answer:
            raise RunFailedError(f"{side.case} of {side.label} failed: {answer['error']}")
        found: Mapping[str, float] = answer
        return found

    def close(self) -> None:
        process = self._process
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# ------------------------------------------------------------------------------------------------- the environment


def cache_folder() -> Path:
    """Return the folder that peers are installed under."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "weft-benchmarks"


def peers_python() -> Path:
    """Return the interpreter of the peers' environment, which is made on first use and whenever `peers.txt` changes.

    RunFailedError if it cannot be made.
    """
    wanted = PEERS.read_bytes() + sys.version.encode()
    folder = cache_folder() / hashlib.sha256(wanted).hexdigest()[:16]
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if complete.exists():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock, _locked(lock):
        if not complete.exists():  # nobody else has made it meanwhile
            print("installing the peers (once)", file=sys.stderr, flush=True)
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            _run([*pip, "--only-binary", ":all:", "--requirement", str(PEERS)])
            complete.touch()
    return python


@contextmanager
def _locked(file: IO[str]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    yield  # closing the file unlocks


def _run(argv: list[str]) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = done.stdout.strip().splitlines()[-5:]
        raise RunFailedError(
            f"the peers' environment cannot be made: {' '.join(argv[1:4])} failed\n" + "\n".join(last),
            hint="Peers need Python's venv module and a package index; --rows names rows that have no peer.",
        )
