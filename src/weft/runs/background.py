"""Runs in the background: the start of a process, by this one or by the long-lived process of the state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from weft.admin.control import send
from weft.model.errors import ConflictError, UsageError
from weft.store.state import owned

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from pathlib import Path

    from weft.model.errors import WeftError
    from weft.store.state import StateRoot

UP: Final = "up"
"""The folder in the state folder that the process owns, with its socket."""
PATIENCE_S: Final = 300.0
"""The maximum time until a run begins, in seconds."""


class StartedRun(Struct, frozen=True):
    """The start of a process: the id of its run ("" if none began), the output so far, and the exit code."""

    run: str
    out: str = ""
    err: str = ""
    code: int = 0


class CommandLine(Struct, frozen=True):
    """A command line of `weft` for a process of its own."""

    words: Sequence[str]
    cwd: Path
    environ: Mapping[str, str]


class Starter(Protocol):
    """Starts processes that run command lines of `weft`."""

    def start(self, lines: Iterable[CommandLine]) -> Generator[tuple[int, StartedRun | WeftError]]:
        """Start command lines, several at a time; yield the number of each, from 0, when its run has begun or its
        process has ended.

        A line is taken from `lines` when its process starts. Processes whose start was not yielded end when the
        generator is closed. InternalError: a process died. NotFoundError, CapacityError: it cannot be started.
        """
        ...

    def reap(self) -> None:
        """Reap the processes that have ended; called regularly."""
        ...


def is_up(state: StateRoot) -> bool:
    """Whether a process fires the schedules of a state folder."""
    return owned(state.path / UP)


def hand_over(state: StateRoot, line: CommandLine) -> StartedRun | None:
    """Let the process of a state folder start a command line; None if there is none, or it cannot take this one."""
    if not is_up(state):
        return None
    order = {"do": "run", "words": list(line.words), "cwd": str(line.cwd), "environ": dict(line.environ)}
    try:
        return StartedRun(**send(state.path / UP, order, timeout=PATIENCE_S))
    except (ConflictError, UsageError):  # the process is ending, or the environment is too large for a request
        return None
