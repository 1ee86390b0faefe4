"""`weft up`: the long-lived process of a state folder, which fires its schedules and starts background runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from weft.cli.arguments import Given, Project, StateDir, root_of
from weft.cli.detached import PATIENCE_S, DetachedStart, reap, start
from weft.cli.tables import clean, moment, one_line, short_path
from weft.model.errors import ConflictError, NotFoundError, RunFailedError, UsageError, WeftError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.cli.context import CommandContext
    from weft.store.schedules import Firing, PipelineSchedule
    from weft.store.state import StateRoot

UP: Final = "up"
"""The folder in the state folder that the process owns, with its socket."""
_SHOWN: Final = 5


def up(*, project: Project = None, state_dir: StateDir = None, context: Given) -> int:
    """Fire the schedules of a project and start the runs of `weft run -d`, until Ctrl-C."""
    from weft.admin.control import ControlServer
    from weft.admin.scheduling import Scheduler
    from weft.store.folders import OwnerLock
    from weft.store.schedules import SCHEDULES_NAME, Schedules

    writing = threading.Lock()

    def say(text: str) -> None:
        with writing:
            context.say(f"{moment(context.clock.wall(), form='%H:%M:%S')} {clean(text)}")
            context.err.flush()

    with _end_signal() as end:
        root = root_of(context, project, state_dir)
        root.prepare()
        if is_up(root):
            raise ConflictError(f"`weft up` runs already for {root.path}", hint="One is enough.")
        lock = OwnerLock(root.path / UP)
        try:
            with closing(Schedules(root.path / SCHEDULES_NAME)) as schedules:
                launcher = _Launcher(root, context, _once(end, say))
                scheduler = Scheduler(schedules, launcher, context.clock, say, end.is_set)
                with ControlServer(root.path / UP, {"run": lambda order: as_dict(_start_run(order, say))}):
                    count = len(schedules.all(state="running"))
                    say(f"up for {root.path}: {count} {'schedule' if count == 1 else 'schedules'}; Ctrl-C ends it")
                    _print_interrupted(root, say, _option(context, project, state_dir))
                    while not end.is_set():
                        end.wait(scheduler.tick())
                        reap()
        except _LeavingError:
            say("left at once; runs that have begun go on, and what was being started is due again")
            return 128 + signal.SIGINT
        finally:
            lock.release()
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


def _once(end: threading.Event, say: Callable[[str], None]) -> Callable[[], None]:
    """Return a function that reports, once, that an end was requested during the start of a run."""
    reported: list[str] = []

    def report() -> None:
        if end.is_set() and not reported:
            reported.append("ends when the starting run has begun; Ctrl-C again leaves at once")
            say(reported[0])

    return report


def _print_interrupted(root: StateRoot, say: Callable[[str], None], option: str) -> None:
    """Print the interrupted runs: their processes died, as all do at a shutdown of the machine."""
    from weft.runs.listing import list_runs

    runs, _ = list_runs(root, limit=None, state="interrupted")
    for run in runs[:_SHOWN]:
        say(f"{run.id} ({run.name}) was interrupted; to go on with it: weft resume -d {run.id}{option}")
    if len(runs) > _SHOWN:
        say(f"so were {len(runs) - _SHOWN} others: weft ls --state interrupted{option}")


def _option(context: CommandContext, project: Path | None, state_dir: Path | None) -> str:
    """Return the options that a command typed here needs to find the same state folder."""
    if state_dir is not None:
        return f" --state-dir {short_path(state_dir, context.cwd)}"
    return "" if project is None else f" -C {short_path(project, context.cwd)}"


def is_up(root: StateRoot) -> bool:
    """Whether `weft up` runs for a state folder."""
    from weft.store.state import owned

    return owned(root.path / UP)


def submit(root: StateRoot, context: CommandContext) -> DetachedStart | None:
    """Let `weft up` start a command line; None if it does not run, or cannot take this command line."""
    from weft.admin.control import send

    order = {"do": "run", "words": list(context.words), "cwd": str(context.cwd), "environ": dict(context.environ)}
    if not is_up(root):
        return None
    try:
        return DetachedStart(**send(root.path / UP, order, timeout=PATIENCE_S))
    except (ConflictError, UsageError):  # `weft up` is ending, or the environment is too large for a request
        return None


def _start_run(order: Mapping[str, Any], say: Any) -> DetachedStart:
    words, cwd, environ = order.get("words"), order.get("cwd"), order.get("environ")
    if not (isinstance(words, list) and isinstance(cwd, str) and isinstance(environ, dict)):
        raise UsageError("a request for a run needs words, cwd and environ")
    started = start([str(word) for word in words], Path(cwd), {str(k): str(v) for k, v in environ.items()})
    if started.run:
        say(f"{started.run} was accepted")
    return started


class _Launcher:
    """A launcher that starts the runs of schedules as processes of their own, which outlive this process."""

    def __init__(self, root: StateRoot, context: CommandContext, on_wait: Callable[[], None]) -> None:
        self.root, self.context, self.on_wait = root, context, on_wait

    def start(self, schedule: PipelineSchedule, firing: Firing) -> str:
        words = ["run", schedule.file, "-d", "-q", "-n", schedule.name, "--state-dir", str(self.root.path)]
        words += ["--firing", f"{schedule.name}@{firing.due!r}@{firing.epoch}", *schedule.words]
        folder = Path(schedule.file).parent
        if not folder.is_dir():
            raise NotFoundError(f"there is no folder {folder}")
        started = start(words, folder, self.context.environ, self.on_wait)
        if not started.run:
            raise RunFailedError(one_line(started.err or f"it ended with {started.code}", 500))
        return started.run

    def goes_on(self, run: str) -> bool:
        from weft.runs.reading import read_run
        from weft.runs.records import ACTIVE

        try:
            return read_run(self.root.folder(run)).state in ACTIVE
        except WeftError:  # the run was deleted
            return False

    def stop(self, run: str) -> None:
        from weft.admin.control import send

        send(self.root.folder(run), {"do": "cancel", "reason": "a later run of its schedule takes its place"})
