"""The record by which an extension registers with the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from weft.engine.core import NO_HOOKS, Core, Handler, Hooks

if TYPE_CHECKING:
    from weft.engine.agenda import Phase


class Extension(Struct, frozen=True):
    """An extension: `before` and `after` handle events before and after the core; `timers` are by the name of the
    timer, `phases` by the phase of the agenda.
    """

    name: str
    before: Mapping[type, Handler] = {}
    after: Mapping[type, Handler] = {}
    timers: Mapping[str, Callable[..., None]] = {}
    phases: Mapping[Phase, Callable[[Core], None]] = {}
    hooks: Hooks = NO_HOOKS


def combine(extensions: Iterable[Extension]) -> Hooks:
    """Return the functions of all extensions for each hook, in the order of the extensions."""
    hooks = [extension.hooks for extension in extensions]
    return Hooks(*(sum((getattr(one, name) for one in hooks), ()) for name in Hooks.__struct_fields__))
