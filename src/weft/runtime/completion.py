"""`as_completed`: runs of one or several sessions, in the order in which they end."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from weft.model.wording import counted
from weft.runtime.arguments import patience, wrong
from weft.runtime.clock import RealClock
from weft.runtime.interruptible import interruptible_get

if TYPE_CHECKING:
    from weft.runtime.run import Run


_WANTED: Final = "an iterable of runs, as Session.submit returns them"


def as_completed(runs: Iterable[Run], timeout_s: float | None = None) -> Iterator[Run]:
    """Yield runs in the order in which they end, whatever their end; those that have ended come first.

    A run that is given twice comes once. TimeoutError: `timeout_s` seconds after the call one of them goes on.
    UsageError: a task waits for runs of its own session, and no other worker is left for them.
    """
    limit = patience("timeout_s", timeout_s)
    pending: dict[int, Run] = {}
    if not isinstance(runs, Iterable):
        raise wrong("runs", runs, _WANTED)
    for run in runs:
        if not callable(getattr(run, "when_done", None)):
            hint = "Futures belong to concurrent.futures.as_completed." if isinstance(run, Future) else ""
            raise wrong("one of the runs", run, "a run, as Session.submit returns it", hint)
        pending[id(run)] = run
    ended: queue.SimpleQueue[Run] = queue.SimpleQueue()
    for run in pending.values():
        run.when_done(partial(ended.put, run))
    return _yield(pending, ended, timeout_s if limit is None else limit)


def _yield(pending: dict[int, Run], ended: queue.SimpleQueue[Run], limit: float | None) -> Iterator[Run]:
    clock = RealClock()
    end = None if limit is None else clock.now() + limit
    total = len(pending)
    while pending:
        try:
            run = ended.get_nowait()
        except queue.Empty:
            run = _wait(pending, ended, None if end is None else max(end - clock.now(), 0.0), total)
        del pending[id(run)]
        yield run


def _wait(pending: dict[int, Run], ended: queue.SimpleQueue[Run], limit: float | None, total: int) -> Run:
    if limit is not None:
        try:
            return interruptible_get(ended, limit)
        except queue.Empty:
            raise TimeoutError(f"{counted(len(pending), 'run')} of {total} did not end in time") from None
    sessions = {id(run.session): run for run in pending.values()}
    with ExitStack() as waits:
        for run in sessions.values():
            waits.enter_context(run.awaited())
        return interruptible_get(ended)
