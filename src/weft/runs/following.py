"""The folders of runs whose process is at a cluster, brought to the present when someone looks at them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft.model.errors import CapacityError, ConflictError, NotFoundError, WeftError
from weft.store.state import STORAGE, ended_elsewhere, followed, followed_file, read_description

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from weft.runtime.clock import WallClock
    from weft.store.state import StateRoot


_POLL_S: Final = 1.0
"""The least seconds between two looks of one who polls: each lists objects at the URL."""


class RunFollower:
    """Brings folders to the present. One that stays behind is as it was at the last look, and a note says so once.

    `lives` says whether the driver of a run in a folder lives at its cluster.
    """

    def __init__(self, note: Callable[[str], None], clock: WallClock, lives: Callable[[Path], bool]) -> None:
        self._note, self._clock, self._lives = note, clock, lives
        self._behind: set[str] = set()
        self._looks: dict[str, float] = {}

    def look(self, folder: Path, *, polls: bool = False) -> WeftError | None:
        """Bring a folder to the present, if it follows a run elsewhere; return why it stays behind.

        One who `polls` looks at most once a second.
        """
        if not followed_file(folder).exists():
            return None
        from weft.runs.handing import follow  # most runs are here

        now = self._clock.wall()
        if polls and 0 <= now - self._looks.get(folder.name, -_POLL_S) < _POLL_S:
            return None
        self._looks[folder.name] = now
        try:
            follow(folder, self._lives)
        except (CapacityError, NotFoundError) as error:
            if folder.name not in self._behind:
                self._behind.add(folder.name)
                seconds = max(0.0, self._clock.wall() - followed_file(folder).stat().st_mtime)
                self._note(f"{folder.name} is shown as it was {seconds:.0f} s ago: {error.message}")
            return error
        self._behind.discard(folder.name)
        return None

    def look_at_all(self, root: StateRoot) -> None:
        """Bring all folders to the present whose runs have not ended; a URL that does not answer is asked once."""
        silent = set()
        for folder in followed(root):
            with suppress(WeftError):  # then it is as it was last known
                url = read_description(folder)[STORAGE]["url"]
                if not ended_elsewhere(folder) and url not in silent and isinstance(self.look(folder), CapacityError):
                    silent.add(url)

    def check_known(self, folder: Path) -> None:
        """Check that a run that stays behind had ended. ConflictError: it may still run."""
        if folder.name in self._behind and not ended_elsewhere(folder):
            raise ConflictError(
                f"{folder.name} may still run at the cluster: the URL of its storage cannot be read",
                hint=f"If it is gone for good: rm {followed_file(folder)}, and delete the run again.",
            )
