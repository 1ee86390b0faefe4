"""`weft up`: the process that fires the schedules of a state folder; its messages."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING

from weft.cli.arguments import Given, Where, service_of, where_options
from weft.cli.detached import reap, start
from weft.cli.interrupts import LeavingError, end_signal
from weft.cli.tables import clean, moment

if TYPE_CHECKING:
    from weft.model.errors import WeftError
    from weft.runs.background import CommandLine, StartedRun


def up(*, where: Where, context: Given) -> int:
    """Fire the schedules of a project and start the runs of `weft run -d`, until Ctrl-C."""
    from weft.runs.daemon import serve

    writing = threading.Lock()

    def say(text: str) -> None:
        with writing:
            context.say(f"{moment(context.clock.wall(), form='%H:%M:%S')} {clean(text)}")
            context.err.flush()

    with end_signal() as end:
        service = service_of(context, where)
        option = where_options(context, where)
        try:
            serve(service, _Processes(end, say), context.environ, context.clock, say, end, option)
        except LeavingError:
            say("left at once; runs that have begun go on, and what was being started is due again")
            return 128 + signal.SIGINT
    say("ended; runs that it has started go on")
    return 0


class _Processes:
    """Starts background processes, and reports once that an end was requested meanwhile."""

    def __init__(self, end: threading.Event, say: Callable[[str], None]) -> None:
        self._end, self._say, self._reported = end, say, False

    def start(self, lines: Iterable[CommandLine]) -> Generator[tuple[int, StartedRun | WeftError]]:
        """Start command lines; see `detached.start`."""
        return start(lines, self._report)

    def reap(self) -> None:
        """Reap the processes that have ended."""
        reap()

    def _report(self) -> None:
        if self._end.is_set() and not self._reported:
            self._reported = True
            self._say("ends when the starting runs have begun; Ctrl-C again leaves at once")
