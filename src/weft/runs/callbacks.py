"""Callbacks for the events of a run, called by a thread of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from weft.runs.active import RunAnnounced, RunMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.runs.active import RunEvents
    from weft.runs.records import Record


class EventThread:
    """The thread that passes the events of a run to callbacks while it is entered."""

    def __init__(
        self,
        events: RunEvents,
        on_record: Callable[[Record], None] | None,
        on_note: Callable[[str], None],
        on_announced: Callable[[RunAnnounced], None],
    ) -> None:
        self.events = events
        self.on_note = on_note
        self._on_record, self._on_announced = on_record, on_announced
        self._thread = threading.Thread(target=self._take, name="events of a run", daemon=True)

    def _take(self) -> None:
        while (event := self.events.take()) is not None:
            if isinstance(event, RunMessage):
                self.on_note(event.text)
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
