"""What the commands are given of the world, so that a test can give them another one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from msgspec import Struct, field

from weft.cli.tables import console
from weft.runtime.clock import RealClock

if TYPE_CHECKING:
    from rich.console import Console

    from weft.admin.settings import Settings
    from weft.engine.explain import Explained
    from weft.graph.logical import LogicalGraph
    from weft.model.errors import WeftError
    from weft.runs.planning import Foreseen
    from weft.runs.records import Record


class Loaded(Protocol):
    """A pipeline that was read and checked."""

    @property
    def graph(self) -> LogicalGraph:
        """What would run."""
        ...

    @property
    def steps(self) -> Sequence[str]:
        """The names of the steps, in order."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What a person should know before it runs."""
        ...


class RunResult(Protocol):
    """How a run ended."""

    @property
    def run_id(self) -> str:
        """Its id."""
        ...

    @property
    def state(self) -> str:
        """Its last state, in the user's words."""
        ...

    @property
    def folder(self) -> Path:
        """Its folder."""
        ...

    @property
    def outputs(self) -> Mapping[str, str]:
        """The places of its outputs, by name."""
        ...

    @property
    def error(self) -> WeftError | None:
        """Why it did not succeed."""
        ...


class Wiring(Protocol):
    """What the commands need of `weft.wiring`."""

    @property
    def Caching(self) -> Callable[..., Any]:  # noqa: N802
        """Makes what a run is asked to do about the cache."""
        ...

    @property
    def Surroundings(self) -> Callable[..., Any]:  # noqa: N802
        """Makes what a run is asked to have steps find round them."""
        ...

    def make_ready(self, backend: str) -> None:
        """Begin to start what a run of commands will need."""
        ...

    def load_pipeline(
        self,
        path: str,
        *,
        overrides: Mapping[str, str],
        user: str | None,
        name: str | None,
        caching: Any = None,
        around: Any = None,
    ) -> Loaded:
        """Read and check a pipeline."""
        ...

    def plan_pipeline(self, loaded: Any, settings: Settings) -> Sequence[Foreseen]:
        """Say what will become of each step."""
        ...

    def run_pipeline(
        self,
        loaded: Any,
        settings: Settings,
        *,
        on_record: Callable[[Record], None],
        on_note: Callable[[str], None],
        on_interrupt: Callable[[], None],
        on_begin: Callable[[Path], None],
        on_id: Callable[[str], None],
        quiet: bool,
    ) -> RunResult:
        """Run it to its end; the first signal cancels it. KeyboardInterrupt: a second one, or one too late."""
        ...

    def resume_run(
        self,
        folder: Path,
        settings: Settings,
        *,
        file: str | None = None,
        overrides: Mapping[str, str] | None = None,
        on_record: Callable[[Record], None],
        on_note: Callable[[str], None],
        on_interrupt: Callable[[], None],
        on_begin: Callable[[Path], None],
        quiet: bool,
    ) -> RunResult:
        """Go on with the run in a folder, to its end. KeyboardInterrupt: as above."""
        ...

    def story_run(self, folder: Path, subject: str = "") -> Sequence[str]:
        """Tell what the journal of a run knows that no process owns; nothing if its records know as much."""
        ...

    def explain_run(self, folder: Path) -> Explained:
        """Explain the run in a folder that no process owns."""
        ...


def _wiring() -> Wiring:
    from weft import wiring

    return wiring


class Context(Struct):
    """What the commands are given of the world."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path = field(default_factory=Path.cwd)
    clock: RealClock = field(default_factory=RealClock)
    wiring: Callable[[], Wiring] = _wiring
    pause: Callable[[float], None] = time.sleep
    color: str = "auto"
    hint: str = ""
    """What to type after an interrupt."""
    words: Sequence[str] = ()
    """The words of the command line."""
    begun: Callable[[Context, Path], None] | None = None
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
