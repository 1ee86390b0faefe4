"""Runs in the background: a process of its own, in a session of its own, that the terminal does not take along.

Who asks for one waits until the run has begun, since until then something can be wrong that a person should see at
once. What the new process has printed up to then comes back through a pipe and is printed here; from then on it goes
to `output.log` in the folder of the run.
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

OUTPUT: Final = "output.log"
"""The file in a run's folder that has what the process said after the run had begun."""


PATIENCE_S: Final = 300.0
"""How long a run may take to begin, in seconds."""
_LOOK_S: Final = 0.5


class DetachedStart(Struct, frozen=True):
    """How a start went: the id of the run ("" if it did not begin), what was printed, and the exit code."""

    run: str
    out: str = ""
    err: str = ""
    code: int = 0


def start(
    words: Sequence[str], cwd: Path, environ: Mapping[str, str], on_wait: Callable[[], None] = lambda: None
) -> DetachedStart:
    """Start a command line in the background, and return once its run has begun, or it has ended.

    `on_wait` is called now and then until it has.
    InternalError: the process died without a word, or said nothing for five minutes. KeyboardInterrupt: it is told to
    end.
    """
    told, tell = os.pipe()
    with open(told, "rb") as pipe, tempfile.TemporaryFile() as noise:
        # -P: a `json.py` in the folder of the project is none of ours.
        argv = [sys.executable, "-P", "-m", "weft.cli.background", str(tell), *words]
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=noise,
                stderr=noise,
                pass_fds=(tell,),
                start_new_session=True,
            )
        finally:
            os.close(tell)
        try:
            said = b""
            for _ in range(int(PATIENCE_S / _LOOK_S)):
                if select.select([pipe], [], [], _LOOK_S)[0]:
                    said = pipe.readline()
                    break
                on_wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
        if not said:
            process.kill()  # if it still lives
            code = process.wait()
            noise.seek(0)
            last = noise.read()[-2_000:].decode(errors="replace").strip()
            raise InternalError(f"the background process ended with {code} before its run began: {last}")
    found = DetachedStart(**json.loads(said))
    if not found.run:
        process.wait()
    else:
        _left.append(process)
    return found


_left: list[subprocess.Popen[bytes]] = []


def reap() -> None:
    """Let the system forget runs that were started here and have ended; who lives long calls this now and then."""
    _left[:] = [process for process in _left if process.poll() is None]


class DetachedRun(Struct):
    """The side of the new process: it tells through `pipe` when its run has begun."""

    pipe: int

    def begun(self, context: CommandContext, folder: Path) -> None:
        """Tell that the run in `folder` has begun, and write to its folder from now on."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(folder / OUTPUT, flags, 0o600), "ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        said = said_so_far(context)
        context.out, context.err = sys.stdout, sys.stderr
        self.tell(DetachedStart(folder.name, *said))

    def tell(self, started: DetachedStart) -> None:
        """Tell how the start went, once."""
        fd, self.pipe = self.pipe, -1
        if fd < 0:
            return
        with suppress(BrokenPipeError), open(fd, "wb") as pipe:
            pipe.write(json.dumps(as_dict(started)).encode() + b"\n")


def said_so_far(context: CommandContext) -> tuple[str, str]:
    """Return what was printed before the run began."""
    out, err = (stream.getvalue() if isinstance(stream, io.StringIO) else "" for stream in (context.out, context.err))
    return out, err
