"""The long-lived process of a state folder: it fires schedules and starts background runs, each in its own process.

Runs are processes of their own because each has a current folder, environment variables and memory of its own, and
because the work of hours must not depend on this process: a run outlives it, and a fault of one run ends no other.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.admin.control import ControlServer
from weft.admin.scheduling import Scheduler, UnstartedRun
from weft.model.errors import ConflictError, UsageError, WeftError
from weft.model.records import as_dict
from weft.runs.background import UP, CommandLine, StartedRun, Starter, is_up
from weft.runs.listing import outcome_of
from weft.runs.records import INTERRUPTED
from weft.store.folders import OwnerLock
from weft.store.schedules import SCHEDULES_NAME, Schedules

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from weft.runs.service import RunService
    from weft.runtime.clock import WallClock
    from weft.store.schedules import Firing, PipelineSchedule

_MOST_REPORTED: Final = 5
_ERROR: Final = "error "
"""The beginning of the line with the error of a command."""


def serve(
    service: RunService,
    starter: Starter,
    environ: Mapping[str, str],
    clock: WallClock,
    say: Callable[[str], None],
    end: threading.Event,
    option: str = "",
) -> None:
    """Fire the schedules of a state folder, and start the runs that are handed over, until `end` is set.

    `say` is called with messages for the user, on several threads. `option` are the words by which a command finds
    this state folder. ConflictError: another process does it.
    """
    state = service.state
    state.prepare()
    if is_up(state):
        raise ConflictError(f"`weft up` runs already for {state.path}", hint="Use that process, or end it first.")

    def run(order: Mapping[str, Any]) -> dict[str, Any]:
        return as_dict(_start_words(order, starter, say))

    lock = OwnerLock(state.path / UP)
    try:
        with closing(Schedules(state.path / SCHEDULES_NAME)) as schedules:
            scheduler = Scheduler(schedules, _Launcher(service, starter, environ), clock, say, end.is_set)
            with ControlServer(state.path / UP, {"run": run}):
                count = len(schedules.all(state="running"))
                say(f"up for {state.path}: {count} {'schedule' if count == 1 else 'schedules'}; Ctrl-C ends it")
                _report_interrupted(service, say, option)
                while not end.is_set():
                    end.wait(scheduler.tick())
                    starter.reap()
                    service.expire()
    finally:
        lock.release()


def _report_interrupted(service: RunService, say: Callable[[str], None], option: str) -> None:
    """Report the interrupted runs: their processes died, as all do at a shutdown of the machine."""
    runs, _ = service.list_runs(state=INTERRUPTED)
    for run in runs[:_MOST_REPORTED]:
        say(f"{run.id} ({run.name}) was interrupted; to go on with it: weft resume -d {run.id}{option}")
    if len(runs) > _MOST_REPORTED:
        say(f"so were {len(runs) - _MOST_REPORTED} others: weft ls --state interrupted{option}")


def _error_in(ended: StartedRun) -> str:
    """Return the error that a process has printed, behind any warnings; it begins with its code."""
    lines = ended.err.strip().splitlines()
    errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    return (errors or lines or [f"it ended with {ended.code}"])[0][:500]


def _start_words(order: Mapping[str, Any], starter: Starter, say: Callable[[str], None]) -> StartedRun:
    words, cwd, environ = order.get("words"), order.get("cwd"), order.get("environ")
    if not (isinstance(words, list) and isinstance(cwd, str) and isinstance(environ, dict)):
        raise UsageError("a request for a run needs words, cwd and environ")
    line = CommandLine([str(word) for word in words], Path(cwd), {str(k): str(v) for k, v in environ.items()})
    with closing(starter.start([line])) as starting:
        _, started = next(starting)
    if isinstance(started, WeftError):
        raise started
    if started.run:
        say(f"{started.run} was accepted")
    return started


class _Launcher:
    """Starts the runs of schedules as processes, which outlive this one, and ends them by their control sockets."""

    def __init__(self, service: RunService, starter: Starter, environ: Mapping[str, str]) -> None:
        self._service, self._starter, self._environ = service, starter, environ

    def start(
        self, due: Iterable[tuple[PipelineSchedule, Firing]]
    ) -> Generator[tuple[PipelineSchedule, Firing, str | UnstartedRun | WeftError]]:
        taken: list[tuple[PipelineSchedule, Firing]] = []

        def lines() -> Iterator[CommandLine]:
            for one in due:
                taken.append(one)
                yield self._line(*one)

        with closing(self._starter.start(lines())) as starting:
            for number, started in starting:
                found: str | UnstartedRun | WeftError = started if isinstance(started, WeftError) else started.run
                if isinstance(started, StartedRun) and not started.run:
                    found = UnstartedRun(_error_in(started))
                yield *taken[number], found

    def _line(self, schedule: PipelineSchedule, firing: Firing) -> CommandLine:
        words = ["run", schedule.file, "-d", "-q", "-n", schedule.name, "--state-dir", str(self._service.state.path)]
        words += ["--firing", f"{schedule.name}@{firing.due!r}@{firing.epoch}", *schedule.words]
        return CommandLine(words, Path(schedule.file).parent, self._environ)

    def outcome(self, run: str) -> str:
        return outcome_of(self._service.state, run)

    def stop(self, run: str) -> None:
        self._service.cancel(run, reason="a later run of its schedule takes its place")
