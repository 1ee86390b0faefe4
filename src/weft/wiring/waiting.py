"""Waiting for a run: signals that come meanwhile, what it can be told, and the picture of how far it is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.runtime.clock import RealClock
from weft.runtime.progress import PATIENCE_S, bars

if TYPE_CHECKING:
    from weft.runtime.progress import Bars
    from weft.runtime.session import Run


_POLL_S: Final = 0.1


class Signals:
    """Signals that came. The first is for whoever waits, a second goes to the handler that was there before."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.before: dict[int, Any] = {}

    def __call__(self, number: int, frame: Any) -> None:
        """Note a signal; the second one is handed on at once."""
        self.numbers.append(number)
        if len(self.numbers) > 1:
            self.hand_on()

    def hand_on(self) -> None:
        """Give the last signal to the handler that was there before, which raises KeyboardInterrupt; none: return."""
        if self.numbers:
            before = self.before.get(self.numbers[-1])
            if callable(before):
                before(self.numbers[-1], None)
            raise KeyboardInterrupt


@contextmanager
def noted_signals(*numbers: signal.Signals) -> Iterator[Signals]:
    """Note signals instead of raising in the middle of a tick; other threads than the main one get none anyway."""
    signals = Signals()
    if threading.current_thread() is threading.main_thread():
        wanted = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        signals.before = {number: signal.signal(number, signals) for number in wanted}
    try:
        yield signals
    finally:
        for number, before in signals.before.items():
            signal.signal(number, before)


class Waited(Protocol):
    """A run that somebody waits for."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; False if `timeout_s` seconds were not enough."""
        ...


def wait_for_end(
    run: Waited,
    signals: Signals,
    interrupt: Callable[[str], None],
    timeout_s: float | None = None,
    look: Callable[[], None] = lambda: None,
) -> bool:
    """Wait for the end of a run and `look` at it meanwhile; the first signal is told to `interrupt`, as a reason.

    So is one that came while the run was made. False: `timeout_s` seconds were not enough.
    """
    clock = RealClock()
    end = None if timeout_s is None else clock.now() + timeout_s
    asked = False
    while not run.wait(_POLL_S if end is None else min(_POLL_S, max(end - clock.now(), 0))):
        if signals.numbers and not asked:
            asked = True
            interrupt(f"interrupted by {signal.Signals(signals.numbers[0]).name}")
        if end is not None and clock.now() >= end and not asked:
            return run.wait(0)
        look()
    return True


def picture(run: Run, name: str, undo: ExitStack) -> Callable[[], None]:
    """Return what shows how far a run is, once it takes long; on a terminal only."""
    clock = RealClock()
    begin = clock.now() + PATIENCE_S
    shown: list[Bars | None] = []

    def look() -> None:
        if not shown and clock.now() >= begin:
            shown.append(bars(name))
            if shown[0] is not None:
                undo.enter_context(shown[0])
        if shown and shown[0] is not None:
            shown[0].update(run.view())

    return look
