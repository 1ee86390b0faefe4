"""What follows the end of a run in its process: a notice, and the removal of old runs of the same pipeline."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from weft.model.errors import WeftError
from weft.runs.reading import read_run
from weft.runs.records import SUSPENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.runs.active import RunResult
    from weft.runs.reading import RunRecord
    from weft.runs.service import RunService


def after_end(
    service: RunService,
    result: RunResult,
    send: Callable[[Mapping[str, Any]], str] | None,
    note: Callable[[str], None],
) -> None:
    """Send the notice about a run that has ended, and remove the old runs of its pipeline as the setting says.

    Nothing of it changes how the run has ended: `note` reports what did not work.
    """
    keep = service.settings.keep_last
    if send is None and not keep:
        return
    try:
        run = read_run(result.folder)
    except WeftError as error:  # its folder was moved while it ran
        note(f"nothing is done after the run: {error.message}")
        return
    if send is not None and (problem := send(notice_of(run, result))):
        note(f"the notice about {run.id} was not delivered: {problem}")
    if keep and result.state != SUSPENDED:
        try:
            gone = [row.id for row in service.prune(keep_last=keep, name=run.name, spared=run.id, note=note)]
        except WeftError as error:
            note(f"old runs of {run.name} are not deleted: {error.message}")
        else:
            if gone:
                note(f"deleted {', '.join(gone)}: keep_last is {keep}")


def notice_of(run: RunRecord, result: RunResult) -> dict[str, Any]:
    """Return the document of a notice. It has no parameters, no outputs and no logs, which may be confidential."""
    from datetime import UTC, datetime

    def iso(time: float | None) -> str | None:
        return None if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")

    seconds = None if run.started is None or run.ended is None else run.ended - run.started - run.paused_s
    error = result.error
    first = None if error is None else {"code": error.code, "message": error.message.partition("\n")[0]}
    return {
        "schema": "weft.notice/1",
        "run": run.id,
        "name": run.name,
        "state": result.state,
        "user": run.user,
        "host": run.host,
        "file": run.file,
        "folder": str(run.folder.absolute()),
        "started_at": iso(run.started),
        "ended_at": iso(run.ended),
        "seconds": None if seconds is None else round(seconds, 3),
        "steps": dict(sorted(Counter(step.state for step in run.steps).items())),
        "failed": [step.name for step in run.steps if step.state == "failed"][:20],
        "error": first,
        "tags": dict(run.tags),
    }
