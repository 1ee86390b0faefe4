"""What the commands are given of the world, so that a test can give them another one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct, field

from weft.cli.tables import console
from weft.runtime.clock import RealClock

if TYPE_CHECKING:
    from rich.console import Console


def _wiring() -> ModuleType:
    from weft import wiring

    return wiring


class CommandContext(Struct):
    """What the commands are given of the world."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path = field(default_factory=Path.cwd)
    clock: RealClock = field(default_factory=RealClock)
    wiring: Callable[[], ModuleType] = _wiring
    pause: Callable[[float], None] = time.sleep
    color: str = "auto"
    hint: str = ""
    """What to type after an interrupt."""
    words: Sequence[str] = ()
    """The words of the command line."""
    begun: Callable[[CommandContext, Path], None] | None = None
    """Of a process in the background: is told the folder of its run once that has begun."""

    def console(self, stream: TextIO | None = None) -> Console:
        """Return a console for stdout, or another stream."""
        return console(stream or self.out, self.environ, self.color)

    def page(self) -> Console:
        """Return a console for running text on stdout: never wider than people like to read."""
        page = self.console()
        page.width = min(page.width, 100)
        return page

    def say(self, text: str) -> None:
        """Write a message for people."""
        with suppress(OSError):  # whoever closed it does not want to know
            self.err.write(text + "\n")


def drop_output() -> None:
    """Let go of what cannot be written to stdout; Python would complain about it once more on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
