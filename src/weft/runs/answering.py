"""The answer to `weft why`, for a run, a step, an item or a replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.model.errors import UsageError
from weft.runs.listing import split_target
from weft.runs.reasons import Reasons, not_started, reasons, state_of
from weft.runs.records import INTERRUPTED, SUSPENDED

if TYPE_CHECKING:
    from weft.engine.waiting import Wait
    from weft.runs.reading import RunRecord
    from weft.runs.sources import RunReader


def why(reader: RunReader, target: str, against: str | None, note: Callable[[str], None]) -> Reasons:
    """Return why a step waits or ran, or what of a run waits; see `RunService.why`."""
    name = split_target(target)
    run = reader.show(name.run)
    if run.of_jobs:
        from weft.runs.job_reasons import reasons_of_jobs  # most runs have none

        return reasons_of_jobs(run, name.step, reader)
    step, slash, replica = name.step.partition("/")
    if slash:
        from weft.runs.job_reasons import reasons_of_jobs

        (inner,) = reader.show_inner(run, step, alone=True)
        found = reasons_of_jobs(inner, replica, reader)
        return replace(found, step=f"{step}/{found.step}" if replica else step)
    if not name.step:
        return _of_run(reader, run, target)
    if name.attempt is not None:
        from weft.runs.timeline import events_of

        events_of(run, name.step, name.attempt)  # an attempt that is not there is refused
    other = None if against is None else reader.show(against)
    waits: Sequence[Wait] = ()
    if run.task(name.step)[0].ended is None:
        from weft.runs.explaining import waits_of  # the engine is of use for a step that waits alone

        waits = [*waits_of(run, name.step, reader), *_inner_waits(reader, run, name.step)]
    with reader.results(note) as cache:
        found = reasons(cache, run, name.step, other, note)
        state, remark = state_of(run, name.step), _restarts(run, name.step)
        return replace(found, waits=tuple(waits), state=state, remark=remark)


def _of_run(reader: RunReader, run: RunRecord, target: str) -> Reasons:
    """Return what of a run waits. UsageError: it has ended."""
    if run.ended is not None and run.state not in (INTERRUPTED, SUSPENDED):
        message = f"{target} is a run that has ended, in which nothing waits"
        raise UsageError(message, hint=f"Write: weft why {target}/STEP")
    waiting = (*_waits(reader, run), *_waits_of_jobs(reader, run))
    told = {wait.subject.partition("[")[0] for wait in waiting}
    held = tuple(one for one in not_started(run) if one.step not in told)
    if not waiting and held:
        return held[0] if len(held) == 1 else Reasons(run.id, "none", f"the run is {run.state}", items=held)
    if not waiting and run.state == "pending":
        return Reasons(run.id, "none", "it has not begun: its process starts, or waits for workers")
    return Reasons(run.id, "none", "nothing of it waits", waits=waiting, items=held, remark=_restarts(run))


def _restarts(run: RunRecord, step: str = "") -> str:
    """Return which training jobs of a run, or of one step of it, start replicas again without a limit; "" for none."""
    jobs = [job for job in run.jobs if "unlimited_restarts" in job and step in ("", job["step"])]
    if not jobs:
        return ""
    from weft.runs.job_reasons import unlimited_text  # most runs have none

    return " ".join(f"{job['step']}: {unlimited_text(job)}" for job in jobs)


def _inner_waits(reader: RunReader, run: RunRecord, step: str) -> Iterator[Wait]:
    """Yield what the replicas of a step wait for."""
    for inner in reader.show_inner(run, step):
        if inner.ended is None:
            yield from _waits(reader, inner)


def _waits_of_jobs(reader: RunReader, run: RunRecord) -> Iterator[Wait]:
    """Yield what the jobs of steps that run wait for; their subjects are replicas of the steps, or the steps."""
    with_jobs = {job["step"] for job in run.jobs}
    for step in run.steps:
        if step.state == "running" and step.name in with_jobs:
            for inner in reader.show_inner(run, step.name):
                for wait in _waits(reader, inner) if inner.ended is None else ():
                    own = step.name if wait.subject == inner.name else f"{step.name}/{wait.subject}"
                    yield replace(wait, subject=own)


def _waits(reader: RunReader, run: RunRecord) -> tuple[Wait, ...]:
    """Return what tasks of a run wait for, without those that nobody has asked for."""
    from weft.engine.waiting import HELD
    from weft.runs.explaining import waits_within

    return tuple(wait for wait in waits_within(run, "", reader) if wait.kind != HELD)
