"""Runs in the foreground: runs of the service that this thread waits for and that a signal cancels."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from weft import wiring
from weft.model.errors import RunCancelledError
from weft.runs.active import ActiveRun, RunAnnounced, RunEvents, RunResult
from weft.runs.afterwards import after_end
from weft.runs.callbacks import EventThread
from weft.runs.service import RunService
from weft.runtime.waiting import output_to_stderr, recorded_signals, wait_for_end
from weft.store.state import StateRoot

if TYPE_CHECKING:
    from pathlib import Path

    from weft.admin.settings import Settings
    from weft.runs.records import Record
    from weft.runs.sources import RunSource
    from weft.runs.sweeps import Sweep
    from weft.runtime.session import EngineSession
    from weft.store.labels import RunLabels


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
    labels: RunLabels | None = None,
    quiet: bool = False,
    session: EngineSession | None = None,
) -> RunResult:
    """Run a pipeline to its end in this process, and return its result.

    A thread of its own calls `on_record` with each record unless `quiet`, `on_announced` with the id before the run
    begins, and `on_note` with notes for the user. `on_begin` is called with the folder of the run when the run accepts
    orders. The first SIGINT, SIGTERM or SIGHUP calls `on_interrupt` and cancels the run; the result reports it when
    nothing runs any more. A second signal raises KeyboardInterrupt at once. Errors before the first step starts are
    raised, later errors are in the result. `firing` is the due time of the schedule that started the run,
    `labels` are its tags and its note. An open `session` lends its workers.
    """
    events = RunEvents(records=on_record is not None and not quiet)
    callbacks = EventThread(events, on_record, on_note, on_announced)
    service = RunService(wiring, settings, settings.state_root(loaded.base), session=session)

    def begin() -> ActiveRun:
        return service.submit(loaded, events=events, firing=firing, labels=labels)

    return _to_end(service, callbacks, on_interrupt, on_begin, begin)


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
    """Resume a run to its end, as `RunService.resume` does; otherwise as `run_pipeline`."""
    events = RunEvents(records=on_record is not None and not quiet)
    callbacks = EventThread(events, on_record, on_note, lambda _: None)
    service = RunService(wiring, settings, StateRoot(folder.parent.parent))

    def begin() -> ActiveRun:
        return service.resume(folder.name, events=events, file=file, overrides=overrides)

    with output_to_stderr() if service.show(folder.name).of_session else nullcontext():
        return _to_end(service, callbacks, on_interrupt, on_begin, begin)


def run_sweep(service: RunService, sweep: Sweep) -> int:
    """Run a sweep of a service to its end in this process, close the service, and return the exit code.

    The first SIGINT, SIGTERM or SIGHUP cancels its runs, and the call returns when nothing runs any more. A second
    signal raises KeyboardInterrupt at once.
    """
    with recorded_signals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:

        def interrupted() -> str:
            return f"interrupted by {signal.Signals(signals.numbers[0]).name}" if signals.numbers else ""

        try:
            sweep.drive(interrupted)
        except KeyboardInterrupt:
            raise  # a second signal leaves at once; guardians and the next start clean up
        except BaseException:
            service.close()
            raise
        finally:
            sweep.release()
        service.close()
        if signals.numbers:
            return 128 + signals.numbers[0]
    ended = {point.state for point in sweep.points if point.dropped is None}
    return 0 if ended <= {"succeeded"} or (sweep.satisfied and "failed" not in ended) else 1


def _to_end(
    service: RunService,
    callbacks: EventThread,
    on_interrupt: Callable[[], None],
    on_begin: Callable[[Path], None],
    begin: Callable[[], ActiveRun],
) -> RunResult:
    received: int | None = None

    def interrupt(reason: str) -> None:
        on_interrupt()
        run.interrupt(reason)

    def interrupted() -> bool:
        return received is not None and len(signals.numbers) > received

    with recorded_signals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        notify = service.settings.notify
        send = _sender(notify, interrupted) if notify else None
        try:
            with callbacks:
                run = begin()
                on_begin(run.folder)
                wait_for_end(run, signals, interrupt)
        except KeyboardInterrupt:
            raise  # a second signal leaves at once; guardians and the next start clean up
        except BaseException:
            service.close()
            raise
        service.close()
        result = run.result()
        received = len(signals.numbers)
        after_end(service, result, send, callbacks.on_note)
        del signals.numbers[received:]  # they have ended the notice, and not the run
    if not isinstance(result.error, RunCancelledError):
        signals.pass_on()
    return result


def _sender(notify: str, interrupted: Callable[[], bool]) -> Callable[[Mapping[str, Any]], str]:
    """Return the function that sends notices. UsageError: the setting names a missing secret."""
    from weft.admin.notices import notice_sender
    from weft.frontends.pipelines.secrets import secret_of

    return notice_sender(notify, lambda name: secret_of(name, "the setting notify"), interrupted)
