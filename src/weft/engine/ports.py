"""What the shell supplies to the master's loop, and the protocol of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from weft.engine.commands import Command
    from weft.engine.events import Event


class Clock(Protocol):
    """Seconds since some moment, never going back."""

    def now(self) -> float:
        """Return the time in seconds."""
        ...


class Journal(Protocol):
    """Where ticks are written before their consequences are seen. One record is one tick."""

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Write one record; returns when it is safe to carry out the commands that must be durable first."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...
