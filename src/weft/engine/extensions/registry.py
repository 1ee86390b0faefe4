"""The record of an extension: its events, timers and phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from weft.engine.agenda import Phase
    from weft.engine.core import Core

Handler = Callable[["Core", Any], None]
"""A handler of an event."""


class Extension(NamedTuple):
    """An extension: `before` and `after` handle events before and after the core; `timers` are by the name of the
    timer, `phases` by the phase of the agenda.
    """

    name: str
    before: Mapping[type, Handler] = {}
    after: Mapping[type, Handler] = {}
    timers: Mapping[str, Callable[..., None]] = {}
    phases: Mapping[Phase, Callable[[Core], None]] = {}
