"""Waiting for a run: signals that come meanwhile, what it can be told, and the picture of how far it is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from weft.runtime.clock import RealClock
from weft.runtime.progress import PATIENCE_S, bars

if TYPE_CHECKING:
    from weft.graph.projection import Projection
    from weft.runtime.progress import Bars
    from weft.runtime.session import Run


_POLL_S: Final = 0.1


def orders_of(run: Run, words: Projection) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """Return what a run can be told, and asked, through its control socket; its state is told in `words`."""
    return {
        "cancel": lambda order: run.cancel(str(order.get("reason") or "cancelled")),
        "story": lambda order: list(run.story(str(order.get("subject") or ""))),
        "explain": lambda _: run.explained()._replace(state=words.run(run.status)).to_json(),
    }


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


def wait_for_end(
    run: Run,
    signals: Signals,
    timeout_s: float | None = None,
    look: Callable[[], None] = lambda: None,
    on_interrupt: Callable[[], None] = lambda: None,
    *,
    heeded: bool = False,
) -> bool:
    """Wait for the end of a run and `look` at it meanwhile; the first signal cancels it, and `on_interrupt` is called.

    So does one that came while the run was made; with `heeded`, those that came before were for another run. False:
    `timeout_s` seconds were not enough.
    """
    clock = RealClock()
    end = None if timeout_s is None else clock.now() + timeout_s
    asked = heeded and bool(signals.numbers)
    while not run.wait(_POLL_S if end is None else min(_POLL_S, max(end - clock.now(), 0))):
        if signals.numbers and not asked:
            asked = True
            on_interrupt()
            run.cancel(f"interrupted by {signal.Signals(signals.numbers[0]).name}")
        if end is not None and clock.now() >= end and not asked:
            return run.done
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
