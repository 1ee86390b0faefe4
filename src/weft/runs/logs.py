"""The logs of a run, by step, item and attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from weft.runs.reading import RunRecord, read_run
from weft.runs.records import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weft.store.state import LogFile


class RunLogs(Struct, frozen=True):
    """The logs of a run or a step at one moment, one for each task."""

    run: RunRecord
    logs: Sequence[LogFile]

    @property
    def active(self) -> bool:
        """Whether the run has not ended, so that the logs may grow."""
        return self.run.state in ACTIVE


def logs_of(folder: Path, step: str = "", attempt: int | None = None) -> RunLogs:
    """Return the logs of the latest attempt of each task, or of the named attempt; of all steps if none is named.

    `step` is a step or an item of one (`step-2`, `step[2]`). NotFoundError: it does not exist.
    """
    run = read_run(folder)
    one, item = run.task(step) if step else (None, None)
    latest: dict[tuple[str, int | None], LogFile] = {}
    for log in (log for each in (run.steps if one is None else [one]) for log in each.logs):
        if attempt in (None, log.attempt) and item in (None, log.index or 0):
            latest[(log.step, log.index)] = log
    return RunLogs(run, list(latest.values()))
