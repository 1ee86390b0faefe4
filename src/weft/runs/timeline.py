"""The history of a run: from its owner, its journal or its records, and its records while they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.admin.control import send
from weft.model.errors import ConflictError, NotFoundError, ProgramError
from weft.model.ids import item_name
from weft.runs.records import follow_records, read_records
from weft.runs.verbs import VERBS
from weft.store.state import owned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from weft.engine.policy import ManagerFactory
    from weft.runs.reading import RunRecord
    from weft.runs.records import Record


def events_of(run: RunRecord, step: str = "") -> list[tuple[float, Record]]:
    """Return the records of a run, of one step or of one item, each with the seconds since the first of the run."""
    one, item = run.task(step) if step else (None, None)
    records = list(read_records(run.folder))
    return [
        (record.time - records[0].time, record)
        for record in records
        if one is None or (record.step == one.name and item in (None, record.index))
    ]


def story_of(run: RunRecord, step: str, attempt: int | None, managers: Mapping[str, ManagerFactory]) -> Sequence[str]:
    """Return the history of a run or a step as lines with reasons; () if neither owner nor journal has any.

    The journals of pipelines have none without their owner.
    """
    one, item = run.task(step) if step else (None, None)
    subject = "" if one is None else one.name if item is None else f"{one.name}[{item}]"
    if owned(run.folder):
        selected = subject if attempt is None else f"{subject}@{attempt}"
        try:
            return [str(line) for line in send(run.folder, VERBS["story"].order(subject=selected))]
        except ConflictError:  # the run has ended meanwhile, or is starting
            return ()
    return _replayed_story(run, subject, managers) if run.of_session else ()


def _replayed_story(run: RunRecord, subject: str, managers: Mapping[str, ManagerFactory]) -> Sequence[str]:
    from weft.durability.programs import load_graph  # most runs are pipelines
    from weft.runs.explaining import replayed

    try:
        graph, digest = load_graph(run.folder)
        return replayed(run.folder, graph, managers, digest).story(subject)
    except (ConflictError, NotFoundError, ProgramError):
        return ()


def watch_folder(folder: Path, pause: Callable[[], None]) -> Iterator[Record]:
    """Yield the records of the run in a folder until its owner has gone; call `pause` before each look for new ones."""
    records = follow_records(folder)
    alive = True
    while alive:
        alive = owned(folder)  # checked first: what is written before the end is still read
        while (record := next(records)) is not None:
            yield record
        if alive:
            pause()


def record_subject(record: Record) -> str:
    """Return the step or the item of a record; "" for the run."""
    return record.step if record.index is None else item_name(record.step, record.index)
