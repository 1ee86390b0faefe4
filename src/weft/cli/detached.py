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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from weft.cli.context import CommandContext
from weft.model.errors import InternalError
from weft.model.records import as_dict
from weft.runs.background import PATIENCE_S, StartedRun

OUTPUT: Final = "output.log"
"""The file in a run's folder with the output of the process after the start of the run."""
_LOOK_S: Final = 0.5


def start(
    words: Sequence[str], cwd: Path, environ: Mapping[str, str], on_wait: Callable[[], None] = lambda: None
) -> StartedRun:
    """Start a command line in the background, and return when its run has begun or the process has ended.

    `on_wait` is called repeatedly until then. InternalError: the process died without a message, or sent none for five
    minutes. KeyboardInterrupt: the process is ended.
    """
    receiver, sender = os.pipe()
    with open(receiver, "rb") as pipe, tempfile.TemporaryFile() as noise:
        # -P: a `json.py` in the project's folder must not replace that of Python.
        argv = [sys.executable, "-P", "-m", "weft.cli.background", str(sender), *words]
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=noise,
                stderr=noise,
                pass_fds=(sender,),
                start_new_session=True,
            )
        finally:
            os.close(sender)
        try:
            line = b""
            for _ in range(int(PATIENCE_S / _LOOK_S)):
                if select.select([pipe], [], [], _LOOK_S)[0]:
                    line = pipe.readline()
                    break
                on_wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
        if not line:
            process.kill()  # the process may have ended
            code = process.wait()
            noise.seek(0)
            last = noise.read()[-2_000:].decode(errors="replace").strip()
            raise InternalError(f"the background process ended with {code} before its run began: {last}")
    found = StartedRun(**json.loads(line))
    if not found.run:
        process.wait()
    else:
        _left.append(process)
    return found


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
