"""The environment of commands: streams, folder, clock and wiring. Tests replace it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from msgspec import Struct, field

from weft.cli.tables import clean, console
from weft.runtime.clock import RealClock

if TYPE_CHECKING:
    from rich.console import Console

    from weft.admin.settings import Settings
    from weft.cli.tables import PlainPage
    from weft.runs.service import RunService
    from weft.store.state import StateRoot


def _wiring() -> Any:
    from weft import wiring

    return wiring


class CommandContext(Struct):
    """The environment of a command."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path = field(default_factory=Path.cwd)
    clock: RealClock = field(default_factory=RealClock)
    wiring: Callable[[], Any] = _wiring
    pause: Callable[[float], None] = time.sleep
    color: str = "auto"
    hint: str = ""
    """The next command to type after an interrupt."""
    follows: bool = False
    """Whether the command only follows what goes on without it: an interrupt is its usual end and no error."""
    words: Sequence[str] = ()
    """The words of the command line."""
    begun: Callable[[CommandContext, Path], None] | None = None
    """The callback of a background process, called with the folder of its run when the run has begun."""

    def service(self, settings: Settings, state: StateRoot) -> RunService:
        """Return the use cases of the runs of a state folder."""
        from weft.runs.service import RunService

        def note(text: str) -> None:
            self.say(f"note: {clean(text)}")

        return RunService(self.wiring(), settings, state, self.clock, note=note)

    def console(self, stream: TextIO | None = None) -> Console | PlainPage:
        """Return a console for stdout, or for another stream."""
        return console(stream or self.out, self.environ, self.color)

    def page(self) -> Console | PlainPage:
        """Return a console for running text on stdout, with a bounded width for easy reading."""
        page = self.console()
        page.width = min(page.width, 100)
        return page

    def say(self, text: str) -> None:
        """Write a message to stderr."""
        with suppress(OSError):  # stderr is closed: its reader wants no more messages
            self.err.write(text + "\n")
            self.err.flush()  # whoever reads a file or a pipe sees each message when it is made


def drop_output() -> None:
    """Discard the buffered stdout that cannot be written; otherwise Python reports the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
