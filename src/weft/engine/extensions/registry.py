"""What an extension registers: events that it hears, timers that it sets, phases that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from weft.engine.agenda import Phase
    from weft.engine.core import Core

Handler = Callable[["Core", Any], None]
"""Takes an event."""


class Extension(NamedTuple):
    """An extension: `before` and `after` take events before and after the core does; `timers` are by the name that
    each is set with, `phases` are those of the agenda that it runs.
    """

    name: str
    before: Mapping[type, Handler] = {}
    after: Mapping[type, Handler] = {}
    timers: Mapping[str, Callable[..., None]] = {}
    phases: Mapping[Phase, Callable[[Core], None]] = {}
