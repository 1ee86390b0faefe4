"""`weft up`: the process that fires the schedules of a state folder; its signals and its messages."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import Given, Where, service_of
from weft.cli.detached import reap, start
from weft.cli.tables import clean, moment, short_path

if TYPE_CHECKING:
    from weft.cli.context import CommandContext
    from weft.runs.background import StartedRun


def up(*, where: Where, context: Given) -> int:
    """Fire the schedules of a project and start the runs of `weft run -d`, until Ctrl-C."""
    from weft.runs.daemon import serve

    writing = threading.Lock()

    def say(text: str) -> None:
        with writing:
            context.say(f"{moment(context.clock.wall(), form='%H:%M:%S')} {clean(text)}")
            context.err.flush()

    with _end_signal() as end:
        service = service_of(context, where)
        option = _option(context, where)
        try:
            serve(service, _Processes(end, say), context.environ, context.clock, say, end, option)
        except _LeavingError:
            say("left at once; runs that have begun go on, and what was being started is due again")
            return 128 + signal.SIGINT
    say("ended; runs that it has started go on")
    return 0


class _LeavingError(KeyboardInterrupt):
    """A second signal was received."""


@contextmanager
def _end_signal() -> Iterator[threading.Event]:
    """Yield the event that the first SIGINT or SIGTERM sets; a second signal raises."""
    end = threading.Event()
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        if end.is_set():
            raise _LeavingError
        end.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, note)
    try:
        yield end
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)


class _Processes:
    """Starts background processes, and reports once that an end was requested meanwhile."""

    def __init__(self, end: threading.Event, say: Callable[[str], None]) -> None:
        self._end, self._say, self._reported = end, say, False

    def start(self, words: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> StartedRun:
        """Start a command line; see `detached.start`."""
        return start(words, cwd, environ, self._report)

    def reap(self) -> None:
        """Reap the processes that have ended."""
        reap()

    def _report(self) -> None:
        if self._end.is_set() and not self._reported:
            self._reported = True
            self._say("ends when the starting run has begun; Ctrl-C again leaves at once")


def _option(context: CommandContext, where: Where) -> str:
    """Return the options that a command typed here needs to find the same state folder."""
    if where.state_dir is not None:
        return f" --state-dir {short_path(where.state_dir, context.cwd)}"
    return "" if where.project is None else f" -C {short_path(where.project, context.cwd)}"
