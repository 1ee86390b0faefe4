"""Runs in the foreground: a run of the service, waited for in this thread, which a signal cancels."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from weft.model.errors import RunCancelledError
from weft.runs.active import ActiveRun, RunAnnounced, RunEvents, RunMessage, RunResult
from weft.runs.reading import read_run
from weft.runs.service import RunService
from weft.wiring import runs as concrete
from weft.wiring.waiting import noted_signals, wait_for_end

if TYPE_CHECKING:
    from pathlib import Path

    from weft.admin.settings import Settings
    from weft.runs.records import Record
    from weft.runs.sources import RunSource


def run_pipeline(
    loaded: RunSource,
    settings: Settings,
    *,
    on_record: Callable[[Record], None] | None = None,
    on_note: Callable[[str], None] = lambda _: None,
    on_announced: Callable[[RunAnnounced], None] = lambda _: None,
    on_interrupt: Callable[[], None] = lambda: None,
    on_begin: Callable[[Path], None] = lambda _: None,
    firing: str = "",
    quiet: bool = False,
) -> RunResult:
    """Run a pipeline to its end in this process, and say how it ended.

    On a thread of its own `on_record` is told of every change, unless `quiet`, `on_announced` of the id before the run
    begins, and `on_note` of what else a person should know. `on_begin` is told of the run's folder, once the run takes
    orders. The first SIGINT or SIGTERM calls `on_interrupt` and cancels, which the result says when nothing runs any
    more; a second one raises KeyboardInterrupt at once. Errors before the first step starts are raised, later ones are
    in the result. `firing` is the due time of a schedule that the run is for.
    """
    events = RunEvents(records=on_record is not None and not quiet)
    heard = _Heard(events, on_record, on_note, on_announced)
    return _to_end(
        settings, heard, on_interrupt, on_begin, lambda service: service.submit(loaded, events=events, firing=firing)
    )


def resume_run(
    folder: Path,
    settings: Settings,
    *,
    file: str | None = None,
    overrides: Mapping[str, str] | None = None,
    on_record: Callable[[Record], None] | None = None,
    on_note: Callable[[str], None] = lambda _: None,
    on_interrupt: Callable[[], None] = lambda: None,
    on_begin: Callable[[Path], None] = lambda _: None,
    quiet: bool = False,
) -> RunResult:
    """Go on with a run to its end, as `RunService.resume` does; otherwise as `run_pipeline`."""
    events = RunEvents(records=on_record is not None and not quiet)
    heard = _Heard(events, on_record, on_note, lambda _: None)

    def begin(service: RunService) -> ActiveRun:
        return service.resume(folder, events=events, file=file, overrides=overrides)

    if not read_run(folder).of_session:
        return _to_end(settings, heard, on_interrupt, on_begin, begin)
    with _printing_aside():
        return _to_end(settings, heard, on_interrupt, on_begin, begin)


class _Heard:
    """The thread that hands the events of a run to whoever asked for them."""

    def __init__(
        self,
        events: RunEvents,
        on_record: Callable[[Record], None] | None,
        on_note: Callable[[str], None],
        on_announced: Callable[[RunAnnounced], None],
    ) -> None:
        self.events = events
        self._on_record, self._on_note, self._on_announced = on_record, on_note, on_announced
        self._thread = threading.Thread(target=self._take, name="events of a run", daemon=True)

    def _take(self) -> None:
        while (event := self.events.take()) is not None:
            if isinstance(event, RunMessage):
                self._on_note(event.text)
            elif isinstance(event, RunAnnounced):
                self._on_announced(event)
            elif self._on_record is not None:
                self._on_record(event)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.events.end()
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self._thread.join()


def _to_end(
    settings: Settings,
    heard: _Heard,
    on_interrupt: Callable[[], None],
    on_begin: Callable[[Path], None],
    begin: Callable[[RunService], ActiveRun],
) -> RunResult:
    service = RunService(concrete, settings)

    def interrupt(reason: str) -> None:
        on_interrupt()
        run.interrupt(reason)

    with noted_signals(signal.SIGINT, signal.SIGTERM) as signals:
        try:
            with heard:
                run = begin(service)
                on_begin(run.folder)
                wait_for_end(run, signals, interrupt)
        except KeyboardInterrupt:
            raise  # whoever asks twice does not want to wait; guardians and the next start clean up
        except BaseException:
            service.close()
            raise
        service.close()
    result = run.result()
    if not isinstance(result.error, RunCancelledError):
        signals.hand_on()
    return result


@contextmanager
def _printing_aside() -> Iterator[None]:
    """Have what tasks print, and processes that they start, go to stderr: stdout is for what the command answers."""
    try:
        sys.stdout.flush()
        out = os.dup(1)
    except (OSError, ValueError):  # it is closed
        yield
        return
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(out, 1)
        os.close(out)
