"""A run that goes on with an edited pipeline: what is put down about it before anything runs.

First the records say which steps are no longer done, then the description tells the new text. Killed in between, the
run goes on as it was: its journal still knows what had finished. Killed afterwards, it goes on with the edit.
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
"""What `run.json` calls the finished tasks that the newest edit leaves as they are, of vertices that came later."""
EDITS: Final = "edits"
"""What `run.json` calls the list of the edits: each with its time, its file, and why which step runs again."""


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
    """Put an edit down in the folder of a run that this process owns; return which steps run again, and why.

    `why` answers for a step as a whole, `items` for single items and `wider` for loops of another length; `removed` are
    no longer there, and neither are those that earlier edits have removed, unless they are `there` again. `about` are
    the fields of `run.json` that change.
    """
    again: dict[str, str] = {}
    found = read_description(folder.path).get(EDITS)
    edits = found if isinstance(found, list) else []
    gone = {name for one in edits for name in one.get("removed", ())} - {*there}
    records = [Record(time=time, state="pending", message=f"goes on with an edited {about['file']}")]
    for step in run.steps:
        reason = why(step.name)
        if step.name in removed:
            records.append(Record(time=time, step=step.name, state="skipped", message="no longer there", ended=True))
        elif step.name in gone:
            continue
        elif step.state == "cancelled" and step.started is None and not step.items:
            continue  # it has done nothing that could be done again
        elif reason and step.state != "pending":
            again[step.name] = reason
            records.append(Record(time=time, step=step.name, state="pending", message=_again(reason), items=1))
        elif step.state == "skipped":  # whether it still is will be seen
            records.append(Record(time=time, step=step.name, state="pending"))
        else:
            changed = {n: told for (name, n), told in items.items() if name == step.name and n in step.items}
            told = next(iter(changed.values()), wider.get(step.name, ""))
            told += f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            if told and step.state != "pending":
                again[step.name] = told
                records.append(Record(time=time, step=step.name, state="pending", message=_again(told)))
            records += [
                Record(time=time, step=step.name, index=n, state="pending", message=_again(one))
                for n, one in changed.items()
            ]
    append_records(folder, records)
    edit = {"at": time, "file": about["file"], "again": again, "removed": sorted({*removed, *gone})}
    folder.describe_again(**about, edits=[*edits, edit])
    return again


def kept_by_edit(folder: Path) -> list[FinishedTask]:
    """Return the tasks that the newest edit of a run has left as they are, where the graph itself cannot tell."""
    found = read_description(folder).get(KEPT)
    return (
        [FinishedTask(id, n, name, tuple(outputs)) for id, n, name, outputs in found] if isinstance(found, list) else []
    )


def edits_that_count(folder: Path) -> int:
    """Return how many edits of a run had steps run again."""
    found = read_description(folder).get(EDITS)
    return sum(bool(one.get("again")) for one in found) if isinstance(found, list) else 0


def _again(reason: str) -> str:
    return f"run again: {reason}"
