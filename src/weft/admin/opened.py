"""How the session of a durable run was opened: written down with the run, and taken by whoever goes on with it.

Only what changes which tasks can run, and how, is kept; folders for what is over are those of whoever goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from weft.admin.settings import Settings

KEY: Final = "session"
"""Under which name the description of a run has it."""
_OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "workers": (int, type(None)),
    "memory": (int, type(None)),
    "gpus": (int,),
    "gpu_type": (str,),
    "grace_s": (float, int),
    "backups": (bool, type(None)),
    "eviction": (str,),
    "stream_window": (int, type(None)),
    "history": (str, bool),
    "whole_process": (bool,),
}
"""What is kept, under the names of the arguments of a session; an eviction function is not."""
_FLAGS: Final = ("workers", "memory", "gpus", "gpu_type", "eviction", "stream_window")


def kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be written down of the arguments of a session."""
    return {name: value for name, value in options.items() if isinstance(value, _OPTIONS[name])}


def options_of(description: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the arguments of a session that goes on with a run: as it was begun, unless a flag says otherwise.

    A run of a version that kept nothing takes the settings.
    """
    said = description.get(KEY)
    found: dict[str, Any] = {}
    if isinstance(said, dict):
        found = {name: said[name] for name, kinds in _OPTIONS.items() if isinstance(said.get(name, kinds), kinds)}
    for name in _FLAGS:
        if name not in found or settings.origin(name).kind == "flag":
            value = getattr(settings, name)
            found[name] = None if not value and name in ("workers", "memory", "stream_window") else value
    return found
