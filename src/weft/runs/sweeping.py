"""The begin of sweeps: the points of a new one, and those of an earlier one that is taken up again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.model.errors import UsageError
from weft.runs.grids import StopCondition, points_of
from weft.runs.requests import portable
from weft.runs.sweep_files import SweepPlan, digest_of_file, own_sweep, read_plan, save_plan
from weft.runs.sweeps import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.runs.requests import RunRequest
    from weft.runs.sweeps import SweepHost


def begin_sweep(
    service: SweepHost,
    request: RunRequest,
    say: Callable[[str], None],
    *,
    sample: int | None,
    seed: int | None,
    metric: str,
    maximize: bool,
    at_a_time: int,
    stop_when: str,
    halve: str,
    flags: Mapping[str, str],
) -> Sweep:
    """Return a new sweep; nothing is started. UsageError: an option is wrong."""
    if at_a_time < 0:
        raise UsageError(f"--at-a-time is {at_a_time}; it must be 0 or more")
    if halve and not metric:
        raise UsageError("--halve needs the metric that decides", hint="For example: --halve epoch --metric loss")
    if maximize and not metric:
        raise UsageError("--maximize needs a metric", hint="For example: --metric accuracy --maximize")
    if seed is not None and sample is None:
        raise UsageError("--seed needs --sample: without it all points run")
    if stop_when:
        StopCondition(stop_when)
    if seed is None:
        from secrets import randbelow  # only new samples need one

        seed = 0 if sample is None else randbelow(1 << 31)
    points, varied = points_of(request.parameters, sample, seed)
    plan = SweepPlan(
        request=portable(replace(request, parameters={})),
        points=points,
        varied=varied,
        seed=seed,
        metric=metric,
        maximize=maximize,
        at_a_time=at_a_time,
        stop_when=stop_when,
        halve=halve,
        flags=flags,
    )
    plan = replace(plan, digest=digest_of_file(plan.request.file))
    sweep = Sweep(service, plan, say)
    sweep.check()
    sweep.plan = save_plan(service.state, plan)
    sweep.lock = own_sweep(service.state, sweep.plan.id)
    return sweep


def sweep_again(service: SweepHost, name: str, say: Callable[[str], None], *, at_a_time: int, metric: str) -> Sweep:
    """Return an earlier sweep, with the runs that it has; the given options replace its own.

    NotFoundError: there is none. ConflictError: another process runs it, or its file has changed.
    """
    plan = read_plan(service.state, name)
    lock = own_sweep(service.state, plan.id)
    try:
        sweep = Sweep(service, replace(plan, at_a_time=at_a_time or plan.at_a_time, metric=metric or plan.metric), say)
        sweep.check()
    except BaseException:
        lock.release()
        raise
    sweep.lock = lock
    return sweep
