"""The session options of a durable run: kept in its description, and used by a resume.

Only options that change which tasks can run, and how, are kept; folders for spilled values are those of the resume.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.model.clusters import ClusterOptions

if TYPE_CHECKING:
    from weft.admin.settings import Settings

KEY: Final = "session"
"""The key of the description."""
_OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "workers": (int, type(None)),
    "memory": (int, type(None)),
    "gpus": (int,),
    "gpu_type": (str,),
    "grace_s": (float, int),
    "frozen_s": (float, int),
    "backups": (bool, type(None)),
    "eviction": (str,),
    "stream_window": (int, type(None)),
    "history": (str, bool),
    "whole_process": (bool,),
    "cluster": (dict, type(None)),
    "worker_memory": (int, type(None)),
}
"""The kept options and their types, by the names of arguments of a session; eviction functions are not kept."""
_FLAGS: Final = ("workers", "memory", "gpus", "gpu_type", "eviction", "stream_window")


def kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options to keep from the arguments of a session."""
    return {name: value for name, value in options.items() if isinstance(value, _OPTIONS[name])}


def options_of(description: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the arguments of a session that resumes a run: the kept ones, unless a flag overrides them.

    A run without kept options uses the settings.
    """
    written = description.get(KEY)
    found: dict[str, Any] = {}
    if isinstance(written, dict):
        found = {name: written[name] for name, kinds in _OPTIONS.items() if isinstance(written.get(name, kinds), kinds)}
    for name in _FLAGS:
        if name not in found or settings.origin(name).kind == "flag":
            value = getattr(settings, name)
            found[name] = None if not value and name in ("workers", "memory", "stream_window") else value
    found["cluster"] = settings.cluster_options(ClusterOptions(**(found.get("cluster") or {})))
    return found
