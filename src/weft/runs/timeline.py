"""The history of a run: from its owner, its journal or its records, and its records while they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.model.errors import ConflictError, NotFoundError, ProgramError
from weft.model.ids import loop_item
from weft.runs.records import follow_records, read_records
from weft.runs.verbs import VERBS
from weft.runtime.cache import read_decisions
from weft.store.state import owned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from weft.runs.reading import RunRecord
    from weft.runs.records import Record
    from weft.runs.sources import SourceHost


def events_of(run: RunRecord, step: str = "", attempt: int | None = None) -> list[tuple[float, Record]]:
    """Return the records of a run, of one step, item or attempt, each with the seconds since the first of the run.

    NotFoundError: there is no such step, item or attempt.
    """
    one, item = run.task(step) if step else (None, None)
    records = list(read_records(run.folder))
    asked = {(answer["step"], answer.get("task", 0)): answer for answer in read_decisions(run.folder)}
    found = [
        (record.time - records[0].time, _with_reason(record, asked))
        for record in records
        if one is None
        or (record.step == one.name and item in (None, record.index) and attempt in (None, record.attempt))
    ]
    if attempt is not None and not found:
        raise NotFoundError(f"{run.id}/{step} has no attempt {attempt}", hint=f"See: weft show {run.id}")
    return found


def _with_reason(record: Record, asked: dict[tuple[str, int], dict[str, Any]]) -> Record:
    """Return the record of a start with the reason why the cache had no result; other records unchanged."""
    if record.state != "running" or record.message:
        return record
    answer = asked.get((record.step, record.index or 0), {})
    return (
        replace(record, message=f"not in the cache: {answer['reason']}") if answer.get("outcome") == "miss" else record
    )


def story_of(run: RunRecord, step: str, attempt: int | None, host: SourceHost) -> Sequence[str]:
    """Return the history of a run of a program, or of a vertex, as lines; () if neither owner nor journal has any.

    The history of a pipeline is in its records.
    """
    if not run.of_session:
        return ()
    one, item = run.task(step) if step else (None, None)
    subject = "" if one is None else one.name if item is None else f"{one.name}[{item}]"
    if owned(run.folder):
        selected = subject if attempt is None else f"{subject}@{attempt}"
        try:
            return [str(line) for line in host.ask_owner(run.folder, VERBS["story"].order(subject=selected))]
        except ConflictError:  # the run has ended meanwhile, or is starting
            return ()
    if attempt is not None:
        events_of(run, step, attempt)
    return _replayed_story(run, subject, host)


def _replayed_story(run: RunRecord, subject: str, host: SourceHost) -> Sequence[str]:
    from weft.durability.programs import load_graph  # most runs are pipelines
    from weft.runs.explaining import replayed

    try:
        graph, digest = load_graph(run.folder)
        return replayed(run.folder, graph, host.managers, digest).story(subject)
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
    return record.step if record.index is None else loop_item(record.step, record.index)
