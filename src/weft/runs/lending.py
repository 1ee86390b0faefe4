"""The sessions of the runs of this process, for runs that their steps begin themselves: these share the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from weft.runtime.session import EngineSession

_lent: dict[Path, EngineSession] = {}


def lend_session(run: Path, session: EngineSession) -> Callable[[], None]:
    """Let the steps of the run in a folder find its session; return what ends that."""
    _lent[run] = session

    def end() -> None:
        _lent.pop(run, None)

    return end


def lent_session(run: Path) -> EngineSession | None:
    """Return the session of the run in a folder, None if this process has none to lend."""
    return _lent.get(run)
