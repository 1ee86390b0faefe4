"""The runs that steps of a run have begun themselves, such as those of training jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.model.errors import NotFoundError
from weft.store.state import InnerRun, LogFile, list_inner_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.runs.reading import RunRecord


def inner_runs(run: RunRecord, step: str) -> list[InnerRun]:
    """Return the runs that a step or an item of one has begun; none for a dag. NotFoundError: it does not exist."""
    if run.dag(step):
        return []
    one, item = run.task(step)
    there = list_inner_runs(run.folder)
    return [found for found in there if found.step == one.name and item in (None, found.index or 0)]


def the_inner_run(run: RunRecord, step: str) -> InnerRun:
    """Return the run that a step or an item has begun. NotFoundError: it has begun none yet, or several."""
    found = inner_runs(run, step)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.name for one in found[:10])
        raise NotFoundError(f"{step} of {run.id} has {len(found)} items", hint=f"Name one of them: {names}")
    raise NotFoundError(f"{step} of {run.id} has no replicas", hint="Steps of kind training have some once they run.")


def with_logs(
    own: Sequence[LogFile], inner: Sequence[InnerRun], logs_of: Callable[[InnerRun], Sequence[LogFile]]
) -> Iterator[LogFile]:
    """Yield the logs of steps, each followed by those of the runs that it has begun, named as in `train/worker`."""
    rest = list(inner)
    for log in own:
        yield log
        for one in [one for one in rest if (one.step, one.index) == (log.step, log.index)]:
            rest.remove(one)
            yield from _named(one, logs_of(one))
    for one in rest:
        yield from _named(one, logs_of(one))


def _named(inner: InnerRun, logs: Sequence[LogFile]) -> Iterator[LogFile]:
    for log in logs:
        yield replace(log, step=f"{inner.name}/{log.step}")
