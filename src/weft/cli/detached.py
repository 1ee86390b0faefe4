"""Background runs: processes in a session of their own, so that the end of the terminal does not end them.

The starter waits until the run has begun, because errors before that must reach the terminal. The output of the new
process up to then comes back through a pipe and is printed; later output goes to `output.log` in the folder of the run.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from weft.cli.context import CommandContext
from weft.model.errors import CapacityError, InternalError, NotFoundError, WeftError
from weft.model.records import as_dict
from weft.runs.background import PATIENCE_S, CommandLine, StartedRun

OUTPUT: Final = "output.log"
"""The file in a run's folder with the output of the process after the start of the run."""
_LOOK_S: Final = 0.5
_QUEUE_S: Final = 7 * 86_400.0
"""The longest time that a run waits for the cores of a cluster, in seconds."""
_AT_ONCE: Final = 8
"""The maximum number of processes whose runs have not begun."""


def start(
    lines: Iterable[CommandLine], on_wait: Callable[[], None] = lambda: None, patience_s: float = PATIENCE_S
) -> Generator[tuple[int, StartedRun | WeftError]]:
    """Start command lines in the background, eight at a time; see `Starter.start`. `on_wait` is called repeatedly.

    A process whose run has not begun within `patience_s` seconds is ended.
    """
    todo = enumerate(lines)
    live: list[_Beginning] = []
    try:
        while True:
            while len(live) < _AT_ONCE and (found := next(todo, None)) is not None:
                number, line = found
                try:
                    live.append(_Beginning(number, line, patience_s))
                except WeftError as error:
                    yield number, error
            if not live:
                return
            for one in _ready(live):
                live.remove(one)
                yield one.number, one.result()
            on_wait()
    finally:  # an interrupt, or nobody waits for them any more
        for one in live:
            one.process.send_signal(signal.SIGTERM)
        for one in live:
            one.process.wait()
            one.close()


def start_one(
    line: CommandLine, on_wait: Callable[[], None] = lambda: None, patience_s: float = PATIENCE_S
) -> StartedRun:
    """Start a command line in the background, as `start`; errors are raised."""
    with closing(start([line], on_wait, patience_s)) as starting:
        _, found = next(starting)
    if isinstance(found, WeftError):
        raise found
    return found


def start_words(words: Sequence[str], cwd: Path, environ: Mapping[str, str], look: Callable[[], None]) -> StartedRun:
    """Start a command line in the background, as `start_one`, from its parts. Its run may wait for a cluster.

    `look` is called meanwhile; its error ends the process.
    """
    return start_one(CommandLine(words, cwd, environ), look, _QUEUE_S)


class _Beginning:
    """A process whose run has not begun yet. NotFoundError, CapacityError: it cannot be started."""

    def __init__(self, number: int, line: CommandLine, patience_s: float) -> None:
        self.number, self.looks_left = number, int(patience_s / _LOOK_S)
        if not line.cwd.is_dir():
            raise NotFoundError(f"there is no folder {line.cwd}")
        receiver, sender = os.pipe()
        self._files = ExitStack()
        self.pipe = self._files.enter_context(os.fdopen(receiver, "rb"))
        self._noise = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        # -P: a `json.py` in the project's folder must not replace that of Python.
        argv = [sys.executable, "-P", "-m", "weft.cli.background", str(sender), *line.words]
        try:
            self.process = subprocess.Popen(
                argv,
                cwd=line.cwd,
                env=dict(line.environ),
                stdin=subprocess.DEVNULL,
                stdout=self._noise,
                stderr=self._noise,
                pass_fds=(sender,),
                start_new_session=True,
            )
        except OSError as error:
            self.close()
            raise CapacityError(f"no process can be started: {error.strerror}") from None
        finally:
            os.close(sender)

    def result(self) -> StartedRun | InternalError:
        """Return what the process has sent; if it died, or sent nothing in time, an error."""
        on_time = select.select([self.pipe], [], [], 0)[0]
        line = self.pipe.readline() if on_time else b""
        if not line:
            self.process.kill()  # the process may have ended
            code = self.process.wait()
            self._noise.seek(0)
            last = self._noise.read()[-2_000:].decode(errors="replace").strip()
        self.close()
        if not line:
            return InternalError(f"the background process ended with {code} before its run began: {last}")
        found = StartedRun(**json.loads(line))
        if found.run:
            _left.append(self.process)
        else:
            self.process.wait()
        return found

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def _ready(live: Sequence[_Beginning]) -> list[_Beginning]:
    """Wait a moment; return the processes that have sent something, have ended or are too late."""
    sent = select.select([one.pipe for one in live], [], [], _LOOK_S)[0]
    if not sent:
        for one in live:
            one.looks_left -= 1
    return [one for one in live if one.pipe in sent or one.looks_left <= 0]


_left: list[subprocess.Popen[bytes]] = []


def reap() -> None:
    """Reap processes that were started here and have ended. Long-lived processes call this regularly."""
    _left[:] = [process for process in _left if process.poll() is None]


class DetachedRun(Struct):
    """The side of the new process: it sends the result of the start through `pipe`."""

    pipe: int

    def begun(self, context: CommandContext, folder: Path) -> None:
        """Send that the run in `folder` has begun, and write later output to its folder."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(folder / OUTPUT, flags, 0o600), "ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        line = output_so_far(context)
        context.out, context.err = sys.stdout, sys.stderr
        self.send(StartedRun(folder.name, *line))

    def send(self, started: StartedRun) -> None:
        """Send the result of the start, once."""
        fd, self.pipe = self.pipe, -1
        if fd < 0:
            return
        with suppress(BrokenPipeError), open(fd, "wb") as pipe:
            pipe.write(json.dumps(as_dict(started)).encode() + b"\n")


def output_so_far(context: CommandContext) -> tuple[str, str]:
    """Return the output before the run began."""
    out, err = (stream.getvalue() if isinstance(stream, io.StringIO) else "" for stream in (context.out, context.err))
    return out, err
