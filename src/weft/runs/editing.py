"""The edit of a run: the changes to its folder before the edited pipeline runs.

The records change first, then the description. Killed in between, the run continues unedited: its journal still has the
finished tasks. Killed afterwards, it continues with the edit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.durability.resume import FinishedTask
from weft.runs.records import Record, append_records
from weft.store.state import read_description

if TYPE_CHECKING:
    from pathlib import Path

    from weft.runs.reading import RunRecord
    from weft.store.state import RunFolder

KEPT: Final = "kept"
"""The key of `run.json` for the finished tasks that the newest edit keeps, of vertices that came later."""
EDITS: Final = "edits"
"""The key of `run.json` for the edits: each with its time, its file, and the reasons of steps that run again."""


def record_edit(
    folder: RunFolder,
    run: RunRecord,
    time: float,
    *,
    why: Callable[[str], str],
    items: Mapping[tuple[str, int], str],
    wider: Mapping[str, str],
    removed: Collection[str],
    there: Collection[str],
    about: Mapping[str, Any],
) -> dict[str, str]:
    """Write an edit to the folder of a run that this process owns; return the steps that run again, with reasons.

    `why` returns the reason for a whole step, `items` those for single items, `wider` those for loops of another
    length. `removed` are the steps that no longer exist; those that earlier edits removed are absent too, unless they
    are in `there`. `about` has the changed fields of `run.json`.
    """
    again: dict[str, str] = {}
    found = read_description(folder.path).get(EDITS)
    edits = found if isinstance(found, list) else []
    gone = {name for one in edits for name in one.get("removed", ())} - {*there}
    records = [Record(time=time, state="pending", message=f"continues with an edited {about['file']}")]
    for step in run.steps:
        reason = why(step.name)
        if step.name in removed:
            records.append(Record(time=time, step=step.name, state="skipped", message="no longer there", ended=True))
        elif step.name in gone:
            continue
        elif step.state == "cancelled" and step.started is None and not step.items:
            continue  # no task of it has begun
        elif reason and step.state != "pending":
            again[step.name] = reason
            records.append(Record(time=time, step=step.name, state="pending", message=_again(reason), items=1))
        elif step.state == "skipped":  # checked again later
            records.append(Record(time=time, step=step.name, state="pending"))
        else:
            changed = {n: text for (name, n), text in items.items() if name == step.name and n in step.items}
            why_again = next(iter(changed.values()), wider.get(step.name, ""))
            why_again += f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            if why_again and step.state != "pending":
                again[step.name] = why_again
                records.append(Record(time=time, step=step.name, state="pending", message=_again(why_again)))
            records += [
                Record(time=time, step=step.name, index=n, state="pending", message=_again(one))
                for n, one in changed.items()
            ]
    append_records(folder, records)
    edit = {"at": time, "file": about["file"], "again": again, "removed": sorted({*removed, *gone})}
    folder.describe_again(**about, edits=[*edits, edit])
    return again


def kept_by_edit(folder: Path) -> list[FinishedTask]:
    """Return the finished tasks that the newest edit of a run keeps and that are not in the graph."""
    found = read_description(folder).get(KEPT)
    return (
        [FinishedTask(id, n, name, tuple(outputs)) for id, n, name, outputs in found] if isinstance(found, list) else []
    )


def edits_that_count(folder: Path) -> int:
    """Return the number of edits of a run that had steps run again."""
    found = read_description(folder).get(EDITS)
    return sum(bool(one.get("again")) for one in found) if isinstance(found, list) else 0


def _again(reason: str) -> str:
    return f"run again: {reason}"
